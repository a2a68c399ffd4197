//! Writing the content of a file.
//!
//! A write is split at record boundaries, and the current state of the record decides how each part is written:
//!
//! * *inline*, if the file is small enough to stay in the tree;
//! * *in place*, if a block of the open txg can still be edited and takes the part;
//! * *anew*, if the record has become ragged, or leaves the tree: the content is read, merged, and written as one
//!   block;
//! * as *a piece* otherwise: a block with just the given bytes, while the extents around it are trimmed. A hole only
//!   trims; so does a whole record of zeros if compression is on.
//!
//! A rewritten record has no holes, so more bytes are charged than were written. If a quota does not admit the charge,
//! the holes stay: the one block gets several extents. So a quota refuses a write only for the bytes asked for. The
//! exception is a record in hundreds of pieces, where keeping all of the holes would take too long.
//!
//! All lookups and block reads come before the first edit. After the first edit an attempt fails only if a node is
//! missing from memory, and then runs again with the same bytes at the same offsets.

use std::{mem, sync::Arc};

use pool::{
    block::compression::CompressionChoice,
    format::codec::Malformed,
    tree::{Block, Record},
    units::Txg,
};
use rustix::io::Errno;

use super::{
    content::{Fetched, check_regular},
    extent::{Content, INLINE_MAX, Piece},
    record::{self, PIECES_MAX},
};
use crate::fs::{
    attr::kill_set_id,
    change::{Change, load_inode},
    failure::{Failure, damaged},
    file_system::FileSystem,
    inode::{Inode, MAX_SIZE, flag},
    key::{self, Ino},
    options::{Options, effective_shift},
    xattr,
};

/// The limits for one update of the tree: bytes, and records.
const STEP_BYTES: u64 = 4 << 20;
const STEP_RECORDS: u64 = 64;
/// A part of at least this size at the start of a record is copied before the tree is locked.
const COPY_AHEAD: u64 = 32 << 10;
/// The most pieces of a record that is kept in pieces for the sake of a quota: each change looks at all pieces.
const PIECES_KEPT: usize = 256;

/// The new content of a part.
#[derive(Clone, Copy)]
pub(super) enum Input<'a> {
    /// Bytes to store as given.
    Data(&'a [u8]),
    /// A number of zeros, as a hole if possible.
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

/// The part of a change in one record.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    /// The offset in the file.
    pub(super) offset: u64,
    pub(super) input: Input<'a>,
}

impl Part<'_> {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.input.len()
    }
}

/// How a part is written; see the top of the file.
enum Way {
    Inline,
    InPlace(Arc<Record>, u64),
    Anew,
    /// As `Anew`, but the holes of the record stay.
    AnewWithHoles,
    Piece,
    /// The range is cut out.
    Hole,
}

/// A part with the pieces of its record, and how to write the part.
pub(super) struct Plan<'a> {
    part: Part<'a>,
    before: Vec<Piece>,
    way: Way,
}

impl Plan<'_> {
    /// The pieces of the record outside the part.
    fn rest(&self) -> Vec<Piece> {
        record::cut(&self.before, self.part.offset, self.part.end())
    }

    /// The bytes of content that the record will have.
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

    /// Keeps the holes outside the part, unless the record has very many pieces already.
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

/// Work left after an attempt.
#[derive(Default)]
pub(super) struct Outcome {
    /// Full records, which are not edited any more.
    full: Vec<Arc<Record>>,
}

impl FileSystem {
    /// Writes `data` at `offset`, and returns the number of bytes written: less than all only after an error, or at the
    /// limit of a quota. With `kill_priv` the file loses its set-id bits.
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

    /// Writes all of `data`, which the caller has buffered from earlier writes: no program learns of a short write any
    /// more.
    ///
    /// # Errors
    /// As [`FileSystem::write`], also after a part was written.
    pub fn write_back(&self, ino: Ino, mut offset: u64, mut data: &[u8], kill_priv: bool) -> Result<(), Errno> {
        loop {
            let written = self.write(ino, offset, data, kill_priv)?;
            (offset, data) = (offset + written as u64, &data[written..]);
            if data.is_empty() {
                return Ok(());
            }
        }
    }

    /// Writes `data` in steps, up to the first failure.
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

