//! Removing names of files and empty directories.

use rustix::io::Errno;

use super::{
    change::Change,
    directory::{Found, absent, check_old_name, probe},
    failure::Failure,
    file_system::FileSystem,
    inode::{FileType, Link},
    key::{self, Ino},
    link,
};

/// What happens to an inode that has lost a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The inode has other names, or is freed.
    Settled,
    /// The inode has no name and is freed later: after its last release, or in the background if large.
    Orphan(Ino),
}

/// Updates the directory of a removed entry: size, link count and times.
pub(super) fn leave(change: &mut Change<'_>, dir: Ino, found: &Found) -> Result<(), Failure> {
    let now = change.now;
    let parent = change.edit_directory(dir)?;
    parent.size = parent.size.saturating_sub(1);
    (parent.mtime, parent.ctime) = (now, now);
    if found.file_type == FileType::Directory {
        parent.nlink = parent.nlink.saturating_sub(1);
    }
    Ok(())
}

impl FileSystem {
    /// Removes the name of a file; EISDIR for a directory.
    pub fn unlink(&self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        self.remove_name(
            dir,
            name,
            |found, _| {
                if found.file_type == FileType::Directory { Err(Errno::ISDIR) } else { Ok(()) }
            },
        )
    }

    /// Removes an empty directory; ENOTEMPTY if the directory has entries.
    pub fn rmdir(&self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        if name == b".." {
            return Err(Errno::NOTEMPTY);
        }
        self.remove_name(dir, name, |found, size| match found.file_type {
            FileType::Directory if size == 0 => Ok(()),
            FileType::Directory => Err(Errno::NOTEMPTY),
            _ => Err(Errno::NOTDIR),
        })
    }

    fn remove_name(
        &self,
        dir: Ino,
        name: &[u8],
        allowed: impl Fn(&Found, u64) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        self.writable()?;
        check_old_name(name)?;
        let fate = self.update_tree(|change| {
            let parent = *change.edit_directory(dir)?;
            let found = probe(&change.view, self.seed(), dir, name)?.found.ok_or_else(|| absent(name))?;
            let removed = change.inode(found.ino)?;
            parent.check_free()?;
            removed.check_free()?;
            allowed(&found, removed.size)?;
            change.delete(key::dirent(dir, found.offset));
            leave(change, dir, &found)?;
            self.drop_link(change, &found, Link { dir, offset: found.offset })
        })?;
        self.settle(fate);
        Ok(())
    }

    /// Removes a name of an inode whose entry is already gone or points to another inode. An inode without any name is
    /// freed, unless in use or large.
    pub(super) fn drop_link(&self, change: &mut Change<'_>, found: &Found, link: Link) -> Result<Fate, Failure> {
        link::remove(change, found.ino, link)?;
        let now = change.now;
        let inode = change.edit(found.ino)?;
        inode.ctime = now;
        inode.nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
        if inode.nlink > 0 {
            return Ok(Fate::Settled);
        }
        self.free_or_keep(change, found.ino)
    }
}
