//! The gang header: where the pieces of a block lie that found no room in one piece.
//!
//! A block pointer that is marked as a gang leads, for each copy, to one sector with this header. The pieces follow each
//! other in order; all but the last are whole sectors. The block's checksum, in its pointer, covers the pieces' bytes
//! together; the header has a checksum of its own.
//!
//! Where free space is so scattered that one sector cannot name all pieces, headers stand above headers: a header of
//! *level* 1 or more names headers of one level less, each with how many bytes of the block it covers.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | magic `CGng` |
//! | 4 | version: 1 for level 0, 2 for the levels above, followed by the level in a byte |
//! | 5.. | number of pieces, then for each chunk, sector and length in bytes, all variable-length; then zeros |
//! | last 32 | BLAKE3 of all before |

use crate::{
    format::{
        codec::{Malformed, Reader, Writer, malformed},
        pointer::Address,
    },
    units::ChunkId,
};

const MAGIC: u32 = u32::from_le_bytes(*b"CGng");
const VERSION: u8 = 1;
const VERSION_ABOVE: u8 = 2;
/// The highest level: enough for the largest block in the smallest sectors.
const MAX_LEVEL: u8 = 4;
const CHECKSUM: usize = 32;
/// The longest coded piece, in bytes.
const MAX_PIECE: usize = 15;

/// One piece of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it starts.
    pub address: Address,
    /// Its length in bytes.
    pub bytes: u32,
}

/// How many pieces a header in a sector of this size can always name.
pub fn max_pieces(sector: u32) -> usize {
    (sector as usize - CHECKSUM - 4 - 1 - 2) / MAX_PIECE
}

/// A header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// How many levels of headers are below it.
    pub level: u8,
    /// The pieces, or the headers below.
    pub pieces: Vec<Piece>,
}

/// The header as written: one sector.
pub fn encode(level: u8, pieces: &[Piece], sector: u32) -> Vec<u8> {
    assert!(level <= MAX_LEVEL, "level {level}");
    assert!(pieces.len() <= max_pieces(sector), "{} pieces", pieces.len());
    let mut out = Vec::with_capacity(sector as usize);
    out.put_u32(MAGIC);
    match level {
        0 => out.put_u8(VERSION),
        level => {
            out.put_u8(VERSION_ABOVE);
            out.put_u8(level);
        }
    }
    out.put_varint(pieces.len() as u64);
    for piece in pieces {
        out.put_varint(piece.address.chunk.0.into());
        out.put_varint(piece.address.sector.into());
        out.put_varint(piece.bytes.into());
    }
    out.resize(sector as usize - CHECKSUM, 0);
    let checksum = blake3::hash(&out);
    out.put_bytes(checksum.as_bytes());
    out
}

/// The header of `stored` bytes of a block.
pub fn decode(header: &[u8], stored: u32, sector: u32) -> Result<Header, Malformed> {
    const WHAT: &str = "gang header";
    let Some((content, checksum)) = header.split_last_chunk::<CHECKSUM>() else { return malformed(WHAT) };
    if blake3::hash(content) != *checksum {
        return malformed("gang header's checksum");
    }
    let mut reader = Reader::new(content);
    if reader.u32(WHAT)? != MAGIC {
        return malformed(WHAT);
    }
    let level = match reader.u8(WHAT)? {
        VERSION => 0,
        VERSION_ABOVE => reader.u8(WHAT)?,
        _ => return malformed(WHAT),
    };
    if level > MAX_LEVEL {
        return malformed("gang header's level");
    }
    let count = reader.varint32(WHAT)? as usize;
    if count > max_pieces(sector) {
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
        pieces.push(Piece { address, bytes });
    }
    if left == 0 { Ok(Header { level, pieces }) } else { malformed("gang header's length") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pieces() -> Vec<Piece> {
        let piece = |index: u32, bytes| Piece { address: Address { chunk: ChunkId(index), sector: index * 7 }, bytes };
        vec![piece(1, 8192), piece(9, 4096), piece(70_000, 17)]
    }

    #[test]
    fn round_trips_and_must_add_up() {
        let full = |level, sector| {
            let most = Piece { address: Address { chunk: ChunkId(u32::MAX), sector: u32::MAX }, bytes: sector };
            let pieces = vec![most; max_pieces(sector)];
            let header = encode(level, &pieces, sector);
            assert_eq!(decode(&header, sector * pieces.len() as u32, sector), Ok(Header { level, pieces }));
        };
        (9..=16).for_each(|ashift| full(MAX_LEVEL, 1 << ashift));
        let header = encode(0, &pieces(), 4096);
        assert_eq!(header.len(), 4096);
        assert_eq!(decode(&header, 8192 + 4096 + 17, 4096), Ok(Header { level: 0, pieces: pieces() }));
        assert!(decode(&header, 8192 + 4096 + 16, 4096).is_err());
        assert!(decode(&header, 8192 + 4096 + 18, 4096).is_err());
    }

    proptest! {
        #[test]
        fn a_flipped_byte_is_noticed(at in 0usize..4096, flip in 1u8..) {
            let mut header = encode(1, &pieces(), 4096);
            header[at] ^= flip;
            prop_assert!(decode(&header, 8192 + 4096 + 17, 4096).is_err());
        }
    }
}
