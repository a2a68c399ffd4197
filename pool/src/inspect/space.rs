//! The space of one state: its root, the chunk table with its checkpoints, and the space log.
//!
//! All of these are linked by physical pointers, so they are readable without chunks, even if the rest is damaged.

use std::{io, sync::Arc};

use super::{Item, Sink, physical_text};
use crate::{
    admin::{State, read_state},
    device::Device,
    error::{Error, Result},
    format::{
        codec::Reader,
        space::{
            PhysicalPointer, SpaceRoot, Span,
            checkpoint::Checkpoint,
            log::{ChunkChanges, LogBlock, decode_changes},
            packing::{Entry, PackedMap},
            places::Places,
            table::{ROWS_PER_PAGE, Row, Seat, TableRoot, decode_page},
        },
    },
    units::{ChunkId, Txg},
    vdev::Found,
};

/// The chunk table of a state, with each chunk's checkpoint.
///
/// # Errors
/// If the state is not found; damage behind its uberblock becomes an item.
pub fn space(devices: &[Arc<dyn Device>], txg: Option<Txg>, sink: Sink<'_>) -> Result<io::Result<()>> {
    let state = read_state(devices, txg)?;
    Ok(table_items(&state, sink))
}

fn root(state: &State, sink: Sink<'_>) -> io::Result<Option<SpaceRoot>> {
    let uberblock = &state.uberblock;
    sink(Item::new(0, "state").with("txg", uberblock.txg).with("epoch", uberblock.epoch))?;
    match SpaceRoot::decode(&mut Reader::new(&uberblock.space)) {
        Ok(root) => {
            let item = Item::new(0, "space root")
                .with("chunks", root.next_chunk)
                .with("allocated sectors", root.allocated)
                .with("log from", root.log_tail)
                .with("table", physical_text(&root.table))
                .with("log head", physical_text(&root.log_head));
            sink(item).map(|()| Some(root))
        }
        Err(error) => sink(Item::damaged(0, "space root", error)).map(|()| None),
    }
}

fn table_items(state: &State, sink: Sink<'_>) -> io::Result<()> {
    let Some(root) = root(state, sink)? else { return Ok(()) };
    let table = read(state, &root.table, "chunk table")
        .and_then(|bytes| TableRoot::decode(&bytes).map_err(|error| Error::damaged("chunk table", error)));
    let table = match table {
        Ok(table) => table,
        Err(error) => return sink(Item::damaged(0, "chunk table", error)),
    };
    for (number, page) in table.pages.iter().enumerate() {
        sink(Item::new(0, "page").with("number", number).with("at", physical_text(page)))?;
        let rows = read(state, page, "page of the chunk table").and_then(|bytes| {
            decode_page(&bytes).map_err(|error| Error::damaged("page of the chunk table", format!("{error:?}")))
        });
        match rows {
            Ok(rows) => {
                for (id, row) in (number * ROWS_PER_PAGE..).zip(&rows) {
                    chunk_items(state, ChunkId(id as u32), row, sink)?;
                }
            }
            Err(error) => sink(Item::damaged(1, "page", error))?,
        }
    }
    Ok(())
}

fn chunk_items(state: &State, id: ChunkId, row: &Row, sink: Sink<'_>) -> io::Result<()> {
    let class = row.class.map_or("none".to_owned(), |class| format!("{class:?}"));
    let item = match row.seat {
        Seat::Region { vdev, region } => Item::new(1, "chunk").with("id", id).with("vdev", vdev).with("region", region),
        Seat::Packed { .. } => Item::new(1, "packed chunk").with("id", id),
    };
    let item = item
        .with("unit", row.unit)
        .with("arrived in", row.arrived)
        .with("class", class)
        .with("allocated sectors", row.allocated)
        .with("described at", row.described);
    sink(item)?;
    let sectors = u32::try_from(state.label.region_size >> state.label.ashift).unwrap_or(u32::MAX);
    let sectors = sectors / row.unit * row.unit;
    if let Seat::Packed { map: Some(pointer) } = &row.seat {
        map_item(state, pointer, sectors, sink)?;
    }
    if let Some(pointer) = &row.places {
        places_item(state, row.entered, pointer, sectors, sink)?;
    }
    let Some(pointer) = &row.checkpoint else { return Ok(()) };
    let checkpoint = read(state, pointer, "checkpoint")
        .and_then(|bytes| Checkpoint::decode(&bytes, sectors).map_err(|error| Error::damaged("checkpoint", error)));
    match checkpoint {
        Ok(checkpoint) => {
            let item = Item::new(2, "checkpoint").with("at", physical_text(pointer)).with("txg", checkpoint.described);
            sink(item.with("free", spans_text(&checkpoint.free)))
        }
        Err(error) => sink(Item::damaged(2, "checkpoint", error)),
    }
}

