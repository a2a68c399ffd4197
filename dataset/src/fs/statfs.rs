//! How much room there is.

use std::sync::Arc;

use rustix::io::Errno;

use super::{FileSystem, change::load_master, directory::NAME_MAX};

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// The unit of the following numbers, in bytes.
    pub block_size: u32,
    /// The size of the file system: what is in it and what still fits.
    pub blocks: u64,
    /// What still fits.
    pub free: u64,
    /// What still fits for an ordinary user.
    pub available: u64,
    /// How many inodes there are and can be.
    pub files: u64,
    /// How many more inodes there can be.
    pub files_free: u64,
    /// The longest name, in bytes.
    pub name_max: u32,
}

/// The limits that a dataset's properties set, which lie above the file system.
pub trait Room: Send + Sync {
    /// Asks for room for `bytes` of new data: EDQUOT if a quota refuses it, ENOSPC if the rest is set aside for others.
    fn admit(&self, bytes: u64) -> Result<(), Errno>;

    /// Whether [`Room::admit`] would find room; nothing is taken.
    fn look_for(&self, bytes: u64) -> Result<(), Errno>;

    /// The bytes that the dataset refers to, and those that may still be added under its quotas when everything that is due
    /// has been freed.
    fn space(&self) -> (u64, u64);
}

const BLOCK: u64 = 4096;
/// Room for fewer bytes is not counted as room for another inode.
const INODE_SPACE: u64 = 512;

impl FileSystem {
    /// Has the dataset's own limits asked from now on.
    pub fn set_room(&self, room: Arc<dyn Room>) {
        *self.room.write() = Some(room);
    }

    /// How much room there is.
    pub fn statfs(&self) -> Result<StatFs, Errno> {
        let files = self.read_tree(load_master)?.files;
        let engine = self.head.engine();
        let (used, available) = match &*self.room.read() {
            Some(room) => room.space(),
            None => (engine.space_totals().allocated, engine.available_soon()),
        };
        let files_free = available / INODE_SPACE;
        Ok(StatFs {
            block_size: BLOCK as u32,
            blocks: used.div_ceil(BLOCK) + available / BLOCK,
            free: available / BLOCK,
            available: available / BLOCK,
            files: files.saturating_add(files_free),
            files_free,
            name_max: NAME_MAX as u32,
        })
    }
}
