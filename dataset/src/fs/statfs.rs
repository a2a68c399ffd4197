//! Free and used space.

use std::sync::Arc;

use rustix::io::Errno;

use super::{change::load_master, directory::NAME_MAX, file_system::FileSystem, room::Room};

/// The result of `statfs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// The unit of the block counts, in bytes.
    pub block_size: u32,
    /// The size of the file system: used plus free, in units of `block_size`.
    pub blocks: u64,
    /// The free space, in units of `block_size`.
    pub free: u64,
    /// The free space for an ordinary user, in units of `block_size`.
    pub available: u64,
    /// The number of existing and possible inodes.
    pub files: u64,
    /// The number of further inodes possible.
    pub files_free: u64,
    /// The longest name, in bytes.
    pub name_max: u32,
}

const BLOCK: u64 = 4096;
/// The free bytes counted as room for one more inode.
const INODE_SPACE: u64 = 512;

impl FileSystem {
    /// Makes the file system ask `room` from now on.
    pub fn set_room(&self, room: Arc<dyn Room>) {
        *self.room.write() = Some(room);
    }

    /// The free and used space of the file system, within its quotas.
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
