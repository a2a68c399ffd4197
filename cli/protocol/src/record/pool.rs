//! Pools and their devices.

use std::{collections::BTreeMap, ops::RangeInclusive};

use dataset::catalogue::ScrubState;
use pool::format::vdev_config::{MIRROR_MEMBERS, RAIDZ_COLUMNS};
use serde::{Deserialize, Serialize};

use super::{PathBytes, PropertyRecord};

/// A device to be given to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevSpec {
    /// The absolute path of an image file or block device.
    pub path: PathBytes,
    /// If there: the image is to be created sparse with this size, and must not exist.
    pub create: Option<u64>,
}

/// What a vdev is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VdevKind {
    /// One device.
    Disk,
    /// Several, each of which holds all.
    Mirror,
    /// Several, of which any one may be lost.
    RaidZ1,
    /// Several, of which any two may be lost.
    RaidZ2,
    /// Several, of which any three may be lost.
    RaidZ3,
    /// A device and the spare that stands in for it. Nobody asks for it.
    Spare,
}

impl VdevKind {
    /// The kind that a word of ZFS's vdev language begins.
    pub fn of_word(word: &str) -> Option<VdevKind> {
        match word {
            "mirror" => Some(VdevKind::Mirror),
            "raidz" | "raidz1" => Some(VdevKind::RaidZ1),
            "raidz2" => Some(VdevKind::RaidZ2),
            "raidz3" => Some(VdevKind::RaidZ3),
            _ => None,
        }
    }

    /// How many of so many devices may be lost, whichever they are.
    pub fn may_lose(self, devices: usize) -> usize {
        match self.parity() {
            Some(parity) => parity.into(),
            None if self == VdevKind::Mirror => devices.saturating_sub(1),
            None => 0,
        }
    }

    /// As ZFS calls it.
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

    /// How many columns of it are parity, if it is a RAID-Z.
    pub fn parity(self) -> Option<u8> {
        match self {
            VdevKind::Disk | VdevKind::Mirror | VdevKind::Spare => None,
            VdevKind::RaidZ1 => Some(1),
            VdevKind::RaidZ2 => Some(2),
            VdevKind::RaidZ3 => Some(3),
        }
    }

    /// How many devices it has: the fewest and the most.
    pub fn devices(self) -> RangeInclusive<usize> {
        match self.parity() {
            Some(parity) => usize::from(parity) + 1..=RAIDZ_COLUMNS,
            None if self == VdevKind::Mirror => MIRROR_MEMBERS,
            None => 1..=1,
        }
    }
}

/// What a vdev is there for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum VdevRole {
    /// Everything.
    #[default]
    Normal,
    /// Metadata first of all, and small records.
    Special,
    /// The intent log, and nothing else.
    Log,
    /// Copies of what is read: a cache device, which is no vdev.
    Cache,
}

impl VdevRole {
    /// The role of the vdevs behind a word of ZFS's vdev language.
    pub fn of_word(word: &str) -> Option<VdevRole> {
        match word {
            "special" => Some(VdevRole::Special),
            "log" | "logs" => Some(VdevRole::Log),
            "cache" => Some(VdevRole::Cache),
            _ => None,
        }
    }

    /// What stands above such vdevs in a table, as in ZFS.
    pub fn heading(self) -> Option<&'static str> {
        match self {
            VdevRole::Normal => None,
            VdevRole::Special => Some("special"),
            VdevRole::Log => Some("logs"),
            VdevRole::Cache => Some("cache"),
        }
    }

    /// Where such vdevs stand in JSON, as in ZFS; normal ones stand below the pool.
    pub fn json_heading(self) -> Option<&'static str> {
        match self {
            VdevRole::Cache => Some("l2cache"),
            role => role.heading(),
        }
    }

    /// The word for it in JSON, as in ZFS.
    pub fn as_str(self) -> &'static str {
        match self {
            VdevRole::Normal => "normal",
            VdevRole::Special => "special",
            VdevRole::Log => "log",
            VdevRole::Cache => "cache",
        }
    }

    /// Vdevs by what they are there for, in the order of the tables; roles that none has are left out.
    pub fn groups<T>(all: &[T], role: impl Fn(&T) -> VdevRole) -> Vec<(VdevRole, Vec<&T>)> {
        let of = |wanted| (wanted, all.iter().filter(|one| role(one) == wanted).collect::<Vec<_>>());
        let groups = [VdevRole::Normal, VdevRole::Special, VdevRole::Log, VdevRole::Cache].map(of);
        groups.into_iter().filter(|(_, vdevs)| !vdevs.is_empty()).collect()
    }
}

