//! Emptying regions: their chunks move to other regions, and no address changes.
//!
//! A set of [`Regions`] is emptied: all of a vdev that is to leave, some at its end, or any others. First the regions
//! are *closed*: nothing is allocated there any more, and their free space no longer counts as the pool's. The
//! following commits rewrite the space layer's own blocks elsewhere (`sync::describe`). Then each used chunk there is
//! paired with an empty chunk elsewhere, its *twin*, on another vdev or on the same. The twin is set aside. While a
//! chunk has a twin, the job copies the chunk's allocated sectors to the same sectors of the twin's region. When all is
//! copied the two change *places*: one row each of the chunk table, and no pointer. If there are too few empty chunks
//! of the same unit, all chunks there are [packed](super::packing) instead.
//!
//! The twin, still empty, now lies in the chunk's old region. States that a rewind can reach have the chunk's content
//! there, so the twin *rests* until those states are gone. The rest ends by the transaction group in which the twin
//! *arrived*, recorded in its row, so the twin still rests after a crash. Then it is open or closed as its region is.
//! The owner of the closed set reopens the region, unless the region goes.
//!
//! Invariants of moving:
//!
//! 1. From the closing of a region nothing is written there, until the region is open again and nothing in it rests. So
//!    in a pool rewound to a state before the change of places, every block is where that state says.
//! 2. In a twin's region only copies are written: no state that a rewind can reach refers to that region.
//! 3. A chunk that has changed places is closed until the table that says so is committed: a crash that finds the
//!    former table would lose blocks allocated earlier. A table that finds no room in a group does no harm, because
//!    both places hold everything that any state refers to. Both chunks arrive in the group whose table names their
//!    places, and in no earlier one.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while blocks are copied | the chunks at their old places, and free regions |
//! | after the change of places, before the uberblock of the group whose table says so | the same |
//! | after that uberblock | the chunks at their new places, flushed before the change, and resting twins |
//! | after enough commits that no state before the change is safe any more | twins that are ordinary empty chunks |
//! | after the labels have left a vdev out | empty chunks of a vdev that no longer exists: they are *gone* |
//!
//! Chunks of a vdev that is gone keep their rows, so that no number of a chunk or vdev is used twice. A state from
//! before the change of places has used chunks on that vdev, and is refused when the vdev is missing.
//!
//! Resolving an address while places change returns the old place or the new, and both are good: the old place keeps
//! its content until at least [`super::SAFE_STATES`] states that do not refer to it were committed.
//!
//! The owner of the closed regions stores which they are and how far the job is. Nothing is stored here: after an
//! import the job begins again. One set of regions is emptied at a time.

pub(super) mod moves;
pub(super) mod plan;
pub(super) mod regions;

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use self::{
    moves::{Moves, Target},
    regions::{Packs, Regions, Targets},
};

use super::{
    chunk::{Chunk, CountedIn, Standing},
    io::SpaceIo,
    layout::{Ground, Layout, Vdev},
    state::Space,
    sync::stored::Stored,
};
use crate::{
    error::{Error, Result},
    format::{
        pointer::Address,
        space::{PhysicalPointer, Place},
    },
    units::{ChunkId, Txg, VdevId},
};

impl Space {
    /// Stops allocation in regions. A concurrent search for room may still allocate there in the open group; blocks
    /// born after that group are elsewhere.
    pub fn close(&self, regions: &Regions) {
        let _stored = self.stored.lock();
        self.set_closed(regions, true);
    }

    /// Takes closed regions back, with all chunks at their places. Returns false while chunks change places.
    pub fn reopen(&self, regions: &Regions) -> bool {
        let _stored = self.stored.lock();
        if !self.part(&self.layout.load()) {
            return false;
        }
        self.set_closed(regions, false);
        true
    }

    fn set_closed(&self, regions: &Regions, is_closed: bool) {
        let mut layout = Layout::clone(&self.layout.load());
        for vdev in &mut layout.vdevs {
            *vdev = Arc::new(regions.closed_on(vdev, is_closed));
        }
        let layout = Arc::new(layout);
        self.layout.store(layout.clone());
        let slots = layout.vdevs.iter().flat_map(|vdev| vdev.slots());
        let taken = slots.filter(|slot| slot.load().as_ref().is_some_and(|chunk| regions.has(chunk)));
        taken.filter_map(|slot| slot.swap(None)).for_each(|chunk| chunk.deactivate());
        // Chunks that are set aside stay so.
        let is_used = |chunk: &&Arc<Chunk>| matches!(chunk.standing(), Standing::Open | Standing::Closed);
        layout.chunks_in(regions).filter(is_used).for_each(|chunk| layout.let_stand(chunk));
    }

