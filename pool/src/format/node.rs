//! A tree node as bytes.
//!
//! A node names its range of keys, so a node read through a wrong pointer is detected, and two versions of a tree can
//! be compared by their nodes alone. Items are sorted; each key is coded against the previous one. The block pointer to
//! a node holds its checksum. See `pool/FORMAT.md`, "Tree node".
//!
//! Invariants, verified by [`NodeReader`] before the content is believed:
//! 1. `low < high`, and every key lies in `[low, high)`.
//! 2. Keys grow strictly. The first key of an interior node is `low` itself, and each child covers the range up to the
//!    next key, the last up to `high`.
//! 3. An interior node has at least one child; its level is one more than its children's. A leaf has level 0.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        key::Key,
        pointer::{BlockPointer, MAX_POINTER},
    },
    units::Txg,
};

/// The size at which nodes are split, in bytes before compression.
pub const NODE_TARGET: usize = 32 << 10;
/// The largest node, in bytes before compression.
pub const NODE_MAX: usize = 64 << 10;
/// The longest body of an item, in bytes.
pub const MAX_BODY: usize = 12 << 10;
/// The greatest depth of a tree: 2^64 items at four a node would fit.
pub const MAX_LEVEL: u8 = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"CNod");
const VERSION: u8 = 1;
/// The longest header: magic, version, level, txg, two keys, count.
const MAX_HEADER: usize = 4 + 1 + 1 + 8 + 2 * 17 + 5;
/// The longest coded key, with its prefix byte.
const MAX_KEY: usize = 1 + 10 + 1 + 10;

/// The most bytes of an item in a node.
pub const fn item_bound(body: usize, block: bool) -> usize {
    MAX_KEY + 4 + body + if block { MAX_POINTER } else { 0 }
}

/// The part of a node before the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The level, 0 for a leaf.
    pub level: u8,
    /// The transaction group that wrote the node.
    pub txg: Txg,
    /// The first key of its range.
    pub low: Key,
    /// The exclusive end of its range.
    pub high: Key,
    /// The number of items or children.
    pub count: u32,
}

fn put_key(out: &mut Vec<u8>, key: Key) {
    out.put_u64(key.object);
    out.put_u8(key.kind);
    out.put_u64(key.offset);
}

fn read_key(reader: &mut Reader<'_>) -> Result<Key, Malformed> {
    const WHAT: &str = "node's range";
    Ok(Key { object: reader.u64(WHAT)?, kind: reader.u8(WHAT)?, offset: reader.u64(WHAT)? })
}

/// Codes a node, item by item.
#[derive(Debug)]
pub struct NodeWriter {
    out: Vec<u8>,
    last: Key,
}

impl NodeWriter {
    /// Starts a node. `count` items or children must follow.
    pub fn new(header: &Header) -> NodeWriter {
        let mut out = Vec::with_capacity(NODE_TARGET);
        out.put_u32(MAGIC);
        out.put_u8(VERSION);
        out.put_u8(header.level);
        out.put_u64(header.txg.0);
        put_key(&mut out, header.low);
        put_key(&mut out, header.high);
        out.put_varint(header.count.into());
        NodeWriter { out, last: header.low }
    }

    /// A leaf's item. `block` is the coded pointer, or empty.
    pub fn item(&mut self, key: Key, body: &[u8], block: &[u8]) {
        let has_block = u8::from(!block.is_empty());
        self.key(key, has_block);
        self.out.put_varint(body.len() as u64);
        self.out.put_bytes(body);
        self.out.put_bytes(block);
    }

    /// An interior node's child and the first key of its range.
    pub fn child(&mut self, low: Key, pointer: &BlockPointer) {
        self.key(low, 1);
        pointer.encode(&mut self.out);
    }

    /// The coded node, at most [`NODE_MAX`] bytes.
    pub fn finish(self) -> Vec<u8> {
        debug_assert!(self.out.len() <= NODE_MAX);
        self.out
    }

    /// Codes a key against the previous one: a flag byte (bit 0: a block follows; bit 1: another object; bit 2: another
    /// kind), then the differing fields. Within one object and kind the offset is the distance from the last.
    fn key(&mut self, key: Key, has_block: u8) {
        let (object, kind) = (key.object != self.last.object, key.kind != self.last.kind);
        let kind = kind || object;
        self.out.put_u8(has_block | u8::from(object) << 1 | u8::from(kind) << 2);
        if object {
            self.out.put_varint(key.object - self.last.object);
        }
        if kind {
            self.out.put_u8(key.kind);
            self.out.put_varint(key.offset);
        } else {
            self.out.put_varint(key.offset - self.last.offset);
        }
        self.last = key;
    }
}

/// An item of a leaf in coded form.
#[derive(Clone, Copy, Debug)]
pub struct RawItem<'a> {
    /// The key, unique in its tree.
    pub key: Key,
    /// The item's body, at most [`MAX_BODY`] bytes.
    pub body: &'a [u8],
    /// The coded block pointer, already verified; empty if there is none.
    pub block: &'a [u8],
}

/// Decodes a node, verifying each field.
#[derive(Debug)]
pub struct NodeReader<'a> {
    header: Header,
    reader: Reader<'a>,
    last: Option<Key>,
}

