//! A file of the file system in memory: attributes, content, and the kernel's references.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::SystemTime,
};

use dataset::fs::{Attr, Errno, FileType, SetAttr, SetTime};
use fuse_mount::handler::{Entry, FOREVER, INodeNo};
use parking_lot::{Mutex, RwLock};

use crate::blocks::Blocks;

/// The I/O size recommended to programs, in bytes: that of a dataset.
const BLOCK_SIZE: u32 = 128 << 10;

/// A file of any type.
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) content: Content,
    state: Mutex<State>,
}

/// The content of a file.
pub(crate) enum Content {
    Directory(Mutex<Directory>),
    File(RwLock<Blocks>),
    Symlink(Vec<u8>),
}

struct State {
    attr: Attr,
    /// The references that the kernel holds.
    references: u64,
}

impl Node {
    /// A file with one name.
    pub(crate) fn new(number: u64, mode: u32, (uid, gid): (u32, u32), content: Content) -> Node {
        let (file_type, size) = match &content {
            Content::Directory(_) => (FileType::Directory, 0),
            Content::File(_) => (FileType::Regular, 0),
            Content::Symlink(target) => (FileType::Symlink, target.len() as u64),
        };
        let now = now();
        let attr = Attr {
            ino: number,
            generation: 0,
            file_type,
            mode: (mode & 0o7777) as u16,
            nlink: 1,
            uid,
            gid,
            rdev: 0,
            size,
            blocks: 0,
            block_size: BLOCK_SIZE,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
        };
        Node { number, content, state: Mutex::new(State { attr, references: 0 }) }
    }

    pub(crate) fn directory(&self) -> Result<&Mutex<Directory>, Errno> {
        match &self.content {
            Content::Directory(directory) => Ok(directory),
            Content::File(_) | Content::Symlink(_) => Err(Errno::NOTDIR),
        }
    }

    pub(crate) fn blocks(&self) -> Result<&RwLock<Blocks>, Errno> {
        match &self.content {
            Content::File(blocks) => Ok(blocks),
            Content::Directory(_) | Content::Symlink(_) => Err(Errno::INVAL),
        }
    }

    /// The reply about this file, which gives the kernel one more reference.
    pub(crate) fn entry(&self) -> Entry {
        let mut state = self.state.lock();
        state.references += 1;
        Entry {
            node: INodeNo(self.number),
            attr: state.attr,
            generation: 0,
            name_lifetime: FOREVER,
            attr_lifetime: FOREVER,
        }
    }

    pub(crate) fn attr(&self) -> Attr {
        self.state.lock().attr
    }

    /// Changes attributes, and sets the time of the last change.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Attr, i64)) -> Attr {
        let (attr, now) = (&mut self.state.lock().attr, now());
        change(attr, now);
        attr.ctime = now;
        *attr
    }

    /// Like [`Node::change`], for a change of the content.
    pub(crate) fn touch(&self) {
        self.change(|attr, now| attr.mtime = now);
    }

    /// Removes a name. True if the file has no names and references left.
    pub(crate) fn lose_name(&self) -> bool {
        self.change(|attr, _| attr.nlink -= 1);
        self.is_forgotten()
    }

    /// Returns references. True if the file has no names and references left.
    pub(crate) fn forget(&self, count: u64) -> bool {
        self.state.lock().references -= count;
        self.is_forgotten()
    }

    fn is_forgotten(&self) -> bool {
        let state = self.state.lock();
        state.attr.nlink == 0 && state.references == 0
    }
}

/// Applies a `setattr`, except for the length of the content.
pub(crate) fn set(attr: &mut Attr, change: &SetAttr, now: i64) {
    let time = |given: Option<SetTime>, old| match given {
        Some(SetTime::Now) => now,
        Some(SetTime::At(time)) => time,
        None => old,
    };
    attr.mode = change.mode.map_or(attr.mode, |mode| (mode & 0o7777) as u16);
    attr.uid = change.uid.unwrap_or(attr.uid);
    attr.gid = change.gid.unwrap_or(attr.gid);
    attr.atime = time(change.atime, attr.atime);
    attr.mtime = time(change.mtime, attr.mtime);
    if let Some(size) = change.size {
        resize(attr, size);
    }
}

/// Sets the length and the fields that follow from it.
pub(crate) fn resize(attr: &mut Attr, size: u64) {
    attr.size = size;
    attr.blocks = size.div_ceil(512);
}

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// Names, and the order of their creation: a listing continues behind an entry, removed or not.
#[derive(Default)]
pub(crate) struct Directory {
    names: HashMap<Arc<[u8]>, (u64, Arc<Node>)>,
    order: BTreeMap<u64, (Arc<[u8]>, Arc<Node>)>,
    last: u64,
}

impl Directory {
    pub(crate) fn get(&self, name: &[u8]) -> Option<&Arc<Node>> {
        self.names.get(name).map(|(_, node)| node)
    }

    /// Adds a new name.
    pub(crate) fn add(&mut self, name: &[u8], node: Arc<Node>) {
        let name: Arc<[u8]> = name.into();
        self.last += 1;
        self.order.insert(self.last, (Arc::clone(&name), Arc::clone(&node)));
        self.names.insert(name, (self.last, node));
    }

    /// Removes a name, whatever its file.
    pub(crate) fn take(&mut self, name: &[u8]) -> Result<Arc<Node>, Errno> {
        let (place, node) = self.names.remove(name).ok_or(Errno::NOENT)?;
        self.order.remove(&place);
        Ok(node)
    }

    /// Removes a name, unless its file is a directory with entries.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Result<Arc<Node>, Errno> {
        match &self.get(name).ok_or(Errno::NOENT)?.content {
            Content::Directory(inner) if !inner.lock().names.is_empty() => Err(Errno::NOTEMPTY),
            _ => self.take(name),
        }
    }

    /// The entries behind a place.
    pub(crate) fn behind(&self, place: u64) -> impl Iterator<Item = (u64, &[u8], &Node)> {
        let places = self.order.range(place.saturating_add(1)..);
        places.map(|(place, (name, node))| (*place, &**name, &**node))
    }
}
