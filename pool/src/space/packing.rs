//! Packed chunks: chunks without a region, whose blocks lie in other chunks piece by piece. No address changes.
//!
//! A chunk that changes places with an empty one (see [`super::moving`]) takes an empty region of the same shape,
//! however little is allocated in the chunk. A *packed* chunk takes only its allocated sectors: they are allocated in
//! other chunks, its *hosts*, side by side with blocks from elsewhere, and a *map* says where each of its sectors is. A
//! packed chunk has no region and takes no allocations, but keeps its number; its row names its map, and its free map
//! tells the sectors still allocated.
//!
//! Below lie the chunks; above, address resolution asks the layout, which follows the map. That is one search in
//! memory, without a lock.
//!
//! Chunks are packed if they must leave their regions and there are no empty chunks of their kind, and if they are
//! mostly holes (see [`super::holes`]). Each piece costs 16 bytes of memory until it is freed, and the search. A chunk
//! is packed once, and its packed blocks later move with their hosts. Its map keeps freed pieces until it is rewritten.
//!
//! Invariants of packing:
//!
//! 1. An entry of a map names sectors of a chunk on a region: maps do not lead to maps. When a host is emptied itself,
//!    its packed blocks get new entries in their maps.
//! 2. No two entries name the same sector, not even if one is for freed sectors: before an empty chunk becomes a host,
//!    entries that name it are dropped.
//! 3. A block of a packed chunk is allocated in its host as well: both allocations begin in the group whose table has
//!    the map, and end in the group that frees the block. Only the host's sectors count as space of the pool.
//! 4. In a host with units of several sectors, an entry covers whole units; in an entry of several blocks, each block
//!    does. So each block can be freed alone, and a row of a RAID-Z is written once.
//! 5. The region of a packed chunk gets another chunk, allocated and freed as a whole in that group: so the region is
//!    not used before no state refers to it. That chunk reuses the number of an emptied packed chunk, if there is one.
//!
//! While blocks are copied a host is set aside, like a twin, and is free space to every committed state. The rest is
//! one instant of the open group: the host's sectors, the freed region and the maps are entered in the group, and its
//! table is written in any case, or the group is not committed.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while blocks are copied | the chunks at their old places, and empty hosts |
//! | after the maps were written, before the uberblock of the group whose table names them | the same; the maps are free space |
//! | after that uberblock | the chunks packed; copies and maps were flushed before the uberblock. The log defers the space they left |
//! | after the last block of a packed chunk was freed, before a table says so | the chunk with a map that is no longer needed |
//! | after that table | a row without region and map, whose number may be used again |

pub(super) mod map;
pub(super) mod packer;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use self::{
    map::Packing,
    packer::{HandedOut, Packer},
};

use super::{
    chunk::{Chunk, CountedIn, Loaded},
    io::{Disk, SpaceIo},
    layout::{Ground, Layout, Vdev, whole_units},
    moving::regions::{Regions, Targets},
    places::{Extent, extent},
    span_set::{normalize, total},
    state::Space,
    sync::stored::{COPIES, Stored},
};
use crate::{
    error::{Error, Result},
    format::{
        pointer::Address,
        space::{
            PhysicalPointer, Span,
            packing::{Entry, PackedMap},
            table::{ROWS_PER_PAGE, Row, Seat},
        },
    },
    units::{ChunkId, KIB, Txg, VdevId},
};

/// An upper bound on a stored page of the table, in bytes, rounding included.
const MAX_PAGE: u64 = 32 * KIB;

/// Hosts are counted as full but for one part in so many: blocks do not fill them to the last sector.
const WASTE: u64 = 8;

/// How many hosts, each with room for `capacity` sectors, so many sectors take.
pub(super) fn hosts_for(sectors: u64, capacity: u64) -> u64 {
    (sectors * WASTE).div_ceil(capacity * (WASTE - 1))
}

