//! Examining and repairing the space layer's own blocks.
//!
//! Their pointers are in memory, so a block whose copies have all gone bad on the devices goes unnoticed until the next
//! import: a scrub reads them. The caller holds the pool still ([`crate::txg::Still`]), so the list is exactly the
//! blocks of the last committed state, and their space is not reused meanwhile. Only bad copies are written, each from
//! a copy that verified within the same call: a copy torn by a power failure was bad before.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    io::{Disk, SpaceIo, is_it},
    state::Space,
};
use crate::{
    error::{Error, Result},
    format::space::{PhysicalPointer, Place},
    units::{Guid, VdevId},
    vdev::Examined,
};

/// Where in the list of the space layer's blocks an examination goes on: blocks are ordered by their first copies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnCursor {
    /// The vdev's number.
    pub vdev: u32,
    /// The first offset still to do.
    pub offset: u64,
}

/// The result of examining some of the space layer's blocks.
#[derive(Debug, Default)]
pub struct OwnExamined {
    /// Bytes read, all copies counted.
    pub bytes: u64,
    /// The sources of bad copies, by their devices.
    pub bad: Vec<(VdevId, Guid)>,
    /// Bytes written over bad copies.
    pub repaired: u64,
    /// Blocks without a good copy.
    pub lost: u64,
    /// Where to go on; none at the end.
    pub next: Option<OwnCursor>,
}

impl Space {
    /// Examines about `budget` bytes of the space layer's own blocks from `from` on, and repairs bad copies if `write`
    /// says so. The caller flushes.
    pub fn repair_own(&self, io: &dyn SpaceIo, from: OwnCursor, budget: u64, write: bool) -> OwnExamined {
        self.go_through(io, from, budget, |disk, blocks, examined| {
            let mut suspects = BTreeSet::new();
            for (block, place) in in_order(blocks) {
                examined.bytes += disk.layout.padded(block.len) as u64;
                if !disk.examine(block, place).is_whole() {
                    suspects.insert(start(block));
                }
            }
            let suspects = blocks.iter().filter(|block| suspects.contains(&start(block)));
            suspects.for_each(|block| disk.repair(block, write, examined));
        })
    }

    /// Writes about `budget` bytes of the space layer's own blocks from `from` on to the devices being resilvered.
    pub fn resilver_own(&self, io: &dyn SpaceIo, from: OwnCursor, budget: u64) -> OwnExamined {
        self.go_through(io, from, budget, |disk, blocks, examined| {
            let read = |block| (start(block), disk.read_padded(block));
            let contents: BTreeMap<_, _> = blocks.iter().map(read).collect();
            examined.lost += contents.values().filter(|content| content.is_none()).count() as u64;
            for (block, place) in in_order(blocks) {
                let Some(bytes) = &contents[&start(block)] else { continue };
                examined.bytes += bytes.len() as u64;
                if disk.io.resilver(place.vdev, place.offset, bytes).is_ok() {
                    examined.repaired += bytes.len() as u64;
                }
            }
        })
    }

    /// Does something with the blocks of about `budget` bytes from `from` on.
    fn go_through(
        &self,
        io: &dyn SpaceIo,
        from: OwnCursor,
        budget: u64,
        work: impl Fn(&Disk<'_>, &[PhysicalPointer], &mut OwnExamined),
    ) -> OwnExamined {
        let stored = self.stored.lock();
        let layout = self.layout.load();
        let disk = Disk { layout: &layout, io };
        let checkpoints = layout.chunks.iter().flat_map(|chunk| chunk.blocks());
        let mut blocks: Vec<PhysicalPointer> =
            stored.table_pointers().chain(stored.log_pointers()).chain(checkpoints).collect();
        blocks.retain(|block| start(block) >= from);
        blocks.sort_unstable_by_key(start);
        let mut bytes = 0;
        let is_in = |block: &&PhysicalPointer| {
            let is_in = bytes < budget;
            bytes += (layout.padded(block.len) * block.places().len()) as u64;
            is_in
        };
        let step = blocks.iter().take_while(is_in).count();
        let mut examined = OwnExamined { next: blocks.get(step).map(start), ..OwnExamined::default() };
        work(&disk, &blocks[..step], &mut examined);
        examined
    }
}

/// Where a block stands in the list.
fn start(block: &PhysicalPointer) -> OwnCursor {
    OwnCursor { vdev: block.places[0].vdev.0, offset: block.places[0].offset }
}

/// All copies of some blocks, in order of their places: copies of one block lie far apart.
fn in_order(blocks: &[PhysicalPointer]) -> Vec<(&PhysicalPointer, &Place)> {
    let mut copies: Vec<_> = blocks.iter().flat_map(|block| block.places().iter().map(move |at| (block, at))).collect();
    copies.sort_unstable_by_key(|(_, place)| (place.vdev, place.offset));
    copies
}

impl Disk<'_> {
    /// Reads the copies of a block one after the other and rewrites bad ones, if any is good.
    fn repair(&self, pointer: &PhysicalPointer, write: bool, examined: &mut OwnExamined) {
        let len = self.layout.padded(pointer.len);
        let (mut good, mut bad) = (None, Vec::new());
        for place in pointer.places() {
            let Examined { good: found, bad: sources } = self.examine(pointer, place);
            good = good.or(found);
            bad.extend(sources.into_iter().map(|(source, _)| (*place, source)));
        }
        match good.map(Arc::new) {
            Some(good) if write => {
                let is_repaired =
                    |(place, source): &&(Place, Guid)| self.rewrite(pointer, place, *source, &good).is_ok();
                examined.repaired += (bad.iter().filter(is_repaired).count() * len) as u64;
            }
            Some(_) => {}
            None => examined.lost += 1,
        }
        examined.bad.extend(bad.into_iter().map(|(place, source)| (place.vdev, source)));
    }

    /// A block as written, padded with zeros to a whole sector; `None` without a good copy.
    fn read_padded(&self, pointer: &PhysicalPointer) -> Option<Arc<Vec<u8>>> {
        let mut bytes = self.read(pointer, "space structure").ok()?;
        bytes.resize(self.layout.padded(pointer.len), 0);
        Some(Arc::new(bytes))
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
        self.io.repair(place.vdev, source, place.offset, good)?;
        match self.examine(pointer, place).bad.iter().any(|(bad, _)| *bad == source) {
            false => Ok(()),
            true => Err(Error::damaged("space structure", "it does not stay as it is written")),
        }
    }
}
