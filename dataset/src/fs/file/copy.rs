//! Copying from one file to another without a way through the asker. As for `fallocate`, set-id bits are the kernel's to
//! ask for.

use rustix::io::Errno;

use crate::fs::{FileSystem, key::Ino};

/// One step reads and writes so many bytes.
const STEP: u64 = 1 << 20;
/// One call copies at most so many: the asker goes on from there.
const CALL_MAX: u64 = 128 << 20;

impl FileSystem {
    /// Copies up to `len` bytes, and returns how many: fewer where the source ends, or where a call becomes long.
    pub fn copy_range(&self, source: Ino, from: u64, target: Ino, to: u64, len: u64) -> Result<u64, Errno> {
        self.writable()?;
        let (from_end, to_end) = (from.saturating_add(len), to.saturating_add(len));
        if source == target && from < to_end && to < from_end {
            return Err(Errno::INVAL);
        }
        // The source ends where it does now: a copy within one file may make it longer.
        let size = self.getattr(source)?.size;
        let len = len.min(CALL_MAX).min(size.saturating_sub(from));
        let mut buffer = Vec::new();
        let mut copied = 0;
        while copied < len {
            buffer.clear();
            let wanted = STEP.min(len - copied) as usize;
            let step = self
                .read(source, from.saturating_add(copied), wanted, &mut buffer)
                .and_then(|()| self.write(target, to.saturating_add(copied), &buffer, false));
            match step {
                Ok(0) => break,
                Ok(count) => copied += count as u64,
                Err(errno) if copied == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(copied)
    }
}
