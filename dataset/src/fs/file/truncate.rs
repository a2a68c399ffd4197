//! Changing a file's length.
//!
//! One update sets the new length and cuts the last record. If much is to be dropped behind the new end, the same
//! update marks the file and puts a marker item; bounded steps drop the rest, and the last step removes the marker.
//! After a crash in between the marker is still there: the file has its new length, and the next change of its content,
//! or the background thread, first finishes the work. So truncated data never reappears.

use rustix::io::Errno;

use super::{discard::discard, record, write::load_content};
use crate::fs::{
    attr::SetAttr,
    change::Change,
    failure::Failure,
    file_system::FileSystem,
    inode::{Inode, MAX_SIZE, MIN_RECORD_SHIFT, flag},
    key::{self, EXTENT, Ino},
    orphan::STEP,
    setattr::set_attributes,
};

impl FileSystem {
    /// Sets a file's length and the other attributes of `set`.
    pub(in crate::fs) fn truncate(&self, ino: Ino, size: u64, set: &SetAttr) -> Result<Inode, Errno> {
        if size > MAX_SIZE {
            return Err(Errno::FBIG);
        }
        let _exclusive = self.locks.of(ino).write();
        let inode = self.update_content(ino, |change, _| {
            let old = load_content(change, ino)?;
            set_attributes(change, ino, set)?;
            if size < old.size {
                self.cut_off(change, ino, &old, size)?;
            }
            change.edit(ino)?.size = size;
            reset_if_empty(change, ino)?;
            change.inode(ino)
        })?;
        if inode.has(flag::TRUNCATING) {
            self.finish_truncation(ino)?;
        }
        Ok(inode)
    }

    /// Drops the content behind the new end: within the last record, and as much behind it as one step takes.
    fn cut_off(&self, change: &mut Change<'_>, ino: Ino, inode: &Inode, size: u64) -> Result<(), Failure> {
        let shift = shift(inode);
        let last = size >> shift << shift;
        let next = last.saturating_add(1 << shift);
        if size > last {
            let before = record::load_record(&change.view, ino, last, next)?;
            let after = record::cut(&before, size, next);
            record::store(change, &self.head, ino, &before, &after);
            let inode = change.edit(ino)?;
            inode.bytes = (inode.bytes + record::bytes(&after)).saturating_sub(record::bytes(&before));
        }
        if !drop_behind(change, ino, size, STEP)? {
            change.edit(ino)?.set(flag::TRUNCATING, true);
            change.put(key::truncate(ino), [], None);
        }
        Ok(())
    }

    /// Drops the rest behind the end of a marked file; the caller holds the exclusive lock.
    pub(super) fn finish_truncation(&self, ino: Ino) -> Result<(), Errno> {
        loop {
            let done = self.update_tree(|change| {
                let inode = change.inode(ino)?;
                if inode.has(flag::TRUNCATING) && !drop_behind(change, ino, inode.size, STEP)? {
                    return Ok(false);
                }
                change.edit(ino)?.set(flag::TRUNCATING, false);
                change.delete(key::truncate(ino));
                reset_if_empty(change, ino)?;
                Ok(true)
            })?;
            if done {
                return Ok(());
            }
        }
    }

    /// Finishes a truncation that a crash has interrupted.
    pub(in crate::fs) fn resume_truncation(&self, ino: Ino) -> Result<(), Errno> {
        let _exclusive = self.locks.of(ino).write();
        match self.finish_truncation(ino) {
            Err(Errno::NOENT) => self.update_tree(|change| {
                change.delete(key::truncate(ino));
                Ok(())
            }),
            done => done,
        }
    }
}

/// The record size to use: a file without blocks has at most inline content, shorter than any record.
fn shift(inode: &Inode) -> u8 {
    inode.record_shift.max(MIN_RECORD_SHIFT)
}

/// Drops a bounded part of the records that begin at or behind `size`; true if none is left.
fn drop_behind(change: &mut Change<'_>, ino: Ino, size: u64, budget: usize) -> Result<bool, Failure> {
    let shift = shift(&change.inode(ino)?);
    let from = size.next_multiple_of(1 << shift);
    let discarded = discard(change, key::from(ino, EXTENT, from), shift, budget)?;
    let inode = change.edit(ino)?;
    inode.bytes = inode.bytes.saturating_sub(discarded.bytes);
    Ok(discarded.done)
}

/// An empty file chooses its record size again.
fn reset_if_empty(change: &mut Change<'_>, ino: Ino) -> Result<(), Failure> {
    let inode = change.edit(ino)?;
    if inode.size == 0 && !inode.has(flag::TRUNCATING) {
        inode.record_shift = 0;
    }
    Ok(())
}
