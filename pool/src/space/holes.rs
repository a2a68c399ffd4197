//! Which chunks are mostly holes, and are to be packed into fewer: what defragmenting goes by.
//!
//! What was deleted leaves holes, and new blocks go there when whole chunks run out: in pieces, beside what stayed. A chunk of
//! data of which five eighths are allocated or less is *sparse*: one that was full of files, of which every second one is gone,
//! is about half full. Packing it (see [`super::packing`]) costs as much copying as there is in it, and its map; what it brings
//! is its holes in one piece. So the sparsest are packed together, as many as leave most of the free space to others meanwhile,
//! and only if of four regions at least one is left over. Each choice leaves fewer chunks with something in them, so there is an
//! end to them, if nobody makes more.
//!
//! Not chosen are:
//!
//! * Chunks of metadata. It is written anew with every change, and fills its own holes; and the copies of a block, which
//!   stand in chunks of their own, would come to lie side by side.
//! * Chunks that somebody allocates in: they are about to be filled.
//! * Vdevs with regions of two units: see [`super::balance`].
//!
//! Packed chunks have no region and so are never chosen. What has become of them are holes in their hosts, and these are
//! chunks like others: when a host is packed, the maps that name it are written anew.
//!
//! A pool that needs it most has no empty chunk but those that are kept for metadata, so of these are borrowed what is not the
//! last resort: they are given back with more when the chunks are packed. Metadata is refused nothing for that: there is room
//! for it in holes, if need be in pieces, and of the free space a batch takes no more than half.
//!
//! Nothing here changes anything: it is arithmetic on how full the chunks are at the moment.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Space,
    balance::{BATCH, Batch, SHARE, is_settled, spare},
    chunk::Standing,
    layout::{Ground, Layout, Vdev},
    moving::{Packs, Regions, Targets},
    packing::hosts_for,
};
use crate::{format::space::Class, units::VdevId};

/// No more than so many eighths of a sparse chunk are allocated.
const SPARSE: u64 = 5;
/// Of so many regions one at least has to be left over.
const GAIN: u64 = 4;
/// A batch may take so many empty chunks if there are: two take in three chunks that are half full, and one none but its own.
const FEWEST: u32 = 2;
/// Of the free space a batch takes one of so many parts away for a while at most.
const CLOSED: u64 = 2;

/// What defragmenting would do, all in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragmentation {
    /// How many chunks would be emptied.
    pub chunks: u32,
    /// What is allocated in them, in bytes.
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
    /// There are too few sparse chunks for one region to be left over.
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
    /// How much is allocated in which region: the sparsest first.
    sparse: Vec<(u32, u32)>,
    /// How many of its chunks are empty.
    spare: u32,
}

/// Chunks that are to be packed together.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    /// How many: the first ones.
    count: usize,
    /// How much is allocated in them, in sectors.
    sectors: u64,
    /// Into how many others, about.
    hosts: u32,
}

/// What a choice may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// How many hosts.
    hosts: u32,
    /// How many free sectors, of those that are packed and of their hosts.
    free: u64,
}

impl Choice {
    fn gain(&self) -> u32 {
        self.count as u32 - self.hosts
    }
}

impl Space {
    /// What defragmenting would do in the end, if nothing else happens and `available` bytes are free for data.
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

    /// The chunks that are to be packed next, if `available` bytes are free for data. `None` if there is nothing to do, or no
    /// room to do it.
    pub fn next_holes(&self, available: u64) -> Option<Batch> {
        let layout = self.layout.load();
        let shelves = shelves(&layout);
        let room = spare(&layout).saturating_sub(layout.last_resort());
        let (at, choice) = best(&shelves, room, available, &layout)?;
        let shelf = &shelves[at];
        let regions = shelf.sparse[..choice.count].iter().map(|(region, _)| (shelf.vdev, *region)).collect();
        // Where there is none on the vdev itself, one of those that are like it lends the first.
        let peers = shelves.iter().filter(|peer| shelf.spare > 0 && peer.vdev == shelf.vdev || shelf.lends(peer));
        let targets = Targets::Vdevs(peers.map(|peer| peer.vdev).collect());
        Some(Batch { regions: Regions::These(regions), targets, packs: Packs::Always })
    }

    /// How much of the free space, in percent, lies in regions that are partly used: of a vdev, or of the pool. Nobody is
    /// waited for.
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
    /// Whether another vdev may take in what is here, because here is nothing empty.
    fn lends(&self, peer: &Shelf) -> bool {
        self.spare == 0 && peer.kind == self.kind && peer.spare > 0
    }

    /// Chooses the most of the sparsest chunks that may be packed together, if that is a gain.
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

    /// The vdev when what was chosen is packed: all hosts are full but the last one.
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
