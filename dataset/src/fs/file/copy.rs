//! Copying from one file to another without a way through the asker. As for `fallocate`, set-id bits are the kernel's to
//! ask for.
//!
//! What can be shared is shared, see `share`; the rest is read and written, and so is what a quota refuses to have shared.

use rustix::io::Errno;

use super::share::{Outcome, Side, share};
use crate::fs::{FileSystem, failure::Failure, inode::MAX_SIZE, key::Ino};

/// One step reads and writes so many bytes.
const STEP: u64 = 1 << 20;
/// One call reads and writes at most so many: the asker goes on from there.
const CALL_MAX: u64 = 128 << 20;
/// One call copies at most so many bytes, shared ones counted: the answer to the kernel has to hold the number.
const ANSWER_MAX: u64 = 1 << 31;

impl FileSystem {
    /// Copies up to `len` bytes, and returns how many: fewer where the source ends, or where a call becomes long.
    pub fn copy_range(&self, source: Ino, from: u64, target: Ino, to: u64, len: u64) -> Result<u64, Errno> {
        self.copy_range_from(self, source, from, target, to, len)
    }

    /// As [`FileSystem::copy_range`], from a file of `other`: another dataset, or a snapshot.
    pub fn copy_range_from(
        &self,
        other: &FileSystem,
        source: Ino,
        from: u64,
        target: Ino,
        to: u64,
        len: u64,
    ) -> Result<u64, Errno> {
        self.writable()?;
        let (from_end, to_end) = (from.saturating_add(len), to.saturating_add(len));
        let is_one = self.is(other) && source == target;
        if is_one && from < to_end && to < from_end {
            return Err(Errno::INVAL);
        }
        // The source ends where it does now: a copy within one file may make it longer.
        let size = other.getattr(source)?.size;
        let len = len.min(ANSWER_MAX).min(size.saturating_sub(from));
        if to.checked_add(len).is_none_or(|end| end > MAX_SIZE) {
            return Err(Errno::FBIG);
        }
        let (source, target) = (Side { fs: other, ino: source, at: from }, Side { fs: self, ino: target, at: to });
        let mut copying = Copying { buffer: Vec::new(), read: 0 };
        let mut copied = 0;
        while copied < len && copying.read < CALL_MAX {
            match copying.step(source.after(copied), target.after(copied), len - copied) {
                Ok(0) => break,
                Ok(count) => copied += count,
                Err(errno) if copied == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(copied)
    }
}

struct Copying {
    buffer: Vec<u8>,
    /// How many bytes were read and written.
    read: u64,
}

impl Copying {
    /// Copies some of the next `len` bytes; 0 if the source has become shorter.
    fn step(&mut self, source: Side<'_>, target: Side<'_>, len: u64) -> Result<u64, Errno> {
        let shared = target.fs.with_due_room(|| share(source, target, len).map_err(Failure::Refused));
        let len = match shared.map_err(Errno::from) {
            Ok(Outcome::Shared(count)) => return Ok(count),
            Ok(Outcome::Not(count)) => STEP.min(count),
            // A write makes room first where it can, and then does as much as still fits.
            Err(Errno::DQUOT) => STEP.min(len),
            Err(errno) => return Err(errno),
        };
        self.buffer.clear();
        source.fs.read(source.ino, source.at, len as usize, &mut self.buffer)?;
        let written = target.fs.write(target.ino, target.at, &self.buffer, false)? as u64;
        self.read += written;
        Ok(written)
    }
}