impl Layout {
    /// The chunk and sectors where a span lies: itself, or for a packed chunk its host. For a part of an entry, the
    /// part's offset counts from the start of the entry.
    pub(super) fn seat<'a>(&'a self, chunk: &'a Arc<Chunk>, span: Span) -> Result<(&'a Arc<Chunk>, Span)> {
        let Some(packing) = self.packed.get(&chunk.id) else { return Ok((chunk, span)) };
        let lost = || {
            let problem = format!("sectors {}+{} of packed chunk {} lie nowhere", span.start, span.len, chunk.id);
            Error::damaged("block address", problem)
        };
        let entry = packing.around(span).ok_or_else(lost)?;
        let host = self.chunks.get(entry.host.chunk.0 as usize).ok_or_else(lost)?;
        let sector = entry.host.sector + (span.start - entry.span.start);
        Ok((host, Span::new(sector, whole_units(span.len, host.unit))))
    }

    /// The host's sectors to free together with sectors of a packed chunk; `None` if the chunk is not packed.
    ///
    /// # Errors
    /// If the map does not cover the sectors, or they are part of an entry that can only be freed as a whole.
    pub(super) fn freed_with<'a>(
        &'a self,
        chunk: &'a Arc<Chunk>,
        span: Span,
    ) -> Result<Option<(&'a Arc<Chunk>, Span)>> {
        let Some(packing) = self.packed.get(&chunk.id) else { return Ok(None) };
        let (host, hosted) = self.seat(chunk, span)?;
        let is_whole = packing.around(span).is_some_and(|entry| entry.span == span);
        if !is_whole && !is_divisible(chunk, host) {
            let problem = format!("sectors {}+{} of packed chunk {} are a part", span.start, span.len, chunk.id);
            return Err(Error::damaged("block address", problem));
        }
        Ok(Some((host, hosted)))
    }

    /// Sets aside an empty chunk, on the device with the most free space, if more than `keep` are empty. Chunks with
    /// narrow rows come last, from the end on: a RAID-Z that is being expanded will empty them too.
    fn take_host<'a>(&'a self, to: &Targets, keep: u32) -> Option<Arc<Chunk>> {
        if self.empty.load(Relaxed) <= keep {
            return None;
        }
        let mut open: Vec<_> = self.vdevs.iter().filter(|vdev| vdev.is_open() && to.contains(vdev.id)).collect();
        // Special devices are left to metadata while others have room.
        open.sort_by_cached_key(|vdev| (vdev.ground != Ground::Normal, std::cmp::Reverse(vdev.free())));
        let chunks = |is_narrow: bool| {
            let of = move |vdev: &'a Arc<Vdev>| {
                vdev.chunks.iter().filter(move |chunk| (chunk.unit < vdev.unit) == is_narrow)
            };
            open.iter().copied().flat_map(of)
        };
        let held = chunks(false).find(|chunk| chunk.hold());
        let held = held.or_else(|| chunks(true).collect::<Vec<_>>().into_iter().rev().find(|chunk| chunk.hold()));
        // Another thread may have taken an empty chunk meanwhile.
        match held.filter(|_| self.empty.load(Relaxed) < keep) {
            Some(chunk) => {
                self.let_stand(chunk);
                None
            }
            None => held.cloned(),
        }
    }

    /// A number for a chunk on a region: a number of an emptied packed chunk, or a new one. Also the group up to which
    /// the log may have entries of the number's former chunk.
    fn vacant(&self, stored: &Stored) -> (ChunkId, Txg) {
        let is_vacant = |chunk: &&Arc<Chunk>| {
            chunk.is_packed()
                && !self.packed.contains_key(&chunk.id)
                && chunk.map_at().is_none()
                && chunk.checkpoint().is_none()
                && chunk.is_free()
        };
        match self.chunks.iter().find(is_vacant) {
            Some(chunk) => (chunk.id, stored.txg),
            None => (ChunkId(self.chunks.len() as u32), Txg::ZERO),
        }
    }
}

