//! Storing the changes of a transaction group.
//!
//! Group N stores, in this order: checkpoints of some chunks (as of the end of N-1), the table's changed pages and
//! root, then the log of N with all allocations and frees up to here, including its own blocks. Everything goes to new
//! places, and is written together at the end ([`outbox`]). The order of these writes does not matter. Until the
//! uberblock is written a crash finds the former root whole, and its blocks are freed in N, hence not reused before
//! [`DEFERRED_GROUPS`] more groups are committed.
//!
//! Only the log must be stored, and its blocks are as small as a sector if need be. So a commit succeeds where no two
//! free sectors lie in a row, as long as enough are left. Checkpoints and table only shorten the log. If any of them
//! finds no room, none is written ([`describe`]): the former ones with the longer log say the same.
//!
//! The log is bounded otherwise. While the log is long, each group checkpoints a share of the logged chunks, those with
//! the oldest entries first, and the log's tail follows. The log always keeps the last [`DEFERRED_GROUPS`] and the one
//! before: their frees are still deferred when the pool is opened.

mod describe;
mod outbox;
pub(super) mod stored;

use std::cell::RefCell;

use self::{
    outbox::Outbox,
    stored::{COPIES, LogGroup, Stored},
};
use super::{
    history::DEFERRED_GROUPS,
    io::{Disk, SpaceIo},
    layout::Layout,
    places::Allocation,
    state::Space,
};
use crate::{
    error::{Error, Result},
    format::{
        pointer::MAX_BLOCK,
        space::{
            PhysicalPointer, SpaceRoot,
            log::{ChunkChanges, LogBlock, MAX_LOG_HEAD, encode_changes},
        },
    },
    units::{KIB, Txg},
};

/// The largest block of the log, in bytes.
const MAX_LOG_BLOCK: u32 = 128 * KIB as u32;
/// Room for the entries of a log block's own allocation.
const LOG_SLACK: usize = 64;
impl Space {
    /// Stores the changes of `txg`, and returns the space root for its uberblock. All allocations and frees of `txg`
    /// must be done; those of the next group may go on. One thread at a time. After an error the pool takes no more
    /// changes.
    pub fn sync(&self, txg: Txg, io: &dyn SpaceIo) -> Result<SpaceRoot> {
        let mut stored = self.stored.lock();
        assert!(stored.txg < txg, "TXG-1: transaction group {txg} is synced out of turn");
        let layout = self.layout.load_full();
        let writer = Writer { space: self, txg, disk: Disk { layout: &layout, io }, outbox: RefCell::default() };
        let table = writer.describe(&mut stored)?;
        writer.trim_log(&mut stored)?;
        let group = writer.write_log(&stored)?;
        writer.outbox.take().write(&writer.disk)?;
        let log_head = *group.blocks.last().expect("the log of a group has a block");
        stored.log.push_back(group);
        stored.txg = txg;
        let seated = layout.chunks.iter().filter(|chunk| !chunk.is_packed());
        Ok(SpaceRoot {
            table,
            log_head,
            log_tail: stored.log.front().map_or(txg, |group| group.txg),
            next_chunk: layout.chunks.len() as u32,
            // The sectors of packed chunks are allocated in their hosts.
            allocated: seated.map(|chunk| u64::from(chunk.logged())).sum(),
        })
    }
}

impl Space {
    /// Stores encoded maps of packed chunks in the open group `txg`: all of them or none.
    pub(super) fn store_maps(
        &self,
        txg: Txg,
        maps: impl Iterator<Item = Vec<u8>>,
        disk: &Disk<'_>,
    ) -> Result<Vec<PhysicalPointer>> {
        let writer = Writer { space: self, txg, disk: Disk { ..*disk }, outbox: RefCell::default() };
        let mut pointers = Vec::new();
        let stored = maps.into_iter().try_for_each(|map| writer.store(map).map(|pointer| pointers.push(pointer)));
        let written = stored.and_then(|()| writer.outbox.take().write(&writer.disk));
        if let Err(error) = written {
            pointers.iter().try_for_each(|pointer| writer.take_back(pointer))?;
            return Err(error);
        }
        Ok(pointers)
    }
}

/// Writes the space of one transaction group.
struct Writer<'a> {
    space: &'a Space,
    txg: Txg,
    disk: Disk<'a>,
    /// Blocks with a place, to be written at the end.
    outbox: RefCell<Outbox>,
}

