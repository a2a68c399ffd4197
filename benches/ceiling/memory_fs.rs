//! A file system that only answers: everything is in memory, in the plainest structures that scale, and nothing is
//! checked, stored, checksummed or compressed.
//!
//! Its answers and cache lifetimes equal a dataset's, so the kernel sends the same requests. Where the kernel already
//! locks, this file system does not: a directory under change is locked by the kernel, so during a rename a file may be
//! in neither directory for a moment. Left out is everything that no workload needs: device nodes, extended attributes,
//! preallocation, clearing set-id bits on writes, `.` and `..` in listings.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use dataset::fs::{Attr, Errno, SetAttr, StatFs};
use fuse_mount::handler::{
    Entry, FOREVER, Fitted, FopenFlags, Handler, INodeNo, Listed, RenameFlags, Requester, Writing,
};
use parking_lot::RwLock;

use crate::node::{Content, Node, resize, set};

type Result<T> = std::result::Result<T, Errno>;

const ROOT: u64 = 1;
/// Tables of nodes: making a file locks one of them.
const SHARDS: usize = 16;
/// The unit in which space is reported, in bytes.
const UNIT: u64 = 4096;
/// The free space that is always reported, in units, and the reported limit on files.
const PLENTY: u64 = 1 << 26;
/// The most bytes copied at once.
const MAX_COPY: u64 = 16 << 20;
const SEEK_DATA: i32 = 3;

/// The whole file system.
pub(crate) struct MemoryFs {
    nodes: [RwLock<HashMap<u64, Arc<Node>>>; SHARDS],
    last: AtomicU64,
    /// The bytes in all files.
    kept: AtomicU64,
}

impl MemoryFs {
    fn store(&self, node: INodeNo, offset: u64, data: &[u8]) -> Result<u32> {
        let node = self.node(node)?;
        let grown = node.blocks()?.write().write(offset, data);
        if grown > 0 {
            self.kept.fetch_add(grown, Relaxed);
        }
        node.change(|attr, now| {
            attr.mtime = now;
            resize(attr, attr.size.max(offset + data.len() as u64));
        });
        Ok(data.len() as u32)
    }

