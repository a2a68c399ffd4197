//! From the uberblock's space root back to the space of a pool: the table and the log are read, checkpoints are not.
//!
//! Everything read is checked against everything else before it is believed: chunks lie inside their devices and on
//! regions of their own, the log is in order and speaks of sectors that exist, and the counts add up.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    DEFERRED_GROUPS, Space,
    chunk::{Chunk, CountedIn, Loaded, Replay, Standing},
    history::History,
    io::{Disk, SpaceIo},
    layout::{Ground, Layout, Vdev, VdevShape},
    span_set::{SpanSet, are_whole, total},
    sync::{LogGroup, Stored},
};
use crate::{
    error::{Error, Result},
    format::space::{
        PhysicalPointer, SpaceRoot, Span,
        log::{ChunkChanges, LogBlock, decode_changes},
        table::{PageError, Row, TableRoot, decode_page},
    },
    units::{ChunkId, Txg, VdevId},
};

impl Space {
    /// The space of a pool as transaction group `txg` committed it. `sector`, `region` and the devices are those of the
    /// pool's configuration.
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
        let chunks = apply_log(rows, &log, &layout)?;
        check_gone(&chunks, &layout)?;
        if chunks.iter().map(|chunk| u64::from(chunk.allocated)).sum::<u64>() != root.allocated {
            return Err(Error::damaged("space log", "the allocated sectors do not add up"));
        }
        add_chunks(&mut layout, chunks);
        let history = log.iter().rev().take(DEFERRED_GROUPS).rev().map(|(group, _)| group.txg).collect();
        let history = History::after(history);
        layout.rest_after(history.reusable());
        let log: VecDeque<_> = log.into_iter().map(|(group, _)| group).collect();
        Ok(Space::assemble(
            layout,
            Stored { txg, table: Some(root.table), pages, rows: count, is_misplaced: false, log },
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

/// The log's groups and what they changed, oldest first.
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

/// Every chunk's counts and what is left to apply to its checkpoint.
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
        let chunk = Loaded { row, replay: Vec::new(), oldest_logged: None, allocated: 0, deferred: Vec::new() };
        Tally { chunk, allocated, end: 0, is_whole: true }
    }

    fn apply(&mut self, txg: Txg, change: &ChunkChanges, deferred: bool) {
        let last = change.allocated.last().into_iter().chain(change.freed.last());
        self.end = last.map(|span| span.end()).fold(self.end, u32::max);
        let unit = self.chunk.row.unit;
        self.is_whole &= are_whole(&change.allocated, unit) && are_whole(&change.freed, unit);
        if deferred && !change.freed.is_empty() {
            self.chunk.deferred.push((txg, change.freed.clone()));
        }
        if txg <= self.chunk.row.described {
            return;
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

/// Every chunk has a region of its own, and the unit of it.
fn check_places(rows: &[Row], layout: &Layout) -> Result<()> {
    let mut taken = BTreeSet::new();
    for row in rows {
        let is_gone = layout.is_gone(row.vdev, row.region);
        let unit = layout.vdevs.iter().find(|vdev| vdev.id == row.vdev).and_then(|vdev| vdev.unit_of(row.region));
        let inside = is_gone || unit.is_some();
        if !inside || !taken.insert((row.vdev, row.region)) {
            let problem = format!("region {} of device {} cannot be a chunk's", row.region, row.vdev);
            return Err(Error::damaged("chunk table", problem));
        }
        let suits = if is_gone { layout.suits(row.unit) } else { Some(row.unit) == unit };
        if !suits {
            let problem = format!("a chunk on device {} allocates {} sectors together", row.vdev, row.unit);
            return Err(Error::damaged("chunk table", problem));
        }
    }
    Ok(())
}

/// Chunks of regions that are no more are empty, or the state is from before.
fn check_gone(chunks: &[Loaded], layout: &Layout) -> Result<()> {
    let is_needed = |chunk: &&Loaded| chunk.allocated > 0 || !chunk.deferred.is_empty();
    let is_gone = |chunk: &Loaded| layout.is_gone(chunk.row.vdev, chunk.row.region);
    match (0..).zip(chunks).filter(|(_, chunk)| is_gone(chunk)).find(|(_, chunk)| is_needed(chunk)) {
        Some((id, chunk)) => {
            let problem = match layout.vdevs.iter().any(|vdev| vdev.id == chunk.row.vdev) {
                true => format!("chunk {id} lies in a region of vdev {} that was given up since", chunk.row.vdev),
                false => format!("chunk {id} lies on vdev {}, which was removed from the pool since", chunk.row.vdev),
            };
            Err(Error::damaged("chunk table", problem))
        }
        None => Ok(()),
    }
}

fn add_chunks(layout: &mut Layout, chunks: Vec<Loaded>) {
    let tallies: BTreeMap<VdevId, CountedIn> =
        layout.vdevs.iter().map(|vdev| (vdev.id, layout.counted(vdev, Standing::Open))).collect();
    for (id, chunk) in (0..).map(ChunkId).zip(chunks) {
        // What lies in a region that is no more counts nowhere.
        let is_there = !layout.is_gone(chunk.row.vdev, chunk.row.region);
        let tally = tallies.get(&chunk.row.vdev).filter(|_| is_there).cloned().unwrap_or_default();
        let sectors = layout.capacity(chunk.row.unit);
        layout.chunks.push(Arc::new(Chunk::open(id, sectors, chunk, tally)));
    }
    for vdev in &mut layout.vdevs {
        let own = layout.chunks.iter().filter(|chunk| vdev.has(chunk)).cloned().collect();
        *vdev = Arc::new(vdev.with_chunks(own));
    }
}
