//! Pools and their devices.

use std::{collections::BTreeMap, ops::RangeInclusive};

use dataset::jobs::JobRecord;
use pool::format::vdev_config::{MIRROR_MEMBERS, RAIDZ_COLUMNS};
use serde::{Deserialize, Serialize};

use super::{file::PathBytes, property::PropertyRecord};

/// A device to add to a pool, and the size of its image if the request creates the image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevSpec {
    /// Absolute path of an image file or a block device.
    pub path: PathBytes,
    /// Size in bytes of a sparse image to create at `path`, where no file may exist; `None` for an existing device.
    pub create: Option<u64>,
}

/// Layout of a vdev: disk, mirror, RAID-Z or spare pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VdevKind {
    /// A single device without redundancy.
    Disk,
    /// Two or more devices; each holds all data of the vdev.
    Mirror,
    /// RAID-Z with one parity column: any single device may fail.
    RaidZ1,
    /// RAID-Z with two parity columns: any two devices may fail.
    RaidZ2,
    /// RAID-Z with three parity columns: any three devices may fail.
    RaidZ3,
    /// A device and the spare in use for the device. Only reported: no command line requests a vdev of this kind.
    Spare,
}

impl VdevKind {
    /// The kind that a keyword of ZFS's vdev syntax introduces.
    pub fn of_word(word: &str) -> Option<VdevKind> {
        match word {
            "mirror" => Some(VdevKind::Mirror),
            "raidz" | "raidz1" => Some(VdevKind::RaidZ1),
            "raidz2" => Some(VdevKind::RaidZ2),
            "raidz3" => Some(VdevKind::RaidZ3),
            _ => None,
        }
    }

    /// How many of `devices` devices may fail, in any combination.
    pub fn may_lose(self, devices: usize) -> usize {
        match self.parity() {
            Some(parity) => parity.into(),
            None if self == VdevKind::Mirror => devices.saturating_sub(1),
            None => 0,
        }
    }

    /// The kind's name in OpenZFS, such as `raidz1`.
    pub fn as_str(self) -> &'static str {
        match self {
            VdevKind::Disk => "disk",
            VdevKind::Mirror => "mirror",
            VdevKind::RaidZ1 => "raidz1",
            VdevKind::RaidZ2 => "raidz2",
            VdevKind::RaidZ3 => "raidz3",
            VdevKind::Spare => "spare",
        }
    }

    /// Number of parity columns of a RAID-Z; `None` for the rest.
    pub fn parity(self) -> Option<u8> {
        match self {
            VdevKind::Disk | VdevKind::Mirror | VdevKind::Spare => None,
            VdevKind::RaidZ1 => Some(1),
            VdevKind::RaidZ2 => Some(2),
            VdevKind::RaidZ3 => Some(3),
        }
    }

    /// Smallest and largest number of devices in a vdev of this kind.
    pub fn devices(self) -> RangeInclusive<usize> {
        match self.parity() {
            Some(parity) => usize::from(parity) + 1..=RAIDZ_COLUMNS,
            None if self == VdevKind::Mirror => MIRROR_MEMBERS,
            None => 1..=1,
        }
    }
}

/// Purpose of a vdev: its allocation class, or a cache device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum VdevRole {
    /// All data and metadata.
    #[default]
    Normal,
    /// Metadata, and small records.
    Special,
    /// Only the intent log.
    Log,
    /// Copies of blocks that were read. A cache device is not a vdev of the pool's layout.
    Cache,
}

impl VdevRole {
    /// The role of vdevs after a keyword of ZFS's vdev syntax.
    pub fn of_word(word: &str) -> Option<VdevRole> {
        match word {
            "special" => Some(VdevRole::Special),
            "log" | "logs" => Some(VdevRole::Log),
            "cache" => Some(VdevRole::Cache),
            _ => None,
        }
    }