    /// An empty root.
    pub(crate) fn new() -> MemoryFs {
        let fs = MemoryFs { nodes: Default::default(), last: AtomicU64::new(ROOT - 1), kept: AtomicU64::new(0) };
        fs.make(0o755, (0, 0), Content::Directory(Default::default()));
        fs
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<Node>>> {
        &self.nodes[number as usize % SHARDS]
    }

    fn node(&self, number: INodeNo) -> Result<Arc<Node>> {
        self.shard(number.0).read().get(&number.0).cloned().ok_or(Errno::STALE)
    }

    fn make(&self, mode: u32, owner: (u32, u32), content: Content) -> Arc<Node> {
        let number = self.last.fetch_add(1, Relaxed) + 1;
        let node = Arc::new(Node::new(number, mode, owner, content));
        self.shard(number).write().insert(number, Arc::clone(&node));
        node
    }

    /// Makes a file in a directory.
    fn enter(&self, who: &Requester, dir: INodeNo, name: &[u8], mode: u32, content: Content) -> Result<Entry> {
        let node = self.make(mode, (who.uid, who.gid), content);
        self.add_name(dir, name, &node)
    }

    fn add_name(&self, dir: INodeNo, name: &[u8], node: &Arc<Node>) -> Result<Entry> {
        let dir = self.node(dir)?;
        dir.directory()?.lock().add(name, Arc::clone(node));
        dir.touch();
        Ok(node.entry())
    }

    fn remove(&self, dir: INodeNo, name: &[u8]) -> Result<()> {
        let dir = self.node(dir)?;
        let node = dir.directory()?.lock().remove(name)?;
        dir.touch();
        self.lose_name(&node);
        Ok(())
    }

    fn lose_name(&self, node: &Node) {
        if node.lose_name() {
            self.drop_node(node);
        }
    }

    fn drop_node(&self, node: &Node) {
        self.shard(node.number).write().remove(&node.number);
        if let Content::File(blocks) = &node.content {
            self.kept.fetch_sub(blocks.write().truncate(0), Relaxed);
        }
    }

    fn list(&self, dir: INodeNo, cookie: u64, each: &mut dyn FnMut(Listed<'_>, &Node) -> bool) -> Result<()> {
        let dir = self.node(dir)?;
        let directory = dir.directory()?.lock();
        for (cookie, name, node) in directory.behind(cookie) {
            let listed = Listed { node: INodeNo(node.number), file_type: node.attr().file_type, name, cookie };
            if !each(listed, node) {
                break;
            }
        }
        Ok(())
    }
}

impl Handler for MemoryFs {
    fn lookup(&self, dir: INodeNo, name: &[u8]) -> Result<Option<Entry>> {
        let dir = self.node(dir)?;
        let directory = dir.directory()?.lock();
        Ok(directory.get(name).map(|node| node.entry()))
    }

    fn forget(&self, node: INodeNo, count: u64) {
        if let Ok(node) = self.node(node)
            && node.forget(count)
        {
            self.drop_node(&node);
        }
    }

    fn getattr(&self, node: INodeNo) -> Result<(Attr, Duration)> {
        Ok((self.node(node)?.attr(), FOREVER))
    }

    fn setattr(&self, _: &Requester, node: INodeNo, change: &SetAttr) -> Result<(Attr, Duration)> {
        let node = self.node(node)?;
        if let Some(size) = change.size {
            self.kept.fetch_sub(node.blocks()?.write().truncate(size), Relaxed);
        }
        Ok((node.change(|attr, now| set(attr, change, now)), FOREVER))
    }

    fn readlink(&self, node: INodeNo) -> Result<Vec<u8>> {
        match &self.node(node)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            Content::Directory(_) | Content::File(_) => Err(Errno::INVAL),
        }
    }

    fn mknod(&self, _: &Requester, _: INodeNo, _: &[u8], _: (u32, u32, u32)) -> Result<Entry> {
        Err(Errno::PERM)
    }

    fn mkdir(&self, who: &Requester, dir: INodeNo, name: &[u8], (mode, _): (u32, u32)) -> Result<Entry> {
        self.enter(who, dir, name, mode, Content::Directory(Default::default()))
    }

    fn unlink(&self, dir: INodeNo, name: &[u8]) -> Result<()> {
        self.remove(dir, name)
    }

    fn rmdir(&self, dir: INodeNo, name: &[u8]) -> Result<()> {
        self.remove(dir, name)
    }

    fn symlink(&self, who: &Requester, dir: INodeNo, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.enter(who, dir, name, 0o777, Content::Symlink(target.to_vec()))
    }

    fn rename(&self, _: &Requester, from: (INodeNo, &[u8]), to: (INodeNo, &[u8]), flags: RenameFlags) -> Result<()> {
        if !flags.is_empty() {
            return Err(Errno::INVAL);
        }
        let (source, target) = (self.node(from.0)?, self.node(to.0)?);
        let replaced = match target.directory()?.lock().remove(to.1) {
            Err(Errno::NOENT) => None,
            replaced => Some(replaced?),
        };
        let node = source.directory()?.lock().take(from.1)?;
        node.change(|_, _| ());
        target.directory()?.lock().add(to.1, node);
        source.touch();
        target.touch();
        if let Some(replaced) = replaced {
            self.lose_name(&replaced);
        }
        Ok(())
    }

    fn link(&self, node: INodeNo, dir: INodeNo, name: &[u8]) -> Result<Entry> {
        let node = self.node(node)?;
        node.change(|attr, _| attr.nlink += 1);
        self.add_name(dir, name, &node)
    }

    fn read(&self, node: INodeNo, offset: u64, size: u32, _: bool, out: &mut Vec<u8>) -> Result<()> {
        let node = self.node(node)?;
        let end = node.attr().size.min(offset.saturating_add(u64::from(size)));
        node.blocks()?.read().read(offset.min(end)..end, out);
        Ok(())
    }

    fn write(&self, _: &Requester, node: INodeNo, offset: u64, data: &[u8], _: Writing) -> Result<u32> {
        self.store(node, offset, data)
    }

    fn readdir(&self, dir: INodeNo, cookie: u64, each: &mut dyn FnMut(Listed<'_>) -> bool) -> Result<()> {
        self.list(dir, cookie, &mut |listed, _| each(listed))
    }

    fn readdirplus(&self, dir: INodeNo, cookie: u64, each: &mut dyn FnMut(Listed<'_>, &Entry) -> bool) -> Result<()> {
        self.list(dir, cookie, &mut |listed, node| {
            let has_room = each(listed, &node.entry());
            if !has_room {
                node.forget(1);
            }
            has_room
        })
    }

    fn statfs(&self, _: INodeNo) -> Result<StatFs> {
        Ok(StatFs {
            block_size: UNIT as u32,
            blocks: self.kept.load(Relaxed).div_ceil(UNIT) + PLENTY,
            free: PLENTY,
            available: PLENTY,
            files: PLENTY,
            files_free: PLENTY,
            name_max: 255,
        })
    }

    fn getxattr(&self, _: INodeNo, _: &[u8], _: u32) -> Result<Fitted> {
        Err(Errno::NODATA)
    }

    fn listxattr(&self, _: &Requester, _: INodeNo, room: u32) -> Result<Fitted> {
        Fitted::fit(Vec::new(), room)
    }

    fn create(&self, who: &Requester, dir: INodeNo, name: &[u8], how: (u32, u32, i32)) -> Result<(Entry, FopenFlags)> {
        let made = self.enter(who, dir, name, how.0, Content::File(Default::default()))?;
        Ok((made, FopenFlags::FOPEN_KEEP_CACHE))
    }

    fn lseek(&self, node: INodeNo, offset: i64, whence: i32) -> Result<i64> {
        let size = self.node(node)?.attr().size as i64;
        match whence {
            _ if offset >= size => Err(Errno::NXIO),
            SEEK_DATA => Ok(offset),
            _ => Ok(size),
        }
    }

    fn copy_file_range(&self, from: (INodeNo, u64), to: (INodeNo, u64), length: u64) -> Result<u32> {
        let mut data = Vec::new();
        self.read(from.0, from.1, length.min(MAX_COPY) as u32, true, &mut data)?;
        self.store(to.0, to.1, &data)
    }
}
