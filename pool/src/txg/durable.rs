//! Durable now: the intent log's side of the engine.
//!
//! A caller of fsync enlists its tree, then waits for its turn to write. The thread with the turn writes a frame for
//! all enlisted trees, so callers that arrive during a flush share the next. Changes that the log cannot take (it is
//! full, too much has changed, a device fails) are made durable by a commit instead.
//!
//! No lock is held that a commit needs: commits go on while frames are written, and frames during a commit.

pub(super) mod rounds;

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use self::rounds::LogStats;
use crate::{
    error::{Error, Result},
    format::{
        intent::{Entry, FRAME_HEADER, FrameId, Item, ItemBlock, LogHead, Part, encode_frame, encode_payload},
        key::Key,
        pointer::{Address, BlockPointer},
    },
    log::{self, Place, Ring, Standing},
    space::{Extent, Regions, SpaceIo},
    tree::{Block, Entry as Found, LogPart, Record, Usage},
    txg::{
        engine::state::Engine,
        head::{Head, Touched},
    },
    units::{Txg, VdevId},
    vdev::{Suspension, Vdev},
};

/// Up to so many bytes of a block are stored in the log itself, and the commit writes them again. Larger blocks are
/// stored at their final address, and the log refers to them.
const INLINE_MAX: usize = 32 << 10;
/// Bounds of the log's area, in bytes. The area is allocated in one piece, so a region must have room for two.
const AREA: std::ops::RangeInclusive<u64> = 128 << 10..=16 << 20;

/// The entry of one tree, and the records in it without an address yet.
struct Collected {
    entry: Entry,
    awaited: Vec<(usize, Arc<Record>)>,
}

impl Engine {
    /// The log's entries beyond the committed state, oldest first. The caller applies them before any other change: see
    /// [`crate::log`].
    pub fn take_log(&self) -> Vec<Entry> {
        std::mem::take(&mut self.log.state.lock().found)
    }

    /// Commits the replayed entries of [`Engine::take_log`].
    pub fn log_applied(&self) -> Result<()> {
        if self.log.applying.swap(false, Ordering::AcqRel) { self.commit_anyway().map(drop) } else { Ok(()) }
    }

    /// Counters of the intent log.
    pub fn log_stats(&self) -> LogStats {
        self.log.state.lock().stats
    }

    /// Allocates the space of a block that only an entry of the log refers to. To be called before any other
    /// allocation, once for each block.
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
                // The collected changes are gone; trees enlisted before the commit must not rely on the log.
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

