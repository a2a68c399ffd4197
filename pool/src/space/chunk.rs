//! One chunk in memory: its free sectors, its freed but not yet reusable ones, and the changes of transaction groups
//! that a crash or rewind can still undo.
//!
//! Every sector is in exactly one of three states: *allocated*, *deferred* (freed, but a state that a crash or a rewind
//! may return to still refers to it) or *free*. The three counts are exact from the moment the pool is opened; the free
//! map is read from the checkpoint only for the first allocation in the chunk.
//!
//! Invariants:
//! 1. `free + deferred + allocated == sectors`.
//! 2. A loaded map holds `free` sectors, and none of those in any `changes.freed`.
//! 3. `changes` is sorted by transaction group; `allocated` there is kept until its group is committed, `freed` until
//!    it is released.
//! 4. Only loaded chunks have allocations in `changes`.

mod moving;
mod packing;
mod places;
pub(super) mod seconds;
mod stored;
mod trim;

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU8, AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed},
    },
};

use parking_lot::{Mutex, MutexGuard};

use self::seconds::Seconds;
use super::{
    free_map::FreeMap,
    io::Disk,
    span_set::{SpanSet, total},
};
use crate::{
    error::{Error, Result},
    format::space::{
        Class, PhysicalPointer, Span,
        packing::Entry,
        table::{Row, Seat},
    },
    units::{ChunkId, Txg, VdevId},
};

/// The hint of a chunk without a loaded map: anything may fit.
const UNKNOWN: u32 = u32::MAX;

/// Sector counts of one device, in step with its chunks.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) free: AtomicU64,
    pub(super) deferred: AtomicU64,
}

/// A chunk (OpenZFS: metaslab): its counts, its free map and its recent changes.
#[derive(Debug)]
pub(super) struct Chunk {
    pub(super) id: ChunkId,
    /// The chunk's place: the device in the upper half, the region in the lower. For a packed chunk, its last place.
    seat: AtomicU64,
    /// The transaction group in which the chunk moved to its place; zero if it never moved.
    arrived: AtomicU64,
    /// The number of sectors, a multiple of `unit`.
    pub(super) sectors: u32,
    /// The allocation unit, in sectors. Allocated, deferred and free spans are whole units.
    pub(super) unit: u32,
    /// Its row of the chunk table must be written.
    pub(super) row_changed: AtomicBool,
    hints: Hints,
    state: Mutex<State>,
}

/// The present role of a chunk: see [`super::moving`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Standing {
    /// Blocks are allocated in the chunk.
    Open,
    /// No allocations: the chunk is being emptied, or has just moved. Its free sectors do not count as the pool's.
    Closed,
    /// Empty, and receiving copies for another chunk. Counts nowhere.
    Target,
    /// Empty, but states that a rewind can reach refer to its region. Counts nowhere.
    Resting,
    /// Without a region. Its blocks count in their hosts: see [`super::packing`].
    Packed,
}

/// Hints for the search for a chunk, read without locks; possibly a moment old.
#[derive(Debug)]
struct Hints {
    free: AtomicU32,
    /// At least the longest free span; a failed allocation corrects it.
    largest: AtomicU32,
    class: AtomicU8,
    active: AtomicBool,
    /// A [`Standing`], as its number.
    standing: AtomicU8,
}

/// Where a chunk's free and deferred sectors are counted.
#[derive(Clone, Debug, Default)]
pub(super) struct CountedIn {
    /// The counters of the device.
    pub(super) counters: Arc<Counters>,
    /// How many chunks of the pool are empty and without a class.
    pub(super) empty: Arc<AtomicU32>,
}

