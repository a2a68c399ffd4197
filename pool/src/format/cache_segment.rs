//! The header of a segment of a cache device: the blocks with copies in the segment.
//!
//! ```text
//! segment: | magic "CENOTECS" | version u32 | count u32 | device u64 | sequence u64 | epoch u64 | blocks | zeros | BLAKE3 |
//!          0                  8             12          16           24             32          40               32,736
//! block:   | chunk u32 | sector u32 | birth u64 | offset u32 | stored u32 |
//! ```
//!
//! The checksum covers the header and its offset, so a header copied or written elsewhere is refused. It does not cover
//! the copies: each has the checksum in the pointer to its block.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        pointer::Address,
        uberblock::Epoch,
    },
    units::{ChunkId, Guid, KIB, MIB, Txg},
};

/// The size of a segment, in bytes.
pub const SEGMENT_SIZE: u64 = 4 * MIB;
/// The size of the header, in bytes. The copies follow it.
pub const SEGMENT_HEADER: u64 = 32 * KIB;
/// The most blocks in a segment.
pub const MAX_CACHED: usize = (CHECKSUM_AT - FIXED) / BLOCK;
/// All sequence numbers are below this.
pub const SEQUENCE_LIMIT: u64 = 1 << 62;

const MAGIC: [u8; 8] = *b"CENOTECS";
const VERSION: u32 = 1;
const FIXED: usize = 40;
const BLOCK: usize = 24;
const CHECKSUM_AT: usize = SEGMENT_HEADER as usize - 32;

/// A block with a copy in the segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedBlock {
    /// Where the block's first copy lies in the pool.
    pub address: Address,
    /// The block's birth.
    pub birth: Txg,
    /// Where the copy lies in the segment, in bytes.
    pub offset: u32,
    /// The length of the copy, in bytes.
    pub stored: u32,
}

/// The header of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The device of the segment.
    pub device: Guid,
    /// The sequence number, one more than the previous segment's.
    pub sequence: u64,
    /// The import that wrote the segment.
    pub epoch: Epoch,
    /// The blocks with copies in the segment.
    pub blocks: Vec<CachedBlock>,
}

impl SegmentHeader {
    /// The header as written at `offset` bytes from the start of the usable space.
    ///
    /// # Panics
    /// If there are more than [`MAX_CACHED`] blocks.
    pub fn encode(&self, offset: u64) -> Vec<u8> {
        assert!(self.blocks.len() <= MAX_CACHED, "a segment has at most {MAX_CACHED} blocks");
        let mut out = Vec::with_capacity(SEGMENT_HEADER as usize);
        out.put_bytes(&MAGIC);
        out.put_u32(VERSION);
        out.put_u32(self.blocks.len() as u32);
        out.put_u64(self.device.0);
        out.put_u64(self.sequence);
        out.put_u64(self.epoch.0);
        for block in &self.blocks {
            out.put_u32(block.address.chunk.0);
            out.put_u32(block.address.sector);
            out.put_u64(block.birth.0);
            out.put_u32(block.offset);
            out.put_u32(block.stored);
        }
        out.resize(CHECKSUM_AT, 0);
        let checksum = checksum(&out, offset);
        out.put_bytes(&checksum);
        out
    }

