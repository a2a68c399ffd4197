//! Writing a file.
//!
//! A write is cut at the records' boundaries, and each part finds its way by what stands in its record:
//!
//! * *inline*, if the file is small enough to stay in the tree;
//! * *in place*, if a block of the open transaction group that is still open to edits can take it;
//! * *anew*, if the record has become ragged, or leaves the tree: what is there is read, merged, and written as one block;
//! * *a piece* of its own otherwise: a block with just these bytes, and the extents around it trimmed; nothing but the
//!   trimming, if it is a hole, or a whole record of zeros and compression is on.
//!
//! What is put together anew has no holes, so it is charged more than was written. Where a quota does not admit that, the
//! holes stay: the one block has several extents. So a quota refuses what was asked for or nothing, but for records in
//! hundreds of pieces, which it would take too long to keep.
//!
//! All looking, and all reading of blocks, comes before the first edit; after that the attempt cannot fail but for a node
//! that is missing, and then it runs again with the same bytes in the same places.

use std::{mem, sync::Arc};

use pool::{
    block::compression::CompressionChoice,
    format::codec::Malformed,
    tree::{Block, Record},
    units::Txg,
};
use rustix::io::Errno;

use super::{
    Fetched, check_regular,
    extent::{Content, INLINE_MAX, Piece},
    record::{self, PIECES_MAX},
};
use crate::fs::{
    FileSystem, Options,
    attr::kill_set_id,
    change::{Change, load_inode},
    failure::{Failure, damaged},
    inode::{Inode, MAX_SIZE, flag},
    key::{self, Ino},
    xattr,
};

/// One update of the tree takes at most so many bytes, and so many records.
const STEP_BYTES: u64 = 4 << 20;
const STEP_RECORDS: u64 = 64;
/// A part of at least this size that begins a record is copied before the tree is locked.
const COPY_AHEAD: u64 = 32 << 10;
/// A record in more pieces gets no further one for the sake of a quota: each change of it looks at all of them.
const PIECES_KEPT: usize = 256;

/// What is to be written into one record.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// These bytes.
    Data(&'a [u8]),
    /// Zeros, as a hole where that is possible.
    Hole(u64),
}

impl Input<'_> {
    fn len(&self) -> u64 {
        match self {
            Input::Data(data) => data.len() as u64,
            Input::Hole(len) => *len,
        }
    }
}

/// The part of a change that falls into one record.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// Where in the file it begins.
    pub(super) offset: u64,
    pub(super) input: Input<'a>,
}

impl Part<'_> {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.input.len()
    }
}

/// How a part is written.
enum Way {
    Inline,
    InPlace(Arc<Record>, u64),
    Anew,
    /// As `Anew`, but with the record's holes.
    AnewWithHoles,
    Piece,
    /// What is there is cut out.
    Hole,
}

/// A part with what its record holds, and how it is to be written.
pub(super) struct Plan<'a> {
    part: Part<'a>,
    before: Vec<Piece>,
    way: Way,
}

impl Plan<'_> {
    /// What stays of the record.
    fn rest(&self) -> Vec<Piece> {
        record::cut(&self.before, self.part.offset, self.part.end())
    }

    /// How many bytes of content the record will have.
    fn bytes_after(&self) -> u64 {
        let Plan { part, before, way } = self;
        match way {
            Way::Inline => before.first().map_or(0, Piece::end).max(part.end()),
            Way::Anew => {
                let (from, to) = span(&self.rest(), part);
                to - from
            }
            Way::Hole => record::bytes(&self.rest()),
            Way::InPlace(..) | Way::AnewWithHoles | Way::Piece => record::bytes(&self.rest()) + part.input.len(),
        }
    }

    /// Has holes stay that nobody asked to fill, unless the record is in very many pieces already.
    fn keep_holes(&mut self) {
        let (way, asked) = match self.part.input {
            Input::Data(data) => (Way::AnewWithHoles, data.len() as u64),
            Input::Hole(_) => (Way::Hole, 0),
        };
        let rest = self.rest();
        let fills = matches!(self.way, Way::Inline | Way::Anew) && record::bytes(&rest) + asked < self.bytes_after();
        if fills && rest.len() < PIECES_KEPT {
            self.way = way;
        }
    }
}

