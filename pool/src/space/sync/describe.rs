//! Shortening the log: checkpoints of chunks, and the table that names them.
//!
//! They are *drafted* first: stored, without a change to the structures in force. When all of the draft is stored it is
//! adopted, and the replaced blocks are freed. When a block finds no room, or the logs that follow would find too
//! little, the draft is taken back. A group without a draft is as good as one with: a row left behind has its old
//! checkpoint, the log since then, and a class that is only a preference. Only a table that lacks chunks must be
//! written, and new chunks bring room for it.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use super::{
    LOG_SLACK, Writer,
    stored::{COPIES, LogGroup, Stored},
};
use crate::{
    error::{Error, Result},
    format::space::{
        PhysicalPointer,
        log::{MAX_LOG_HEAD, encode_changes},
        packing::Entry,
        table::{ROWS_PER_PAGE, Row, Seat, TableRoot, encode_page},
    },
    space::{chunk::Chunk, history::DEFERRED_GROUPS, layout::whole_units, packing::pieces},
    units::{MIB, Txg},
};

/// A log of at most so many groups needs no checkpoints.
const CALM_GROUPS: usize = 16;
/// A log of at most so many bytes needs no checkpoints.
const CALM_BYTES: u64 = MIB;
/// The length in bytes from which the log is shortened in a hurry.
const HURRY_BYTES: u64 = 4 * MIB;
/// Checkpoints beyond the first of a group leave one part in so many of the space layer's last resort.
const SHARE_LEFT: u64 = 2;
/// At most so many chunks are checkpointed in a group because of a region being emptied.
const LEAVING: usize = 64;

/// Blocks stored for a group, and not in force yet.
#[derive(Default)]
struct Draft<'a> {
    /// New checkpoints; none for an empty chunk.
    checkpoints: Vec<(&'a Chunk, Option<PhysicalPointer>)>,
    /// New maps and places.
    maps: Vec<DraftedMap<'a>>,
    /// The indices in the table of the changed pages.
    changed: Vec<usize>,
    /// The new pages, in the order of `changed`.
    pages: Vec<PhysicalPointer>,
    /// The new root, if there are new pages.
    root: Option<PhysicalPointer>,
}

/// A new map or new places of a chunk.
struct DraftedMap<'a> {
    chunk: &'a Chunk,
    /// None for a packed chunk that is empty, and for another chunk without second places.
    at: Option<PhysicalPointer>,
    /// The second places, if places are stored and not a map.
    seconds: Option<Vec<Entry>>,
}

impl DraftedMap<'_> {
    /// The chunk's row with the map or the places.
    fn row(&self, row: Row) -> Row {
        let (map, places) = if self.seconds.is_some() { (None, self.at) } else { (self.at, None) };
        let seat = if self.chunk.is_packed() { Seat::Packed { map } } else { row.seat };
        Row { seat, places, entered: if places.is_some() { row.entered } else { Txg::ZERO }, ..row }
    }
}

