//! The judge of a dataset's tree: whether its items agree with each other.
//!
//! Items go in one by one, in the order of their keys, so that whoever walks a tree (offline, or under a head's lock) can
//! feed it. What can be seen from the item and its object is judged at once; what needs the whole tree (names and the
//! inodes they lead to) at the end. It keeps a few dozen bytes per inode and entry in memory.
//!
//! It does not read blocks, and does not look whether a block is used twice: that is the pool's own check.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
};

use pool::{
    error::Error,
    format::{codec::Malformed, key::Key},
    tree::{Block, Entry},
    txg::{Head, Plain},
};

use super::{
    directory::{self, Dirent},
    file::extent::{Extent, INLINE_MAX},
    inode::{FileType, Inode, Link, flag},
    key::{DATASET, DIRENT, EXTENT, INODE, Ino, MASTER, ORPHAN, PARENT, ROOT, TRUNCATE, Window, XATTR},
    link,
    master::Master,
    xattr::{self, Value, Xattr},
};

/// Something that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The object that it is about; 0 for the dataset itself.
    pub ino: Ino,
    /// What is wrong.
    pub problem: Problem,
}

/// What can be wrong with a dataset's tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// An item cannot be decoded.
    Malformed(Key, Malformed),
    /// An item of a kind that does not exist, or not for such an object.
    Stray(Key),
    /// There is no master item.
    NoMaster,
    /// There is no root directory.
    NoRoot,
    /// The object's number was not given out yet.
    BeyondNext,
    /// The dataset counts as many inodes, and has as many.
    Files(u64, u64),
    /// Items of an object that has no inode.
    NoInode,
    /// The inode's link count, and the number of names that lead to it.
    Links(u32, u64),
    /// The directory's size, and the number of its entries.
    Entries(u64, u64),
    /// An entry's name does not belong where the entry stands.
    Misplaced(Key),
    /// An entry of this directory, at this offset, leads to no inode.
    Dangling(Link),
    /// The entry's type is not the inode's.
    EntryType(Link),
    /// The inode claims a name that is not its own.
    NotItsName(Link),
    /// The inode claims as many names, and has as many.
    Names(u64, u64),
    /// The directory cannot be reached from the root.
    Unreachable,
    /// The inode's account of its bytes, and the sum of its extents.
    Bytes(u64, u64),
    /// The extent at this offset overlaps the one before.
    Overlap(u64),
    /// The extent at this offset ends behind the file's end.
    BeyondEnd(u64),
    /// The extent at this offset does not lie within one record.
    AcrossRecords(u64),
    /// The extent or attribute's block is missing, or shorter than the part meant.
    Block(Key),
    /// The inode has no link and no orphan item, or both.
    Orphan,
    /// The inode is marked as being truncated without the item that says so, or the other way round.
    Truncating,
    /// The file has capabilities, and is not marked so.
    Capability,
}

/// Numbers the problems; one that is not here does not compile. A number never changes its meaning.
macro_rules! numbers {
    ($($number:literal => $problem:pat,)*) => {
        impl Problem {
            /// The numbers of all problems.
            pub const NUMBERS: &[u16] = &[$($number),*];

            /// Its number.
            pub fn number(&self) -> u16 {
                match self {
                    $($problem => $number,)*
                }
            }
        }
    };
}

