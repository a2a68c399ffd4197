//! `fallocate`: punching holes, zeroing, and extending a file.
//!
//! Space is not reserved for single files, since every write goes to a new place: allocating checks for room and sets
//! the length. Set-id bits stay: the kernel knows whether the program may keep the bits, and requests their removal
//! itself.

use rustix::io::Errno;

use super::write::{Input, Outcome, Part, admit, load_content, need, plan};
use crate::fs::{
    change::load_inode,
    failure::{Failure, errno},
    file_system::FileSystem,
    inode::MAX_SIZE,
    key::{self, EXTENT, Ino},
    options::{Options, effective_shift},
};

/// The number of records punched in one update of the tree.
const STEP_RECORDS: usize = 64;

/// The mode of `fallocate`; without a flag, allocate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FallocateFlags {
    /// Leave the file's length as it is.
    pub keep_size: bool,
    /// Make the range a hole.
    pub punch_hole: bool,
    /// Make the range read as zeros.
    pub zero_range: bool,
}

impl FileSystem {
    /// Allocates, punches or zeroes a range of a file.
    pub fn fallocate(&self, ino: Ino, flags: FallocateFlags, offset: u64, len: u64) -> Result<(), Errno> {
        self.writable()?;
        if len == 0 {
            return Err(Errno::INVAL);
        }
        let end = offset.checked_add(len).filter(|end| *end <= MAX_SIZE).ok_or(Errno::FBIG)?;
        if flags.punch_hole && (flags.zero_range || !flags.keep_size) {
            return Err(Errno::OPNOTSUPP);
        }
        let punches = flags.punch_hole || flags.zero_range;
        if !punches {
            // The check may wait for commits, so the file is not locked yet.
            self.check_room(ino, offset, end)?;
        }
        let _exclusive = self.locks.of(ino).write();
        if punches {
            self.punch(ino, offset, end)?;
        }
        if flags.punch_hole { Ok(()) } else { self.extend(ino, end, flags.keep_size) }
    }

    /// Fails unless there is room for the bytes that extend the file, recently freed space included.
    fn check_room(&self, ino: Ino, offset: u64, end: u64) -> Result<(), Errno> {
        let size = self.getattr(ino)?.size;
        let wanted = end.saturating_sub(size.max(offset));
        if wanted > self.quota_end(ino)?.saturating_sub(size) {
            return Err(Errno::DQUOT);
        }
        let room = self.room.read().clone();
        let look_for = || match &room {
            Some(room) => room.look_for(wanted),
            None => self.head.engine().wait_for_room(wanted).map_err(|error| errno(&error)),
        };
        Ok(self.with_due_room(|| look_for().map_err(Failure::Refused))?)
    }

    fn extend(&self, ino: Ino, end: u64, keep_size: bool) -> Result<(), Errno> {
        Ok(self.update_content(ino, |change, _| {
            load_content(change, ino)?;
            let now = change.now;
            let inode = change.edit(ino)?;
            inode.ctime = now;
            if !keep_size && end > inode.size {
                inode.size = end;
                inode.mtime = now;
            }
            Ok(())
        })?)
    }

    /// Makes `from..end` a hole, in bounded steps; empty records are skipped at no cost.
    fn punch(&self, ino: Ino, from: u64, end: u64) -> Result<(), Errno> {
        let inode = self.read_tree(|view| load_inode(view, ino))?;
        let options = self.options().of(&inode).placed(ino);
        let mut at = Some(from);
        while let Some(from) = at {
            at = self.punch_step(ino, from, end, options)?;
        }
        Ok(())
    }

    /// Punches some records, and returns where to continue.
    fn punch_step(&self, ino: Ino, from: u64, end: u64, options: Options) -> Result<Option<u64>, Errno> {
        let (outcome, next) = self.update_content(ino, |change, fetched| {
            let inode = load_content(change, ino)?;
            inode.check_free()?;
            let shift = effective_shift(&inode, &options);
            let (mut plans, mut at) = (Vec::new(), Some(from));
            while plans.len() < STEP_RECORDS {
                let Some(part) = at.map(|at| next_part(change, ino, shift, at, end)).transpose()?.flatten() else {
                    at = None;
                    break;
                };
                at = Some(part.end()).filter(|at| *at < end);
                plans.push(plan(change, ino, &inode, (shift, options), part, fetched)?);
            }
            need(change, &plans, fetched)?;
            admit(change, ino, &mut plans)?;
            let mut outcome = Outcome::default();
            for plan in &plans {
                self.execute(change, ino, (shift, options), plan, fetched, &mut [], &mut outcome)?;
            }
            let now = change.now;
            let inode = change.edit(ino)?;
            (inode.mtime, inode.ctime) = (now, now);
            Ok((outcome, at))
        })?;
        self.submit(outcome);
        Ok(next)
    }
}

/// The part of `from..end` in the next record with any content.
fn next_part(
    change: &crate::fs::change::Change<'_>,
    ino: Ino,
    shift: u8,
    from: u64,
    end: u64,
) -> Result<Option<Part<'static>>, Failure> {
    let start = from >> shift << shift;
    let Some(entry) = change.view.first(key::span(ino, EXTENT, start, end))? else { return Ok(None) };
    let start = entry.key().offset >> shift << shift;
    let (from, end) = (from.max(start), end.min(start + (1 << shift)));
    Ok(Some(Part { offset: from, input: Input::Hole(end - from) }))
}
