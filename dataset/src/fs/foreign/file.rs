//! Inodes: made under given numbers, and given all their attributes at once.

use std::borrow::Cow;

use pool::{env::Nanos, format::key::Key};
use rustix::io::Errno;

use crate::fs::{
    acl::{ACCESS, Acl, is_acl},
    attr::SetAttr,
    change::{Change, load_inode},
    failure::Failure,
    file::{discard::discard, extent::put_inline},
    file_system::{FileSystem, METADATA},
    inode::{FileType, Inode, Link, MAX_RECORD_SHIFT, MIN_RECORD_SHIFT, flag},
    key::{EXTENT, INODE, Ino, ROOT, XATTR},
    orphan::STEP,
    xattr::{self, CAPABILITY},
};

/// What a file is, except its names and its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) file_type: FileType,
    /// Permission and set-id bits.
    pub(crate) mode: u16,
    /// A union of the bits in [`flag`].
    pub(crate) flags: u64,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) project: u32,
    pub(crate) rdev: u32,
    /// The length of a regular file, in bytes.
    pub(crate) size: u64,
    pub(crate) generation: u64,
    pub(crate) atime: Nanos,
    pub(crate) mtime: Nanos,
    pub(crate) ctime: Nanos,
    pub(crate) crtime: Nanos,
    /// The target of a symbolic link; empty otherwise.
    pub(crate) target: Vec<u8>,
}

