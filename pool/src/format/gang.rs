//! The gang header: the addresses of a block's pieces.
//!
//! In a pointer marked as a gang, each address leads to one sector with this header. The pieces follow each other in
//! order; all but the last are whole sectors. The block's checksum, in its pointer, covers the bytes of all pieces
//! together. The header has a checksum of its own, names the block by the block's checksum, and has a sum of each
//! piece. So where a piece has several sources (a mirror's members), each source can be verified piece by piece, and an
//! old header in the same sector is not mistaken for this one.
//!
//! If free space is so scattered that one sector cannot name all pieces, headers are stacked: a header of *level* 1 or
//! more names headers one level below, each with the number of bytes of the block it covers.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | magic `CGng` |
//! | 4 | version: 3 |
//! | 5 | level |
//! | 6..38 | the block's checksum |
//! | 38.. | number of pieces, then for each chunk, sector and length in bytes, all variable-length, and at level 0 its sum: the first 16 bytes of its BLAKE3; then zeros |
//! | last 32 | BLAKE3 of all before |
//!
//! Headers of version 1 (level 0) and 2 (the levels above, with the level after the version) lack the block's checksum
//! and the sums. They are still read, but no longer written.

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        pointer::Address,
    },
    units::ChunkId,
};

const MAGIC: u32 = u32::from_le_bytes(*b"CGng");
const OLD_VERSION: u8 = 1;
const OLD_VERSION_ABOVE: u8 = 2;
const VERSION: u8 = 3;
/// The highest level: enough for the largest block in the smallest sectors.
const MAX_LEVEL: u8 = 4;
const CHECKSUM: usize = 32;
/// The longest coded piece without its sum, in bytes.
const MAX_PIECE: usize = 15;
/// The most bytes before the pieces: magic, version, level, the block's checksum, number of pieces.
const HEAD: usize = 4 + 1 + 1 + CHECKSUM + 2;

/// The sum of a piece. It is short, so an adversary may find two pieces with equal sums, but the block's checksum
/// covers the pieces too.
pub type Sum = [u8; 16];

/// The sum of a piece.
pub fn sum(bytes: &[u8]) -> Sum {
    let hash = blake3::hash(bytes);
    *hash.as_bytes().first_chunk().expect("a hash is longer")
}

/// One piece of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The address of its first sector.
    pub address: Address,
    /// Its length in bytes.
    pub bytes: u32,
    /// The sum of its bytes; `None` for a header below, and in old versions.
    pub sum: Option<Sum>,
}

/// How many pieces of any size a header of this level fits in a sector of this size.
pub fn max_pieces(level: u8, sector: u32) -> usize {
    let sum = if level == 0 { size_of::<Sum>() } else { 0 };
    (sector as usize - CHECKSUM - HEAD) / (MAX_PIECE + sum)
}

/// The header of a gang, in decoded form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many levels of headers are below.
    pub level: u8,
    /// The pieces, or the headers below.
    pub pieces: Vec<Piece>,
}

/// The header of a block with this checksum, as written: one sector.
///
/// # Panics
/// If a piece of level 0 has no sum, or there are too many.
pub fn encode(level: u8, block: &[u8; 32], pieces: &[Piece], sector: u32) -> Vec<u8> {
    assert!(level <= MAX_LEVEL, "level {level}");
    assert!(pieces.len() <= max_pieces(level, sector), "{} pieces", pieces.len());
    let mut out = Vec::with_capacity(sector as usize);
    out.put_u32(MAGIC);
    out.put_u8(VERSION);
    out.put_u8(level);
    out.put_bytes(block);
    out.put_varint(pieces.len() as u64);
    for piece in pieces {
        out.put_varint(piece.address.chunk.0.into());
        out.put_varint(piece.address.sector.into());
        out.put_varint(piece.bytes.into());
        if level == 0 {
            out.put_bytes(&piece.sum.expect("a piece has its sum"));
        }
    }
    out.resize(sector as usize - CHECKSUM, 0);
    let checksum = blake3::hash(&out);
    out.put_bytes(checksum.as_bytes());
    out
}

