//! Vacating a device: its chunks come to lie elsewhere, and no address changes.
//!
//! A device that is about to leave is first *closed*: nothing is allocated on it any more, and its space is no longer the
//! pool's. The layer's own blocks on it are written anew elsewhere by the commits that follow (`sync::describe`). Then
//! each of its chunks with something allocated is paired with an empty one elsewhere, its *twin*, which is set aside. So
//! long as a chunk has a twin, somebody copies what is allocated in it to the same sectors of the twin's region. When all
//! is copied the two change *places*: one row each of the chunk table, and no pointer.
//!
//! What must hold:
//!
//! 1. From the moment on at which a device is closed nothing is written to it: in a pool that goes back to a state before
//!    the change of places, all is where that state says.
//! 2. In a twin's region nothing is written but copies: no state that one may go back to has anything there.
//! 3. A chunk that has changed places is set aside until the table that says so is committed: what were allocated in it
//!    before would be nowhere for a crash that finds the former table. That the table finds no room in a group is no
//!    harm, for both places hold all that any state refers to.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while blocks are copied | the chunks where they were, and regions that are free |
//! | after the change of places, before the uberblock of the group whose table says so | the same |
//! | after that | the chunks at their new places, which were flushed before the change |
//! | after the labels have left the device out | chunks of a device that is not there, which are empty: they are *gone* |
//!
//! Chunks of a device that is gone keep their rows, so that no number of a chunk or device means two. A state from before
//! the change of places has chunks on that device that are not empty, and is refused when the device is not there.
//!
//! Whoever resolves an address while places change gets one place or the other, and both are good: the old one stays as it
//! is until the device leaves, which is [`super::SAFE_STATES`] commits later at least.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use super::{
    Space,
    chunk::Chunk,
    layout::{Layout, Vdev},
    sync::Stored,
};
use crate::{
    error::{Error, Result},
    format::{pointer::Address, space::PhysicalPointer},
    units::{ChunkId, Txg, VdevId},
};

/// What it takes to vacate a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemovalPlan {
    /// The bytes that are allocated on it, which are to be copied.
    pub bytes: u64,
    /// How many empty regions that takes elsewhere.
    pub needed: u32,
    /// How many there are that suit, beside those that are kept for metadata.
    pub available: u32,
    /// The size of a region, in bytes.
    pub region: u64,
}

impl RemovalPlan {
    /// Whether there is room.
    pub fn fits(&self) -> bool {
        self.needed <= self.available
    }
}

/// The chunks of one device and their twins.
#[derive(Debug)]
pub(super) struct Moves {
    twins: HashMap<ChunkId, Arc<Chunk>>,
    /// They have changed places.
    has_switched: AtomicBool,
    /// Something was not copied that should have been.
    is_incomplete: AtomicBool,
}

impl Moves {
    fn has_switched(&self) -> bool {
        self.has_switched.load(Ordering::Acquire)
    }
}

impl Space {
    /// Allocates nothing on a device any more. Whoever is just looking for room may still find some there, in the open
    /// group: what is born after that is elsewhere.
    pub fn close_vdev(&self, vdev: VdevId) {
        let _stored = self.stored.lock();
        self.set_closed(vdev, true);
    }

    /// Takes a device back that was closed, with all chunks where they are. Returns false if chunks have changed places:
    /// older states lie where blocks would be allocated.
    pub fn open_vdev_again(&self, vdev: VdevId) -> bool {
        let _stored = self.stored.lock();
        if !self.part(&self.layout.load()) {
            return false;
        }
        self.set_closed(vdev, false);
        true
    }

    fn set_closed(&self, id: VdevId, closed: bool) {
        let layout = self.layout.load();
        let Some(before) = layout.vdevs.iter().find(|vdev| vdev.id == id) else { return };
        let after = before.opened(!closed);
        let counted = |chunk: &Arc<Chunk>| chunk.recount(layout.counted(&after));
        let chunks = before.chunks.clone();
        before.slots().filter_map(|slot| slot.swap(None)).for_each(|chunk| chunk.deactivate());
        chunks.iter().for_each(counted);
        self.layout.store(Arc::new(layout.with(after)));
    }

    /// Whether a device is closed.
    pub fn is_closed(&self, vdev: VdevId) -> bool {
        self.layout.load().is_closed(vdev)
    }

