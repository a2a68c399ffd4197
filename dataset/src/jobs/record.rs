//! The record of a job: status lines, JSON, progress and waiting commands show nothing else about a job. Each job makes
//! its own record ([`Job::record`](super::job::Job::record)).

use pool::env::Nanos;
use serde::{Deserialize, Serialize};

use super::kind::Kind;

/// Progress and result of a job: of the current job of its kind, or of the last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    /// What the job does.
    pub kind: Kind,
    /// Running, waiting, or how the job ended.
    pub state: JobState,
    /// Start, in nanoseconds since 1970.
    pub begun: Nanos,
    /// End of the job or start of a scrub's pause, in nanoseconds since 1970; 0 while running.
    pub ended: Nanos,
    /// Duration in seconds. While a job moves data: since the start, or since the pool was opened.
    pub seconds: u64,
    /// Average rate of the work, in bytes per second.
    pub rate: u64,
    /// Bytes to examine or copy, counted at the start.
    pub total: u64,
    /// Bytes examined or copied so far; may exceed `total`, which omits data written since.
    pub done: u64,
    /// Bytes rewritten over bad copies, or onto devices that lacked them.
    pub repaired: u64,
    /// Number of blocks without a good copy.
    pub errors: u64,
    /// Limit of the job under way, in bytes per second, if an administrator set a limit.
    pub limit: Option<u64>,
    /// Facts about this kind of job only.
    pub detail: Detail,
}

/// How far a job has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// Works, or waits for its turn.
    Running,
    /// Waits until an administrator starts the job again.
    Paused,
    /// Under way, and cannot continue now.
    Waiting(Reason),
    /// Ended after all work.
    Finished,
    /// Stopped by an administrator; a resilver by a change of devices.
    Canceled,
    /// Ended before its time.
    Failed(Reason),
}

/// Why a job waits or has failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Too little free space elsewhere.
    NoRoom,
    /// A device lacks blocks.
    Degraded,
    /// A block could not be read.
    Unreadable,
    /// A device is missing, or cannot be shrunk; described by the text.
    Device(String),
}

/// Facts about one kind of job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Detail {
    /// No further facts: a scrub, a resilver or a rebalance.
    None,
    /// A trim or an initialization of vdevs. The bytes of the record are those of the space looked at, free or not.
    Pass {
        /// Bytes trimmed or written so far.
        bytes: u64,
    },
    /// The removal of a vdev.
    Removal {
        /// Name of the vdev, present or former.
        name: String,
        /// Index of the vdev within the pool.
        vdev: u64,
    },
    /// The resize of a vdev.
    Resize {
        /// Name of the vdev, present or former.
        name: String,
        /// New size of each device, in bytes.
        size: u64,
    },
    /// A defragmentation.
    Defragment {
        /// Number of regions to empty, counted at the start.
        wanted: u64,
        /// Number of regions emptied so far.
        emptied: u64,
        /// Number of regions that received data of the emptied regions.
        taken: u64,
        /// Number of packed chunks in the pool, packed by any job.
        packed: u64,
        /// Memory that the maps of packed chunks take, in bytes.
        maps: u64,
    },
    /// An expansion. The bytes of the record are of the regions being emptied.
    Expansion {
        /// Name of the RAID-Z vdev.
        name: String,
        /// Number of columns, the new device included.
        columns: u64,
        /// Number of rows in the vdev.
        rows: u64,
        /// Number of rows that already span all columns.
        rows_done: u64,
        /// Number of regions being emptied.
        regions: u64,
    },
}

impl JobRecord {
    /// The vdev that the job works on; `None` for a job on the whole pool.
    pub fn vdev(&self) -> Option<&str> {
        match &self.detail {
            Detail::None | Detail::Pass { .. } | Detail::Defragment { .. } => None,
            Detail::Removal { name, .. } | Detail::Resize { name, .. } | Detail::Expansion { name, .. } => Some(name),
        }
    }

    /// Estimated bytes left.
    pub fn left(&self) -> u64 {
        self.total.saturating_sub(self.done)
    }

    /// Bytes done, and all bytes: at least the bytes done.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done, self.total.max(self.done))
    }

    /// Work done and all work: rows of an expansion, bytes of another job.
    pub fn progress(&self) -> (u64, u64) {
        match self.detail {
            Detail::Expansion { rows, rows_done, .. } => (rows_done, rows),
            _ => self.bytes(),
        }
    }

    /// Why the job waits or has failed, as text.
    pub fn why(&self) -> Option<&str> {
        let (JobState::Waiting(reason) | JobState::Failed(reason)) = &self.state else { return None };
        Some(match (reason, self.kind) {
            (Reason::NoRoom, Kind::Remove | Kind::Resize) => "too few empty regions on other vdevs",
            (Reason::NoRoom, Kind::Rebalance) => "too few empty regions",
            (Reason::NoRoom, _) => "too little free space",
            (Reason::Unreadable, Kind::Resize) => "data at its end could not be read",
            (Reason::Unreadable, Kind::Remove | Kind::Expand) => "data on it could not be read",
            (Reason::Unreadable, _) => "data could not be read",
            (Reason::Degraded, _) => "not all of its devices are complete",
            (Reason::Device(text), _) => text,
        })
    }
}

/// Seconds between two times; 0 if the clock was set back.
pub(super) fn seconds_between(begun: Nanos, ended: Nanos) -> u64 {
    const NANOS: Nanos = 1_000_000_000;
    u64::try_from(ended.saturating_sub(begun) / NANOS).unwrap_or(0)
}
