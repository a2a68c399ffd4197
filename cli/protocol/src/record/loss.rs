//! The loss that the failure of some devices would cause.

use serde::{Deserialize, Serialize};

use super::vdev::VdevRole;

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