fn map_item(state: &State, pointer: &PhysicalPointer, sectors: u32, sink: Sink<'_>) -> io::Result<()> {
    let map = read(state, pointer, "map")
        .and_then(|bytes| PackedMap::decode(&bytes, sectors).map_err(|error| Error::damaged("map", error)));
    match map {
        Ok(map) => {
            let item = Item::new(2, "map").with("at", physical_text(pointer));
            sink(item.with("sectors", entries_text(&map.entries)))
        }
        Err(error) => sink(Item::damaged(2, "map", error)),
    }
}

fn places_item(state: &State, entered: Txg, pointer: &PhysicalPointer, sectors: u32, sink: Sink<'_>) -> io::Result<()> {
    let places = read(state, pointer, "places")
        .and_then(|bytes| Places::decode(&bytes, sectors).map_err(|error| Error::damaged("places", error)));
    match places {
        Ok(places) => {
            let item = Item::new(2, "places").with("at", physical_text(pointer)).with("entered in", entered);
            let item = item.with("since", places.since).with("sectors", entries_text(&places.homes));
            sink(item.with("second places", entries_text(&places.seconds)))
        }
        Err(error) => sink(Item::damaged(2, "places", error)),
    }
}

fn entries_text(entries: &[Entry]) -> String {
    let text = |Entry { span, host }: &Entry| format!("{}+{} at {}:{}", span.start, span.len, host.chunk, host.sector);
    entries.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// The space log of a state, newest block first.
///
/// # Errors
/// As [`space`].
pub fn log(devices: &[Arc<dyn Device>], txg: Option<Txg>, sink: Sink<'_>) -> Result<io::Result<()>> {
    let state = read_state(devices, txg)?;
    Ok(log_items(&state, sink))
}

fn log_items(state: &State, sink: Sink<'_>) -> io::Result<()> {
    let Some(root) = root(state, sink)? else { return Ok(()) };
    let mut next = Some(root.log_head);
    // The pieces of a group's changes, the last one first.
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut last = (Txg::LIMIT, 0);
    while let Some(pointer) = next {
        let block = read(state, &pointer, "space log")
            .and_then(|bytes| LogBlock::decode(&bytes).map_err(|error| Error::damaged("space log", error)));
        let block = match block {
            Ok(block) => block,
            Err(error) => return sink(Item::damaged(0, "log block, and all that is older", error)),
        };
        if (block.txg, block.part) >= last {
            return sink(Item::damaged(0, "log", "its blocks are not in order"));
        }
        last = (block.txg, block.part);
        let item = Item::new(0, "log block").with("txg", block.txg).with("part", block.part);
        sink(item.with("at", physical_text(&pointer)))?;
        pieces.push(block.piece);
        if block.part == 0 {
            let coded: Vec<u8> = pieces.drain(..).rev().flatten().collect();
            change_items(&coded, sink)?;
            if block.txg <= root.log_tail {
                return Ok(());
            }
        }
        next = block.previous;
    }
    sink(Item::damaged(0, "log", format!("it ends before transaction group {}", root.log_tail)))
}

fn change_items(coded: &[u8], sink: Sink<'_>) -> io::Result<()> {
    let changes = match decode_changes(coded) {
        Ok(changes) => changes,
        Err(error) => return sink(Item::damaged(1, "changes", error)),
    };
    for ChunkChanges { chunk, allocated, freed } in changes {
        let item = Item::new(1, "changes").with("chunk", chunk).with("allocated", spans_text(&allocated));
        sink(item.with("freed", spans_text(&freed)))?;
    }
    Ok(())
}

fn spans_text(spans: &[Span]) -> String {
    let spans: Vec<String> = spans.iter().map(|span| format!("{}+{}", span.start, span.len)).collect();
    spans.join(" ")
}

/// The block of a physical pointer, from the first copy that verifies.
fn read(state: &State, pointer: &PhysicalPointer, what: &str) -> Result<Vec<u8>> {
    let mut failure = Error::damaged(what, "no copy has the right checksum");
    for place in pointer.places() {
        let Some(vdev) = state.vdev(place.vdev) else {
            failure = Error::damaged(what, format!("it points to vdev {}, which is not there", place.vdev));
            continue;
        };
        let mut bytes = vec![0; pointer.len as usize];
        let is_good = |bytes: &[u8]| *blake3::hash(bytes).as_bytes() == pointer.checksum;
        match vdev.read_checked(place.offset, &mut bytes, &is_good) {
            Ok(Found::Bad) => {}
            Ok(_) => return Ok(bytes),
            Err(error) => failure = Error::damaged(what, error),
        }
    }
    Err(failure)
}
