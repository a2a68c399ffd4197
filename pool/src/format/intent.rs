//! The intent log: changes made durable since the last commit.
//!
//! A *frame* is one write to the log's area. It holds *entries*, one a tree: the tree's items changed since the last
//! frame or commit, in their state at the time of the frame. So a frame needs only the previous state, and putting the
//! items of all frames in order brings the tree to the acknowledged state.
//!
//! | bytes of a frame | what |
//! | --- | --- |
//! | 0..8 | magic `CENOTEIL` |
//! | 8..16 | epoch of the import that wrote it |
//! | 16..24 | sequence number |
//! | 24..32 | the pool's guid |
//! | 32..36 | length of the payload |
//! | 36..68 | BLAKE3 of bytes 0..36 and the payload |
//! | 68.. | payload, then zeros to the end of the sector |
//!
//! Pool, epoch and number are expected at one place only, so a frame left from an earlier round, an earlier import or
//! another pool never passes as the next frame.

use std::ops::Range;

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
        pointer::{Address, BlockPointer, MAX_BLOCK},
        uberblock::Epoch,
    },
    units::{ChunkId, Guid, Txg},
};

/// The length of a frame before its payload, in bytes.
pub const FRAME_HEADER: usize = 68;

const MAGIC: [u8; 8] = *b"CENOTEIL";
const CHECKSUM_AT: usize = 36;

/// The place of the log, and of the first frame after the last commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// The first sector of the area.
    pub area: Address,
    /// How many sectors the area has.
    pub sectors: u32,
    /// The sector of the area at which the next frame begins.
    pub position: u32,
    /// The number of the next frame.
    pub sequence: u64,
}

impl LogHead {
    /// Appends the coded form.
    pub fn encode(&self, out: &mut impl Writer) {
        out.put_varint(self.area.chunk.0.into());
        out.put_varint(self.area.sector.into());
        out.put_varint(self.sectors.into());
        out.put_varint(self.position.into());
        out.put_varint(self.sequence);
    }

    /// Takes a head off the reader, and verifies that the position is inside the area.
    pub fn decode(reader: &mut Reader<'_>) -> Result<LogHead, Malformed> {
        const WHAT: &str = "head of the intent log";
        let chunk = ChunkId(reader.varint32(WHAT)?);
        let area = Address { chunk, sector: reader.varint32(WHAT)? };
        let sectors = reader.varint32(WHAT)?;
        let position = reader.varint32(WHAT)?;
        let sequence = reader.varint(WHAT)?;
        if position >= sectors || area.sector.checked_add(sectors).is_none() || sequence >= u64::MAX / 2 {
            return malformed(WHAT);
        }
        Ok(LogHead { area, sectors, position, sequence })
    }
}

/// Identifies a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameId {
    /// The GUID of the pool.
    pub pool: Guid,
    /// The import that wrote the frame.
    pub epoch: Epoch,
    /// The frame's number, one more than the previous frame's.
    pub sequence: u64,
}

/// The changes of one tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The number of the tree: its dataset's id.
    pub tree: u64,
    /// The transaction group open at the time.
    pub txg: Txg,
    /// The newest committed group at the time. The entry omits its changes, so an older state cannot replay the entry.
    pub base: Txg,
    /// The bytes of blocks not yet stored elsewhere.
    pub parts: Vec<Part>,
    /// The items, by key; `None` where there is none any more.
    pub items: Vec<(Key, Option<Item>)>,
}

/// Bytes of a block: all of it, or those changed since an earlier entry of the same tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The block, by a number valid within the log only.
    pub block: u64,
    /// How long the block is now.
    pub len: u32,
    /// Where in the block the bytes belong.
    pub at: u32,
    /// The bytes from `at` on.
    pub bytes: Vec<u8>,
}

impl Part {
    /// Where in the block the bytes belong.
    pub fn range(&self) -> Range<usize> {
        let at = self.at as usize;
        at..at + self.bytes.len()
    }
}

/// An item of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The body, at most [`MAX_BODY`](crate::format::node::MAX_BODY) bytes.
    pub body: Vec<u8>,
    /// The block, if the item has one.
    pub block: ItemBlock,
}

/// The block of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemBlock {
    /// The item has no block.
    None,
    /// A block stored at its final address.
    Stored(BlockPointer),
    /// In the log, under this number.
    Logged(u64),
}

/// The payload of a frame with these entries.
pub fn encode_payload(entries: &[Entry]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.put_varint(entries.len() as u64);
    entries.iter().for_each(|entry| entry.encode(&mut payload));
    payload
}

