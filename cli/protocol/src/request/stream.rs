//! Requests that compare, send or receive states of datasets.

use dataset::name::{DatasetName, Name, SnapshotName};
use serde::{Deserialize, Serialize};

use crate::record::Assignment;

/// A request that compares, sends or receives states of datasets. The comment on each variant
/// ends with the [`Response`](crate::Response) it expects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamRequest {
    /// Changes in a file system since a snapshot. Parts of `Changes`, then `Done`
    Diff {
        /// The snapshot with the older state.
        from: SnapshotName,
        /// The newer state: a later snapshot, or a live file system.
        to: Name,
    },
    /// Write a stream to the descriptor beside the request; a dry run has no descriptor. `Sent`
    Send {
        /// Snapshots, base and flags of the stream.
        what: SendSpec,
        /// List and estimate the stream, and send nothing.
        dry_run: bool,
    },
    /// Write the partial state of an interrupted receive to the descriptor beside the request; a dry run has no
    /// descriptor. `Sent`
    SendSaved {
        /// The destination of the interrupted receive.
        dataset: DatasetName,
        /// Estimate the stream, and send nothing.
        dry_run: bool,
        /// Maximum number of bytes per second.
        limit: Option<u64>,
    },
    /// Read a stream from the descriptor beside the request. `Received`
    Receive(ReceiveSpec),
    /// Repair damaged blocks of existing snapshots from the stream on the descriptor beside the request. `Corrected`
    Correct(ReceiveSpec),
    /// Discard what an interrupted receive has stored for a file system. `Done`
    DiscardPartial(DatasetName),
}

/// Content of a stream to send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendSpec {
    /// The snapshot to send.
    pub snapshot: SnapshotName,
    /// The state at the receiver: a snapshot or bookmark of the same dataset or of its origin. `None` for a full
    /// stream.
    pub base: Option<Name>,
    /// Include all snapshots between the base and `snapshot`.
    pub intermediates: bool,
    /// Include all descendants with properties and clones, and their snapshots up to the name of `snapshot`.
    pub replicate: bool,
    /// With `replicate`: skip datasets that lack the snapshot instead of failing.
    pub skip_missing: bool,
    /// Include properties (always with `replicate`).
    pub properties: bool,
    /// Include received values only, also those that local values override.
    pub backup: bool,
    /// With `replicate`: file systems to leave out, with their descendants.
    pub exclude: Vec<DatasetName>,
    /// Include holds on the snapshots.
    pub holds: bool,
    /// Expected length of the stream, in bytes, noted in the stream for the progress of the receiver.
    pub size: Option<u64>,
    /// The token of an interrupted receive, whose snapshot is `snapshot`: only the rest of the stream.
    pub resume: Option<String>,
    /// The format of the stream.
    pub format: StreamFormat,
    /// Maximum number of bytes per second.
    pub limit: Option<u64>,
}

impl SendSpec {
    /// A full stream of one snapshot, as `fs send` without options.
    pub fn full(snapshot: SnapshotName) -> SendSpec {
        SendSpec {
            snapshot,
            base: None,
            intermediates: false,
            replicate: false,
            skip_missing: false,
            properties: false,
            backup: false,
            exclude: Vec::new(),
            holds: false,
            size: None,
            resume: None,
            format: StreamFormat::Cenote,
            limit: None,
        }
    }
}

/// The format of a stream to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamFormat {
    /// The format of Cenote.
    #[default]
    Cenote,
    /// The format of OpenZFS.
    Zfs,
    /// The format of zfs-fuse.
    ZfsFuse,
}

/// Destination and options of a receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveSpec {
    /// A file system, or the exact snapshot to create.
    pub target: Name,
    /// How `target` and the sent name combine.
    pub naming: ReceiveNaming,
    /// Roll `target` back to its newest snapshot first; for a replication stream, destroy what the sender lacks.
    pub force: bool,
    /// Leave received file systems unmounted.
    pub no_mount: bool,
    /// Read only the stream's headers, and report the result.
    pub dry_run: bool,
    /// Values that override the received values.
    pub assignments: Vec<Assignment>,
    /// Properties to ignore in the stream.
    pub exclude: Vec<String>,
    /// The snapshot that becomes the origin of the first received file system, a clone.
    pub origin: Option<SnapshotName>,
    /// Ignore the holds in the stream.
    pub skip_holds: bool,
    /// If the receive fails, keep what it has stored, to be resumed.
    pub resumable: bool,
    /// Maximum number of bytes per second.
    pub limit: Option<u64>,
}

impl ReceiveSpec {
    /// A receive into exactly `target`, as `fs receive` without options.
    pub fn exact(target: Name) -> ReceiveSpec {
        ReceiveSpec {
            target,
            naming: ReceiveNaming::Exact,
            force: false,
            no_mount: false,
            dry_run: false,
            assignments: Vec::new(),
            exclude: Vec::new(),
            origin: None,
            skip_holds: false,
            resumable: false,
            limit: None,
        }
    }
}

/// How [`ReceiveSpec::target`] and the sent name combine to the received name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReceiveNaming {
    /// The target, unchanged.
    Exact,
    /// Below the target, the sent name without its pool (`-d`).
    WithoutPool,
    /// Below the target, the last component of the sent name (`-e`).
    LastComponent,
}
