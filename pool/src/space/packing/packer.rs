//! Where what is in chunks that are packed goes: to one empty chunk after another, each filled from its first sector on.
//!
//! Whoever copies asks for a place block by block, and gets the same one each time. Nothing is allocated by that: the hosts
//! are set aside, and free space to every committed state, until the chunks are packed or it is given up.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use parking_lot::Mutex;

use crate::{
    error::{Error, Result},
    format::{
        pointer::Address,
        space::{Span, packing::Entry},
    },
    space::{
        chunk::Chunk,
        layout::{Layout, whole_units},
        moving::{Packs, Targets},
    },
    units::ChunkId,
};

/// Chunks that are being emptied, and where what is found in them goes.
#[derive(Debug)]
pub(in crate::space) struct Packer {
    /// They are packed when all of them is copied.
    pub(super) sources: BTreeSet<ChunkId>,
    /// Where there are hosts.
    to: Targets,
    packs: Packs,
    pub(super) handed_out: Mutex<HandedOut>,
}

#[derive(Debug, Default)]
pub(super) struct HandedOut {
    pub(super) hosts: Vec<Host>,
    /// By the chunk of the address and the first sector.
    pub(super) entries: BTreeMap<ChunkId, BTreeMap<u32, Entry>>,
    /// There was no empty chunk to go on with.
    is_full: bool,
}

/// An empty chunk that is being filled.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) chunk: Arc<Chunk>,
    next: u32,
}

impl Host {
    /// As many sectors as these in whole units, if that many are left.
    fn hand_out(&mut self, sectors: u32) -> Option<Address> {
        let sector = self.next;
        let end = sector.checked_add(whole_units(sectors, self.chunk.unit)).filter(|&end| end <= self.chunk.sectors)?;
        self.next = end;
        Some(Address { chunk: self.chunk.id, sector })
    }
}

impl Packer {
    /// Begins to empty these chunks, in which nothing is allocated any more.
    pub(in crate::space) fn new(sources: BTreeSet<ChunkId>, to: Targets, packs: Packs) -> Packer {
        Packer { sources, to, packs, handed_out: Mutex::default() }
    }

    /// Whether this chunk is emptied.
    pub(in crate::space) fn empties(&self, chunk: ChunkId) -> bool {
        self.sources.contains(&chunk)
    }

    /// Whether no chunk is emptied.
    pub(in crate::space) fn is_idle(&self) -> bool {
        self.sources.is_empty()
    }

    /// One more host beside those that were taken. Who gives back more than it takes may borrow of what is kept for metadata,
    /// but for the last resort, and takes fewer than it empties; but others may have emptied all but one meanwhile.
    fn take_host(&self, layout: &Layout, taken: usize) -> Option<Arc<Chunk>> {
        let (most, keep) = match self.packs {
            Packs::Always => (self.sources.len().saturating_sub(1).max(1), layout.last_resort()),
            Packs::IfNeeded | Packs::Never => (usize::MAX, layout.reserve()),
        };
        if taken < most { layout.take_host(&self.to, keep) } else { None }
    }

    /// How many chunks are emptied, and how many take in what was in them, so far.
    pub(in crate::space) fn counts(&self) -> (usize, usize) {
        (self.sources.len(), self.handed_out.lock().hosts.len())
    }

    /// Whether it has run out of empty chunks.
    pub(in crate::space) fn is_full(&self) -> bool {
        self.handed_out.lock().is_full
    }

    /// The place in a host for sectors of `chunk`, which are one block, or several if the host's units allow that: the same
    /// each time.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if there is no empty chunk left, and [`Error::Damaged`] if a part of it has a place already.
    pub(in crate::space) fn place(&self, layout: &Layout, chunk: &Chunk, span: Span) -> Result<(Arc<Chunk>, u32)> {
        let mut handed_out = self.handed_out.lock();
        let known = handed_out.entries.get(&chunk.id);
        let before = known.and_then(|known| known.range(..span.end()).next_back()).map(|(_, entry)| *entry);
        if let Some(entry) = before.filter(|entry| entry.span.end() > span.start) {
            if entry.span.start > span.start || entry.span.end() < span.end() {
                let problem = format!("sectors {}+{} of chunk {} overlap others", span.start, span.len, chunk.id);
                return Err(Error::damaged("block address", problem));
            }
            let host = &layout.chunks[entry.host.chunk.0 as usize];
            return Ok((host.clone(), entry.host.sector + (span.start - entry.span.start)));
        }
        let host = handed_out.room(|taken| self.take_host(layout, taken), span.len)?;
        handed_out.entries.entry(chunk.id).or_default().insert(span.start, Entry { span, host });
        Ok((layout.chunks[host.chunk.0 as usize].clone(), host.sector))
    }

    /// The chunks that take it in.
    #[cfg(test)]
    pub(in crate::space) fn hosts(&self) -> BTreeSet<ChunkId> {
        self.handed_out.lock().hosts()
    }

    /// Gives the hosts back: nothing is packed.
    pub(in crate::space) fn give_up(&self, layout: &Layout) {
        self.handed_out.lock().hosts.drain(..).for_each(|host| layout.let_stand(&host.chunk));
    }
}

impl HandedOut {
    fn room(&mut self, take_host: impl FnOnce(usize) -> Option<Arc<Chunk>>, sectors: u32) -> Result<Address> {
        // What is left in the hosts before the last one is looked at, too: blocks differ in size.
        if let Some(found) = self.hosts.iter_mut().rev().take(4).find_map(|host| host.hand_out(sectors)) {
            return Ok(found);
        }
        let Some(chunk) = take_host(self.hosts.len()) else {
            self.is_full = true;
            return Err(Error::OutOfSpace);
        };
        self.hosts.push(Host { chunk, next: 0 });
        self.hosts.last_mut().and_then(|host| host.hand_out(sectors)).ok_or(Error::OutOfSpace)
    }

    /// The places in hosts for what is in a chunk, in order.
    pub(super) fn placed(&self, chunk: ChunkId) -> Vec<Entry> {
        self.entries.get(&chunk).map_or_else(Vec::new, |entries| entries.values().copied().collect())
    }

    pub(super) fn hosts(&self) -> BTreeSet<ChunkId> {
        self.hosts.iter().map(|host| host.chunk.id).collect()
    }
}
