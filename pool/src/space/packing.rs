//! Chunks without regions: what is in a chunk comes to lie in other chunks, piece by piece, and no address changes.
//!
//! A chunk that changes places with an empty one (see [`super::moving`]) takes an empty region of the same shape, however
//! little is in it. One that is *packed* takes as many sectors as it has: they are allocated in other chunks, its *hosts*,
//! side by side with what came from elsewhere, and a *map* says which of its sectors are where. It lies on no region any more
//! and nothing is allocated in it, but its number stays, its row names its map, and its free map says what is still in it.
//!
//! Below lie the chunks; above, whoever resolves an address asks the layout, which follows the map. That is one search in
//! memory, without a lock.
//!
//! Chunks are packed where they have to leave their regions and find no empty ones of their kind, and where they are mostly
//! holes (see [`super::holes`]). Each piece costs 16 bytes of memory until it is freed, and the search; a chunk is packed once,
//! and what was packed moves on with its hosts. Its map knows what was freed until it is written anew.
//!
//! What must hold:
//!
//! 1. An entry of a map names sectors of a chunk that lies on a region: maps do not lead to maps. When a host is emptied
//!    itself, what it holds for others gets other entries in their maps.
//! 2. No two entries name the same sector, not even where one is of something that was freed: before an empty chunk becomes
//!    a host, entries that name it are forgotten.
//! 3. What is allocated in a packed chunk is allocated in its host: both begin in the group whose table has the map, and
//!    end in the group that frees it. Only the host's sectors count as space of the pool.
//! 4. Where sectors are allocated together in a host, an entry has whole units of it; one of several blocks only if each of
//!    them has. So each can be freed alone, and a row of a RAID-Z is written once.
//! 5. The region of a chunk that was packed gets another chunk, all of which is allocated and freed in that group: so nobody
//!    gets it before no state needs what lies there. A number of which nothing is left is used for that again.
//!
//! While blocks are copied a host is set aside, as a twin is, and free space to every committed state. The rest is one
//! instant of the open group: the host's sectors, the freed region and the maps are noted in it, and its table is written in
//! any case, or the group is not committed.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | while blocks are copied | the chunks where they were, and hosts that are empty |
//! | after the maps were written, before the uberblock of the group whose table names them | the same; the maps are free space |
//! | after that | the chunks packed; copies and maps were flushed before the uberblock. What they left is deferred by the log |
//! | after the last of a packed chunk was freed, before a table says so | the chunk with a map of which nothing is needed |
//! | after that | a row without a region and a map, whose number may be used again |

mod packer;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use self::packer::HandedOut;
pub(super) use self::packer::Packer;

use super::{
    Extent, Space,
    chunk::{Chunk, CountedIn, Loaded},
    extent,
    io::{Disk, SpaceIo},
    layout::{Ground, Layout, Vdev, whole_units},
    moving::{Regions, Targets},
    span_set::{normalize, total},
    sync::{COPIES, Stored},
};
use crate::{
    error::{Error, Result},
    format::{
        pointer::Address,
        space::{
            Span,
            packing::{Entry, PackedMap},
            table::{ROWS_PER_PAGE, Row, Seat},
        },
    },
    units::{ChunkId, KIB, Txg, VdevId},
};

/// No page of the table has more bytes, with all that it is rounded up by.
const MAX_PAGE: u64 = 32 * KIB;

/// A host is counted on to be full but for one of so many parts: blocks do not fill it to the last sector.
const WASTE: u64 = 8;

/// How many hosts, each with room for `capacity` sectors, so many sectors take.
pub(super) fn hosts_for(sectors: u64, capacity: u64) -> u64 {
    (sectors * WASTE).div_ceil(capacity * (WASTE - 1))
}

/// Where the sectors of a packed chunk are.
#[derive(Debug, Default)]
pub(super) struct Packing {
    /// In order and disjoint.
    entries: Vec<Entry>,
}

impl Packing {
    /// The packing of these entries, which must be in order and disjoint.
    pub(super) fn new(entries: Vec<Entry>) -> Packing {
        Packing { entries }
    }

    /// The map as it is stored.
    pub(super) fn describe(&self, chunk: &Chunk) -> PackedMap {
        PackedMap { chunk: chunk.id, sectors: chunk.sectors, entries: self.entries.clone() }
    }

    /// The entry in which all of `span` lies.
    fn around(&self, span: Span) -> Option<&Entry> {
        let behind = self.entries.partition_point(|entry| entry.span.start <= span.start);
        let entry = &self.entries[behind.checked_sub(1)?];
        (entry.span.end() >= span.end()).then_some(entry)
    }

