//! A file system that the kernel may serve to programs at the same time.

use std::{ops::Deref, sync::Arc};

use dataset::fs::{Caller, Errno, FileSystem, FileType, Ino};
use fuse_mount::Mount;

use super::resolve::Place;

/// A file system, and its mount if it has one: who changes files here tells it exactly what.
pub(in crate::execute) struct Served {
    fs: Arc<FileSystem>,
    mount: Option<Arc<Mount>>,
}

impl Served {
    pub(super) fn new(fs: Arc<FileSystem>, mount: Option<Arc<Mount>>) -> Served {
        Served { fs, mount }
    }

    /// Whether both are one.
    pub(super) fn is(&self, other: &Served) -> bool {
        Arc::ptr_eq(&self.fs, &other.fs)
    }

    /// Device and inode of an object as this machine's programs see it, if the file system is mounted.
    pub(super) fn identity(&self, ino: Ino) -> Option<(u64, u64)> {
        let (major, minor) = self.mount.as_ref()?.device();
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
        self.mount.iter().for_each(|mount| mount.entry_changed(at.dir, &at.name));
    }

    /// An object was changed.
    pub(super) fn object_changed(&self, ino: Ino) {
        self.mount.iter().for_each(|mount| mount.object_changed(ino));
    }
}

impl Deref for Served {
    type Target = FileSystem;

    fn deref(&self) -> &FileSystem {
        &self.fs
    }
}