/// A chunk's state at import: its row, and the later changes in the log.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) row: Row,
    /// The log after the checkpoint, oldest first.
    pub(super) replay: Vec<Replay>,
    /// The oldest transaction group in `replay`.
    pub(super) oldest_logged: Option<Txg>,
    /// Allocated sectors with the log applied.
    pub(super) allocated: u32,
    /// Freed and not yet reusable spans, by transaction group.
    pub(super) deferred: Vec<(Txg, Vec<Span>)>,
    /// What the log frees after the checkpoint, of a chunk whose row names places.
    pub(super) frees: Vec<(Txg, Vec<Span>)>,
    /// The second places, of a chunk whose row names places.
    pub(super) seconds: Option<Seconds>,
}

impl Loaded {
    /// A chunk without entries in the log.
    pub(super) fn of(row: Row) -> Loaded {
        Loaded {
            row,
            replay: Vec::new(),
            oldest_logged: None,
            allocated: 0,
            deferred: Vec::new(),
            frees: Vec::new(),
            seconds: None,
        }
    }
}

/// One change to apply on top of a checkpoint.
#[derive(Clone, Copy, Debug)]
pub(super) enum Replay {
    Allocated(Span),
    Freed(Span),
}

#[derive(Debug)]
struct State {
    class: Option<Class>,
    /// A slot of the allocator allocates here.
    active: bool,
    standing: Standing,
    tally: CountedIn,
    map: Map,
    free: u32,
    deferred: u32,
    /// Sectors allocated at the end of the last synced transaction group.
    logged: u32,
    changes: Vec<Changes>,
    /// Sectors freed since the last TRIM; some may be allocated again.
    fresh: SpanSet,
    checkpoint: Option<PhysicalPointer>,
    /// The stored map of a packed chunk, or the stored places if there are `seconds`.
    map_at: Option<PhysicalPointer>,
    /// The second places of the chunk's sectors.
    seconds: Option<Seconds>,
    described: Txg,
    allocated_then: u32,
    /// The oldest transaction group in the log that the checkpoint does not cover.
    oldest_logged: Option<Txg>,
}

#[derive(Debug)]
enum Map {
    Unloaded(Vec<Replay>),
    Loaded(FreeMap),
}

/// The changes of one transaction group.
#[derive(Debug, Default)]
struct Changes {
    txg: Txg,
    allocated: Vec<Span>,
    freed: SpanSet,
}

impl Chunk {
    /// An unused chunk: its place, and its sectors and unit.
    pub(super) fn new(place: (ChunkId, VdevId, u32), (sectors, unit): (u32, u32), tally: CountedIn) -> Chunk {
        let (id, vdev, region) = place;
        let row = Row { seat: Seat::Region { vdev, region }, unit, ..Row::default() };
        let chunk = Chunk::open(id, sectors, Loaded::of(row), tally);
        chunk.row_changed.store(true, Relaxed);
        chunk
    }

    /// A chunk as described by the table and the log. The counts must have been checked.
    pub(super) fn open(id: ChunkId, sectors: u32, loaded: Loaded, tally: CountedIn) -> Chunk {
        assert!(sectors.is_multiple_of(loaded.row.unit), "SPACE-4: a chunk of {sectors} sectors");
        let deferred = total(loaded.deferred.iter().flat_map(|(_, spans)| spans.iter().copied())) as u32;
        let free = sectors - loaded.allocated - deferred;
        let whole = free == sectors;
        // A class is stored a transaction group late when the space layer's own blocks opened the chunk.
        let class = if whole { None } else { loaded.row.class.or(Some(Class::Metadata)) };
        tally.add(free, deferred, whole);
        let changes = loaded
            .deferred
            .into_iter()
            .map(|(txg, spans)| Changes { txg, allocated: Vec::new(), freed: SpanSet::from_spans(spans) })
            .collect();
        let pristine = whole && loaded.row.checkpoint.is_none() && loaded.replay.is_empty();
        let map = match pristine {
            true => Map::Loaded(FreeMap::from_spans([Span::new(0, sectors)])),
            false => Map::Unloaded(loaded.replay),
        };
        let (seat, map_at) = match loaded.row.seat {
            Seat::Region { vdev, region } => (Some((vdev, region)), loaded.row.places),
            Seat::Packed { map } => (None, map.or(loaded.row.places)),
        };
        let standing = if seat.is_none() { Standing::Packed } else { Standing::Open };
        let hints = Hints {
            free: AtomicU32::new(free),
            largest: AtomicU32::new(if pristine { sectors } else { UNKNOWN }),
            class: AtomicU8::new(code(class)),
            active: AtomicBool::new(false),
            standing: AtomicU8::new(standing as u8),
        };
        let state = State {
            class,
            active: false,
            standing,
            tally,
            map,
            free,
            deferred,
            logged: loaded.allocated,
            changes,
            fresh: SpanSet::default(),
            checkpoint: loaded.row.checkpoint,
            map_at,
            seconds: loaded.seconds,
            described: loaded.row.described,
            allocated_then: loaded.row.allocated,
            oldest_logged: loaded.oldest_logged,
        };
        Chunk {
            id,
            seat: AtomicU64::new(seat_of(seat)),
            arrived: AtomicU64::new(loaded.row.arrived.0),
            sectors,
            unit: loaded.row.unit,
            row_changed: AtomicBool::new(class != loaded.row.class),
            hints,
            state: Mutex::new(state),
        }
    }

