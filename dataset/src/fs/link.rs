//! The names of an inode: the entries that lead to the inode.
//!
//! The first name is a field of the inode; further names are items, found by a hash of the entry's directory and
//! offset. So the path of any inode is found without a search.

use pool::{
    format::codec::{Malformed, Reader},
    tree::Entry,
};
use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_64;

use super::{
    change::Change,
    failure::{Failure, damaged},
    inode::Link,
    key::{self, Ino, PARENT, Window},
};

const WINDOW: u64 = 16;

/// The offsets where the item of a further name may be.
pub(super) fn window(ino: Ino, link: Link) -> Window {
    let mut place = [0; 16];
    place[..8].copy_from_slice(&link.dir.to_le_bytes());
    place[8..].copy_from_slice(&link.offset.to_le_bytes());
    // The last window is unused, so that the end of every window fits into 64 bits.
    let start = (xxh3_64(&place) & !(WINDOW - 1)).min(!(2 * WINDOW - 1));
    Window { object: ino, kind: PARENT, start, len: WINDOW }
}

/// Decodes the body of a further name's item.
pub fn decode(body: &[u8]) -> Result<Link, Malformed> {
    let mut reader = Reader::new(body);
    let link = Link::decode(&mut reader)?;
    reader.finish("link")?;
    Ok(link)
}

fn decode_entry(entry: &Entry) -> Result<Link, Failure> {
    decode(entry.body()).map_err(damaged(entry.key()))
}

/// Adds a name to `ino`.
pub(super) fn add(change: &mut Change<'_>, ino: Ino, link: Link) -> Result<(), Failure> {
    let inode = change.edit(ino)?;
    if inode.parent == Link::NONE {
        inode.parent = link;
        return Ok(());
    }
    let window = window(ino, link);
    let mut free = window.start;
    for entry in change.view.range(window.keys()) {
        if entry?.key().offset == free {
            free += 1;
        }
    }
    if free == window.start + window.len {
        return Err(Errno::MLINK.into());
    }
    put(change, ino, free, link);
    Ok(())
}

fn put(change: &mut Change<'_>, ino: Ino, offset: u64, link: Link) {
    let mut body = Vec::with_capacity(16);
    link.encode(&mut body);
    change.put(pool::format::key::Key::new(ino, PARENT, offset), body, None);
}

/// Removes a name of `ino`. If the first name goes, a further one becomes the first.
pub(super) fn remove(change: &mut Change<'_>, ino: Ino, link: Link) -> Result<(), Failure> {
    let first = change.inode(ino)?.parent == link;
    let keys = if first { key::from(ino, PARENT, 0) } else { window(ino, link).keys() };
    for entry in change.view.range(keys) {
        let entry = entry?;
        let other = decode_entry(&entry)?;
        if first {
            change.edit(ino)?.parent = other;
        }
        if first || other == link {
            change.delete(entry.key());
            return Ok(());
        }
    }
    if first {
        change.edit(ino)?.parent = Link::NONE;
    }
    Ok(())
}

/// Replaces a name of `ino`; used by rename.
pub(super) fn replace(change: &mut Change<'_>, ino: Ino, old: Link, new: Link) -> Result<(), Failure> {
    let inode = change.edit(ino)?;
    if inode.parent == old {
        inode.parent = new;
        return Ok(());
    }
    remove(change, ino, old)?;
    add(change, ino, new)
}
