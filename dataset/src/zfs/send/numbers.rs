//! The numbers and types of objects.
//!
//! The first numbers belong to the file system itself, and an inode's object follows from the inode. Extended
//! attributes lie above all files: each file has a row of numbers there, the first for the hidden directory and the
//! others for its files. Records must ascend by object, so a stream has the extended attributes last.

use crate::fs::{FileType, Ino, ROOT};

/// The object that names the root directory and the version.
pub(super) const MASTER: u64 = 1;
/// The set of deleted files still open, which is always empty.
pub(super) const DELETED: u64 = 2;
/// The root directory, where zfs-fuse expects it.
const ROOT_DIRECTORY: u64 = 3;
const FIRST_INODE: u64 = 32;
const FIRST_ROW: u64 = 1 << 40;
const ROW: u64 = 256;
/// The most extended attributes of a file.
pub(super) const XATTRS_MAX: u64 = ROW - 1;
/// Inodes are below, so that objects of extended attributes are below 2^48.
const INO_END: Ino = 1 << 39;

/// Types of objects, and of what is beside an object's description.
pub(super) mod kind {
    pub(in crate::zfs::send) const NONE: u32 = 0;
    pub(in crate::zfs::send) const ZNODE: u32 = 17;
    pub(in crate::zfs::send) const CONTENT: u32 = 19;
    pub(in crate::zfs::send) const DIRECTORY: u32 = 20;
    pub(in crate::zfs::send) const MASTER: u32 = 21;
    pub(in crate::zfs::send) const DELETED: u32 = 22;
}

/// Whether an inode's number is small enough.
pub(super) fn is_known(ino: Ino) -> bool {
    ino < INO_END
}

/// The object of an inode.
pub(super) fn object(ino: Ino) -> u64 {
    if ino == ROOT { ROOT_DIRECTORY } else { FIRST_INODE + ino }
}

/// The object of the directory of an inode's extended attributes.
pub(super) fn xattrs(ino: Ino) -> u64 {
    FIRST_ROW + ino * ROW
}

/// The object of one of an inode's extended attributes, counted from 0.
pub(super) fn xattr(ino: Ino, index: u64) -> u64 {
    xattrs(ino) + 1 + index
}

/// The value of a directory's entry.
pub(super) fn entry(object: u64, file_type: FileType) -> u64 {
    object | u64::from(file_type.code()) << 60
}
