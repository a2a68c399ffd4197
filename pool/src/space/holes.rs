//! The choice of sparse chunks to pack into fewer, for defragmentation.
//!
//! Deleted data leaves holes, and new blocks go there when whole chunks run out: in pieces, beside the remaining
//! blocks. A data chunk with five eighths or less allocated is *sparse*: a chunk full of files, with every second file
//! deleted, is about half full. Packing a chunk (see [`super::packing`]) costs as much copying as it has allocated, and
//! a map; the gain is its holes in one piece. So the sparsest chunks are packed together, as many as leave most of the
//! free space to others meanwhile, and only if at least one region in four is gained. Each choice leaves fewer used
//! chunks, so the job ends unless new holes arise.
//!
//! These chunks are not chosen:
//!
//! * Chunks of metadata. Metadata is rewritten with every change, and fills its own holes. Also, the copies of a block,
//!   in separate chunks now, would come to lie side by side.
//! * Active chunks: they are about to be filled.
//! * Vdevs with regions of two units: see [`super::balance`].
//!
//! Packed chunks have no region and so are never chosen. Their later holes are holes in their hosts, and hosts are
//! chunks like others: when a host is packed, the maps that name it are rewritten.
//!
//! A badly fragmented pool has no empty chunks beyond the reserve for metadata. So packing borrows from the reserve,
//! down to the last resort, and returns more when the chunks are packed. Metadata is not refused for lack of the
//! borrowed chunks: it has room in holes, if need be in pieces, and a batch takes no more than half of the free space.
//!
//! Nothing here changes state: the choice is arithmetic on the chunks' present fill.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    balance::{BATCH, Batch, SHARE, is_settled, spare},
    chunk::Standing,
    layout::{Ground, Layout, Vdev},
    moving::regions::{Packs, Regions, Targets},
    packing::hosts_for,
    state::Space,
};
use crate::{format::space::Class, units::VdevId};

/// No more than so many eighths of a sparse chunk are allocated.
const SPARSE: u64 = 5;
/// At least one region in so many must be gained.
const GAIN: u64 = 4;
/// A batch may always take so many empty chunks: two hosts take in three half-full chunks, a single host only one.
const FEWEST: u32 = 2;
/// A batch takes at most one part in so many of the free space away for a while.
const CLOSED: u64 = 2;

/// The result of defragmenting to the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// How many chunks would be emptied.
    pub chunks: u32,
    /// Bytes allocated in the chunks to be emptied.
    pub bytes: u64,
    /// How many empty regions there are.
    pub empty: u32,
    /// How many there would be then, about.
    pub empty_then: u32,
    /// Why there is nothing to do.
    pub reason: Option<Dense>,
}

/// Why defragmenting has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dense {
    /// Too few sparse chunks to gain a region.
    Enough,
    /// There are no empty chunks but the last resort, or too little is free.
    NoRoom,
}

/// The sparse chunks of a vdev, in sectors.
#[derive(Clone, Debug)]
struct Shelf {
    vdev: VdevId,
    kind: (Ground, u32),
    /// How many sectors a chunk has.
    capacity: u32,
    /// The allocated sectors by region, the sparsest first.
    sparse: Vec<(u32, u32)>,
    /// How many of its chunks are empty.
    spare: u32,
}

/// Chunks to be packed together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    /// The number of chunks: the first ones of `sparse`.
    count: usize,
    /// Sectors allocated in the chunks.
    sectors: u64,
    /// The estimated number of hosts.
    hosts: u32,
}

/// The most that a choice may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// The most chunks that take in packed blocks.
    hosts: u32,
    /// Free sectors, in the chunks to be packed and in their hosts.
    free: u64,
}

impl Choice {
    fn gain(&self) -> u32 {
        self.count as u32 - self.hosts
    }
}

impl Space {
    /// The result of defragmenting to the end without other changes, with `available` bytes free for data.
    pub fn holes(&self, available: u64) -> Fragmentation {
        let layout = self.layout.load();
        let mut shelves = shelves(&layout);
        let spare = shelves.iter().map(|shelf| shelf.spare).sum();
        let mut found = Fragmentation { empty: spare, empty_then: spare, ..Fragmentation::default() };
        let kept = layout.last_resort();
        while let Some((at, choice)) = best(&shelves, found.empty_then.saturating_sub(kept), available, &layout) {
            found.chunks += choice.count as u32;
            found.bytes += choice.sectors * u64::from(layout.sector);
            found.empty_then += choice.gain();
            shelves[at].pack(&choice);
        }
        let without_limits = Limits { hosts: u32::MAX, free: u64::MAX };
        if found.chunks == 0 {
            let is_dense = shelves.iter().all(|shelf| shelf.choose(without_limits).is_none());
            found.reason = Some(if is_dense { Dense::Enough } else { Dense::NoRoom });
        }
        found
    }

