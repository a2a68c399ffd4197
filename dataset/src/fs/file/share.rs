//! Copying without moving data: the target's extents refer to the source's blocks.
//!
//! A step looks up the source and changes the target, possibly in another dataset of the pool. The target's range is
//! split at record boundaries, and each part is shared entirely or not at all. Extents of the source are put under the
//! target's keys, holes are punched, and for each block new to the target's record a reference is taken
//! ([`Change::share`]). A block already in the record needs no further reference, whatever the number of its extents.
//!
//! The caller copies a part as bytes instead of sharing,
//!
//! * if the part is small: inline content, or blocks not stored yet and too small to be worth a write of their own;
//! * if the record would become ragged, or less than half of a block would be used: sharing would charge more than a
//!   copy, and the next write would copy anyway;
//! * if the source's blocks have fewer copies than the target's policy asks for, or no checksum where the policy has
//!   one;
//! * if extents on one block would be shifted differently: the bytes of a block are always at the same distance from
//!   where the block would begin in the file, so that all extents of a reference are close together.
//!
//! # The block must still exist
//!
//! The source's tree was read while a txg was open, and the target takes the reference in the same txg, or else the
//! step is repeated; see `lineage::reference`. Blocks without an address are stored first. Both files are locked
//! meanwhile, the source shared and the target exclusively, always in the same order.

use std::{ptr, sync::Arc};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use pool::{
    error::Error,
    format::{
        codec::Malformed,
        label::BLOCK_CLONING,
        pointer::{BlockPointer, Checksum, SCOPES},
    },
    tree::{Block, Policy},
    txg::Head,
    units::Txg,
};
use rustix::io::Errno;

use super::{
    content::check_regular,
    extent::{Content, Piece},
    record::{self, PIECES_MAX},
    write::{check_growing, load_content},
};
use crate::fs::{
    change::{Change, load_inode},
    failure::{self, Failure, damaged},
    file_system::FileSystem,
    inode::MIN_RECORD_SHIFT,
    key::{self, Ino},
    options::effective_shift,
    xattr,
};

/// The number of records changed per step.
const STEP_RECORDS: u64 = 256;
/// The size, in bytes, from which a block in memory is stored in order to be shared.
const STORE_FROM: usize = 64 << 10;
/// The approximate space of a reference's count in the catalogue, in bytes.
const ACCOUNT: u64 = 128;

/// A file of a dataset, and an offset in the file.
#[derive(Clone, Copy)]
pub(super) struct Side<'a> {
    pub(super) fs: &'a FileSystem,
    pub(super) ino: Ino,
    pub(super) at: u64,
}

impl<'a> Side<'a> {
    pub(super) fn after(self, len: u64) -> Side<'a> {
        Side { at: self.at + len, ..self }
    }

    fn head(&self) -> &'a Arc<Head> {
        &self.fs.head
    }

    fn lock(&self) -> &'a RwLock<()> {
        self.fs.locks.of(self.ino)
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The number of bytes shared.
    Shared(u64),
    /// The number of bytes that the caller must copy instead.
    Not(u64),
}

/// A part of the target's range, in one record.
struct Part<'a> {
    /// The end of the part in the target.
    stop: u64,
    /// The record's pieces.
    before: &'a [Piece],
    /// The record's pieces if the part is shared.
    after: Option<Vec<Piece>>,
}

/// The conditions for all parts of a step.
#[derive(Clone, Copy)]
struct Terms {
    /// The txg in which the source was read.
    txg: Txg,
    /// The target's record size as a power of two.
    shift: u8,
    /// The storage policy of the target's blocks.
    policy: Policy,
}

impl Terms {
    /// Whether a block may be shared: as many copies as the target's policy asks for, and a checksum if the policy has
    /// one.
    fn allow(&self, pointer: &BlockPointer) -> bool {
        let is_verifiable = pointer.checksum_kind != Checksum::Off || self.policy.checksum == Checksum::Off;
        pointer.birth <= self.txg && pointer.copies >= self.policy.copies && is_verifiable
    }
}

/// The source as read in a txg.
struct Seen {
    txg: Txg,
    /// The pieces of the range, clipped, with their offsets in the target.
    pieces: Vec<Piece>,
}

/// Shares a prefix of the next `len` bytes of the source, limited to one step.
pub(super) fn share(source: Side<'_>, target: Side<'_>, len: u64) -> Result<Outcome, Errno> {
    let engine = target.head().engine();
    if !target.fs.options().sharing || !ptr::eq(&*engine, &*source.head().engine()) {
        return Ok(Outcome::Not(len));
    }
    let _locked = lock(source, target);
    let mut admitted = false;
    loop {
        // A rollback may have replaced the target by another file.
        let Some(shift) = shift(source, target)? else { return Ok(Outcome::Not(len)) };
        let len = len.min((((target.at >> shift) + STEP_RECORDS) << shift) - target.at);
        let Some(seen) = look(source, target, len)? else { return Ok(Outcome::Not(len)) };
        if !store(source.head(), &seen.pieces)? {
            continue;
        }
        let terms = Terms { txg: seen.txg, shift, policy: target.fs.options().policy };
        if !admitted && !seen.pieces.is_empty() {
            admit(target, &seen.pieces)?;
            engine.activate(BLOCK_CLONING).map_err(|error| failure::errno(&error))?;
            admitted = true;
        }
        if let Some(outcome) =
            target.fs.update_content(target.ino, |change, _| put(change, target, terms, len, &seen.pieces))?
        {
            return Ok(outcome);
        }
    }
}

