//! How the space layer's own blocks get to the devices and back.

use super::layout::Layout;
use crate::{
    error::{Error, Result},
    format::space::PhysicalPointer,
    units::VdevId,
};

/// Raw access to the devices of a pool. Offsets count in a device's usable space, from behind its labels; offsets and
/// lengths are multiples of the sector size. Checksums and copies are the space layer's own business.
pub trait SpaceIo {
    /// Fills `buffer` from `offset` of a device.
    fn read(&self, vdev: VdevId, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Writes `bytes` at `offset` of a device.
    fn write(&self, vdev: VdevId, offset: u64, bytes: &[u8]) -> Result<()>;
}

/// The devices as the space layer sees them: bounded by what the pool says about them.
pub(super) struct Disk<'a> {
    pub(super) layout: &'a Layout,
    pub(super) io: &'a dyn SpaceIo,
}

impl Disk<'_> {
    /// Reads what `pointer` refers to from the first copy that is good.
    pub(super) fn read(&self, pointer: &PhysicalPointer, what: &str) -> Result<Vec<u8>> {
        let mut failure = Error::damaged(what, "no copy has the right checksum");
        for place in pointer.places() {
            let mut bytes = vec![0; self.layout.padded(pointer.len)];
            let end = place.offset.checked_add(bytes.len() as u64);
            let aligned = place.offset % u64::from(self.layout.sector) == 0;
            if !aligned || end.is_none_or(|end| end > self.layout.usable(place.vdev)) {
                failure = Error::damaged(what, "it points outside the devices");
                continue;
            }
            if let Err(error) = self.io.read(place.vdev, place.offset, &mut bytes) {
                failure = error;
                continue;
            }
            bytes.truncate(pointer.len as usize);
            if *blake3::hash(&bytes).as_bytes() == pointer.checksum {
                return Ok(bytes);
            }
        }
        Err(failure)
    }
}