/// Whether any part of an entry, in whole units of the packed chunk, can be freed alone in the host.
fn is_divisible(chunk: &Chunk, host: &Chunk) -> bool {
    chunk.unit.is_multiple_of(host.unit)
}

/// The changes made by packing.
#[derive(Default)]
struct Plan {
    /// The new maps: of the chunks now packed, and of chunks with blocks in them.
    maps: BTreeMap<ChunkId, Vec<Entry>>,
    /// Sectors to allocate in the hosts.
    taken: BTreeMap<ChunkId, Vec<Span>>,
    /// Sectors to free in the sources, because their packed blocks have another host now.
    moved: Vec<(ChunkId, Span)>,
}

impl Plan {
    /// Adds the host sectors of new entries.
    fn take(&mut self, entries: &[Entry], layout: &Layout) {
        for Entry { span, host } in entries {
            let unit = layout.chunks[host.chunk.0 as usize].unit;
            self.taken.entry(host.chunk).or_default().push(Span::new(host.sector, whole_units(span.len, unit)));
        }
    }
}

impl Space {
    /// Packs the emptied chunks, in the open group `txg`, while no group is synced and after all copies were flushed.
    /// False, without a change, if some of their blocks were not copied.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if the maps find no room, and errors of reading free maps; then nothing has changed.
    pub(super) fn pack(&self, packer: &Packer, stored: &mut Stored, txg: Txg, io: &dyn SpaceIo) -> Result<bool> {
        let layout = self.layout.load_full();
        let disk = Disk { layout: &layout, io };
        let handed_out = packer.handed_out.lock();
        let Some(plan) = plan(packer, &handed_out, &disk)? else { return Ok(false) };
        let has_archive = layout.has_archive();
        let has_places = |id: &ChunkId| has_archive || layout.chunks[id.0 as usize].has_places();
        let describe = |(id, homes): (&ChunkId, &Vec<Entry>)| {
            let (chunk, homes) = (&layout.chunks[id.0 as usize], homes.clone());
            match has_places(id) {
                true => chunk.places(txg, homes, chunk.seconds_at(txg)).encode(),
                false => PackedMap { chunk: *id, sectors: chunk.sectors, entries: homes }.encode(),
            }
        };
        // Everything that may have to be read is read before anything changes.
        handed_out.hosts.iter().try_for_each(|host| host.chunk.live(&disk).map(drop))?;
        if !layout.has_room_for_table() {
            return Err(Error::OutOfSpace);
        }
        let pointers = self.store_maps(txg, plan.maps.iter().map(describe), &disk)?;
        // From here on only failures occur that are fatal to the caller.
        for (id, span) in &plan.moved {
            layout.chunks[id.0 as usize].free(txg, *span)?;
        }
        for host in &handed_out.hosts {
            let taken = plan.taken.get(&host.chunk.id).map_or(&[][..], |taken| taken);
            host.chunk.take_in(txg, taken, layout.standing_in(host.chunk.seat()), &disk)?;
        }
        let mut packed = Layout::clone(&layout);
        for (id, entries) in &plan.maps {
            packed.packed.insert(*id, Arc::new(Packing::new(entries.clone())));
        }
        for id in packer.sources.iter().filter(|id| plan.maps.contains_key(id)) {
            packed.give_region(&layout.chunks[id.0 as usize], stored, txg, &disk)?;
        }
        self.layout.store(Arc::new(packed.seated()));
        for (id, pointer) in plan.maps.keys().zip(pointers) {
            let chunk = &layout.chunks[id.0 as usize];
            let seconds = has_places(id).then(|| chunk.seconds_at(txg));
            self.drop_own(txg, chunk.pack(txg, pointer, seconds), &layout)?;
        }
        stored.is_packing = true;
        Ok(true)
    }

