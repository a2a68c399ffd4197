//! From the uberblock's space root back to the space of a pool: the table and the log are read, checkpoints are not.
//!
//! Each structure read is checked against the others before it is believed. Chunks lie inside their devices and on
//! regions of their own, or their maps name sectors that no other map names. The log is in order and names sectors that
//! exist, and the counts add up.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    chunk::{
        Chunk, CountedIn, Loaded, Replay, Standing,
        seconds::{Seconds, outside},
    },
    history::{DEFERRED_GROUPS, History},
    io::{Disk, SpaceIo},
    layout::{Ground, Layout, Vdev, VdevShape, whole_units},
    packing::map::Packing,
    span_set::{SpanSet, are_whole, total},
    state::Space,
    sync::stored::{LogGroup, Stored},
};
use crate::{
    error::{Error, Result},
    format::space::{
        PhysicalPointer, SpaceRoot, Span,
        log::{ChunkChanges, LogBlock, decode_changes},
        packing::{Entry, PackedMap},
        places::Places,
        table::{PageError, Row, Seat, TableRoot, decode_page},
    },
    units::{ChunkId, Txg, VdevId},
};

impl Space {
    /// The space of a pool as committed by transaction group `txg`. `sector`, `region` and the devices come from the
    /// pool's labels.
    pub fn open(
        root: &SpaceRoot,
        sector: u32,
        region: u64,
        vdevs: &[VdevShape],
        txg: Txg,
        io: &dyn SpaceIo,
    ) -> Result<Space> {
        let mut layout = bare_layout(sector, region, vdevs)?;
        let disk = Disk { layout: &layout, io };
        let (pages, rows) = read_table(root, &disk)?;
        let log = read_log(root, txg, &disk)?;
        let count = rows.len();
        check_places(&rows, &layout)?;
        let mut chunks = apply_log(rows, &log, &layout)?;
        check_gone(&chunks, &layout)?;
        let seated = chunks.iter().filter(|chunk| chunk.row.seat.region().is_some());
        if seated.map(|chunk| u64::from(chunk.allocated)).sum::<u64>() != root.allocated {
            return Err(Error::damaged("space log", "the allocated sectors do not add up"));
        }
        let maps = read_maps(&mut chunks, txg, &disk)?;
        add_chunks(&mut layout, chunks);
        check_seconds(&maps, &layout, txg)?;
        layout.packed = check_maps(maps, &layout)?;
        let history = log.iter().rev().take(DEFERRED_GROUPS).rev().map(|(group, _)| group.txg).collect();
        let history = History::after(history);
        layout.rest_after(history.reusable());
        let log: VecDeque<_> = log.into_iter().map(|(group, _)| group).collect();
        Ok(Space::assemble(
            layout,
            Stored { txg, table: Some(root.table), pages, rows: count, is_misplaced: false, is_packing: false, log },
            history,
        ))
    }
}

/// The devices without their chunks: enough to read physical pointers.
fn bare_layout(sector: u32, region: u64, vdevs: &[VdevShape]) -> Result<Layout> {
    let mut layout = Layout::new(sector, region);
    for shape in vdevs {
        let VdevShape { vdev, unit, class, .. } = *shape;
        if !layout.suits(unit) {
            let problem = format!("a region has no room for the {unit} sectors that it writes together");
            return Err(Error::damaged(format!("vdev {vdev}"), problem));
        }
        let zone = layout.zone_of(shape);
        match layout.vdevs.iter_mut().find(|known| known.id == vdev) {
            Some(known) => *known = Arc::new(known.with_zone(zone)),
            None => layout.vdevs.push(Arc::new(Vdev::new(vdev, Ground::of(class)).with_zone(zone))),
        }
    }
    Ok(layout)
}

fn read_table(root: &SpaceRoot, disk: &Disk<'_>) -> Result<(Vec<PhysicalPointer>, Vec<Row>)> {
    const WHAT: &str = "chunk table";
    let table = TableRoot::decode(&disk.read(&root.table, WHAT)?).map_err(|error| Error::damaged(WHAT, error))?;
    let mut rows = Vec::new();
    for page in &table.pages {
        rows.extend(decode_page(&disk.read(page, WHAT)?).map_err(page_error)?);
    }
    if rows.len() != table.chunks as usize || table.chunks != root.next_chunk {
        return Err(Error::damaged(WHAT, "it has another number of rows than it says"));
    }
    Ok((table.pages, rows))
}

