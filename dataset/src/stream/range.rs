//! The record of a range of keys: all items in the range, and the origin of each item's block.
//!
//! A block is *new* (its data follow in a record of its own), *unchanged* (the receiver has had the block under the
//! same key since the base), or *shared* with an unchanged item of the range. Shared blocks occur when an overwrite has
//! cut a file's record: the rest is under a new key, and its block need not be sent again.
//!
//! Invariants, verified on decoding:
//! 1. Keys ascend and lie inside the range.
//! 2. Every new block has an item, and blocks are numbered in the order of their first items.
//! 3. Items that refer to one block are [`near`]: code that frees a block relies on nearness to find the last
//!    reference.
//! 4. A shared block is shared with an unchanged item.

use std::ops;

use pool::{
    block::{checksum::verify, compression::decompress},
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
        node::MAX_BODY,
        pointer::{BlockPointer, Checksum, Compression, MAX_BLOCK},
    },
};

use super::frame::SUM;

/// The facts about a block, known before its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockInfo {
    /// The size of the content, in bytes.
    pub(super) logical: u32,
    /// The size as stored, in bytes.
    pub(super) stored: u32,
    /// The compression of the content.
    pub(super) compression: Compression,
    /// The kind of checksum, in the stream and at the receiver.
    pub(super) checksum: Checksum,
}

/// The origin of an item's block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The item has no block.
    None,
    /// The new block with the given number in the range.
    New(u32),
    /// The receiver's own block under the same key.
    Unchanged,
    /// The block of the unchanged item with the given index.
    Shared(u32),
}

impl Origin {
    /// The number of the new block, if the block is new.
    pub(super) fn new_block(self) -> Option<u32> {
        match self {
            Origin::New(block) => Some(block),
            Origin::None | Origin::Unchanged | Origin::Shared(_) => None,
        }
    }
}

/// An item of a range. The body is in the range's heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) key: Key,
    body: ops::Range<u32>,
    pub(super) origin: Origin,
}

/// All items in a range of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) low: Key,
    pub(super) high: Key,
    /// The new blocks, in the order of their data.
    pub(super) blocks: Vec<BlockInfo>,
    pub(super) items: Vec<Item>,
    heap: Vec<u8>,
}

/// Whether items under two keys may refer to one block with `logical` bytes of content: parts of one record are less
/// than a record apart, and records are aligned to their size.
pub(super) fn near(one: Key, other: Key, logical: u32) -> bool {
    let window = u64::from(MAX_BLOCK);
    (one.object, one.kind) == (other.object, other.kind)
        && one.offset / window == other.offset / window
        && one.offset.abs_diff(other.offset) < u64::from(logical)
}

impl BlockInfo {
    /// The facts about a stored block.
    pub(super) fn of(pointer: &BlockPointer) -> BlockInfo {
        let BlockPointer { logical, stored, compression, checksum_kind: checksum, .. } = *pointer;
        BlockInfo { logical, stored, compression, checksum }
    }

    /// Verifies a block as stored, by its checksum and by decompressing. Returns the content, or `None` if the content
    /// is stored as is; or the problem.
    pub(super) fn verified(self, bytes: &[u8], checksum: &[u8; SUM]) -> Result<Option<Vec<u8>>, String> {
        if !self.is_intact(bytes, checksum) {
            return Err("the checksum of its data does not match".to_owned());
        }
        if self.stored == self.logical {
            return Ok(None);
        }
        let content = decompress(self.compression, bytes, self.logical as usize);
        content.map(Some).map_err(|malformed| malformed.to_string())
    }

    /// Whether a block as stored has the checksum.
    pub(super) fn is_intact(self, bytes: &[u8], checksum: &[u8; SUM]) -> bool {
        verify(if self.checksum == Checksum::Off { Checksum::Blake3 } else { self.checksum }, bytes, checksum)
    }

    fn encode(self, out: &mut Vec<u8>) {
        out.put_u8(self.compression as u8 | (self.checksum as u8) << 4);
        out.put_varint(self.logical.into());
        out.put_varint((self.logical - self.stored).into());
    }

