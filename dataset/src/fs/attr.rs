//! Attributes: what `stat` shows, and what can be set.

use pool::env::Nanos;

use super::{
    inode::{FileType, Inode},
    key::Ino,
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

impl Attr {
    /// The attributes in an inode. `block_size` is the preferred size of reads and writes, in bytes.
    pub fn of(ino: Ino, inode: &Inode, block_size: u32) -> Attr {
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
            block_size,
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            crtime: inode.crtime,
        }
    }
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
    pub(super) fn at(self, now: Nanos) -> Nanos {
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
    pub(super) fn is_empty(&self) -> bool {
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

pub(super) const SUID: u16 = 0o4000;
pub(super) const SGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

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
