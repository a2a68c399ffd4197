//! A vdev of several devices, each of which holds everything.
//!
//! A write goes to all members in use; a read is served by any complete member. [`Group`] handles members that leave
//! and return: a mirror is a group with one column.

mod reading;
#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::AtomicUsize};

use super::{
    group::{
        Group, Quorum,
        layout::Layout,
        member::{Member, State},
    },
    leaf::Clear,
    reads::{Begun, Check, Examined, Found, Sources},
};
use crate::{
    error::Result,
    units::{Guid, VdevId},
};

/// A vdev of several devices with equal content.
pub struct Mirror {
    group: Group,
    /// Rotates reads among equally loaded members.
    turn: AtomicUsize,
}

impl Mirror {
    /// Members as vdev `id`, of `size` bytes of space for the pool.
    pub fn new(id: VdevId, guid: Guid, size: u64, members: Vec<Arc<Member>>) -> Mirror {
        assert!(
            members.iter().all(|member| member.column() == 0),
            "VDEV-2: a member of a mirror has a column of its own"
        );
        Mirror {
            group: Group::new((id, guid), "mirror", Quorum { columns: 1, needed: 1 }, size, members),
            turn: AtomicUsize::new(0),
        }
    }
}

impl Layout for Mirror {
    fn group(&self) -> &Group {
        &self.group
    }

    fn space(&self, least: u64) -> u64 {
        least
    }

    fn sectors_together(&self) -> u32 {
        1
    }

    fn read_any(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_one(offset, buf, is_good, true)
    }

    fn read_simply(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_one(offset, buf, is_good, false)
    }

    fn read_resilvering(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> bool {
        self.read_lacking(offset, buf, is_good)
    }

    fn begin_some(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun {
        self.begin_on(offset, len, sources)
    }

    fn examine_all(&self, offset: u64, len: usize, is_good: Check<'_>, surely: bool) -> Examined {
        self.examine_each(offset, len, is_good, surely)
    }

    fn repair_one(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
        let Some(member) = self.group.member_in_use(source) else { return Ok(()) };
        self.group.write_to(&member, offset, good)
    }

    fn write_all(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        self.group.write_columns(offset, std::slice::from_ref(bytes))
    }

    fn resilver_some(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        for member in self.group.members().iter().filter(|member| member.state() == State::Resilvering) {
            self.group.write_to(member, offset, bytes)?;
        }
        Ok(())
    }

    fn clear_all(&self, offset: u64, len: u64, how: Clear) -> Result<()> {
        let cleared: Vec<_> = self.group.in_use().iter().map(|member| member.leaf.clear(offset, len, how)).collect();
        cleared.into_iter().collect()
    }
}