impl Writer<'_> {
    /// Checkpoints some chunks and writes the changed pages of the table, or nothing; returns the table's root.
    pub(super) fn describe(&self, stored: &mut Stored) -> Result<PhysicalPointer> {
        if stored.is_misplaced {
            self.space.arrive_again(self.txg);
        }
        let mut draft = Draft::default();
        let is_needed = stored.is_packing || stored.rows != self.layout().chunks.len();
        match self.draft(stored, &mut draft) {
            Err(Error::OutOfSpace) if !is_needed => self.abandon(draft)?,
            Err(error) => return Err(error),
            // Chunks that have changed places wait for the table, which matters more than the log's need.
            Ok(()) if !is_needed && !stored.is_misplaced && !self.has_room_for_logs() => self.abandon(draft)?,
            Ok(()) => self.adopt(stored, draft)?,
        }
        Ok(stored.table.expect("the table was written"))
    }

    /// Whether a draft leaves room for the logs of this group and of the following ones until the replaced blocks are
    /// free. A group without a log cannot be stored.
    fn has_room_for_logs(&self) -> bool {
        let layout = self.layout();
        // Most of the time nothing has to be counted.
        layout.free() >= self.own_sectors() || {
            let bytes = encode_changes(&self.changes()).len() + MAX_LOG_HEAD + LOG_SLACK;
            let each = whole_units(layout.sectors_for(u32::try_from(bytes).unwrap_or(u32::MAX)), layout.unit());
            layout.free() >= u64::from(each) * u64::from(COPIES) * (DEFERRED_GROUPS as u64 + 1)
        }
    }

    /// Whether there is room for a checkpoint beside the others of a draft. The first is always tried: then the log
    /// becomes shorter as long as there is any room, and the blocks replaced by a few checkpoints are soon free.
    fn has_room_for_more(&self, draft: &Draft<'_>) -> bool {
        let is_first = || draft.checkpoints.iter().all(|(_, pointer)| pointer.is_none());
        self.layout().free() >= self.own_sectors() / SHARE_LEFT || is_first()
    }

    /// The last resort, in sectors.
    fn own_sectors(&self) -> u64 {
        u64::from(self.layout().last_resort()) * u64::from(self.layout().chunk_sectors())
    }

    fn draft<'a>(&'a self, stored: &Stored, draft: &mut Draft<'a>) -> Result<()> {
        for chunk in self.to_checkpoint(stored) {
            self.draft_checkpoint(chunk, draft)?;
        }
        self.draft_maps(draft)?;
        self.draft_table(stored, draft)
    }

    /// The chunks to checkpoint now.
    fn to_checkpoint(&self, stored: &Stored) -> Vec<&Arc<Chunk>> {
        let mut due = self.to_checkpoint_for_length(stored);
        let leaving = self.to_checkpoint_for_leaving(stored);
        due.extend(leaving.into_iter().filter(|chunk| due.iter().all(|due| due.id != chunk.id)).collect::<Vec<_>>());
        due
    }

    /// The chunks with the oldest entries in the log, if the log is long.
    fn to_checkpoint_for_length(&self, stored: &Stored) -> Vec<&Arc<Chunk>> {
        let bytes: u64 = stored.log.iter().map(LogGroup::bytes).sum();
        if stored.log.len() <= CALM_GROUPS && bytes <= CALM_BYTES {
            return Vec::new();
        }
        let chunks = &self.layout().chunks;
        let mut logged: Vec<(Txg, &Arc<Chunk>)> =
            chunks.iter().filter_map(|chunk| Some((chunk.oldest_logged()?, chunk))).collect();
        logged.sort_by_key(|&(oldest, _)| oldest);
        let share = if bytes > HURRY_BYTES { logged.len() / 4 } else { logged.len() / 16 };
        logged.into_iter().take(share + 1).map(|(_, chunk)| chunk).collect()
    }

    /// Some of the chunks whose checkpoint, or whose oldest log, keeps blocks of the space layer in a region being
    /// emptied.
    fn to_checkpoint_for_leaving(&self, stored: &Stored) -> Vec<&Arc<Chunk>> {
        let layout = self.layout();
        let last = stored.log.iter().rfind(|group| group.blocks.iter().any(|block| layout.is_leaving(block)));
        let last = last.map_or(Txg::ZERO, |group| group.txg);
        let is_due = |chunk: &&Arc<Chunk>| {
            let is_leaving = chunk.checkpoint().is_some_and(|pointer| layout.is_leaving(&pointer));
            is_leaving || chunk.oldest_logged().is_some_and(|oldest| oldest <= last)
        };
        layout.chunks.iter().filter(is_due).take(LEAVING).collect()
    }

    fn draft_checkpoint<'a>(&self, chunk: &'a Chunk, draft: &mut Draft<'a>) -> Result<()> {
        let checkpoint = match chunk.describe(self.txg.back(1), &self.disk) {
            Ok(checkpoint) => checkpoint,
            Err(error) => {
                // The old checkpoint and the log stay, and with them everything known about the chunk.
                tracing::warn!(chunk = chunk.id.0, %error, "a chunk cannot be checkpointed");
                return Ok(());
            }
        };
        if chunk.logged() > 0 && !self.has_room_for_more(draft) {
            return Ok(());
        }
        // The log of the frees that the stored places lack may go, so places that find no room keep the checkpoint back.
        let places = match chunk.lacks_frees() {
            true => match self.store_places(chunk) {
                Err(Error::OutOfSpace) => return Ok(()),
                stored => Some(stored?),
            },
            false => None,
        };
        let pointer = match chunk.logged() {
            0 => None,
            _ => match self.store(checkpoint.encode()) {
                // Another chunk's checkpoint may be smaller.
                Err(Error::OutOfSpace) => {
                    return places.and_then(|places| places.at).map_or(Ok(()), |at| self.take_back(&at));
                }
                stored => Some(stored?),
            },
        };
        draft.checkpoints.push((chunk, pointer));
        draft.maps.extend(places);
        Ok(())
    }

    /// Stores a chunk's places of the end of the group.
    fn store_places<'a>(&self, chunk: &'a Chunk) -> Result<DraftedMap<'a>> {
        let seconds = chunk.seconds_at(self.txg);
        let (homes, is_needed) = match self.layout().packed.get(&chunk.id) {
            Some(packing) => {
                let live = chunk.live_at(self.txg, &self.disk)?;
                (pieces(&packing.entries, &live, chunk, self.layout()), !chunk.is_free())
            }
            None => (Vec::new(), !seconds.is_empty()),
        };
        let places = is_needed.then(|| chunk.places(self.txg, homes, seconds.clone()).encode());
        let at = places.map(|places| self.store(places)).transpose()?;
        Ok(DraftedMap { chunk, at, seconds: Some(seconds) })
    }

    /// Drafts maps and places that must leave a region, and drops those of which nothing is left.
    fn draft_maps<'a>(&'a self, draft: &mut Draft<'a>) -> Result<()> {
        let layout = self.layout();
        let is_drafted = |draft: &Draft<'_>, chunk: &Chunk| draft.maps.iter().any(|map| map.chunk.id == chunk.id);
        for (chunk, map) in layout.chunks.iter().filter_map(|chunk| Some((chunk, chunk.map_at()?))) {
            let is_empty = match chunk.is_packed() {
                true => chunk.is_free(),
                false => chunk.has_no_seconds_at(self.txg),
            };
            let is_leaving = layout.is_leaving(&map) && draft.maps.len() < LEAVING;
            if !(is_empty || is_leaving) || is_drafted(draft, chunk) {
                continue;
            }
            let drafted = match () {
                () if is_empty => DraftedMap { chunk, at: None, seconds: None },
                () if chunk.has_places() => self.store_places(chunk)?,
                () => {
                    let map = layout.packed[&chunk.id].describe(chunk);
                    DraftedMap { chunk, at: Some(self.store(map.encode())?), seconds: None }
                }
            };
            draft.maps.push(drafted);
        }
        Ok(())
    }

    /// Drafts the pages with changed rows, and the root if there are any.
    fn draft_table(&self, stored: &Stored, draft: &mut Draft<'_>) -> Result<()> {
        let chunks = &self.layout().chunks;
        let mut rows: Vec<Option<Row>> = vec![None; chunks.len()];
        for &(chunk, checkpoint) in &draft.checkpoints {
            rows[chunk.id.0 as usize] = Some(chunk.row_on(self.txg.back(1), checkpoint));
        }
        for map in &draft.maps {
            let row = &mut rows[map.chunk.id.0 as usize];
            *row = Some(map.row(row.take().unwrap_or_else(|| map.chunk.row())));
        }
        let mut pages = stored.pages.clone();
        let is_leaving = |pointer: &PhysicalPointer| self.layout().is_leaving(pointer);
        for (index, (rows, chunks)) in rows.chunks(ROWS_PER_PAGE).zip(chunks.chunks(ROWS_PER_PAGE)).enumerate() {
            // A row changed from here on, by the next group, is written again by the next sync.
            let dirty = chunks.iter().fold(false, |dirty, chunk| chunk.row_changed.swap(false, Relaxed) | dirty);
            let stays = pages.get(index).is_some_and(|page| !is_leaving(page));
            if !dirty && rows.iter().all(Option::is_none) && stays {
                continue;
            }
            draft.changed.push(index);
            let row = |(row, chunk): (&Option<Row>, &Arc<Chunk>)| row.clone().unwrap_or_else(|| chunk.row());
            let page = self.store(encode_page(&rows.iter().zip(chunks).map(row).collect::<Vec<_>>()))?;
            draft.pages.push(page);
            put(&mut pages, index, page);
        }
        if !draft.pages.is_empty() || stored.table.as_ref().is_some_and(is_leaving) {
            let root = TableRoot { chunks: chunks.len() as u32, pages };
            draft.root = Some(self.store(root.encode())?);
        }
        Ok(())
    }

    /// Puts a draft into force.
    fn adopt(&self, stored: &mut Stored, draft: Draft<'_>) -> Result<()> {
        self.space.forget_maps(draft.maps.iter().filter(|map| map.at.is_none()).map(|map| map.chunk.id));
        for DraftedMap { chunk, at, seconds } in draft.maps {
            self.discard(match (at, seconds) {
                (Some(at), Some(seconds)) => chunk.set_places(self.txg, seconds, at),
                (at, _) => chunk.set_map_at(at),
            })?;
        }
        for (chunk, checkpoint) in draft.checkpoints {
            chunk.assert_no_free_is_missing(self.txg);
            self.discard(chunk.set_checkpoint(self.txg.back(1), checkpoint))?;
        }
        for (index, page) in draft.changed.into_iter().zip(draft.pages) {
            self.discard(put(&mut stored.pages, index, page))?;
        }
        if let Some(root) = draft.root {
            self.discard(stored.table.replace(root))?;
            stored.rows = self.layout().chunks.len();
            (stored.is_misplaced, stored.is_packing) = (false, false);
        }
        Ok(())
    }

    /// Takes back the stored blocks of a draft.
    fn abandon(&self, draft: Draft<'_>) -> Result<()> {
        let maps = draft.maps.iter().filter_map(|map| map.at.as_ref());
        let checkpoints = draft.checkpoints.iter().filter_map(|(_, pointer)| pointer.as_ref());
        for pointer in checkpoints.chain(maps).chain(&draft.pages).chain(&draft.root) {
            self.take_back(pointer)?;
        }
        for page in draft.changed {
            self.layout().chunks[page * ROWS_PER_PAGE].row_changed.store(true, Relaxed);
        }
        tracing::debug!(txg = self.txg.0, "no room to shorten the space log");
        Ok(())
    }
}

/// Puts a page at its index, possibly the first new one; returns the previous page.
fn put(pages: &mut Vec<PhysicalPointer>, index: usize, page: PhysicalPointer) -> Option<PhysicalPointer> {
    match pages.get_mut(index) {
        Some(place) => Some(std::mem::replace(place, page)),
        None => {
            pages.push(page);
            None
        }
    }
}
