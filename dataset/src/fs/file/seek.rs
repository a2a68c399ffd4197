//! `SEEK_DATA` and `SEEK_HOLE`.

use rustix::io::Errno;

use super::{content::check_regular, extent::Piece};
use crate::fs::{
    change::load_inode,
    file_system::FileSystem,
    inode::Inode,
    key::{self, EXTENT, Ino},
};

/// The number of extents looked at per lock of the tree.
const STEP: usize = 1024;

/// The target of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// The next byte outside holes.
    Data,
    /// The next byte of a hole; the end of the file counts as a hole.
    Hole,
}

impl FileSystem {
    /// The offset of the next data or hole from `offset` on; ENXIO if none comes before the end of the file.
    pub fn seek(&self, ino: Ino, offset: u64, whence: Whence) -> Result<u64, Errno> {
        let _shared = self.locks.of(ino).read();
        match whence {
            Whence::Data => self.seek_data(ino, offset),
            Whence::Hole => self.seek_hole(ino, offset),
        }
    }

    fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64, Errno> {
        self.read_tree(|view| {
            let inode = load_inode(view, ino)?;
            check_range(&inode, offset)?;
            for entry in view.range(key::span(ino, EXTENT, record_start(&inode, offset), inode.size)) {
                let piece = Piece::decode(&entry?)?;
                if piece.end() > offset {
                    return Ok(piece.offset.max(offset));
                }
            }
            Err(Errno::NXIO.into())
        })
    }

    fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64, Errno> {
        let mut at = offset;
        loop {
            let (hole, size) = self.read_tree(|view| {
                let inode = load_inode(view, ino)?;
                check_range(&inode, offset)?;
                let mut next = at;
                let pieces = view.range(key::span(ino, EXTENT, record_start(&inode, at), inode.size));
                for (count, entry) in pieces.enumerate() {
                    let piece = Piece::decode(&entry?)?;
                    if piece.offset > next {
                        break;
                    }
                    next = next.max(piece.end());
                    if count >= STEP && next > at {
                        return Ok((Err(next), inode.size));
                    }
                }
                Ok((Ok(next), inode.size))
            })?;
            match hole {
                Ok(hole) => return Ok(hole.min(size)),
                Err(next) => at = next,
            }
        }
    }
}

fn check_range(inode: &Inode, offset: u64) -> Result<(), Errno> {
    check_regular(inode)?;
    if offset >= inode.size { Err(Errno::NXIO) } else { Ok(()) }
}

/// The start of the record that contains `offset`: no extent before the start reaches `offset`.
pub(super) fn record_start(inode: &Inode, offset: u64) -> u64 {
    match inode.record_shift {
        0 => 0,
        shift => offset >> shift << shift,
    }
}