    /// The chunk's device and region.
    pub(super) fn seat(&self) -> (VdevId, u32) {
        let seat = self.seat.load(Acquire);
        (VdevId((seat >> 32) as u32), seat as u32)
    }

    pub(super) fn vdev(&self) -> VdevId {
        self.seat().0
    }

    pub(super) fn region(&self) -> u32 {
        self.seat().1
    }

    /// The transaction group in which the chunk moved to its place; zero if it never moved.
    pub(super) fn arrived(&self) -> Txg {
        Txg(self.arrived.load(Acquire))
    }

    /// The chunk's role, as of a moment ago.
    pub(super) fn standing(&self) -> Standing {
        let known = [Standing::Open, Standing::Closed, Standing::Target, Standing::Resting, Standing::Packed];
        known[usize::from(self.hints.standing.load(Relaxed))]
    }

    /// About how many sectors are free.
    pub(super) fn free_hint(&self) -> u32 {
        self.hints.free.load(Relaxed)
    }

    /// An upper bound on the longest free span, in sectors.
    pub(super) fn largest_hint(&self) -> u32 {
        self.hints.largest.load(Relaxed).min(self.free_hint())
    }

    /// The chunk's class, as of a moment ago.
    pub(super) fn class_hint(&self) -> Option<Class> {
        Class::decode(self.hints.class.load(Relaxed)).expect("a class that was encoded")
    }

    /// Whether a slot allocates here, as of a moment ago.
    pub(super) fn active_hint(&self) -> bool {
        self.hints.active.load(Relaxed)
    }

    /// Takes the chunk for a slot of the allocator; an empty chunk gets the class, if more than `keep` chunks are
    /// empty.
    pub(super) fn activate(&self, class: Class, keep: u32) -> bool {
        let mut state = self.state.lock();
        if state.active || state.standing != Standing::Open {
            return false;
        }
        if state.class.is_none() {
            let claimed = state.tally.empty.fetch_update(Relaxed, Relaxed, |empty| (empty > keep).then(|| empty - 1));
            if claimed.is_err() {
                return false;
            }
            self.set_class(&mut state, Some(class));
        }
        state.active = true;
        self.hints.active.store(true, Relaxed);
        true
    }

    /// Gives the chunk back from a slot.
    pub(super) fn deactivate(&self) {
        let mut state = self.state.lock();
        state.active = false;
        self.hints.active.store(false, Relaxed);
        self.settle(&mut state);
    }

