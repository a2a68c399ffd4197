//! The keys of a dataset's tree.
//!
//! A key is (object, kind, offset). Kinds are numbered so that items used together are stored together: an object's
//! inode first, its names and attributes next, its data or entries last. Object 0 is the dataset itself.

use std::ops::Range;

use pool::format::key::Key;

/// An object's number in its dataset. Never reused.
pub type Ino = u64;

/// The root directory.
pub const ROOT: Ino = 1;
/// The object for items of the dataset as a whole.
pub const DATASET: Ino = 0;

/// The dataset's counters; see [`super::master::Master`].
pub const MASTER: u8 = 0x01;
/// The marker up to which inode the accounts are counted; see [`super::account`].
pub const ACCOUNTING: u8 = 0x02;
/// The account of a user.
pub const USER: u8 = 0x03;
/// The account of a group.
pub const GROUP: u8 = 0x04;
/// The account of a project.
pub const PROJECT: u8 = 0x05;
/// An inode; see [`super::inode::Inode`].
pub const INODE: u8 = 0x10;
/// A further hard link of an inode; the first link is part of the inode.
pub const PARENT: u8 = 0x20;
/// An extended attribute.
pub const XATTR: u8 = 0x30;
/// A directory entry.
pub const DIRENT: u8 = 0x40;
/// An extent: a piece of a file's data.
pub const EXTENT: u8 = 0x50;
/// The description of a foreign object; see `fs::foreign`.
pub const OBJECT: u8 = 0x54;
/// More of a foreign object's description: its spill block.
pub const SPILL: u8 = 0x55;
/// A page of a foreign object's content.
pub const PAGE: u8 = 0x56;
/// The marker of an inode without links, still to be freed.
pub const ORPHAN: u8 = 0x60;
/// The marker of a file with data beyond its end, still to be freed.
pub const TRUNCATE: u8 = 0x61;
/// The marker that some file has, or had, the attribute `direct`.
pub const DIRECT: u8 = 0x62;
/// How far a receive has come that can be resumed; only in hidden datasets. See [`crate::stream`].
pub const POSITION: u8 = 0x63;

/// The key of the dataset's master item.
pub const fn master() -> Key {
    Key::new(DATASET, MASTER, 0)
}

/// The marker up to which inode the accounts are counted.
pub const fn accounting() -> Key {
    Key::new(DATASET, ACCOUNTING, 0)
}

/// The inode of an object.
pub const fn inode(ino: Ino) -> Key {
    Key::new(ino, INODE, 0)
}

/// A directory entry.
pub const fn dirent(dir: Ino, offset: u64) -> Key {
    Key::new(dir, DIRENT, offset)
}

/// The extent of a file at an offset in bytes.
pub const fn extent(ino: Ino, offset: u64) -> Key {
    Key::new(ino, EXTENT, offset)
}

/// The marker of an orphan.
pub const fn orphan(ino: Ino) -> Key {
    Key::new(DATASET, ORPHAN, ino)
}

/// The marker of a file that is being truncated.
pub const fn truncate(ino: Ino) -> Key {
    Key::new(DATASET, TRUNCATE, ino)
}

/// The marker of files that bypass the caches.
pub const fn direct() -> Key {
    Key::new(DATASET, DIRECT, 0)
}

/// How far a receive has come.
pub const fn position() -> Key {
    Key::new(DATASET, POSITION, 0)
}

/// The keys of one kind of an object in `start..end`.
pub const fn span(object: Ino, kind: u8, start: u64, end: u64) -> Range<Key> {
    Key::new(object, kind, start)..Key::new(object, kind, end)
}

/// The keys of one kind of an object from `start` on.
pub const fn from(object: Ino, kind: u8, start: u64) -> Range<Key> {
    Key::new(object, kind, start)..Key::new(object, kind + 1, 0)
}

/// The offsets of items found by a hash: items with equal hashes are neighbours, told apart by the low bits of the
/// offset.
///
/// A lookup scans the window of the hash; a new item takes the first free offset of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The directory or the file with attributes.
    pub object: Ino,
    /// The kind of the items.
    pub kind: u8,
    /// The first offset of the window.
    pub start: u64,
    /// How many offsets it has.
    pub len: u64,
}

impl Window {
    /// The keys of the window.
    pub fn keys(&self) -> Range<Key> {
        span(self.object, self.kind, self.start, self.start + self.len)
    }
}
