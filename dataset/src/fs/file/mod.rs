//! The content of files.
//!
//! The content of a small file is in the tree itself. Larger content is divided into aligned *records* of one size per
//! file. The range of a record holds *extents*, which map bytes of the file to bytes of a block. A fresh record is one
//! extent on one block. A small overwrite adds a block with the new bytes and trims the extents around it, so nothing
//! has to be read. A record with too many pieces is read and rewritten.
//!
//! All extents on one block lie within one record of one file, or belong to different references to the block, each
//! within one record of one file: copying between files may take a further reference instead of copying bytes. So when
//! an extent is removed, its neighbours show whether the reference has lost its last extent; if so, the engine is told
//! to give up the reference.
//!
//! ```text
//! extent    an extent and its coding        record    the extents of one record: cutting, joining, storing the difference
//! read      reading                         write     writing: in place, a piece, or the record anew
//! truncate  changing the length             discard   dropping items in bounded batches
//! allocate  fallocate: punching, zeroing    seek      SEEK_DATA and SEEK_HOLE       copy   copy_file_range
//! share     copying by taking references to blocks
//! ```
//!
//! A file's content is read under its lock, shared, and changed under the lock, exclusive. An operation over several
//! updates of the tree is consistent at each: new data is readable or absent; and a file gets its shorter length before
//! the data beyond is dropped, with a marker until the drop is done.

mod allocate;
mod copy;
pub(super) mod discard;
pub mod extent;
mod read;
mod record;
mod seek;
mod share;
mod truncate;
mod write;

use std::sync::Arc;

use parking_lot::RwLock;
use pool::{error::Error as PoolError, tree::Block};
use rustix::io::Errno;

use super::{
    FileSystem,
    change::Change,
    failure::Failure,
    inode::{FileType, Inode},
    key::Ino,
};

pub use allocate::FallocateFlags;
pub use seek::Whence;
pub(super) use write::effective_shift;

const LOCKS: u64 = 1024;

/// The locks of files, chosen by inode number: two files may share a lock.
pub(super) struct FileLocks(Box<[RwLock<()>]>);

impl Default for FileLocks {
    fn default() -> FileLocks {
        FileLocks((0..LOCKS).map(|_| RwLock::default()).collect())
    }
}

impl FileLocks {
    pub(super) fn of(&self, ino: Ino) -> &RwLock<()> {
        &self.0[(ino % LOCKS) as usize]
    }
}

/// EISDIR or EINVAL unless the inode is a regular file.
fn check_regular(inode: &Inode) -> Result<(), Errno> {
    match inode.file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// Blocks that an operation had to read before continuing.
#[derive(Default)]
struct Fetched(Vec<(Block, Arc<Vec<u8>>)>);

impl Fetched {
    fn get(&self, block: &Block) -> Option<&Arc<Vec<u8>>> {
        self.0.iter().find(|(other, _)| other.same(block)).map(|(_, bytes)| bytes)
    }
}

impl FileSystem {
    /// Changes a file's content; the caller holds the exclusive lock. Before a retry, an interrupted truncation is
    /// finished, and needed blocks are read.
    fn update_content<T>(
        &self,
        ino: Ino,
        mut make: impl FnMut(&mut Change<'_>, &Fetched) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut fetched = Fetched::default();
        loop {
            match self.try_update(|change| make(change, &fetched)) {
                Err(Failure::Truncating) => self.finish_truncation(ino)?,
                Err(Failure::Need(blocks, seen)) => {
                    for block in blocks {
                        let bytes = match self.head.bytes(&block, seen) {
                            // The next attempt looks up the current blocks.
                            Err(PoolError::Stale) => break,
                            read => read?,
                        };
                        self.admit_in_turn(bytes.len() as u64)?;
                        fetched.0.push((block, bytes));
                    }
                }
                done => return done,
            }
        }
    }
}
