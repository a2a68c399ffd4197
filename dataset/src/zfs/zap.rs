//! ZAP objects: maps from names to numbers, which hold directories and tables.
//!
//! A small map, *micro*, is one block of entries of 64 bytes. A larger one, *fat*, has a header block, a table of
//! pointers, and leaf blocks whose chunks of 24 bytes form chains. Only entries are read, in the order of the leaves:
//! a look-up by hash is never needed. Numbers of structures are in the sender's byte order, values of fat maps
//! big-endian always.
//!
//! Blocks come from a callback, one at a time, so a map of any size takes little memory. A chain ends after as many
//! chunks as its block has; a leaf is visited once; so no forged map holds the reader up.

use std::collections::HashSet;

use pool::format::codec::Malformed;

use super::fields::{Fields, Order};

pub(super) const MICRO: u64 = 0x8000_0000_0000_0003;
pub(super) const FAT: u64 = 0x8000_0000_0000_0001;
pub(super) const LEAF: u64 = 0x8000_0000_0000_0000;
pub(super) const FAT_MAGIC: u64 = 0x2_f52a_b2ab;
pub(super) const LEAF_MAGIC: u32 = 0x2ab_1eaf;
const BAD: Malformed = Malformed { what: "ZAP object" };

pub(super) const MICRO_ENTRY: usize = 64;
pub(super) const CHUNK: usize = 24;
pub(super) const CHUNK_ENTRY: u8 = 252;
pub(super) const CHUNK_ARRAY: u8 = 251;
pub(super) const CHUNK_BYTES: usize = 21;
pub(super) const END_OF_CHAIN: u16 = 0xffff;
const FLAG_NUMBER_KEYS: u64 = 2;

/// One entry of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    /// The values, each extended to 64 bits.
    pub(super) values: Vec<u64>,
}

impl Entry {
    /// The only value of the entry.
    pub(super) fn value(&self) -> Result<u64, Malformed> {
        match self.values[..] {
            [value] => Ok(value),
            _ => Err(BAD),
        }
    }
}

/// A block of a map, with the byte order of its sender. A block that is missing is empty.
pub(super) struct Page {
    pub(super) bytes: Vec<u8>,
    pub(super) order: Order,
}

/// Calls `each` with all entries of the map whose blocks have `block` bytes; `read` returns the block at an offset.
pub(super) fn entries<E: From<Malformed>>(
    block: u64,
    read: &mut dyn FnMut(u64) -> Result<Option<Page>, E>,
    each: &mut dyn FnMut(Entry) -> Result<(), E>,
) -> Result<(), E> {
    let Some(head) = read(0)? else { return Err(BAD.into()) };
    let fields = Fields::new(&head.bytes, head.order, BAD.what);
    match fields.u64(0)? {
        MICRO => micro(&fields, each),
        FAT => fat(&fields, block, read, each),
        _ => Err(BAD.into()),
    }
}

fn micro<E: From<Malformed>>(fields: &Fields<'_>, each: &mut dyn FnMut(Entry) -> Result<(), E>) -> Result<(), E> {
    const NAME_AT: usize = 14;
    for at in (MICRO_ENTRY..fields.len()).step_by(MICRO_ENTRY) {
        let name = fields.text(at + NAME_AT, MICRO_ENTRY - NAME_AT)?;
        if !name.is_empty() {
            each(Entry { name: name.to_vec(), values: vec![fields.u64(at)?] })?;
        }
    }
    Ok(())
}

fn fat<E: From<Malformed>>(
    head: &Fields<'_>,
    block: u64,
    read: &mut dyn FnMut(u64) -> Result<Option<Page>, E>,
    each: &mut dyn FnMut(Entry) -> Result<(), E>,
) -> Result<(), E> {
    let number_keys = head.u64(96)? & FLAG_NUMBER_KEYS != 0;
    if head.u64(8)? != FAT_MAGIC || head.len() as u64 != block || !block.is_power_of_two() || number_keys {
        return Err(BAD.into());
    }
    let (table, count) = (head.u64(16)?, head.u64(24)?);
    let mut seen = HashSet::new();
    let mut entries = 0;
    let mut leaf = |number: u64, read: &mut dyn FnMut(u64) -> Result<Option<Page>, E>| {
        if number == 0 || !seen.insert(number) {
            return Ok(());
        }
        let at = number.checked_mul(block).ok_or(BAD)?;
        let page = read(at)?.ok_or(BAD)?;
        let fields = Fields::new(&page.bytes, page.order, BAD.what);
        entries += self::leaf(&fields, each)?;
        Ok::<(), E>(())
    };
    if count == 0 {
        for at in (head.len() / 2..head.len()).step_by(8) {
            leaf(head.u64(at)?, read)?;
        }
    } else {
        for index in 0..count {
            let at = table.checked_add(index).and_then(|number| number.checked_mul(block)).ok_or(BAD)?;
            let page = read(at)?.ok_or(BAD)?;
            let fields = Fields::new(&page.bytes, page.order, BAD.what);
            for at in (0..fields.len()).step_by(8) {
                leaf(fields.u64(at)?, read)?;
            }
        }
    }
    if entries == head.u64(72)? { Ok(()) } else { Err(BAD.into()) }
}

