//! The extended attributes of a file: a hidden directory, and a file for each value.

use crate::{
    error::{Error, Result},
    fs::{FileType, Ino, inode::Inode},
};

use super::{
    directory,
    file::{block_of, describe, padded},
    frame::Frames,
    numbers::{self, XATTRS_MAX, kind},
    tree::Tree,
    zap::Map,
    znode::Znode,
};

/// Sends the extended attributes of a file whose attributes, or owners, differ from the base.
pub(super) fn send(ino: Ino, base: &Tree, tree: &mut Tree, frames: &mut Frames<'_>) -> Result<()> {
    let inode = tree.inode(ino)?;
    let old = if base.inode(ino)?.is_some() { base.count_xattrs(ino)? } else { 0 };
    let count = if inode.is_some() { tree.count_xattrs(ino)? } else { 0 };
    if count > XATTRS_MAX {
        return Err(Error::NotSent {
            problem: format!("inode {ino} has {count} extended attributes, and streams for ZFS carry {XATTRS_MAX}"),
            remedy: "remove some of the attributes, and take a new snapshot",
        });
    }
    let Some(inode) = inode.filter(|_| count > 0) else {
        return if old > 0 { frames.free_objects(numbers::xattrs(ino), old + 1) } else { Ok(()) };
    };
    let attributes = tree.xattrs(ino)?;
    directory(ino, &inode, &attributes, old > 0, frames)?;
    for (index, (_, value)) in (0..).zip(&attributes) {
        put(numbers::xattr(ino, index), numbers::xattrs(ino), &inode, value, index < old, frames)?;
    }
    if old > count { frames.free_objects(numbers::xattr(ino, count), old - count) } else { Ok(()) }
}

/// Sends the hidden directory.
fn directory(
    ino: Ino,
    inode: &Inode,
    attributes: &[(Vec<u8>, Vec<u8>)],
    is_update: bool,
    frames: &mut Frames<'_>,
) -> Result<()> {
    let object = numbers::xattrs(ino);
    let entry = |(index, (name, _)): (u64, &(Vec<u8>, Vec<u8>))| {
        (name.clone(), numbers::entry(numbers::xattr(ino, index), FileType::Regular))
    };
    let entries: Vec<_> = (0..).zip(attributes).map(entry).collect();
    // So few names fit into leaves whatever their hashes are, except all of the longest.
    let map = Map::build(&entries, directory::salt(object)).ok_or_else(|| Error::NotSent {
        problem: format!("too many extended attributes of inode {ino} have the same hash in ZFS"),
        remedy: "remove some of the attributes, and take a new snapshot",
    })?;
    let size = attributes.len() as u64 + 2;
    let znode = Znode::of_xattrs(inode, FileType::Directory, size, numbers::object(ino));
    describe(object, kind::DIRECTORY, map.block as u64, &znode.encode(None), frames)?;
    // The map of the base is not built: these maps are small.
    let old = is_update.then(Map::default);
    directory::put(object, kind::DIRECTORY, &map, old.as_ref(), frames)
}

/// Sends the value of an attribute as a file of its own.
fn put(object: u64, parent: u64, inode: &Inode, value: &[u8], is_update: bool, frames: &mut Frames<'_>) -> Result<()> {
    let (size, block) = (value.len() as u64, block_of(value.len() as u64));
    let znode = Znode::of_xattrs(inode, FileType::Regular, size, parent);
    describe(object, kind::CONTENT, block, &znode.encode(None), frames)?;
    if is_update {
        frames.cut(object, 0)?;
    }
    if value.is_empty() { Ok(()) } else { frames.write(object, kind::CONTENT, 0, &padded(value, block)) }
}
