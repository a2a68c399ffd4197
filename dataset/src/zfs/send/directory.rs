//! The records of a directory.
//!
//! The maps of both snapshots are built, and the blocks that differ are sent. A changed directory is in memory while
//! sent, so memory follows the largest one.

use crate::{
    error::{Error, Result},
    fs::Ino,
};

use super::{
    Receiver,
    file::Subject,
    frame::Frames,
    numbers::{self, kind},
    tree::Tree,
    zap::Map,
};

/// Sends a directory.
pub(super) fn send(
    subject: &Subject,
    base: &Tree,
    tree: &Tree,
    receiver: Receiver,
    frames: &mut Frames<'_>,
) -> Result<()> {
    let map = map(tree, subject.ino)?;
    subject.describe(tree, receiver, map.block as u64, None, frames)?;
    let old = if subject.old.is_some() { Some(self::map(base, subject.ino)?) } else { None };
    put(subject.object(), kind::DIRECTORY, &map, old.as_ref(), frames)
}

/// Sends the blocks of a map that differ from those of the old map.
pub(super) fn put(object: u64, type_: u32, map: &Map, old: Option<&Map>, frames: &mut Frames<'_>) -> Result<()> {
    let size = map.block as u64;
    let same = old.filter(|old| old.block == map.block);
    match (old, same) {
        (_, Some(_)) => frames.cut(object, map.blocks.len() as u64 * size)?,
        // Blocks of another size are sent again, all of them.
        (Some(_), None) => frames.cut(object, 0)?,
        (None, None) => {}
    }
    for (index, block) in map.blocks.iter().enumerate() {
        if same.and_then(|old| old.blocks.get(index)) != Some(block) {
            frames.write(object, type_, index as u64 * size, block)?;
        }
    }
    Ok(())
}

/// A number for the hashes of an object's names.
pub(super) fn salt(object: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    object.wrapping_mul(ODD) | 1
}

fn map(tree: &Tree, dir: Ino) -> Result<Map> {
    let entry = |(name, ino, file_type)| (name, numbers::entry(numbers::object(ino), file_type));
    let entries: Vec<_> = tree.entries(dir)?.into_iter().map(entry).collect();
    Map::build(&entries, salt(numbers::object(dir))).ok_or_else(|| Error::NotSent {
        problem: format!("too many names of the directory with inode {dir} have the same hash in ZFS"),
        remedy: "rename some of the directory's files, and take a new snapshot",
    })
}
