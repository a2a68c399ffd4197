//! Reading and seeking in the content of a file.

use pool::{
    env::Nanos,
    format::codec::Malformed,
    space::Seen,
    txg::{Caching, Head, Outlook},
};
use rustix::io::Errno;

use super::{
    content::check_regular,
    extent::{Content, Piece},
    record,
    seek::record_start,
};
use crate::fs::{
    change::load_inode,
    failure::{Failure, damaged},
    file_system::FileSystem,
    inode::{Inode, flag},
    key::{self, EXTENT, Ino},
};
use crate::property::DirectIo;

/// The unit of direct I/O, in bytes.
const PAGE: u64 = 4096;

/// Under `relatime`, an access time older than one day (in nanoseconds) is updated.
const ATIME_MAX_AGE: Nanos = 24 * 3600 * 1_000_000_000;

/// The extents of a range of a file, found under one lock of the tree.
pub(in crate::fs) struct Look {
    inode: Inode,
    offset: u64,
    /// The end of the range, or of the file.
    end: u64,
    /// When the extents were looked up: see [`Seen`].
    seen: Seen,
    /// The pieces that overlap the range.
    pieces: Vec<Piece>,
    /// Whether the content bypasses the cache.
    past: bool,
}

impl Look {
    fn same_blocks(&self, other: &Look) -> bool {
        let same = |(one, two): (&Piece, &Piece)| match (one.block(), two.block()) {
            // A block written later may have got the same address.
            (Some(one), Some(two)) => one.same(two) && one.pointer() == two.pointer(),
            (one, two) => one.is_none() && two.is_none(),
        };
        self.pieces.len() == other.pieces.len() && self.pieces.iter().zip(&other.pieces).all(same)
    }

    /// Simulates that the blocks were reused for other content.
    #[cfg(test)]
    pub(in crate::fs) fn spoil(&mut self) {
        for piece in &mut self.pieces {
            let Content::Part { block, .. } = &mut piece.content else { continue };
            let mut pointer = block.pointer().expect("the test has committed");
            pointer.checksum[0] ^= 1;
            *block = pool::tree::Block::Stored(pointer);
        }
    }
}

impl FileSystem {
    /// Appends to `out` up to `len` bytes of the file from `offset` on: fewer only at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Errno> {
        self.read_opened(ino, offset, len, false, out)
    }

    /// As [`FileSystem::read`], for a file that was opened with `O_DIRECT`, if `asked`. As in OpenZFS, the property
    /// `direct` decides, and only whole pages bypass the cache.
    pub fn read_opened(&self, ino: Ino, offset: u64, len: usize, asked: bool, out: &mut Vec<u8>) -> Result<(), Errno> {
        let asks = asked && offset.is_multiple_of(PAGE) && (len as u64).is_multiple_of(PAGE);
        let inode = {
            let _shared = self.locks.of(ino).read();
            let mut look = self.look_up(ino, offset, len)?;
            look.past |= asks && self.options().direct != DirectIo::Disabled;
            self.read_looked_up(ino, look, len, out)?
        };
        self.touch(ino, &inode);
        Ok(())
    }

    /// Looks up the extents of a range of a file.
    pub(in crate::fs) fn look_up(&self, ino: Ino, offset: u64, len: usize) -> Result<Look, Errno> {
        let always = self.options().direct == DirectIo::Always;
        self.read_tree(|view| {
            let inode = load_inode(view, ino)?;
            check_regular(&inode)?;
            let end = offset.saturating_add(len as u64).min(inode.size).max(offset);
            let mut pieces =
                if offset < end { record::load(view, ino, record_start(&inode, offset), end)? } else { Vec::new() };
            pieces.retain(|piece| piece.end() > offset);
            let past = inode.has(flag::DIRECT) || always;
            Ok(Look { inode, offset, end, seen: view.seen(), pieces, past })
        })
    }

    /// Appends the content of a range. If blocks were freed and reused meanwhile, for example because the tree was
    /// replaced, the range is looked up again. An unreadable block counts as damaged only if the file still refers to
    /// the block.
    pub(in crate::fs) fn read_looked_up(
        &self,
        ino: Ino,
        mut look: Look,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<Inode, Errno> {
        let base = out.len();
        loop {
            let Err(failure) = self.fetch(ino, &look, out) else { return Ok(look.inode) };
            out.truncate(base);
            let again = self.look_up(ino, look.offset, len)?;
            if !failure.is_stale() && look.same_blocks(&again) {
                return Err(failure.into());
            }
            look = Look { past: look.past, ..again };
        }
    }

    fn fetch(&self, ino: Ino, look: &Look, out: &mut Vec<u8>) -> Result<(), Failure> {
        let Look { offset, end, .. } = *look;
        if !look.past {
            let ahead = self.look_ahead(ino, look);
            self.head.bring(
                look.pieces.iter().filter_map(Piece::block),
                ahead.iter().filter_map(Piece::block),
                look.seen,
            );
        }
        let base = out.len();
        out.reserve((end - offset) as usize);
        for piece in &look.pieces {
            out.resize(base + (piece.offset.max(offset) - offset) as usize, 0);
            self.append(ino, look, piece, out)?;
        }
        out.resize(base + (end - offset) as usize, 0);
        Ok(())
    }

    /// The pieces to prefetch: probably read next, and worth the I/O. Errors are left for the actual read to report.
    fn look_ahead(&self, ino: Ino, look: &Look) -> Vec<Piece> {
        let Look { inode, offset, end, .. } = look;
        if *offset == 0 && *end == inode.size {
            return Vec::new();
        }
        let prefetch = self.options().prefetch;
        if prefetch == Caching::None {
            return Vec::new();
        }
        let Outlook { mut now, mut later } = self.head.look_ahead(ino, *offset..*end, inode.size);
        if prefetch == Caching::Metadata {
            (later.start, now) = (now.start, 0..0);
        }
        if !later.is_empty() {
            self.head.begin_nodes(key::span(ino, EXTENT, later.start, later.end));
        }
        if now.is_empty() {
            return Vec::new();
        }
        self.read_tree(|view| record::load(view, ino, record_start(inode, now.start), now.end)).unwrap_or_default()
    }

    fn append(&self, ino: Ino, look: &Look, piece: &Piece, out: &mut Vec<u8>) -> Result<(), Failure> {
        let Look { offset: from, end: to, seen, .. } = look;
        let (from, to) = (*from, *to);
        let key = key::extent(ino, piece.offset);
        let read = if look.past { Head::bytes_past_cache } else { Head::bytes_at };
        let copied = match &piece.content {
            Content::Inline(bytes) => piece.copy(bytes, from, to, out),
            Content::Part { block, .. } => piece.copy(&read(&self.head, key, block, *seen)?, from, to, out),
        };
        copied.map_err(|malformed: Malformed| damaged(key)(malformed))
    }

    /// Updates the access time, if the options ask for an update. A failure does not fail the read.
    pub(in crate::fs) fn touch(&self, ino: Ino, inode: &Inode) {
        let options = self.options();
        if options.readonly || !options.atime || inode.has(flag::NOATIME) {
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
