//! Entries of directories: removed and made one by one, without touching a time.

use pool::format::key::Key;
use rustix::io::Errno;

use crate::fs::{
    change::Change,
    directory::{Dirent, probe},
    failure::{Failure, damaged},
    file_system::{FileSystem, METADATA},
    inode::{FileType, Link},
    key::{self, DIRENT, Ino},
    link,
};

/// The most entries that one look returns.
const LOOK: usize = 512;

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    /// The entry's offset in its directory.
    pub(crate) offset: u64,
    pub(crate) ino: Ino,
    pub(crate) file_type: FileType,
}

impl FileSystem {
    /// The entry with a name.
    pub(crate) fn entry(&self, dir: Ino, name: &[u8]) -> Result<Option<Named>, Errno> {
        let found = self.read_tree(|view| Ok(probe(view, self.seed(), dir, name)?.found))?;
        Ok(found.map(|found| Named { offset: found.offset, ino: found.ino, file_type: found.file_type }))
    }

    /// Some entries of a directory, from an offset on; none at the end.
    pub(crate) fn entries(&self, dir: Ino, from: u64) -> Result<Vec<Named>, Errno> {
        self.read_tree(|view| {
            let mut named = Vec::new();
            for entry in view.range(key::from(dir, DIRENT, from)).take(LOOK) {
                let entry = entry?;
                let key = entry.key();
                let Dirent { ino, file_type, .. } = Dirent::decode(entry.body()).map_err(damaged(key))?;
                named.push(Named { offset: key.offset, ino, file_type });
            }
            Ok(named)
        })
    }

    /// Removes an entry. True if its file has lost its last name.
    pub(crate) fn remove_entry(&self, dir: Ino, named: Named) -> Result<bool, Errno> {
        self.admit(METADATA)?;
        self.update_tree(|change| {
            change.delete(Key::new(dir, DIRENT, named.offset));
            let is_dir = named.file_type == FileType::Directory;
            let parent = change.edit(dir)?;
            parent.size = parent.size.saturating_sub(1);
            parent.nlink = parent.nlink.saturating_sub(u32::from(is_dir));
            drop_name(change, named, Link { dir, offset: named.offset })
        })
    }

    /// Removes one name of a file, and returns the directory that had it; `None` if the file has no name.
    pub(crate) fn strip_name(&self, ino: Ino) -> Result<Option<Ino>, Errno> {
        let Some(inode) = self.inode(ino)?.filter(|inode| inode.parent != Link::NONE) else { return Ok(None) };
        let Link { dir, offset } = inode.parent;
        self.remove_entry(dir, Named { offset, ino, file_type: inode.file_type })?;
        Ok(Some(dir))
    }

    /// Enters a file under a name.
    ///
    /// # Errors
    /// EEXIST if the name is taken, EMLINK for a directory that has a name, ENOENT without an inode.
    pub(crate) fn add_entry(&self, dir: Ino, name: &[u8], ino: Ino) -> Result<(), Errno> {
        self.admit(METADATA)?;
        self.update_tree(|change| {
            let probe = probe(&change.view, self.seed(), dir, name)?;
            if probe.found.is_some() {
                return Err(Errno::EXIST.into());
            }
            let (inode, offset) = (change.inode(ino)?, probe.vacancy()?);
            if inode.is_dir() && (inode.parent != Link::NONE || ino == key::ROOT || ino == dir) {
                return Err(Errno::MLINK.into());
            }
            let dirent = Dirent { ino, file_type: inode.file_type, name };
            change.put(key::dirent(dir, offset), dirent.encode(), None);
            let parent = change.edit(dir)?;
            parent.size += 1;
            if inode.is_dir() {
                parent.nlink = parent.nlink.checked_add(1).ok_or(Errno::MLINK)?;
            }
            link::add(change, ino, Link { dir, offset })?;
            let inode = change.edit(ino)?;
            let names = if inode.is_dir() { 2 } else { 1 };
            inode.nlink = inode.nlink.checked_add(names).ok_or(Errno::MLINK)?;
            Ok(())
        })
    }
}

fn drop_name(change: &mut Change<'_>, named: Named, link: Link) -> Result<bool, Failure> {
    match link::remove(change, named.ino, link) {
        Err(Failure::Refused(Errno::NOENT)) => return Ok(false),
        removed => removed?,
    }
    let inode = change.edit(named.ino)?;
    let names = if named.file_type == FileType::Directory { 2 } else { 1 };
    inode.nlink = inode.nlink.saturating_sub(names);
    Ok(inode.parent == Link::NONE)
}
