//! Durable now: the intent log's side of the engine.
//!
//! Who asks for a tree's changes to be durable enlists, and then waits for its turn to write. Whoever has the turn writes
//! a frame for all who have enlisted by then, so that those who come while a flush is under way share the next. What the
//! log cannot take (it is full, too much has changed, a device fails) is made durable by a commit instead.
//!
//! No lock is held that a commit needs: a commit goes on while frames are written, and frames while a commit is.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    error::{Error, Result},
    format::{
        intent::{Entry, FRAME_HEADER, FrameId, Item, ItemBlock, LogHead, Part, encode_frame, encode_payload},
        key::Key,
        pointer::{Address, BlockPointer},
    },
    log::{self, Place, Ring, Standing},
    space::{Class, Extent, Regions, SpaceIo},
    tree::{Block, Entry as Found, LogPart, Record},
    txg::{births::Usage, engine::Engine, head::Head},
    units::Txg,
    vdev::Suspension,
};

/// Up to so many bytes of a block travel in the log itself, and are written again by the commit. More are stored where
/// they will stay, and the log says where that is.
const INLINE_MAX: usize = 32 << 10;
/// Bounds of the log's area, in bytes. It is allocated in one piece, so a region has to have room for it twice.
const AREA: std::ops::RangeInclusive<u64> = 128 << 10..=16 << 20;

/// What the log has done since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Frames written, each with one flush.
    pub frames: u64,
    /// The bytes of these frames, as written.
    pub bytes: u64,
    /// Calls that took a frame, or found theirs written by another.
    pub calls: u64,
    /// Times that a commit had to stand in.
    pub commits: u64,
}

/// The log of an opened pool.
#[derive(Default)]
pub(super) struct Log {
    state: Mutex<State>,
    /// Held by who writes a frame.
    turn: Mutex<()>,
    /// Whether what was found when the pool was opened still has to be put back. Until then nothing may be committed.
    applying: AtomicBool,
}

#[derive(Default)]
struct State {
    ring: Option<Ring>,
    /// The area of a log that was given up, until a commit frees it.
    retired: Option<(Address, u32)>,
    /// The number of the first frame of the next ring: none is used twice.
    sequence: u64,
    /// The trees for which a frame was asked.
    enlisted: BTreeMap<u64, Arc<Head>>,
    /// The round that will take them, and the last one that is durable.
    round: u64,
    durable: u64,
    /// What was collected since this group was open may be missing: only a commit of it helps.
    broken: Option<Txg>,
    /// The number of the next block in the log.
    block: u64,
    stats: LogStats,
    /// What was found when the pool was opened, until its owner takes it.
    found: Vec<Entry>,
}

impl Log {
    /// The log of a pool whose last uberblock names this area in a space whose sectors are so many at a time, and in which
    /// this was found.
    pub(super) fn new(head: Option<(LogHead, u32)>, found: Vec<Entry>) -> Log {
        let ring = head.and_then(|(head, unit)| Ring::found(&head, unit));
        Log {
            applying: AtomicBool::new(!found.is_empty()),
            state: Mutex::new(State { ring, found, round: 1, sequence: 1, ..State::default() }),
            turn: Mutex::default(),
        }
    }

    /// Where the log stands when a group is frozen. The gate must be closed.
    pub(super) fn standing(&self) -> Standing {
        self.state.lock().ring.as_ref().map(Ring::standing).unwrap_or_default()
    }

    /// The uberblock of `txg` is stable.
    pub(super) fn committed(&self, txg: Txg) {
        let mut state = self.state.lock();
        state.broken = state.broken.filter(|broken| *broken > txg);
        if let Some(ring) = &mut state.ring {
            ring.committed(txg);
        }
    }

    /// Enlists a tree; the round that will make it durable, if there is a log to write to.
    fn enlist(&self, head: &Arc<Head>) -> Option<u64> {
        let mut state = self.state.lock();
        state.stats.calls += 1;
        if state.broken.is_some() || !state.ring.as_ref().is_some_and(Ring::is_named) {
            return None;
        }
        state.enlisted.insert(head.id(), head.clone());
        Some(state.round)
    }

