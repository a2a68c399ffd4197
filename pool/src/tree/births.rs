//! The space taken by a tree's records, group by group.
//!
//! A record may be stored while its group is still open, so births are counted beside the tree and collected when the
//! group is written.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use parking_lot::Mutex;

use crate::{format::pointer::BlockPointer, units::Txg};

/// Space of blocks, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// On the devices, with all copies, in whole sectors.
    pub allocated: u64,
    /// Before compression, one copy.
    pub logical: u64,
}

impl Usage {
    /// The space of one block.
    pub fn of(pointer: &BlockPointer, sector: u32) -> Usage {
        Usage { allocated: pointer.allocated(sector), logical: pointer.logical.into() }
    }
}

impl Add for Usage {
    type Output = Usage;

    fn add(self, other: Usage) -> Usage {
        Usage { allocated: self.allocated + other.allocated, logical: self.logical + other.logical }
    }
}

impl Sub for Usage {
    type Output = Usage;

    fn sub(self, other: Usage) -> Usage {
        Usage { allocated: self.allocated - other.allocated, logical: self.logical - other.logical }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Usage) {
        *self = *self + other;
    }
}

impl SubAssign for Usage {
    fn sub_assign(&mut self, other: Usage) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Usage {
    fn sum<I: Iterator<Item = Usage>>(usages: I) -> Usage {
        usages.fold(Usage::default(), Add::add)
    }
}

/// The births of the two groups that may be under way at a time: the open one and the one being written.
#[derive(Debug, Default)]
pub(crate) struct Births {
    groups: Mutex<[Usage; 2]>,
}

impl Births {
    pub(crate) fn count(&self, txg: Txg, usage: Usage) {
        self.groups.lock()[(txg.0 % 2) as usize] += usage;
    }

    /// Collects the births of `txg`, a group that gets no more.
    pub(crate) fn take(&self, txg: Txg) -> Usage {
        std::mem::take(&mut self.groups.lock()[(txg.0 % 2) as usize])
    }
}
