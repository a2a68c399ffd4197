//! The kernel's references to the live file system.
//!
//! Every reply that names a file gives the kernel one reference to its node; a `forget` returns some. While the kernel
//! has a reference, the file system keeps the object, unlinked or not: an open file is just a held node. The file
//! system is told of the first reference and of the last, and of none between.
//!
//! A node stores the identity of its file at the time when the kernel got the node. A rollback changes the file system
//! without a request of the kernel: an object number may be gone, or belong to a new file. The node is then *stale*:
//! every request fails with `ESTALE`, and the kernel looks up the path again. Until all stale nodes are found, each
//! operation compares identities itself. So at no time can data for the old file end in the new file.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use dataset::fs::{Handle, Identity, Ino, ROOT};
use parking_lot::{Mutex, RwLock};
use pool::txg::TreeEpoch;

const SHARDS: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Reference {
    count: u64,
    file: Handle,
    /// Whether the kernel may have cached content.
    cached: bool,
    /// The number of open files through which the node can be mapped for writing.
    mappable: u32,
}

/// The nodes of the live file system held by the kernel.
#[derive(Debug, Default)]
pub(crate) struct Held {
    shards: [Mutex<HashMap<Ino, Reference>>; SHARDS],
    stale: RwLock<HashSet<Ino>>,
    any_stale: AtomicBool,
}

impl Held {
    /// Adds a reference. True if the kernel had none.
    pub(crate) fn add(&self, file: Handle) -> bool {
        let ino = file.ino();
        let mut shard = self.shard(ino).lock();
        let reference = shard.entry(ino).or_insert(Reference { count: 0, file, cached: false, mappable: 0 });
        reference.count += 1;
        if reference.file.identity() != file.identity() {
            reference.file = file;
            self.stale.write().remove(&ino);
        }
        reference.count == 1
    }

    /// The file of this node when the kernel got the node; `None` for the root, whose identity may change.
    pub(crate) fn file(&self, ino: Ino) -> Option<Handle> {
        if ino == ROOT {
            return None;
        }
        self.shard(ino).lock().get(&ino).map(|reference| reference.file)
    }

