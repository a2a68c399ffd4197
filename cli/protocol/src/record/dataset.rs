//! Datasets, their properties, snapshots and streams.

use dataset::{
    name::{Name, SnapshotName},
    property::{Kinds, Source},
};
use serde::{Deserialize, Serialize};

use super::PathBytes;

/// One property of a pool or a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PropertyRecord {
    /// Its name.
    pub name: String,
    /// Its canonical value; `-` if it has none now.
    pub value: String,
    /// Where the value comes from.
    pub source: Source,
    /// The value that was received, whether it acts or not.
    pub received: Option<String>,
}

/// A dataset, snapshot or bookmark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRecord {
    /// Its name.
    pub name: Name,
    /// The transaction group that created it.
    pub createtxg: u64,
    /// The properties asked for that apply, in the order asked for.
    pub properties: Vec<PropertyRecord>,
}

impl DatasetRecord {
    /// What it is.
    pub fn kind(&self) -> Kinds {
        match self.name {
            Name::Dataset(_) => Kinds::FILESYSTEM,
            Name::Snapshot(_) => Kinds::SNAPSHOT,
            Name::Bookmark(_) => Kinds::BOOKMARK,
        }
    }
}

/// What was or would be destroyed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyRecord {
    /// The names, in the order of destruction.
    pub names: Vec<String>,
    /// The space that becomes free.
    pub reclaim: u64,
}

/// A mounted file system or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRecord {
    /// Its name.
    pub dataset: Name,
    /// Where.
    pub mountpoint: PathBytes,
    /// How its requests come from the kernel: `fuse` or `uring`.
    pub transport: String,
    /// How many requests of each kind have come since it was mounted. Kinds that never came are left out.
    pub requests: Vec<(String, u64)>,
}

/// A hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// The snapshot.
    pub snapshot: SnapshotName,
    /// The hold's name.
    pub tag: String,
    /// Since when.
    pub time: i64,
}

/// One part of a sent stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRecord {
    /// The base, for an incremental part.
    pub base: Option<Name>,
    /// The snapshot sent.
    pub snapshot: SnapshotName,
    /// Its size in the stream; an estimate when nothing was sent.
    pub bytes: u64,
}

/// One part of a received stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedRecord {
    /// The snapshot as it was sent.
    pub sent: SnapshotName,
    /// The snapshot as it was or would be received.
    pub received: SnapshotName,
    /// Whether it was incremental.
    pub incremental: bool,
    /// Its size in the stream; 0 when it was not received.
    pub bytes: u64,
    /// How long it took.
    pub milliseconds: u64,
}