type Locked<'a> = (Option<RwLockReadGuard<'a, ()>>, RwLockWriteGuard<'a, ()>);

/// Locks both files, always in the same order. Both may use the same lock.
fn lock<'a>(source: Side<'a>, target: Side<'a>) -> Locked<'a> {
    let (read, write) = (source.lock(), target.lock());
    if ptr::eq(read, write) {
        (None, write.write())
    } else if ptr::from_ref(read) < ptr::from_ref(write) {
        (Some(read.read()), write.write())
    } else {
        let write = write.write();
        (Some(read.read()), write)
    }
}

/// The target's record size as a power of two; a file without blocks adopts the source's. `None` if the source's
/// records do not fit.
fn shift(source: Side<'_>, target: Side<'_>) -> Result<Option<u8>, Errno> {
    let theirs = source.fs.read_tree(|view| load_inode(view, source.ino))?.record_shift;
    let own = target.fs.read_tree(|view| load_inode(view, target.ino))?;
    let shift = match (own.record_shift, theirs) {
        (0, 0) => effective_shift(&own, &target.fs.options()),
        (0, theirs) => theirs,
        (own, _) => own,
    };
    Ok(SCOPES.contains(&shift).then_some(shift))
}

/// The current range of the source; `None` if the source's tree is closed: a closed tree does not keep blocks until the
/// target has references.
fn look(source: Side<'_>, target: Side<'_>, len: u64) -> Result<Option<Seen>, Errno> {
    let seen = source.head().read_open(|view| {
        source.fs.check_expected(view)?;
        let inode = load_inode(view, source.ino)?;
        check_regular(&inode)?;
        let shift = inode.record_shift.max(MIN_RECORD_SHIFT);
        let (from, to) = (source.at, source.at + len);
        let (start, end) = (from >> shift << shift, to.next_multiple_of(1 << shift));
        let pieces = record::load(view, source.ino, start, end)?;
        if let Some(pair) = pieces.windows(2).find(|pair| pair[0].end() > pair[1].offset) {
            let key = key::extent(source.ino, pair[1].offset);
            return Err(damaged(key)(Malformed { what: "extent that overlaps the one before" }));
        }
        let pieces = pieces.iter().filter_map(|piece| clip(piece, from, to));
        let pieces = pieces.map(|piece| Piece { offset: piece.offset - from + target.at, ..piece }).collect();
        Ok(Seen { txg: view.txg(), pieces })
    });
    match seen {
        Err(Failure::Engine(Error::Closed(_))) => Ok(None),
        seen => Ok(Some(seen?)),
    }
}

/// The part of a piece between two offsets; inline content is represented by its length only.
fn clip(piece: &Piece, from: u64, to: u64) -> Option<Piece> {
    let (first, end) = (piece.offset.max(from), piece.end().min(to));
    if first >= end {
        return None;
    }
    let content = match &piece.content {
        Content::Inline(_) => Content::Inline(Vec::new()),
        Content::Part { block, start } => {
            Content::Part { block: block.clone(), start: start + (first - piece.offset) as u32 }
        }
    };
    Some(Piece { offset: first, len: end - first, content })
}

/// The block of a piece, if the block must and should be stored before sharing.
fn is_worth_storing(piece: &Piece) -> Option<&Block> {
    match piece.block()? {
        Block::Pending(record) if record.pointer().is_none() => {
            piece.block().filter(|_| record.size().is_none_or(|size| size >= STORE_FROM))
        }
        _ => None,
    }
}