    /// Frees a block of the space layer in the open group.
    pub(super) fn drop_own(&self, txg: Txg, block: Option<PhysicalPointer>, layout: &Layout) -> Result<()> {
        let Some(block) = block else { return Ok(()) };
        block.places().iter().try_for_each(|place| self.free(txg, layout.address(*place)?, block.len))
    }

    /// The allocated sectors of chunks being packed that were given no place, in pieces that can get one. After all
    /// blocks of the pool were copied, these are leaks.
    pub fn unplaced(&self, io: &dyn SpaceIo) -> Result<Vec<Extent>> {
        let _stored = self.stored.lock();
        let Some(moves) = self.moves.load_full() else { return Ok(Vec::new()) };
        let Some(packer) = moves.packs() else { return Ok(Vec::new()) };
        let layout = self.layout.load();
        let handed_out = packer.handed_out.lock();
        let mut unplaced = Vec::new();
        for (id, spans) in needs(packer, &handed_out, &Disk { layout: &layout, io })?.spans {
            let chunk = &layout.chunks[id.0 as usize];
            let placed = pieces(&handed_out.placed(id), &spans, chunk, &layout);
            let rest = without(&spans, &normalize(placed.iter().map(|entry| entry.span).collect()));
            let units = rest.into_iter().flat_map(|span| (span.start..span.end()).step_by(chunk.unit as usize));
            unplaced.extend(units.map(|start| extent(id, Span::new(start, chunk.unit))));
        }
        Ok(unplaced)
    }

    /// How many packed chunks still have blocks, and how many bytes of memory their maps and all second places take.
    pub fn packed(&self) -> (usize, u64) {
        let layout = self.layout.load();
        let seconds: usize = layout.chunks.iter().map(|chunk| chunk.second_entries()).sum();
        let entries = seconds + layout.packed.values().map(|packing| packing.entries.len()).sum::<usize>();
        (layout.packed.len(), (entries * size_of::<Entry>()) as u64)
    }

    /// Drops the maps of emptied packed chunks.
    pub(super) fn forget_maps(&self, chunks: impl Iterator<Item = ChunkId>) {
        let mut chunks = chunks.peekable();
        if chunks.peek().is_some() {
            let mut layout = Layout::clone(&self.layout.load());
            chunks.for_each(|id| drop(layout.packed.remove(&id)));
            self.layout.store(Arc::new(layout));
        }
    }

    /// The sectors allocated in hosts for packed chunks, and on archives for second places, at the end of the last
    /// synced transaction group; and the sectors of packed chunks that no map covers.
    pub fn hosted_extents(&self, io: &dyn SpaceIo) -> Result<Hosted> {
        let stored = self.stored.lock();
        let layout = self.layout.load();
        let disk = Disk { layout: &layout, io };
        let mut hosted = Hosted::default();
        for (id, packing) in &layout.packed {
            let chunk = &layout.chunks[id.0 as usize];
            let live = chunk.allocated_at(stored.txg, &disk)?;
            let mut covered = Vec::new();
            for piece in pieces(&packing.entries, &live, chunk, &layout) {
                covered.push(piece.span);
                let host = &layout.chunks[piece.host.chunk.0 as usize];
                let span = Span::new(piece.host.sector, whole_units(piece.span.len, host.unit));
                hosted.hosts.push(extent(host.id, span));
            }
            hosted.lost.extend(without(&live, &normalize(covered)).into_iter().map(|span| extent(*id, span)));
        }
        for Entry { span, host } in layout.chunks.iter().flat_map(|chunk| chunk.seconds_at(stored.txg)) {
            hosted.hosts.push(extent(host.chunk, Span::new(host.sector, span.len)));
        }
        Ok(hosted)
    }

    /// The group in which the block at an address moved to its present place.
    pub fn arrived(&self, address: Address) -> Txg {
        let layout = self.layout.load();
        let Some(chunk) = layout.chunks.get(address.chunk.0 as usize) else { return Txg::ZERO };
        let host = layout.seat(chunk, Span::new(address.sector, 1)).map_or(Txg::ZERO, |(host, _)| host.arrived());
        chunk.arrived().max(host)
    }

