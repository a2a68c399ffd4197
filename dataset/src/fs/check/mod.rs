//! The checker of a dataset's tree: do the items agree with each other?
//!
//! The caller walks a tree, exported or under a head's lock, and passes the items in key order. Checks of a single item
//! are made at once, checks of an object when the next object begins, and checks of the whole tree (names against
//! inodes) at the end. The last need 32 bytes of memory per inode, 32 per entry and 48 per account.
//!
//! The checker does not read blocks, nor look for blocks used twice: the pool's check does.
//!
//! ```text
//! finding   the problems: numbers and messages
//! whole     checks that need the whole tree
//! ```

mod finding;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use pool::{
    error::Error,
    format::{codec::Malformed, key::Key},
    tree::{Block, Entry},
    txg::{Head, Plain},
};

pub use self::finding::{Finding, Problem};
use super::{
    account::{
        item::{Account, Amount},
        ledger::decode_below,
    },
    directory::{self, Dirent},
    file::extent::{Extent, INLINE_MAX},
    foreign::items,
    inode::{FileType, Inode, Link, flag},
    key::{
        self, ACCOUNTING, DATASET, DIRECT, DIRENT, EXTENT, INODE, Ino, MASTER, ORPHAN, PARENT, TRUNCATE, Window, XATTR,
    },
    link,
    master::Master,
    xattr::{self, Value, Xattr},
};
use crate::property::OwnerKind;

/// The number of items checked in one reading, which keeps all nodes read until the end.
const AT_ONCE: usize = 4096;

/// The result of checking a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The problems found.
    pub findings: Vec<Finding>,
    /// The number of files without a name, in use or still to be freed; not a problem.
    pub orphans: u64,
}

/// Checks the tree under a head; the caller makes sure that no thread changes the tree meanwhile.
pub fn check(head: &Head) -> Result<Vec<Finding>, Error> {
    Ok(report(head)?.findings)
}

