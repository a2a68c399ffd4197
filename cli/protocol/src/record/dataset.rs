//! Datasets, their properties, snapshots and streams.

use dataset::{
    admin::Grant,
    name::{DatasetName, Name, SnapshotName},
    property::Kinds,
};
use serde::{Deserialize, Serialize};

use super::{file::PathBytes, property::PropertyRecord};

/// A dataset, snapshot or bookmark, with the requested properties.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetRecord {
    /// Full name, including the pool.
    pub name: Name,
    /// Transaction group that created the dataset.
    pub createtxg: u64,
    /// The requested properties that apply, in the requested order.
    pub properties: Vec<PropertyRecord>,
}

impl DatasetRecord {
    /// File system, snapshot or bookmark, by the name.
    pub fn kind(&self) -> Kinds {
        match self.name {
            Name::Dataset(_) => Kinds::FILESYSTEM,
            Name::Snapshot(_) => Kinds::SNAPSHOT,
            Name::Bookmark(_) => Kinds::BOOKMARK,
        }
    }
}

/// Result of a destroy, done or planned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestroyRecord {
    /// Names, in the order of destruction.
    pub names: Vec<String>,
    /// Space freed, in bytes.
    pub reclaim: u64,
}

/// A mounted file system or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountRecord {
    /// Name of the file system or snapshot.
    pub dataset: Name,
    /// Mount point, as an absolute path.
    pub mountpoint: PathBytes,
    /// Transport of requests from the kernel: `fuse` or `uring`.
    pub transport: String,
    /// Number of requests of each kind since the mount. Kinds without requests are left out.
    pub requests: Vec<(String, u64)>,
}

/// The permissions given on one dataset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllowanceRecord {
    /// Name of the dataset.
    pub dataset: DatasetName,
    /// The grants, by grantee.
    pub grants: Vec<Grant>,
}

/// A hold on a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRecord {
    /// Name of the held snapshot.
    pub snapshot: SnapshotName,
    /// Tag that names the hold.
    pub tag: String,
    /// Time of the hold, in seconds since 1970.
    pub time: i64,
}

/// One part of a sent stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRecord {
    /// The base of an incremental part; `None` for a full part.
    pub base: Option<Name>,
    /// Name of the sent snapshot.
    pub snapshot: SnapshotName,
    /// Size in the stream, in bytes; an estimate in a dry run.
    pub bytes: u64,
}

/// One part of a received stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceivedRecord {
    /// Name of the snapshot at the sender.
    pub sent: SnapshotName,
    /// Name of the snapshot at the receiver, existing or planned.
    pub received: SnapshotName,
    /// Whether the part is incremental.
    pub incremental: bool,
    /// Size in the stream, in bytes; 0 if the part was not received.
    pub bytes: u64,
    /// Duration of the receive, in milliseconds.
    pub milliseconds: u64,
    /// Number of holds of the stream left out, because the user may not place holds.
    pub left_out_holds: u64,
}

/// Result of a corrective receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CorrectedRecord {
    /// The snapshots with the GUIDs of the streams' snapshots.
    pub snapshots: Vec<SnapshotName>,
    /// Number of streams without such a snapshot.
    pub skipped: u64,
    /// Number of blocks repaired, or to repair in a dry run.
    pub blocks: u64,
    /// Size of these blocks as stored, in bytes.
    pub bytes: u64,
    /// Number of files with these blocks.
    pub files: u64,
    /// Number of damaged blocks for which the stream lacks the stored form.
    pub other_form: u64,
    /// Number of damaged blocks stored in pieces.
    pub in_pieces: u64,
    /// Number of damaged blocks without a checksum.
    pub unchecked: u64,
    /// Number of blocks whose place is unknown, because nodes of the local tree are damaged.
    pub hidden: u64,
    /// Number of blocks that could not be written.
    pub failed: u64,
    /// Number of entries in the pool's list of damage afterwards.
    pub left: u64,
}