    /// Heading above vdevs of this role in a table, as in ZFS; normal vdevs have none.
    pub fn heading(self) -> Option<&'static str> {
        match self {
            VdevRole::Normal => None,
            VdevRole::Special => Some("special"),
            VdevRole::Log => Some("logs"),
            VdevRole::Cache => Some("cache"),
        }
    }

    /// Key above vdevs of this role in JSON, as in ZFS; normal vdevs stand directly below the pool.
    pub fn json_heading(self) -> Option<&'static str> {
        match self {
            VdevRole::Cache => Some("l2cache"),
            role => role.heading(),
        }
    }

    /// The role's word in JSON, as in ZFS.
    pub fn as_str(self) -> &'static str {
        match self {
            VdevRole::Normal => "normal",
            VdevRole::Special => "special",
            VdevRole::Log => "log",
            VdevRole::Cache => "cache",
        }
    }

    /// Groups `all` by role, in the order of the tables; a role without vdevs is left out.
    pub fn groups<T>(all: &[T], role: impl Fn(&T) -> VdevRole) -> Vec<(VdevRole, Vec<&T>)> {
        let of = |wanted| (wanted, all.iter().filter(|one| role(one) == wanted).collect::<Vec<_>>());
        let groups = [VdevRole::Normal, VdevRole::Special, VdevRole::Log, VdevRole::Cache].map(of);
        groups.into_iter().filter(|(_, vdevs)| !vdevs.is_empty()).collect()
    }
}

/// A vdev to add to a pool: role, layout and devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevTreeSpec {
    /// Allocation class, or cache device.
    pub role: VdevRole,
    /// Layout, which bounds the number of devices.
    pub kind: VdevKind,
    /// As many devices as [`VdevKind::devices`] allows: a single device for a disk.
    pub devices: Vec<VdevSpec>,
}

/// A pool with its properties and, on request, its devices: the answer for `pool list` and `pool get`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Name under which the pool is imported.
    pub name: String,
    /// GUID of the pool, unchanged by a rename.
    pub guid: u64,
    /// Health of the pool: `ONLINE` if no device has failed.
    pub state: String,
    /// Newest committed transaction group.
    pub txg: u64,
    /// The requested properties, in the requested order.
    pub properties: Vec<PropertyRecord>,
    /// Vdevs and cache devices; empty unless requested.
    pub vdevs: Vec<VdevRecord>,
    /// Spares; empty unless vdevs were requested.
    pub spares: Vec<VdevRecord>,
}

/// A vdev of a pool, or a device in a vdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevRecord {
    /// Layout of the vdev; a disk for a device.
    pub kind: VdevKind,
    /// Allocation class, or cache device.
    pub role: VdevRole,
    /// Path of a device, or the name of a mirror or RAID-Z.
    pub path: String,
    /// Devices of a mirror or a RAID-Z; empty for a device.
    pub members: Vec<VdevRecord>,
    /// Extra text after the counters, such as `resilvering`.
    pub note: Option<String>,
    /// GUID of the vdev or device.
    pub guid: u64,
    /// `ONLINE`, `DEGRADED`, `OFFLINE`, `UNAVAIL` or `FAULTED`.
    pub state: String,
    /// Total space in bytes; 0 if unknown.
    pub size: u64,
    /// Allocated space, in bytes.
    pub allocated: u64,
    /// Share of the free space in small pieces, in percent.
    pub fragmentation: u64,
    /// Number of reads that failed.
    pub read_errors: u64,
    /// Number of writes that failed.
    pub write_errors: u64,
    /// Number of blocks with a checksum mismatch.
    pub checksum_errors: u64,
    /// TRIM status; `None` where no status is kept.
    pub trim: Option<TrimRecord>,
}

impl VdevRecord {
    /// A device that is not in use by the pool: without space, and with all counters at zero.
    pub fn idle(path: String, state: impl ToString) -> VdevRecord {
        VdevRecord {
            kind: VdevKind::Disk,
            role: VdevRole::Normal,
            path,
            members: Vec::new(),
            note: None,
            guid: 0,
            state: state.to_string(),
            size: 0,
            allocated: 0,
            fragmentation: 0,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            trim: None,
        }
    }
}

/// TRIM status of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimRecord {
    /// Whether TRIM runs, has ended, or is impossible.
    pub state: TrimState,
    /// Share of the device that TRIM has covered, in percent.
    pub percent: u64,
    /// Start of the TRIM, in seconds since 1970; 0 if none was requested.
    pub start: i64,
    /// End of the TRIM, in seconds since 1970; 0 unless complete.
    pub end: i64,
}

