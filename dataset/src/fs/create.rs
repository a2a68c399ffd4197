//! Looking names up, and making files under new names.

use pool::tree::View;
use rustix::io::Errno;

use super::{
    access::Inheritance,
    attr::{Attr, Caller, SGID},
    attributes,
    change::{Change, load_directory, load_inode},
    directory::{Dirent, LONG_NAME_MAX, absent, check_name, probe},
    failure::Failure,
    file::extent,
    file_system::{FileSystem, METADATA},
    inode::{FileType, Inode, Link, flag},
    key::{self, Ino},
    link, project,
};

/// The longest target of a symbolic link, in bytes.
const TARGET_MAX: usize = 4095;
/// The most names of an inode.
const LINK_MAX: u32 = i32::MAX as u32;

/// The type, mode and content of a new file.
pub(super) struct Spec<'a> {
    file_type: FileType,
    mode: u32,
    rdev: u32,
    /// The target of a symbolic link; otherwise empty.
    target: &'a [u8],
}

impl Spec<'_> {
    pub(super) fn new(file_type: FileType, mode: u32) -> Spec<'static> {
        Spec { file_type, mode, rdev: 0, target: b"" }
    }

    /// The inode of a new file in `dir`, with the directory's group if the directory has the set-group bit.
    pub(super) fn inode(&self, change: &Change<'_>, caller: &Caller, dir: &Inode, inheritance: &Inheritance) -> Inode {
        let umask = if self.file_type == FileType::Symlink { 0 } else { caller.umask };
        let mode = inheritance.mode((self.mode & 0o7777) as u16, umask);
        let mut inode = Inode::new(self.file_type, mode, change.txg(), change.now);
        (inode.uid, inode.gid) = (caller.uid, caller.gid);
        if dir.mode & SGID != 0 {
            inode.gid = dir.gid;
            inode.mode |= if inode.is_dir() { SGID } else { 0 };
        }
        inode.rdev = self.rdev;
        project::inherit(&mut inode, dir);
        attributes::inherit(&mut inode, dir);
        inode.size = self.target.len() as u64;
        inode.bytes = inode.size;
        inode
    }
}

/// Enters `ino` under a name that the caller has found free.
pub(super) fn enter(
    change: &mut Change<'_>,
    dir: Ino,
    offset: u64,
    name: &[u8],
    (ino, file_type): (Ino, FileType),
) -> Result<(), Failure> {
    change.put(key::dirent(dir, offset), Dirent { ino, file_type, name }.encode(), None);
    let now = change.now;
    let parent = change.edit_directory(dir)?;
    parent.size += 1;
    (parent.mtime, parent.ctime) = (now, now);
    if file_type == FileType::Directory {
        parent.nlink = parent.nlink.checked_add(1).ok_or(Errno::MLINK)?;
    }
    Ok(())
}

/// The inode number of the entry `name` in `dir`.
pub(super) fn resolve(view: &View<'_>, seed: u64, dir: Ino, name: &[u8]) -> Result<Ino, Failure> {
    match name {
        b"." => return Ok(dir),
        b".." => {
            let parent = load_directory(view, dir)?.parent.dir;
            return Ok(if parent == 0 { dir } else { parent });
        }
        _ if name.len() > LONG_NAME_MAX => return Err(Errno::NAMETOOLONG.into()),
        _ => {}
    }
    match probe(view, seed, dir, name)?.found {
        Some(found) => Ok(found.ino),
        None => {
            load_directory(view, dir)?;
            Err(absent(name).into())
        }
    }
}

