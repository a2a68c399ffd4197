//! A POSIX file system over one dataset's tree.
//!
//! Below it lies the engine's [`Head`]: one tree of items, read under a shared lock and changed by batches that take
//! effect at once. Every operation on names and attributes is one such batch, so it happens entirely or not at all,
//! now and after a crash, and needs no other lock. An operation on a file's content may need several steps (it reads
//! blocks without any lock on the tree, and frees large ranges in bounded batches), so it holds the file's own lock,
//! shared for reading and exclusive for changing.
//!
//! Above it lie the mount and the commands that reach into a dataset without one. This module knows neither requests
//! nor handles, checks no permissions (the kernel does) and keeps nothing in memory but which inodes are in use.
//!
//! ```text
//! key        where everything stands              inode, master, directory, link   what stands there, and its coding
//! change     a batch being put together           failure     how an attempt ends
//! attr       stat and setattr                     create, remove, rename, readdir, path   names
//! xattr, acl extended attributes, access lists    orphan      unlinked files, and freeing what is left of them
//! attributes immutable, compression and such of single files
//! account/   who takes how much, and how much they may      project     trees of files that are charged together
//! file/      content: extents, read, write, truncate, allocate, seek, copy
//! identity   what a step expects of the file that an earlier step has found
//! statfs     space                                replay      after a crash: what the intent log was told
//! check      the judge
//! ```
//!
//! Invariants, which [`check`] verifies:
//! 1. An inode's `nlink` is the number of entries that lead to it (a directory's: two and its subdirectories), and its
//!    links name exactly these entries.
//! 2. An inode without links has an orphan item, and is freed when nobody uses it any more.
//! 3. Extents do not overlap, do not cross a record's boundary, and end before the file does, unless the file is marked
//!    as being truncated. All extents on one block lie within one record of one file, or are of different references to
//!    it. `bytes` is their sum.
//! 4. Object numbers are below the master's `next`, and never used again.
//! 5. The accounts of users, groups and projects, where a tree keeps any, are the sums of what their inodes are charged.

pub mod account;
pub mod acl;
mod attr;
mod attributes;
mod change;
pub mod check;
mod create;
pub mod directory;
mod failure;
pub mod file;
mod identity;
pub mod inode;
pub mod key;
pub mod link;
pub mod master;
mod orphan;
mod path;
mod project;
mod readdir;
mod remove;
mod rename;
pub(crate) mod replay;
mod statfs;
pub mod xattr;

#[cfg(test)]
mod tests;

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
    tree::{Policy, View},
    txg::{Caching, Head, TreeEpoch},
};
pub use rustix::io::Errno;

pub use account::{Account, Amount, OwnerKind, SetQuota};
pub use attr::{Attr, Caller, SetAttr, SetTime};
pub use attributes::{Attribute, FileAttributes, Own};
pub use file::{FallocateFlags, Whence};
pub use identity::{Handle, Identity};
pub use inode::FileType;
pub use key::{Ino, ROOT};
pub use path::Paths;
pub use project::Project;
pub use readdir::DirEntry;
pub use rename::RenameFlags;
pub use statfs::{Room, StatFs};
pub use xattr::SetXattr;

use account::ledger::{Ledger, load_below};
use change::{Change, load_master};
use failure::Failure;
use identity::Expected;
pub(crate) use identity::identity_in;
use inode::{Inode, MAX_RECORD_SHIFT, MIN_RECORD_SHIFT};
use master::Master;

/// What a dataset's properties say about its file system. May change while it is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Refuse every change.
    pub readonly: bool,
    /// Keep the time of the last read at all.
    pub atime: bool,
    /// Keep it only when the last one is older than the last change, or than a day.
    pub relatime: bool,
    /// The record size of files that get their first block from now on: a power of two, 4 KiB to 16 MiB.
    pub recordsize: u32,
    /// How blocks are stored.
    pub policy: Policy,
    /// Whether each file lies on one vdev as a whole, instead of on all.
    pub whole_files: bool,
    /// When changes become durable.
    pub sync: Durability,
    /// Whether files may get attributes of their own: the pool's feature `file_attributes` is enabled.
    pub attributes: bool,
    /// Whether there may be accounts, quotas and projects: the pool's feature `project_quota` is enabled.
    pub accounts: bool,
    /// Whether there are access control lists. Without them they are hidden, and nothing new gets one.
    pub acl: bool,
    /// What of it is kept in the cache in memory.
    pub primary_cache: Caching,
    /// What of it may go to cache devices.
    pub secondary_cache: Caching,
    /// Whether copies may share blocks: the pool's feature `block_cloning` is enabled.
    pub sharing: bool,
}