/// As [`check`], with the number of orphans.
pub fn report(head: &Head) -> Result<Report, Error> {
    let mut checker = Checker::default();
    let mut next = Key::MIN;
    loop {
        let mut left = AT_ONCE;
        head.read(|view| {
            for entry in view.range(next..Key::MAX).take(left) {
                let entry = entry?;
                checker.item(entry.key(), entry.body(), block_len(&entry));
                next = entry.key().successor();
                left -= 1;
            }
            Ok::<_, Plain>(())
        })?;
        if left > 0 {
            break;
        }
    }
    let orphans = checker.orphans.len() as u64;
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

/// The object whose items are being passed.
#[derive(Default)]
struct Current {
    ino: Ino,
    inode: Option<Inode>,
    entries: u64,
    subdirectories: u64,
    bytes: u64,
    /// The end of the last extent.
    end: u64,
}

/// The facts about an inode kept until the end.
#[derive(Clone, Copy)]
struct Seen {
    ino: Ino,
    parent: Link,
    nlink: u32,
    file_type: FileType,
}

/// An entry: the inode, and where the entry is.
struct Named {
    ino: Ino,
    link: Link,
    file_type: FileType,
}

/// Checks a dataset's tree, item by item.
#[derive(Default)]
pub struct Checker {
    master: Option<Master>,
    current: Current,
    /// Inodes below the number are charged to accounts.
    charged_below: Ino,
    /// The usage that each account states, and the sum of the charges, by the account's key.
    accounts: BTreeMap<Key, (Amount, Amount)>,
    /// The inodes with an orphan item.
    orphans: BTreeSet<Ino>,
    truncating: BTreeSet<Ino>,
    /// Objects with items but without an inode.
    bare: BTreeSet<Ino>,
    /// Sorted by inode number, as passed.
    inodes: Vec<Seen>,
    entries: Vec<Named>,
    /// The further names of inodes, beyond the first.
    links: Vec<(Ino, Link)>,
    findings: Vec<Finding>,
}

impl Checker {
    /// Takes the next item: the key, the body, and the length of the block's content if the item has a block.
    pub fn item(&mut self, key: Key, body: &[u8], block: Option<u64>) {
        if matches!(key.kind, key::OBJECT..=key::PAGE) && key.object != DATASET {
            if let Err(malformed) = items::check(body, block) {
                self.find(key.object, Problem::Malformed(key, malformed));
            }
            return;
        }
        if key.object != self.current.ino {
            self.judge_current();
            self.current = Current { ino: key.object, ..Current::default() };
        }
        let judged = match (key.object, key.kind) {
            (DATASET, MASTER) => Master::decode(body).map(|master| self.master = Some(master)),
            (DATASET, ORPHAN) => {
                self.orphans.insert(key.offset);
                Ok(())
            }
            (DATASET, TRUNCATE) => {
                self.truncating.insert(key.offset);
                Ok(())
            }
            (DATASET, DIRECT) if key.offset == 0 => Ok(()),
            (DATASET, ACCOUNTING) if key.offset == 0 => decode_below(body).map(|below| self.charged_below = below),
            (DATASET, key::USER | key::GROUP | key::PROJECT) if u32::try_from(key.offset).is_ok() => {
                Account::decode(body).map(|account| self.accounts.entry(key).or_default().0 = account.used)
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

    fn in_window(&mut self, key: Key, window: Window) {
        if !window.keys().contains(&key) {
            self.find(key.object, Problem::Misplaced(key));
        }
    }

    fn inode(&mut self, ino: Ino, body: &[u8]) -> Result<(), Malformed> {
        let inode = Inode::decode(body)?;
        self.current.inode = Some(inode);
        let Inode { file_type, nlink, parent, .. } = inode;
        self.inodes.push(Seen { ino, parent, nlink, file_type });
        if ino < self.charged_below {
            self.charge(&inode);
        }
        Ok(())
    }

    fn charge(&mut self, inode: &Inode) {
        for kind in OwnerKind::ALL {
            let charged = &mut self.accounts.entry(kind.key(kind.of(inode))).or_default().1;
            charged.bytes = charged.bytes.saturating_add(inode.bytes);
            charged.objects += 1;
        }
    }

    fn parent(&mut self, key: Key, body: &[u8]) -> Result<(), Malformed> {
        let link = link::decode(body)?;
        self.in_window(key, link::window(key.object, link));
        self.links.push((key.object, link));
        Ok(())
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
        let marked = self.current.inode.is_none_or(|inode| inode.has(flag::CAPABILITY));
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
        self.current.entries += 1;
        self.current.subdirectories += u64::from(file_type == FileType::Directory);
        self.entries.push(Named { ino, link: Link { dir: key.object, offset: key.offset }, file_type });
        Ok(())
    }

    fn extent(&mut self, key: Key, body: &[u8], block: Option<u64>) -> Result<(), Malformed> {
        let ino = key.object;
        let extent = Extent::decode(body)?;
        let Some(inode) = self.current.inode else { return Ok(()) };
        let len = match extent {
            Extent::Inline(bytes) => bytes.len() as u64,
            Extent::Part { len, .. } => len.into(),
        };
        let end = key.offset.saturating_add(len);
        let overlaps = key.offset < self.current.end;
        self.current.bytes += len;
        self.current.end = end;
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

    /// Makes the checks of an object after all its items were passed.
    fn judge_current(&mut self) {
        let Current { ino, inode, entries, subdirectories, bytes, .. } = std::mem::take(&mut self.current);
        let Some(inode) = inode else {
            if ino != DATASET {
                self.bare.insert(ino);
            }
            return;
        };
        let links = if inode.nlink == 0 { 0 } else { 2 + subdirectories };
        if inode.is_dir() && u64::from(inode.nlink) != links {
            self.find(ino, Problem::Links(inode.nlink, links));
        }
        if inode.is_dir() && inode.size != entries {
            self.find(ino, Problem::Entries(inode.size, entries));
        }
        if inode.bytes != bytes {
            self.find(ino, Problem::Bytes(inode.bytes, bytes));
        }
        if (inode.nlink == 0) != self.orphans.contains(&ino) {
            self.find(ino, Problem::Orphan);
        }
        if inode.has(flag::TRUNCATING) != self.truncating.contains(&ino) {
            self.find(ino, Problem::Truncating);
        }
    }
}
