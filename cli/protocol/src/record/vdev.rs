//! Vdevs and their devices, as requested and as reported.

use std::ops::RangeInclusive;

use super::state::State;
use pool::format::vdev_config::{MIRROR_MEMBERS, RAIDZ_COLUMNS};
use serde::{Deserialize, Serialize};

use super::file::PathBytes;

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
    /// Health of the vdev or device; of a spare, whether the spare is in use.
    pub state: State,
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
    pub trim: Option<PassRecord>,
    /// Initialization status; `None` where no status is kept.
    pub initialization: Option<PassRecord>,
    /// Number of slow requests; `None` for a vdev of several devices, and where requests are not measured.
    pub slow: Option<u64>,
}

impl VdevRecord {
    /// A device that is not in use by the pool: without space, and with all counters at zero.
    pub fn idle(path: String, state: State) -> VdevRecord {
        VdevRecord {
            kind: VdevKind::Disk,
            role: VdevRole::Normal,
            path,
            members: Vec::new(),
            note: None,
            guid: 0,
            state,
            size: 0,
            allocated: 0,
            fragmentation: 0,
            read_errors: 0,
            write_errors: 0,
            checksum_errors: 0,
            trim: None,
            initialization: None,
            slow: None,
        }
    }
}

/// Status of a pass over the free space of a device: a TRIM or an initialization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassRecord {
    /// Whether the pass runs, has ended, or is impossible.
    pub state: PassState,
    /// Share of the device covered so far, in percent.
    pub percent: u64,
    /// Bytes trimmed or written so far, on the vdev of the device.
    pub bytes: u64,
    /// Bytes of the vdev to look at, free or not; 0 if no pass was requested.
    pub total: u64,
    /// Start of the pass, in seconds since 1970; 0 if none was requested.
    pub start: i64,
    /// End of the pass, in seconds since 1970; 0 unless complete or failed.
    pub end: i64,
}

impl PassRecord {
    /// The status without a pass.
    pub fn idle(state: PassState) -> PassRecord {
        PassRecord { state, percent: 0, bytes: 0, total: 0, start: 0, end: 0 }
    }
}

/// Phase of a pass over the free space of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PassState {
    /// No pass was requested since import.
    Idle,
    /// The device does not support the pass.
    Unsupported,
    /// The pass runs on the device.
    Active,
    /// The pass is suspended, and can be resumed.
    Suspended,
    /// The pass has covered all free space.
    Complete,
    /// An error of the device has ended the pass.
    Failed,
}
