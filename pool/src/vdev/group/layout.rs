//! How a group's devices make up a vdev: the differences between a mirror and a RAID-Z.
//!
//! A [`Layout`] maps bytes to members and reads them; every `Layout` is a [`Vdev`].

use std::sync::Arc;

use super::{Group, member::State};
use crate::{
    error::Result,
    format::vdev_config::{Mark, VdevTree},
    units::{Guid, Txg, VdevId},
    vdev::{
        interface::Vdev,
        leaf::{Clear, Health, Leaf},
        raidz::RaidZ,
        reads::{Begun, Check, Examined, Found, Sources},
        suspension::Suspension,
    },
};

/// The placement of bytes on the members of a group. Callers have checked that requests lie within the vdev's space.
pub(in crate::vdev) trait Layout: Send + Sync + 'static {
    /// The members, their states and the vdev's identity.
    fn group(&self) -> &Group;

    /// The space available to the pool, in bytes, if the smallest member has `least` bytes.
    fn space(&self, least: u64) -> u64;

    /// See [`Vdev::unit`].
    fn sectors_together(&self) -> u32;

    /// See [`Vdev::read_checked`].
    fn read_any(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found>;

    /// See [`Vdev::read_simply`].
    fn read_simply(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_any(offset, buf, is_good)
    }

    /// Fills `buf` with bytes that pass, from members that ordinary reads do not use. Counts no checksum errors. See
    /// [`Vdev::read_surely`].
    fn read_resilvering(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> bool;

    /// See [`Vdev::begin`].
    fn begin_some(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun;

    /// See [`Vdev::examine`], and [`Vdev::examine_surely`].
    fn examine_all(&self, offset: u64, len: usize, is_good: Check<'_>, surely: bool) -> Examined;

    /// Like [`Layout::examine_all`], after checking the range.
    fn examine_checked(&self, offset: u64, len: usize, is_good: Check<'_>, surely: bool) -> Examined {
        match self.check_range("read", offset, len as u64) {
            Ok(()) => self.examine_all(offset, len, is_good, surely),
            Err(error) => Examined { good: None, bad: vec![(self.group().guid(), Some(error))] },
        }
    }

    /// Writes the content due to one member in use, derived from `good`, the bytes of the vdev.
    fn repair_one(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()>;

    /// Writes to all members in use.
    fn write_all(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()>;

    /// Writes to the members being resilvered.
    fn resilver_some(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()>;

    /// Clears a range on all members in use. See [`Vdev::clear`].
    fn clear_all(&self, offset: u64, len: u64, how: Clear) -> Result<()>;

    /// See [`Vdev::as_raidz`].
    fn as_raidz(&self) -> Option<&RaidZ> {
        None
    }

    /// Fails if a range leaves the space available to the pool.
    fn check_range(&self, action: &'static str, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.space(self.group().least()) => Ok(()),
            _ => Err(self.group().outside(action)),
        }
    }
}

impl<L: Layout> Vdev for L {
    fn id(&self) -> VdevId {
        self.group().id
    }

    fn guid(&self) -> Guid {
        self.group().guid
    }

    fn join(&self, suspension: &Arc<Suspension>) {
        // A vdev stays in one pool for life.
        let _ = self.group().suspension.set(suspension.clone());
    }

    fn size(&self) -> u64 {
        self.space(self.group().least())
    }

    fn device_size(&self) -> u64 {
        self.group().least()
    }

    fn unit(&self) -> u32 {
        self.sectors_together()
    }

    fn read_checked(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.check_range("read", offset, buf.len() as u64)?;
        self.read_any(offset, buf, is_good)
    }

    fn read_simply(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.check_range("read", offset, buf.len() as u64)?;
        Layout::read_simply(self, offset, buf, is_good)
    }

    /// A member being resilvered may already have any block: power may have failed while the newest uberblock was
    /// written, and then a member without the uberblock lacks nothing else. Stale bytes in the block's place do not
    /// pass.
    fn read_surely(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        match Vdev::read_checked(self, offset, buf, is_good) {
            Ok(Found::Bad) | Err(_)
                if self.group().has_more_to_ask() && self.read_resilvering(offset, buf, is_good) =>
            {
                Ok(Found::Elsewhere)
            }
            found => found,
        }
    }

    fn begin(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun {
        match self.check_range("read", offset, len as u64) {
            Ok(()) => self.begin_some(offset, len, sources),
            Err(_) => Box::new(|_| None),
        }
    }

    fn examine(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined {
        self.examine_checked(offset, len, is_good, false)
    }

    fn examine_surely(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined {
        self.examine_checked(offset, len, is_good, self.group().has_more_to_ask())
    }

    fn repair(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
        self.check_range("write", offset, good.len() as u64)?;
        self.repair_one(source, offset, good)
    }

    fn write_shared(&self, offset: u64, bytes: Arc<Vec<u8>>) -> Result<()> {
        self.check_range("write", offset, bytes.len() as u64)?;
        self.write_all(offset, &bytes)
    }

    fn flush(&self) -> Result<()> {
        self.group().flush()
    }

    fn clear(&self, offset: u64, len: u64, how: Clear) -> Result<()> {
        self.check_range("discard", offset, len)?;
        self.clear_all(offset, len, how)
    }

    fn note_checksum_error(&self, source: Guid) {
        if let Some(member) = self.group().member(source) {
            member.leaf.counters().count_checksum_error();
        }
    }

    fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.group().leaves_from(State::Out)
    }

    fn labelled(&self) -> Vec<Arc<Leaf>> {
        self.group().leaves_from(State::Resilvering)
    }

    fn committing(&self) -> Vec<Arc<Leaf>> {
        self.group().leaves_from(State::Resilvered)
    }

    fn degrade(&self, device: Guid, health: Health) -> bool {
        self.group().degrade(device, health)
    }

    fn describe(&self, tree: &mut VdevTree) {
        self.group().describe(tree);
    }

    fn news(&self) -> Option<u64> {
        self.group().news()
    }

    fn recorded(&self, news: u64) {
        self.group().recorded.fetch_max(news, std::sync::atomic::Ordering::AcqRel);
    }

    fn expect(&self, mark: Mark) {
        self.group().expect(mark);
    }

    fn committed(&self) {
        self.group().committed();
    }

    fn resilvering(&self) -> Option<Txg> {
        self.group().resilvering()
    }

    fn resilver(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Result<()> {
        self.check_range("write", offset, bytes.len() as u64)?;
        self.resilver_some(offset, bytes)
    }

    fn as_group(&self) -> Option<&Group> {
        Some(self.group())
    }

    fn as_raidz(&self) -> Option<&RaidZ> {
        Layout::as_raidz(self)
    }
}