    fn take(reader: &mut Reader<'_>) -> Result<BlockInfo, Malformed> {
        const WHAT: &str = "block of a range";
        let kinds = reader.u8(WHAT)?;
        let compression = match kinds & 0x0f {
            0 => Compression::Off,
            1 => Compression::Lz4,
            2 => Compression::Zstd,
            3 => Compression::Zlib,
            _ => return malformed("compression of a block"),
        };
        let checksum = match kinds >> 4 {
            0 => Checksum::Off,
            1 => Checksum::Blake3,
            2 => Checksum::Xxh3,
            3 => Checksum::Sha256,
            _ => return malformed("checksum kind of a block"),
        };
        let (logical, saved) = (reader.varint32(WHAT)?, reader.varint32(WHAT)?);
        let sizes = (1..=MAX_BLOCK).contains(&logical) && saved < logical;
        if !sizes || (compression == Compression::Off) != (saved == 0) {
            return malformed("sizes of a block");
        }
        Ok(BlockInfo { logical, stored: logical - saved, compression, checksum })
    }
}

const NONE: u8 = 0;
/// The first reference to the next new block.
const NEXT: u8 = 1;
const UNCHANGED: u8 = 2;
/// A new block that an earlier item refers to.
const AGAIN: u8 = 3;
const SHARED: u8 = 4;
/// The object differs from the last key's; kind and offset follow.
const OBJECT: u8 = 8;
/// The kind differs from the last key's; the offset follows.
const KIND: u8 = 16;

impl Range {
    /// A range of keys from `low` to `high`, without items.
    pub(super) fn new(low: Key, high: Key) -> Range {
        Range { low, high, blocks: Vec::new(), items: Vec::new(), heap: Vec::new() }
    }

    /// Appends an item, in key order.
    pub(super) fn push(&mut self, key: Key, body: &[u8], origin: Origin) {
        let start = self.heap.len() as u32;
        self.heap.extend_from_slice(body);
        self.items.push(Item { key, body: start..self.heap.len() as u32, origin });
    }

    /// The body of an item of the range.
    pub(super) fn body(&self, item: &Item) -> &[u8] {
        &self.heap[item.body.start as usize..item.body.end as usize]
    }

