//! The sums of a pool's space.

use crate::{format::space::Class, units::VdevId};

/// Space of a device, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VdevTotals {
    /// The vdev of the space.
    pub vdev: VdevId,
    /// All allocatable space.
    pub size: u64,
    /// Space in use by blocks.
    pub allocated: u64,
}

/// Space of the pool, in bytes. `size == allocated + deferred + free`. Log devices do not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpaceTotals {
    /// All allocatable space.
    pub size: u64,
    /// Space in use by blocks.
    pub allocated: u64,
    /// Freed space that is not yet reusable.
    pub deferred: u64,
    /// Space that can be allocated now.
    pub free: u64,
    /// The part of `free` kept from data.
    pub slop: u64,
    /// The part of `slop` kept for the space layer itself.
    pub last_resort: u64,
    /// The totals of each vdev, log vdevs included.
    pub vdevs: Vec<VdevTotals>,
}

impl SpaceTotals {
    /// The space that can be allocated now for `class`.
    pub fn free_for(&self, class: Class) -> u64 {
        match class {
            Class::Data => self.free.saturating_sub(self.slop),
            Class::Metadata => self.free.saturating_sub(self.last_resort),
        }
    }
}