fn page_error(error: PageError) -> Error {
    match error {
        PageError::Malformed(error) => Error::damaged("chunk table", error),
        PageError::UnknownKind(kind) => {
            Error::Unsupported { what: "chunk".into(), problem: format!("kind {kind} is not known") }
        }
    }
}

/// Where a packed chunk's sectors are.
struct Homes {
    chunk: ChunkId,
    entries: Vec<Entry>,
    /// No entry is for freed sectors: they are from places and not from a map.
    is_exact: bool,
}

/// Reads the maps of packed chunks, and the places of chunks with blocks on archives.
fn read_maps(chunks: &mut [Loaded], txg: Txg, disk: &Disk<'_>) -> Result<Vec<Homes>> {
    let mut maps = Vec::new();
    for (id, chunk) in (0..).map(ChunkId).zip(chunks) {
        if let Some(pointer) = chunk.row.places {
            let entries = read_places((id, chunk), txg, &pointer, disk)?;
            if chunk.row.seat.region().is_none() {
                maps.push(Homes { chunk: id, entries, is_exact: true });
            }
            continue;
        }
        let Seat::Packed { map } = chunk.row.seat else { continue };
        let damaged = |problem: &str| Error::damaged(format!("map of packed chunk {id}"), problem);
        let Some(pointer) = map else {
            if chunk.allocated > 0 {
                return Err(damaged("it is missing"));
            }
            continue;
        };
        let bytes = disk.read(&pointer, "map of a packed chunk")?;
        let sectors = disk.layout.capacity(chunk.row.unit);
        let map = PackedMap::decode(&bytes, sectors).map_err(|error| damaged(error.what))?;
        if map.chunk != id {
            return Err(damaged("it is of another chunk"));
        }
        maps.push(Homes { chunk: id, entries: map.entries, is_exact: false });
    }
    Ok(maps)
}

/// Reads the places of a chunk and applies the log's frees: sets the second places, and returns the homes.
fn read_places(
    (id, chunk): (ChunkId, &mut Loaded),
    txg: Txg,
    pointer: &PhysicalPointer,
    disk: &Disk<'_>,
) -> Result<Vec<Entry>> {
    const WHAT: &str = "places of a chunk";
    let damaged = |problem: &str| Error::damaged(format!("places of chunk {id}"), problem);
    let bytes = disk.read(pointer, WHAT)?;
    let sectors = disk.layout.capacity(chunk.row.unit);
    let places = Places::decode(&bytes, sectors).map_err(|error| damaged(error.what))?;
    if places.chunk != id || places.since > txg || chunk.row.entered > txg {
        return Err(damaged("they are of another chunk or time"));
    }
    if chunk.row.seat.region().is_some() && !places.homes.is_empty() {
        return Err(damaged("they place sectors that lie in the chunk's region"));
    }
    let later = || chunk.frees.iter().filter(|(group, _)| *group >= places.since);
    let gone = SpanSet::from_spans(later().flat_map(|(_, spans)| spans.iter().copied()));
    let lacking = later().map(|(group, _)| *group).max().unwrap_or_default();
    let (homes, seconds) = (outside(&places.homes, &gone), outside(&places.seconds, &gone));
    chunk.seconds = Some(Seconds::opened(seconds, places.since, lacking, chunk.row.entered));
    Ok(homes)
}

/// The log's groups and their changes, oldest first.
fn read_log(root: &SpaceRoot, txg: Txg, disk: &Disk<'_>) -> Result<VecDeque<(LogGroup, Vec<ChunkChanges>)>> {
    const WHAT: &str = "space log";
    let mut log = VecDeque::new();
    let mut parts: VecDeque<(PhysicalPointer, Vec<u8>)> = VecDeque::new();
    let mut next = Some(root.log_head);
    let mut expected: Option<(Txg, u32)> = None;
    let mut newest_allowed = txg;
    loop {
        let pointer = next.ok_or_else(|| Error::damaged(WHAT, "it ends early"))?;
        let block = LogBlock::decode(&disk.read(&pointer, WHAT)?).map_err(|error| Error::damaged(WHAT, error))?;
        let in_order = match expected {
            Some(expected) => (block.txg, block.part) == expected,
            None => block.txg <= newest_allowed && block.txg >= root.log_tail,
        };
        if !in_order || (log.is_empty() && block.txg != txg) {
            return Err(Error::damaged(WHAT, "its blocks are not in order"));
        }
        parts.push_front((pointer, block.piece));
        next = block.previous;
        if block.part > 0 {
            expected = Some((block.txg, block.part - 1));
            continue;
        }
        expected = None;
        let (blocks, pieces): (Vec<_>, Vec<_>) = parts.drain(..).unzip();
        let changes = decode_changes(&pieces.concat()).map_err(|error| Error::damaged(WHAT, error))?;
        log.push_front((LogGroup { txg: block.txg, blocks }, changes));
        if block.txg == root.log_tail {
            return Ok(log);
        }
        newest_allowed = block.txg.back(1);
    }
}

