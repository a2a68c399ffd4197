//! References to blocks. The first byte of an input chooses: a block pointer, or a gang header.

use pool::format::{
    codec::Reader,
    gang,
    pointer::{BlockPointer, MAX_BLOCK, MAX_POINTER},
};

/// The block's checksum in every header.
const BLOCK: [u8; 32] = [0xb0; 32];

pub(super) fn run(input: &[u8]) -> bool {
    match input.split_first() {
        Some((0, coded)) => block(coded),
        Some((shift @ 9..=16, content)) => gang(1 << shift, content),
        _ => false,
    }
}

fn block(coded: &[u8]) -> bool {
    let Ok(pointer) = BlockPointer::decode(&mut Reader::new(coded)) else { return false };
    assert!((1..=MAX_BLOCK).contains(&pointer.logical) && (1..=pointer.logical).contains(&pointer.stored));
    assert!(pointer.birth <= pointer.logical_birth);
    assert_eq!(pointer.addresses().len(), usize::from(pointer.copies));
    for shift in 9..=16 {
        assert!(pointer.allocated(1 << shift) >= u64::from(pointer.stored));
    }
    let mut again = Vec::new();
    pointer.encode(&mut again);
    assert!(again.len() <= MAX_POINTER);
    let mut reader = Reader::new(&again);
    assert_eq!((BlockPointer::decode(&mut reader), reader.remaining()), (Ok(pointer), 0));
    true
}

/// `content` holds the length of the block, in four bytes, and the header's fields.
fn gang(sector: u32, content: &[u8]) -> bool {
    let Some((stored, content)) = content.split_first_chunk() else { return false };
    let (stored, mut header) = (u32::from_le_bytes(*stored), content.to_vec());
    header.resize(sector as usize - 32, 0);
    let checksum = blake3::hash(&header);
    header.extend_from_slice(checksum.as_bytes());
    let Ok(gang) = gang::decode(&header, Some(&BLOCK), stored, sector) else { return false };
    assert_eq!(gang.pieces.iter().map(|piece| u64::from(piece.bytes)).sum::<u64>(), u64::from(stored));
    if gang.level == 0 && gang.pieces.iter().any(|piece| piece.sum.is_none()) {
        // Old versions are only read.
        return true;
    }
    let again = gang::encode(gang.level, &BLOCK, &gang.pieces, sector);
    assert_eq!(gang::decode(&again, Some(&BLOCK), stored, sector), Ok(gang));
    true
}