impl Writer<'_> {
    fn layout(&self) -> &Layout {
        self.disk.layout
    }

    /// Frees the log blocks that no chunk needs any more.
    fn trim_log(&self, stored: &mut Stored) -> Result<()> {
        let needed = self.layout().chunks.iter().filter_map(|chunk| chunk.oldest_logged()).min().unwrap_or(self.txg);
        while stored.log.len() > DEFERRED_GROUPS && stored.log.front().is_some_and(|group| group.txg < needed) {
            for block in stored.log.pop_front().into_iter().flat_map(|group| group.blocks) {
                self.discard(Some(block))?;
            }
        }
        Ok(())
    }

    /// Allocates blocks for the log until the changes, including these allocations, fit, and writes the log.
    fn write_log(&self, stored: &Stored) -> Result<LogGroup> {
        let mut room: Vec<(Allocation, usize)> = Vec::new();
        let (changes, coded) = loop {
            let changes = self.changes();
            let coded = encode_changes(&changes);
            let missing = coded.len().saturating_sub(room.iter().map(|&(_, room)| room).sum());
            if missing == 0 && !room.is_empty() {
                break (changes, coded);
            }
            room.push(self.allocate_log_block(missing)?);
        };
        let mut previous = stored.log.back().and_then(|group| group.blocks.last().copied());
        let mut blocks = Vec::new();
        let mut rest = coded.as_slice();
        for (part, (allocation, room)) in (0u32..).zip(room) {
            let (piece, after) = rest.split_at(room.min(rest.len()));
            rest = after;
            let block = LogBlock { txg: self.txg, part, previous, piece: piece.to_vec() };
            let mut bytes = block.encode();
            bytes.resize(room + MAX_LOG_HEAD, 0);
            let pointer = self.write_at(&allocation, bytes)?;
            previous = Some(pointer);
            blocks.push(pointer);
        }
        for change in &changes {
            self.layout().chunks[change.chunk.0 as usize].mark_logged(self.txg, change);
        }
        Ok(LogGroup { txg: self.txg, blocks })
    }

    fn changes(&self) -> Vec<ChunkChanges> {
        self.layout().chunks.iter().filter_map(|chunk| chunk.changes(self.txg)).collect()
    }

    /// A block for about `missing` bytes of the log, and its capacity.
    fn allocate_log_block(&self, missing: usize) -> Result<(Allocation, usize)> {
        let sector = self.layout().sector;
        let least = self.layout().padded((MAX_LOG_HEAD + LOG_SLACK) as u32) as u32;
        let wanted = (missing + MAX_LOG_HEAD + LOG_SLACK).min(MAX_LOG_BLOCK as usize) as u32;
        // The rounded-up rest of a block is capacity, too.
        let mut bytes = wanted.max(least).next_multiple_of(sector * self.layout().unit());
        loop {
            match self.space.allocate_own(self.txg, bytes, COPIES, self.disk.io) {
                Err(Error::OutOfSpace) if bytes > least => bytes = (bytes / 2).next_multiple_of(sector).max(least),
                allocation => return Ok((allocation?, bytes as usize - MAX_LOG_HEAD)),
            }
        }
    }

    /// Writes a new block.
    fn store(&self, bytes: Vec<u8>) -> Result<PhysicalPointer> {
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= MAX_BLOCK).ok_or(Error::OutOfSpace)?;
        let allocation = self.space.allocate_own(self.txg, len, COPIES, self.disk.io)?;
        self.write_at(&allocation, bytes)
    }

    /// Writes a block where room was allocated for it. The room must be exactly the block's sectors, because its
    /// pointer tells what to free.
    fn write_at(&self, allocation: &Allocation, bytes: Vec<u8>) -> Result<PhysicalPointer> {
        let mut pointer = PhysicalPointer { copies: allocation.copies, len: bytes.len() as u32, ..Default::default() };
        for (place, &address) in pointer.places.iter_mut().zip(allocation.addresses()) {
            let (chunk, span) = self.layout().locate(address, pointer.len)?;
            *place = self.layout().place(chunk, span.start);
        }
        pointer.checksum = *blake3::hash(&bytes).as_bytes();
        self.outbox.borrow_mut().put(pointer, bytes, &self.disk)?;
        Ok(pointer)
    }

    /// Undoes [`Writer::store`].
    fn take_back(&self, pointer: &PhysicalPointer) -> Result<()> {
        self.outbox.borrow_mut().take_back(pointer);
        for &place in pointer.places() {
            let address = self.layout().address(place)?;
            let (chunk, span) = self.layout().locate(address, pointer.len)?;
            chunk.untake(self.txg, span);
        }
        Ok(())
    }

    /// Frees a block of an earlier group.
    fn discard(&self, pointer: Option<PhysicalPointer>) -> Result<()> {
        let Some(pointer) = pointer else { return Ok(()) };
        for &place in pointer.places() {
            self.space.free(self.txg, self.layout().address(place)?, pointer.len)?;
        }
        Ok(())
    }
}
