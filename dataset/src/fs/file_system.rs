//! The file system of one dataset: its state, and how operations read and change the tree.

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use pool::{
    env::Nanos,
    error::{Error as PoolError, Result},
    tree::View,
    txg::{Head, TreeEpoch},
};
use rustix::io::Errno;

use super::{
    account::ledger::{Ledger, load_below},
    change::{Change, load_master},
    failure::{self, Failure},
    file::locks::FileLocks,
    identity::{Expected, Handle},
    inode::{FileType, Inode},
    key::{self, Ino, ROOT},
    master::Master,
    options::Options,
    retained::Retained,
    room::Room,
};
use crate::property::Durability;

/// A view of one dataset's file system. [`FileSystem::pinned`] and [`FileSystem::only`] make views that check the tree
/// or files they were made for.
pub struct FileSystem {
    core: Arc<Core>,
    expected: Expected,
}

/// The state that all views of one file system share.
pub struct Core {
    pub(super) head: Arc<Head>,
    options: RwLock<Options>,
    pub(super) room: RwLock<Option<Arc<dyn Room>>>,
    /// The seed of the name hash.
    seed: AtomicU64,
    /// Whether the tree has accounts, or is about to get some.
    pub(super) accounted: AtomicBool,
    pub(super) locks: FileLocks,
    pub(super) retained: Retained,
}

impl Deref for FileSystem {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// The room that is requested for an operation on names and attributes, in bytes: an upper bound for its items.
pub(super) const METADATA: u64 = 4096;
/// Steps of freeing removed files in one call for a file system, in the background or before a refused operation is
/// retried.
pub(crate) const REAPING_STEPS: usize = 16;

impl FileSystem {
    /// Makes the file system of an empty tree: a master item, and a root directory with the given owner (user, group).
    pub fn format(head: &Head, owner: (u32, u32)) -> Result<()> {
        let engine = head.engine();
        let (seed, now) = (engine.env().random(), engine.env().now());
        head.update(|view, batch| {
            let mut root = Inode::new(FileType::Directory, 0o755, view.txg(), now);
            (root.uid, root.gid) = owner;
            batch.put(key::master(), Master { next: ROOT + 1, files: 1, seed }.encode(), None);
            batch.put(key::inode(ROOT), root.encode(), None);
            Ok::<_, pool::txg::Plain>(())
        })?;
        Ok(())
    }

    /// Opens the file system of a tree that [`FileSystem::format`] has made.
    pub fn open(head: Arc<Head>, options: Options) -> Result<Arc<FileSystem>, Errno> {
        let (master, below) = head.read(|view| Ok::<_, Failure>((load_master(view)?, load_below(view)?)))?;
        head.set_caching(options.primary_cache, options.secondary_cache);
        head.set_redundancy(options.redundancy);
        let core = Core {
            head,
            options: RwLock::new(options),
            room: RwLock::default(),
            seed: AtomicU64::new(master.seed),
            accounted: AtomicBool::new(below.is_some()),
            locks: FileLocks::default(),
            retained: Retained::default(),
        };
        Ok(Arc::new(FileSystem { core: Arc::new(core), expected: Expected::Anything }))
    }

    /// Whether both are views of the same file system.
    pub fn is(&self, other: &FileSystem) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// The epoch of the current tree: a rollback or a receive changes the epoch.
    pub fn epoch(&self) -> TreeEpoch {
        self.head.epoch()
    }

    /// A view of this file system for as long as the current tree stays: after a rollback or a receive, every operation
    /// of the view fails with ESTALE. A tree never reuses an inode number, so within the view a number is an identity.
    pub fn pinned(&self) -> FileSystem {
        match self.expected {
            Expected::Tree(epoch) => self.expecting(Expected::Tree(epoch)),
            _ => self.expecting(Expected::Tree(self.epoch())),
        }
    }

    /// A view of this file system in which every operation first compares the given files with their inodes; ESTALE on
    /// a mismatch.
    pub fn only(&self, files: impl IntoIterator<Item = Handle>) -> FileSystem {
        self.expecting(Expected::Files(files.into_iter().collect()))
    }

    fn expecting(&self, expected: Expected) -> FileSystem {
        FileSystem { core: self.core.clone(), expected }
    }

    /// Reloads the seed and the accounts after a rollback or a receive has replaced the tree. The caller calls this
    /// before anything changes the new tree: a received tree has a seed and accounts of its own.
    ///
    /// # Errors
    /// If the tree cannot be read. Accounts are then updated as if the tree had some.
    pub fn tree_replaced(&self) -> Result<(), Errno> {
        self.forget_unused();
        self.accounted.store(true, Ordering::Release);
        let (master, below) = self.head.read(|view| Ok::<_, Failure>((load_master(view)?, load_below(view)?)))?;
        self.seed.store(master.seed, Ordering::Release);
        self.accounted.store(below.is_some(), Ordering::Release);
        Ok(())
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed.load(Ordering::Acquire)
    }