    /// Whether a whole vdev is closed.
    pub fn is_closed(&self, vdev: VdevId) -> bool {
        self.layout.load().is_closed(vdev)
    }

    /// Gives each used chunk of closed regions a twin on these vdevs, or marks all of them for packing.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if there are too few empty chunks; then there are no twins.
    pub fn pair(&self, regions: &Regions, to: &Targets, packs: Packs) -> Result<()> {
        let _stored = self.stored.lock();
        let layout = self.layout.load();
        assert!(self.moves.load().is_none(), "SPACE-6: two sets of regions are emptied at a time");
        let moving: Vec<&Arc<Chunk>> = layout.chunks_in(regions).filter(|chunk| chunk.allocated() > 0).collect();
        assert!(
            moving.iter().all(|chunk| chunk.standing() == Standing::Closed),
            "SPACE-6: a chunk is moved while blocks are allocated in it"
        );
        let twins = if packs == Packs::Always { None } else { layout.twins_of(&moving, to) };
        let targets: HashMap<ChunkId, Target> = match twins {
            Some(twins) => twins,
            None if packs == Packs::Never => return Err(Error::OutOfSpace),
            None => moving.iter().map(|chunk| (chunk.id, Target::Hosts)).collect(),
        };
        self.moves.store(Some(Arc::new(Moves::new(targets, to, packs))));
        Ok(())
    }