    fn is_durable(&self, round: u64) -> bool {
        self.state.lock().durable >= round
    }

    /// Begins a round with all that have enlisted.
    fn begin(&self) -> (u64, Vec<Arc<Head>>) {
        let mut state = self.state.lock();
        state.round += 1;
        (state.round - 1, std::mem::take(&mut state.enlisted).into_values().collect())
    }

    /// Whether what was found when the pool was opened still has to be put back.
    pub(super) fn is_applying(&self) -> bool {
        self.applying.load(Ordering::Acquire)
    }

    fn is_broken(&self) -> bool {
        self.state.lock().broken.is_some()
    }
}

/// What was collected of one tree, with the blocks whose addresses are still to come.
struct Collected {
    entry: Entry,
    awaited: Vec<(usize, Arc<Record>)>,
}

impl Engine {
    /// The entries that were in the log when the pool was opened and that its committed state does not hold, oldest
    /// first. Their owner applies them before anything else is changed: see [`crate::log`].
    pub fn take_log(&self) -> Vec<Entry> {
        std::mem::take(&mut self.log.state.lock().found)
    }

    /// Everything that [`Engine::take_log`] gave out is put back: commits it.
    pub fn log_applied(&self) -> Result<()> {
        if self.log.applying.swap(false, Ordering::AcqRel) { self.commit_anyway().map(drop) } else { Ok(()) }
    }

    /// What the intent log has done.
    pub fn log_stats(&self) -> LogStats {
        self.log.state.lock().stats
    }

    /// Takes the space of a block that an entry of the log refers to, and that no commit has counted. To be called
    /// before anything is allocated, once for each block.
    pub(super) fn claim(&self, txg: Txg, pointer: &BlockPointer) -> Result<Usage> {
        for extent in self.storage.extents(pointer)? {
            let address = Address { chunk: extent.chunk, sector: extent.sector };
            self.storage.space.claim(txg, address, extent.sectors * self.sector(), &self.storage.vdevs)?;
        }
        Ok(Usage::of(pointer, self.sector()))
    }

    /// See [`Head::make_durable`].
    pub(super) fn make_durable(self: &Arc<Self>, head: &Arc<Head>) -> Result<()> {
        self.writable()?;
        let Some(round) = self.log.enlist(head) else { return self.commit_instead() };
        let turn = self.log.turn.lock();
        if self.log.is_durable(round) {
            return Ok(());
        }
        if self.log.is_broken() {
            drop(turn);
            return self.commit_instead();
        }
        let (round, heads) = self.log.begin();
        match self.write_frame(&heads) {
            Ok(true) => {}
            outcome => {
                if let Err(error) = outcome {
                    tracing::warn!("the intent log cannot be written, committing instead: {error}");
                }
                // What was collected is gone; those who enlist before the commit must not rely on the log.
                let open = *self.enter();
                self.log.state.lock().broken = Some(open);
                self.commit_instead()?;
            }
        }
        self.log.state.lock().durable = round;
        Ok(())
    }

    fn commit_instead(&self) -> Result<()> {
        self.log.state.lock().stats.commits += 1;
        self.commit().map(drop)
    }

