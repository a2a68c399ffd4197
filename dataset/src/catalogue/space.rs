//! The space of blocks, before and after compression, as the space properties need.

use std::ops::{Add, AddAssign, Sub, SubAssign};

use pool::{
    format::{
        codec::{Malformed, Reader},
        pointer::BlockPointer,
    },
    tree::Usage,
};

use super::coding::Field;

/// The space of some blocks. Subtraction stops at zero: a damaged counter must not make a pool unusable, and the check
/// reports the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes on the devices, with all copies and rounded up to sectors: the space charged.
    pub allocated: u64,
    /// Bytes before compression.
    pub logical: u64,
}

impl Space {
    /// The space of no blocks.
    pub const ZERO: Space = Space { allocated: 0, logical: 0 };

    /// The space of one block in a pool with the given sector size.
    pub fn of(pointer: &BlockPointer, sector: u32) -> Space {
        Space { allocated: pointer.allocated(sector), logical: u64::from(pointer.logical) }
    }
}

impl From<Usage> for Space {
    fn from(usage: Usage) -> Space {
        Space { allocated: usage.allocated, logical: usage.logical }
    }
}

impl Add for Space {
    type Output = Space;

    fn add(self, other: Space) -> Space {
        Space {
            allocated: self.allocated.saturating_add(other.allocated),
            logical: self.logical.saturating_add(other.logical),
        }
    }
}

impl Sub for Space {
    type Output = Space;

    fn sub(self, other: Space) -> Space {
        Space {
            allocated: self.allocated.saturating_sub(other.allocated),
            logical: self.logical.saturating_sub(other.logical),
        }
    }
}

impl AddAssign for Space {
    fn add_assign(&mut self, other: Space) {
        *self = *self + other;
    }
}

impl SubAssign for Space {
    fn sub_assign(&mut self, other: Space) {
        *self = *self - other;
    }
}

impl std::iter::Sum for Space {
    fn sum<I: Iterator<Item = Space>>(all: I) -> Space {
        all.fold(Space::ZERO, Add::add)
    }
}

impl Field for Space {
    fn put(&self, out: &mut Vec<u8>) {
        self.allocated.put(out);
        self.logical.put(out);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<Space, Malformed> {
        Ok(Space { allocated: u64::take(reader, what)?, logical: u64::take(reader, what)? })
    }
}