/// What an attempt leaves to be done after it.
#[derive(Default)]
pub(super) struct Outcome {
    /// Records that are full: nobody will edit them.
    full: Vec<Arc<Record>>,
}

impl FileSystem {
    /// Writes `data` at `offset`, and returns how much of it: less than all only if an error, or a quota, kept the rest
    /// from being written. With `kill_priv` the file loses its set-id bits.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize, Errno> {
        self.writable()?;
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_SIZE) {
            return Err(Errno::FBIG);
        }
        if data.is_empty() {
            return self.read_tree(|view| Ok(check_regular(&load_inode(view, ino)?)?)).map(|()| 0);
        }
        let write = || self.with_due_room(|| self.write_steps(ino, offset, data, kill_priv));
        match self.under_quota(write) {
            Err(Errno::DQUOT) => match self.quota_end(ino)?.saturating_sub(offset) {
                fits if 0 < fits && fits < data.len() as u64 => {
                    Ok(self.write_steps(ino, offset, &data[..fits as usize], kill_priv)?)
                }
                _ => Err(Errno::DQUOT),
            },
            done => done,
        }
    }

    /// Writes all of what was kept back from an earlier write: nobody asks any more how much of it was written.
    ///
    /// # Errors
    /// As [`FileSystem::write`], also if only the beginning was written.
    pub fn write_back(&self, ino: Ino, mut offset: u64, mut data: &[u8], kill_priv: bool) -> Result<(), Errno> {
        loop {
            let written = self.write(ino, offset, data, kill_priv)?;
            (offset, data) = (offset + written as u64, &data[written..]);
            if data.is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes `data` in steps, up to the first that fails.
    fn write_steps(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize, Failure> {
        self.take_turn(data.len() as u64)?;
        let _exclusive = self.locks.of(ino).write();
        let mut written = 0;
        while written < data.len() {
            let at = offset + written as u64;
            match self.write_step(ino, at, &data[written..], kill_priv) {
                Ok(count) => written += count,
                Err(failure) if written == 0 => return Err(failure),
                Err(_) => break,
            }
        }
        Ok(written)
    }

    /// Writes as much of `data` as one update takes.
    fn write_step(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize, Failure> {
        let inode = self.read_tree(|view| load_inode(view, ino))?;
        check_regular(&inode)?;
        let options = self.options().of(&inode).placed(ino);
        let record = record_size(&inode, &options);
        let end = ((offset / record + STEP_RECORDS) * record).min(offset + STEP_BYTES.max(record));
        let data = &data[..data.len().min((end - offset) as usize)];
        self.admit_in_turn(data.len() as u64)?;
        let mut copies = copy_ahead(offset, data, record);
        let outcome = self.update_content(ino, |change, fetched| {
            let inode = load_content(change, ino)?;
            check_growing(&inode, offset)?;
            let shift = effective_shift(&inode, &options);
            let mut plans = parts(offset, data, 1 << shift)
                .map(|part| plan(change, ino, &inode, (shift, options), part, fetched))
                .collect::<Result<Vec<_>, Failure>>()?;
            need(change, &plans, fetched)?;
            admit(change, ino, &mut plans)?;
            xattr::drop_capability(change, ino)?;
            let mut outcome = Outcome::default();
            for plan in &plans {
                self.execute(change, ino, (shift, options), plan, fetched, &mut copies, &mut outcome)?;
            }
            let now = change.now;
            let inode = change.edit(ino)?;
            inode.size = inode.size.max(offset + data.len() as u64);
            (inode.mtime, inode.ctime) = (now, now);
            if kill_priv {
                kill_set_id(inode);
            }
            Ok(outcome)
        })?;
        self.submit(outcome);
        Ok(data.len())
    }

    /// Has the records that are full stored right away.
    pub(super) fn submit(&self, outcome: Outcome) {
        for record in &outcome.full {
            self.head.submit(record);
        }
    }

    /// Does what was planned, and keeps the inode's account.
    #[expect(clippy::too_many_arguments, reason = "the parts of one step, each with a life of its own")]
    pub(super) fn execute(
        &self,
        change: &mut Change<'_>,
        ino: Ino,
        (shift, options): (u8, Options),
        plan: &Plan<'_>,
        fetched: &Fetched,
        copies: &mut [(u64, Vec<u8>)],
        outcome: &mut Outcome,
    ) -> Result<(), Failure> {
        let Plan { part, before, way } = plan;
        let txg = change.txg();
        let fresh = |offset, bytes| record::fresh(&self.head, txg, options.policy, offset, bytes);
        let after = match (way, part.input) {
            (Way::Inline, Input::Data(data)) => vec![merge_inline(before, part.offset, data)],
            (Way::InPlace(record, base), Input::Data(data))
                if record.write(txg, (part.offset - base) as usize, data) =>
            {
                let start = (part.offset - base) as u32;
                let block = Block::Pending(record.clone());
                let content = Content::Part { block, start };
                let mut after = record::cut(before, part.offset, part.end());
                record::join(&mut after, Piece { offset: part.offset, len: part.input.len(), content });
                // The item may stay as it is, although its block's content has changed.
                let touched = after.iter().filter(|piece| piece.offset < part.end() && piece.end() > part.offset);
                touched.for_each(|piece| change.touch(key::extent(ino, piece.offset)));
                after
            }
            (Way::Anew, _) => {
                let (from, bytes) = merge(ino, plan, fetched)?;
                vec![fresh(from, bytes)]
            }
            (Way::AnewWithHoles, _) => {
                let (from, bytes) = merge(ino, plan, fetched)?;
                with_holes(&Block::Pending(self.head.record(txg, options.policy, bytes)), from, plan)
            }
            (Way::Hole, _) | (_, Input::Hole(_)) => plan.rest(),
            (_, Input::Data(data)) => {
                let mut after = plan.rest();
                record::join(&mut after, fresh(part.offset, take_copy(copies, part.offset, data)));
                after
            }
        };
        record::store(change, &self.head, ino, before, &after);
        outcome.full.extend(full_record(&after, shift));
        let has_block = after.iter().any(|piece| piece.block().is_some());
        let inode = change.edit(ino)?;
        inode.bytes = (inode.bytes + record::bytes(&after)).saturating_sub(record::bytes(before));
        if has_block {
            inode.record_shift = shift;
        }
        Ok(())
    }
}

/// The inode of a regular file whose content may be changed.
pub(super) fn load_content(change: &Change<'_>, ino: Ino) -> Result<Inode, Failure> {
    let inode = change.inode(ino)?;
    check_regular(&inode)?;
    inode.check_mutable()?;
    if inode.has(flag::TRUNCATING) { Err(Failure::Truncating) } else { Ok(inode) }
}

/// EPERM if the file may only grow, and this write does not begin at its end.
pub(super) fn check_growing(inode: &Inode, offset: u64) -> Result<(), Errno> {
    if inode.has(flag::APPEND) && offset != inode.size { Err(Errno::PERM) } else { Ok(()) }
}

/// The file's record size as a power of two: the one it has, or the one it gets with its first block.
pub(in crate::fs) fn effective_shift(inode: &Inode, options: &Options) -> u8 {
    if inode.record_shift == 0 { options.of(inode).record_shift() } else { inode.record_shift }
}

fn record_size(inode: &Inode, options: &Options) -> u64 {
    1 << effective_shift(inode, options)
}

/// Cuts a write at the records' boundaries.
fn parts(offset: u64, data: &[u8], record: u64) -> impl Iterator<Item = Part<'_>> {
    let mut rest = (offset, data);
    std::iter::from_fn(move || {
        let (offset, data) = rest;
        let room = record - offset % record;
        let (head, tail) = data.split_at(data.len().min(room as usize));
        rest = (offset + head.len() as u64, tail);
        (!head.is_empty()).then_some(Part { offset, input: Input::Data(head) })
    })
}

/// Copies of the larger parts that begin a record: they will most likely become blocks of their own.
fn copy_ahead(offset: u64, data: &[u8], record: u64) -> Vec<(u64, Vec<u8>)> {
    let parts = parts(offset, data, record).filter(|part| part.offset % record == 0);
    let parts = parts.filter(|part| part.input.len() >= COPY_AHEAD.min(record));
    let copies = parts.filter_map(|part| match part.input {
        Input::Data(data) => Some((part.offset, data.to_vec())),
        Input::Hole(_) => None,
    });
    copies.collect()
}

fn take_copy(copies: &mut [(u64, Vec<u8>)], offset: u64, data: &[u8]) -> Vec<u8> {
    match copies.iter_mut().find(|(at, copy)| *at == offset && copy.len() == data.len()) {
        Some((_, copy)) => mem::take(copy),
        None => data.to_vec(),
    }
}

/// Looks at the record that a part falls into, and decides how to write it.
pub(super) fn plan<'a>(
    change: &Change<'_>,
    ino: Ino,
    inode: &Inode,
    (shift, options): (u8, Options),
    part: Part<'a>,
    fetched: &Fetched,
) -> Result<Plan<'a>, Failure> {
    let start = part.offset >> shift << shift;
    let before = record::load_record(&change.view, ino, start, start + (1 << shift))?;
    let mut way = choose(inode, shift, &part, &before, change.txg(), fetched);
    // Compression finds the zeros of a whole record. Where it is off, what a program writes is stored, so that a file
    // can be given all its blocks.
    if matches!((&way, part.input, options.policy.compression), (Way::Hole, Input::Data(_), CompressionChoice::Off)) {
        way = Way::Piece;
    }
    Ok(Plan { part, before, way })
}