    /// What it takes to vacate a device, be it closed or not.
    pub fn removal_plan(&self, vdev: VdevId) -> RemovalPlan {
        let layout = self.layout.load();
        let used: Vec<u32> =
            layout.chunks_on(vdev).map(|chunk| chunk.allocated()).filter(|allocated| *allocated > 0).collect();
        let others = layout.vdevs.iter().filter(|other| other.id != vdev && !other.closed);
        let chunks: Vec<&Arc<Chunk>> = others.flat_map(|other| &other.chunks).collect();
        let spare: Vec<&&Arc<Chunk>> = chunks.iter().filter(|chunk| chunk.is_spare()).collect();
        // What is allocated by units has room only where it is by the same ones.
        let unit = layout.unit_of(vdev);
        let suitable = spare.iter().filter(|chunk| chunk.unit == unit).count() as u32;
        let beside = (spare.len() as u32).saturating_sub(layout.reserve_of(chunks.len() as u64));
        RemovalPlan {
            bytes: used.iter().map(|used| u64::from(*used) * u64::from(layout.sector)).sum(),
            needed: used.len() as u32,
            available: suitable.min(beside),
            region: layout.region,
        }
    }

    /// Gives each chunk of a closed device that holds something a twin.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if there are too few empty chunks; then there are no twins.
    pub fn pair(&self, vdev: VdevId) -> Result<()> {
        let _stored = self.stored.lock();
        let layout = self.layout.load();
        assert!(self.moves.load().is_none() && layout.is_closed(vdev), "one device is vacated at a time");
        let mut twins = HashMap::new();
        for chunk in layout.chunks_on(vdev).filter(|chunk| chunk.allocated() > 0) {
            let Some(twin) = layout.take_spare(chunk.unit) else {
                twins.values().for_each(|twin: &Arc<Chunk>| layout.give_back(twin));
                return Err(Error::OutOfSpace);
            };
            twins.insert(chunk.id, twin);
        }
        let (has_switched, is_incomplete) = (AtomicBool::new(false), AtomicBool::new(false));
        self.moves.store(Some(Arc::new(Moves { twins, has_switched, is_incomplete })));
        Ok(())
    }

    /// Takes the twins away again, while no group is synced: whoever copies to them has found them before. False if chunks
    /// have changed places.
    pub fn unpair(&self) -> bool {
        let _stored = self.stored.lock();
        self.part(&self.layout.load())
    }

    fn part(&self, layout: &Layout) -> bool {
        let Some(moves) = self.moves.load_full() else { return true };
        if moves.has_switched() {
            return false;
        }
        self.moves.store(None);
        moves.twins.values().for_each(|twin| layout.give_back(twin));
        true
    }

    /// Whether chunks have twins, and blocks are to be copied to them.
    pub fn is_copying(&self) -> bool {
        self.moves.load().as_ref().is_some_and(|moves| !moves.has_switched())
    }

    /// Whether chunks have changed places and no table on the devices says so.
    pub fn is_switching(&self) -> bool {
        self.moves.load().as_ref().is_some_and(|moves| moves.has_switched())
    }

    /// Where `bytes` bytes at `address` are to be copied, if their chunk has a twin.
    pub fn twin(&self, address: Address, bytes: u32) -> Result<Option<(VdevId, u64)>> {
        let moves = self.moves.load();
        let Some(moves) = moves.as_ref().filter(|moves| !moves.has_switched()) else { return Ok(None) };
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes)?;
        let place = moves.twins.get(&chunk.id).map(|twin| layout.place(twin, span.start));
        Ok(place.map(|place| (place.vdev, place.offset)))
    }

    /// Notes that something was not copied: places are not changed before all was copied once more.
    pub fn note_uncopied(&self) {
        if let Some(moves) = &*self.moves.load() {
            moves.is_incomplete.store(true, Ordering::Release);
        }
    }

    /// Has the chunks change places with their twins. To be called in the open group `txg`, while no group is synced and
    /// after all copies were flushed. False if something was not copied.
    pub fn switch(&self, vdev: VdevId, txg: Txg) -> bool {
        let mut stored = self.stored.lock();
        let Some(moves) = self.moves.load_full() else { return false };
        if moves.has_switched() || moves.is_incomplete.load(Ordering::Acquire) {
            return false;
        }
        let layout = self.layout.load();
        moves.has_switched.store(true, Ordering::Release);
        for (id, twin) in &moves.twins {
            let chunk = &layout.chunks[id.0 as usize];
            let (old, new) = (chunk.seat(), twin.seat());
            assert_eq!(old.0, vdev, "a chunk has left its device");
            let closed = layout.vdevs.iter().find(|vdev| vdev.id == old.0).expect("it is vacated");
            chunk.relocate(new, txg, Default::default(), true);
            twin.relocate(old, txg, layout.counted(closed), false);
        }
        stored.is_misplaced = !moves.twins.is_empty();
        self.layout.store(Arc::new(layout.seated()));
        true
    }

    /// Lets chunks be used that have changed places, if the table of `txg`, which is committed, says where they are.
    pub(super) fn settle_moves(&self, layout: &Layout, txg: Txg) {
        if !self.is_switching() {
            return;
        }
        let stored = self.stored.lock();
        if stored.is_misplaced || stored.txg != txg {
            return;
        }
        let Some(moves) = self.moves.swap(None) else { return };
        for id in moves.twins.keys() {
            let chunk = &layout.chunks[id.0 as usize];
            let vdev = layout.vdevs.iter().find(|vdev| vdev.id == chunk.vdev()).expect("it has come to lie there");
            chunk.release(layout.counted(vdev));
        }
    }

    /// Whether the layer's own blocks have left a device.
    pub fn has_left(&self, vdev: VdevId) -> bool {
        let stored = self.stored.lock();
        let layout = self.layout.load();
        let is_there = |pointer: PhysicalPointer| pointer.places().iter().any(|place| place.vdev == vdev);
        let checkpoints = layout.chunks.iter().flat_map(|chunk| chunk.blocks());
        !own_pointers(&stored).chain(checkpoints).any(is_there)
    }

    /// Whether nothing lies on a device any more, not even what older states refer to.
    pub fn is_vacated(&self, vdev: VdevId) -> bool {
        let is_empty = self.layout.load().chunks_on(vdev).all(|chunk| chunk.is_free());
        is_empty && self.moves.load().is_none() && self.has_left(vdev)
    }

    /// Forgets a device that is vacated: the labels do not name it any more.
    pub fn forget_vdev(&self, vdev: VdevId) {
        let _stored = self.stored.lock();
        let mut layout = Layout::clone(&self.layout.load());
        layout.chunks_on(vdev).for_each(|chunk| assert!(chunk.is_free(), "a device that leaves holds something"));
        layout.vdevs.retain(|known| known.id != vdev);
        self.layout.store(Arc::new(layout));
    }

    /// The highest number that a device with chunks has, or has had.
    pub fn highest_vdev(&self) -> Option<VdevId> {
        self.layout.load().chunks.iter().filter(|chunk| !chunk.is_packed()).map(|chunk| chunk.vdev()).max()
    }
}

