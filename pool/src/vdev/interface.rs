//! What every vdev offers.

use std::sync::Arc;

use super::{
    group::Group,
    leaf::{Clear, Health, Leaf},
    raidz::RaidZ,
    reads::{Begun, Check, Examined, Found, Sources},
    suspension::Suspension,
};
use crate::{
    device::joined,
    error::Result,
    format::vdev_config::{Mark, VdevTree},
    units::{Guid, Txg, VdevId},
};

/// A top-level virtual device.
pub trait Vdev: Send + Sync {
    /// The vdev's position in the pool.
    fn id(&self) -> VdevId;

    /// The vdev's permanent GUID. A single device and its vdev have the same.
    fn guid(&self) -> Guid;

    /// Attaches the vdev to the suspension of its pool. From now on a device error beyond the vdev's redundancy
    /// suspends the pool if the pool can be resumed.
    fn join(&self, suspension: &Arc<Suspension>);

    /// The space available to the pool, in bytes.
    fn size(&self) -> u64;

    /// The part of [`Vdev::size`] that the smallest device contributes, in bytes.
    fn device_size(&self) -> u64 {
        self.size()
    }

    /// Sectors that are written together. A write starts at a multiple of the unit within a region and owns every
    /// sector of the units touched; the rest of the last unit is filled with zeros.
    fn unit(&self) -> u32 {
        1
    }

    /// Fills `buf` from `offset` on, from any source.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_checked(offset, buf, &|_| true).map(drop)
    }

    /// Fills `buf` from `offset` on, from a source that passes if there is one. Checksum errors are counted on sources
    /// that do not.
    ///
    /// # Errors
    /// If no source can be read.
    fn read_checked(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found>;

    /// Like [`Vdev::read_checked`], but does not attribute a mismatch to a device; the caller rereads smaller ranges.
    fn read_simply(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_checked(offset, buf, is_good)
    }

    /// Like [`Vdev::read_checked`], for bytes of known checksum: only the bytes written can pass. If no complete source
    /// returns them, devices being resilvered are read too.
    fn read_surely(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read_checked(offset, buf, is_good)
    }

    /// Begins to read `len` bytes from `offset` on. A caller with many reads begins several at a time, in order of
    /// offset. When a read returns nothing, the caller rereads smaller ranges with another method.
    fn begin(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun;

    /// Reads `len` bytes from every source. Only errors returned by a device are counted.
    fn examine(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined;

    /// Like [`Vdev::examine`], for bytes of known checksum. If no complete source is good, devices being resilvered are
    /// read too.
    fn examine_surely(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined {
        self.examine(offset, len, is_good)
    }

    /// Writes `good` over one bad source.
    fn repair(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_shared(offset, Arc::new(bytes.to_vec()))
    }

    /// Like [`Vdev::write`], without a copy: the bytes are kept in memory until they are durable.
    fn write_shared(&self, offset: u64, bytes: Arc<Vec<u8>>) -> Result<()>;

    /// Like [`Vdev::write_shared`], for parts that follow each other.
    fn write_parts(&self, offset: u64, parts: &[Arc<Vec<u8>>]) -> Result<()> {
        self.write_shared(offset, Arc::new(joined(parts)))
    }

    /// Returns when every write that returned before is durable.
    fn flush(&self) -> Result<()>;

    /// Clears a range whose content is no longer needed, on every device in use. Redundancy is neither used nor kept
    /// there: an error is returned, and no device is put out of use.
    fn clear(&self, offset: u64, len: u64, how: Clear) -> Result<()>;

    /// Counts a checksum error on a source.
    fn note_checksum_error(&self, source: Guid);

    /// All devices of the vdev, including devices out of use.
    fn leaves(&self) -> Vec<Arc<Leaf>>;

    /// Devices in use. They get labels.
    fn labelled(&self) -> Vec<Arc<Leaf>> {
        self.leaves()
    }

    /// True if too many devices are missing and the pool is open without the vdev.
    fn is_lost(&self) -> bool {
        false
    }

    /// Complete devices. They get uberblocks.
    fn committing(&self) -> Vec<Arc<Leaf>> {
        self.leaves()
    }

    /// Continues without a failed device; `false` if the redundancy does not allow it.
    fn degrade(&self, _device: Guid, _health: Health) -> bool {
        false
    }

    /// Enters the state of the devices into a label's description of the vdev.
    fn describe(&self, _tree: &mut VdevTree) {}

    /// If the labels do not record the current state of the devices yet: a number to pass to [`Vdev::recorded`].
    fn news(&self) -> Option<u64> {
        None
    }

    /// The labels durably record the state of the devices as of this number from [`Vdev::news`].
    fn recorded(&self, _news: u64) {}

    /// From now on the devices of [`Vdev::committing`] may have this uberblock. Called before the flush that precedes
    /// the uberblock.
    fn expect(&self, mark: Mark) {
        self.committing().iter().for_each(|leaf| leaf.set_mark(mark));
    }

    /// A commit is durable on the devices of [`Vdev::committing`].
    fn committed(&self) {}

    /// The newest txg that every device being resilvered has completely; `None` if no device is being resilvered.
    fn resilvering(&self) -> Option<Txg> {
        None
    }

    /// Writes verified content to the devices being resilvered.
    fn resilver(&self, _offset: u64, _bytes: &Arc<Vec<u8>>) -> Result<()> {
        Ok(())
    }

    /// The name in messages and listings of a vdev of several devices, as in `mirror-0`.
    fn group_name(&self) -> Option<&str> {
        self.as_group().map(Group::name)
    }

    /// The devices of a mirror or RAID-Z.
    fn as_group(&self) -> Option<&Group> {
        None
    }

    /// The RAID-Z, if the vdev is one.
    fn as_raidz(&self) -> Option<&RaidZ> {
        None
    }
}
