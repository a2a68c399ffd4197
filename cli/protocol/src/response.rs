//! The answers to requests.

use dataset::name::{DatasetName, SnapshotName};
use serde::{Deserialize, Serialize};

use super::{failure::Failure, record::*};

/// The answer of a pool to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Response {
    /// Success, without further data.
    Done,
    /// Uncommitted writes are lost; the pool remains at the given transaction group.
    GivenUp(u64),
    /// Properties of a pool, and vdevs on request.
    Pool(PoolRecord),
    /// State, devices and errors of a pool.
    Status(Box<PoolStatus>),
    /// History of a pool, oldest line first.
    History(Vec<HistoryRecord>),
    /// Result of a verification.
    Checked(CheckReport),
    /// Number of bytes that a scrub would verify, or that a trim has trimmed or would trim.
    Bytes(u64),
    /// Loss that a failure would cause.
    Losses(LossReport),
    /// Recorded events, oldest first.
    Events(Vec<EventRecord>),
    /// Number of entries of a list, with those outside of the requested part.
    Listed(u64),
    /// Number of events cleared.
    Cleared(u64),
    /// Result of scrubbing a part.
    Examined(ExaminedRecord),
    /// Background activities, each activity once.
    Activities(Vec<ActivityRecord>),
    /// Counters, for comparison with earlier counters.
    IoCounters(Box<IoSample>),
    /// Figures of the caches, for comparison with earlier figures.
    Cache(CacheSample),
    /// The devices of a pool, present or planned.
    Layout(Layout),
    /// Requirements of removing a vdev.
    Removal(RemovalPlan),
    /// Effect of a planned rebalance.
    Rebalance(RebalancePlan),
    /// Effect of a planned defragmentation.
    Defragment(DefragmentPlan),
    /// Requirements of a resize.
    Resize(ResizePlan),
    /// Devices with space at the end that the pool does not use, after a resize.
    Resized(Vec<String>),
    /// Result of splitting a pool.
    Split(SplitRecord),
    /// File systems created, or to create in a dry run; ancestors first.
    Created(Vec<DatasetName>),
    /// Names destroyed, or to destroy in a dry run, and the space freed.
    Destroyed(DestroyRecord),
    /// Effects of a dry run on values, names and mounts.
    Foreseen(Box<ForeseenRecord>),
    /// Mounted file systems and snapshots.
    Mounts(Vec<MountRecord>),
    /// Requests of the kernel to each mount, by name.
    FileCounters(Vec<FileSample>),
    /// Requests by user, process and file, of each mount, by name.
    Activity(Vec<WatchSample>),
    /// Holds on the requested snapshots.
    Holds(Vec<HoldRecord>),
    /// Parts of a stream sent, or to send in a dry run.
    Sent(Vec<SentRecord>),
    /// Parts of a stream received, or to receive in a dry run.
    Received {
        /// The snapshots, in the order of the stream.
        records: Vec<ReceivedRecord>,
        /// The snapshots that were there already: their parts were skipped.
        skipped: Vec<SnapshotName>,
        /// Why file systems could not be mounted afterwards.
        unmounted: Option<Failure>,
    },
    /// Permissions on a dataset and on the datasets above, the dataset first; datasets without grants are left out.
    Allowances(Vec<AllowanceRecord>),
    /// Result of a corrective receive, or of its dry run.
    Corrected(CorrectedRecord),
    /// Usage and quotas, in ascending order of id.
    Accounts(Vec<AccountRecord>),
    /// Number of files, directories and bytes copied.
    Copied(CopyRecord),
}