    /// The approximate memory of the range, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.heap.len() + self.items.len() * size_of::<Item>() + self.blocks.len() * size_of::<BlockInfo>()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.heap.len() + 8 * self.items.len() + 64);
        put_key(&mut out, self.low);
        put_key(&mut out, self.high);
        out.put_varint(self.blocks.len() as u64);
        self.blocks.iter().for_each(|block| block.encode(&mut out));
        out.put_varint(self.items.len() as u64);
        let (mut last, mut seen) = (self.low, 0);
        for item in &self.items {
            self.encode_item(item, last, &mut seen, &mut out);
            last = item.key;
        }
        out
    }

    fn encode_item(&self, item: &Item, last: Key, seen: &mut u32, out: &mut Vec<u8>) {
        let (origin, number) = match item.origin {
            Origin::None => (NONE, None),
            Origin::Unchanged => (UNCHANGED, None),
            Origin::New(block) if block == *seen => (NEXT, None),
            Origin::New(block) => (AGAIN, Some(block)),
            Origin::Shared(index) => (SHARED, Some(index)),
        };
        *seen += u32::from(origin == NEXT);
        let object = item.key.object != last.object;
        let kind = !object && item.key.kind != last.kind;
        out.put_u8(origin | if object { OBJECT } else { 0 } | if kind { KIND } else { 0 });
        if object {
            out.put_varint(item.key.object - last.object);
        }
        if object || kind {
            out.put_u8(item.key.kind);
            out.put_varint(item.key.offset);
        } else {
            out.put_varint(item.key.offset - last.offset);
        }
        if let Some(number) = number {
            out.put_varint(number.into());
        }
        out.put_prefixed(self.body(item));
    }

    /// Decodes a record. In a full stream no block may be unchanged.
    pub(super) fn decode(payload: &[u8], incremental: bool) -> Result<Range, Malformed> {
        const WHAT: &str = "range";
        let mut reader = Reader::new(payload);
        let mut range = Range::new(take_key(&mut reader)?, take_key(&mut reader)?);
        let blocks = reader.varint(WHAT)?;
        if range.low >= range.high || blocks > reader.remaining() as u64 / 3 {
            return malformed(WHAT);
        }
        for _ in 0..blocks {
            range.blocks.push(BlockInfo::take(&mut reader)?);
        }
        let items = reader.varint(WHAT)?;
        if items > reader.remaining() as u64 / 3 {
            return malformed(WHAT);
        }
        let mut firsts = Vec::with_capacity(range.blocks.len());
        for _ in 0..items {
            range.take_item(&mut reader, &mut firsts)?;
        }
        reader.finish(WHAT)?;
        if firsts.len() != range.blocks.len() {
            return malformed("block of a range without an item");
        }
        range.verify_bases(incremental)?;
        Ok(range)
    }

    /// Decodes an item. `firsts` has the key of the first item of each new block so far.
    fn take_item(&mut self, reader: &mut Reader<'_>, firsts: &mut Vec<Key>) -> Result<(), Malformed> {
        const WHAT: &str = "item of a range";
        let flags = reader.u8(WHAT)?;
        let key = self.take_item_key(flags, reader)?;
        let origin = match flags & 7 {
            NONE => Origin::None,
            NEXT if firsts.len() < self.blocks.len() => {
                firsts.push(key);
                Origin::New(firsts.len() as u32 - 1)
            }
            UNCHANGED => Origin::Unchanged,
            AGAIN => {
                let block = reader.varint32(WHAT)?;
                let first = *firsts.get(block as usize).ok_or(Malformed { what: WHAT })?;
                if !near(first, key, self.blocks[block as usize].logical) {
                    return malformed("distance of items that share a block");
                }
                Origin::New(block)
            }
            SHARED => Origin::Shared(reader.varint32(WHAT)?),
            _ => return malformed(WHAT),
        };
        let body = reader.prefixed(WHAT)?;
        if body.len() > MAX_BODY {
            return malformed("length of an item");
        }
        self.push(key, body, origin);
        Ok(())
    }

    fn take_item_key(&self, flags: u8, reader: &mut Reader<'_>) -> Result<Key, Malformed> {
        const WHAT: &str = "key of an item";
        let (object, kind) = (flags & OBJECT != 0, flags & KIND != 0);
        if flags & !(7 | OBJECT | KIND) != 0 || object && kind {
            return malformed(WHAT);
        }
        let last = self.items.last().map(|item| item.key);
        let from = last.unwrap_or(self.low);
        let skipped = if object { reader.varint(WHAT)? } else { 0 };
        let key_object = from.object.checked_add(skipped).ok_or(Malformed { what: WHAT })?;
        let key = if object || kind {
            Key { object: key_object, kind: reader.u8(WHAT)?, offset: reader.varint(WHAT)? }
        } else {
            let offset = from.offset.checked_add(reader.varint(WHAT)?).ok_or(Malformed { what: WHAT })?;
            Key { offset, ..from }
        };
        let grows = last.is_none_or(|last| key > last);
        if !grows || key < self.low || key >= self.high {
            return malformed("order of the items of a range");
        }
        Ok(key)
    }

    /// Fails if a block refers to the base without a base, or to an item with another block.
    fn verify_bases(&self, incremental: bool) -> Result<(), Malformed> {
        for item in &self.items {
            match item.origin {
                Origin::None | Origin::New(_) => {}
                Origin::Unchanged if incremental => {}
                Origin::Shared(index) => {
                    let other = self.items.get(index as usize).filter(|other| other.origin == Origin::Unchanged);
                    if !other.is_some_and(|other| near(other.key, item.key, MAX_BLOCK)) {
                        return malformed("item that shares a block");
                    }
                }
                Origin::Unchanged => return malformed("unchanged block in a full stream"),
            }
        }
        Ok(())
    }
}

