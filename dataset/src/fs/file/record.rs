//! The extents of one record, independent of the tree: cut a range out, put a piece in, and store the difference.

use pool::{
    format::{codec::Malformed, pointer::BlockPointer},
    tree::{Block, Policy, Record, View},
    txg::Head,
    units::Txg,
};
use smallvec::SmallVec;

use super::extent::{Content, Extent, Piece};
use crate::fs::{
    change::Change,
    failure::{Failure, damaged},
    key::{self, EXTENT, Ino},
};

/// The most pieces of a record; beyond, the record is rewritten as one block.
pub(super) const PIECES_MAX: usize = 12;
/// The size of a block, in bytes, up to which poor use of the block does not cause a rewrite.
const SPARSE_MIN: u64 = 4096;

/// The pieces of the file in `start..end`, both at a record boundary.
pub(super) fn load(view: &View<'_>, ino: Ino, start: u64, end: u64) -> Result<Vec<Piece>, Failure> {
    view.range(key::span(ino, EXTENT, start, end)).map(|entry| Piece::decode(&entry?)).collect()
}

/// The pieces of one record `start..end`; damage unless the pieces are in order and within the record.
pub(super) fn load_record(view: &View<'_>, ino: Ino, start: u64, end: u64) -> Result<Vec<Piece>, Failure> {
    let pieces = load(view, ino, start, end)?;
    check_places(ino, &pieces, |_| (start, end))?;
    Ok(pieces)
}

/// The pieces of the records that `start..end` overlaps, `start` being at a boundary; damage unless the pieces are in
/// order and each lies within one record.
pub(super) fn load_records(view: &View<'_>, ino: Ino, start: u64, end: u64, shift: u8) -> Result<Vec<Piece>, Failure> {
    let pieces = load(view, ino, start, end.next_multiple_of(1 << shift))?;
    check_places(ino, &pieces, |piece| {
        let start = piece.offset >> shift << shift;
        (start, start + (1 << shift))
    })?;
    Ok(pieces)
}

/// Fails unless the pieces are in order, and each lies in its record.
fn check_places(ino: Ino, pieces: &[Piece], record: impl Fn(&Piece) -> (u64, u64)) -> Result<(), Failure> {
    let mut at = 0;
    for piece in pieces {
        let (start, end) = record(piece);
        if piece.offset < at.max(start) || piece.end() > end {
            return Err(damaged(key::extent(ino, piece.offset))(Malformed { what: "extent's place in its record" }));
        }
        at = piece.end();
    }
    Ok(())
}

/// The pieces without the bytes `from..to`.
pub(super) fn cut(pieces: &[Piece], from: u64, to: u64) -> Vec<Piece> {
    let mut rest = Vec::with_capacity(pieces.len() + 1);
    for piece in pieces {
        if piece.end() <= from || piece.offset >= to {
            rest.push(piece.clone());
            continue;
        }
        match &piece.content {
            Content::Inline(bytes) => rest.extend(cut_inline(piece, bytes, from, to)),
            Content::Part { block, start } => {
                if piece.offset < from {
                    rest.push(Piece { len: from - piece.offset, ..piece.clone() });
                }
                if piece.end() > to {
                    let start = start + (to - piece.offset) as u32;
                    let content = Content::Part { block: block.clone(), start };
                    rest.push(Piece { offset: to, len: piece.end() - to, content });
                }
            }
        }
    }
    rest
}

/// Inline content always begins at offset 0, so a range within the content is zeroed instead of cut out.
fn cut_inline(piece: &Piece, bytes: &[u8], from: u64, to: u64) -> Option<Piece> {
    let mut bytes = bytes.to_vec();
    if to >= piece.end() {
        bytes.truncate((from - piece.offset.min(from)) as usize);
    } else {
        bytes[from as usize..to as usize].fill(0);
    }
    let len = bytes.len() as u64;
    (len > 0).then_some(Piece { offset: piece.offset, len, content: Content::Inline(bytes) })
}

/// Inserts a piece into a gap, and merges neighbours that continue in the same block.
pub(super) fn join(pieces: &mut Vec<Piece>, piece: Piece) {
    let index = pieces.partition_point(|other| other.offset < piece.offset);
    pieces.insert(index, piece);
    for left in [index, index.wrapping_sub(1)] {
        if let Some([one, two]) = pieces.get(left..).and_then(|rest| rest.first_chunk::<2>())
            && goes_on(one, two)
        {
            let len = two.len;
            pieces[left].len += len;
            pieces.remove(left + 1);
        }
    }
}

fn goes_on(one: &Piece, two: &Piece) -> bool {
    match (&one.content, &two.content) {
        (Content::Part { block, start }, Content::Part { block: other, start: next }) => {
            one.end() == two.offset && u64::from(*start) + one.len == u64::from(*next) && block.same(other)
        }
        _ => false,
    }
}

/// The distinct blocks of the pieces.
pub(super) fn blocks(pieces: &[Piece]) -> SmallVec<[&Block; PIECES_MAX]> {
    let mut blocks: SmallVec<[&Block; PIECES_MAX]> = SmallVec::new();
    for block in pieces.iter().filter_map(Piece::block) {
        if !blocks.iter().any(|other| other.same(block)) {
            blocks.push(block);
        }
    }
    blocks
}