fn own_pointers(stored: &Stored) -> impl Iterator<Item = PhysicalPointer> + '_ {
    stored.table_pointers().chain(stored.log_pointers())
}

impl Layout {
    /// Whether a block has a copy on a device that is about to leave.
    pub(super) fn is_leaving(&self, pointer: &PhysicalPointer) -> bool {
        pointer.places().iter().any(|place| self.is_closed(place.vdev))
    }

    pub(super) fn chunks_on(&self, id: VdevId) -> impl Iterator<Item = &Arc<Chunk>> {
        self.vdevs.iter().filter(move |vdev| vdev.id == id).flat_map(|vdev| &vdev.chunks)
    }

    /// This layout with another description of a device.
    fn with(&self, vdev: Vdev) -> Layout {
        let mut layout = self.clone();
        let at = layout.vdevs.iter().position(|known| known.id == vdev.id).expect("it is described anew");
        layout.vdevs[at] = Arc::new(vdev);
        layout
    }

    /// This layout with each chunk at the device where it says that it is.
    pub(super) fn seated(&self) -> Layout {
        let mut layout = self.clone();
        for vdev in &mut layout.vdevs {
            let seated = self.chunks.iter().filter(|chunk| !chunk.is_packed() && !self.packed.contains_key(&chunk.id));
            let own = seated.filter(|chunk| chunk.vdev() == vdev.id).cloned().collect();
            *vdev = Arc::new(vdev.with_chunks(own));
        }
        layout
    }

    /// Sets an empty chunk aside that is allocated by such units, of the device that has the most free space.
    fn take_spare(&self, unit: u32) -> Option<Arc<Chunk>> {
        let mut open: Vec<_> = self.vdevs.iter().filter(|vdev| !vdev.closed && vdev.unit == unit).collect();
        open.sort_by_cached_key(|vdev| std::cmp::Reverse(vdev.free()));
        open.iter().flat_map(|vdev| &vdev.chunks).find(|chunk| chunk.hold()).cloned()
    }

    /// Undoes [`Layout::take_spare`].
    pub(super) fn give_back(&self, twin: &Chunk) {
        let vdev = self.vdevs.iter().find(|vdev| vdev.id == twin.vdev()).expect("a twin lies on a device");
        twin.release(self.counted(vdev));
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::BTreeSet};

    use super::*;
    use crate::{
        space::{
            Class, SpaceIo, TrimCursor,
            tests::{Memory, plain},
        },
        units::KIB,
    };

    const SECTOR: u32 = 512;
    const REGION: u64 = 64 * KIB;
    const GOES: VdevId = VdevId(1);
    const LEN: u32 = 3000;

    fn stamp(number: u32) -> Vec<u8> {
        vec![number as u8; LEN.next_multiple_of(SECTOR) as usize]
    }

