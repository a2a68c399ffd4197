//! What is in a file.
//!
//! A small file's content stands in the tree itself. Larger content is cut into *records* of one size per file, aligned
//! to it; each record's range holds *extents*: which bytes of the file are which bytes of which block. A fresh record is
//! one extent on one block. A small overwrite adds a block with its own bytes and trims the extents around it, so nothing
//! has to be read; when a record has become too many pieces, it is read and written anew.
//!
//! All extents on one block lie within one record of one file, or belong to different references to it, each within one
//! record of one file: copying from file to file may take a further reference instead of bytes. So whoever takes an extent
//! away sees by its neighbours whether it was the last of its reference, and tells the engine that the reference is not
//! needed any more.
//!
//! ```text
//! extent    an extent and its coding        record    the extents of one record: cutting, joining, storing the difference
//! read      reading                         write     writing: in place, a piece, or the record anew
//! truncate  changing the length             discard   dropping items in bounded batches
//! allocate  fallocate: punching, zeroing    seek      SEEK_DATA and SEEK_HOLE       copy   copy_file_range
//! share     copying by taking references to blocks
//! ```
//!
//! A file's content is read under its lock, shared, and changed under it, exclusive. What spans several updates of the
//! tree is consistent at each of them: new data stands where it can be read, or not yet; a file is short before what
//! was beyond its end is dropped, and marked until that is done.

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

/// The files' locks. Two files may share one.
pub(super) struct FileLocks(Box<[RwLock<()>]>);

impl Default for FileLocks {
    fn default() -> FileLocks {
        FileLocks((0..LOCKS).map(|_| RwLock::default()).collect())
    }
}

impl FileLocks {
    /// The lock of a file.
    pub(super) fn of(&self, ino: Ino) -> &RwLock<()> {
        &self.0[(ino % LOCKS) as usize]
    }
}

/// Fails unless it is a regular file.
fn check_regular(inode: &Inode) -> Result<(), Errno> {
    match inode.file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// Blocks that an operation had to read before it could go on.
#[derive(Default)]
struct Fetched(Vec<(Block, Arc<Vec<u8>>)>);

impl Fetched {
    fn get(&self, block: &Block) -> Option<&Arc<Vec<u8>>> {
        self.0.iter().find(|(other, _)| other.same(block)).map(|(_, bytes)| bytes)
    }
}

impl FileSystem {
    /// Changes a file's content, whose exclusive lock the caller holds. What the attempt finds missing is provided: a
    /// truncation that was cut short is finished, blocks that are needed are read.
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
                            // The attempt finds out what stands there now.
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