/// The sum of the pieces' lengths.
pub(super) fn bytes(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece.len).sum()
}

/// Whether the record should be rewritten: the record has many pieces, or less than half of a stored block is in use.
pub(super) fn is_ragged(pieces: &[Piece]) -> bool {
    let sparse = |block: &&Block| {
        let Some(pointer) = block.pointer() else { return false };
        let used: u64 = pieces
            .iter()
            .filter(|piece| piece.block().is_some_and(|other| other.same(block)))
            .map(|piece| piece.len)
            .sum();
        u64::from(pointer.logical) > SPARSE_MIN && used * 2 < u64::from(pointer.logical)
    };
    pieces.len() > PIECES_MAX || blocks(pieces).iter().any(sparse)
}

/// Stores the difference between the old and the new pieces of a record: items, new references, and blocks without any
/// further item.
pub(super) fn store(change: &mut Change<'_>, head: &Head, ino: Ino, before: &[Piece], after: &[Piece]) {
    for old in before {
        if !after.iter().any(|new| new.offset == old.offset) {
            change.delete(key::extent(ino, old.offset));
        }
    }
    let mut kept: SmallVec<[Block; 2]> = SmallVec::new();
    for new in after {
        let there = before.iter().find(|old| old.offset == new.offset);
        if there.is_some_and(|old| old.same(new)) {
            kept.extend(new.block().cloned());
            continue;
        }
        match &new.content {
            Content::Inline(bytes) => change.put(key::extent(ino, new.offset), Extent::Inline(bytes).encode(), None),
            Content::Part { block, start } => {
                let stays = there.and_then(Piece::block).is_some_and(|old| old.same(block));
                let (block, start) =
                    if stays { (block.clone(), *start) } else { moved(head, change.txg(), block, *start, new.len) };
                let body = Extent::Part { len: new.len as u32, start }.encode();
                change.put(key::extent(ino, new.offset), body, Some(&block));
                kept.push(block);
            }
        }
    }
    let had = blocks(before);
    for pointer in
        blocks(after).iter().filter(|block| !had.iter().any(|old| old.same(block))).filter_map(|block| taken(block))
    {
        change.share(pointer);
    }
    for block in had {
        if !kept.iter().any(|other| other.same(block)) {
            change.kill(block.clone());
        }
    }
}

/// The pointer of a block that is new in a record, if shared with other references.
fn taken(block: &Block) -> Option<BlockPointer> {
    match block {
        Block::Stored(pointer) => Some(*pointer).filter(|pointer| pointer.shared.is_some()),
        Block::Pending(_) => None,
    }
}

/// The block as put under a new key. Streams select blocks by logical birth, so the logical birth becomes the open txg.
/// A record of an earlier txg, whose pointer the committer is about to make, is copied.
fn moved(head: &Head, txg: Txg, block: &Block, start: u32, len: u64) -> (Block, u32) {
    if let Block::Pending(record) = block
        && record.pointer().is_none()
    {
        if record.txg() == txg {
            return (block.clone(), start);
        }
        if let Some(bytes) = record.bytes() {
            let part = bytes[start as usize..start as usize + len as usize].to_vec();
            return (Block::Pending(head.record(txg, record.policy(), part)), 0);
        }
    }
    let mut pointer = block.pointer().expect("a block without bytes in memory is stored");
    pointer.logical_birth = txg;
    (Block::Stored(pointer), start)
}

/// The content of the pieces in `from..to`, with zeros in the holes. `content` returns the bytes of a block.
pub(super) fn assemble<'a>(
    pieces: &'a [Piece],
    from: u64,
    to: u64,
    content: impl Fn(&'a Block) -> &'a [u8],
) -> Result<Vec<u8>, Malformed> {
    let mut out = Vec::with_capacity((to - from) as usize);
    for piece in pieces {
        if piece.offset >= to || piece.end() <= from {
            continue;
        }
        out.resize((piece.offset.max(from) - from) as usize, 0);
        let bytes = match &piece.content {
            Content::Inline(bytes) => bytes.as_slice(),
            Content::Part { block, .. } => content(block),
        };
        piece.copy(bytes, from, to, &mut out)?;
    }
    out.resize((to - from) as usize, 0);
    Ok(out)
}

/// A new block with the given bytes, as the piece at `offset`.
pub(super) fn fresh(head: &Head, txg: Txg, policy: Policy, offset: u64, bytes: Vec<u8>) -> Piece {
    let len = bytes.len() as u64;
    let block = Block::Pending(head.record(txg, policy, bytes));
    Piece { offset, len, content: Content::Part { block, start: 0 } }
}

/// The record in memory that the piece is part of, and the file offset of the record's first byte.
pub(super) fn pending(piece: &Piece) -> Option<(&std::sync::Arc<Record>, u64)> {
    match &piece.content {
        Content::Part { block: Block::Pending(record), start } => {
            Some((record, piece.offset.checked_sub(u64::from(*start))?))
        }
        _ => None,
    }
}