    /// Allocates `len` sectors in one piece.
    pub(super) fn take(&self, txg: Txg, len: u32, disk: &Disk<'_>) -> Result<Option<u32>> {
        let mut state = self.state.lock();
        if state.class.is_none() || state.standing != Standing::Open {
            // The chunk was in use when the caller looked, and is empty or being moved by now.
            return Ok(None);
        }
        let map = self.load(&mut state, disk)?;
        let Some(start) = map.take(len) else {
            self.hints.largest.store(map.largest(), Relaxed);
            return Ok(None);
        };
        self.note_allocated(&mut state, txg, Span::new(start, len));
        Ok(Some(start))
    }

    /// Allocates exactly `span`; false unless all of it is free.
    pub(super) fn claim(&self, txg: Txg, span: Span, disk: &Disk<'_>) -> Result<bool> {
        if self.is_packed() {
            return Ok(false);
        }
        let mut state = self.state.lock();
        let map = self.load(&mut state, disk)?;
        if !map.take_exactly(span) {
            return Ok(false);
        }
        if state.class.is_none() {
            state.tally.empty.fetch_sub(1, Relaxed);
            self.set_class(&mut state, Some(Class::Metadata));
        }
        self.note_allocated(&mut state, txg, span);
        Ok(true)
    }

    /// Takes back an allocation that no other thread has seen yet.
    pub(super) fn untake(&self, txg: Txg, span: Span) {
        let mut state = self.state.lock();
        let allocated = &mut state.changes_of(txg).allocated;
        let index = allocated.iter().rposition(|run| run.start <= span.start && span.end() <= run.end());
        let run = allocated.swap_remove(index.expect("an allocation of this transaction group"));
        let around = [Span::new(run.start, span.start - run.start), Span::new(span.end(), run.end() - span.end())];
        allocated.extend(around.into_iter().filter(|rest| rest.len > 0));
        self.make_free(&mut state, span);
        self.settle(&mut state);
    }

    /// Frees `span` in `txg`, in a chunk that has the sectors for itself or for a packed chunk.
    ///
    /// # Errors
    /// As [`Chunk::free_block`], and if the sectors have a second place, which only the chunk of a block's address has.
    pub(super) fn free(&self, txg: Txg, span: Span) -> Result<()> {
        match self.free_block(txg, span)?.is_empty() {
            true => Ok(()),
            false => {
                Err(self.damaged(format!("sectors {}+{} of another chunk have a second place", span.start, span.len)))
            }
        }
    }

    /// Frees `span` in `txg`, and returns the second places that end with it, which are to be freed on their archives.
    /// Freeing sectors that are not allocated is an error: the metadata with the pointer is damaged.
    pub(super) fn free_block(&self, txg: Txg, span: Span) -> Result<Vec<Entry>> {
        let mut state = self.state.lock();
        let free_already = matches!(&state.map, Map::Loaded(map) if map.overlaps(span));
        let freed_already = state.changes.iter().any(|changes| changes.freed.overlaps(span));
        if free_already || freed_already || self.sectors - state.free - state.deferred < span.len {
            return Err(self.damaged(format!("sectors {}+{} are freed twice", span.start, span.len)));
        }
        state.changes_of(txg).freed.union(span);
        state.deferred += span.len;
        state.tally.counters.deferred.fetch_add(u64::from(span.len), Relaxed);
        let is_packed = state.standing == Standing::Packed;
        Ok(state.end_seconds(txg, span, is_packed))
    }

    /// Drops the allocations of groups up to `committed`, and makes frees up to `release` reusable. Returns the
    /// released spans.
    pub(super) fn commit(&self, committed: Txg, release: Option<Txg>) -> Vec<Span> {
        let mut state = self.state.lock();
        let mut released = Vec::new();
        for changes in state.changes.iter_mut().filter(|changes| changes.txg <= committed) {
            changes.allocated = Vec::new();
            if release.is_some_and(|release| changes.txg <= release) {
                released.extend(changes.freed.iter());
                changes.freed = SpanSet::default();
            }
        }
        state.changes.retain(|changes| !changes.is_empty());
        for &span in &released {
            state.note_fresh(span, self.sectors);
            state.deferred -= span.len;
            take_off(&state.tally.counters.deferred, span.len);
            self.make_free(&mut state, span);
        }
        let counted = state.free.saturating_add(state.deferred);
        assert!(counted <= self.sectors, "SPACE-1: chunk {} counts {counted} of {} sectors", self.id, self.sectors);
        if !released.is_empty() {
            self.settle(&mut state);
        }
        released
    }