/// A vdev to be given to a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevTreeSpec {
    /// What it is there for.
    pub role: VdevRole,
    /// What it is.
    pub kind: VdevKind,
    /// Its devices: one of a disk.
    pub devices: Vec<VdevSpec>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// Its name.
    pub name: String,
    /// Its number.
    pub guid: u64,
    /// Its state, `ONLINE` if all is well.
    pub state: String,
    /// The newest committed transaction group.
    pub txg: u64,
    /// The properties asked for, in the order asked for.
    pub properties: Vec<PropertyRecord>,
    /// Its devices, if they were asked for.
    pub vdevs: Vec<VdevRecord>,
    /// Its spares, if devices were asked for.
    pub spares: Vec<VdevRecord>,
}

/// A vdev of a pool, or a device of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevRecord {
    /// What it is.
    pub kind: VdevKind,
    /// What it is there for.
    pub role: VdevRole,
    /// A device's path, or what a mirror or a RAID-Z is called.
    pub path: String,
    /// The devices of a mirror or a RAID-Z.
    pub members: Vec<VdevRecord>,
    /// What else is to be known, such as `resilvering`.
    pub note: Option<String>,
    /// Its number.
    pub guid: u64,
    /// Its state: `ONLINE`, `DEGRADED`, `OFFLINE`, `UNAVAIL`, `FAULTED`.
    pub state: String,
    /// Its space.
    pub size: u64,
    /// What is allocated of it.
    pub allocated: u64,
    /// The part of its free space that is in small pieces, of a hundred.
    pub fragmentation: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes that failed.
    pub write_errors: u64,
    /// Blocks that were not what had been written.
    pub checksum_errors: u64,
    /// Whether the device was told which space nobody needs.
    pub trim: Option<TrimRecord>,
}

impl VdevRecord {
    /// A device that does nothing for the pool: it holds nothing, and nothing was counted.
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

/// How far a device has been told which space nobody needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrimRecord {
    /// How it stands.
    pub state: TrimState,
    /// How much of the device was gone through, of a hundred.
    pub percent: u64,
    /// When it began, in seconds since 1970.
    pub start: i64,
    /// When it came to its end.
    pub end: i64,
}

/// How telling a device stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TrimState {
    /// It was not demanded since the pool was imported.
    Untrimmed,
    /// The device makes nothing of it.
    Unsupported,
    /// Under way.
    Active,
    /// It stands still.
    Suspended,
    /// Done.
    Complete,
}

impl TrimState {
    /// As ZFS calls it.
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

/// A pool's state in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// Its number.
    pub guid: u64,
    /// Its state.
    pub state: String,
    /// The newest committed transaction group.
    pub txg: u64,
    /// What is wrong, if anything is.
    pub status: Option<String>,
    /// What to do about it.
    pub action: Option<String>,
    /// The scrub or the resilver that runs, or the last one.
    pub scan: Option<ScanRecord>,
    /// The removal of a vdev that is under way, or the last one.
    pub removal: Option<RemovalRecord>,
    /// The RAID-Z that is being expanded.
    pub expansion: Option<ExpansionRecord>,
    /// The rebalance that is under way, or the last one.
    pub rebalance: Option<RebalanceRecord>,
    /// The defragmentation that is under way, or the last one.
    pub defragment: Option<DefragmentRecord>,
    /// The resize of a device that is under way, or the last one.
    pub resize: Option<ResizeRecord>,
    /// What else runs in the background, such as the freeing of destroyed datasets.
    pub activity: Option<String>,
    /// How many file systems are mounted, by how their requests come from the kernel.
    pub transports: BTreeMap<String, u64>,
    /// Its devices, and its cache devices.
    pub vdevs: Vec<VdevRecord>,
    /// Its spares: `AVAIL`, `INUSE`, or what is wrong with them.
    pub spares: Vec<VdevRecord>,
    /// What is damaged for good: files, by `dataset:path`, or metadata by what it is. None while the pool is suspended:
    /// nobody can look.
    pub damaged: Option<Vec<String>>,
    /// How many blocks readers have met bad copies of that have not been examined yet.
    pub unexamined: u64,
}