/// The frame as written, without the padding to whole sectors.
pub fn encode_frame(id: FrameId, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(FRAME_HEADER + payload.len());
    frame.put_bytes(&MAGIC);
    frame.put_u64(id.epoch.0);
    frame.put_u64(id.sequence);
    frame.put_u64(id.pool.0);
    frame.put_u32(payload.len() as u32);
    let checksum = checksum(&frame, payload);
    frame.put_bytes(&checksum);
    frame.put_bytes(payload);
    frame
}

/// The length of the frame beginning with these bytes, unverified; `None` if it is not the expected one.
pub fn frame_len(header: &[u8], expected: FrameId) -> Option<usize> {
    let mut reader = Reader::new(header.get(..FRAME_HEADER)?);
    let what = "frame";
    let magic: [u8; 8] = reader.array(what).ok()?;
    let (epoch, sequence) = (Epoch(reader.u64(what).ok()?), reader.u64(what).ok()?);
    let id = FrameId { pool: Guid(reader.u64(what).ok()?), epoch, sequence };
    let len = reader.u32(what).ok()? as usize;
    (magic == MAGIC && id == expected).then_some(FRAME_HEADER + len)
}

/// The entries of a whole frame; `None` if the checksum fails: the frame was never completed.
pub fn decode_frame(frame: &[u8]) -> Option<Result<Vec<Entry>, Malformed>> {
    let (header, payload) = frame.split_at_checked(FRAME_HEADER)?;
    (checksum(&header[..CHECKSUM_AT], payload) == header[CHECKSUM_AT..]).then(|| decode_entries(payload))
}

fn checksum(header: &[u8], payload: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(header).update(payload).finalize().as_bytes()
}

fn decode_entries(payload: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let mut reader = Reader::new(payload);
    let entries = decode_list(&mut reader, Entry::decode)?;
    reader.finish("end of a frame")?;
    Ok(entries)
}

