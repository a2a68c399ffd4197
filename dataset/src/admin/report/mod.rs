//! What users ask about datasets: lists, values, differences, damage.
//!
//! ```text
//! list, value     the objects of a pool, and the value of each property
//! compare    the files that differ between two snapshots
//! replaced   the differences for a mount when its file system's tree is replaced
//! modified   whether a dataset was modified or only read
//! losses     the loss if devices were missing
//! foreseen   dry runs: what a request would change
//! damage     the names of permanently damaged files
//! near_quota the quotas that are nearly used up
//! ```

pub(super) mod compare;
pub(super) mod damage;
pub(super) mod foreseen;
pub(super) mod list;
pub(super) mod losses;
pub(super) mod modified;
pub(super) mod near_quota;
pub(super) mod replaced;
pub(super) mod value;