impl FileSystem {
    /// The inode with a number.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Option<Inode>, Errno> {
        self.read_tree(|view| match load_inode(view, ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Failure::Refused(Errno::NOENT)) => Ok(None),
            Err(failure) => Err(failure),
        })
    }

    /// Makes `ino` a regular file without protection, with its present content if it is one, for blocks of up to
    /// `block` bytes if it has none. A file of another type may have no name: EEXIST.
    pub(crate) fn host_content(&self, ino: Ino, block: u32) -> Result<(), Errno> {
        let shift = block.ilog2() as u8;
        let is_record = block.is_power_of_two() && (MIN_RECORD_SHIFT..=MAX_RECORD_SHIFT).contains(&shift);
        self.become_type(ino, FileType::Regular)?;
        self.unprotect(ino)?;
        let has_record = self.inode(ino)?.is_some_and(|inode| inode.bytes > 0 || inode.record_shift > 0);
        if has_record || !is_record {
            return Ok(());
        }
        self.admit(METADATA)?;
        self.update_tree(|change| {
            change.edit(ino)?.record_shift = shift;
            Ok(())
        })
    }

    /// Makes an inode of the given type, without content if it had another type. An inode of another type may have no
    /// name: EEXIST.
    fn become_type(&self, ino: Ino, file_type: FileType) -> Result<(), Errno> {
        let bare = |change: &Change<'_>| {
            let mut inode = Inode::new(file_type, 0, change.txg(), change.now);
            (inode.nlink, inode.generation) = (0, 0);
            inode
        };
        match self.inode(ino)? {
            Some(inode) if inode.file_type == file_type => Ok(()),
            Some(inode) if inode.parent != Link::NONE || ino == ROOT => Err(Errno::EXIST),
            Some(_) => {
                self.clear_content(ino)?;
                self.admit(METADATA)?;
                self.update_tree(|change| {
                    let new = bare(change);
                    *change.edit(ino)? = new;
                    Ok(())
                })
            }
            None => {
                self.admit(METADATA)?;
                self.update_tree(|change| {
                    let new = bare(change);
                    change.add_at(ino, new)
                })
            }
        }
    }

    /// Drops all content of an inode; its names, attributes and entries stay.
    pub(crate) fn clear_content(&self, ino: Ino) -> Result<(), Errno> {
        match self.inode(ino)? {
            None => Ok(()),
            Some(inode) if inode.file_type == FileType::Regular => {
                self.unprotect(ino)?;
                self.truncate(ino, 0, &SetAttr::default()).map(drop)
            }
            Some(_) => self.update_tree(|change| {
                discard(change, Key::new(ino, EXTENT, 0)..Key::new(ino, EXTENT + 1, 0), 0, STEP)?;
                let inode = change.edit(ino)?;
                inode.bytes = 0;
                inode.size = if inode.is_dir() { inode.size } else { 0 };
                Ok(())
            }),
        }
    }

    /// Drops the attributes of a file that forbid changes, until [`FileSystem::adopt`] states them anew.
    fn unprotect(&self, ino: Ino) -> Result<(), Errno> {
        const HARMLESS: u64 = flag::TRUNCATING | flag::CAPABILITY;
        if self.inode(ino)?.is_none_or(|inode| inode.flags & !HARMLESS == 0) {
            return Ok(());
        }
        self.update_tree(|change| {
            change.edit(ino)?.flags &= HARMLESS;
            Ok(())
        })
    }

    /// Sets the length of a regular file, dropping what is behind the end.
    pub(crate) fn cut_content(&self, ino: Ino, size: u64) -> Result<(), Errno> {
        self.truncate(ino, size, &SetAttr::default()).map(drop)
    }

    /// Gives an inode all its attributes; makes the inode if there is none.
    pub(crate) fn adopt(&self, ino: Ino, facts: &Facts) -> Result<(), Errno> {
        self.become_type(ino, facts.file_type)?;
        let Some(inode) = self.inode(ino)? else { return Err(Errno::NOENT) };
        if facts.file_type == FileType::Regular && inode.size != facts.size {
            self.unprotect(ino)?;
            self.cut_content(ino, facts.size)?;
        }
        // The sender describes neighbours of changed files too.
        let has_target = facts.target.is_empty() || self.readlink(ino).is_ok_and(|target| target == facts.target);
        if facts.of(&inode) == inode && inode.generation != 0 && has_target {
            return Ok(());
        }
        self.admit(METADATA + facts.target.len() as u64)?;
        self.update_tree(|change| {
            if !facts.target.is_empty() {
                put_inline(change, ino, &facts.target);
            }
            let inode = change.edit(ino)?;
            *inode = facts.of(inode);
            Ok(())
        })
    }

    /// Removes an inode that has no name and no entries, with its content and attributes; EBUSY if it has some.
    pub(crate) fn remove_inode(&self, ino: Ino) -> Result<(), Errno> {
        match self.inode(ino)? {
            None => return Ok(()),
            Some(inode) if inode.parent != Link::NONE || inode.is_dir() && inode.size > 0 || ino == ROOT => {
                return Err(Errno::BUSY);
            }
            Some(_) => self.clear_content(ino)?,
        }
        let rest = Key::new(ino, INODE + 1, 0)..Key::new(ino, EXTENT, 0);
        while self.update_tree(|change| Ok(!discard(change, rest.clone(), 0, STEP)?.done))? {}
        self.update_tree(|change| change.remove(ino))
    }

    /// Gives an inode exactly these extended attributes. Access control lists that Linux would refuse are left out.
    pub(crate) fn set_all_xattrs(&self, ino: Ino, wanted: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Errno> {
        let all = Key::new(ino, XATTR, 0)..Key::new(ino, XATTR + 1, 0);
        let is_there = self.read_tree(|view| Ok(view.first(all.clone())?.is_some()))?;
        if !is_there && wanted.is_empty() {
            return Ok(());
        }
        let is_dir = self.inode(ino)?.is_some_and(|inode| inode.is_dir());
        let wanted: Vec<_> = wanted.iter().filter_map(|(name, value)| storable(name, value, is_dir)).collect();
        if self.has_xattrs(ino, &wanted)? {
            return Ok(());
        }
        while self.update_tree(|change| Ok(!discard(change, all.clone(), 0, STEP)?.done))? {}
        for (name, value) in &wanted {
            self.admit(METADATA + value.len() as u64)?;
            self.update_tree(|change| self.put_xattr(change, ino, name, value))?;
        }
        let capable = wanted.iter().any(|(name, _)| *name == CAPABILITY);
        self.update_tree(|change| {
            change.edit(ino)?.set(flag::CAPABILITY, capable);
            Ok(())
        })
    }

    /// Whether an inode has exactly these extended attributes.
    fn has_xattrs(&self, ino: Ino, wanted: &[(&[u8], Cow<'_, [u8]>)]) -> Result<bool, Errno> {
        if self.listxattr(ino)?.len() != wanted.len() {
            return Ok(false);
        }
        for (name, value) in wanted {
            match self.getxattr(ino, name) {
                Ok(present) if present == **value => {}
                Ok(_) | Err(Errno::NODATA) => return Ok(false),
                Err(errno) => return Err(errno),
            }
        }
        Ok(true)
    }

    fn put_xattr(&self, change: &mut Change<'_>, ino: Ino, name: &[u8], value: &[u8]) -> Result<(), Failure> {
        let key = xattr::replace(change, ino, name)?;
        self.put_value(change, key, name, value);
        Ok(())
    }
}

impl Facts {
    /// An inode with these facts, and the names and the content of `inode`.
    fn of(&self, inode: &Inode) -> Inode {
        let length = self.target.len() as u64;
        let is_link = self.file_type == FileType::Symlink;
        Inode {
            flags: inode.flags & (flag::TRUNCATING | flag::CAPABILITY) | self.flags,
            mode: self.mode,
            rdev: self.rdev,
            generation: self.generation,
            uid: self.uid,
            gid: self.gid,
            project: self.project,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            crtime: self.crtime,
            size: if is_link { length } else { inode.size },
            bytes: if is_link { length } else { inode.bytes },
            ..*inode
        }
    }
}

/// An attribute as it is stored; `None` if it is an access control list that a mode expresses, or that is invalid.
fn storable<'a>(name: &'a [u8], value: &'a [u8], is_dir: bool) -> Option<(&'a [u8], Cow<'a, [u8]>)> {
    if !is_acl(name) {
        return Some((name, value.into()));
    }
    let acl = Acl::decode(value).ok().flatten()?;
    let counts = if name == ACCESS { !acl.is_minimal() } else { is_dir };
    counts.then(|| (name, acl.encode().into()))
}
