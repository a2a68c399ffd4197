//! A checkpoint: the free sectors of one chunk at the end of one transaction group.
//!
//! Coded as free spans or as a bitmap, whichever is shorter, so that it never takes more than an eighth of a byte per
//! sector however fragmented the chunk is. Both the checkpoint and its row of the chunk table name the chunk and the
//! transaction group, and they must agree.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        space::{Span, put_head, put_spans, take_head, take_spans},
    },
    units::{ChunkId, Txg},
};

const MAGIC: &[u8; 4] = b"CnCk";
const SPANS: u8 = 0;
const BITMAP: u8 = 1;
const WHAT: &str = "checkpoint";

/// A chunk's free sectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The chunk; must match the row of the table.
    pub chunk: ChunkId,
    /// The transaction group whose end is described.
    pub described: Txg,
    /// How many sectors the chunk has.
    pub sectors: u32,
    /// The free spans: sorted, disjoint, not adjacent.
    pub free: Vec<Span>,
}

impl Checkpoint {
    /// The coded form: spans or a bitmap, whichever is shorter.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_head(MAGIC, &mut out);
        out.put_varint(u64::from(self.chunk.0));
        out.put_varint(self.described.0);
        out.put_varint(u64::from(self.sectors));
        let mut spans = Vec::new();
        put_spans(&self.free, &mut spans);
        let bitmap_len = self.sectors.div_ceil(8) as usize;
        if spans.len() <= bitmap_len {
            out.put_u8(SPANS);
            out.put_varint(self.free.len() as u64);
            out.put_bytes(&spans);
        } else {
            out.put_u8(BITMAP);
            out.put_bytes(&self.bitmap(bitmap_len));
        }
        out
    }

    /// Decodes a whole checkpoint of a chunk with `sectors` sectors.
    pub fn decode(bytes: &[u8], sectors: u32) -> Result<Checkpoint, Malformed> {
        let mut reader = Reader::new(bytes);
        take_head(MAGIC, &mut reader, WHAT)?;
        let chunk = ChunkId(reader.varint32(WHAT)?);
        let described = Txg(reader.varint(WHAT)?);
        if reader.varint32(WHAT)? != sectors {
            return malformed("checkpoint's size");
        }
        let free = match reader.u8(WHAT)? {
            SPANS => {
                let count = reader.varint(WHAT)?;
                take_spans(count, &mut reader, WHAT)?
            }
            BITMAP => spans_of(reader.bytes(sectors.div_ceil(8) as usize, WHAT)?, sectors),
            _ => return malformed("checkpoint's coding"),
        };
        if free.last().is_some_and(|last| last.end() > sectors) {
            return malformed("checkpoint's spans");
        }
        reader.finish(WHAT)?;
        Ok(Checkpoint { chunk, described, sectors, free })
    }

    fn bitmap(&self, len: usize) -> Vec<u8> {
        let mut bitmap = vec![0u8; len];
        for sector in self.free.iter().flat_map(|span| span.start..span.end()) {
            bitmap[sector as usize / 8] |= 1 << (sector % 8);
        }
        bitmap
    }
}

/// The spans of set bits among the first `sectors`.
fn spans_of(bitmap: &[u8], sectors: u32) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for sector in (0..sectors).filter(|&sector| bitmap[sector as usize / 8] >> (sector % 8) & 1 == 1) {
        match spans.last_mut() {
            Some(last) if last.end() == sector => last.len += 1,
            _ => spans.push(Span::new(sector, 1)),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn round_trips_however_fragmented(bits in prop::collection::vec(any::<u8>(), 1..80), chunk: u32, described: u64) {
            let sectors = bits.len() as u32 * 8 - 3;
            let checkpoint =
                Checkpoint { chunk: ChunkId(chunk), described: Txg(described), sectors, free: spans_of(&bits, sectors) };
            let bytes = checkpoint.encode();
            prop_assert!(bytes.len() <= bits.len() + 32);
            prop_assert_eq!(Checkpoint::decode(&bytes, sectors), Ok(checkpoint));
            prop_assert!(Checkpoint::decode(&bytes, sectors + 1).is_err());
        }

        #[test]
        fn garbage_never_panics(tail in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut bytes = Vec::new();
            put_head(MAGIC, &mut bytes);
            bytes.extend(tail);
            if let Ok(checkpoint) = Checkpoint::decode(&bytes, 100) {
                prop_assert!(checkpoint.free.iter().all(|span| span.len > 0 && span.end() <= 100));
            }
        }
    }
}
