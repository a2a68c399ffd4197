//! Attributes: what `stat` shows, and changing them.

use pool::env::Nanos;
use rustix::io::Errno;

use super::{
    FileSystem, acl,
    change::{Change, load_inode},
    failure::Failure,
    file::effective_shift,
    inode::{FileType, Inode},
    key::Ino,
    xattr,
};

/// The result of `stat`, with the generation and the creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The object's number.
    pub ino: Ino,
    /// The txg in which the file was made.
    pub generation: u64,
    /// Regular file, directory, symbolic link or special file.
    pub file_type: FileType,
    /// Permission and set-id bits.
    pub mode: u16,
    /// The number of names; of a directory, two plus its subdirectories.
    pub nlink: u32,
    /// The owner's user id.
    pub uid: u32,
    /// The gid of the file's group.
    pub gid: u32,
    /// The device number of a device file.
    pub rdev: u32,
    /// Its length in bytes; of a directory, the number of its entries.
    pub size: u64,
    /// The allocated content (without holes), in units of 512 bytes.
    pub blocks: u64,
    /// The preferred size of reads and writes, in bytes.
    pub block_size: u32,
    /// When it was last read.
    pub atime: Nanos,
    /// When its content last changed.
    pub mtime: Nanos,
    /// When anything of it last changed.
    pub ctime: Nanos,
    /// When the file was made.
    pub crtime: Nanos,
}

/// A time to set, as `utimensat` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the change.
    Now,
    /// The given time, in nanoseconds since 1970.
    At(Nanos),
}

impl SetTime {
    fn at(self, now: Nanos) -> Nanos {
        match self {
            SetTime::Now => now,
            SetTime::At(time) => time,
        }
    }
}

/// Attributes to change; `None` leaves an attribute as is. If all are `None`, the kernel asks for a change of owner
/// that keeps the owner, so as to clear set-id bits and capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission and set-id bits.
    pub mode: Option<u32>,
    /// The owner's user id.
    pub uid: Option<u32>,
    /// The gid of the file's group.
    pub gid: Option<u32>,
    /// The length, in bytes.
    pub size: Option<u64>,
    /// When it was last read.
    pub atime: Option<SetTime>,
    /// When its content last changed.
    pub mtime: Option<SetTime>,
    /// When anything of it last changed.
    pub ctime: Option<Nanos>,
    /// Whether a change of the length clears set-id bits.
    pub kill_suid: bool,
}

impl SetAttr {
    fn is_empty(&self) -> bool {
        let SetAttr { mode, uid, gid, size, atime, mtime, ctime: _, kill_suid: _ } = *self;
        [mode, uid, gid].iter().all(Option::is_none) && size.is_none() && atime.is_none() && mtime.is_none()
    }
}

/// The requesting process, as far as new files and set-id bits depend on the process. The kernel checks permissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The owner of new files.
    pub uid: u32,
    /// The group of new files, unless their directory is set-gid.
    pub gid: u32,
    /// The permission bits that new files do not get, unless their directory has a default access control list.
    pub umask: u32,
}

const SUID: u16 = 0o4000;
const SGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
/// Write permission for group or all others; with an access control list, the group's bit is the mask's.
const WRITE_BY_OTHERS: u16 = 0o022;

/// Clears the set-id bits of a file whose content or owner changes. A set-group bit without group execution stays: the
/// combination used to mean mandatory locking.
pub(super) fn kill_set_id(inode: &mut Inode) {
    if inode.is_dir() {
        return;
    }
    inode.mode &= !SUID;
    if inode.mode & GROUP_EXECUTE != 0 {
        inode.mode &= !SGID;
    }
}

impl FileSystem {
    pub(super) fn attr(&self, ino: Ino, inode: &Inode) -> Attr {
        Attr {
            ino,
            generation: inode.generation,
            file_type: inode.file_type,
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks: inode.bytes.div_ceil(512),
            block_size: 1 << effective_shift(inode, &self.options()),
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            crtime: inode.crtime,
        }
    }

    /// The attributes of a file; ENOENT without an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.read_tree(|view| load_inode(view, ino))?;
        Ok(self.attr(ino, &inode))
    }

    /// Changes attributes, a new length included, in one batch. The result is the new attributes.
    pub fn setattr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr, Errno> {
        self.writable()?;
        let inode = match set.size {
            Some(size) => self.truncate(ino, size, set)?,
            None => self.under_quota(|| {
                self.try_update(|change| {
                    if set.is_empty() {
                        check_set_id(&change.inode(ino)?, caller)?;
                    }
                    set_attributes(change, ino, set)?;
                    change.inode(ino)
                })
            })?,
        };
        Ok(self.attr(ino, &inode))
    }
}

/// Whether set-id bits may be cleared for the caller, which the kernel does not check: the caller must be root, the
/// owner, or somehow allowed to write by the mode.
fn check_set_id(inode: &Inode, caller: &Caller) -> Result<(), Errno> {
    let is_trusted = caller.uid == 0 || caller.uid == inode.uid || inode.mode & WRITE_BY_OTHERS != 0;
    if inode.is_dir() || inode.mode & (SUID | SGID) == 0 || is_trusted { Ok(()) } else { Err(Errno::PERM) }
}

/// EPERM if the file's attributes forbid the change. Setting times to now is allowed: appending would do the same.
fn check_settable(inode: &Inode, set: &SetAttr) -> Result<(), Errno> {
    let chosen = |time: Option<SetTime>| matches!(time, Some(SetTime::At(_)));
    let changes = set.mode.is_some() || set.uid.is_some() || set.gid.is_some() || set.size.is_some();
    if changes || chosen(set.atime) || chosen(set.mtime) {
        inode.check_free()
    } else if set.atime.is_some() || set.mtime.is_some() || set.is_empty() {
        inode.check_mutable()
    } else {
        Ok(())
    }
}

/// Sets all given attributes except the length.
pub(super) fn set_attributes(change: &mut Change<'_>, ino: Ino, set: &SetAttr) -> Result<(), Failure> {
    let now = change.now;
    // Directories are not executed: their set-id bits stay.
    let owner_changes = (set.uid.is_some() || set.gid.is_some() || set.is_empty()) && !change.edit(ino)?.is_dir();
    let inode = change.edit(ino)?;
    check_settable(inode, set)?;
    if owner_changes || (set.kill_suid && set.size.is_some()) {
        kill_set_id(inode);
    }
    inode.uid = set.uid.unwrap_or(inode.uid);
    inode.gid = set.gid.unwrap_or(inode.gid);
    if let Some(mode) = set.mode {
        inode.mode = (mode & 0o7777) as u16;
    }
    if set.size.is_some() {
        inode.mtime = now;
    }
    inode.atime = set.atime.map_or(inode.atime, |time| time.at(now));
    inode.mtime = set.mtime.map_or(inode.mtime, |time| time.at(now));
    inode.ctime = set.ctime.unwrap_or(now);
    let mode = inode.mode;
    if set.mode.is_some() {
        acl::follow_mode(change, ino, mode)?;
    }
    if owner_changes || set.size.is_some() {
        xattr::drop_capability(change, ino)?;
    }
    Ok(())
}