    /// Writes what has changed in these trees, and flushes. False if it does not fit.
    fn write_frame(self: &Arc<Self>, heads: &[Arc<Head>]) -> Result<bool> {
        let mut collected = Vec::with_capacity(heads.len());
        for head in heads {
            match head.take_touched(self, |txg, found| self.collect(head.id(), txg, found))? {
                Touched::Nothing => {}
                Touched::TooMuch => return Ok(false),
                Touched::Items(entry) => collected.push(entry),
            }
        }
        if collected.is_empty() {
            return Ok(true);
        }
        let Some(entries) = self.await_addresses(collected)? else { return Ok(false) };
        if !log::stored_since(&entries, self.committed()).all(log::is_verifiable) {
            Suspension::hastily(|| self.storage.vdevs.flush())?;
        }
        let payload = encode_payload(&entries);
        let len = FRAME_HEADER + payload.len();
        let Some(Place { address, sequence }) = self.reserve_frame(len) else { return Ok(false) };
        let id = FrameId { pool: self.guid(), epoch: self.ancestry.epoch, sequence };
        let mut frame = encode_frame(id, &payload);
        frame.resize(len.next_multiple_of(self.sector() as usize), 0);
        let (vdev, offset) = self.storage.space.resolve(address, frame.len() as u32)?;
        Suspension::hastily(|| {
            self.storage.vdevs.write(vdev, offset, &frame)?;
            self.storage.vdevs.flush()
        })?;
        let mut state = self.log.state.lock();
        state.stats.frames += 1;
        state.stats.bytes += frame.len() as u64;
        Ok(true)
    }

    /// A place for a frame, in a ring that the last uberblock names: another one may have come meanwhile.
    fn reserve_frame(&self, len: usize) -> Option<Place> {
        let mut state = self.log.state.lock();
        let ring = state.ring.as_mut().filter(|ring| ring.is_named())?;
        let place = ring.reserve((len as u64).div_ceil(self.sector().into()));
        if ring.is_half_full() {
            self.kick();
        }
        place
    }

    /// Says what the items are now, under the tree's lock.
    fn collect(&self, tree: u64, txg: Txg, found: Vec<(Key, Option<Found>)>) -> Collected {
        let mut entry =
            Entry { tree, txg, base: self.committed(), parts: Vec::new(), items: Vec::with_capacity(found.len()) };
        let mut awaited = Vec::new();
        for (key, found) in found {
            let item = found.map(|found| {
                let block = match found.block() {
                    None => ItemBlock::None,
                    Some(Block::Stored(pointer)) => ItemBlock::Stored(pointer),
                    Some(Block::Pending(record)) => match self.log_record(txg, &record, &mut entry.parts) {
                        Some(block) => ItemBlock::Logged(block),
                        None => {
                            awaited.push((entry.items.len(), record));
                            ItemBlock::None
                        }
                    },
                };
                Item { body: found.body().to_vec(), block }
            });
            entry.items.push((key, item));
        }
        Collected { entry, awaited }
    }

    /// Has the log tell the bytes of a record; `None` if it will tell the address.
    fn log_record(&self, txg: Txg, record: &Record, parts: &mut Vec<Part>) -> Option<u64> {
        let number = || {
            let mut state = self.log.state.lock();
            state.block += 1;
            state.block
        };
        match record.log_part(txg, INLINE_MAX, number) {
            LogPart::Known(block) => Some(block),
            LogPart::Bytes { block, bytes, range } => {
                let (len, at) = (bytes.len() as u32, range.start as u32);
                parts.push(Part { block, len, at, bytes: bytes[range].to_vec() });
                Some(block)
            }
            LogPart::Address => None,
        }
    }

    /// Has the blocks stored that the log refers to; `None` if one of them was given up before that.
    fn await_addresses(self: &Arc<Self>, collected: Vec<Collected>) -> Result<Option<Vec<Entry>>> {
        let awaited = collected.iter().flat_map(|collected| &collected.awaited);
        awaited.for_each(|(_, record)| self.submit(record));
        let resolve = |collected: Collected| {
            let Collected { mut entry, awaited } = collected;
            for (index, record) in awaited {
                let Some(pointer) = self.wait_stored(&record)? else { return Ok(None) };
                let item = entry.items[index].1.as_mut().expect("an item with a block");
                item.block = ItemBlock::Stored(pointer);
            }
            Ok(Some(entry))
        };
        collected.into_iter().map(resolve).collect()
    }

