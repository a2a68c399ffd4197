//! A file system that the kernel may serve to programs meanwhile, and whose tree may be replaced during a command.
//!
//! A command takes many steps. Between two steps another command may roll back the file system or receive into it.
//! Then the inode numbers known to the command may belong to other files. So a command uses one of three views:
//!
//! * [`Served::pinned`], for changes: every step fails once the tree was replaced. The replacement undid or overwrote
//!   earlier steps, and continuing would only hide the loss.
//! * [`Served::same`], for single reads of a file: fails if the inode number belongs to another file.
//! * [`Served::content`], for reads in several steps: fails also if the content of the file was replaced.

use std::{ops::Deref, sync::Arc};

use dataset::fs::{Attr, Caller, Errno, FileSystem, FileType, Handle, Ino};
use fuse_mount::Mount;
use pool::txg::TreeEpoch;
use protocol::Failure;

use super::{REPLACED, resolve::Place};
use crate::execute::mounts::Mounts;

/// A file system with access to its mount, if any: a change made here invalidates exactly the changed entries in the
/// kernel.
pub(in crate::execute) struct Served {
    fs: Arc<FileSystem>,
    /// The epoch of the tree when the command began.
    epoch: TreeEpoch,
    /// The mount table and the dataset's id. The dataset may be mounted or unmounted during a command.
    mounts: Option<(Arc<Mounts>, u64)>,
}

impl Served {
    pub(super) fn new(fs: Arc<FileSystem>, mounts: Option<(Arc<Mounts>, u64)>) -> Served {
        Served { epoch: fs.epoch(), fs, mounts }
    }

    /// This file system with every access failing with ESTALE after a rollback or a receive.
    pub(super) fn pinned(self) -> Served {
        Served { fs: Arc::new(self.fs.pinned()), ..self }
    }

    /// Fails if the file system was rolled back, received into or destroyed since the command began.
    pub(super) fn check_not_replaced(&self, action: &str, shown: &str) -> Result<(), Failure> {
        if self.fs.epoch() == self.epoch && self.fs.head().check_open().is_ok() {
            return Ok(());
        }
        Err(Failure::cannot(action, shown, REPLACED)
            .hint("earlier changes of the command are lost; run the command again"))
    }

    /// A handle of the file with these attributes, which were read since the command began.
    pub(super) fn handle(&self, attr: &Attr) -> Handle {
        Handle::new(attr, self.epoch)
    }

    /// A view of this file alone; fails for any other file with the same inode number.
    pub(super) fn same(&self, attr: &Attr) -> FileSystem {
        self.fs.only([self.handle(attr)])
    }

    /// As [`Served::same`]; fails also after a rollback or a receive has replaced the file's content.
    pub(super) fn content(&self, attr: &Attr) -> FileSystem {
        self.fs.only([self.handle(attr).unreplaced(attr)])
    }

    /// Device and inode number of an object as programs on this machine see the object; `None` if not mounted.
    pub(super) fn identity(&self, ino: Ino) -> Option<(u64, u64)> {
        let (major, minor) = self.mount()?.device();
        Some((rustix::fs::makedev(major, minor), ino))
    }

    /// Asks the kernel to write back changes made through mappings of a file, before the file is read here.
    pub(super) fn write_back(&self, ino: Ino) {
        self.object_changed(ino);
    }

    /// The directory at `at`, created if missing.
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

    /// Removes the name of `ino`, which is not a directory.
    pub(super) fn remove(&self, at: &Place, ino: Ino) -> Result<(), Errno> {
        self.fs.unlink(at.dir, &at.name)?;
        self.entry_changed(at);
        self.object_changed(ino);
        Ok(())
    }

    /// Tells the kernel that the entry under a name was created, removed or replaced.
    pub(super) fn entry_changed(&self, at: &Place) {
        self.mount().iter().for_each(|mount| mount.entry_changed(at.dir, &at.name));
    }

    /// Tells the kernel that an object was changed.
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
