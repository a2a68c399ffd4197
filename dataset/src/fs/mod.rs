//! A POSIX file system over one dataset's tree.
//!
//! Below lies the engine's [`Head`](pool::txg::Head): a tree of items that readers share under a lock and batches
//! change atomically. An operation on names or attributes is one batch. Before and after a crash it is visible entirely
//! or not at all, and needs no other lock. An operation on a file's content may take several steps, because blocks are
//! read without a lock on the tree and large ranges are freed in bounded batches. The file's own lock covers the steps:
//! shared for a read, exclusive for a change.
//!
//! Above lie the mount and the commands that access a dataset without a mount. This module has no requests and no
//! handles, leaves permissions to the kernel, and keeps nothing in memory except the set of inodes in use.
//!
//! ```text
//! file_system  the file system itself, as all operations see the tree
//! key        the keys of all items                inode, master, directory, link   the items and their coding
//! change     a batch under construction           failure     how an attempt ends
//! attr, setattr  stat and setattr                 create, remove, rename, readdir, path   names
//! xattr      extended attributes                  acl, access access lists: their meaning, and in the tree
//! retained   inodes in use                        orphan      unlinked files, and freeing them
//! attributes immutable, compression and more, per file
//! account/   usage and quotas per owner           project     directory trees charged together
//! file/      content: extents, read, write, truncate, allocate, seek, copy
//! foreign/   files made from the objects of another file system
//! identity   the file that a later step must find again
//! statfs, room   space                            replay      after a crash: intent log records
//! check      verifies a whole file system
//! ```
//!
//! Invariants, which [`check`] verifies:
//! 1. `nlink` of an inode is the number of its entries (of a directory: two plus its subdirectories), and the links of
//!    an inode name exactly its entries.
//! 2. An inode without links has an orphan item, and is freed after its last user has released the inode.
//! 3. Extents do not overlap, do not cross a record boundary, and end before the file does unless the file is marked as
//!    being truncated. All extents on one block lie within one record of one file, or belong to different references to
//!    the block. `bytes` is the sum of the extents' lengths.
//! 4. Object numbers are below the master's `next`, and are never reused.
//! 5. The accounts of users, groups and projects, if the tree has accounts, equal the sums of their inodes' charges.

mod access;
pub mod account;
pub mod acl;
mod attr;
mod attributes;
mod change;
pub mod check;
mod create;
pub mod directory;
mod failure;
pub mod file;
mod file_system;
mod foreign;
mod identity;
pub mod inode;
pub mod key;
pub mod link;
pub mod master;
mod options;
mod orphan;
mod path;
mod project;
mod readdir;
mod remove;
mod rename;
pub(crate) mod replay;
mod retained;
mod room;
mod setattr;
mod statfs;
pub mod xattr;

#[cfg(test)]
mod tests;

pub use rustix::io::Errno;

pub use account::{Account, Amount, SetQuota};
pub use attr::{Attr, Caller, SetAttr, SetTime};
pub use attributes::{Attribute, FileAttributes};
pub use file::{FallocateFlags, Whence};
pub(crate) use file_system::REAPING_STEPS;
pub use file_system::{Core, FileSystem};
pub(crate) use foreign::{Facts, Item, Named};
pub(crate) use identity::identity_in;
pub use identity::{Handle, Identity};
pub use inode::{FileType, Own};
pub use key::{Ino, ROOT};
pub use options::Options;
pub use path::Paths;
pub use project::Project;
pub use readdir::DirEntry;
pub use rename::RenameFlags;
pub use room::Room;
pub use statfs::StatFs;
pub use xattr::SetXattr;
