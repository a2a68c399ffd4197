//! Copying between files inside the file system. As with `fallocate`, the kernel requests the removal of set-id bits.
//!
//! Blocks are shared if possible, see `share`; the rest is read and written, and so are blocks that a quota does not
//! allow to share.

use rustix::io::Errno;

use super::share::{Outcome, Side, share};
use crate::fs::{failure::Failure, file_system::FileSystem, inode::MAX_SIZE, key::Ino};

/// The bytes read and written per step.
const STEP: u64 = 1 << 20;
/// The most bytes read and written per call: the caller continues from there.
const CALL_MAX: u64 = 128 << 20;
/// The most bytes copied per call, shared blocks included: the kernel's answer is a 32-bit number.
const ANSWER_MAX: u64 = 1 << 31;

impl FileSystem {
    /// Copies up to `len` bytes, and returns the number copied: fewer at the end of the source, or in a long call.
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
        // The end of the source now: a copy within one file may extend the file.
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
    /// The bytes read and written so far.
    read: u64,
}

impl Copying {
    /// Copies some of the next `len` bytes; 0 if the source has become shorter.
    fn step(&mut self, source: Side<'_>, target: Side<'_>, len: u64) -> Result<u64, Errno> {
        let shared = target.fs.with_due_room(|| share(source, target, len).map_err(Failure::Refused));
        let len = match shared.map_err(Errno::from) {
            Ok(Outcome::Shared(count)) => return Ok(count),
            Ok(Outcome::Not(count)) => STEP.min(count),
            // A write makes room first if possible, then writes as much as the quota allows.
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