    /// Where they are, a chunk perhaps several times.
    pub(super) fn hosts(&self) -> impl Iterator<Item = ChunkId> {
        self.entries.iter().map(|entry| entry.host.chunk)
    }

    fn names_any(&self, hosts: &BTreeSet<ChunkId>) -> bool {
        self.entries.iter().any(|entry| hosts.contains(&entry.host.chunk))
    }
}

impl Layout {
    /// Where sectors of a chunk lie: in it, or if it is packed in its host. Of a part of what was packed as a whole that is
    /// what is behind its start.
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

    /// What is freed in the host with sectors of a packed chunk; nothing if it is not packed.
    ///
    /// # Errors
    /// If they lie nowhere, or are a part of what can only be freed as a whole.
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

    /// Sets an empty chunk aside, of the device that has the most free space, if more are empty than are kept. Those with narrow
    /// rows come last, from the end on: of a device that is being expanded they will be emptied, too.
    fn take_host<'a>(&'a self, to: &Targets, keep: u32) -> Option<Arc<Chunk>> {
        if self.empty.load(Relaxed) <= keep {
            return None;
        }
        let mut open: Vec<_> = self.vdevs.iter().filter(|vdev| vdev.is_open() && to.contains(vdev.id)).collect();
        // What is there for metadata is left to it as long as there are others.
        open.sort_by_cached_key(|vdev| (vdev.ground != Ground::Normal, std::cmp::Reverse(vdev.free())));
        let chunks = |is_narrow: bool| {
            let of = move |vdev: &'a Arc<Vdev>| {
                vdev.chunks.iter().filter(move |chunk| (chunk.unit < vdev.unit) == is_narrow)
            };
            open.iter().copied().flat_map(of)
        };
        let held = chunks(false).find(|chunk| chunk.hold());
        let held = held.or_else(|| chunks(true).collect::<Vec<_>>().into_iter().rev().find(|chunk| chunk.hold()));
        // Somebody else may have taken one meanwhile.
        match held.filter(|_| self.empty.load(Relaxed) < keep) {
            Some(chunk) => {
                self.let_stand(chunk);
                None
            }
            None => held.cloned(),
        }
    }

    /// A number for a chunk on a region: one of which nothing is left, or a new one. With the group up to which the log may
    /// speak of another chunk of this number.
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

/// Whether any part of a packed chunk that is whole units of it can be freed alone in the host.
fn is_divisible(chunk: &Chunk, host: &Chunk) -> bool {
    chunk.unit.is_multiple_of(host.unit)
}

/// What changes when chunks are packed.
#[derive(Default)]
struct Plan {
    /// The new maps, of those that are packed and of those that had something in them.
    maps: BTreeMap<ChunkId, Vec<Entry>>,
    /// What is allocated in the hosts.
    taken: BTreeMap<ChunkId, Vec<Span>>,
    /// What is freed in those that are packed, because it has another host now.
    moved: Vec<(ChunkId, Span)>,
}

impl Plan {
    /// Notes entries that are new.
    fn take(&mut self, entries: &[Entry], layout: &Layout) {
        for Entry { span, host } in entries {
            let unit = layout.chunks[host.chunk.0 as usize].unit;
            self.taken.entry(host.chunk).or_default().push(Span::new(host.sector, whole_units(span.len, unit)));
        }
    }
}