/// How a scrub stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanState {
    /// At work.
    Scanning,
    /// Waiting to be resumed.
    Paused,
    /// Done.
    Finished,
    /// Stopped before its end.
    Canceled,
}

impl From<ScrubState> for ScanState {
    fn from(state: ScrubState) -> ScanState {
        match state {
            ScrubState::Running => ScanState::Scanning,
            ScrubState::Paused => ScanState::Paused,
            ScrubState::Finished => ScanState::Finished,
            ScrubState::Stopped => ScanState::Canceled,
        }
    }
}

/// What goes through a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScanKind {
    /// It examines everything, and mends.
    Scrub,
    /// It fills devices with what they lack.
    Resilver,
}

impl ScanKind {
    /// In a word.
    pub fn as_str(self) -> &'static str {
        match self {
            ScanKind::Scrub => "scrub",
            ScanKind::Resilver => "resilver",
        }
    }
}

/// A scrub or a resilver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanRecord {
    /// Which of them.
    pub kind: ScanKind,
    /// How it stands.
    pub state: ScanState,
    /// When it began.
    pub start: i64,
    /// When it ended or was paused; 0 while it runs.
    pub end: i64,
    /// How many seconds it has worked, or a resilver has taken, also with the pool closed.
    pub seconds: u64,
    /// How many bytes it reads in a second, on the average.
    pub rate: u64,
    /// How many bytes there were when it began.
    pub total: u64,
    /// How many of them it has read.
    pub examined: u64,
    /// How many bytes it has written over bad copies.
    pub repaired: u64,
    /// How many blocks it found without a good copy.
    pub errors: u64,
}

/// What the scrub of a part has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExaminedRecord {
    /// How many bytes it has read.
    pub examined: u64,
    /// How many bytes it has written over bad copies.
    pub repaired: u64,
    /// How many blocks it found without a good copy.
    pub errors: u64,
}

/// What a pool does in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Activity {
    /// It empties regions that are mostly holes.
    Defragment,
    /// It frees what was destroyed.
    Freeing,
    /// It expands a RAID-Z.
    Expand,
    /// It has vdevs become equally full.
    Rebalance,
    /// It has a vdev leave.
    Remove,
    /// It replaces devices.
    Replace,
    /// It fills devices with what they lack.
    Resilver,
    /// It has a device become smaller.
    Resize,
    /// It examines everything.
    Scrub,
    /// It tells devices which space nobody needs.
    Trim,
}

impl Activity {
    /// All of them.
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

    /// As ZFS calls it.
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

/// How an activity stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActivityRecord {
    /// Which.
    pub activity: Activity,
    /// About how many bytes are left; `None` if it is not under way.
    pub left: Option<u64>,
}

/// How a removal, a rebalance, a defragmentation or a resize has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemovalEnd {
    /// The vdev has left, its devices are smaller, all are about equally full, or no region more would be empty.
    Finished,
    /// It was stopped.
    Canceled,
    /// Something could not be read.
    Unreadable,
    /// There was too little room elsewhere.
    NoRoom,
}

/// The removal of a vdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalRecord {
    /// What the vdev is, or was, called.
    pub name: String,
    /// Its number in the pool.
    pub vdev: u64,
    /// How it has ended; `None` while it is under way.
    pub ended: Option<RemovalEnd>,
    /// It waits until it is started again.
    pub paused: bool,
    /// At most so many bytes are copied a second, if somebody has said so.
    pub limit: Option<u64>,
    /// When it began.
    pub start: i64,
    /// When it ended; 0 while it is under way.
    pub end: i64,
    /// How many seconds it has taken; while it is under way, since the pool was opened.
    pub seconds: u64,
    /// How many bytes were allocated on the vdev when it began.
    pub total: u64,
    /// How many bytes were copied.
    pub copied: u64,
    /// How many of them before the time that `seconds` says.
    pub before: u64,
    /// How many blocks it found without a good copy.
    pub errors: u64,
}

/// Why an expansion does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpansionPause {
    /// There is too little room.
    NoRoom,
    /// Devices lack something.
    Degraded,
    /// Something could not be read.
    Unreadable,
    /// The operator has said so.
    Operator,
}