impl FileSystem {
    /// The attributes of the file called `name` in `dir`; accepts `.` and `..`.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        let (ino, inode) = self.read_tree(|view| {
            let ino = resolve(view, self.seed(), dir, name)?;
            Ok((ino, load_inode(view, ino)?))
        })?;
        Ok(self.attr(ino, &inode))
    }

    /// The target of a symbolic link; EINVAL for other types.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Errno> {
        self.read_tree(|view| {
            if load_inode(view, ino)?.file_type != FileType::Symlink {
                return Err(Errno::INVAL.into());
            }
            extent::load_inline(view, ino)
        })
    }

    /// Makes a regular file. If the name is taken: EEXIST when `exclusive`, else the existing file if regular.
    pub fn create(&self, caller: &Caller, dir: Ino, name: &[u8], mode: u32, exclusive: bool) -> Result<Attr, Errno> {
        let created = self.make(caller, dir, name, &Spec::new(FileType::Regular, mode));
        if exclusive || created != Err(Errno::EXIST) {
            return created;
        }
        let there = self.lookup(dir, name)?;
        match there.file_type {
            FileType::Regular => Ok(there),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::EXIST),
        }
    }

    /// Makes a file of any type except directory and symbolic link.
    pub fn mknod(
        &self,
        caller: &Caller,
        dir: Ino,
        name: &[u8],
        file_type: FileType,
        mode: u32,
        rdev: u32,
    ) -> Result<Attr, Errno> {
        let rdev = match file_type {
            FileType::Directory | FileType::Symlink => return Err(Errno::INVAL),
            FileType::BlockDevice | FileType::CharDevice => rdev,
            FileType::Regular | FileType::Fifo | FileType::Socket => 0,
        };
        self.make(caller, dir, name, &Spec { rdev, ..Spec::new(file_type, mode) })
    }

    /// Makes a directory.
    pub fn mkdir(&self, caller: &Caller, dir: Ino, name: &[u8], mode: u32) -> Result<Attr, Errno> {
        self.make(caller, dir, name, &Spec::new(FileType::Directory, mode))
    }

    /// Makes a symbolic link; the target has 1 to 4095 bytes.
    pub fn symlink(&self, caller: &Caller, dir: Ino, name: &[u8], target: &[u8]) -> Result<Attr, Errno> {
        match target.len() {
            0 => Err(Errno::NOENT),
            1..=TARGET_MAX => self.make(caller, dir, name, &Spec { target, ..Spec::new(FileType::Symlink, 0o777) }),
            _ => Err(Errno::NAMETOOLONG),
        }
    }

    fn make(&self, caller: &Caller, dir: Ino, name: &[u8], spec: &Spec<'_>) -> Result<Attr, Errno> {
        self.writable()?;
        check_new_name(name)?;
        self.under_quota(|| self.try_make(caller, dir, name, spec))
    }

    fn try_make(&self, caller: &Caller, dir: Ino, name: &[u8], spec: &Spec<'_>) -> Result<Attr, Failure> {
        self.admit(METADATA + spec.target.len() as u64)?;
        let (ino, inode) = self.try_update(|change| {
            let parent = *change.edit_directory(dir)?;
            let probe = probe(&change.view, self.seed(), dir, name)?;
            if probe.found.is_some() {
                return Err(Errno::EXIST.into());
            }
            parent.check_mutable()?;
            let offset = probe.vacancy()?;
            let inheritance = self.inheritance(&change.view, dir, spec.file_type)?;
            let mut inode = spec.inode(change, caller, &parent, &inheritance);
            inode.parent = Link { dir, offset };
            let ino = change.add(inode)?;
            inheritance.bequeath(change, ino, &inode)?;
            enter(change, dir, offset, name, (ino, inode.file_type))?;
            if !spec.target.is_empty() {
                extent::put_inline(change, ino, spec.target);
            }
            Ok((ino, inode))
        })?;
        Ok(self.attr(ino, &inode))
    }

    /// Makes a regular file without a name, which [`FileSystem::link`] may add. The file is in use from the start: the
    /// caller must call [`FileSystem::release`].
    pub fn tmpfile(&self, caller: &Caller, dir: Ino, mode: u32) -> Result<Attr, Errno> {
        self.writable()?;
        self.admit(METADATA)?;
        let make = |change: &mut Change<'_>| {
            let parent = *change.edit_directory(dir)?;
            parent.check_mutable()?;
            let inheritance = self.inheritance(&change.view, dir, FileType::Regular)?;
            let mut inode = Spec::new(FileType::Regular, mode).inode(change, caller, &parent, &inheritance);
            inode.nlink = 0;
            inode.set(flag::LINKABLE, true);
            let ino = change.add(inode)?;
            inheritance.bequeath(change, ino, &inode)?;
            change.put(key::orphan(ino), [], None);
            Ok((ino, inode))
        };
        let (ino, inode) = self.under_quota(|| self.make_orphan(|| self.try_update(make)))?;
        Ok(self.attr(ino, &inode))
    }

    /// Gives a file an additional name; EPERM for directories, EMLINK at the limit of names.
    pub fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> Result<Attr, Errno> {
        self.writable()?;
        check_new_name(name)?;
        self.admit(METADATA)?;
        let inode = self.update_tree(|change| {
            let inode = change.inode(ino)?;
            if inode.is_dir() {
                return Err(Errno::PERM.into());
            }
            if inode.nlink == 0 && !inode.has(flag::LINKABLE) {
                return Err(Errno::NOENT.into());
            }
            inode.check_free()?;
            if inode.nlink >= LINK_MAX {
                return Err(Errno::MLINK.into());
            }
            let probe = probe(&change.view, self.seed(), dir, name)?;
            if probe.found.is_some() {
                return Err(Errno::EXIST.into());
            }
            let parent = change.inode(dir)?;
            parent.check_mutable()?;
            project::check_entry(&inode, &parent)?;
            let offset = probe.vacancy()?;
            enter(change, dir, offset, name, (ino, inode.file_type))?;
            link::add(change, ino, Link { dir, offset })?;
            if inode.nlink == 0 {
                change.delete(key::orphan(ino));
            }
            let now = change.now;
            let inode = change.edit(ino)?;
            inode.nlink += 1;
            inode.ctime = now;
            inode.set(flag::LINKABLE, false);
            Ok(*inode)
        })?;
        Ok(self.attr(ino, &inode))
    }
}

/// Whether a new file can have the given name: `.` and `..` always exist.
pub(super) fn check_new_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"." | b".." => Err(Errno::EXIST),
        _ => check_name(name),
    }
}