    /// An error about this chunk's map.
    fn damaged(&self, problem: impl ToString) -> Error {
        Error::damaged(format!("space map of chunk {}", self.id), problem)
    }

    fn note_allocated(&self, state: &mut State, txg: Txg, span: Span) {
        let allocated = &mut state.changes_of(txg).allocated;
        match allocated.last_mut() {
            Some(last) if last.end() == span.start => last.len += span.len,
            _ => allocated.push(span),
        }
        state.free -= span.len;
        self.hints.free.store(state.free, Relaxed);
        take_off(&state.tally.counters.free, span.len);
    }

    /// Adds `span` to the free map and the counts.
    fn make_free(&self, state: &mut MutexGuard<'_, State>, span: Span) {
        match &mut state.map {
            Map::Loaded(map) => {
                map.put(span);
                self.hints.largest.store(map.largest(), Relaxed);
            }
            Map::Unloaded(replay) => {
                replay.push(Replay::Freed(span));
                self.hints.largest.store(UNKNOWN, Relaxed);
            }
        }
        state.free += span.len;
        self.hints.free.store(state.free, Relaxed);
        state.tally.counters.free.fetch_add(u64::from(span.len), Relaxed);
    }

    /// Makes an empty, unused chunk available to both classes.
    fn settle(&self, state: &mut State) {
        if !state.active && state.free == self.sectors && state.class.is_some() {
            self.set_class(state, None);
            state.tally.empty.fetch_add(1, Relaxed);
        }
    }

    fn set_class(&self, state: &mut State, class: Option<Class>) {
        state.class = class;
        self.hints.class.store(code(class), Relaxed);
        self.row_changed.store(true, Relaxed);
    }
}

impl State {
    /// The changes of `txg`, new if there were none.
    fn changes_of(&mut self, txg: Txg) -> &mut Changes {
        let index = match self.changes.binary_search_by_key(&txg, |changes| changes.txg) {
            Ok(index) => index,
            Err(index) => {
                self.changes.insert(index, Changes { txg, ..Changes::default() });
                index
            }
        };
        &mut self.changes[index]
    }
}

impl Changes {
    fn is_empty(&self) -> bool {
        self.allocated.is_empty() && self.freed.iter().next().is_none()
    }
}

impl CountedIn {
    fn add(&self, free: u32, deferred: u32, is_empty: bool) {
        self.counters.free.fetch_add(free.into(), Relaxed);
        self.counters.deferred.fetch_add(deferred.into(), Relaxed);
        self.empty.fetch_add(is_empty.into(), Relaxed);
    }

    fn sub(&self, free: u32, deferred: u32, is_empty: bool) {
        take_off(&self.counters.free, free);
        take_off(&self.counters.deferred, deferred);
        self.empty.fetch_sub(is_empty.into(), Relaxed);
    }
}

/// Takes a chunk's sectors off its vdev's sum.
fn take_off(sum: &AtomicU64, sectors: u32) {
    let before = sum.fetch_sub(sectors.into(), Relaxed);
    assert!(before >= sectors.into(), "SPACE-2: a chunk counts {sectors} sectors, its vdev {before}");
}

fn seat(vdev: VdevId, region: u32) -> u64 {
    u64::from(vdev.0) << 32 | u64::from(region)
}

/// What lies nowhere is on no device that there is.
fn seat_of(region: Option<(VdevId, u32)>) -> u64 {
    region.map_or(u64::MAX, |(vdev, region)| seat(vdev, region))
}

fn code(class: Option<Class>) -> u8 {
    class.map_or(0, |class| class as u8)
}
