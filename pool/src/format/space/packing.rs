//! The map of a packed chunk: the places of its blocks in other chunks, its *hosts*.
//!
//! The map may still have entries for sectors freed later: as for all chunks, the checkpoint and the log tell the
//! allocated sectors. The map is written when the chunk is packed, and again when some of its blocks move.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        pointer::Address,
        space::{Span, put_head, take_head},
    },
    units::ChunkId,
};

const MAGIC: &[u8; 4] = b"CnPk";
const WHAT: &str = "map of a packed chunk";
/// The fewest bytes of an entry.
const LEAST: usize = 4;

/// Sectors that are consecutive in a packed chunk and in its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The sectors in the packed chunk: of one block, or of several consecutive ones.
    pub span: Span,
    /// The first sector in the host.
    pub host: Address,
}

/// Where a packed chunk's sectors are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedMap {
    /// The packed chunk; must match the row of the table.
    pub chunk: ChunkId,
    /// How many sectors the chunk has.
    pub sectors: u32,
    /// In order and disjoint; each inside the chunk.
    pub entries: Vec<Entry>,
}

impl PackedMap {
    /// The coded form, without padding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_head(MAGIC, &mut out);
        out.put_varint(u64::from(self.chunk.0));
        out.put_varint(u64::from(self.sectors));
        put_entries(&self.entries, &mut out);
        out
    }

    /// Decodes a whole map of a chunk with `sectors` sectors.
    pub fn decode(bytes: &[u8], sectors: u32) -> Result<PackedMap, Malformed> {
        let mut reader = Reader::new(bytes);
        take_head(MAGIC, &mut reader, WHAT)?;
        let chunk = ChunkId(reader.varint32(WHAT)?);
        if reader.varint32(WHAT)? != sectors {
            return malformed("packed chunk's size");
        }
        let entries = take_entries(sectors, &mut reader)?;
        reader.finish(WHAT)?;
        Ok(PackedMap { chunk, sectors, entries })
    }
}

/// Appends the coded form of entries, which are in order and disjoint.
pub(super) fn put_entries(entries: &[Entry], out: &mut impl Writer) {
    out.put_varint(entries.len() as u64);
    let mut end = 0;
    for Entry { span, host } in entries {
        out.put_varint(u64::from(span.start - end));
        out.put_varint(u64::from(span.len));
        out.put_varint(u64::from(host.chunk.0));
        out.put_varint(u64::from(host.sector));
        end = span.end();
    }
}

/// Takes entries in a chunk of so many sectors off the reader.
pub(super) fn take_entries(sectors: u32, reader: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
    let count = reader.varint(WHAT)?;
    if count > (reader.remaining() / LEAST) as u64 {
        return malformed(WHAT);
    }
    let mut entries = Vec::with_capacity(count as usize);
    let mut end = 0;
    for _ in 0..count {
        let entry = take_entry(end, reader)?;
        end = entry.span.end();
        entries.push(entry);
    }
    if end > sectors {
        return malformed("packed chunk's entries");
    }
    Ok(entries)
}

/// The next entry after one that ends at `end`.
fn take_entry(end: u32, reader: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let start = end.checked_add(reader.varint32(WHAT)?).ok_or(Malformed { what: WHAT })?;
    let len = reader.varint32(WHAT)?;
    if len == 0 || start.checked_add(len).is_none() {
        return malformed(WHAT);
    }
    let host = Address { chunk: ChunkId(reader.varint32(WHAT)?), sector: reader.varint32(WHAT)? };
    Ok(Entry { span: Span::new(start, len), host })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Entries in order, with gaps.
    pub(in crate::format::space) fn any_entries() -> impl Strategy<Value = Vec<Entry>> {
        prop::collection::vec((0u32..300, 1u32..300, any::<u32>(), any::<u32>()), 0..9).prop_map(|all| {
            let mut end = 0;
            let entry = |(gap, len, chunk, sector): (u32, u32, u32, u32)| {
                let span = Span::new(end + gap, len);
                end = span.end();
                Entry { span, host: Address { chunk: ChunkId(chunk), sector } }
            };
            all.into_iter().map(entry).collect()
        })
    }

    proptest! {
        #[test]
        fn round_trips_and_keeps_inside_its_chunk(chunk: u32, entries in any_entries()) {
            let end = entries.last().map_or(0, |entry| entry.span.end());
            let map = |sectors| PackedMap { chunk: ChunkId(chunk), sectors, entries: entries.clone() };
            prop_assert_eq!(PackedMap::decode(&map(end).encode(), end), Ok(map(end)));
            prop_assert!(PackedMap::decode(&map(end).encode(), end + 1).is_err());
            if end > 0 {
                prop_assert!(PackedMap::decode(&map(end - 1).encode(), end - 1).is_err());
            }
        }

        #[test]
        fn garbage_never_panics(tail in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = Vec::new();
            put_head(MAGIC, &mut bytes);
            bytes.extend(tail);
            if let Ok(map) = PackedMap::decode(&bytes, 100) {
                prop_assert!(map.entries.windows(2).all(|pair| pair[0].span.end() <= pair[1].span.start));
                prop_assert!(map.entries.iter().all(|entry| entry.span.len > 0 && entry.span.end() <= 100));
            }
        }
    }
}