    /// Writes the changes of these trees, and flushes. False if the frame does not fit.
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
        let mut concerned = self.vdevs_of(log::stored_since(&entries, self.committed()))?;
        concerned.insert(vdev);
        Suspension::hastily(|| {
            self.storage.vdevs.write(vdev, offset, &frame)?;
            self.storage.vdevs.flush_only(&concerned)
        })?;
        let mut state = self.log.state.lock();
        state.stats.frames += 1;
        state.stats.bytes += frame.len() as u64;
        Ok(true)
    }

    /// The vdevs of these blocks, without those of gang members.
    fn vdevs_of<'a>(&self, blocks: impl Iterator<Item = &'a BlockPointer>) -> Result<BTreeSet<VdevId>> {
        let copies = blocks.flat_map(|block| block.addresses().iter().map(|address| (*address, block.stored)));
        copies.map(|(address, stored)| Ok(self.storage.space.resolve(address, stored)?.0)).collect()
    }

    /// A place for a frame in the ring named by the last uberblock. `None` if there is no room, or no uberblock names
    /// the ring yet.
    fn reserve_frame(&self, len: usize) -> Option<Place> {
        let mut state = self.log.state.lock();
        let ring = state.ring.as_mut().filter(|ring| ring.is_named())?;
        let place = ring.reserve((len as u64).div_ceil(self.sector().into()));
        if ring.is_half_full() {
            self.kick();
        }
        place
    }

    /// Collects the items' present state, under the tree's lock.
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

    /// Puts the bytes of a record into the log; `None` if its address goes there instead.
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

    /// Stores the blocks to which the log refers; `None` if a tree dropped one of them first.
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

    /// Waits until a record has its address: a worker stores the record, or the commit under way does. `None` if its
    /// group is committed without it, because no tree had the record any more.
    pub(super) fn wait_stored(&self, record: &Record) -> Result<Option<BlockPointer>> {
        let mut early_writes = self.early_writes.lock();
        loop {
            let committed = self.committed();
            if let Some(pointer) = record.pointer() {
                return Ok(Some(*pointer));
            }
            if record.txg() <= committed {
                return Ok(None);
            }
            self.writable()?;
            // The storing thread does not hold this lock; the timeout makes up for a missed wake-up.
            self.early_written.wait_for(&mut early_writes, Duration::from_millis(1));
        }
    }

    /// Where the log lies.
    pub fn log_area(&self) -> Option<Extent> {
        let state = self.log.state.lock();
        let area = state.ring.as_ref().map(Ring::area).or(state.retired);
        let (Address { chunk, sector }, sectors) = area?;
        Some(Extent { chunk, sector, sectors })
    }

    /// The uberblock's description of the log. A pool without a log gets one now, if there is room.
    pub(super) fn log_head(&self, txg: Txg, standing: Standing) -> Result<Option<LogHead>> {
        let mut state = self.log.state.lock();
        if let Some((area, sectors)) = state.retired.take() {
            self.storage.space.free(txg, area, sectors * self.sector())?;
        }
        if state.ring.is_none() {
            state.ring = self.make_ring(txg, state.sequence)?;
            // No frame was written to the new ring, so the ring's present standing holds.
            return Ok(state.ring.as_mut().map(|ring| ring.head(txg, ring.standing())));
        }
        Ok(state.ring.as_mut().map(|ring| ring.head(txg, standing)))
    }

    /// Retires the log's area if it lies in a region being emptied: the next commit names another area, or none.
    ///
    /// No frame is written and no commit is under way meanwhile, so all frames are of the open group, and the last
    /// uberblock names them. If power fails before the next uberblock, the former area is unchanged: it is freed in the
    /// group that names another. Until then callers of fsync commit.
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

    /// Whether the log lies on a lost vdev.
    pub(crate) fn has_lost_log(&self) -> bool {
        let area = self.log.state.lock().ring.as_ref().map(Ring::area);
        area.is_some_and(|(area, _)| self.vdev_of(area).is_ok_and(|vdev| vdev.is_lost()))
    }

    /// Retires a log area on a lost vdev, as [`Engine::retire_log`] does.
    pub(crate) fn leave_lost_log(&self) -> Result<()> {
        let area = self.log.state.lock().ring.as_ref().map(Ring::area);
        area.map_or(Ok(()), |(area, _)| self.retire_log(&Regions::Vdev(self.vdev_of(area)?.id())))
    }

    fn vdev_of(&self, area: Address) -> Result<Arc<dyn Vdev>> {
        self.storage.vdevs.get(self.storage.space.resolve(area, self.sector())?.0)
    }

    /// Retires the log's area, as [`Engine::retire_log`] does, if it is not on a log vdev although there is one.
    pub(crate) fn settle_log(&self) {
        let _turn = self.log.turn.lock();
        let _syncing = self.syncing.lock();
        let mut state = self.log.state.lock();
        if let Some((area, sectors)) = state.ring.as_ref().map(Ring::area)
            && self.storage.space.is_log_astray(area)
        {
            state.sequence = state.ring.take().map_or(1, |ring| ring.next_sequence());
            state.retired = Some((area, sectors));
        }
    }

    fn make_ring(&self, txg: Txg, sequence: u64) -> Result<Option<Ring>> {
        let bytes = (self.storage.space.region() / 2).clamp(*AREA.start(), *AREA.end());
        match self.storage.space.allocate_log(txg, bytes as u32, &self.storage.vdevs) {
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
        // A new ring, not yet named by any uberblock.
        engine.log.state.lock().ring = Some(Ring::new(Address::default(), 64, 1));
        assert_eq!(engine.reserve_frame(100), None);
    }
}
