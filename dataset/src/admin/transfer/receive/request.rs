//! The request of a receive, and the result.

use pool::{env::Nanos, units::Txg};

use crate::{
    admin::{property::assign::Assignment, report::replaced::Replaced},
    error::{Error, Result},
    name::{DatasetName, Name, SnapshotName},
    stream::{Begin, Received, Watched},
};

/// The rule for names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Naming {
    /// The topmost dataset gets the target's name; descendants keep their names below it.
    #[default]
    Exact,
    /// The sender's names without the pool, below the target (`-d`).
    WithoutPool,
    /// From the last component of the topmost dataset's name on, below the target (`-e`).
    LastPart,
}

/// The request of a receive.
#[derive(Clone, Debug)]
pub struct ReceiveRequest {
    /// The target dataset, or the target snapshot if the snapshot's name should differ from the sender's.
    pub target: Name,
    /// The rule for names.
    pub naming: Naming,
    /// Whether to roll the target back to the base of an incremental stream, destroying later snapshots, or to
    /// overwrite a dataset without snapshots; and for an incremental replication, to destroy whatever the sender no
    /// longer has (`-F`).
    pub force: bool,
    /// Properties to set on the topmost dataset of a package, overriding the stream. Descendants inherit these values.
    pub properties: Vec<Assignment>,
    /// Properties of the stream to ignore.
    pub exclude: Vec<String>,
    /// Whether a receive that fails keeps what it has stored, to be resumed (`-s`).
    pub resumable: bool,
    /// Whether to ignore the holds in the stream (`-h`).
    pub skip_holds: bool,
    /// The snapshot that the first stream becomes a clone of.
    pub origin: Option<SnapshotName>,
    /// The user and group that own the root directories of parents created above the target.
    pub owner: (u32, u32),
    /// Gets the name of the snapshot being received.
    pub watched: Watched,
}

/// The result of a receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// The received snapshots, in order.
    pub snapshots: Vec<ArrivedSnapshot>,
    /// Snapshots already at the destination, in order: their streams were verified and skipped.
    pub skipped: Vec<SnapshotName>,
    /// Datasets with a new tree, and the differences from the old tree: mounts drop their cached copies of those. A
    /// dataset with several streams is listed several times.
    pub replaced: Vec<(u64, Replaced)>,
    /// Parents created above the target, the topmost first.
    pub parents: Vec<DatasetName>,
    /// The names of datasets and snapshots destroyed by the receive.
    pub destroyed: Vec<String>,
    /// The dataset with what a failed receive has kept, to be resumed.
    pub partial: Option<DatasetName>,
    /// The size of the input.
    pub received: Received,
}

/// A received snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrivedSnapshot {
    /// The name at the sender.
    pub sent: SnapshotName,
    /// The name in this pool.
    pub name: SnapshotName,
    /// Whether the stream was incremental.
    pub incremental: bool,
    /// The length of the stream, in bytes.
    pub bytes: u64,
    /// The time that the stream took, in nanoseconds.
    pub time: Nanos,
    /// Holds of the stream left out, because the caller may not place holds.
    pub left_out_holds: u64,
}

impl ReceiveRequest {
    /// The request of a receive without options, by root.
    pub fn plain(target: Name) -> ReceiveRequest {
        ReceiveRequest {
            target,
            naming: Naming::Exact,
            force: false,
            properties: Vec::new(),
            exclude: Vec::new(),
            resumable: false,
            skip_holds: false,
            origin: None,
            owner: (0, 0),
            watched: Watched::default(),
        }
    }

    /// Whether the receive of a stream keeps what it has stored if it fails. A stream of OpenZFS, which has no txg, has
    /// no position.
    pub(super) fn lasts(&self, begin: &Begin) -> bool {
        begin.resumed.is_some() || self.resumable && begin.createtxg != Txg::ZERO
    }
}

impl Arrived {
    /// Whether the same input has already brought a snapshot to the dataset, so that no other command has changed the
    /// dataset.
    pub(super) fn has(&self, name: &SnapshotName) -> bool {
        self.snapshots.iter().any(|snapshot| snapshot.name.dataset() == name.dataset())
    }

    /// Fails if the input was a single stream, of an existing snapshot. A resumable receive (`-s`) accepts the same stream
    /// again.
    pub(super) fn check_new(&self, request: &ReceiveRequest) -> Result<()> {
        match (&self.snapshots[..], &self.skipped[..]) {
            ([], [only]) if !request.resumable => Err(Error::NotReceived {
                name: only.to_string(),
                problem: "the destination already has this snapshot".into(),
                remedy: "nothing to do",
            }),
            _ => Ok(()),
        }
    }
}