fn put_key(out: &mut Vec<u8>, key: Key) {
    out.put_u64(key.object);
    out.put_u8(key.kind);
    out.put_u64(key.offset);
}

fn take_key(reader: &mut Reader<'_>) -> Result<Key, Malformed> {
    const WHAT: &str = "bounds of a range";
    Ok(Key { object: reader.u64(WHAT)?, kind: reader.u8(WHAT)?, offset: reader.u64(WHAT)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const BLOCK: BlockInfo =
        BlockInfo { logical: 4096, stored: 700, compression: Compression::Lz4, checksum: Checksum::Blake3 };

    /// Items with every origin: a number selects one of the possible origins.
    fn range(items: BTreeMap<(u64, u8, u64), (Vec<u8>, u8)>) -> Range {
        let mut range = Range::new(Key::new(1, 0, 5), Key::new(9, 3, 0));
        let mut unchanged: Option<u32> = None;
        let mut first = None;
        for ((object, kind, offset), (body, choice)) in items {
            let key = Key::new(object, kind, offset);
            let shares = unchanged.filter(|index| near(range.items[*index as usize].key, key, 4096));
            let origin = match (choice % 5, shares, first) {
                (1, ..) => {
                    range.blocks.push(BLOCK);
                    first = Some((range.blocks.len() as u32 - 1, key));
                    Origin::New(range.blocks.len() as u32 - 1)
                }
                (2, ..) => Origin::Unchanged,
                (3, _, Some((block, other))) if near(other, key, 4096) => Origin::New(block),
                (4, Some(index), _) => Origin::Shared(index),
                _ => Origin::None,
            };
            if origin == Origin::Unchanged {
                unchanged = Some(range.items.len() as u32);
            }
            range.push(key, &body, origin);
        }
        range
    }

    fn any_range() -> impl Strategy<Value = Range> {
        let key = (2u64..9, 0u8..3, prop_oneof![0u64..9, 0u64..9000, any::<u64>()]);
        let item = (prop::collection::vec(any::<u8>(), 0..30), any::<u8>());
        prop::collection::btree_map(key, item, 0..40).prop_map(range)
    }

    proptest! {
        #[test]
        fn ranges_round_trip(range in any_range()) {
            prop_assert_eq!(Range::decode(&range.encode(), true), Ok(range));
        }

        #[test]
        fn damage_is_refused_or_keeps_the_invariants(range in any_range(), at: prop::sample::Index, flip in 1u8..) {
            let mut bytes = range.encode();
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            if let Ok(range) = Range::decode(&bytes, true) {
                prop_assert!(range.items.is_sorted_by(|one, next| one.key < next.key));
                prop_assert!(range.items.iter().all(|item| range.low <= item.key && item.key < range.high));
                prop_assert_eq!(Range::decode(&range.encode(), true), Ok(range));
            }
            bytes.truncate(at);
            prop_assert!(Range::decode(&bytes, true).is_err());
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = Range::decode(&bytes, true);
        }
    }

    #[test]
    fn a_full_stream_has_nothing_unchanged() {
        let mut range = Range::new(Key::MIN, Key::MAX);
        range.push(Key::new(1, 1, 1), b"", Origin::Unchanged);
        assert!(Range::decode(&range.encode(), false).is_err());
        assert!(Range::decode(&range.encode(), true).is_ok());
    }

    #[test]
    fn items_of_two_files_cannot_share_a_block() {
        let mut range = Range::new(Key::MIN, Key::MAX);
        range.blocks.push(BLOCK);
        range.push(Key::new(1, 1, 0), b"", Origin::New(0));
        range.push(Key::new(2, 1, 0), b"", Origin::New(0));
        assert_eq!(Range::decode(&range.encode(), true), malformed("distance of items that share a block"));
    }
}