/// Every chunk's counts, and the changes still to apply to its checkpoint.
fn apply_log(rows: Vec<Row>, log: &VecDeque<(LogGroup, Vec<ChunkChanges>)>, layout: &Layout) -> Result<Vec<Loaded>> {
    let mut chunks: Vec<Tally> = rows.into_iter().map(Tally::new).collect();
    // The frees of the newest groups are not reusable yet.
    let first_deferred = log.len().saturating_sub(DEFERRED_GROUPS);
    for (index, (group, changes)) in log.iter().enumerate() {
        for change in changes {
            let chunk = chunks.get_mut(change.chunk.0 as usize);
            let chunk = chunk.ok_or_else(|| Error::damaged("space log", "it speaks of a chunk that does not exist"))?;
            chunk.apply(group.txg, change, index >= first_deferred);
        }
    }
    let ids = (0..).map(ChunkId);
    chunks.into_iter().zip(ids).map(|(chunk, id)| chunk.finish(id, layout)).collect()
}

/// A chunk while the log is applied.
struct Tally {
    chunk: Loaded,
    allocated: i64,
    /// The end of the last span.
    end: u32,
    /// Whether all spans are whole units.
    is_whole: bool,
}

impl Tally {
    fn new(row: Row) -> Tally {
        let allocated = i64::from(row.allocated);
        Tally { chunk: Loaded::of(row), allocated, end: 0, is_whole: true }
    }

    fn apply(&mut self, txg: Txg, change: &ChunkChanges, deferred: bool) {
        let is_described = txg <= self.chunk.row.described;
        if is_described && !deferred {
            // Long ago the chunk's number may have been another's: see `packing`.
            return;
        }
        let last = change.allocated.last().into_iter().chain(change.freed.last());
        self.end = last.map(|span| span.end()).fold(self.end, u32::max);
        let unit = self.chunk.row.unit;
        self.is_whole &= are_whole(&change.allocated, unit) && are_whole(&change.freed, unit);
        if deferred && !change.freed.is_empty() {
            self.chunk.deferred.push((txg, change.freed.clone()));
        }
        if is_described {
            return;
        }
        if self.chunk.row.places.is_some() && !change.freed.is_empty() {
            self.chunk.frees.push((txg, change.freed.clone()));
        }
        let sectors = |spans: &[Span]| total(spans.iter().copied()) as i64;
        self.allocated += sectors(&change.allocated) - sectors(&change.freed);
        self.chunk.oldest_logged.get_or_insert(txg);
        self.chunk.replay.extend(change.allocated.iter().copied().map(Replay::Allocated));
        if !deferred {
            self.chunk.replay.extend(change.freed.iter().copied().map(Replay::Freed));
        }
    }

    fn finish(mut self, id: ChunkId, layout: &Layout) -> Result<Loaded> {
        let sectors = layout.capacity(self.chunk.row.unit);
        let damaged = |problem: &str| Err(Error::damaged(format!("space map of chunk {id}"), problem));
        let mut freed = SpanSet::default();
        for &span in self.chunk.deferred.iter().flat_map(|(_, spans)| spans) {
            if freed.overlaps(span) {
                return damaged("sectors are freed twice");
            }
            freed.union(span);
        }
        let used = self.allocated.checked_add_unsigned(total(freed.iter()));
        let possible = self.allocated >= 0 && used.is_some_and(|used| used <= i64::from(sectors));
        if !self.is_whole || self.end > sectors || !possible || self.chunk.row.allocated > sectors {
            return damaged("the log does not fit its row");
        }
        self.chunk.allocated = self.allocated as u32;
        Ok(self.chunk)
    }
}

