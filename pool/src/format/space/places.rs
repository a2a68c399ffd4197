//! The places of a chunk with blocks on archives: the *second places* of its sectors, and for a packed chunk also the
//! places of the sectors themselves.
//!
//! A chunk on a region allocates its freed sectors again, and an archive's freed sectors are used again piece by piece.
//! So stored places must never be taken for those of later blocks in the same sectors. They say *since* which group the
//! frees of the space log apply to them; the log keeps all frees from this group on that the places still lack.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        space::{
            packing::{Entry, put_entries, take_entries},
            put_head, take_head,
        },
    },
    units::{ChunkId, Txg},
};

const MAGIC: &[u8; 4] = b"CnPl";
const WHAT: &str = "places of a chunk";

/// Where a chunk's sectors have second places, and where the sectors of a packed chunk are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// The chunk; must match the row of the table.
    pub chunk: ChunkId,
    /// How many sectors the chunk has.
    pub sectors: u32,
    /// The transaction group in which the places were written: its frees and later ones apply on top.
    pub since: Txg,
    /// Where the sectors of a packed chunk are: in order and disjoint, each inside the chunk. Else none.
    pub homes: Vec<Entry>,
    /// The second places of sectors, on archives: in order and disjoint, each inside the chunk.
    pub seconds: Vec<Entry>,
}

impl Places {
    /// The coded form, without padding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_head(MAGIC, &mut out);
        out.put_varint(u64::from(self.chunk.0));
        out.put_varint(u64::from(self.sectors));
        out.put_varint(self.since.0);
        put_entries(&self.homes, &mut out);
        put_entries(&self.seconds, &mut out);
        out
    }

    /// Decodes the places of a chunk with `sectors` sectors.
    pub fn decode(bytes: &[u8], sectors: u32) -> Result<Places, Malformed> {
        let mut reader = Reader::new(bytes);
        take_head(MAGIC, &mut reader, WHAT)?;
        let chunk = ChunkId(reader.varint32(WHAT)?);
        if reader.varint32(WHAT)? != sectors {
            return malformed("chunk's size");
        }
        let since = Txg(reader.varint(WHAT)?);
        let homes = take_entries(sectors, &mut reader)?;
        let seconds = take_entries(sectors, &mut reader)?;
        reader.finish(WHAT)?;
        if since >= Txg::LIMIT {
            return malformed(WHAT);
        }
        Ok(Places { chunk, sectors, since, homes, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::space::packing::tests::any_entries;
    use proptest::prelude::*;

    fn any_places() -> impl Strategy<Value = Places> {
        (any::<u32>(), 0..Txg::LIMIT.0, any_entries(), any_entries()).prop_map(|(chunk, since, homes, seconds)| {
            let end = |entries: &[Entry]| entries.last().map_or(0, |entry| entry.span.end());
            let sectors = end(&homes).max(end(&seconds));
            Places { chunk: ChunkId(chunk), sectors, since: Txg(since), homes, seconds }
        })
    }

    proptest! {
        #[test]
        fn round_trips_and_keeps_inside_its_chunk(places in any_places()) {
            let sectors = places.sectors;
            prop_assert_eq!(Places::decode(&places.encode(), sectors), Ok(places.clone()));
            prop_assert!(Places::decode(&places.encode(), sectors + 1).is_err());
            if sectors > 0 {
                let less = Places { sectors: sectors - 1, ..places.clone() };
                prop_assert!(Places::decode(&less.encode(), sectors - 1).is_err());
            }
            let mut longer = places.encode();
            longer.put_u8(0);
            prop_assert!(Places::decode(&longer, sectors).is_err());
            let late = Places { since: Txg::LIMIT, ..places };
            prop_assert!(Places::decode(&late.encode(), sectors).is_err());
        }

        #[test]
        fn garbage_never_panics(tail in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = Vec::new();
            put_head(MAGIC, &mut bytes);
            bytes.extend(tail);
            if let Ok(Places { homes, seconds, .. }) = Places::decode(&bytes, 100) {
                for entries in [homes, seconds] {
                    prop_assert!(entries.windows(2).all(|pair| pair[0].span.end() <= pair[1].span.start));
                    prop_assert!(entries.iter().all(|entry| entry.span.len > 0 && entry.span.end() <= 100));
                }
            }
        }
    }
}
