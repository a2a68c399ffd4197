//! Reads a snapshot's files, in the order of keys.

use std::{ops::Range, sync::Arc};

use pool::{
    error::Error as EngineError,
    format::{codec::Malformed, key::Key, pointer::BlockPointer},
    tree::{Block, Event, Leaf, Walker},
    txg::{Head, Plain},
    units::Txg,
};

use crate::{
    error::Result,
    fs::{
        FileType, Ino,
        directory::Dirent,
        file::extent::Extent,
        inode::{Inode, MAX_RECORD_SHIFT, MAX_SIZE},
        key::{self, DIRENT, EXTENT, OBJECT, XATTR},
        xattr::{Value, Xattr},
    },
    lineage::nodes,
    zfs::objects,
};

use super::numbers;

/// Gets a piece of content: its offset in the file, and its bytes.
type EachPiece<'a> = &'a mut dyn FnMut(u64, &[u8]) -> Result<()>;

/// A snapshot's tree, or the empty tree.
pub(super) struct Tree {
    head: Option<Arc<Head>>,
    /// The block read last: neighbouring pieces of a file are often of one block.
    last: Option<(BlockPointer, Arc<Vec<u8>>)>,
}

/// An item of the tree.
struct Item<'a> {
    key: Key,
    body: &'a [u8],
    block: Option<BlockPointer>,
}

impl Tree {
    pub(super) fn new(head: Option<Arc<Head>>) -> Tree {
        Tree { head, last: None }
    }

    /// Whether the tree came in a ZFS stream, and so has the objects of another ZFS.
    pub(super) fn is_of_zfs(&self) -> Result<bool> {
        let (master, mut found) = (objects::ino(numbers::MASTER), false);
        self.scan(key::from(master, OBJECT, 0), &mut |_| {
            found = true;
            Ok(false)
        })?;
        Ok(found)
    }

