//! After a crash: the frames that follow the last uberblock.

use std::sync::Arc;

use crate::{
    block::storage::Storage,
    error::{Error, Result},
    format::{
        intent::{Entry, FRAME_HEADER, FrameId, ItemBlock, LogHead, decode_frame, frame_len},
        pointer::{Address, BlockPointer, Checksum},
        uberblock::Uberblock,
    },
    log::ring::is_whole,
    units::Txg,
    vdev::{Check, Suspension},
};

/// The log's entries beyond the state of `uberblock`, oldest first.
pub fn read(storage: &Storage, uberblock: &Uberblock) -> Result<Vec<Entry>> {
    let Some(head) = uberblock.log else { return Ok(Vec::new()) };
    if !is_whole(&head, storage.space.unit_at(head.area)) {
        return Err(Error::damaged("intent log", "its area is not what was allocated"));
    }
    let mut frames: Vec<Vec<Entry>> = Vec::new();
    let mut id = FrameId { pool: uberblock.pool, epoch: uberblock.epoch, sequence: head.sequence };
    let mut position = head.position;
    while let Some((entries, end)) = next_frame(storage, &head, position, id)? {
        // A commit, now missing, lies between the uberblock and this frame.
        if entries.iter().any(|entry| entry.base > uberblock.txg) {
            break;
        }
        frames.push(entries.into_iter().filter(|entry| entry.txg > uberblock.txg).collect());
        position = end;
        id.sequence += 1;
    }
    if frames.last().is_some_and(|last| !complete(storage, last, uberblock.txg)) {
        frames.pop();
    }
    Ok(frames.into_iter().flatten().collect())
}

/// Whether the blocks of the last frame were written. One good copy is enough, lest a bad sector undo an acknowledged
/// fsync. The other copies are rewritten; their space belongs to no other block.
fn complete(storage: &Storage, entries: &[Entry], committed: Txg) -> bool {
    stored_since(entries, committed).filter(|pointer| is_verifiable(pointer)).all(|pointer| {
        let examined = storage.examine(pointer);
        let Some(good) = examined.good else { return false };
        let good = Arc::new(good);
        for bad in &examined.bad {
            if let Err(error) = storage.rewrite(pointer, bad, &good) {
                tracing::warn!("a copy of a block in the intent log stays bad: {error}");
            }
        }
        true
    })
}

/// The blocks of the entries that were stored after `committed`.
pub(crate) fn stored_since(entries: &[Entry], committed: Txg) -> impl Iterator<Item = &BlockPointer> {
    let items = entries.iter().flat_map(|entry| &entry.items).filter_map(|(_, item)| item.as_ref());
    items.filter_map(move |item| match &item.block {
        ItemBlock::Stored(pointer) if pointer.birth > committed => Some(pointer),
        _ => None,
    })
}

/// Whether reading a block shows that it was written.
pub(crate) fn is_verifiable(pointer: &BlockPointer) -> bool {
    pointer.checksum_kind != Checksum::Off && !pointer.gang
}

/// The entries of the frame expected at `position`, or at the start of the area if the frame did not fit there, and the
/// frame's end.
fn next_frame(storage: &Storage, head: &LogHead, position: u32, id: FrameId) -> Result<Option<(Vec<Entry>, u32)>> {
    for start in [Some(position), (position > 0).then_some(0)].into_iter().flatten() {
        let room = (head.sectors - start) as usize * storage.sector as usize;
        if room == 0 {
            continue;
        }
        let is_first = |sector: &[u8]| frame_len(sector, id).is_some();
        let mut frame = read_at(storage, head, (start, false), storage.sector as usize, &is_first)?;
        let Some(len) = frame_len(&frame, id).filter(|len| *len <= room) else { continue };
        let whole = len.next_multiple_of(storage.sector as usize);
        if whole > frame.len() {
            let is_whole = |frame: &[u8]| decode_frame(&frame[..len]).is_some();
            frame = read_at(storage, head, (start, true), whole, &is_whole)?;
        }
        if let Some(entries) = decode_frame(&frame[..len]) {
            let entries = entries.map_err(|problem| Error::damaged("intent log", problem))?;
            let unit = storage.space.unit_at(head.area);
            return Ok(Some((entries, start + ((whole / storage.sector as usize) as u32).next_multiple_of(unit))));
        }
    }
    Ok(None)
}

fn read_at(
    storage: &Storage,
    head: &LogHead,
    (sector, is_inside): (u32, bool),
    len: usize,
    is_good: Check<'_>,
) -> Result<Vec<u8>> {
    const { assert!(FRAME_HEADER <= 512, "a header lies in one sector") };
    let address = Address { chunk: head.area.chunk, sector: head.area.sector + sector };
    let (vdev, offset) = storage.space.resolve(address, len as u32)?;
    let vdev = storage.vdevs.get(vdev)?;
    // At the end of the log no source is good, which is no error. Any source that responds has all acknowledged frames,
    // so refusals of others do not matter. But within a frame with a good first sector, one source may be corrupt where
    // another refuses.
    let mut examined = Suspension::patiently(|| vdev.examine_surely(offset, len, is_good));
    let has_answered = examined.bad.iter().any(|(_, refused)| refused.is_none());
    let refused = examined.bad.drain(..).find_map(|(_, refused)| refused);
    match (examined.good, refused) {
        (Some(bytes), _) => Ok(bytes),
        (None, Some(error)) if !has_answered || is_inside => Err(error),
        (None, _) => Ok(vec![0; len]),
    }
}