/// When changes become durable: the property `sync`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When somebody asks for it, and with the next commit.
    #[default]
    Standard,
    /// Before the change returns.
    Always,
    /// With the next commit, whoever asks.
    Disabled,
}

impl Options {
    fn record_shift(&self) -> u8 {
        let shift = self.recordsize.max(1).ilog2() as u8;
        shift.clamp(MIN_RECORD_SHIFT, MAX_RECORD_SHIFT)
    }
}

/// One dataset's file system, and what is expected of it: see [`FileSystem::pinned`] and [`FileSystem::only`].
pub struct FileSystem {
    core: Arc<Core>,
    expected: Expected,
}

/// What all views of one file system share.
pub struct Core {
    head: Arc<Head>,
    options: RwLock<Options>,
    room: RwLock<Option<Arc<dyn Room>>>,
    /// The seed of the name hash.
    seed: AtomicU64,
    /// Whether the tree keeps accounts, or begins to.
    accounted: AtomicBool,
    locks: file::FileLocks,
    retained: orphan::Retained,
}

impl Deref for FileSystem {
    type Target = Core;

    fn deref(&self) -> &Core {
        &self.core
    }
}

/// The room that an operation on names and attributes asks for, in bytes: what its items take.
const METADATA: u64 = 4096;
/// How many steps of freeing removed files one call makes in a file system, be it in the background or for an operation that
/// was refused and is tried again after that.
pub(crate) const REAPING_STEPS: usize = 16;

