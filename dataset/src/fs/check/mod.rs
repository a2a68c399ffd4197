//! The judge of a dataset's tree: whether its items agree with each other.
//!
//! Items go in one by one, in the order of their keys, so that whoever walks a tree (offline, or under a head's lock) can
//! feed it. What can be seen from the item and its object is judged at once; what needs the whole tree (names and the
//! inodes they lead to) at the end. It keeps a few dozen bytes per inode and entry in memory.
//!
//! It does not read blocks, and does not look whether a block is used twice: that is the pool's own check.
//!
//! ```text
//! finding   what can be wrong: numbers and words
//! whole     what only the whole tree can tell
//! ```

mod finding;
mod whole;

use std::collections::{BTreeMap, HashMap};

use pool::{
    error::Error,
    format::{codec::Malformed, key::Key},
    tree::{Block, Entry},
    txg::{Head, Plain},
};

pub use self::finding::{Finding, Problem};
use super::{
    directory::{self, Dirent},
    file::extent::{Extent, INLINE_MAX},
    inode::{FileType, Inode, Link, flag},
    key::{DATASET, DIRENT, EXTENT, INODE, Ino, MASTER, ORPHAN, PARENT, TRUNCATE, Window, XATTR},
    link,
    master::Master,
    xattr::{self, Value, Xattr},
};

/// What the check of a tree has found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong.
    pub findings: Vec<Finding>,
    /// Files without a name, in use or still to be freed. They are nothing wrong.
    pub orphans: u64,
}

/// Checks the tree under a head. Nobody may change it meanwhile.
pub fn check(head: &Head) -> Result<Vec<Finding>, Error> {
    Ok(report(head)?.findings)
}

/// The same, with what is worth counting.
pub fn report(head: &Head) -> Result<Report, Error> {
    let mut checker = Checker::default();
    let mut next = Key::MIN;
    head.read(|view| {
        for entry in view.range(next..Key::MAX) {
            let entry = entry?;
            checker.item(entry.key(), entry.body(), block_len(&entry));
            next = entry.key().successor();
        }
        Ok::<_, Plain>(())
    })?;
    let orphans = checker.objects.values().filter(|object| object.orphan).count() as u64;
    Ok(Report { findings: checker.finish(), orphans })
}

fn block_len(entry: &Entry) -> Option<u64> {
    match entry.block()? {
        Block::Stored(pointer) => Some(pointer.logical.into()),
        Block::Pending(record) => {
            record.size().map(|len| len as u64).or_else(|| record.pointer().map(|pointer| u64::from(pointer.logical)))
        }
    }
}

/// What is known about an object so far.
#[derive(Default)]
struct Object {
    inode: Option<Inode>,
    /// Entries that lead to it, and how many of them its links name.
    names: u64,
    named: u64,
    links: u64,
    entries: u64,
    subdirectories: u64,
    bytes: u64,
    /// Where its last extent ended.
    end: u64,
    orphan: bool,
    truncating: bool,
}

/// Judges a dataset's tree item by item.
#[derive(Default)]
pub struct Checker {
    master: Option<Master>,
    objects: BTreeMap<Ino, Object>,
    entries: HashMap<Link, (Ino, FileType)>,
    links: Vec<(Ino, Link)>,
    findings: Vec<Finding>,
}

impl Checker {
    /// Takes the next item: its key, its body, and the length of its block's content if it has one.
    pub fn item(&mut self, key: Key, body: &[u8], block: Option<u64>) {
        let judged = match (key.object, key.kind) {
            (DATASET, MASTER) => Master::decode(body).map(|master| self.master = Some(master)),
            (DATASET, ORPHAN | TRUNCATE) => {
                let object = self.object(key.offset);
                object.orphan |= key.kind == ORPHAN;
                object.truncating |= key.kind == TRUNCATE;
                Ok(())
            }
            (1.., INODE) if key.offset == 0 => self.inode(key.object, body),
            (1.., PARENT) => self.parent(key, body),
            (1.., XATTR) => self.xattr(key, body, block),
            (1.., DIRENT) => self.dirent(key, body),
            (1.., EXTENT) => self.extent(key, body, block),
            _ => {
                self.find(key.object, Problem::Stray(key));
                Ok(())
            }
        };
        if let Err(malformed) = judged {
            self.find(key.object, Problem::Malformed(key, malformed));
        }
    }