    /// The inode with a number, unless missing or without a name.
    pub(super) fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        let (at, mut found) = (key::inode(ino), None);
        self.scan(at..Key::new(ino, key::INODE, 1), &mut |item| {
            found = Some(decoded(item.key, Inode::decode(item.body))?);
            Ok(false)
        })?;
        Ok(found.filter(|inode| inode.nlink > 0))
    }

    /// The entries of a directory: names, inodes and types.
    pub(super) fn entries(&self, dir: Ino) -> Result<Vec<(Vec<u8>, Ino, FileType)>> {
        let mut entries = Vec::new();
        self.scan(key::from(dir, DIRENT, 0), &mut |item| {
            let Dirent { ino, file_type, name } = decoded(item.key, Dirent::decode(item.body))?;
            entries.push((name.to_vec(), ino, file_type));
            Ok(true)
        })?;
        Ok(entries)
    }

    /// Whether a file has extended attributes.
    pub(super) fn has_xattrs(&self, ino: Ino) -> Result<bool> {
        let mut found = false;
        self.scan(key::from(ino, XATTR, 0), &mut |_| {
            found = true;
            Ok(false)
        })?;
        Ok(found)
    }

    /// The number of a file's extended attributes.
    pub(super) fn count_xattrs(&self, ino: Ino) -> Result<u64> {
        let mut count = 0;
        self.scan(key::from(ino, XATTR, 0), &mut |_| {
            count += 1;
            Ok(true)
        })?;
        Ok(count)
    }

    /// The names and values of a file's extended attributes.
    pub(super) fn xattrs(&mut self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        self.scan(key::from(ino, XATTR, 0), &mut |item| {
            let Xattr { name, value } = decoded(item.key, Xattr::decode(item.body))?;
            found.push(match value {
                Value::Inline(value) => (name.to_vec(), Ok(value.to_vec())),
                Value::Block(len) => (name.to_vec(), Err((item.key, item.block, len))),
            });
            Ok(true)
        })?;
        let mut value = |value| match value {
            Ok(value) => Ok(value),
            Err((key, block, len)) => self.part(key, block, 0, len).map(|(bytes, range)| bytes[range].to_vec()),
        };
        found.into_iter().map(|(name, stored)| Ok((name, value(stored)?))).collect()
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self, ino: Ino) -> Result<Vec<u8>> {
        let (at, mut target) = (key::extent(ino, 0), Vec::new());
        self.scan(at..Key::new(ino, EXTENT, 1), &mut |item| {
            target = match decoded(item.key, Extent::decode(item.body))? {
                Extent::Inline(bytes) => bytes.to_vec(),
                Extent::Part { .. } => decoded(item.key, Err(Malformed { what: "target of a symbolic link" }))?,
            };
            Ok(false)
        })?;
        Ok(target)
    }

    /// Passes the stored content of a file in a range of bytes, with ascending offsets; holes lie between.
    pub(super) fn content(&mut self, ino: Ino, inode: &Inode, range: Range<u64>, each: EachPiece<'_>) -> Result<()> {
        let shift = if inode.record_shift == 0 { MAX_RECORD_SHIFT } else { inode.record_shift };
        // An extent does not cross the boundary of a record.
        let first = range.start >> shift << shift;
        let keys = key::span(ino, EXTENT, first, range.end);
        let Some(mut walk) = self.walk(&keys) else { return Ok(()) };
        while let Some(leaf) = walk.leaf()? {
            for item in items(&leaf, &keys) {
                let at = item.key.offset;
                let extent = decoded(item.key, Extent::decode(item.body))?;
                let len = match extent {
                    Extent::Inline(bytes) => bytes.len() as u64,
                    Extent::Part { len, .. } => len.into(),
                };
                let end = at.checked_add(len).filter(|end| *end <= MAX_SIZE);
                let end = decoded(item.key, end.ok_or(Malformed { what: "extent's range" }))?;
                let (low, high) = (at.max(range.start), end.min(range.end));
                if low >= high {
                    continue;
                }
                let within = (low - at) as usize..(high - at) as usize;
                match extent {
                    Extent::Inline(bytes) => each(low, &bytes[within])?,
                    Extent::Part { len, start } => {
                        let (bytes, part) = self.part(item.key, item.block, start, len)?;
                        each(low, &bytes[part][within])?;
                    }
                }
            }
        }
        Ok(())
    }

    /// The content of an item's block, and the range of a part.
    fn part(
        &mut self,
        key: Key,
        block: Option<BlockPointer>,
        start: u32,
        len: u32,
    ) -> Result<(Arc<Vec<u8>>, Range<usize>)> {
        let pointer = decoded(key, block.ok_or(Malformed { what: "item without its block" }))?;
        let bytes = match &self.last {
            Some((last, bytes)) if *last == pointer => bytes.clone(),
            _ => self.read(key, &pointer)?,
        };
        self.last = Some((pointer, bytes.clone()));
        let range = start as usize..start as usize + len as usize;
        let range = bytes.get(range.clone()).map(|_| range);
        Ok((bytes, decoded(key, range.ok_or(Malformed { what: "part of a block" }))?))
    }

    fn read(&self, key: Key, pointer: &BlockPointer) -> Result<Arc<Vec<u8>>> {
        let head = self.head.as_deref().expect("an item was found in the tree");
        loop {
            let seen = head.read(|view| Ok::<_, Plain>(view.seen())).map_err(EngineError::from)?;
            match head.bytes_past_cache(key, &Block::Stored(*pointer), seen) {
                // The read took too long; it fails for good once the tree is gone.
                Err(EngineError::Stale) => head.check_open()?,
                done => return Ok(done?),
            }
        }
    }

    /// Passes the items in a range until `each` returns false.
    fn scan(&self, keys: Range<Key>, each: &mut dyn FnMut(Item<'_>) -> Result<bool>) -> Result<()> {
        let Some(mut walk) = self.walk(&keys) else { return Ok(()) };
        while let Some(leaf) = walk.leaf()? {
            for item in items(&leaf, &keys) {
                if !each(item)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn walk(&self, keys: &Range<Key>) -> Option<Walk> {
        let head = self.head.clone()?;
        let (pointer, level) = head.clean_root()?;
        let walker = Walker::new(nodes::root(pointer, level), keys.start, Txg::ZERO);
        Some(Walk { head, walker, end: keys.end })
    }
}

/// The leaves over a range of keys.
struct Walk {
    head: Arc<Head>,
    walker: Walker,
    end: Key,
}

impl Walk {
    fn leaf(&mut self) -> Result<Option<Arc<pool::tree::Node>>> {
        while let Some(event) = self.walker.next(|miss| self.head.load_node(miss))? {
            let Event::Enter(place, node) = event else { continue };
            if place.low >= self.end {
                return Ok(None);
            }
            if node.leaf().is_some() {
                return Ok(Some(node));
            }
        }
        Ok(None)
    }
}

fn items<'a>(node: &'a pool::tree::Node, keys: &Range<Key>) -> impl Iterator<Item = Item<'a>> {
    let leaf: &Leaf = node.leaf().expect("the walk returns leaves");
    let all = leaf.items();
    let first = all.partition_point(|item| item.key() < keys.start);
    let last = all.partition_point(|item| item.key() < keys.end);
    let item =
        move |item: &'a pool::tree::Item| Item { key: item.key(), body: leaf.body(item), block: leaf.pointer(item) };
    all[first..last.max(first)].iter().map(item)
}

/// The decoded form of an item, or its damage.
pub(super) fn decoded<T>(key: Key, decoded: Result<T, Malformed>) -> Result<T> {
    decoded.map_err(|malformed| EngineError::damaged(format!("item {key}"), malformed).into())
}