impl FileSystem {
    /// Makes the file system of an empty tree: its master item, and a root directory of this owner.
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
        let core = Core {
            head,
            options: RwLock::new(options),
            room: RwLock::default(),
            seed: AtomicU64::new(master.seed),
            accounted: AtomicBool::new(below.is_some()),
            locks: file::FileLocks::default(),
            retained: orphan::Retained::default(),
        };
        Ok(Arc::new(FileSystem { core: Arc::new(core), expected: Expected::Anything }))
    }

    /// Whether both are views of one file system.
    pub fn is(&self, other: &FileSystem) -> bool {
        Arc::ptr_eq(&self.core, &other.core)
    }

    /// Which tree it shows: another one after a rollback or a receive.
    pub fn epoch(&self) -> TreeEpoch {
        self.head.epoch()
    }

    /// This file system as long as it shows the tree that it shows now. When another tree was put in its place, every
    /// operation fails with ESTALE. A tree gives no inode number to two files, so numbers are identities here.
    pub fn pinned(&self) -> FileSystem {
        match self.expected {
            Expected::Tree(epoch) => self.expecting(Expected::Tree(epoch)),
            _ => self.expecting(Expected::Tree(self.epoch())),
        }
    }

    /// This file system as long as these are the files that their numbers stand for; ESTALE if one of them is not.
    pub fn only(&self, files: impl IntoIterator<Item = Handle>) -> FileSystem {
        self.expecting(Expected::Files(files.into_iter().collect()))
    }

    fn expecting(&self, expected: Expected) -> FileSystem {
        FileSystem { core: self.core.clone(), expected }
    }

    /// To be called when another tree was put in the place of this one's, before anything is changed in it: a tree that
    /// was received brings its own seed and accounts along.
    ///
    /// # Errors
    /// If it cannot be read. Then its accounts are kept all the same, should it have any.
    pub fn tree_replaced(&self) -> Result<(), Errno> {
        self.forget_unused();
        self.accounted.store(true, Ordering::Release);
        let (master, below) = self.head.read(|view| Ok::<_, Failure>((load_master(view)?, load_below(view)?)))?;
        self.seed.store(master.seed, Ordering::Release);
        self.accounted.store(below.is_some(), Ordering::Release);
        Ok(())
    }

    fn seed(&self) -> u64 {
        self.seed.load(Ordering::Acquire)
    }

    /// The tree below.
    pub fn head(&self) -> &Arc<Head> {
        &self.head
    }

    /// The options in force.
    pub fn options(&self) -> Options {
        *self.options.read()
    }

    /// Changes the options.
    pub fn set_options(&self, options: Options) {
        self.head.set_caching(options.primary_cache, options.secondary_cache);
        *self.options.write() = options;
    }

    /// Makes a file durable, with its names and parents: as [`FileSystem::sync`].
    pub fn fsync(&self, _ino: Ino) -> Result<(), Errno> {
        self.sync()
    }

    /// As [`FileSystem::fsync`], for a directory.
    pub fn fsyncdir(&self, _dir: Ino) -> Result<(), Errno> {
        self.sync()
    }

    /// Makes everything done so far durable.
    pub fn sync(&self) -> Result<(), Errno> {
        match self.options().sync {
            Durability::Disabled => Ok(()),
            Durability::Standard | Durability::Always => {
                self.head.make_durable().map_err(|error| failure::errno(&error))
            }
        }
    }

    fn now(&self) -> Nanos {
        self.head.engine().env().now()
    }

    fn writable(&self) -> Result<(), Errno> {
        if self.options.read().readonly { Err(Errno::ROFS) } else { Ok(()) }
    }

    /// Admits new data, and waits while too much is dirty. Without locks.
    fn admit(&self, bytes: u64) -> Result<(), Errno> {
        let admit = || self.take_turn(bytes).and_then(|()| self.admit_in_turn(bytes));
        Ok(self.with_due_room(|| admit().map_err(Failure::Refused))?)
    }

    /// Runs an operation that needs room, and runs it again as long as it is refused and space is due to be freed: see
    /// [`Engine::with_due_room`](pool::txg::Engine::with_due_room). The quotas of users, groups and projects have a way of
    /// their own, [`FileSystem::under_quota`]. Without locks.
    fn with_due_room<T>(&self, operation: impl FnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        let free = |failure: &Failure| match failure {
            Failure::Refused(Errno::NOSPC) | Failure::Engine(PoolError::OutOfSpace) => {
                Some(self.head.engine().free_due())
            }
            // What other datasets free helps no quota of this one.
            Failure::Refused(Errno::DQUOT) => Some(self.free_due(REAPING_STEPS)),
            _ => None,
        };
        self.head.engine().with_due_room(operation, free)
    }

    /// The half of it that waits as soon as much is dirty, for who has to take locks for the other half.
    fn take_turn(&self, bytes: u64) -> Result<(), Errno> {
        self.head.take_turn(bytes).map_err(|error| failure::errno(&error))
    }

    fn admit_in_turn(&self, bytes: u64) -> Result<(), Errno> {
        let room = self.room.read().clone();
        if let Some(room) = room {
            room.admit(bytes)?;
        }
        self.head.admit_in_turn(bytes).map_err(|error| failure::errno(&error))
    }

    fn read_tree<T>(&self, mut look: impl FnMut(&View<'_>) -> Result<T, Failure>) -> Result<T, Errno> {
        Ok(self.head.read(|view| {
            self.check_expected(view)?;
            look(view)
        })?)
    }

    /// ESTALE if this is not what is expected. The view's lock is held, so the epoch is that of its tree.
    fn check_expected(&self, view: &View<'_>) -> Result<(), Failure> {
        self.expected.check(view, self.head.epoch())
    }

    fn update_tree<T>(&self, make: impl FnMut(&mut Change<'_>) -> Result<T, Failure>) -> Result<T, Errno> {
        Ok(self.try_update(make)?)
    }

    fn try_update<T>(&self, mut make: impl FnMut(&mut Change<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
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