impl<'a> NodeReader<'a> {
    /// Reads and verifies the header.
    pub fn new(bytes: &'a [u8]) -> Result<NodeReader<'a>, Malformed> {
        const WHAT: &str = "node's header";
        let mut reader = Reader::new(bytes);
        if reader.u32(WHAT)? != MAGIC {
            return malformed("node's magic");
        }
        if reader.u8(WHAT)? != VERSION {
            return malformed("node's version");
        }
        let level = reader.u8(WHAT)?;
        let txg = Txg(reader.u64(WHAT)?);
        let (low, high) = (read_key(&mut reader)?, read_key(&mut reader)?);
        let count = reader.varint32(WHAT)?;
        if level > MAX_LEVEL || low >= high || count as usize > reader.remaining() || (level > 0 && count == 0) {
            return malformed(WHAT);
        }
        Ok(NodeReader { header: Header { level, txg, low, high, count }, reader, last: None })
    }

    /// The verified header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next item of a leaf. To be called `count` times, then [`NodeReader::finish`].
    pub fn item(&mut self) -> Result<RawItem<'a>, Malformed> {
        const WHAT: &str = "node's item";
        let (key, has_block) = self.key()?;
        let body = self.reader.prefixed(WHAT)?;
        if body.len() > MAX_BODY {
            return malformed(WHAT);
        }
        let rest = self.reader.rest();
        if has_block {
            BlockPointer::decode(&mut self.reader)?;
        }
        let block = &rest[..rest.len() - self.reader.remaining()];
        Ok(RawItem { key, body, block })
    }

    /// The next child of an interior node. To be called `count` times, then [`NodeReader::finish`].
    pub fn child(&mut self) -> Result<(Key, BlockPointer), Malformed> {
        let first = self.last.is_none();
        let (key, has_block) = self.key()?;
        if !has_block || first && key != self.header.low {
            return malformed("node's child");
        }
        Ok((key, BlockPointer::decode(&mut self.reader)?))
    }

    /// Verifies that no bytes are left over.
    pub fn finish(self) -> Result<(), Malformed> {
        self.reader.finish("node's end")
    }

    fn key(&mut self) -> Result<(Key, bool), Malformed> {
        const WHAT: &str = "node's key";
        let last = self.last.unwrap_or(self.header.low);
        let flags = self.reader.u8(WHAT)?;
        let (object, kind) = (flags & 2 != 0, flags & 4 != 0);
        if flags & !7 != 0 || object && !kind {
            return malformed(WHAT);
        }
        let skipped = if object { self.reader.varint(WHAT)? } else { 0 };
        let object = last.object.checked_add(skipped).ok_or(Malformed { what: WHAT })?;
        let key = if kind {
            Key { object, kind: self.reader.u8(WHAT)?, offset: self.reader.varint(WHAT)? }
        } else {
            let offset = last.offset.checked_add(self.reader.varint(WHAT)?).ok_or(Malformed { what: WHAT })?;
            Key { object, kind: last.kind, offset }
        };
        let grows = self.last.is_none_or(|last| key > last);
        if !grows || key < self.header.low || key >= self.header.high {
            return malformed("node's order");
        }
        self.last = Some(key);
        Ok((key, flags & 1 != 0))
    }
}

const _: () = assert!(MAX_HEADER + 2 * item_bound(MAX_BODY, true) <= NODE_TARGET);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    type Items = BTreeMap<(u64, u8, u64), Vec<u8>>;

    fn coded(items: &Items) -> Vec<u8> {
        let header = Header { level: 0, txg: Txg(7), low: Key::MIN, high: Key::MAX, count: items.len() as u32 };
        let mut writer = NodeWriter::new(&header);
        for (&(object, kind, offset), body) in items {
            writer.item(Key::new(object, kind, offset), body, &[]);
        }
        writer.finish()
    }

    fn decoded(bytes: &[u8]) -> Result<Items, Malformed> {
        let mut reader = NodeReader::new(bytes)?;
        let mut items = BTreeMap::new();
        for _ in 0..reader.header().count {
            let item = reader.item()?;
            items.insert((item.key.object, item.key.kind, item.key.offset), item.body.to_vec());
        }
        reader.finish()?;
        Ok(items)
    }

    proptest! {
        #[test]
        fn a_leaf_round_trips(items in prop::collection::btree_map(
            (0u64..9, 0u8..3, prop_oneof![0u64..9, any::<u64>()]), prop::collection::vec(any::<u8>(), 0..40), 0..40)) {
            let mut items = items;
            items.remove(&(u64::MAX, u8::MAX, u64::MAX));
            prop_assert_eq!(decoded(&coded(&items)), Ok(items));
        }

        #[test]
        fn a_flipped_byte_never_panics_and_never_breaks_the_order(
            items in prop::collection::btree_map((0u64..9, 0u8..3, 0u64..9), prop::collection::vec(any::<u8>(), 0..9), 1..20),
            at: prop::sample::Index, flip in 1u8..) {
            let mut bytes = coded(&items);
            let at = at.index(bytes.len());
            bytes[at] ^= flip;
            let _ = decoded(&bytes);
            bytes.truncate(at);
            prop_assert!(decoded(&bytes).is_err());
        }
    }
}