/// Checks that every chunk not packed has a region of its own, with the region's unit.
fn check_places(rows: &[Row], layout: &Layout) -> Result<()> {
    let mut taken = BTreeSet::new();
    for row in rows {
        let Some((vdev, region)) = row.seat.region() else {
            if !layout.suits(row.unit) {
                let problem = format!("a packed chunk allocates {} sectors together", row.unit);
                return Err(Error::damaged("chunk table", problem));
            }
            continue;
        };
        let is_gone = layout.is_gone(vdev, region);
        let unit = layout.vdevs.iter().find(|known| known.id == vdev).and_then(|known| known.unit_of(region));
        let inside = is_gone || unit.is_some();
        if !inside || !taken.insert((vdev, region)) {
            let problem = format!("region {region} of device {vdev} cannot be a chunk's");
            return Err(Error::damaged("chunk table", problem));
        }
        let suits = if is_gone { layout.suits(row.unit) } else { Some(row.unit) == unit };
        if !suits {
            let problem = format!("a chunk on device {vdev} allocates {} sectors together", row.unit);
            return Err(Error::damaged("chunk table", problem));
        }
    }
    Ok(())
}

/// Checks that chunks of regions that no longer exist are empty; otherwise the state is older than the labels.
fn check_gone(chunks: &[Loaded], layout: &Layout) -> Result<()> {
    let is_needed = |chunk: &Loaded| chunk.allocated > 0 || !chunk.deferred.is_empty();
    for (id, chunk) in (0..).map(ChunkId).zip(chunks).filter(|(_, chunk)| is_needed(chunk)) {
        let Some((vdev, region)) = chunk.row.seat.region().filter(|(vdev, region)| layout.is_gone(*vdev, *region))
        else {
            continue;
        };
        let problem = match layout.vdevs.iter().any(|known| known.id == vdev) {
            true => format!("chunk {id} lies in region {region} of vdev {vdev}, which was given up since"),
            false => format!("chunk {id} lies on vdev {vdev}, which was removed from the pool since"),
        };
        return Err(Error::damaged("chunk table", problem));
    }
    Ok(())
}

/// Checks second places: they lie on archives, and no place that is exact names the same sectors as another. Sectors at
/// home on an archive have none.
fn check_seconds(maps: &[Homes], layout: &Layout, txg: Txg) -> Result<()> {
    let mut hosted: BTreeMap<ChunkId, Vec<Span>> = BTreeMap::new();
    for chunk in layout.chunks.iter().filter(|chunk| chunk.has_places()) {
        for Entry { span, host } in chunk.seconds_at(txg) {
            let entry = Entry { span, host };
            let found = host_of(&entry, chunk, layout).filter(|(host, _)| host.unit == 1 && layout.is_on_archive(host));
            let Some((host, span)) = found else {
                let problem = format!("sector {} cannot have a second place in chunk {}", span.start, entry.host.chunk);
                return Err(Error::damaged(format!("places of chunk {}", chunk.id), problem));
            };
            hosted.entry(host.id).or_default().push(span);
        }
    }
    for map in maps.iter().filter(|map| map.is_exact) {
        let chunk = &layout.chunks[map.chunk.0 as usize];
        for entry in &map.entries {
            let Some((host, span)) = host_of(entry, chunk, layout) else { continue };
            if layout.is_on_archive(host) && chunk.has_second(entry.span) {
                let problem = format!("sector {} is at home on an archive and has a second place", entry.span.start);
                return Err(Error::damaged(format!("places of chunk {}", chunk.id), problem));
            }
            hosted.entry(host.id).or_default().push(span);
        }
    }
    check_once(hosted, "places of chunks")
}

/// Checks that no sector of a host is named twice.
fn check_once(hosted: BTreeMap<ChunkId, Vec<Span>>, what: &str) -> Result<()> {
    for (host, mut spans) in hosted {
        spans.sort_unstable();
        if let Some(pair) = spans.windows(2).find(|pair| pair[0].end() > pair[1].start) {
            let problem = format!("sector {} of chunk {host} is named twice", pair[1].start);
            return Err(Error::damaged(what, problem));
        }
    }
    Ok(())
}