    /// Takes the twins away again, while no group is synced and no copy is under way. False if chunks have changed
    /// places.
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
        moves.twins().for_each(|(_, twin)| layout.let_stand(twin));
        moves.packer.give_up(layout);
        true
    }

    /// Whether chunks have twins, so that blocks must be copied.
    pub fn is_copying(&self) -> bool {
        self.moves.load().as_ref().is_some_and(|moves| !moves.has_switched())
    }

    /// Whether chunks have changed places and no table on the devices says so.
    pub fn is_switching(&self) -> bool {
        self.moves.load().as_ref().is_some_and(|moves| moves.has_switched())
    }

    /// Where `bytes` bytes at `address` are to be copied, if their chunk is being moved.
    pub fn twin(&self, address: Address, bytes: u32) -> Result<Option<(VdevId, u64)>> {
        let moves = self.moves.load();
        let Some(moves) = moves.as_ref().filter(|moves| !moves.has_switched()) else { return Ok(None) };
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes)?;
        let (host, there) = layout.seat(chunk, span)?;
        let place = match moves.targets.get(&host.id) {
            None => return Ok(None),
            Some(Target::Twin(twin)) => layout.place(twin, there.start),
            Some(Target::Hosts) => {
                let (host, sector) = moves.packer.place(&layout, chunk, span)?;
                layout.place(&host, sector)
            }
        };
        Ok(Some((place.vdev, place.offset)))
    }

    /// Whether the block at an address is to be copied.
    pub fn moves(&self, address: Address, bytes: u32) -> bool {
        self.target_of(address, bytes).is_some()
    }

    /// Whether the block at an address is to be copied singly, because packing may separate adjacent blocks.
    pub fn packs(&self, address: Address, bytes: u32) -> bool {
        self.target_of(address, bytes).is_some_and(|packs| packs)
    }

    /// How many chunks are being packed, and into how many, so far.
    pub fn packing(&self) -> (usize, usize) {
        self.moves.load().as_ref().map_or((0, 0), |moves| moves.packer.counts())
    }

    /// Whether the packer has run out of empty chunks.
    pub fn has_run_out(&self) -> bool {
        self.moves.load().as_ref().is_some_and(|moves| moves.packer.is_full())
    }

    /// Whether the block at an address is packed; `None` unless it is to be copied.
    fn target_of(&self, address: Address, bytes: u32) -> Option<bool> {
        let moves = self.moves.load();
        let moves = moves.as_ref().filter(|moves| !moves.has_switched())?;
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes).ok()?;
        let (host, _) = layout.seat(chunk, span).ok()?;
        moves.targets.get(&host.id).map(|target| matches!(target, Target::Hosts))
    }

    /// Notes that a block was not copied: places do not change before everything was copied once more.
    pub fn note_uncopied(&self) {
        if let Some(moves) = &*self.moves.load() {
            moves.is_incomplete.store(true, Ordering::Release);
        }
    }

    /// Whether no failed copy is known.
    pub fn is_copied(&self) -> bool {
        self.moves.load().as_ref().is_some_and(|moves| !moves.is_incomplete.load(Ordering::Acquire))
    }

    /// Makes the chunks change places with their twins, or packs them. To be called in the open group `txg`, while no
    /// group is synced and after all copies were flushed. False if something was not copied.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if the maps of packed chunks find no room; then nothing has changed.
    pub fn switch(&self, txg: Txg, io: &dyn SpaceIo) -> Result<bool> {
        let mut stored = self.stored.lock();
        let Some(moves) = self.moves.load_full() else { return Ok(false) };
        if moves.has_switched() || moves.is_incomplete.load(Ordering::Acquire) {
            return Ok(false);
        }
        if !moves.packer.is_idle() && !self.pack(&moves.packer, &mut stored, txg, io)? {
            return Ok(false);
        }
        let layout = self.layout.load();
        moves.has_switched.store(true, Ordering::Release);
        for (id, twin) in moves.twins() {
            let chunk = &layout.chunks[id.0 as usize];
            let (old, new) = (chunk.seat(), twin.seat());
            let there = layout.vdevs.iter().find(|vdev| vdev.id == new.0).expect("a twin lies on a vdev");
            chunk.relocate(new, txg, Standing::Closed, layout.counted(there, Standing::Closed));
            twin.relocate(old, txg, Standing::Resting, Default::default());
        }
        stored.is_misplaced = !moves.targets.is_empty();
        self.layout.store(Arc::new(layout.seated()));
        Ok(true)
    }

    /// Sets `txg` as the arrival of the moved chunks, because its table is the next that may name their places: the
    /// previous one found no room, or this is the first.
    pub(super) fn arrive_again(&self, txg: Txg) {
        let Some(moves) = self.moves.load_full() else { return };
        let layout = self.layout.load();
        for (id, twin) in moves.twins() {
            layout.chunks[id.0 as usize].arrive(txg);
            twin.arrive(txg);
        }
    }

    /// Puts moved chunks into use if the table of `txg`, now committed, names their places.
    pub(super) fn settle_moves(&self, txg: Txg) {
        if !self.is_switching() {
            return;
        }
        let stored = self.stored.lock();
        if stored.is_misplaced || stored.txg != txg {
            return;
        }
        let Some(moves) = self.moves.swap(None) else { return };
        let layout = self.layout.load();
        moves.twins().for_each(|(id, _)| layout.let_stand(&layout.chunks[id.0 as usize]));
    }

    /// Puts chunks into use that have rested for long enough: no held state, and none that a rewind can reach, refers
    /// to their regions.
    pub(super) fn wake_rested(&self) {
        if !self.layout.load().chunks.iter().any(|chunk| chunk.standing() == Standing::Resting) {
            return;
        }
        let _stored = self.stored.lock();
        let (layout, reusable) = (self.layout.load(), self.history.lock().reusable());
        let is_there = |chunk: &Chunk| !layout.is_gone(chunk.vdev(), chunk.region());
        let has_rested = |chunk: &&Arc<Chunk>| {
            chunk.standing() == Standing::Resting && chunk.arrived() <= reusable && is_there(chunk)
        };
        layout.chunks.iter().filter(has_rested).for_each(|chunk| layout.let_stand(chunk));
    }

    /// Whether the layer's own blocks have left regions.
    pub fn has_left(&self, regions: &Regions) -> bool {
        let stored = self.stored.lock();
        let layout = self.layout.load();
        let region = |place: &Place| u32::try_from(place.offset / layout.region).unwrap_or(u32::MAX);
        let is_there =
            |pointer: PhysicalPointer| pointer.places().iter().any(|at| regions.contains(at.vdev, region(at)));
        let checkpoints = layout.chunks.iter().flat_map(|chunk| chunk.blocks());
        !own_pointers(&stored).chain(checkpoints).any(is_there)
    }

    /// Whether `bytes` bytes at an address lie in one of the regions.
    pub fn lies_in(&self, address: Address, bytes: u32, regions: &Regions) -> Result<bool> {
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes)?;
        layout.seat(chunk, span).map(|(host, _)| regions.has(host))
    }

    /// Whether nothing is allocated in regions any more or waits to be free, and the table says so.
    pub fn is_vacated(&self, regions: &Regions) -> bool {
        let is_empty = self.layout.load().chunks_in(regions).all(|chunk| chunk.is_free());
        is_empty && self.moves.load().is_none() && self.has_left(regions)
    }

    /// Forgets a vacated device that the labels no longer name.
    pub fn forget_vdev(&self, vdev: VdevId) {
        let _stored = self.stored.lock();
        let mut layout = Layout::clone(&self.layout.load());
        let all = Regions::Vdev(vdev);
        layout
            .chunks_in(&all)
            .for_each(|chunk| assert!(chunk.is_free(), "SPACE-5: a vdev that leaves has allocated sectors"));
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
    /// Whether a block has a copy in a closed region.
    pub(super) fn is_leaving(&self, pointer: &PhysicalPointer) -> bool {
        pointer.places().iter().any(|place| self.is_closed_at(place))
    }

    /// Sets aside the empty chunks that arrived in groups after `reusable`: older states refer to their regions.
    pub(super) fn rest_after(&self, reusable: Txg) {
        let arrived = |chunk: &&Arc<Chunk>| chunk.arrived() > reusable && !self.is_gone(chunk.vdev(), chunk.region());
        self.chunks.iter().filter(arrived).for_each(|chunk| _ = chunk.rest());
    }

    pub(super) fn chunks_in(&self, regions: &Regions) -> impl Iterator<Item = &Arc<Chunk>> {
        self.vdevs.iter().flat_map(|vdev| &vdev.chunks).filter(move |chunk| regions.has(chunk))
    }

    /// Makes a chunk open or closed as its region is.
    pub(super) fn let_stand(&self, chunk: &Chunk) {
        let (standing, tally) = self.standing_in(chunk.seat());
        chunk.set_standing(standing, tally);
    }

    /// The role of a used chunk in a region, and its counters.
    pub(super) fn standing_in(&self, (id, region): (VdevId, u32)) -> (Standing, CountedIn) {
        let vdev = self.vdevs.iter().find(|vdev| vdev.id == id).expect("a chunk in use lies on a vdev");
        let standing = if vdev.is_closed(region) { Standing::Closed } else { Standing::Open };
        (standing, self.counted(vdev, standing))
    }

    /// This layout with each chunk listed at the device named by its seat.
    pub(super) fn seated(&self) -> Layout {
        let mut layout = self.clone();
        for vdev in &mut layout.vdevs {
            let seated = self.chunks.iter().filter(|chunk| !chunk.is_packed() && !self.packed.contains_key(&chunk.id));
            let own = seated.filter(|chunk| vdev.has(chunk)).cloned().collect();
            *vdev = Arc::new(vdev.with_chunks(own));
        }
        layout
    }

    /// A twin on the target vdevs for each chunk; `None` if there are too few.
    fn twins_of(&self, chunks: &[&Arc<Chunk>], to: &Targets) -> Option<HashMap<ChunkId, Target>> {
        let mut twins = HashMap::new();
        for chunk in chunks {
            match self.take_twin(chunk.unit, self.ground_of(chunk.vdev()), to) {
                Some(twin) => twins.insert(chunk.id, Target::Twin(twin)),
                None => {
                    twins.values().filter_map(Target::twin).for_each(|twin| self.let_stand(twin));
                    return None;
                }
            };
        }
        Some(twins)
    }

    /// The class of a device.
    fn ground_of(&self, id: VdevId) -> Ground {
        self.vdevs.iter().find(|vdev| vdev.id == id).map_or(Ground::Normal, |vdev| vdev.ground)
    }

    /// Sets aside an empty chunk of the unit, on the device with the most free space, if possible one of the same
    /// class.
    fn take_twin(&self, unit: u32, ground: Ground, to: &Targets) -> Option<Arc<Chunk>> {
        let suits = |vdev: &&Arc<Vdev>| vdev.is_open() && to.contains(vdev.id);
        let mut open: Vec<_> = self.vdevs.iter().filter(suits).collect();
        open.sort_by_cached_key(|vdev| (vdev.ground != ground, std::cmp::Reverse(vdev.free())));
        open.iter().find_map(|vdev| vdev.take_spare(unit))
    }
}

#[cfg(test)]
mod tests;
