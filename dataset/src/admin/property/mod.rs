//! Properties of datasets and pools: setting, inheriting, and the source of a value.
//!
//! ```text
//! assign     setting and inheriting
//! values     all values of a dataset, from the rows of the catalogue
//! features   the states of the pool's features
//! placement  the names of vdevs in `vdevs`
//! ```

pub(super) mod assign;
pub(super) mod features;
pub(super) mod placement;
pub(super) mod values;