/// Decodes a counted list, without trusting the count for allocation.
fn decode_list<T>(
    reader: &mut Reader<'_>,
    decode: impl Fn(&mut Reader<'_>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let count = reader.varint("count in a frame")?;
    (0..count).map(|_| decode(reader)).collect()
}

impl Entry {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.tree);
        out.put_varint(self.txg.0);
        out.put_varint(self.txg.0 - self.base.0);
        out.put_varint(self.parts.len() as u64);
        for part in &self.parts {
            out.put_varint(part.block);
            out.put_varint(part.len.into());
            out.put_varint(part.at.into());
            out.put_prefixed(&part.bytes);
        }
        out.put_varint(self.items.len() as u64);
        for (key, item) in &self.items {
            encode_item(out, *key, item.as_ref());
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Entry, Malformed> {
        const WHAT: &str = "entry of a frame";
        let tree = reader.varint(WHAT)?;
        let txg = Txg(reader.varint(WHAT)?);
        let ahead = reader.varint(WHAT)?;
        let base = txg.0.checked_sub(ahead).map(Txg);
        let Some(base) = base.filter(|base| txg < Txg::LIMIT && *base <= txg) else {
            return malformed("transaction group of a log entry");
        };
        let parts = decode_list(reader, decode_part)?;
        let items = decode_list(reader, decode_item)?;
        if !items.is_sorted_by(|one, two| one.0 < two.0) {
            return malformed("order of a log entry");
        }
        Ok(Entry { tree, txg, base, parts, items })
    }
}

fn decode_part(reader: &mut Reader<'_>) -> Result<Part, Malformed> {
    const WHAT: &str = "part of a logged block";
    let block = reader.varint(WHAT)?;
    let (len, at) = (reader.varint32(WHAT)?, reader.varint32(WHAT)?);
    let bytes = reader.prefixed(WHAT)?.to_vec();
    let end = u64::from(at) + bytes.len() as u64;
    if len == 0 || len > MAX_BLOCK || bytes.is_empty() || end > u64::from(len) {
        return malformed(WHAT);
    }
    Ok(Part { block, len, at, bytes })
}

fn encode_item(out: &mut Vec<u8>, key: Key, item: Option<&Item>) {
    out.put_varint(key.object);
    out.put_u8(key.kind);
    out.put_varint(key.offset);
    let Some(item) = item else { return out.put_u8(0) };
    match &item.block {
        ItemBlock::None => out.put_u8(1),
        ItemBlock::Stored(pointer) => {
            out.put_u8(2);
            pointer.encode(out);
        }
        ItemBlock::Logged(block) => {
            out.put_u8(3);
            out.put_varint(*block);
        }
    }
    out.put_prefixed(&item.body);
}

fn decode_item(reader: &mut Reader<'_>) -> Result<(Key, Option<Item>), Malformed> {
    const WHAT: &str = "logged item";
    let key = Key::new(reader.varint(WHAT)?, reader.u8(WHAT)?, reader.varint(WHAT)?);
    let block = match reader.u8(WHAT)? {
        0 => return Ok((key, None)),
        1 => ItemBlock::None,
        2 => ItemBlock::Stored(BlockPointer::decode(reader)?),
        3 => ItemBlock::Logged(reader.varint(WHAT)?),
        _ => return malformed("kind of a logged item"),
    };
    let body = reader.prefixed(WHAT)?;
    if body.len() > super::node::MAX_BODY || key == Key::MAX {
        return malformed(WHAT);
    }
    Ok((key, Some(Item { body: body.to_vec(), block })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::pointer::tests::any_pointer;
    use proptest::prelude::*;

    const ID: FrameId = FrameId { pool: Guid(7), epoch: Epoch(8), sequence: 9 };

    fn any_item() -> impl Strategy<Value = Option<Item>> {
        let block = prop_oneof![
            Just(ItemBlock::None),
            any_pointer().prop_map(ItemBlock::Stored),
            any::<u64>().prop_map(ItemBlock::Logged),
        ];
        let body = prop::collection::vec(any::<u8>(), 0..50);
        prop::option::of((body, block).prop_map(|(body, block)| Item { body, block }))
    }

    fn any_part() -> impl Strategy<Value = Part> {
        let bytes = prop::collection::vec(any::<u8>(), 1..50);
        (any::<u64>(), 0..1000u32, 0..1000u32, bytes).prop_map(|(block, at, behind, bytes)| Part {
            block,
            len: at + bytes.len() as u32 + behind,
            at,
            bytes,
        })
    }

    fn any_entry() -> impl Strategy<Value = Entry> {
        let items = prop::collection::btree_map((any::<u64>(), 0..200u8, any::<u64>()), any_item(), 0..10);
        let parts = prop::collection::vec(any_part(), 0..5);
        (any::<u64>(), 0..Txg::LIMIT.0, 0..3u64, parts, items).prop_map(|(tree, txg, ahead, parts, items)| {
            let key = |(object, kind, offset)| Key::new(object, kind, offset);
            let items = items.into_iter().map(|(at, item)| (key(at), item)).collect();
            Entry { tree, txg: Txg(txg), base: Txg(txg.saturating_sub(ahead)), parts, items }
        })
    }

    #[test]
    fn a_frame_of_another_place_is_not_the_expected_one() {
        let frame = encode_frame(ID, &encode_payload(&[]));
        assert_eq!(frame_len(&frame, ID), Some(frame.len()));
        let others =
            [FrameId { pool: Guid(1), ..ID }, FrameId { epoch: Epoch(1), ..ID }, FrameId { sequence: 10, ..ID }];
        assert!(others.iter().all(|other| frame_len(&frame, *other).is_none()));
        assert_eq!(frame_len(&frame[..FRAME_HEADER - 1], ID), None);
    }

    proptest! {
        #[test]
        fn frames_round_trip_and_every_flipped_bit_is_noticed(
            entries in prop::collection::vec(any_entry(), 0..4), at in any::<prop::sample::Index>(), bit in 0..8u8,
        ) {
            let mut frame = encode_frame(ID, &encode_payload(&entries));
            prop_assert_eq!(frame_len(&frame, ID), Some(frame.len()));
            prop_assert_eq!(decode_frame(&frame), Some(Ok(entries)));
            let at = at.index(frame.len());
            frame[at] ^= 1u8 << bit;
            prop_assert_eq!(decode_frame(&frame), None);
        }

        #[test]
        fn garbage_under_a_good_checksum_never_panics(payload in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut frame = encode_frame(ID, &encode_payload(&[]));
            frame.truncate(CHECKSUM_AT);
            let sum = checksum(&frame, &payload);
            frame.put_bytes(&sum);
            frame.put_bytes(&payload);
            if let Some(Ok(entries)) = decode_frame(&frame) {
                let again = encode_frame(ID, &encode_payload(&entries));
                prop_assert_eq!(decode_frame(&again), Some(Ok(entries)));
            }
        }

        #[test]
        fn heads_round_trip(chunk: u32, sector in 0..u32::MAX / 2, sectors in 1..u32::MAX / 2, at: u32, sequence in 0..u64::MAX / 2) {
            let area = Address { chunk: ChunkId(chunk), sector };
            let head = LogHead { area, sectors, position: at % sectors, sequence };
            let mut bytes = Vec::new();
            head.encode(&mut bytes);
            prop_assert_eq!(LogHead::decode(&mut Reader::new(&bytes)), Ok(head));
            for len in 0..bytes.len() {
                prop_assert!(LogHead::decode(&mut Reader::new(&bytes[..len])).is_err());
            }
        }
    }
}