fn choose(inode: &Inode, shift: u8, part: &Part<'_>, before: &[Piece], txg: Txg, fetched: &Fetched) -> Way {
    let inline = before.iter().any(|piece| piece.block().is_none());
    let after = record::cut(before, part.offset, part.end());
    let Input::Data(data) = part.input else {
        return if after.len() > PIECES_MAX { Way::Anew } else { Way::Hole };
    };
    let small = inode.size.max(part.end()) <= INLINE_MAX;
    if small && before.iter().all(|piece| piece.block().is_none()) {
        return Way::Inline;
    }
    if inline {
        return Way::Anew;
    }
    // Having read the record's blocks, it would be a waste not to use them.
    let was_read = !fetched.0.is_empty() && record::blocks(before).iter().all(|block| fetched.get(block).is_some());
    let pieces = after.len() + 1;
    let whole = part.input.len() == 1 << shift;
    if !whole
        && pieces <= PIECES_MAX
        && let Some((record, base)) = before.iter().find_map(|piece| open_record(piece, part, txg))
    {
        return Way::InPlace(record, base);
    }
    if whole && is_zero(data) {
        return Way::Hole;
    }
    if pieces > PIECES_MAX || (was_read && !after.is_empty()) || record::is_ragged(&after) {
        return Way::Anew;
    }
    Way::Piece
}