    /// Takes back `count` references. True if the kernel has none left.
    ///
    /// A count above the number of references is a kernel bug; then no reference is left.
    pub(crate) fn forget(&self, ino: Ino, count: u64) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(reference) = shard.get_mut(&ino) else { return false };
        reference.count = reference.count.saturating_sub(count);
        let gone = reference.count == 0;
        if gone {
            shard.remove(&ino);
            if self.any_stale.load(Ordering::Acquire) {
                self.stale.write().remove(&ino);
            }
        }
        gone
    }

    /// Notes that the kernel is about to cache content of a held node.
    pub(crate) fn note_cached(&self, ino: Ino) {
        self.edit(ino, |reference| reference.cached = true);
    }

    /// Whether the kernel may have cached content of a node.
    pub(crate) fn is_cached(&self, ino: Ino) -> bool {
        self.shard(ino).lock().get(&ino).is_some_and(|reference| reference.cached)
    }

    /// Notes an open for reading and writing: the node may be mapped.
    pub(crate) fn note_mappable(&self, ino: Ino) {
        self.edit(ino, |reference| reference.mappable += 1);
    }

    /// Notes the end of an open for reading and writing, mappings included.
    pub(crate) fn note_closed(&self, ino: Ino) {
        self.edit(ino, |reference| reference.mappable = reference.mappable.saturating_sub(1));
    }

    /// The held nodes with possible writable mappings.
    pub(crate) fn mappable(&self) -> Vec<Ino> {
        let of_shard = |shard: &Mutex<HashMap<Ino, Reference>>| {
            let shard = shard.lock();
            shard.iter().filter(|(_, reference)| reference.mappable > 0).map(|(&ino, _)| ino).collect::<Vec<_>>()
        };
        self.shards.iter().flat_map(of_shard).collect()
    }

    fn edit(&self, ino: Ino, change: impl FnOnce(&mut Reference)) {
        if let Some(reference) = self.shard(ino).lock().get_mut(&ino) {
            change(reference);
        }
    }

    /// Whether the node's object was replaced by another or removed.
    pub(crate) fn is_stale(&self, ino: Ino) -> bool {
        self.any_stale.load(Ordering::Acquire) && ino != ROOT && self.stale.read().contains(&ino)
    }

    /// Compares the held ones of these nodes with the file system. `epoch` is the file system's epoch before the
    /// comparison; `identity_of` gives an object's identity, `None` if the object does not exist.
    pub(crate) fn refresh(
        &self,
        nodes: impl IntoIterator<Item = Ino>,
        epoch: TreeEpoch,
        identity_of: impl Fn(Ino) -> Option<Identity>,
    ) {
        for ino in nodes {
            let Some(identity) = self.shard(ino).lock().get(&ino).map(|held| held.file.identity()) else { continue };
            if identity_of(ino) == Some(identity) {
                self.confirm(identity, epoch);
            } else {
                self.any_stale.store(true, Ordering::Release);
                self.stale.write().insert(ino);
            }
        }
    }

    /// Notes that a held node is unchanged in the tree of this epoch, so operations no longer compare its identity.
    fn confirm(&self, identity: Identity, epoch: TreeEpoch) {
        self.edit(identity.0, |reference| {
            if reference.file.identity() == identity {
                reference.file = Handle::of(identity, epoch);
            }
        });
    }

    /// The inode numbers that the kernel holds, in no order.
    pub(crate) fn nodes(&self) -> Vec<Ino> {
        self.shards.iter().flat_map(|shard| shard.lock().keys().copied().collect::<Vec<_>>()).collect()
    }

    /// Removes and returns every held node.
    pub(crate) fn drain(&self) -> Vec<Ino> {
        self.shards.iter().flat_map(|shard| std::mem::take(&mut *shard.lock()).into_keys()).collect()
    }

    fn shard(&self, ino: Ino) -> &Mutex<HashMap<Ino, Reference>> {
        &self.shards[ino as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(ino: Ino, generation: u64) -> Handle {
        Handle::of((ino, generation, 0), TreeEpoch::default())
    }

    #[test]
    fn only_the_first_and_the_last_reference_matter() {
        let held = Held::default();
        assert!(held.add(file(7, 1)));
        assert!(!held.add(file(7, 1)));
        assert!(!held.forget(7, 1));
        assert!(held.forget(7, 1));
        assert!(!held.forget(7, 1), "nothing is left to forget");
    }

    #[test]
    fn forgetting_too_much_leaves_nothing() {
        let held = Held::default();
        held.add(file(7, 1));
        assert!(held.forget(7, u64::MAX));
        assert!(held.drain().is_empty());
    }

    #[test]
    fn a_replaced_object_is_stale_until_it_is_looked_up_again() {
        let held = Held::default();
        for ino in [2, 3, 4] {
            held.add(file(ino, 10));
        }
        held.refresh(2..9, TreeEpoch::default(), |ino| match ino {
            2 => Some((2, 10, 0)),
            3 => Some((3, 11, 0)),
            _ => None,
        });
        let mut all = held.nodes();
        all.sort_unstable();
        assert_eq!(all, [2, 3, 4]);
        assert_eq!([2, 3, 4].map(|ino| held.is_stale(ino)), [false, true, true]);
        assert!(!held.add(file(3, 11)));
        assert!(!held.is_stale(3));
        assert!(held.forget(4, 1));
        assert!(!held.is_stale(4), "a forgotten node's number may be given out again");
    }

    #[test]
    fn draining_returns_all() {
        let held = Held::default();
        for ino in 1..100 {
            held.add(file(ino, 0));
        }
        assert_eq!(held.drain().len(), 99);
        assert!(held.drain().is_empty());
    }
}