    /// Verifies and decodes a header of [`SEGMENT_HEADER`] bytes read at `offset`.
    pub fn decode(bytes: &[u8], offset: u64) -> Result<SegmentHeader, Malformed> {
        if bytes.len() != SEGMENT_HEADER as usize {
            return malformed("size of a segment's header");
        }
        let (content, expected) = bytes.split_at(CHECKSUM_AT);
        let mut reader = Reader::new(content);
        if reader.array("magic of a segment")? != MAGIC {
            return malformed("magic of a segment");
        }
        if checksum(content, offset) != expected {
            return malformed("checksum of a segment");
        }
        if reader.u32("version of a segment")? != VERSION {
            return malformed("version of a segment");
        }
        let count = reader.u32("blocks of a segment")? as usize;
        if count > MAX_CACHED {
            return malformed("blocks of a segment");
        }
        let device = Guid(reader.u64("device of a segment")?);
        let sequence = reader.u64("sequence of a segment")?;
        if sequence >= SEQUENCE_LIMIT {
            return malformed("sequence of a segment");
        }
        let epoch = Epoch(reader.u64("epoch of a segment")?);
        let blocks = (0..count).map(|_| decode_block(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        Ok(SegmentHeader { device, sequence, epoch, blocks })
    }

    /// The sequence number claimed by the first bytes of a header, unverified; `None` without the magic.
    pub fn claimed_sequence(start: &[u8]) -> Option<u64> {
        let sequence = start.get(24..32)?.try_into().ok().map(u64::from_le_bytes)?;
        (start.starts_with(&MAGIC) && sequence < SEQUENCE_LIMIT).then_some(sequence)
    }
}

fn decode_block(reader: &mut Reader<'_>) -> Result<CachedBlock, Malformed> {
    const WHAT: &str = "block of a segment";
    let address = Address { chunk: ChunkId(reader.u32(WHAT)?), sector: reader.u32(WHAT)? };
    let (birth, offset, stored) = (Txg(reader.u64(WHAT)?), reader.u32(WHAT)?, reader.u32(WHAT)?);
    let is_within = u64::from(offset) >= SEGMENT_HEADER && u64::from(offset) + u64::from(stored) <= SEGMENT_SIZE;
    match stored > 0 && is_within && birth < Txg::LIMIT {
        true => Ok(CachedBlock { address, birth, offset, stored }),
        false => malformed(WHAT),
    }
}

/// The checksum of a header at an offset of the device, over `content` without the checksum.
fn checksum(content: &[u8], offset: u64) -> [u8; 32] {
    *blake3::Hasher::new().update(&offset.to_le_bytes()).update(content).finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        let block = |at: u32| CachedBlock {
            address: Address { chunk: ChunkId(at), sector: 7 * at },
            birth: Txg(100 + u64::from(at)),
            offset: SEGMENT_HEADER as u32 + 512 * at,
            stored: 1 + at,
        };
        SegmentHeader {
            device: Guid(5),
            sequence: 77,
            epoch: Epoch(8),
            blocks: (0..MAX_CACHED as u32).map(block).collect(),
        }
    }

    /// The bytes with a matching checksum.
    fn sealed(mut bytes: Vec<u8>, offset: u64) -> Vec<u8> {
        let seal = checksum(&bytes[..CHECKSUM_AT], offset);
        bytes[CHECKSUM_AT..].copy_from_slice(&seal);
        bytes
    }

    #[test]
    fn a_header_round_trips_in_its_place_and_nowhere_else() {
        let bytes = header().encode(SEGMENT_SIZE);
        assert_eq!(SegmentHeader::decode(&bytes, SEGMENT_SIZE), Ok(header()));
        assert_eq!(SegmentHeader::claimed_sequence(&bytes[..512]), Some(77));
        assert_eq!(SegmentHeader::decode(&bytes, 0), malformed("checksum of a segment"));
        assert_eq!(SegmentHeader::claimed_sequence(&[0; 512]), None);
        assert_eq!(SegmentHeader::claimed_sequence(&bytes[..31]), None);
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let bytes = header().encode(0);
        for at in (0..bytes.len()).step_by(97).chain(CHECKSUM_AT..bytes.len()) {
            let mut bad = bytes.clone();
            bad[at] ^= 4;
            assert!(SegmentHeader::decode(&bad, 0).is_err(), "byte {at}");
        }
    }

    #[test]
    fn what_no_program_writes_is_refused_behind_its_checksum() {
        let refused: [(usize, &[u8], &str); 8] = [
            (8, &[2], "version of a segment"),
            (12, &[0xff, 0xff, 0xff, 0xff], "blocks of a segment"),
            (12, &(MAX_CACHED as u32 + 1).to_le_bytes(), "blocks of a segment"),
            (31, &[0x40], "sequence of a segment"),
            (FIXED + 15, &[0x80], "block of a segment"),
            (FIXED + 16, &(SEGMENT_HEADER as u32 - 1).to_le_bytes(), "block of a segment"),
            (FIXED + 20, &0u32.to_le_bytes(), "block of a segment"),
            (FIXED + 20, &((SEGMENT_SIZE - SEGMENT_HEADER) as u32 + 1).to_le_bytes(), "block of a segment"),
        ];
        for (at, bytes, what) in refused {
            let mut bad = header().encode(0);
            bad[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(SegmentHeader::decode(&sealed(bad, 0), 0), malformed(what), "at {at}");
        }
        assert!(SegmentHeader::decode(&[0; 100], 0).is_err());
    }
}