/// The expansion of a RAID-Z.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpansionRecord {
    /// What the RAID-Z is called.
    pub name: String,
    /// Why it does not go on, if it does not.
    pub pause: Option<ExpansionPause>,
    /// How many columns it has.
    pub columns: u64,
    /// How many rows.
    pub rows: u64,
    /// How many of them have all columns.
    pub rows_done: u64,
    /// How many regions are being emptied.
    pub regions: u64,
    /// The bytes that lay there.
    pub total: u64,
    /// Those that were copied.
    pub copied: u64,
    /// For how many seconds that has gone on.
    pub seconds: u64,
    /// At most so many bytes are copied a second, if somebody has said so.
    pub limit: Option<u64>,
}

/// A rebalance, or what else goes batch by batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalanceRecord {
    /// How it has ended; `None` while it is under way.
    pub ended: Option<RemovalEnd>,
    /// It waits until it is started again.
    pub paused: bool,
    /// At most so many bytes are copied a second, if somebody has said so.
    pub limit: Option<u64>,
    /// When it began.
    pub start: i64,
    /// When it ended; 0 while it is under way.
    pub end: i64,
    /// How many seconds it has taken.
    pub seconds: u64,
    /// How many bytes were to be moved when it began.
    pub total: u64,
    /// How many bytes were copied.
    pub copied: u64,
    /// How many blocks it found without a good copy.
    pub errors: u64,
}

/// What a rebalance would move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebalancePlan {
    /// The bytes that would be moved.
    pub bytes: u64,
    /// How many regions they lie in.
    pub chunks: u32,
    /// The size of a region.
    pub region: u64,
    /// Why nothing would be moved.
    pub reason: Option<String>,
}

/// A defragmentation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragmentRecord {
    /// How far it is.
    pub moved: RebalanceRecord,
    /// How many regions were to be emptied when it began.
    pub wanted: u64,
    /// How many were.
    pub emptied: u64,
    /// How many have taken in what was in those.
    pub taken: u64,
    /// How many chunks of the pool are packed, whatever for.
    pub packed: u64,
    /// How much memory their maps take, in bytes.
    pub maps: u64,
}

/// What a defragmentation would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragmentPlan {
    /// The bytes that would be moved.
    pub bytes: u64,
    /// How many regions would be emptied.
    pub chunks: u32,
    /// How many regions are empty.
    pub empty: u32,
    /// How many would be then.
    pub empty_then: u32,
    /// The size of a region.
    pub region: u64,
    /// Why nothing would be moved.
    pub reason: Option<String>,
}

/// How large a device is to be, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NewSize {
    /// So large.
    To(u64),
    /// So much smaller than it is.
    By(u64),
}

/// A device that becomes smaller, with the others of its mirror.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizeRecord {
    /// How far it is.
    pub moved: RebalanceRecord,
    /// What the vdev is, or was, called.
    pub name: String,
    /// How large each device becomes, in bytes.
    pub size: u64,
    /// Why it does not go on by itself, with everything moved.
    pub obstacle: Option<String>,
}

/// What it takes to make a device smaller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizePlan {
    /// What the vdev is called.
    pub name: String,
    /// How large it was to be, in bytes.
    pub asked: u64,
    /// How large it would be: whole regions are kept.
    pub size: u64,
    /// The bytes that would be moved.
    pub bytes: u64,
    /// How many empty regions that takes elsewhere.
    pub needed: u32,
    /// How many there are.
    pub available: u32,
    /// The size of a region.
    pub region: u64,
    /// How small it could be now.
    pub least: u64,
    /// It was done before the answer.
    pub is_done: bool,
}

/// What it takes to remove a vdev.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovalPlan {
    /// What the vdev is called.
    pub vdev: String,
    /// The bytes that would be moved, or of a cache device, those of the copies on it.
    pub bytes: u64,
    /// How many empty regions that takes elsewhere.
    pub needed: u32,
    /// How many there are.
    pub available: u32,
    /// The size of a region; zero of what leaves at once: a spare that stands by, or a cache device.
    pub region: u64,
    /// The devices of the pool, if it has left at once: a spare that stands by, or a cache device.
    pub left: Option<Layout>,
}

/// The devices of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The pool's name.
    pub pool: String,
    /// Its vdevs, and its cache devices.
    pub vdevs: Vec<LayoutVdev>,
    /// The paths of devices that stand by.
    pub spares: Vec<String>,
    /// How much space they give, in bytes.
    pub size: u64,
}

