//! The datasets of an opened pool, and what every request uses.
//!
//! ```text
//! datasets   the pool's datasets: running requests, reading the catalogue
//! client     the syncing context
//! names, resolve  names to ids, and back
//! opened     the table of open datasets
//! counts     the numbers of file systems and snapshots, and their limits
//! limits, quotas  the space available to a dataset, and shared by all datasets below a quota
//! long_hold  holds on snapshots that a command reads as a whole
//! feature    the features of the pool's format
//! format     the tree of a new dataset
//! history    the pool's history
//! ```

pub(super) mod client;
pub(super) mod counts;
pub(super) mod datasets;
pub(crate) mod feature;
pub(super) mod format;
pub(super) mod history;
pub(super) mod limits;
pub(super) mod long_hold;
pub(super) mod names;
pub(super) mod opened;
pub(super) mod quotas;
pub(super) mod resolve;