numbers! {
    1 => Problem::Malformed(..),
    2 => Problem::Stray(_),
    3 => Problem::NoMaster,
    4 => Problem::NoRoot,
    5 => Problem::BeyondNext,
    6 => Problem::Files(..),
    7 => Problem::NoInode,
    8 => Problem::Links(..),
    9 => Problem::Entries(..),
    10 => Problem::Misplaced(_),
    11 => Problem::Dangling(_),
    12 => Problem::EntryType(_),
    13 => Problem::NotItsName(_),
    14 => Problem::Names(..),
    15 => Problem::Unreachable,
    16 => Problem::Bytes(..),
    17 => Problem::Overlap(_),
    18 => Problem::BeyondEnd(_),
    19 => Problem::AcrossRecords(_),
    20 => Problem::Block(_),
    21 => Problem::Orphan,
    22 => Problem::Truncating,
    23 => Problem::Capability,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "F{:02} object {}: ", self.problem.number(), self.ino)?;
        match &self.problem {
            Problem::Malformed(key, malformed) => write!(f, "item {key}: {malformed}"),
            Problem::Stray(key) => write!(f, "item {key} is of no known kind"),
            Problem::NoMaster => write!(f, "the dataset has no master item"),
            Problem::NoRoot => write!(f, "the dataset has no root directory"),
            Problem::BeyondNext => write!(f, "its number was never given out"),
            Problem::Files(counted, found) => write!(f, "the dataset counts {counted} inodes and has {found}"),
            Problem::NoInode => write!(f, "it has items but no inode"),
            Problem::Links(counted, found) => write!(f, "its link count is {counted}, and its names ask for {found}"),
            Problem::Entries(counted, found) => write!(f, "it counts {counted} entries and has {found}"),
            Problem::Misplaced(key) => write!(f, "the name in item {key} does not belong there"),
            Problem::Dangling(link) => write!(f, "the entry {link} leads to no inode"),
            Problem::EntryType(link) => write!(f, "the entry {link} names another type"),
            Problem::NotItsName(link) => write!(f, "the entry {link} is not one of its names"),
            Problem::Names(claimed, found) => write!(f, "it claims {claimed} names and has {found}"),
            Problem::Unreachable => write!(f, "it cannot be reached from the root"),
            Problem::Bytes(counted, found) => write!(f, "it counts {counted} bytes and its extents hold {found}"),
            Problem::Overlap(offset) => write!(f, "its extent at {offset} overlaps the one before"),
            Problem::BeyondEnd(offset) => write!(f, "its extent at {offset} ends behind the end of the file"),
            Problem::AcrossRecords(offset) => write!(f, "its extent at {offset} does not lie within one record"),
            Problem::Block(key) => write!(f, "the block of item {key} is missing or too short"),
            Problem::Orphan => write!(f, "links and orphan item contradict each other"),
            Problem::Truncating => write!(f, "truncation mark and item contradict each other"),
            Problem::Capability => write!(f, "it has capabilities and is not marked so"),
        }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x} of directory {}", self.offset, self.dir)
    }
}

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

    /// Judges what needs the whole tree, and hands out all that was found.
    pub fn finish(mut self) -> Vec<Finding> {
        self.judge_names();
        self.judge_reachability();
        let objects = std::mem::take(&mut self.objects);
        self.judge_master(&objects);
        for (&ino, object) in &objects {
            match object.inode {
                Some(inode) => self.judge_object(ino, &inode, object),
                None => self.find(ino, Problem::NoInode),
            }
        }
        self.findings
    }

    fn judge_master(&mut self, objects: &BTreeMap<Ino, Object>) {
        let Some(master) = self.master else { return self.find(DATASET, Problem::NoMaster) };
        let files = objects.values().filter(|object| object.inode.is_some()).count() as u64;
        if files != master.files {
            self.find(DATASET, Problem::Files(master.files, files));
        }
        for &ino in objects.range(master.next..).map(|(ino, _)| ino) {
            self.find(ino, Problem::BeyondNext);
        }
        if !objects.get(&ROOT).and_then(|root| root.inode).is_some_and(|root| root.is_dir()) {
            self.find(ROOT, Problem::NoRoot);
        }
    }

    fn judge_names(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        for (&link, &(ino, file_type)) in &entries {
            match self.object(ino).inode {
                None => self.find(link.dir, Problem::Dangling(link)),
                Some(inode) if inode.file_type != file_type => self.find(ino, Problem::EntryType(link)),
                Some(_) => {}
            }
        }
        let mut claimed = HashSet::new();
        for (ino, link) in std::mem::take(&mut self.links) {
            let own = entries.get(&link).is_some_and(|(named, _)| *named == ino) && claimed.insert(link);
            if own {
                self.object(ino).named += 1;
            } else {
                self.find(ino, Problem::NotItsName(link));
            }
        }
    }

    /// Follows every directory's way up. A way that ends at the root, or at a directory without a name, is good.
    fn judge_reachability(&mut self) {
        let mut verdicts = HashMap::from([(ROOT, true)]);
        let mut lost = Vec::new();
        for (&ino, object) in &self.objects {
            if object.inode.is_some_and(|inode| inode.is_dir()) && !self.arrives(ino, &mut verdicts) {
                lost.push(ino);
            }
        }
        for ino in lost {
            self.find(ino, Problem::Unreachable);
        }
    }

    fn arrives(&self, dir: Ino, verdicts: &mut HashMap<Ino, bool>) -> bool {
        let mut way = HashSet::new();
        let mut at = dir;
        let verdict = loop {
            if let Some(&known) = verdicts.get(&at) {
                break known;
            }
            let inode = self.objects.get(&at).and_then(|object| object.inode).filter(Inode::is_dir);
            match inode {
                Some(inode) if inode.parent == Link::NONE => break inode.nlink == 0,
                Some(inode) if way.insert(at) => at = inode.parent.dir,
                _ => break false,
            }
        };
        verdicts.extend(way.into_iter().map(|ino| (ino, verdict)));
        verdict
    }

    fn judge_object(&mut self, ino: Ino, inode: &Inode, object: &Object) {
        let links = match (inode.is_dir(), inode.nlink) {
            (true, 0) => 0,
            (true, _) => 2 + object.subdirectories,
            (false, _) => object.names,
        };
        if u64::from(inode.nlink) != links {
            self.find(ino, Problem::Links(inode.nlink, links));
        }
        let names = if inode.is_dir() { u64::from(inode.nlink > 0 && ino != ROOT) } else { object.names };
        if object.names != names || object.named != names || object.links != names {
            self.find(ino, Problem::Names(object.links, object.names));
        }
        if inode.is_dir() && inode.size != object.entries {
            self.find(ino, Problem::Entries(inode.size, object.entries));
        }
        if inode.bytes != object.bytes {
            self.find(ino, Problem::Bytes(inode.bytes, object.bytes));
        }
        if (inode.nlink == 0) != object.orphan {
            self.find(ino, Problem::Orphan);
        }
        if inode.has(flag::TRUNCATING) != object.truncating {
            self.find(ino, Problem::Truncating);
        }
    }
}