    /// Waits until a record has its address: a worker stores it, or the commit under way does. `None` if its group is
    /// committed without it: no tree had it any more.
    pub(super) fn wait_stored(&self, record: &Record) -> Result<Option<BlockPointer>> {
        let mut in_flight = self.in_flight.lock();
        loop {
            let committed = self.committed();
            if let Some(pointer) = record.pointer() {
                return Ok(Some(*pointer));
            }
            if record.txg() <= committed {
                return Ok(None);
            }
            self.writable()?;
            // Whoever stores it does not hold the lock while doing so; the timeout makes up for a wake-up that was missed.
            self.landed.wait_for(&mut in_flight, Duration::from_millis(1));
        }
    }

    /// Where the log lies.
    pub fn log_area(&self) -> Option<Extent> {
        let state = self.log.state.lock();
        let area = state.ring.as_ref().map(Ring::area).or(state.retired);
        let (Address { chunk, sector }, sectors) = area?;
        Some(Extent { chunk, sector, sectors })
    }

    /// What the uberblock of `txg` says about the log. A pool without one gets it now, if there is room.
    pub(super) fn log_head(&self, txg: Txg, standing: Standing) -> Result<Option<LogHead>> {
        let mut state = self.log.state.lock();
        if let Some((area, sectors)) = state.retired.take() {
            self.storage.space.free(txg, area, sectors * self.sector())?;
        }
        if state.ring.is_none() {
            state.ring = self.make_ring(txg, state.sequence)?;
            // Nothing was written to it: this is how it stands.
            return Ok(state.ring.as_mut().map(|ring| ring.head(txg, ring.standing())));
        }
        Ok(state.ring.as_mut().map(|ring| ring.head(txg, standing)))
    }

    /// Gives the log's area up, if it lies in a region that is emptied: the next commit names another one, or none.
    ///
    /// While this lasts no frame is written and no commit is under way, so all frames are of the open group, and the last
    /// uberblock names them. If power fails before the next one, the former area is as it was: it is freed in the group
    /// that names another. Whoever wants something durable until then has it committed.
    pub(crate) fn retire_log(&self, regions: &Regions) -> Result<()> {
        let _turn = self.log.turn.lock();
        let _syncing = self.syncing.lock();
        let mut state = self.log.state.lock();
        let Some((area, sectors)) = state.ring.as_ref().map(Ring::area) else { return Ok(()) };
        if self.storage.space.lies_in(area, sectors * self.sector(), regions)? {
            state.sequence = state.ring.take().map_or(1, |ring| ring.next_sequence());
            state.retired = Some((area, sectors));
        }
        Ok(())
    }

    fn make_ring(&self, txg: Txg, sequence: u64) -> Result<Option<Ring>> {
        let bytes = (self.storage.space.region() / 2).clamp(*AREA.start(), *AREA.end());
        if self.storage.space.free_for(Class::Data) < bytes * 4 {
            return Ok(None);
        }
        match self.storage.space.allocate(txg, Class::Metadata, bytes as u32, 1, &self.storage.vdevs) {
            Ok(place) => {
                let Extent { sectors, .. } = self.storage.space.extent(place.addresses[0], bytes as u32);
                let unit = self.storage.space.unit_at(place.addresses[0]);
                Ok(Some(Ring::from(sequence, place.addresses[0], sectors, unit)))
            }
            Err(Error::OutOfSpace) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What a tree has to tell the log.
pub(super) enum Touched<T> {
    /// Nothing has changed that it was not told.
    Nothing,
    /// More than is worth telling.
    TooMuch,
    /// This.
    Items(T),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admin::{self, CreateOptions},
        device::MemoryDevice,
        env::SeededEnv,
        format::pointer::Address,
        units::MIB,
    };

    #[test]
    fn no_frame_is_written_where_nobody_would_find_it() {
        let device = Arc::new(MemoryDevice::new("disk", 64 * MIB));
        let pool = admin::create(vec![device], &CreateOptions::new("tank"), Arc::new(SeededEnv::new(1))).unwrap();
        let engine = pool.engine();
        // Another ring has come, and no uberblock names it yet.
        engine.log.state.lock().ring = Some(Ring::new(Address::default(), 64, 1));
        assert_eq!(engine.reserve_frame(100), None);
    }
}
