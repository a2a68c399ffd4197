//! Examining the space layer's own blocks, and writing good copies over bad ones.
//!
//! Their pointers are in memory, so a block whose copies have all gone bad on the devices goes unnoticed until the pool
//! is opened again: a scrub looks. The caller holds the pool still ([`crate::txg::Still`]), so what is listed here is what
//! the last committed state refers to and nothing of it is used for anything else meanwhile. Only bad copies are written,
//! each from one that verified within the same call: what a power failure tears was bad before.

use super::{Space, io::Disk, io::SpaceIo};
use crate::{
    error::{Error, Result},
    format::space::{PhysicalPointer, Place},
};

/// Where in the list of the space layer's blocks an examination goes on: blocks are ordered by their first copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnCursor {
    /// The device.
    pub vdev: u32,
    /// The first offset that is still to do.
    pub offset: u64,
}

/// What was found in some of the space layer's blocks.
#[derive(Debug, Default)]
pub struct OwnExamined {
    /// Bytes read, all copies counted.
    pub bytes: u64,
    /// The copies that were bad.
    pub bad: Vec<Place>,
    /// Bytes written over bad copies.
    pub mended: u64,
    /// Blocks that have no good copy.
    pub lost: u64,
    /// Where to go on; none at the end.
    pub next: Option<OwnCursor>,
}

impl Space {
    /// Examines about `budget` bytes of the space layer's own blocks from `from` on, and mends bad copies if `write` says
    /// so. The caller flushes.
    pub fn mend_own(&self, io: &dyn SpaceIo, from: OwnCursor, budget: u64, write: bool) -> OwnExamined {
        let stored = self.stored.lock();
        let layout = self.layout.load();
        let disk = Disk { layout: &layout, io };
        let checkpoints = layout.chunks.iter().filter_map(|chunk| chunk.checkpoint());
        let start = |pointer: &PhysicalPointer| (pointer.places[0].vdev.0, pointer.places[0].offset);
        let mut blocks: Vec<PhysicalPointer> =
            stored.table_pointers().chain(stored.log_pointers()).chain(checkpoints).collect();
        blocks.retain(|pointer| start(pointer) >= (from.vdev, from.offset));
        blocks.sort_unstable_by_key(start);
        let mut examined = OwnExamined::default();
        for pointer in &blocks {
            if examined.bytes >= budget {
                let (vdev, offset) = start(pointer);
                examined.next = Some(OwnCursor { vdev, offset });
                break;
            }
            disk.mend(pointer, write, &mut examined);
        }
        examined
    }
}

impl Disk<'_> {
    fn mend(&self, pointer: &PhysicalPointer, write: bool, examined: &mut OwnExamined) {
        let (mut good, mut bad) = (None, Vec::new());
        for place in pointer.places() {
            examined.bytes += self.layout.padded(pointer.len) as u64;
            match self.read_place(pointer, place) {
                Ok(bytes) => good = Some(bytes),
                Err(_) => bad.push(*place),
            }
        }
        match good {
            Some(good) if write => {
                let mended = bad.iter().filter(|place| self.rewrite(pointer, place, &good).is_ok()).count();
                examined.mended += (mended * self.layout.padded(pointer.len)) as u64;
            }
            Some(_) => {}
            None => examined.lost += 1,
        }
        examined.bad.append(&mut bad);
    }

    fn read_place(&self, pointer: &PhysicalPointer, place: &Place) -> Result<Vec<u8>> {
        let mut only = PhysicalPointer { copies: 1, ..*pointer };
        only.places[0] = *place;
        self.read(&only, "space structure")
    }

    fn rewrite(&self, pointer: &PhysicalPointer, place: &Place, good: &[u8]) -> Result<()> {
        let mut bytes = good.to_vec();
        bytes.resize(self.layout.padded(pointer.len), 0);
        self.io.write(place.vdev, place.offset, &bytes)?;
        match self.read_place(pointer, place)? == good {
            true => Ok(()),
            false => Err(Error::damaged("space structure", "it does not stay as it is written")),
        }
    }
}