impl Space {
    /// Packs the chunks that were emptied, in the open group `txg`, while no group is synced and after all copies were
    /// flushed. False, and nothing has changed, if something in them was not copied.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if there is no room for the maps, and if free maps cannot be read; nothing has changed then.
    pub(super) fn pack(&self, packer: &Packer, stored: &mut Stored, txg: Txg, io: &dyn SpaceIo) -> Result<bool> {
        let layout = self.layout.load_full();
        let disk = Disk { layout: &layout, io };
        let handed_out = packer.handed_out.lock();
        let Some(plan) = plan(packer, &handed_out, &disk)? else { return Ok(false) };
        let describe = |(id, entries): (&ChunkId, &Vec<Entry>)| {
            PackedMap { chunk: *id, sectors: layout.chunks[id.0 as usize].sectors, entries: entries.clone() }.encode()
        };
        // What may have to be read is read before anything changes.
        handed_out.hosts.iter().try_for_each(|host| host.chunk.live(&disk).map(drop))?;
        if !layout.has_room_for_table() {
            return Err(Error::OutOfSpace);
        }
        let pointers = self.store_maps(txg, plan.maps.iter().map(describe), &disk)?;
        // From here on nothing fails but what the caller cannot go on without.
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
            let former = layout.chunks[id.0 as usize].pack(txg, pointer);
            for place in former.iter().flat_map(|former| former.places()) {
                self.free(txg, layout.address(*place)?, former.expect("it has a place").len)?;
            }
        }
        stored.is_packing = true;
        Ok(true)
    }

    /// What is allocated in chunks that are being packed and was given no place, in pieces that can be given one. When all
    /// that the pool refers to was copied, that is what nothing refers to.
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

    /// How many chunks are packed with something in them, and how many bytes of memory their maps take.
    pub fn packed(&self) -> (usize, u64) {
        let layout = self.layout.load();
        let entries: usize = layout.packed.values().map(|packing| packing.entries.len()).sum();
        (layout.packed.len(), (entries * size_of::<Entry>()) as u64)
    }

    /// Forgets where the sectors of chunks were in which nothing is any more.
    pub(super) fn forget_maps(&self, chunks: impl Iterator<Item = ChunkId>) {
        let mut chunks = chunks.peekable();
        if chunks.peek().is_some() {
            let mut layout = Layout::clone(&self.layout.load());
            chunks.for_each(|id| drop(layout.packed.remove(&id)));
            self.layout.store(Arc::new(layout));
        }
    }

    /// What is allocated in hosts for what is in packed chunks, at the end of the last transaction group that was synced, and
    /// what is in packed chunks and lies nowhere.
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
        Ok(hosted)
    }

    /// Since when what is at an address has lain where it does.
    pub fn arrived(&self, address: Address) -> Txg {
        let layout = self.layout.load();
        let Some(chunk) = layout.chunks.get(address.chunk.0 as usize) else { return Txg::ZERO };
        let host = layout.seat(chunk, Span::new(address.sector, 1)).map_or(Txg::ZERO, |(host, _)| host.arrived());
        chunk.arrived().max(host)
    }

    /// When the last chunk came to lie on a device that was elsewhere before, or the last of one was packed there.
    pub fn last_arrival(&self, vdev: VdevId) -> Txg {
        let layout = self.layout.load();
        let there: BTreeSet<ChunkId> = layout.chunks_in(&Regions::Vdev(vdev)).map(|chunk| chunk.id).collect();
        let packed = layout.packed.iter().filter(|(_, packing)| packing.names_any(&there)).map(|(id, _)| id);
        let arrived = |id: &ChunkId| layout.chunks[id.0 as usize].arrived();
        there.iter().chain(packed).map(arrived).max().unwrap_or_default()
    }
}

/// What packed chunks take in others.
#[derive(Clone, Debug, Default)]
pub struct Hosted {
    /// What is allocated in the hosts.
    pub hosts: Vec<Extent>,
    /// What is allocated in packed chunks, and no map says where it is.
    pub lost: Vec<Extent>,
}

impl Layout {
    /// Whether all of a table finds room in empty chunks, which nobody but the space layer takes by now: the group in which
    /// chunks are packed is not committed without its own.
    fn has_room_for_table(&self) -> bool {
        let pages = self.chunks.len().div_ceil(ROWS_PER_PAGE) as u64 + 1;
        let bytes = pages * MAX_PAGE * u64::from(COPIES);
        u64::from(self.empty.load(Relaxed)) * self.region >= bytes
    }

    /// This layout with another chunk on the region of one that is packed.
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

/// What has to have a place before chunks can be packed.
#[derive(Default)]
struct Needs {
    /// By the chunk of the address: in order and disjoint.
    spans: BTreeMap<ChunkId, Vec<Span>>,
    /// What else is in packed chunks of which something moves.
    stays: BTreeMap<ChunkId, Vec<Entry>>,
    /// What is freed in those that are packed, because it has another host then.
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
            // It has become empty meanwhile, and keeps its region.
            continue;
        }
        let hosting = needs.moved.iter().filter(|(host, _)| host == id).map(|(_, span)| *span).collect();
        needs.spans.insert(*id, without(&live, &normalize(hosting)));
    }
    Ok(needs)
}

/// What changes, if all that is in the sources has a place.
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

/// The entries of what is live, if all of it was placed.
fn cover(live: &[Span], placed: Vec<Entry>, chunk: &Chunk, layout: &Layout) -> Option<Vec<Entry>> {
    let found = pieces(&placed, live, chunk, layout);
    let is_whole = total(found.iter().map(|entry| entry.span)) == total(live.iter().copied());
    is_whole.then_some(found)
}

/// What of these entries is live. One that cannot be divided is as a whole, or it is not: then nothing of it is here.
fn pieces(entries: &[Entry], live: &[Span], chunk: &Chunk, layout: &Layout) -> Vec<Entry> {
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

/// Entries in order, those joined that follow each other in the chunk and in the host and can be divided again.
fn joined(entries: Vec<Entry>, chunk: &Chunk, layout: &Layout) -> Vec<Entry> {
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

/// What is in `one` and not in `two`, both in order, disjoint and joined.
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
