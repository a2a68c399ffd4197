//! Changes of content: the blocks that a change needs are read first.

use std::sync::Arc;

use pool::{error::Error as PoolError, tree::Block};
use rustix::io::Errno;

use crate::fs::{
    change::Change,
    failure::Failure,
    file_system::FileSystem,
    inode::{FileType, Inode},
    key::Ino,
};

/// EISDIR or EINVAL unless the inode is a regular file.
pub(super) fn check_regular(inode: &Inode) -> Result<(), Errno> {
    match inode.file_type {
        FileType::Regular => Ok(()),
        FileType::Directory => Err(Errno::ISDIR),
        _ => Err(Errno::INVAL),
    }
}

/// Blocks that an operation had to read before continuing.
#[derive(Default)]
pub(super) struct Fetched(pub(super) Vec<(Block, Arc<Vec<u8>>)>);

impl Fetched {
    pub(super) fn get(&self, block: &Block) -> Option<&Arc<Vec<u8>>> {
        self.0.iter().find(|(other, _)| other.same(block)).map(|(_, bytes)| bytes)
    }
}

impl FileSystem {
    /// Changes a file's content; the caller holds the exclusive lock. Before a retry, an interrupted truncation is
    /// finished, and needed blocks are read.
    pub(super) fn update_content<T>(
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