/// Turns stored maps into usable ones. Their entries must name chunks that lie on regions, and no two may name the same
/// sectors.
fn check_maps(maps: Vec<Homes>, layout: &Layout) -> Result<BTreeMap<ChunkId, Arc<Packing>>> {
    let mut packed = BTreeMap::new();
    let mut hosted: BTreeMap<ChunkId, Vec<Span>> = BTreeMap::new();
    for map in maps {
        let chunk = &layout.chunks[map.chunk.0 as usize];
        let damaged = |problem: String| Error::damaged(format!("map of packed chunk {}", map.chunk), problem);
        for entry in &map.entries {
            let Some((host, span)) = host_of(entry, chunk, layout) else {
                let Entry { span, host } = entry;
                let problem =
                    format!("sector {} cannot be at sector {} of chunk {}", span.start, host.sector, host.chunk);
                return Err(damaged(problem));
            };
            if !map.is_exact {
                hosted.entry(host.id).or_default().push(span);
            }
        }
        packed.insert(map.chunk, Arc::new(Packing::new(map.entries)));
    }
    check_once(hosted, "maps of packed chunks")?;
    Ok(packed)
}

/// The host and sectors named by an entry of a packed chunk; `None` if the entry is invalid.
fn host_of<'a>(entry: &Entry, chunk: &Chunk, layout: &'a Layout) -> Option<(&'a Arc<Chunk>, Span)> {
    let host = layout.chunks.get(entry.host.chunk.0 as usize).filter(|host| !host.is_packed())?;
    let span = Span { start: entry.host.sector, len: whole_units(entry.span.len, host.unit) };
    let is_inside = span.start.checked_add(span.len).is_some_and(|end| end <= host.sectors);
    let is_aligned = span.start.is_multiple_of(host.unit) && are_whole(&[entry.span], chunk.unit);
    (is_inside && is_aligned).then_some((host, span))
}

fn add_chunks(layout: &mut Layout, chunks: Vec<Loaded>) {
    let tallies: BTreeMap<VdevId, CountedIn> =
        layout.vdevs.iter().map(|vdev| (vdev.id, layout.counted(vdev, Standing::Open))).collect();
    for (id, chunk) in (0..).map(ChunkId).zip(chunks) {
        // Packed chunks, and chunks in a region that no longer exists, count nowhere.
        let seat = chunk.row.seat.region().filter(|(vdev, region)| !layout.is_gone(*vdev, *region));
        let tally = seat.and_then(|(vdev, _)| tallies.get(&vdev)).cloned().unwrap_or_default();
        let sectors = layout.capacity(chunk.row.unit);
        layout.chunks.push(Arc::new(Chunk::open(id, sectors, chunk, tally)));
    }
    for vdev in &mut layout.vdevs {
        let seated = layout.chunks.iter().filter(|chunk| !chunk.is_packed());
        let own = seated.filter(|chunk| vdev.has(chunk)).cloned().collect();
        *vdev = Arc::new(vdev.with_chunks(own));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::pointer::Address, units::MIB};

    fn entry(start: u32, len: u32, host: u32, sector: u32) -> Entry {
        Entry { span: Span::new(start, len), host: Address { chunk: ChunkId(host), sector } }
    }

    #[test]
    fn a_map_names_what_can_be_and_what_no_other_names() {
        let vdev = |vdev, unit| VdevShape { vdev: VdevId(vdev), first_region: 0, size: 2 * MIB, unit, class: None };
        // Chunks of 256 sectors, followed by chunks of 255.
        let layout = Layout::new(4096, MIB).with_vdev(vdev(0, 1)).with_vdev(vdev(1, 3));
        let is_good = |maps: &[(u32, &[Entry])]| {
            let map = |&(id, entries): &(u32, &[Entry])| Homes {
                chunk: ChunkId(id),
                entries: entries.to_vec(),
                is_exact: false,
            };
            check_maps(maps.iter().map(map).collect(), &layout).is_ok()
        };
        assert!(is_good(&[(0, &[entry(0, 8, 2, 0), entry(8, 1, 2, 9)]), (1, &[entry(3, 4, 2, 12)])]));
        assert!(!is_good(&[(0, &[entry(0, 8, 2, 0), entry(8, 1, 2, 6)])]), "a unit named twice by one");
        assert!(!is_good(&[(0, &[entry(0, 8, 2, 0)]), (1, &[entry(0, 1, 2, 3)])]), "by two");
        assert!(!is_good(&[(0, &[entry(0, 8, 2, 1)])]), "inside a unit");
        assert!(!is_good(&[(2, &[entry(1, 3, 0, 0)])]), "from inside a unit");
        assert!(is_good(&[(0, &[entry(0, 4, 2, 249)])]) && !is_good(&[(0, &[entry(0, 4, 2, 252)])]), "beyond the end");
        assert!(!is_good(&[(0, &[entry(0, 4, 2, u32::MAX)])]) && !is_good(&[(0, &[entry(0, 4, 9, 0)])]), "nowhere");
    }
}
