//! The space log: per transaction group, the allocations and frees in each chunk.
//!
//! The *changes* of a transaction group are coded as one run of bytes, cut into as many blocks as needed. Each block
//! points to the previous one, across transaction groups, so the log is read from its newest block backwards. In one
//! group no sector is freed and then allocated, so the allocations of a chunk apply first and the frees after them.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        space::{MAX_PHYSICAL_POINTER, PhysicalPointer, Span, put_head, put_spans, take_head, take_spans},
    },
    units::{ChunkId, Txg},
};

/// The most bytes of a block before its piece of the changes.
pub const MAX_LOG_HEAD: usize = 4 + 1 + 10 + 5 + MAX_PHYSICAL_POINTER + 5;

const MAGIC: &[u8; 4] = b"CnLg";

/// One block of the log. Zeros may follow, up to the space allocated for the block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// The transaction group whose changes the block holds.
    pub txg: Txg,
    /// The block's index among its group's blocks, from zero.
    pub part: u32,
    /// The previous block: the part before, or the last part of an older transaction group.
    pub previous: Option<PhysicalPointer>,
    /// A piece of the coded changes.
    pub piece: Vec<u8>,
}

impl LogBlock {
    /// The coded form, without padding.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_LOG_HEAD + self.piece.len());
        put_head(MAGIC, &mut out);
        out.put_varint(self.txg.0);
        out.put_varint(u64::from(self.part));
        PhysicalPointer::encode_option(self.previous.as_ref(), &mut out);
        out.put_prefixed(&self.piece);
        out
    }

    /// Decodes a block; the bytes behind the block are padding.
    pub fn decode(bytes: &[u8]) -> Result<LogBlock, Malformed> {
        const WHAT: &str = "space log block";
        let mut reader = Reader::new(bytes);
        take_head(MAGIC, &mut reader, WHAT)?;
        Ok(LogBlock {
            txg: Txg(reader.varint(WHAT)?),
            part: reader.varint32(WHAT)?,
            previous: PhysicalPointer::decode_option(&mut reader)?,
            piece: reader.prefixed(WHAT)?.to_vec(),
        })
    }
}

/// The changes of one chunk in one transaction group; both lists sorted and disjoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkChanges {
    /// The changed chunk.
    pub chunk: ChunkId,
    /// The allocated spans.
    pub allocated: Vec<Span>,
    /// The spans freed in the group.
    pub freed: Vec<Span>,
}

/// Codes the changes of a transaction group, sorted by chunk.
pub fn encode_changes(changes: &[ChunkChanges]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut next = 0;
    for change in changes {
        out.put_varint(u64::from(change.chunk.0 - next));
        next = change.chunk.0 + 1;
        for spans in [&change.allocated, &change.freed] {
            out.put_varint(spans.len() as u64);
            put_spans(spans, &mut out);
        }
    }
    out
}

/// Decodes the changes of a transaction group.
pub fn decode_changes(bytes: &[u8]) -> Result<Vec<ChunkChanges>, Malformed> {
    const WHAT: &str = "space log entry";
    let mut reader = Reader::new(bytes);
    let mut changes = Vec::new();
    let mut next = 0u32;
    while reader.remaining() > 0 {
        let chunk = next.checked_add(reader.varint32(WHAT)?).filter(|&chunk| chunk < u32::MAX);
        let Some(chunk) = chunk else { return malformed(WHAT) };
        next = chunk + 1;
        let mut spans = || {
            let count = reader.varint(WHAT)?;
            take_spans(count, &mut reader, WHAT)
        };
        changes.push(ChunkChanges { chunk: ChunkId(chunk), allocated: spans()?, freed: spans()? });
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::space::tests::any_physical;
    use proptest::prelude::*;

    fn any_spans() -> impl Strategy<Value = Vec<Span>> {
        prop::collection::vec((0u32..300, 1u32..300), 0..6).prop_map(|pairs| {
            let mut end = 0;
            pairs
                .into_iter()
                .map(|(gap, len)| {
                    let span = Span::new(end + gap, len);
                    end = span.end();
                    span
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn changes_round_trip(list in prop::collection::btree_map(0u32..500, (any_spans(), any_spans()), 0..6)) {
            let changes: Vec<_> = list
                .into_iter()
                .map(|(chunk, (allocated, freed))| ChunkChanges { chunk: ChunkId(chunk), allocated, freed })
                .collect();
            prop_assert_eq!(decode_changes(&encode_changes(&changes)), Ok(changes));
        }

        #[test]
        fn blocks_round_trip(txg: u64, part: u32, previous in prop::option::of(any_physical()), piece: Vec<u8>) {
            let block = LogBlock { txg: Txg(txg), part, previous, piece };
            let bytes = block.encode();
            prop_assert!(bytes.len() <= MAX_LOG_HEAD + block.piece.len());
            let padded = [bytes.as_slice(), &[0; 9]].concat();
            prop_assert_eq!(LogBlock::decode(&padded), Ok(block));
        }

        #[test]
        fn garbage_never_panics(tail in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_changes(&tail);
            let mut bytes = Vec::new();
            put_head(MAGIC, &mut bytes);
            bytes.extend(tail);
            let _ = LogBlock::decode(&bytes);
        }
    }
}
