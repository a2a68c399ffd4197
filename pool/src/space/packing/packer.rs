//! The destinations of packed blocks: one empty chunk after another, each filled from its first sector on.
//!
//! The copying thread asks for a place block by block, and gets the same place each time. This allocates nothing. The
//! hosts are set aside, and are free space to every committed state, until the chunks are packed or the job is given
//! up.

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
        moving::regions::{Packs, Targets},
    },
    units::ChunkId,
};

/// Chunks being emptied, and the places of their blocks.
#[derive(Debug)]
pub(in crate::space) struct Packer {
    /// The chunks to be packed when all of their blocks are copied.
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

/// An empty chunk being filled.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) chunk: Arc<Chunk>,
    next: u32,
}

impl Host {
    /// Room for the sectors in whole units, if enough is left.
    fn hand_out(&mut self, sectors: u32) -> Option<Address> {
        let sector = self.next;
        let end = sector.checked_add(whole_units(sectors, self.chunk.unit)).filter(|&end| end <= self.chunk.sectors)?;
        self.next = end;
        Some(Address { chunk: self.chunk.id, sector })
    }
}

impl Packer {
    /// Starts to empty the chunks. Nothing may be allocated there any more.
    pub(in crate::space) fn new(sources: BTreeSet<ChunkId>, to: Targets, packs: Packs) -> Packer {
        Packer { sources, to, packs, handed_out: Mutex::default() }
    }

    /// Whether this chunk is being emptied.
    pub(in crate::space) fn empties(&self, chunk: ChunkId) -> bool {
        self.sources.contains(&chunk)
    }

    /// Whether no chunk is emptied.
    pub(in crate::space) fn is_idle(&self) -> bool {
        self.sources.is_empty()
    }

    /// Takes one more host. A job that returns more chunks than it takes may borrow from the reserve for metadata, down
    /// to the last resort, and takes fewer hosts than it empties. But other frees may have emptied all sources but one
    /// meanwhile, so a single host is always allowed.
    fn take_host(&self, layout: &Layout, taken: usize) -> Option<Arc<Chunk>> {
        let (most, keep) = match self.packs {
            Packs::Always => (self.sources.len().saturating_sub(1).max(1), layout.last_resort()),
            Packs::IfNeeded | Packs::Never => (usize::MAX, layout.reserve()),
        };
        if taken < most { layout.take_host(&self.to, keep) } else { None }
    }

    /// How many chunks are being emptied, and how many hosts are in use so far.
    pub(in crate::space) fn counts(&self) -> (usize, usize) {
        (self.sources.len(), self.handed_out.lock().hosts.len())
    }

    /// Whether the packer has run out of empty chunks.
    pub(in crate::space) fn is_full(&self) -> bool {
        self.handed_out.lock().is_full
    }

    /// The place in a host for `span` of `chunk`, a single block, or several if the host's units allow it. The same
    /// place each time.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if no empty chunk is left, and [`Error::Damaged`] if a part of the span has a place
    /// already.
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

    /// The hosts that got pieces so far.
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
        // The rest of earlier hosts is tried as well, because blocks differ in size.
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

    /// The places in hosts of a chunk's blocks, in order.
    pub(super) fn placed(&self, chunk: ChunkId) -> Vec<Entry> {
        self.entries.get(&chunk).map_or_else(Vec::new, |entries| entries.values().copied().collect())
    }

    pub(super) fn hosts(&self) -> BTreeSet<ChunkId> {
        self.hosts.iter().map(|host| host.chunk.id).collect()
    }
}