    /// The newest group in which a chunk moved onto a device, or a chunk was packed there.
    pub fn last_arrival(&self, vdev: VdevId) -> Txg {
        let layout = self.layout.load();
        let there: BTreeSet<ChunkId> = layout.chunks_in(&Regions::Vdev(vdev)).map(|chunk| chunk.id).collect();
        let packed = layout.packed.iter().filter(|(_, packing)| packing.names_any(&there)).map(|(id, _)| id);
        let arrived = |id: &ChunkId| layout.chunks[id.0 as usize].arrived();
        there.iter().chain(packed).map(arrived).max().unwrap_or_default()
    }
}

/// The space of packed chunks in others.
#[derive(Clone, Debug, Default)]
pub struct Hosted {
    /// Sectors allocated in the hosts.
    pub hosts: Vec<Extent>,
    /// Sectors allocated in packed chunks but covered by no map.
    pub lost: Vec<Extent>,
}

impl Layout {
    /// Whether a whole table finds room in empty chunks, which only the space layer takes by now: the group that packs
    /// chunks cannot be committed without its table.
    pub(super) fn has_room_for_table(&self) -> bool {
        let pages = self.chunks.len().div_ceil(ROWS_PER_PAGE) as u64 + 1;
        let bytes = pages * MAX_PAGE * u64::from(COPIES);
        u64::from(self.empty.load(Relaxed)) * self.region >= bytes
    }

    /// This layout with another chunk on the region of a packed chunk.
    fn give_region(&mut self, chunk: &Chunk, stored: &Stored, txg: Txg, disk: &Disk<'_>) -> Result<()> {
        let ((vdev, region), unit) = (chunk.seat(), chunk.unit);
        let (id, described) = self.vacant(stored);
        let row = Row { seat: Seat::Region { vdev, region }, unit, described, ..Row::default() };
        let fresh = Chunk::open(id, self.capacity(unit), Loaded::of(row), CountedIn::default());
        fresh.row_changed.store(true, Relaxed);
        fresh.withhold(txg, self.standing_in((vdev, region)), disk)?;
        let fresh = Arc::new(fresh);
        match self.chunks.get_mut(id.0 as usize) {
            Some(place) => *place = fresh,
            None => self.chunks.push(fresh),
        }
        Ok(())
    }
}

/// The sectors that need a place before chunks can be packed.
#[derive(Default)]
struct Needs {
    /// By the chunk of the address: in order and disjoint.
    spans: BTreeMap<ChunkId, Vec<Span>>,
    /// The remaining entries of packed chunks with blocks to move.
    stays: BTreeMap<ChunkId, Vec<Entry>>,
    /// Sectors to free in the sources, because their packed blocks then have another host.
    moved: Vec<(ChunkId, Span)>,
}

fn needs(packer: &Packer, handed_out: &HandedOut, disk: &Disk<'_>) -> Result<Needs> {
    let layout = disk.layout;
    let mut touched = handed_out.hosts();
    touched.extend(&packer.sources);
    let mut needs = Needs::default();
    for (id, packing) in layout.packed.iter().filter(|(_, packing)| packing.names_any(&touched)) {
        let chunk = &layout.chunks[id.0 as usize];
        let live = pieces(&packing.entries, &chunk.live(disk)?, chunk, layout);
        let (moving, stays): (Vec<Entry>, Vec<Entry>) =
            live.into_iter().partition(|entry| packer.empties(entry.host.chunk));
        for Entry { span, host } in &moving {
            let unit = layout.chunks[host.chunk.0 as usize].unit;
            needs.moved.push((host.chunk, Span::new(host.sector, whole_units(span.len, unit))));
        }
        needs.spans.insert(*id, normalize(moving.iter().map(|entry| entry.span).collect()));
        needs.stays.insert(*id, stays);
    }
    for id in &packer.sources {
        let live = layout.chunks[id.0 as usize].live(disk)?;
        if live.is_empty() {
            // The chunk has become empty meanwhile, and keeps its region.
            continue;
        }
        let hosting = needs.moved.iter().filter(|(host, _)| host == id).map(|(_, span)| *span).collect();
        needs.spans.insert(*id, without(&live, &normalize(hosting)));
    }
    Ok(needs)
}