/// Phase of a TRIM on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrimState {
    /// No TRIM was requested since import, or the last TRIM failed.
    Untrimmed,
    /// The device does not support TRIM.
    Unsupported,
    /// TRIM runs on the device.
    Active,
    /// TRIM is suspended, and can be resumed.
    Suspended,
    /// TRIM has covered all free space.
    Complete,
}

impl TrimState {
    /// The phase's word in OpenZFS.
    pub fn as_str(self) -> &'static str {
        match self {
            TrimState::Untrimmed => "UNTRIMMED",
            TrimState::Unsupported => "UNSUPPORTED",
            TrimState::Active => "ACTIVE",
            TrimState::Suspended => "SUSPENDED",
            TrimState::Complete => "COMPLETE",
        }
    }
}

/// Everything that `pool status` shows of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name under which the pool is imported.
    pub name: String,
    /// GUID of the pool, unchanged by a rename.
    pub guid: u64,
    /// Health of the pool, such as `ONLINE` or `DEGRADED`.
    pub state: String,
    /// Newest committed transaction group.
    pub txg: u64,
    /// Description of the most serious problem; `None` if the pool is healthy.
    pub status: Option<String>,
    /// What the administrator should do about `status`.
    pub action: Option<String>,
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
}

impl Activity {
    /// Every activity, each exactly once.
    pub const ALL: [Activity; 10] = [
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
    ];

    /// The activity's word for `pool wait`: OpenZFS's, where OpenZFS has the activity.
    pub fn as_str(self) -> &'static str {
        match self {
            Activity::Defragment => "defragment",
            Activity::Freeing => "freeing",
            Activity::Expand => "raidz_expand",
            Activity::Rebalance => "rebalance",
            Activity::Remove => "remove",
            Activity::Replace => "replace",
            Activity::Resilver => "resilver",
            Activity::Resize => "resize",
            Activity::Scrub => "scrub",
            Activity::Trim => "trim",
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

/// Data to move in a rebalance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalancePlan {
    /// Bytes that a rebalance would move.
    pub bytes: u64,
    /// Number of regions to move data from.
    pub chunks: u32,
    /// Size of a region, in bytes.
    pub region: u64,
    /// Why a rebalance would move nothing; `None` if there is data to move.
    pub reason: Option<String>,
}

/// Data to move in a defragmentation, and regions to gain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragmentPlan {
    /// Bytes that a defragmentation would move.
    pub bytes: u64,
    /// Number of regions to empty.
    pub chunks: u32,
    /// Number of empty regions now.
    pub empty: u32,
    /// Number of empty regions afterwards.
    pub empty_then: u32,
    /// Size of a region, in bytes.
    pub region: u64,
    /// Why nothing would move; `None` if there is data to move.
    pub reason: Option<String>,
}

/// Requested size of a device, absolute or relative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewSize {
    /// The new size, in bytes.
    To(u64),
    /// The reduction from the present size, in bytes.
    By(u64),
}

/// Requirements of shrinking a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizePlan {
    /// Name of the vdev to shrink.
    pub name: String,
    /// The requested size, in bytes.
    pub asked: u64,
    /// The resulting size in bytes, which leaves whole regions.
    pub size: u64,
    /// Bytes that a resize would move.
    pub bytes: u64,
    /// Number of empty regions required on the rest of the pool.
    pub needed: u32,
    /// Number of empty regions available there.
    pub available: u32,
    /// Size of a region, in bytes.
    pub region: u64,
    /// Smallest size possible now, in bytes.
    pub least: u64,
    /// Whether the resize was complete before the answer.
    pub is_done: bool,
}

/// Requirements of removing a vdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalPlan {
    /// Name of the vdev to remove.
    pub vdev: String,
    /// Bytes that a removal would move; for a cache device, bytes of the copies on the device.
    pub bytes: u64,
    /// Number of empty regions required on the rest of the pool.
    pub needed: u32,
    /// Number of empty regions available there.
    pub available: u32,
    /// Size of a region in bytes; 0 for an immediate removal, of an available spare or a cache device.
    pub region: u64,
    /// Devices of the pool after an immediate removal, of an available spare or a cache device; `None` for a vdev.
    pub left: Option<Layout>,
}

