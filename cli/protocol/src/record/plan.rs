//! Layouts of a pool, and the effects of jobs that move data, before their start.

use serde::{Deserialize, Serialize};

use super::vdev::VdevRole;

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
