//! Examining the space layer's own blocks, and writing good copies over bad ones.
//!
//! Their pointers are in memory, so a block whose copies have all gone bad on the devices goes unnoticed until the pool
//! is opened again: a scrub looks. The caller holds the pool still ([`crate::txg::Still`]), so what is listed here is what
//! the last committed state refers to and nothing of it is used for anything else meanwhile. Only bad copies are written,
//! each from one that verified within the same call: what a power failure tears was bad before.

use std::sync::Arc;

use super::{
    Space,
    io::{Disk, SpaceIo, is_it},
};
use crate::{
    error::{Error, Result},
    format::space::{PhysicalPointer, Place},
    units::{Guid, VdevId},
    vdev::Examined,
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
    /// The sources of copies that were bad, by their devices.
    pub bad: Vec<(VdevId, Guid)>,
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
        self.go_through(io, from, budget, |disk, pointer, examined| disk.mend(pointer, write, examined))
    }

    /// Writes about `budget` bytes of the space layer's own blocks from `from` on to the devices that are being filled.
    pub fn fill_own(&self, io: &dyn SpaceIo, from: OwnCursor, budget: u64) -> OwnExamined {
        self.go_through(io, from, budget, |disk, pointer, examined| disk.fill(pointer, examined))
    }

    fn go_through(
        &self,
        io: &dyn SpaceIo,
        from: OwnCursor,
        budget: u64,
        each: impl Fn(&Disk<'_>, &PhysicalPointer, &mut OwnExamined),
    ) -> OwnExamined {
        let stored = self.stored.lock();
        let layout = self.layout.load();
        let disk = Disk { layout: &layout, io };
        let checkpoints = layout.chunks.iter().flat_map(|chunk| chunk.blocks());
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
            each(&disk, pointer, &mut examined);
        }
        examined
    }
}

impl Disk<'_> {
    fn mend(&self, pointer: &PhysicalPointer, write: bool, examined: &mut OwnExamined) {
        let len = self.layout.padded(pointer.len);
        let (mut good, mut bad) = (None, Vec::new());
        for place in pointer.places() {
            examined.bytes += len as u64;
            let Examined { good: found, bad: sources } = self.examine(pointer, place);
            good = good.or(found);
            bad.extend(sources.into_iter().map(|(source, _)| (*place, source)));
        }
        match good.map(Arc::new) {
            Some(good) if write => {
                let is_mended = |(place, source): &&(Place, Guid)| self.rewrite(pointer, place, *source, &good).is_ok();
                examined.mended += (bad.iter().filter(is_mended).count() * len) as u64;
            }
            Some(_) => {}
            None => examined.lost += 1,
        }
        examined.bad.extend(bad.into_iter().map(|(place, source)| (place.vdev, source)));
    }

    fn examine(&self, pointer: &PhysicalPointer, place: &Place) -> Examined {
        let none = |error| Examined { good: None, bad: vec![(Guid::default(), Some(error))] };
        if !self.is_inside(pointer, place) {
            return none(Error::damaged("space structure", "it points outside the devices"));
        }
        let len = self.layout.padded(pointer.len);
        let is_good = |bytes: &[u8]| is_it(pointer, bytes);
        self.io.examine(place.vdev, place.offset, len, &is_good).unwrap_or_else(none)
    }

    fn rewrite(&self, pointer: &PhysicalPointer, place: &Place, source: Guid, good: &Arc<Vec<u8>>) -> Result<()> {
        self.io.mend(place.vdev, source, place.offset, good)?;
        match self.examine(pointer, place).bad.iter().any(|(bad, _)| *bad == source) {
            false => Ok(()),
            true => Err(Error::damaged("space structure", "it does not stay as it is written")),
        }
    }

    fn fill(&self, pointer: &PhysicalPointer, examined: &mut OwnExamined) {
        let len = self.layout.padded(pointer.len);
        let Ok(mut bytes) = self.read(pointer, "space structure") else {
            examined.lost += 1;
            return;
        };
        bytes.resize(len, 0);
        let bytes = Arc::new(bytes);
        for place in pointer.places() {
            if self.io.fill(place.vdev, place.offset, &bytes).is_ok() {
                examined.mended += len as u64;
            }
            examined.bytes += len as u64;
        }
    }
}
