//! How the space layer's own blocks get to the devices and back.

use std::sync::Arc;

use super::layout::Layout;
use crate::{
    error::{Error, Result},
    format::space::{PhysicalPointer, Place},
    units::{Guid, VdevId},
    vdev::{Check, Examined},
};

/// Raw access to the devices of a pool. Offsets count in a device's usable space, from behind its labels; offsets and
/// lengths are multiples of the sector size. Checksums and copies are the space layer's own business.
pub trait SpaceIo {
    /// Fills `buffer` from `offset` of a device, with bytes that pass `is_good` if any source has them.
    fn read(&self, vdev: VdevId, offset: u64, buffer: &mut [u8], is_good: Check<'_>) -> Result<()>;

    /// Writes `bytes` at `offset` of a device.
    fn write(&self, vdev: VdevId, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Reads `len` bytes from every source of a device.
    fn examine(&self, vdev: VdevId, offset: u64, len: usize, is_good: Check<'_>) -> Result<Examined> {
        let mut bytes = vec![0; len];
        self.read(vdev, offset, &mut bytes, is_good)?;
        let is_good = is_good(&bytes);
        let bad = if is_good { Vec::new() } else { vec![(Guid::default(), None)] };
        Ok(Examined { good: is_good.then_some(bytes), bad })
    }

    /// Writes `good` over a bad source.
    fn repair(&self, vdev: VdevId, _source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
        self.write(vdev, offset, good)
    }

    /// Writes a block's good bytes to members that are being resilvered.
    fn resilver(&self, _vdev: VdevId, _offset: u64, _bytes: &Arc<Vec<u8>>) -> Result<()> {
        Ok(())
    }
}

/// The devices as the space layer sees them, with bounds from the layout.
pub(super) struct Disk<'a> {
    pub(super) layout: &'a Layout,
    pub(super) io: &'a dyn SpaceIo,
}

impl Disk<'_> {
    /// Reads the block of `pointer` from the first good copy.
    pub(super) fn read(&self, pointer: &PhysicalPointer, what: &str) -> Result<Vec<u8>> {
        let mut failure = Error::damaged(what, "no copy has the right checksum");
        for place in pointer.places() {
            let mut bytes = vec![0; self.layout.padded(pointer.len)];
            if !self.is_inside(pointer, place) {
                failure = Error::damaged(what, "it points outside the devices");
                continue;
            }
            if let Err(error) = self.io.read(place.vdev, place.offset, &mut bytes, &|bytes| is_it(pointer, bytes)) {
                failure = error;
                continue;
            }
            if is_it(pointer, &bytes) {
                bytes.truncate(pointer.len as usize);
                return Ok(bytes);
            }
        }
        Err(failure)
    }

    /// Whether a copy lies on the devices, on whole units of one region, and so only on sectors that were allocated for
    /// it.
    pub(super) fn is_inside(&self, pointer: &PhysicalPointer, place: &Place) -> bool {
        let Layout { sector, region, .. } = *self.layout;
        let unit = self.layout.unit_at(place);
        let end = place.offset.checked_add(self.layout.padded_at(place, pointer.len) as u64);
        let aligned = (place.offset % region).is_multiple_of(u64::from(unit) * u64::from(sector));
        let is_whole = |end: u64| unit == 1 || (end - 1) / region == place.offset / region;
        aligned && end.is_some_and(|end| end <= self.layout.end_at(place) && is_whole(end))
    }
}

/// Whether the bytes begin with the block of `pointer`, by its checksum.
pub(super) fn is_it(pointer: &PhysicalPointer, bytes: &[u8]) -> bool {
    bytes.get(..pointer.len as usize).is_some_and(|bytes| *blake3::hash(bytes).as_bytes() == pointer.checksum)
}