/// The changes, if every allocated sector of the sources has a place.
fn plan(packer: &Packer, handed_out: &HandedOut, disk: &Disk<'_>) -> Result<Option<Plan>> {
    let layout = disk.layout;
    let Needs { spans, mut stays, moved } = needs(packer, handed_out, disk)?;
    let mut plan = Plan { moved, ..Plan::default() };
    for (id, spans) in spans {
        let chunk = &layout.chunks[id.0 as usize];
        let Some(placed) = cover(&spans, handed_out.placed(id), chunk, layout) else { return Ok(None) };
        plan.take(&placed, layout);
        let mut entries = stays.remove(&id).unwrap_or_default();
        entries.extend(placed);
        entries.sort_unstable_by_key(|entry| entry.span.start);
        plan.maps.insert(id, joined(entries, chunk, layout));
    }
    plan.taken.values_mut().for_each(|spans| *spans = normalize(std::mem::take(spans)));
    Ok(Some(plan))
}

/// The entries of the live spans; `None` unless all of them were placed.
fn cover(live: &[Span], placed: Vec<Entry>, chunk: &Chunk, layout: &Layout) -> Option<Vec<Entry>> {
    let found = pieces(&placed, live, chunk, layout);
    let is_whole = total(found.iter().map(|entry| entry.span)) == total(live.iter().copied());
    is_whole.then_some(found)
}

/// The live parts of the entries. An indivisible entry is live as a whole or not at all.
pub(super) fn pieces(entries: &[Entry], live: &[Span], chunk: &Chunk, layout: &Layout) -> Vec<Entry> {
    let mut found = Vec::new();
    for entry in entries {
        let Some(host) = layout.chunks.get(entry.host.chunk.0 as usize) else { continue };
        let first = live.partition_point(|span| span.end() <= entry.span.start);
        for span in live[first..].iter().take_while(|span| span.start < entry.span.end()) {
            let (start, end) = (span.start.max(entry.span.start), span.end().min(entry.span.end()));
            let span = Span::new(start, end - start);
            if span == entry.span || is_divisible(chunk, host) {
                let sector = entry.host.sector + (start - entry.span.start);
                found.push(Entry { span, host: Address { sector, ..entry.host } });
            }
        }
    }
    found
}

/// The entries in order. Entries that are adjacent in the chunk and in the host, and that can be divided again, are
/// joined.
pub(super) fn joined(entries: Vec<Entry>, chunk: &Chunk, layout: &Layout) -> Vec<Entry> {
    let mut all: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in entries {
        let follows = |last: &Entry| {
            let host = Address { sector: last.host.sector + last.span.len, ..last.host };
            last.span.end() == entry.span.start && host == entry.host
        };
        let host = &layout.chunks[entry.host.chunk.0 as usize];
        match all.last_mut() {
            Some(last) if follows(last) && is_divisible(chunk, host) => last.span.len += entry.span.len,
            _ => all.push(entry),
        }
    }
    all
}

/// The spans of `one` without those of `two`, both in order, disjoint and joined.
fn without(one: &[Span], two: &[Span]) -> Vec<Span> {
    let mut rest = Vec::new();
    for span in one {
        let mut start = span.start;
        let first = two.partition_point(|other| other.end() <= span.start);
        for other in two[first..].iter().take_while(|other| other.start < span.end()) {
            if other.start > start {
                rest.push(Span::new(start, other.start - start));
            }
            start = other.end();
        }
        if start < span.end() {
            rest.push(Span::new(start, span.end() - start));
        }
    }
    rest
}