/// The record of a piece, and where it begins in the file, if the part can be written into it: it is open to edits, and
/// the part begins within it or right behind it.
fn open_record(piece: &Piece, part: &Part<'_>, txg: Txg) -> Option<(Arc<Record>, u64)> {
    let (record, base) = record::pending(piece)?;
    let at = part.offset.checked_sub(base)?;
    let open = record.is_open(txg) && record.size().is_some_and(|len| at <= len as u64);
    open.then(|| (record.clone(), base))
}

/// Fails if blocks of records that are written anew have not been read yet.
pub(super) fn need(change: &Change<'_>, plans: &[Plan<'_>], fetched: &Fetched) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for plan in plans.iter().filter(|plan| matches!(plan.way, Way::Anew)) {
        missing.extend(record::blocks(&plan.rest()).into_iter().filter(|block| fetched.get(block).is_none()).cloned());
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::Need(missing, change.view.seen())) }
}

/// EDQUOT if a quota does not admit what is planned, be it with the holes that there are.
pub(super) fn admit(change: &mut Change<'_>, ino: Ino, plans: &mut [Plan<'_>]) -> Result<(), Failure> {
    match change.admit_growth(ino, || growth(plans)) {
        Err(Failure::Exceeded(_)) => {
            plans.iter_mut().for_each(Plan::keep_holes);
            change.admit_growth(ino, || growth(plans))
        }
        done => done,
    }
}