/// Reads the entries of a leaf, and returns their number.
fn leaf<E: From<Malformed>>(fields: &Fields<'_>, each: &mut dyn FnMut(Entry) -> Result<(), E>) -> Result<u64, E> {
    let size = fields.len();
    if fields.u64(0)? != LEAF || fields.u32(24)? != LEAF_MAGIC || size < 1 << 9 {
        return Err(BAD.into());
    }
    let leaf = Leaf { fields, chunks_at: 48 + size / 16, chunks: (size - size / 16) / CHUNK - 2 };
    let mut count = 0;
    for chunk in 0..leaf.chunks {
        let at = leaf.chunks_at + chunk * CHUNK;
        if fields.u8(at)? == CHUNK_ENTRY {
            each(leaf.entry(at)?)?;
            count += 1;
        }
    }
    Ok(count)
}

struct Leaf<'a> {
    fields: &'a Fields<'a>,
    chunks_at: usize,
    chunks: usize,
}

impl Leaf<'_> {
    fn entry(&self, at: usize) -> Result<Entry, Malformed> {
        let fields = self.fields;
        let width = usize::from(fields.u8(at + 1)?);
        let (name_at, name_len) = (fields.u16(at + 4)?, usize::from(fields.u16(at + 6)?));
        let (value_at, count) = (fields.u16(at + 8)?, usize::from(fields.u16(at + 10)?));
        if !matches!(width, 1 | 2 | 4 | 8) || name_len == 0 {
            return Err(BAD);
        }
        let mut name = self.chain(name_at, name_len)?;
        if name.pop() != Some(0) || name.contains(&0) {
            return Err(BAD);
        }
        let values = self.chain(value_at, count * width)?;
        let extend = |value: &[u8]| value.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        Ok(Entry { name, values: values.chunks(width).map(extend).collect() })
    }

    /// The first `len` bytes of a chain of chunks.
    fn chain(&self, mut chunk: u16, len: usize) -> Result<Vec<u8>, Malformed> {
        if len > self.chunks * CHUNK_BYTES {
            return Err(BAD);
        }
        let mut bytes = Vec::with_capacity(len);
        while bytes.len() < len {
            let at = self.chunks_at + usize::from(chunk) * CHUNK;
            let known = chunk != END_OF_CHAIN && usize::from(chunk) < self.chunks;
            if !known || self.fields.u8(at)? != CHUNK_ARRAY {
                return Err(BAD);
            }
            let part = self.fields.bytes(at + 1, CHUNK_BYTES.min(len - bytes.len()))?;
            bytes.extend_from_slice(part);
            chunk = self.fields.u16(at + 1 + CHUNK_BYTES)?;
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn listed(block: u64, bytes: &[u8]) -> Result<Vec<Entry>, Malformed> {
        let mut all = Vec::new();
        let mut read = |at: u64| {
            let page = bytes.get(at as usize..).filter(|rest| !rest.is_empty());
            Ok::<_, Malformed>(
                page.map(|rest| Page { bytes: rest[..rest.len().min(block as usize)].to_vec(), order: Order::Little }),
            )
        };
        entries(block, &mut read, &mut |entry| {
            all.push(entry);
            Ok(())
        })?;
        Ok(all)
    }

    #[test]
    fn a_micro_map_lists_its_used_entries() {
        let mut bytes = vec![0; 512];
        bytes[..8].copy_from_slice(&MICRO.to_le_bytes());
        bytes[128..136].copy_from_slice(&77u64.to_le_bytes());
        bytes[142..146].copy_from_slice(b"name");
        assert_eq!(listed(512, &bytes), Ok(vec![Entry { name: b"name".to_vec(), values: vec![77] }]));
    }

    /// A fat map with one leaf and one entry, whose name's chain begins at the given chunk.
    fn fat_map(name_chunk: u16) -> Vec<u8> {
        let block = 1024usize;
        let mut bytes = vec![0; 2 * block];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0, &FAT.to_le_bytes());
        put(8, &FAT_MAGIC.to_le_bytes());
        put(72, &1u64.to_le_bytes());
        for at in (block / 2..block).step_by(8) {
            put(at, &1u64.to_le_bytes());
        }
        put(block, &LEAF.to_le_bytes());
        put(block + 24, &LEAF_MAGIC.to_le_bytes());
        let chunk = |number: usize| block + 48 + block / 16 + number * CHUNK;
        put(chunk(0), &[CHUNK_ENTRY, 8]);
        put(chunk(0) + 4, &name_chunk.to_le_bytes());
        put(chunk(0) + 6, &3u16.to_le_bytes());
        put(chunk(0) + 8, &2u16.to_le_bytes());
        put(chunk(0) + 10, &1u16.to_le_bytes());
        put(chunk(1), b"\xfbab\0");
        put(chunk(1) + 22, &END_OF_CHAIN.to_le_bytes());
        put(chunk(2), &[CHUNK_ARRAY, 0, 0, 0, 0, 0, 0, 0, 9]);
        put(chunk(2) + 22, &END_OF_CHAIN.to_le_bytes());
        bytes
    }

    #[test]
    fn a_fat_map_lists_each_leaf_once() {
        assert_eq!(listed(1024, &fat_map(1)), Ok(vec![Entry { name: b"ab".to_vec(), values: vec![9] }]));
        assert_eq!(listed(1024, &fat_map(0)), Err(BAD));
        assert_eq!(listed(1024, &fat_map(9999)), Err(BAD));
    }

    proptest! {
        #[test]
        fn false_bytes_never_panic(at in 0usize..2048, byte: u8, cut in 0usize..2048) {
            let mut bytes = fat_map(1);
            bytes[at] = byte;
            let _ = listed(1024, &bytes);
            let _ = listed(1024, &bytes[..cut]);
            bytes[..8].copy_from_slice(&MICRO.to_le_bytes());
            let _ = listed(1024, &bytes);
        }
    }
}
