//! Reading a file.

use pool::{env::Nanos, format::codec::Malformed};
use rustix::io::Errno;

use super::{
    check_regular,
    extent::{Content, Piece},
    record,
    seek::record_start,
};
use crate::fs::{
    FileSystem,
    change::load_inode,
    failure::{Failure, damaged},
    inode::Inode,
    key::{self, Ino},
};

/// Under `relatime`, an access time that is older is set again.
const ATIME_MAX_AGE: Nanos = 24 * 3600 * 1_000_000_000;

impl FileSystem {
    /// Appends to `out` up to `len` bytes of the file from `offset` on: fewer only where the file ends.
    pub fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Errno> {
        let inode = {
            let _shared = self.locks.of(ino).read();
            self.read_locked(ino, offset, len, out)?
        };
        self.touch(ino, &inode);
        Ok(())
    }

    fn read_locked(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<Inode, Errno> {
        let (inode, end, pieces) = self.read_tree(|view| {
            let inode = load_inode(view, ino)?;
            check_regular(&inode)?;
            let end = offset.saturating_add(len as u64).min(inode.size);
            let mut pieces =
                if offset < end { record::load(view, ino, record_start(&inode, offset), end)? } else { Vec::new() };
            pieces.retain(|piece| piece.end() > offset);
            Ok((inode, end, pieces))
        })?;
        if offset >= end {
            return Ok(inode);
        }
        // All blocks of the range are known here: the place to have them read in parallel, and those after them ahead.
        let base = out.len();
        out.reserve((end - offset) as usize);
        for piece in &pieces {
            out.resize(base + (piece.offset.max(offset) - offset) as usize, 0);
            self.append(ino, piece, offset, end, out)?;
        }
        out.resize(base + (end - offset) as usize, 0);
        Ok(inode)
    }

    fn append(&self, ino: Ino, piece: &Piece, from: u64, to: u64, out: &mut Vec<u8>) -> Result<(), Errno> {
        let copied = match &piece.content {
            Content::Inline(bytes) => piece.copy(bytes, from, to, out),
            Content::Part { block, .. } => piece.copy(&self.block_bytes(block)?, from, to, out),
        };
        copied.map_err(|malformed: Malformed| damaged(key::extent(ino, piece.offset))(malformed).into())
    }

    /// Notes that a file was read, as far as the options ask for it. Failing to is no reason to fail the reading.
    pub(in crate::fs) fn touch(&self, ino: Ino, inode: &Inode) {
        let options = self.options();
        if options.readonly || !options.atime {
            return;
        }
        let now = self.now();
        let stale = inode.atime <= inode.mtime || inode.atime <= inode.ctime || now - inode.atime >= ATIME_MAX_AGE;
        if options.relatime && !stale {
            return;
        }
        let touched = self.update_tree(|change| {
            let now = change.now;
            match change.edit(ino) {
                Ok(inode) => inode.atime = inode.atime.max(now),
                Err(Failure::Refused(_)) => {}
                Err(failure) => return Err(failure),
            }
            Ok(())
        });
        if let Err(errno) = touched {
            tracing::debug!(%errno, ino, "cannot set the access time");
        }
    }
}