/// A vdev in a layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayoutVdev {
    /// What it is there for.
    pub role: VdevRole,
    /// A device's path, or what a mirror is called.
    pub name: String,
    /// The paths of a mirror's devices.
    pub devices: Vec<String>,
    /// So many of its devices may be lost, whichever they are, and nothing else is.
    pub may_lose: usize,
    /// How much of its larger devices nothing can use, in bytes; zero of a vdev that is there already.
    pub unused: u64,
}

impl Layout {
    /// The paths of all devices.
    pub fn paths(&self) -> Vec<String> {
        let paths = |vdev: &LayoutVdev| match vdev.devices.is_empty() {
            true => vec![vdev.name.clone()],
            false => vdev.devices.clone(),
        };
        self.vdevs.iter().flat_map(paths).chain(self.spares.iter().cloned()).collect()
    }
}

/// What a split makes of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitRecord {
    /// The new pool's number; zero if there is none yet.
    pub guid: u64,
    /// The devices that leave: of each its mirror and its path.
    pub leaving: Vec<(String, String)>,
    /// The devices of the old pool.
    pub layout: Layout,
}

/// One line of a pool's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryRecord {
    /// When.
    pub time: i64,
    /// The transaction group.
    pub txg: u64,
    /// The command line, or what the engine did.
    pub text: String,
    /// Whether the engine did it by itself.
    pub internal: bool,
    /// Who: the user's number and the host.
    pub user: Option<(u32, String)>,
}

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventRecord {
    /// Its number: from 1 on, as long as the pool is open.
    pub number: u64,
    /// When it was seen, in nanoseconds since 1970.
    pub time: i64,
    /// What it is, in the words of OpenZFS.
    pub class: String,
    /// Names and values.
    pub details: Vec<(String, String)>,
}

/// What would be lost with some devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossReport {
    /// The vdevs that would lose devices.
    pub vdevs: Vec<VdevLoss>,
    /// What stands apart from vdevs, and holds nothing that is not elsewhere.
    #[serde(default)]
    pub idle: Vec<IdleLoss>,
    /// The pool's own structures, if a vdev would be lost, and each dataset with its snapshots.
    pub datasets: Vec<DatasetLoss>,
}

impl LossReport {
    /// Whether nothing would be lost but what the intent log holds.
    pub fn survives(&self) -> bool {
        self.needed().next().is_none()
    }

    /// The vdevs that would be lost, and without which the pool cannot be imported.
    pub fn needed(&self) -> impl Iterator<Item = &VdevLoss> {
        self.vdevs.iter().filter(|vdev| !vdev.survives && vdev.role != VdevRole::Log)
    }
}

/// A device that would be lost, and nothing with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdleLoss {
    /// What it is, in words.
    pub kind: String,
    /// Its path.
    pub path: String,
}

/// A vdev that would lose devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VdevLoss {
    /// Its name.
    pub name: String,
    /// What it is there for.
    pub role: VdevRole,
    /// The devices that it would lose.
    pub lost: Vec<String>,
    /// How many devices that lack nothing would be left.
    pub left: usize,
    /// Whether they would be enough.
    pub survives: bool,
}

/// What a dataset and its snapshots would lose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetLoss {
    /// Its name, or `<metadata>`.
    pub name: String,
    /// Its blocks; `None` if they were not counted, since none would be lost.
    pub blocks: Option<u64>,
    /// Those that would have no copy left.
    pub lost_blocks: u64,
    /// Its files.
    pub files: u64,
    /// Those that would have lost something.
    pub lost_files: u64,
}

/// Counters of a pool and its devices since import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoSample {
    /// Nanoseconds since import.
    pub elapsed: u64,
    /// The whole pool, under its name.
    pub pool: IoCounts,
    /// Each device, under its path.
    pub vdevs: Vec<IoCounts>,
}

/// Counters of one device, or all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IoCounts {
    /// The pool or the device.
    pub name: String,
    /// What a vdev is there for.
    pub role: VdevRole,
    /// Space allocated now.
    pub allocated: u64,
    /// Space free now.
    pub free: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The same of the devices of a mirror, which have no space of their own.
    pub members: Vec<IoCounts>,
}
