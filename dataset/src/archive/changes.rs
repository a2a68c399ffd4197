//! The files that an increment changes: by comparison with the streams below, or, without them, from the increment
//! alone.
//!
//! The stream on top replaces ranges of keys. Outside of these ranges nothing has changed, so only inodes within them
//! are compared. A file counts as changed if its change time differs, as for `fs diff`. Memory follows the number of
//! changes.

use std::collections::BTreeMap;

use pool::format::key::Key;

use super::{Error, Result, Tree, decoded};
use crate::{
    fs::{
        Errno, FileType, Ino,
        inode::Inode,
        key::{DATASET, EXTENT, INODE, XATTR},
    },
    stream::archive,
};

/// A file that differs between two snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The kind of the change.
    pub change: Change,
    /// The type of the file; `None` if only a missing base tells.
    pub file_type: Option<FileType>,
    /// The path in the base, or of an added file in the stream, with a leading slash.
    pub path: Vec<u8>,
}

/// What has changed of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// The file is in the base only.
    Removed,
    /// The file is not in the base.
    Added,
    /// Content, attributes or, of a directory, entries differ.
    Modified,
    /// The file has this path now.
    Renamed(Vec<u8>),
}

impl Tree<'_> {
    /// The changes since the base, by path: all, if the streams below have the whole base, else new and changed files;
    /// of a stream without the time of its base, only files with new blocks count as changed.
    ///
    /// # Errors
    /// If a stream is damaged; `EINVAL` if the stream is no increment.
    pub fn changes(&self) -> Result<Vec<Changed>> {
        if self.stream().begin.base.is_none() {
            return Err(Error::File(Errno::INVAL));
        }
        let mut changes = match self.missing() {
            Some(_) => self.changes_alone()?,
            None => self.changes_since(&Tree::new(self.layers.below())?)?,
        };
        changes.sort_by(|one, other| (&one.path, &one.change).cmp(&(&other.path, &other.change)));
        Ok(changes)
    }

    fn changes_since(&self, base: &Tree<'_>) -> Result<Vec<Changed>> {
        let mut inodes: BTreeMap<Ino, (Option<Inode>, Option<Inode>)> = BTreeMap::new();
        self.layers.ranges(&mut |keys| {
            for (tree, is_newer) in [(self, true), (base, false)] {
                tree.layers.scan(keys.clone(), &mut |item| {
                    if item.key.kind == INODE && item.key.object != DATASET {
                        let inode = decoded(&item, Inode::decode(&item.body))?;
                        let pair = inodes.entry(item.key.object).or_default();
                        *(if is_newer { &mut pair.1 } else { &mut pair.0 }) = Some(inode);
                    }
                    Ok(true)
                })?;
            }
            inodes.retain(|_, (before, after)| before.map(|inode| inode.ctime) != after.map(|inode| inode.ctime));
            Ok(())
        })?;
        // Files without a name are not shown.
        let named = |inode: Option<Inode>| inode.filter(|inode| inode.nlink > 0);
        let mut changes = Vec::new();
        for (ino, (before, after)) in inodes {
            let (change, file_type, path) = match (named(before), named(after)) {
                (None, None) => continue,
                (Some(before), None) => (Change::Removed, before.file_type, base.path_of(ino)?),
                (None, Some(after)) => (Change::Added, after.file_type, self.path_of(ino)?),
                (Some(_), Some(after)) => {
                    let (old, new) = (base.path_of(ino)?, self.path_of(ino)?);
                    let change = if old == new { Change::Modified } else { Change::Renamed(new) };
                    (change, after.file_type, old)
                }
            };
            changes.push(Changed { change, file_type: Some(file_type), path });
        }
        Ok(changes)
    }

    fn changes_alone(&self) -> Result<Vec<Changed>> {
        let begin = &self.stream().begin;
        let (born_after, since) = (begin.born_after().0, begin.since());
        let mut found: BTreeMap<Ino, Change> = BTreeMap::new();
        self.layers.scan(Key::MIN..Key::MAX, &mut |item| {
            match item.key.kind {
                INODE if item.key.object != DATASET => {
                    let inode = decoded(&item, Inode::decode(&item.body))?;
                    // A range has unchanged items too.
                    if inode.generation > born_after {
                        found.insert(item.key.object, Change::Added);
                    } else if since.is_some_and(|since| inode.ctime > since) {
                        found.insert(item.key.object, Change::Modified);
                    }
                }
                EXTENT | XATTR if item.is_new => _ = found.entry(item.key.object).or_insert(Change::Modified),
                _ => {}
            }
            Ok(true)
        })?;
        let mut changes = Vec::new();
        for (ino, change) in found {
            let file_type = match self.inode(ino) {
                // Files without a name are not shown.
                Ok(inode) if inode.nlink == 0 => continue,
                Ok(inode) => Some(inode.file_type),
                Err(Error::Archive(archive::Error::Base { .. })) => None,
                Err(error) => return Err(error),
            };
            changes.push(Changed { change, file_type, path: self.path_of(ino)? });
        }
        Ok(changes)
    }
}
