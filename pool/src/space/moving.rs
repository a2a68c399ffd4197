//! Emptying regions: their chunks come to lie elsewhere, and no address changes.
//!
//! What is emptied is a set of [`Regions`]: all of a vdev that is to leave, some at its end, or any others. They are first
//! *closed*: nothing is allocated there any more, and their free space is no longer the pool's. The layer's own blocks there
//! are written anew elsewhere by the commits that follow (`sync::describe`). Then each of the chunks there with something
//! allocated is paired with an empty one elsewhere, its *twin*, be it on another vdev or on the same, which is set aside.
//! So long as a chunk has a twin, somebody copies what is allocated in it to the same sectors of the twin's region. When all
//! is copied the two change *places*: one row each of the chunk table, and no pointer. Where there are too few empty chunks
//! of the same unit, all chunks there are [packed](super::packing) instead.
//!
//! The twin now lies where the chunk was, empty. States that one may go back to have the chunk's content there: the twin
//! *rests* until they are gone. That goes by the transaction group in which it *arrived*, which its row says, so it rests
//! after a crash as it did before. Then it is open or closed as its region is: whoever has closed that opens it again, unless
//! the region goes.
//!
//! What must hold:
//!
//! 1. From the moment on at which a region is closed nothing is written to it, until it is open again and nothing in it
//!    rests: in a pool that goes back to a state before the change of places, all is where that state says.
//! 2. In a twin's region nothing is written but copies: no state that one may go back to has anything there.
//! 3. A chunk that has changed places is closed until the table that says so is committed: what were allocated in it before
//!    would be nowhere for a crash that finds the former table. That the table finds no room in a group is no harm, for both
//!    places hold all that any state refers to. Both chunks arrive in the group whose table says where they are, and in no
//!    earlier one.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while blocks are copied | the chunks where they were, and regions that are free |
//! | after the change of places, before the uberblock of the group whose table says so | the same |
//! | after that | the chunks at their new places, which were flushed before the change, and twins that rest |
//! | after so many commits that no state before the change is safe any more | twins that are empty chunks like others |
//! | after the labels have left a vdev out | chunks of a vdev that is not there, which are empty: they are *gone* |
//!
//! Chunks of a vdev that is gone keep their rows, so that no number of a chunk or vdev means two. A state from before the
//! change of places has chunks on that vdev that are not empty, and is refused when the vdev is not there.
//!
//! Whoever resolves an address while places change gets one place or the other, and both are good: the old one stays as it
//! is until [`super::SAFE_STATES`] states were committed at least that do not know it.
//!
//! Which regions are closed is stored by whoever closes them, and so is how far they are: here everything begins again when
//! the pool is opened. One set of regions is emptied at a time.

mod regions;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

pub use self::regions::{MovingPlan, Packs, Regions, Targets};

use super::{
    Space,
    chunk::{Chunk, CountedIn, Standing},
    io::SpaceIo,
    layout::{Ground, Layout, Vdev},
    packing::Packer,
    sync::Stored,
};
use crate::{
    error::{Error, Result},
    format::{
        pointer::Address,
        space::{PhysicalPointer, Place},
    },
    units::{ChunkId, Txg, VdevId},
};

/// Where what is allocated in a chunk is copied.
#[derive(Debug)]
enum Target {
    /// To the same sectors of the region of an empty chunk of the same unit: its twin, with which it will change places.
    Twin(Arc<Chunk>),
    /// To wherever there is room in empty chunks: it will be [packed](super::packing).
    Hosts,
}

impl Target {
    /// The chunk that is set aside for it alone.
    fn twin(&self) -> Option<&Arc<Chunk>> {
        match self {
            Target::Twin(twin) => Some(twin),
            Target::Hosts => None,
        }
    }
}

/// The chunks of regions that are emptied, and where each of them goes.
#[derive(Debug)]
pub(super) struct Moves {
    targets: HashMap<ChunkId, Target>,
    /// For those that are packed.
    packer: Packer,
    /// They have changed places.
    has_switched: AtomicBool,
    /// Something was not copied that should have been.
    is_incomplete: AtomicBool,
}

impl Moves {
    fn new(targets: HashMap<ChunkId, Target>, to: &Targets, packs: Packs) -> Moves {
        let packed = targets.iter().filter(|(_, target)| matches!(target, Target::Hosts)).map(|(id, _)| *id);
        let packer = Packer::new(packed.collect(), to.clone(), packs);
        let (has_switched, is_incomplete) = (AtomicBool::new(false), AtomicBool::new(false));
        Moves { targets, packer, has_switched, is_incomplete }
    }

