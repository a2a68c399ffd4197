//! Where things stand in a dataset's tree.
//!
//! A key is (object, kind, offset). The kinds of one object are numbered so that what is used together is stored
//! together: the inode first, what describes it next, its data or its entries last. Object 0 is the dataset itself.

use std::ops::Range;

use pool::format::key::Key;

/// An object's number in its dataset. Never reused.
pub type Ino = u64;

/// The root directory.
pub const ROOT: Ino = 1;
/// The object that holds what belongs to the dataset as a whole.
pub const DATASET: Ino = 0;

/// The dataset's own counters; see [`super::master::Master`].
pub const MASTER: u8 = 0x01;
/// The note which inodes the accounts hold; see [`super::account`].
pub const ACCOUNTING: u8 = 0x02;
/// The account of a user.
pub const USER: u8 = 0x03;
/// The account of a group.
pub const GROUP: u8 = 0x04;
/// The account of a project.
pub const PROJECT: u8 = 0x05;
/// An inode; see [`super::inode::Inode`].
pub const INODE: u8 = 0x10;
/// A further hard link of an inode; the first one stands in the inode.
pub const PARENT: u8 = 0x20;
/// An extended attribute.
pub const XATTR: u8 = 0x30;
/// A directory entry.
pub const DIRENT: u8 = 0x40;
/// A piece of a file's data.
pub const EXTENT: u8 = 0x50;
/// An inode without links that still has to be freed.
pub const ORPHAN: u8 = 0x60;
/// An inode with data beyond its end that still has to be freed.
pub const TRUNCATE: u8 = 0x61;
/// The note that some file has, or had, the attribute `direct`.
pub const DIRECT: u8 = 0x62;

/// The master item.
pub const fn master() -> Key {
    Key::new(DATASET, MASTER, 0)
}

/// The note which inodes the accounts hold.
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

/// A piece of data.
pub const fn extent(ino: Ino, offset: u64) -> Key {
    Key::new(ino, EXTENT, offset)
}

/// The note that an inode is an orphan.
pub const fn orphan(ino: Ino) -> Key {
    Key::new(DATASET, ORPHAN, ino)
}

/// The note that a file is being truncated.
pub const fn truncate(ino: Ino) -> Key {
    Key::new(DATASET, TRUNCATE, ino)
}

/// The note that some file goes past the caches.
pub const fn direct() -> Key {
    Key::new(DATASET, DIRECT, 0)
}

/// The keys of one kind of an object, from `start` up to `end`, not included.
pub const fn span(object: Ino, kind: u8, start: u64, end: u64) -> Range<Key> {
    Key::new(object, kind, start)..Key::new(object, kind, end)
}

/// All keys of one kind of an object from `start` on.
pub const fn from(object: Ino, kind: u8, start: u64) -> Range<Key> {
    Key::new(object, kind, start)..Key::new(object, kind + 1, 0)
}

/// A place among items that are found by a hash: equal hashes stand side by side, told apart by their low bits.
///
/// Whoever looks for an item scans the window of its hash; whoever adds one takes the first free place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The object.
    pub object: Ino,
    /// The kind.
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