    fn find(&mut self, ino: Ino, problem: Problem) {
        self.findings.push(Finding { ino, problem });
    }

    fn object(&mut self, ino: Ino) -> &mut Object {
        self.objects.entry(ino).or_default()
    }

    fn in_window(&mut self, key: Key, window: Window) {
        if !window.keys().contains(&key) {
            self.find(key.object, Problem::Misplaced(key));
        }
    }

    fn inode(&mut self, ino: Ino, body: &[u8]) -> Result<(), Malformed> {
        let inode = Inode::decode(body)?;
        self.object(ino).inode = Some(inode);
        if inode.parent != Link::NONE {
            self.link(ino, inode.parent);
        }
        Ok(())
    }

    fn parent(&mut self, key: Key, body: &[u8]) -> Result<(), Malformed> {
        let link = link::decode(body)?;
        self.in_window(key, link::window(key.object, link));
        self.link(key.object, link);
        Ok(())
    }

    fn link(&mut self, ino: Ino, link: Link) {
        self.object(ino).links += 1;
        self.links.push((ino, link));
    }

    fn xattr(&mut self, key: Key, body: &[u8], block: Option<u64>) -> Result<(), Malformed> {
        let Xattr { name, value } = Xattr::decode(body)?;
        self.in_window(key, xattr::window(key.object, name));
        let fits = match value {
            Value::Inline(_) => block.is_none(),
            Value::Block(len) => block.is_some_and(|block| u64::from(len) <= block),
        };
        if !fits {
            self.find(key.object, Problem::Block(key));
        }
        let marked = self.object(key.object).inode.is_none_or(|inode| inode.has(flag::CAPABILITY));
        if name == xattr::CAPABILITY && !marked {
            self.find(key.object, Problem::Capability);
        }
        Ok(())
    }

    fn dirent(&mut self, key: Key, body: &[u8]) -> Result<(), Malformed> {
        let Dirent { ino, file_type, name } = Dirent::decode(body)?;
        if let Some(master) = self.master {
            self.in_window(key, directory::window(master.seed, key.object, name));
        }
        self.object(ino).names += 1;
        let dir = self.object(key.object);
        dir.entries += 1;
        dir.subdirectories += u64::from(file_type == FileType::Directory);
        self.entries.insert(Link { dir: key.object, offset: key.offset }, (ino, file_type));
        Ok(())
    }

    fn extent(&mut self, key: Key, body: &[u8], block: Option<u64>) -> Result<(), Malformed> {
        let ino = key.object;
        let extent = Extent::decode(body)?;
        let object = self.object(ino);
        let Some(inode) = object.inode else { return Ok(()) };
        let len = match extent {
            Extent::Inline(bytes) => bytes.len() as u64,
            Extent::Part { len, .. } => len.into(),
        };
        let end = key.offset.saturating_add(len);
        let overlaps = key.offset < object.end;
        object.bytes += len;
        object.end = end;
        if overlaps {
            self.find(ino, Problem::Overlap(key.offset));
        }
        if end > inode.size && !inode.has(flag::TRUNCATING) {
            self.find(ino, Problem::BeyondEnd(key.offset));
        }
        match extent {
            Extent::Inline(_) => {
                let fits = key.offset == 0 && (len <= INLINE_MAX || inode.file_type == FileType::Symlink);
                if !fits {
                    self.find(ino, Problem::AcrossRecords(key.offset));
                }
            }
            Extent::Part { len, start } => {
                let shift = inode.record_shift;
                if shift == 0 || key.offset >> shift != (end - 1) >> shift {
                    self.find(ino, Problem::AcrossRecords(key.offset));
                }
                if block.is_none_or(|block| block < u64::from(start) + u64::from(len)) {
                    self.find(ino, Problem::Block(key));
                }
            }
        }
        Ok(())
    }
}