    /// The head: the tree that this file system stores its items in.
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// A copy of the options in force.
    pub fn options(&self) -> Options {
        *self.options.read()
    }

    /// Replaces the options; operations that have begun may still see the previous options.
    pub fn set_options(&self, options: Options) {
        self.head.set_caching(options.primary_cache, options.secondary_cache);
        self.head.set_redundancy(options.redundancy);
        *self.options.write() = options;
    }

    /// Makes a file durable, with its names and parents: the same as [`FileSystem::sync`].
    pub fn fsync(&self, _ino: Ino) -> Result<(), Errno> {
        self.sync()
    }

    /// Makes a directory durable: the same as [`FileSystem::sync`].
    pub fn fsyncdir(&self, _dir: Ino) -> Result<(), Errno> {
        self.sync()
    }

    /// Makes all finished changes durable, unless `sync=disabled`. Waits for the intent log, or for a commit.
    pub fn sync(&self) -> Result<(), Errno> {
        match self.options().sync {
            Durability::Disabled => Ok(()),
            Durability::Standard | Durability::Always => {
                self.head.make_durable().map_err(|error| failure::errno(&error))
            }
        }
    }

    pub(super) fn now(&self) -> Nanos {
        self.head.engine().env().now()
    }

    pub(super) fn writable(&self) -> Result<(), Errno> {
        if self.options.read().readonly { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Admits new data; waits while too much is dirty. The caller holds no locks.
    pub(super) fn admit(&self, bytes: u64) -> Result<(), Errno> {
        let admit = || self.take_turn(bytes).and_then(|()| self.admit_in_turn(bytes));
        Ok(self.with_due_room(|| admit().map_err(Failure::Refused))?)
    }

    /// Runs an operation that needs room. If the operation is refused and space is due to be freed, frees some and
    /// retries: see [`Engine::with_due_room`](pool::txg::Engine::with_due_room). Quotas of users, groups and projects
    /// are handled by [`FileSystem::under_quota`]. The caller holds no locks.
    pub(super) fn with_due_room<T>(&self, operation: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        let free = |failure: &Failure| match failure {
            Failure::Refused(Errno::NOSPC) | Failure::Engine(PoolError::OutOfSpace) => {
                Some(self.head.engine().free_due())
            }
            // Freeing space in other datasets does not help a quota of this dataset.
            Failure::Refused(Errno::DQUOT) => Some(self.free_due(REAPING_STEPS)),
            _ => None,
        };
        self.head.engine().with_due_room(operation, free)
    }

    /// The first half of [`FileSystem::admit`], which waits while too much is dirty; a caller takes its locks between
    /// the halves.
    pub(super) fn take_turn(&self, bytes: u64) -> Result<(), Errno> {
        self.head.take_turn(bytes).map_err(|error| failure::errno(&error))
    }

    pub(super) fn admit_in_turn(&self, bytes: u64) -> Result<(), Errno> {
        let room = self.room.read().clone();
        if let Some(room) = room {
            room.admit(bytes)?;
        }
        self.head.admit_in_turn(bytes).map_err(|error| failure::errno(&error))
    }

    pub(super) fn read_tree<T>(&self, mut look: impl FnMut(&View<'_>) -> Result<T, Failure>) -> Result<T, Errno> {
        Ok(self.head.read(|view| {
            self.check_expected(view)?;
            look(view)
        })?)
    }

    /// ESTALE if the view's tree or files were replaced. The caller holds the tree's lock, so the epoch is the tree's.
    pub(super) fn check_expected(&self, view: &View<'_>) -> Result<(), Failure> {
        self.expected.check(view, self.head.epoch())
    }

    pub(super) fn update_tree<T>(&self, make: impl FnMut(&mut Change<'_>) -> Result<T, Failure>) -> Result<T, Errno> {
        Ok(self.try_update(make)?)
    }

    pub(super) fn try_update<T>(
        &self,
        mut make: impl FnMut(&mut Change<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let now = self.now();
        let value = self.head.update(|view, batch| {
            self.check_expected(view)?;
            let ledger = Ledger::new(self.accounted.load(Ordering::Acquire));
            let mut change = Change::new(*view, batch, now, ledger);
            let value = make(&mut change)?;
            change.finish()?;
            Ok::<_, Failure>(value)
        })?;
        if self.options().sync == Durability::Always {
            self.head.make_durable()?;
        }
        Ok(value)
    }
}