/// Stores large blocks in memory. False if the source has dropped one meanwhile.
fn store(head: &Head, pieces: &[Piece]) -> Result<bool, Errno> {
    let pending: Vec<&Block> = pieces.iter().filter_map(is_worth_storing).collect();
    for block in &pending {
        if let Block::Pending(record) = block {
            head.submit(record);
        }
    }
    for block in pending {
        if head.settle(block).map_err(|error| failure::errno(&error))?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Requests room: the dataset is charged for each reference as for a block of its own, the pool only for the reference
/// count.
fn admit(target: Side<'_>, pieces: &[Piece]) -> Result<(), Errno> {
    let mut pointers: Vec<BlockPointer> = pieces.iter().filter_map(|piece| piece.block()?.pointer()).collect();
    pointers.dedup_by_key(|pointer| pointer.addresses[0]);
    let sector = target.head().engine().sector();
    let charged = pointers.iter().map(|pointer| pointer.allocated(sector)).sum();
    if let Some(room) = &*target.fs.room.read() {
        room.admit(charged)?;
    }
    target.head().admit_in_turn(pointers.len() as u64 * ACCOUNT).map_err(|error| failure::errno(&error))
}

/// Puts the source's pieces into the target; `None` if the txg or the target's record size has changed.
fn put(
    change: &mut Change<'_>,
    target: Side<'_>,
    terms: Terms,
    len: u64,
    seen: &[Piece],
) -> Result<Option<Outcome>, Failure> {
    let Terms { txg, shift, .. } = terms;
    let old = load_content(change, target.ino)?;
    if change.txg() != txg || ![0, shift].contains(&old.record_shift) {
        return Ok(None);
    }
    check_growing(&old, target.at)?;
    let end = target.at + len;
    let there = record::load_records(&change.view, target.ino, target.at >> shift << shift, end, shift)?;
    let look = |at: u64| -> Part<'_> {
        let start = at >> shift << shift;
        let stop = end.min(start + (1 << shift));
        let within = |pieces: &[Piece], end: u64| pieces.partition_point(|piece| piece.offset < end);
        let before = &there[within(&there, start)..within(&there, start + (1 << shift))];
        Part { stop, before, after: shared(before, seen, (at, stop), terms) }
    };
    let (mut at, mut bytes, mut has_block) = (target.at, old.bytes, false);
    while at < end {
        let Part { stop, before, after } = look(at);
        let Some(after) = after else { break };
        record::store(change, target.head(), target.ino, before, &after);
        bytes = (bytes + record::bytes(&after)).saturating_sub(record::bytes(before));
        has_block |= after.iter().any(|piece| piece.block().is_some());
        at = stop;
    }
    if at == target.at {
        while at < end
            && let Part { stop, after: None, .. } = look(at)
        {
            at = stop;
        }
        return Ok(Some(Outcome::Not(at - target.at)));
    }
    let now = change.now;
    let inode = change.edit(target.ino)?;
    inode.bytes = bytes;
    inode.size = inode.size.max(at);
    (inode.mtime, inode.ctime) = (now, now);
    if has_block {
        inode.record_shift = shift;
    }
    xattr::drop_capability(change, target.ino)?;
    Ok(Some(Outcome::Shared(at - target.at)))
}

/// A record's pieces with the source's pieces in its range `from..to`; `None` if a copy is better.
fn shared(before: &[Piece], source: &[Piece], (from, to): (u64, u64), terms: Terms) -> Option<Vec<Piece>> {
    let mut after = record::cut(before, from, to);
    if after.iter().any(|piece| piece.block().is_none()) {
        return None;
    }
    let first = source.partition_point(|piece| piece.end() <= from);
    for piece in source[first..].iter().take_while(|piece| piece.offset < to) {
        let Some(Piece { offset, len, content: Content::Part { block, start } }) = clip(piece, from, to) else {
            return None;
        };
        let pointer = block.pointer().filter(|pointer| terms.allow(pointer))?;
        let own = before.iter().filter_map(Piece::block).find(|own| own.same(&block));
        let block = own.cloned().unwrap_or_else(|| Block::Stored(pointer.share(terms.txg, terms.shift)));
        record::join(&mut after, Piece { offset, len, content: Content::Part { block, start } });
    }
    let is_fit = after.len() <= PIECES_MAX && !record::is_ragged(&after) && is_even(&after);
    is_fit.then_some(after)
}

/// The block of a piece, and where in the file the block would begin.
fn lies(piece: &Piece) -> Option<(&Block, u64)> {
    match &piece.content {
        Content::Part { block, start } => Some((block, piece.offset.wrapping_sub(u64::from(*start)))),
        Content::Inline(_) => None,
    }
}

/// Whether all pieces of each block agree on where the block would begin.
fn is_even(pieces: &[Piece]) -> bool {
    let all = || pieces.iter().filter_map(lies);
    all().all(|(block, base)| all().all(|(other, at)| base == at || !block.same(other)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{ROOT, attr::Caller, tests::world::World};

    #[test]
    fn a_step_that_goes_by_another_record_size_is_done_again() {
        let world = World::new(77);
        let fs = &*world.fs;
        let file = |name: &[u8]| fs.create(&Caller::default(), ROOT, name, 0o644, true).unwrap().ino;
        let (ino, empty) = (file(b"file"), file(b"empty"));
        fs.write(ino, 0, &[7; 200_000], false).unwrap();
        let put = |ino, shift| {
            let target = Side { fs, ino, at: 0 };
            let step = fs.update_content(ino, |change, _| {
                let terms = Terms { txg: change.txg(), shift, policy: fs.options().policy };
                put(change, target, terms, 4096, &[])
            });
            step.unwrap()
        };
        let shift = fs.read_tree(|view| load_inode(view, ino)).unwrap().record_shift;
        assert_eq!(put(ino, shift - 1), None);
        assert_eq!(put(ino, shift + 1), None);
        // A hole of the source, in a file with records, and in a file without any.
        assert_eq!(put(ino, shift), Some(Outcome::Shared(4096)));
        assert_eq!(put(empty, 12), Some(Outcome::Shared(4096)));
        world.check();
    }
}
