//! The inodes in use, counted in memory.

use std::{collections::HashMap, sync::atomic::AtomicBool, time::Duration};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::key::Ino;

const SHARDS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Use {
    pub(super) count: u64,
    pub(super) orphan: bool,
}

/// The inodes in use, and whether orphans wait to be freed.
pub(super) struct Retained {
    shards: Box<[Mutex<HashMap<Ino, Use>>]>,
    pub(super) pending: AtomicBool,
    /// Orphans released recently, to be freed together.
    pub(super) unused: Mutex<Vec<Ino>>,
    /// Held while a thread looks for orphans and frees orphans, and while an inode is made without a name.
    pub(super) reaping: Mutex<()>,
    /// The uptime when an inode in use last lost its last name.
    pub(super) orphaned: Mutex<Option<Duration>>,
    /// The number of orphans released so far; a thread that needs room waits for a change.
    pub(super) released: Mutex<u64>,
    pub(super) release: Condvar,
}

impl Default for Retained {
    fn default() -> Retained {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        // After a crash the tree may have orphans.
        Retained {
            shards,
            pending: AtomicBool::new(true),
            unused: Mutex::default(),
            reaping: Mutex::default(),
            orphaned: Mutex::default(),
            released: Mutex::default(),
            release: Condvar::default(),
        }
    }
}

impl Retained {
    pub(super) fn shard(&self, ino: Ino) -> MutexGuard<'_, HashMap<Ino, Use>> {
        self.shards[(ino % SHARDS as u64) as usize].lock()
    }

    pub(super) fn holds(&self, ino: Ino) -> bool {
        self.shard(ino).contains_key(&ino)
    }

    /// Marks an inode to be freed by its last release; false if the inode is not in use.
    pub(super) fn mark_orphan(&self, ino: Ino) -> bool {
        self.shard(ino).get_mut(&ino).map(|used| used.orphan = true).is_some()
    }
}