    /// Queues the full records for writing.
    pub(super) fn submit(&self, outcome: Outcome) {
        for record in &outcome.full {
            self.head.submit(record);
        }
    }

    /// Executes the plans, and updates the inode.
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
                // The item may stay the same, although its block's content has changed.
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

/// The inode of a regular file with changeable content.
pub(super) fn load_content(change: &Change<'_>, ino: Ino) -> Result<Inode, Failure> {
    let inode = change.inode(ino)?;
    check_regular(&inode)?;
    inode.check_mutable()?;
    if inode.has(flag::TRUNCATING) { Err(Failure::Truncating) } else { Ok(inode) }
}

/// EPERM for an append-only file, unless the write begins at the end.
pub(super) fn check_growing(inode: &Inode, offset: u64) -> Result<(), Errno> {
    if inode.has(flag::APPEND) && offset != inode.size { Err(Errno::PERM) } else { Ok(()) }
}

fn record_size(inode: &Inode, options: &Options) -> u64 {
    1 << effective_shift(inode, options)
}

/// Splits a write at record boundaries.
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

/// Copies of the larger parts at the start of a record, which will most likely become blocks.
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

/// Looks up the record of a part, and decides how to write the part.
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
    // Compression detects a whole record of zeros. With compression off, a program's zeros are stored, so that a
    // program can allocate all blocks of a file.
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
    // If the record's blocks have been read already, a rewrite costs no further read.
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

/// The record of a piece, and the record's offset in the file, if the record can still be edited and the part begins
/// within it or right behind it.
fn open_record(piece: &Piece, part: &Part<'_>, txg: Txg) -> Option<(Arc<Record>, u64)> {
    let (record, base) = record::pending(piece)?;
    let at = part.offset.checked_sub(base)?;
    let open = record.is_open(txg) && record.size().is_some_and(|len| at <= len as u64);
    open.then(|| (record.clone(), base))
}

/// Fails if blocks of records to be rewritten have not been read yet.
pub(super) fn need(change: &Change<'_>, plans: &[Plan<'_>], fetched: &Fetched) -> Result<(), Failure> {
    let mut missing = Vec::new();
    for plan in plans.iter().filter(|plan| matches!(plan.way, Way::Anew)) {
        missing.extend(record::blocks(&plan.rest()).into_iter().filter(|block| fetched.get(block).is_none()).cloned());
    }
    if missing.is_empty() { Ok(()) } else { Err(Failure::Need(missing, change.view.seen())) }
}

/// EDQUOT if a quota does not admit the plans, even with all holes kept.
pub(super) fn admit(change: &mut Change<'_>, ino: Ino, plans: &mut [Plan<'_>]) -> Result<(), Failure> {
    match change.admit_growth(ino, || growth(plans)) {
        Err(Failure::Exceeded(_)) => {
            plans.iter_mut().for_each(Plan::keep_holes);
            change.admit_growth(ino, || growth(plans))
        }
        done => done,
    }
}

/// The growth of the file's content in bytes; 0 if it shrinks.
fn growth(plans: &[Plan<'_>]) -> u64 {
    let (before, after) = plans
        .iter()
        .fold((0, 0), |(before, after), plan| (before + record::bytes(&plan.before), after + plan.bytes_after()));
    u64::saturating_sub(after, before)
}

/// The content of a small file with a part written over the old content.
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

/// The range of a record after a part is written beside the rest.
fn span(rest: &[Piece], part: &Part<'_>) -> (u64, u64) {
    let (from, to) = match part.input {
        Input::Data(_) => (part.offset, part.end()),
        Input::Hole(_) => (u64::MAX, 0),
    };
    let from = from.min(rest.first().map_or(from, |piece| piece.offset));
    (from, to.max(rest.last().map_or(to, Piece::end)))
}

/// The content of a record with a part written over it, and the content's offset in the file.
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

/// The pieces of a record with holes, on one block whose first byte is at `from`.
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

/// The record in memory, if a single piece fills the whole range.
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
    fn zeros_are_distinguished_from_other_bytes() {
        assert!(is_zero(&[0; 37]));
        assert!(!is_zero(&[[0; 36].as_slice(), &[1]].concat()));
        assert!(!is_zero(&[[1].as_slice(), &[0; 36]].concat()));
    }
}