/// Vdevs and spares of a pool, as present or as planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Name of the pool, present or planned.
    pub pool: String,
    /// Vdevs and cache devices.
    pub vdevs: Vec<LayoutVdev>,
    /// Paths of the available spares.
    pub spares: Vec<String>,
    /// Space that the vdevs provide, in bytes.
    pub size: u64,
}

/// A vdev in a layout, present or planned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutVdev {
    /// Allocation class, or cache device.
    pub role: VdevRole,
    /// Path of a device, or the name of a mirror or RAID-Z.
    pub name: String,
    /// Paths of the devices of a mirror or RAID-Z; empty for a single device.
    pub devices: Vec<String>,
    /// How many of its devices may fail, in any combination, without any loss of data.
    pub may_lose: usize,
    /// Unusable bytes on its larger devices; 0 for a vdev already in the pool.
    pub unused: u64,
}

impl Layout {
    /// The paths of all devices, spares included.
    pub fn paths(&self) -> Vec<String> {
        let paths = |vdev: &LayoutVdev| match vdev.devices.is_empty() {
            true => vec![vdev.name.clone()],
            false => vdev.devices.clone(),
        };
        self.vdevs.iter().flat_map(paths).chain(self.spares.iter().cloned()).collect()
    }
}

/// Result of splitting a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitRecord {
    /// GUID of the new pool; 0 in a dry run.
    pub guid: u64,
    /// Mirror and path of each device that moves to the new pool.
    pub leaving: Vec<(String, String)>,
    /// Devices of the old pool; a dry run still includes the devices in `leaving`.
    pub layout: Layout,
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
    /// Sequence number: counts from 1 while the pool is open.
    pub number: u64,
    /// Time of detection, in nanoseconds since 1970.
    pub time: i64,
    /// Event class in OpenZFS's terms.
    pub class: String,
    /// Names and values, as printed below the event.
    pub details: Vec<(String, String)>,
}

/// Loss that the failure of some devices would cause.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossReport {
    /// Vdevs with a device among the failed.
    pub vdevs: Vec<VdevLoss>,
    /// Failed devices outside vdevs, with no unique data.
    #[serde(default)]
    pub idle: Vec<IdleLoss>,
    /// Metadata of the pool, if a vdev would fail, and each dataset together with its snapshots.
    pub datasets: Vec<DatasetLoss>,
}

impl LossReport {
    /// Whether the pool would lose nothing beyond the content of the intent log.
    pub fn survives(&self) -> bool {
        self.needed().next().is_none()
    }

    /// The vdevs without which the pool cannot be imported, and which the losses would make fail.
    pub fn needed(&self) -> impl Iterator<Item = &VdevLoss> {
        self.vdevs.iter().filter(|vdev| !vdev.survives && vdev.role != VdevRole::Log)
    }
}

/// A device whose failure would lose no data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleLoss {
    /// Kind of the device, as printed.
    pub kind: String,
    /// Path of the device.
    pub path: String,
}

/// A vdev that would lose devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevLoss {
    /// Path of a device, or the name of a mirror or RAID-Z.
    pub name: String,
    /// Allocation class, or cache device.
    pub role: VdevRole,
    /// Paths of the devices that the vdev would lose.
    pub lost: Vec<String>,
    /// Number of complete devices that would remain.
    pub left: usize,
    /// Whether the remaining devices hold all data of the vdev.
    pub survives: bool,
}

/// Loss in a dataset and its snapshots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetLoss {
    /// Name of the dataset; `<metadata>` for metadata of the pool.
    pub name: String,
    /// Number of blocks; `None` if nothing would be lost, which needs no count.
    pub blocks: Option<u64>,
    /// Number of blocks without a remaining copy.
    pub lost_blocks: u64,
    /// Number of files in the dataset.
    pub files: u64,
    /// Number of files that would lose data.
    pub lost_files: u64,
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
    /// Counters of each device in a mirror or RAID-Z, with `allocated` and `free` at 0.
    pub members: Vec<IoCounts>,
}
