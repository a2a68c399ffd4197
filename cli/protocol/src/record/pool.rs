//! Pools: state, activities, history, events, counters.

use std::collections::BTreeMap;

use dataset::jobs::JobRecord;
use pool::device::Flow;
use serde::{Deserialize, Serialize};

use super::{
    property::PropertyRecord,
    state::State,
    vdev::{VdevRecord, VdevRole},
};

/// A pool with its properties and, on request, its devices: the answer for `pool list` and `pool get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Name under which the pool is imported.
    pub name: String,
    /// GUID of the pool, unchanged by a rename.
    pub guid: u64,
    /// Health of the pool: online if no device has failed.
    pub state: State,
    /// Newest committed transaction group.
    pub txg: u64,
    /// The requested properties, in the requested order.
    pub properties: Vec<PropertyRecord>,
    /// Vdevs and cache devices; empty unless requested.
    pub vdevs: Vec<VdevRecord>,
    /// Spares; empty unless vdevs were requested.
    pub spares: Vec<VdevRecord>,
}

/// Everything that `pool status` shows of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name under which the pool is imported.
    pub name: String,
    /// GUID of the pool, unchanged by a rename.
    pub guid: u64,
    /// Health of the pool.
    pub state: State,
    /// Newest committed transaction group.
    pub txg: u64,
    /// Description of the most serious problem; `None` if the pool is healthy.
    pub status: Option<String>,
    /// What the administrator should do about `status`.
    pub action: Option<String>,
    /// All alerts, most serious first; at most [`AlertRecord::MOST`].
    pub alerts: Vec<AlertRecord>,
    /// Time at which the next scrub is due, in seconds since 1970; `None` unless scrubs start by themselves.
    pub next_scrub: Option<i64>,
    /// The current or last job of each kind. Of scrub and resilver only the current, else the later; of a suspended
    /// pool neither.
    pub jobs: Vec<JobRecord>,
    /// Any further background activity, such as freeing destroyed datasets.
    pub activity: Option<String>,
    /// Number of mounted file systems by transport: `fuse` or `uring`.
    pub transports: BTreeMap<String, u64>,
    /// Vdevs and cache devices.
    pub vdevs: Vec<VdevRecord>,
    /// Spares, each with `AVAIL`, `INUSE` or its problem.
    pub spares: Vec<VdevRecord>,
    /// Everything with unrecoverable errors: files as `dataset:path`, metadata by description. `None` while the pool is
    /// suspended, because the list cannot be read then.
    pub damaged: Option<Vec<String>>,
    /// Number of blocks with a bad copy that a reader met and no job has examined yet.
    pub unexamined: u64,
}

/// A condition of a pool that needs the attention of its administrator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlertRecord {
    /// The condition, and last word of its event's class, `alert.fs.cenote.WORD`.
    pub word: String,
    /// How soon the administrator has to act.
    pub severity: Severity,
    /// The device or dataset with the problem; `None` for the pool.
    pub subject: Option<String>,
    /// Description of the problem.
    pub problem: String,
    /// Advice to the administrator, often with commands.
    pub action: String,
}

impl AlertRecord {
    /// Most alerts of a pool at a time.
    pub const MOST: usize = 64;
}

/// How soon an administrator has to act, from least to most urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something to plan: the pool works, with all redundancy.
    Notice,
    /// Redundancy is reduced, or a device fails.
    Warning,
    /// Data is lost or unavailable.
    Critical,
}

impl Severity {
    /// The word in JSON, events and configuration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Critical => "critical",
        }
    }
}

/// Result of a scrub of files or damaged blocks only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExaminedRecord {
    /// Bytes that were read and verified.
    pub examined: u64,
    /// Bytes rewritten over bad copies.
    pub repaired: u64,
    /// Number of blocks without a good copy.
    pub errors: u64,
}

/// Background activity of a pool, as `pool wait` names activities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// Emptying regions with mostly free space.
    Defragment,
    /// Freeing the blocks of destroyed datasets.
    Freeing,
    /// Expanding a RAID-Z.
    Expand,
    /// Spreading data evenly over all vdevs.
    Rebalance,
    /// Removing a vdev from the pool.
    Remove,
    /// Replacing a device.
    Replace,
    /// Copying to devices the blocks missing there.
    Resilver,
    /// Shrinking a device.
    Resize,
    /// Verifying all blocks of the pool.
    Scrub,
    /// Trimming unused space of devices.
    Trim,
    /// Writing a pattern to unused space of devices.
    Initialize,
}

impl Activity {
    /// Every activity, each exactly once.
    pub const ALL: [Activity; 11] = [
        Activity::Defragment,
        Activity::Freeing,
        Activity::Expand,
        Activity::Rebalance,
        Activity::Remove,
        Activity::Replace,
        Activity::Resilver,
        Activity::Resize,
        Activity::Scrub,
        Activity::Trim,
        Activity::Initialize,
    ];

    /// The activity's word for `pool wait`: OpenZFS's, where OpenZFS has the activity.
    pub fn as_str(self) -> &'static str {
        match self {
            Activity::Defragment => "defragment",
            Activity::Freeing => "free",
            Activity::Expand => "raidz_expand",
            Activity::Rebalance => "rebalance",
            Activity::Remove => "remove",
            Activity::Replace => "replace",
            Activity::Resilver => "resilver",
            Activity::Resize => "resize",
            Activity::Scrub => "scrub",
            Activity::Trim => "trim",
            Activity::Initialize => "initialize",
        }
    }
}

/// An activity and the amount of work left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityRecord {
    /// The activity reported on.
    pub activity: Activity,
    /// Estimated bytes left; `None` unless the activity runs.
    pub left: Option<u64>,
}

/// A line of a pool's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// Time of the command, in seconds since 1970.
    pub time: i64,
    /// Transaction group that recorded the line.
    pub txg: u64,
    /// The command line, or a description of an internal change.
    pub text: String,
    /// Whether the engine acted by itself, without a command.
    pub internal: bool,
    /// Numeric user id and host name of the caller.
    pub user: Option<(u32, String)>,
}

/// An event, as `pool events` prints events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Sequence number: counts from 1, over restarts of the service.
    pub number: u64,
    /// Time of detection, in nanoseconds since 1970.
    pub time: i64,
    /// Event class in OpenZFS's terms.
    pub class: String,
    /// Names and values, as printed below the event.
    pub details: Vec<(String, String)>,
}

/// I/O counters of a pool and its devices since import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoSample {
    /// Time since import, in nanoseconds.
    pub elapsed: u64,
    /// Sum over the pool, under the pool's name.
    pub pool: IoCounts,
    /// Each vdev and cache device: a device under its path, a mirror or RAID-Z under its name.
    pub vdevs: Vec<IoCounts>,
}

/// I/O counters of a device, a vdev or the whole pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounts {
    /// Name of the pool or vdev, or path of the device.
    pub name: String,
    /// Allocation class of a vdev, or cache device.
    pub role: VdevRole,
    /// Allocated space at present, in bytes.
    pub allocated: u64,
    /// Free space at present, in bytes.
    pub free: u64,
    /// Number of completed reads.
    pub reads: u64,
    /// Number of completed writes.
    pub writes: u64,
    /// Bytes read since import.
    pub read_bytes: u64,
    /// Bytes written since import.
    pub written_bytes: u64,
    /// Waits, sizes and queues of the requests since import.
    pub flow: Flow,
    /// Counters of each device in a mirror or RAID-Z, with `allocated` and `free` at 0.
    pub members: Vec<IoCounts>,
}
