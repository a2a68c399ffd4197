//! The gang header: where the pieces of a block lie that found no room in one piece.
//!
//! A block pointer that is marked as a gang leads, for each copy, to one sector with this header. The pieces follow each
//! other in order; all but the last are whole sectors. The block's checksum, in its pointer, covers the pieces' bytes
//! together; the header has a checksum of its own.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0..4 | magic `CGng` |
//! | 4 | version |
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

/// The header as written: one sector.
pub fn encode(pieces: &[Piece], sector: u32) -> Vec<u8> {
    assert!(pieces.len() <= max_pieces(sector), "{} pieces", pieces.len());
    let mut out = Vec::with_capacity(sector as usize);
    out.put_u32(MAGIC);
    out.put_u8(VERSION);
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

/// The pieces of a block of `stored` bytes.
pub fn decode(header: &[u8], stored: u32, sector: u32) -> Result<Vec<Piece>, Malformed> {
    const WHAT: &str = "gang header";
    let Some((content, checksum)) = header.split_last_chunk::<CHECKSUM>() else { return malformed(WHAT) };
    if blake3::hash(content) != *checksum {
        return malformed("gang header's checksum");
    }
    let mut reader = Reader::new(content);
    if reader.u32(WHAT)? != MAGIC || reader.u8(WHAT)? != VERSION {
        return malformed(WHAT);
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
    if left == 0 { Ok(pieces) } else { malformed("gang header's length") }
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
        let header = encode(&pieces(), 4096);
        assert_eq!(header.len(), 4096);
        assert_eq!(decode(&header, 8192 + 4096 + 17, 4096), Ok(pieces()));
        assert!(decode(&header, 8192 + 4096 + 16, 4096).is_err());
        assert!(decode(&header, 8192 + 4096 + 18, 4096).is_err());
    }

    proptest! {
        #[test]
        fn a_flipped_byte_is_noticed(at in 0usize..4096, flip in 1u8..) {
            let mut header = encode(&pieces(), 4096);
            header[at] ^= flip;
            prop_assert!(decode(&header, 8192 + 4096 + 17, 4096).is_err());
        }
    }
}
