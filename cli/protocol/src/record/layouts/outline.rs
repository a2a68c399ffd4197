//! The space of vdevs before their creation, from the sizes of their devices.
//!
//! The arithmetic is the engine's own: labels, regions, and the rows of a RAID-Z.

use pool::{
    admin::{check_rows, suitable_region},
    format::label::usable_size,
    vdev::raidz::zones,
};

use crate::record::{VdevKind, VdevRole};

/// A vdev before its creation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Allocation class; a cache device has no outline.
    pub role: VdevRole,
    /// Layout, with as many devices as [`VdevKind::devices`] allows.
    pub kind: VdevKind,
    /// Sizes of the devices, in bytes.
    pub sizes: Vec<u64>,
}

impl Outline {
    /// Space of the vdev, in bytes, in a pool with sectors and regions of so many bytes. A log vdev has space of its
    /// own, and adds none to the pool.
    pub fn space(&self, sector: u64, region: u64) -> u64 {
        match self.kind.parity() {
            Some(parity) => zones::space_on(self.usable(), parity, sector, region),
            None => self.least() / region * region,
        }
    }

    /// Unusable bytes of larger devices.
    pub fn unused(&self, sector: u64, region: u64) -> u64 {
        match self.kind.parity() {
            Some(parity) => zones::unused_on(self.usable(), parity, sector, region),
            None => self.usable().iter().map(|size| size - self.least()).sum(),
        }
    }

    /// Whether regions of so many bytes hold enough rows of the vdev.
    pub fn has_rows(&self, sector: u64, region: u64) -> bool {
        check_rows(region / sector, self.columns(), region).is_ok()
    }

    /// Number of data sectors in a row.
    fn columns(&self) -> u64 {
        self.kind.parity().map_or(1, |parity| self.sizes.len().saturating_sub(parity.into())) as u64
    }

    /// Sizes of the devices without their labels.
    fn usable(&self) -> Vec<u64> {
        self.sizes.iter().map(|size| usable_size(*size)).collect()
    }

    fn least(&self) -> u64 {
        self.usable().into_iter().min().unwrap_or(0)
    }
}

/// Region size, in bytes, of a new pool.
pub fn region_of(vdevs: &[Outline]) -> u64 {
    let smallest = |is_normal: bool| {
        let alike = vdevs.iter().filter(|vdev| (vdev.role == VdevRole::Normal) == is_normal);
        alike.map(|vdev| vdev.least().saturating_mul(vdev.columns())).min()
    };
    suitable_region(smallest(true).unwrap_or(0), smallest(false))
}