    /// The chunks that will change places with others.
    fn twins(&self) -> impl Iterator<Item = (&ChunkId, &Arc<Chunk>)> {
        self.targets.iter().filter_map(|(id, target)| Some((id, target.twin()?)))
    }

    /// What is packed, as long as blocks are copied.
    pub(super) fn packs(&self) -> Option<&Packer> {
        Some(&self.packer).filter(|packer| !packer.is_idle() && !self.has_switched())
    }

    fn has_switched(&self) -> bool {
        self.has_switched.load(Ordering::Acquire)
    }
}

impl Space {
    /// Allocates nothing in regions any more. Whoever is just looking for room may still find some there, in the open group:
    /// what is born after that is elsewhere.
    pub fn close(&self, regions: &Regions) {
        let _stored = self.stored.lock();
        self.set_closed(regions, true);
    }

    /// Takes regions back that were closed, with all chunks where they are. Returns false while chunks change places.
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
        // What is set aside stays so.
        let is_used = |chunk: &&Arc<Chunk>| matches!(chunk.standing(), Standing::Open | Standing::Closed);
        layout.chunks_in(regions).filter(is_used).for_each(|chunk| layout.let_stand(chunk));
    }

    /// Whether a whole vdev is closed.
    pub fn is_closed(&self, vdev: VdevId) -> bool {
        self.layout.load().is_closed(vdev)
    }

    /// Gives each chunk of closed regions that holds something a twin on these vdevs, or has all of them packed.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if there are too few empty chunks; then there are no twins.
    pub fn pair(&self, regions: &Regions, to: &Targets, packs: Packs) -> Result<()> {
        let _stored = self.stored.lock();
        let layout = self.layout.load();
        assert!(self.moves.load().is_none(), "one set of regions is emptied at a time");
        let moving: Vec<&Arc<Chunk>> = layout.chunks_in(regions).filter(|chunk| chunk.allocated() > 0).collect();
        assert!(moving.iter().all(|chunk| chunk.standing() == Standing::Closed), "a chunk is moved that is in use");
        let twins = if packs == Packs::Always { None } else { layout.twins_of(&moving, to) };
        let targets: HashMap<ChunkId, Target> = match twins {
            Some(twins) => twins,
            None if packs == Packs::Never => return Err(Error::OutOfSpace),
            None => moving.iter().map(|chunk| (chunk.id, Target::Hosts)).collect(),
        };
        self.moves.store(Some(Arc::new(Moves::new(targets, to, packs))));
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
        moves.twins().for_each(|(_, twin)| layout.let_stand(twin));
        moves.packer.give_up(layout);
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

    /// Whether what is at an address is to be copied.
    pub fn moves(&self, address: Address, bytes: u32) -> bool {
        self.target_of(address, bytes).is_some()
    }

    /// Whether what is at an address is to be copied, block by block: what lies together may not lie together any more.
    pub fn packs(&self, address: Address, bytes: u32) -> bool {
        self.target_of(address, bytes).is_some_and(|packs| packs)
    }

    /// How many chunks are being packed, and into how many, so far.
    pub fn packing(&self) -> (usize, usize) {
        self.moves.load().as_ref().map_or((0, 0), |moves| moves.packer.counts())
    }

    /// Whether there is no empty chunk left for what is packed.
    pub fn has_run_out(&self) -> bool {
        self.moves.load().as_ref().is_some_and(|moves| moves.packer.is_full())
    }

    /// Whether what is at an address is packed, if it is to be copied.
    fn target_of(&self, address: Address, bytes: u32) -> Option<bool> {
        let moves = self.moves.load();
        let moves = moves.as_ref().filter(|moves| !moves.has_switched())?;
        let layout = self.layout.load();
        let (chunk, span) = layout.locate(address, bytes).ok()?;
        let (host, _) = layout.seat(chunk, span).ok()?;
        moves.targets.get(&host.id).map(|target| matches!(target, Target::Hosts))
    }

    /// Notes that something was not copied: places are not changed before all was copied once more.
    pub fn note_uncopied(&self) {
        if let Some(moves) = &*self.moves.load() {
            moves.is_incomplete.store(true, Ordering::Release);
        }
    }

    /// Whether nothing is known that should have been copied and was not.
    pub fn is_copied(&self) -> bool {
        self.moves.load().as_ref().is_some_and(|moves| !moves.is_incomplete.load(Ordering::Acquire))
    }

    /// Has the chunks change places with their twins, or be packed. To be called in the open group `txg`, while no group is
    /// synced and after all copies were flushed. False if something was not copied.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if there is no room for what says where packed chunks are; nothing has changed then.
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

    /// Notes that the table of `txg` is the next that may say where chunks are that have changed places: the one before
    /// found no room, or this is the first.
    pub(super) fn arrive_again(&self, txg: Txg) {
        let Some(moves) = self.moves.load_full() else { return };
        let layout = self.layout.load();
        for (id, twin) in moves.twins() {
            layout.chunks[id.0 as usize].arrive(txg);
            twin.arrive(txg);
        }
    }

    /// Lets chunks be used that have changed places, if the table of `txg`, which is committed, says where they are.
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

    /// Lets chunks be used that have rested for long enough: no state has anything in their regions that is held, or that
    /// one may go back to.
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

    /// Whether `bytes` bytes at an address lie in one of these regions.
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

    /// Forgets a device that is vacated: the labels do not name it any more.
    pub fn forget_vdev(&self, vdev: VdevId) {
        let _stored = self.stored.lock();
        let mut layout = Layout::clone(&self.layout.load());
        let all = Regions::Vdev(vdev);
        layout.chunks_in(&all).for_each(|chunk| assert!(chunk.is_free(), "a device that leaves holds something"));
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
    /// Whether a block has a copy in a region that is closed.
    pub(super) fn is_leaving(&self, pointer: &PhysicalPointer) -> bool {
        pointer.places().iter().any(|place| self.is_closed_at(place))
    }

    /// Sets the chunks aside that came to lie where they do in groups after `reusable`, and are empty: older states have
    /// something there.
    pub(super) fn rest_after(&self, reusable: Txg) {
        let arrived = |chunk: &&Arc<Chunk>| chunk.arrived() > reusable && !self.is_gone(chunk.vdev(), chunk.region());
        self.chunks.iter().filter(arrived).for_each(|chunk| _ = chunk.rest());
    }

    pub(super) fn chunks_in(&self, regions: &Regions) -> impl Iterator<Item = &Arc<Chunk>> {
        self.vdevs.iter().flat_map(|vdev| &vdev.chunks).filter(move |chunk| regions.has(chunk))
    }

    /// Has a chunk be open or closed as its region is.
    pub(super) fn let_stand(&self, chunk: &Chunk) {
        let (standing, tally) = self.standing_in(chunk.seat());
        chunk.set_standing(standing, tally);
    }

    /// How a chunk in use stands in a region, and where it is counted.
    pub(super) fn standing_in(&self, (id, region): (VdevId, u32)) -> (Standing, CountedIn) {
        let vdev = self.vdevs.iter().find(|vdev| vdev.id == id).expect("a chunk in use lies on a vdev");
        let standing = if vdev.is_closed(region) { Standing::Closed } else { Standing::Open };
        (standing, self.counted(vdev, standing))
    }

    /// This layout with each chunk at the device where it says that it is.
    pub(super) fn seated(&self) -> Layout {
        let mut layout = self.clone();
        for vdev in &mut layout.vdevs {
            let seated = self.chunks.iter().filter(|chunk| !chunk.is_packed() && !self.packed.contains_key(&chunk.id));
            let own = seated.filter(|chunk| vdev.has(chunk)).cloned().collect();
            *vdev = Arc::new(vdev.with_chunks(own));
        }
        layout
    }

    /// A twin on these vdevs for each of these chunks, if there are as many.
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

    /// What a device is for.
    fn ground_of(&self, id: VdevId) -> Ground {
        self.vdevs.iter().find(|vdev| vdev.id == id).map_or(Ground::Normal, |vdev| vdev.ground)
    }

    /// Sets an empty chunk aside that is allocated by such units, of the device that has the most free space: of one that is
    /// for the same, if there is one.
    fn take_twin(&self, unit: u32, ground: Ground, to: &Targets) -> Option<Arc<Chunk>> {
        let suits = |vdev: &&Arc<Vdev>| vdev.is_open() && to.contains(vdev.id);
        let mut open: Vec<_> = self.vdevs.iter().filter(suits).collect();
        open.sort_by_cached_key(|vdev| (vdev.ground != ground, std::cmp::Reverse(vdev.free())));
        open.iter().find_map(|vdev| vdev.take_spare(unit))
    }
}

#[cfg(test)]
mod tests;
