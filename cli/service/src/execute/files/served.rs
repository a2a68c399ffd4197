//! A file system that the kernel may serve to programs at the same time, and that may be replaced under a command.
//!
//! A command takes many steps, and between two of them the file system may be rolled back or received into. Then the
//! numbers that the command knows may belong to other files. So it looks through one of three views:
//!
//! * [`Served::pinned`], for what it changes: every step fails once the tree was replaced. What it did before is undone or
//!   overwritten then, so going on would only hide that.
//! * [`Served::same`], for what it reads of a file: fails if the number stands for another file.
//! * [`Served::content`], for what it reads in several steps: fails also if the file has other content than before.

use std::{ops::Deref, sync::Arc};

use dataset::fs::{Attr, Caller, Errno, FileSystem, FileType, Handle, Ino};
use fuse_mount::Mount;
use pool::txg::TreeEpoch;
use protocol::Failure;

use super::{REPLACED, resolve::Place};
use crate::execute::mounts::Mounts;

/// A file system, and where its mount is found if it has one: who changes files here tells it exactly what.
pub(in crate::execute) struct Served {
    fs: Arc<FileSystem>,
    /// Which tree it showed when the command began.
    epoch: TreeEpoch,
    /// The mounts, and the dataset's number. It may be mounted and unmounted while a command runs.
    mounts: Option<(Arc<Mounts>, u64)>,
}

impl Served {
    pub(super) fn new(fs: Arc<FileSystem>, mounts: Option<(Arc<Mounts>, u64)>) -> Served {
        Served { epoch: fs.epoch(), fs, mounts }
    }

    /// The same, failing with ESTALE as soon as it was rolled back or received into.
    pub(super) fn pinned(self) -> Served {
        Served { fs: Arc::new(self.fs.pinned()), ..self }
    }

    /// Fails if it was rolled back, received into or destroyed since the command began.
    pub(super) fn check_not_replaced(&self, action: &str, shown: &str) -> Result<(), Failure> {
        if self.fs.epoch() == self.epoch && self.fs.head().check_open().is_ok() {
            return Ok(());
        }
        Err(Failure::cannot(action, shown, REPLACED)
            .hint("earlier changes of the command are lost; run the command again"))
    }

    /// The file with these attributes, which were read since the command began.
    pub(super) fn handle(&self, attr: &Attr) -> Handle {
        Handle::new(attr, self.epoch)
    }

    /// What there is of this file and no other.
    pub(super) fn same(&self, attr: &Attr) -> FileSystem {
        self.fs.only([self.handle(attr)])
    }

    /// What there is of this file and no other, as long as no rollback or receive gives it other content.
    pub(super) fn content(&self, attr: &Attr) -> FileSystem {
        self.fs.only([self.handle(attr).unreplaced(attr)])
    }

    /// Device and inode of an object as this machine's programs see it, if the file system is mounted.
    pub(super) fn identity(&self, ino: Ino) -> Option<(u64, u64)> {
        let (major, minor) = self.mount()?.device();
        Some((rustix::fs::makedev(major, minor), ino))
    }

    /// Has the kernel write back what programs have changed in a file through mappings, for it is about to be read here.
    pub(super) fn write_back(&self, ino: Ino) {
        self.object_changed(ino);
    }

    /// The directory there, which is made if nothing is.
    pub(super) fn make_directory(&self, caller: &Caller, at: &Place) -> Result<Ino, Errno> {
        match self.fs.lookup(at.dir, &at.name) {
            Ok(found) if found.file_type == FileType::Directory => Ok(found.ino),
            Ok(_) => Err(Errno::NOTDIR),
            Err(Errno::NOENT) => {
                let made = self.fs.mkdir(caller, at.dir, &at.name, 0o700)?;
                self.entry_changed(at);
                Ok(made.ino)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Takes the name of `ino`, which is no directory, away.
    pub(super) fn remove(&self, at: &Place, ino: Ino) -> Result<(), Errno> {
        self.fs.unlink(at.dir, &at.name)?;
        self.entry_changed(at);
        self.object_changed(ino);
        Ok(())
    }

    /// Something was made, removed or replaced under a name.
    pub(super) fn entry_changed(&self, at: &Place) {
        self.mount().iter().for_each(|mount| mount.entry_changed(at.dir, &at.name));
    }

    /// An object was changed.
    pub(super) fn object_changed(&self, ino: Ino) {
        self.mount().iter().for_each(|mount| mount.object_changed(ino));
    }

    fn mount(&self) -> Option<Arc<Mount>> {
        self.mounts.as_ref().and_then(|(mounts, dataset)| mounts.mount_of(*dataset))
    }
}

impl Deref for Served {
    type Target = FileSystem;

    fn deref(&self) -> &FileSystem {
        &self.fs
    }
}