/// By how many bytes the file's content grows, if it does.
fn growth(plans: &[Plan<'_>]) -> u64 {
    let (before, after) = plans
        .iter()
        .fold((0, 0), |(before, after), plan| (before + record::bytes(&plan.before), after + plan.bytes_after()));
    u64::saturating_sub(after, before)
}

/// The content of a small file with a part written over it.
fn merge_inline(before: &[Piece], offset: u64, data: &[u8]) -> Piece {
    let mut bytes = match before.first().map(|piece| &piece.content) {
        Some(Content::Inline(bytes)) => bytes.clone(),
        _ => Vec::new(),
    };
    let (from, to) = (offset as usize, offset as usize + data.len());
    bytes.resize(bytes.len().max(to), 0);
    bytes[from..to].copy_from_slice(data);
    Piece { offset: 0, len: bytes.len() as u64, content: Content::Inline(bytes) }
}

/// From where to where a record reaches when a part is written beside the rest of it.
fn span(rest: &[Piece], part: &Part<'_>) -> (u64, u64) {
    let (from, to) = match part.input {
        Input::Data(_) => (part.offset, part.end()),
        Input::Hole(_) => (u64::MAX, 0),
    };
    let from = from.min(rest.first().map_or(from, |piece| piece.offset));
    (from, to.max(rest.last().map_or(to, Piece::end)))
}

/// The content of a record with a part written over it, and where it begins.
fn merge(ino: Ino, plan: &Plan<'_>, fetched: &Fetched) -> Result<(u64, Vec<u8>), Failure> {
    let (rest, part) = (plan.rest(), &plan.part);
    let (from, to) = span(&rest, part);
    let content = |block: &Block| fetched.get(block).map_or(&[][..], |bytes| bytes.as_slice());
    let assembled = record::assemble(&rest, from, to, content);
    let mut bytes = assembled.map_err(|malformed: Malformed| damaged(key::extent(ino, from))(malformed))?;
    if let Input::Data(data) = part.input {
        let at = (part.offset - from) as usize;
        bytes[at..at + data.len()].copy_from_slice(data);
    }
    Ok((from, bytes))
}

/// The pieces that a record has beside its holes, on the block in which it begins at `from`.
fn with_holes(block: &Block, from: u64, plan: &Plan<'_>) -> Vec<Piece> {
    let mut after = Vec::new();
    let rest = plan.rest();
    let ranges = rest.iter().map(|piece| (piece.offset, piece.len));
    for (offset, len) in ranges.chain([(plan.part.offset, plan.part.input.len())]) {
        let content = Content::Part { block: block.clone(), start: (offset - from) as u32 };
        record::join(&mut after, Piece { offset, len, content });
    }
    after
}

/// The record that fills its range to the end, if there is one.
fn full_record(after: &[Piece], shift: u8) -> Option<Arc<Record>> {
    match after {
        [piece] if piece.len == 1 << shift => record::pending(piece).map(|(record, _)| record.clone()),
        _ => None,
    }
}

fn is_zero(data: &[u8]) -> bool {
    let (chunks, rest) = data.as_chunks::<16>();
    chunks.iter().all(|chunk| u128::from_ne_bytes(*chunk) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_cut_at_the_records() {
        let data = [1; 100];
        let parts: Vec<(u64, u64)> = parts(30, &data, 64).map(|part| (part.offset, part.input.len())).collect();
        assert_eq!(parts, [(30, 34), (64, 64), (128, 2)]);
    }

    #[test]
    fn zeros_are_told_from_others() {
        assert!(is_zero(&[0; 37]));
        assert!(!is_zero(&[[0; 36].as_slice(), &[1]].concat()));
        assert!(!is_zero(&[[1].as_slice(), &[0; 36]].concat()));
    }
}