    /// The chunks to pack next, with `available` bytes free for data. `None` if there is nothing to do, or no room.
    pub fn next_holes(&self, available: u64) -> Option<Batch> {
        let layout = self.layout.load();
        let shelves = shelves(&layout);
        let room = spare(&layout).saturating_sub(layout.last_resort());
        let (at, choice) = best(&shelves, room, available, &layout)?;
        let shelf = &shelves[at];
        let regions = shelf.sparse[..choice.count].iter().map(|(region, _)| (shelf.vdev, *region)).collect();
        // If the vdev itself has no empty chunk, a similar vdev lends the first.
        let peers = shelves.iter().filter(|peer| shelf.spare > 0 && peer.vdev == shelf.vdev || shelf.lends(peer));
        let targets = Targets::Vdevs(peers.map(|peer| peer.vdev).collect());
        Some(Batch { regions: Regions::These(regions), targets, packs: Packs::Always })
    }

    /// The percentage of the free space in partly used regions, of a vdev or of the pool. Takes no lock.
    pub fn fragmentation(&self, vdev: Option<VdevId>) -> u8 {
        let layout = self.layout.load();
        let is_meant = |known: &&Arc<Vdev>| vdev.map_or(known.is_open(), |id| id == known.id);
        let chunks = layout.vdevs.iter().filter(is_meant).flat_map(|vdev| &vdev.chunks);
        let (mut free, mut broken) = (0, 0);
        for chunk in chunks.filter(|chunk| chunk.standing() == Standing::Open) {
            let sectors = u64::from(chunk.free_hint());
            free += sectors;
            broken += if chunk.class_hint().is_some() { sectors } else { 0 };
        }
        (broken * 100).checked_div(free).unwrap_or(0) as u8
    }
}

/// The best choice of any vdev, if so many chunks are empty beside the last resort.
fn best(shelves: &[Shelf], room: u32, available: u64, layout: &Layout) -> Option<(usize, Choice)> {
    let free = available / CLOSED / u64::from(layout.sector);
    let choose = |(at, shelf): (usize, &Shelf)| {
        let lent = || shelves.iter().filter(|peer| shelf.lends(peer)).map(|peer| peer.spare).sum();
        let spare = if shelf.spare > 0 { shelf.spare } else { lent() };
        let limits = Limits { hosts: hosts(spare.min(room)), free };
        Some((at, shelf.choose(limits)?))
    };
    shelves.iter().enumerate().filter_map(choose).max_by_key(|(_, choice)| choice.gain())
}

/// How many of so many empty chunks a batch may take.
fn hosts(room: u32) -> u32 {
    room.div_ceil(SHARE).clamp(FEWEST.min(room), BATCH)
}

impl Shelf {
    /// Whether another vdev may supply hosts, because this one has no empty chunk.
    fn lends(&self, peer: &Shelf) -> bool {
        self.spare == 0 && peer.kind == self.kind && peer.spare > 0
    }

    /// Chooses the most of the sparsest chunks that may be packed together with a gain.
    fn choose(&self, limits: Limits) -> Option<Choice> {
        let capacity = u64::from(self.capacity);
        let (mut sectors, mut chosen) = (0, None);
        for (index, (_, allocated)) in self.sparse.iter().take(BATCH as usize).enumerate() {
            sectors += u64::from(*allocated);
            let count = index as u64 + 1;
            let hosts = hosts_for(sectors, capacity);
            let taken = count * capacity - sectors + hosts * capacity;
            if hosts > u64::from(limits.hosts) || taken > limits.free {
                break;
            }
            if hosts < count && (count - hosts) * GAIN >= count {
                chosen = Some(Choice { count: index + 1, sectors, hosts: hosts as u32 });
            }
        }
        chosen
    }

    /// Updates the shelf for a packed choice: all hosts are full but the last one.
    fn pack(&mut self, choice: &Choice) {
        self.sparse.drain(..choice.count);
        self.spare += choice.gain();
        let full = u64::from(choice.hosts - 1) * u64::from(self.capacity);
        let rest = choice.sectors.saturating_sub(full) as u32;
        if is_sparse(rest, self.capacity) {
            let at = self.sparse.partition_point(|(_, allocated)| *allocated <= rest);
            self.sparse.insert(at, (u32::MAX, rest));
        }
    }
}

fn is_sparse(allocated: u32, capacity: u32) -> bool {
    allocated > 0 && u64::from(allocated) * 8 <= u64::from(capacity) * SPARSE
}

/// The sparse chunks of all vdevs.
fn shelves(layout: &Layout) -> Vec<Shelf> {
    let mut shelves: BTreeMap<VdevId, Shelf> = BTreeMap::new();
    for vdev in layout.vdevs.iter().filter(|vdev| vdev.is_open()).filter(is_settled) {
        let (kind, capacity) = ((vdev.ground, vdev.unit), layout.capacity(vdev.unit));
        let mut shelf = Shelf { vdev: vdev.id, kind, capacity, sparse: Vec::new(), spare: 0 };
        for chunk in vdev.chunks.iter().filter(|chunk| chunk.standing() == Standing::Open) {
            shelf.spare += u32::from(chunk.is_spare());
            if chunk.class_hint() == Some(Class::Data) && !chunk.active_hint() {
                let allocated = Some(chunk.allocated()).filter(|allocated| is_sparse(*allocated, chunk.sectors));
                shelf.sparse.extend(allocated.map(|allocated| (chunk.region(), allocated)));
            }
        }
        shelf.sparse.sort_by_key(|(region, allocated)| (*allocated, *region));
        shelves.insert(vdev.id, shelf);
    }
    shelves.into_values().collect()
}

#[cfg(test)]
mod tests;
