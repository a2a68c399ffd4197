//! The locks of files.

use parking_lot::RwLock;

use crate::fs::key::Ino;

const LOCKS: u64 = 1024;

/// The locks of files, chosen by inode number: two files may share a lock.
pub(in crate::fs) struct FileLocks(Box<[RwLock<()>]>);

impl Default for FileLocks {
    fn default() -> FileLocks {
        FileLocks((0..LOCKS).map(|_| RwLock::default()).collect())
    }
}

impl FileLocks {
    pub(in crate::fs) fn of(&self, ino: Ino) -> &RwLock<()> {
        &self.0[(ino % LOCKS) as usize]
    }
}
