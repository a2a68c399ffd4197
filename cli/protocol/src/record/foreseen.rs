//! What a request would change, from its dry run.

use dataset::name::{DatasetName, Name};
use serde::{Deserialize, Serialize};

use super::{file::PathBytes, property::PropertyRecord};

/// The effects of a request, from its dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeseenRecord {
    /// Names before and after, of datasets and snapshots.
    pub renamed: Vec<(String, String)>,
    /// File systems to create, ancestors first.
    pub created: Vec<DatasetName>,
    /// Values that would differ, of the named dataset and its descendants, or of the pool.
    pub values: Vec<ForeseenValueRecord>,
    /// Mounts to make, to end or to make again.
    pub mounts: Vec<ForeseenMountRecord>,
    /// Snapshots, bookmarks and clones to destroy.
    pub destroyed: Vec<String>,
    /// Space freed, in bytes.
    pub reclaim: u64,
}

/// A value before and after a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeseenValueRecord {
    /// Name of the pool, dataset or snapshot after the request.
    pub name: String,
    /// The value before; `None` for a user property that is not set.
    pub before: Option<PropertyRecord>,
    /// The value after; `None` for a user property that would no longer be set.
    pub after: Option<PropertyRecord>,
}

/// A mount before and after a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeseenMountRecord {
    /// The file system or snapshot, with the name before the request.
    pub dataset: Name,
    /// The present mount point; `None` if not mounted.
    pub before: Option<PathBytes>,
    /// The later mount point; `None` if no longer mounted.
    pub after: Option<PathBytes>,
}