/// Verifies and decodes the header of `stored` bytes of a block, and the block's checksum if known.
pub fn decode(header: &[u8], block: Option<&[u8; 32]>, stored: u32, sector: u32) -> Result<Header, Malformed> {
    const WHAT: &str = "gang header";
    let Some((content, checksum)) = header.split_last_chunk::<CHECKSUM>() else { return malformed(WHAT) };
    if blake3::hash(content) != *checksum {
        return malformed("gang header's checksum");
    }
    let mut reader = Reader::new(content);
    if reader.u32(WHAT)? != MAGIC {
        return malformed(WHAT);
    }
    let version = reader.u8(WHAT)?;
    let level = match version {
        OLD_VERSION => 0,
        OLD_VERSION_ABOVE | VERSION => reader.u8(WHAT)?,
        _ => return malformed(WHAT),
    };
    if level > MAX_LEVEL {
        return malformed("gang header's level");
    }
    if version == VERSION {
        let own = reader.bytes(CHECKSUM, WHAT)?;
        if block.is_some_and(|block| own != block) {
            return malformed("gang header's block");
        }
    }
    let has_sums = version == VERSION && level == 0;
    let count = reader.varint32(WHAT)? as usize;
    if count > sector as usize / 3 {
        return malformed(WHAT);
    }
    let mut pieces = Vec::with_capacity(count);
    let mut left = stored;
    for index in 0..count {
        let address = Address { chunk: ChunkId(reader.varint32(WHAT)?), sector: reader.varint32(WHAT)? };
        let bytes = reader.varint32(WHAT)?;
        left = left.checked_sub(bytes).ok_or(Malformed { what: WHAT })?;
        if bytes == 0 || index + 1 < count && bytes % sector != 0 {
            return malformed("gang header's piece");
        }
        let sum = match has_sums {
            true => reader.bytes(size_of::<Sum>(), WHAT)?.first_chunk().copied(),
            false => None,
        };
        pieces.push(Piece { address, bytes, sum });
    }
    if left == 0 { Ok(Header { level, pieces }) } else { malformed("gang header's length") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces() -> Vec<Piece> {
        let piece = |index: u32, bytes| Piece {
            address: Address { chunk: ChunkId(index), sector: index * 7 },
            bytes,
            sum: Some([index as u8; 16]),
        };
        vec![piece(1, 8192), piece(9, 4096), piece(70_000, 17)]
    }

    const BLOCK: [u8; 32] = [7; 32];
    const STORED: u32 = 8192 + 4096 + 17;

    #[test]
    fn round_trips_and_must_add_up() {
        let full = |level, sector| {
            let sum = (level == 0).then_some([9; 16]);
            let most = Piece { address: Address { chunk: ChunkId(u32::MAX), sector: u32::MAX }, bytes: sector, sum };
            let pieces = vec![most; max_pieces(level, sector)];
            let header = encode(level, &BLOCK, &pieces, sector);
            assert_eq!(
                decode(&header, Some(&BLOCK), sector * pieces.len() as u32, sector),
                Ok(Header { level, pieces })
            );
        };
        (9..=16).for_each(|ashift| [0, MAX_LEVEL].into_iter().for_each(|level| full(level, 1 << ashift)));
        let header = encode(0, &BLOCK, &pieces(), 4096);
        assert_eq!(header.len(), 4096);
        assert_eq!(decode(&header, Some(&BLOCK), STORED, 4096), Ok(Header { level: 0, pieces: pieces() }));
        assert!(decode(&header, Some(&BLOCK), STORED - 1, 4096).is_err());
        assert!(decode(&header, Some(&BLOCK), STORED + 1, 4096).is_err());
        assert!(decode(&header, Some(&[8; 32]), STORED, 4096).is_err(), "it is another block's");
        assert_eq!(decode(&header, None, STORED, 4096), Ok(Header { level: 0, pieces: pieces() }));
    }

    #[test]
    fn headers_of_old_versions_are_read() {
        for level in [0, 1] {
            let mut header = Vec::new();
            header.put_u32(MAGIC);
            header.put_u8(if level == 0 { OLD_VERSION } else { OLD_VERSION_ABOVE });
            if level > 0 {
                header.put_u8(level);
            }
            header.put_varint(3);
            for piece in pieces() {
                header.put_varint(piece.address.chunk.0.into());
                header.put_varint(piece.address.sector.into());
                header.put_varint(piece.bytes.into());
            }
            header.resize(4096 - CHECKSUM, 0);
            let checksum = blake3::hash(&header);
            header.put_bytes(checksum.as_bytes());
            let pieces = pieces().into_iter().map(|piece| Piece { sum: None, ..piece }).collect();
            assert_eq!(decode(&header, Some(&BLOCK), STORED, 4096), Ok(Header { level, pieces }));
        }
    }

    proptest! {
        #[test]
        fn a_flipped_byte_is_noticed(at in 0usize..4096, flip in 1u8..) {
            let mut header = encode(0, &BLOCK, &pieces(), 4096);
            header[at] ^= flip;
            prop_assert!(decode(&header, Some(&BLOCK), STORED, 4096).is_err());
        }
    }
}
