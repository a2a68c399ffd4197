//! Pages of block pointers: the contents of deadlists and of lists of blocks to free.
//!
//! A pointer on a list is never read through, only freed. So pages omit the checksum, the largest part of a pointer,
//! which does not compress.

use pool::format::{
    codec::{Malformed, Reader, Writer, malformed},
    pointer::{BlockPointer, Checksum},
};

use super::coding::ROW_VERSION;

/// The most pointers on one page.
pub const PAGE_BLOCKS: usize = 4096;

/// Encodes a page of at most [`PAGE_BLOCKS`] pointers.
pub fn encode_page(pointers: &[BlockPointer]) -> Vec<u8> {
    assert!(pointers.len() <= PAGE_BLOCKS);
    let mut out = vec![ROW_VERSION];
    out.put_varint(pointers.len() as u64);
    for pointer in pointers {
        bare(pointer).encode(&mut out);
    }
    out
}

/// Decodes a page; the pointers have no checksums.
pub fn decode_page(bytes: &[u8]) -> Result<Vec<BlockPointer>, Malformed> {
    const WHAT: &str = "page of block pointers";
    let mut reader = Reader::new(bytes);
    if reader.u8(WHAT)? != ROW_VERSION {
        return malformed("version of a page of block pointers");
    }
    let count = usize::try_from(reader.varint(WHAT)?).ok().filter(|count| *count <= PAGE_BLOCKS);
    let count = count.ok_or(Malformed { what: WHAT })?;
    let pointers = (0..count).map(|_| BlockPointer::decode(&mut reader)).collect::<Result<Vec<_>, _>>()?;
    reader.finish(WHAT)?;
    Ok(pointers)
}

fn bare(pointer: &BlockPointer) -> BlockPointer {
    BlockPointer { checksum_kind: Checksum::Off, checksum: [0; 32], ..*pointer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{
        format::pointer::Address,
        units::{ChunkId, Txg},
    };

    fn pointer(sector: u32) -> BlockPointer {
        let mut addresses = [Address::default(); 3];
        addresses[0] = Address { chunk: ChunkId(7), sector };
        let (birth, logical_birth) = (Txg(900), Txg(900));
        let checksum = [3; 32];
        BlockPointer {
            addresses,
            copies: 1,
            logical: 4096,
            stored: 4096,
            checksum,
            birth,
            logical_birth,
            ..Default::default()
        }
    }

    #[test]
    fn pages_round_trip_without_checksums_and_small() {
        let pointers: Vec<_> = (0..1000).map(pointer).collect();
        let bytes = encode_page(&pointers);
        assert!(bytes.len() < 16 * pointers.len());
        let back = decode_page(&bytes).unwrap();
        assert_eq!(back, pointers.iter().map(bare).collect::<Vec<_>>());
    }

    #[test]
    fn a_cut_or_lengthened_page_is_refused() {
        let bytes = encode_page(&[pointer(1), pointer(2)]);
        for len in 0..bytes.len() {
            assert!(decode_page(&bytes[..len]).is_err());
        }
        assert!(decode_page(&[&bytes[..], &[0]].concat()).is_err());
        assert!(decode_page(&[ROW_VERSION, 0xff, 0xff, 0xff, 0xff, 0xf]).is_err());
    }
}