    #[test]
    fn chunks_change_places_and_are_used_again_when_the_table_says_so() {
        let vdevs = [plain(0, 64 * REGION), plain(GOES.0, 32 * REGION)];
        let memory = Memory::new(&vdevs);
        let space = Space::create(SECTOR, REGION, &vdevs);
        let mut txg = Txg(1);
        let mut commit = || {
            let root = space.sync(txg, &memory).unwrap();
            space.committed(txg);
            txg = txg.next();
            (root, txg)
        };
        let allocate = |txg| space.allocate(txg, Class::Data, LEN, 1, &memory).map(|allocated| allocated.addresses[0]);
        let blocks: Vec<Address> = (0..600).map(|_| allocate(Txg(1)).unwrap()).collect();
        for (number, address) in (0..).zip(&blocks) {
            let (vdev, offset) = space.resolve(*address, LEN).unwrap();
            memory.write(vdev, offset, &stamp(number)).unwrap();
        }
        commit();
        let on_it = |address: &Address| space.resolve(*address, LEN).unwrap().0 == GOES;
        let moving: BTreeSet<ChunkId> = blocks.iter().filter(|address| on_it(address)).map(|a| a.chunk).collect();
        assert!(!moving.is_empty() && !space.has_left(GOES));
        space.close_vdev(GOES);
        assert!((0..20).any(|_| {
            commit();
            space.has_left(GOES)
        }));
        assert_eq!(space.removal_plan(GOES).needed as usize, moving.len());
        space.pair(GOES).unwrap();
        for (number, address) in (0..).zip(&blocks).filter(|(_, address)| on_it(address)) {
            let (vdev, offset) = space.twin(*address, LEN).unwrap().unwrap();
            assert_eq!(vdev, VdevId(0));
            memory.write(vdev, offset, &stamp(number)).unwrap();
        }
        let twins = blocks.iter().filter_map(|address| space.twin(*address, LEN).unwrap());
        let copies: BTreeSet<u64> = twins.map(|(_, offset)| offset / REGION).collect();
        let trim = || {
            let discarded = RefCell::new(BTreeSet::new());
            let note = |vdev: VdevId, offset: u64, _: u64| {
                discarded.borrow_mut().insert((vdev, offset / REGION));
                Ok(())
            };
            space.trim(&memory, TrimCursor::default(), (1, u64::MAX), &note).unwrap();
            discarded.into_inner()
        };
        let is_needed = |(vdev, region): &(VdevId, u64)| *vdev == GOES || copies.contains(region);
        let discarded = trim();
        assert!(!discarded.is_empty() && !discarded.iter().any(is_needed), "copies, or what older states have");
        let (before, open) = commit();
        assert!(space.switch(GOES, open));
        assert!(!trim().iter().any(is_needed), "what one of the two tables says");
        assert!(!blocks.iter().any(on_it) && space.is_switching());
        // The group before knows nothing of it, and until it is told nothing is allocated there.
        space.settle_moves(&space.layout.load(), open.back(1));
        assert!(space.is_switching());
        let taken: Vec<Address> = std::iter::from_fn(|| allocate(open).ok()).collect();
        assert!(taken.len() > 100 && taken.iter().all(|address| !moving.contains(&address.chunk)));
        taken.iter().for_each(|address| space.free(open, *address, LEN).unwrap());
        let (after, open) = commit();
        assert!(!space.is_switching());
        let taken: Vec<Address> = std::iter::from_fn(|| allocate(open).ok()).collect();
        assert!(taken.iter().any(|address| moving.contains(&address.chunk)), "their free sectors are used again");
        assert_eq!(space.last_arrival(VdevId(0)), open.back(1));
        // What was freed there waits for a while; then the device is needed no more.
        let mut last = (before.clone(), open);
        assert!((0..5).any(|_| {
            last = commit();
            space.is_vacated(GOES)
        }));
        let (last, newest) = (last.0, last.1.back(1));
        let (moved, unmoved) = (open.back(1), open.back(2));
        let both = &vdevs[..];
        for (root, txg, vdevs, is_whole) in
            [(&after, moved, both, true), (&last, newest, &both[..1], true), (&before, unmoved, &both[..1], false)]
        {
            let found = Space::open(root, SECTOR, REGION, vdevs, txg, &memory);
            assert_eq!(found.is_ok(), is_whole, "{txg}");
            let Ok(found) = found else { continue };
            for (number, address) in (0..).zip(&blocks) {
                let (vdev, offset) = found.resolve(*address, LEN).unwrap();
                let mut bytes = stamp(255);
                memory.read(vdev, offset, &mut bytes, &|_| true).unwrap();
                assert!(bytes == stamp(number), "block {number}");
            }
            assert_eq!(found.highest_vdev(), Some(GOES));
        }
        space.forget_vdev(GOES);
        assert_eq!((space.totals().vdevs.len(), space.highest_vdev()), (1, Some(GOES)));
    }
}
