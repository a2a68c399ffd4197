//! A plain model of a pool: what its users may expect to find.
//!
//! Datasets, snapshots and files are maps and byte vectors. A state is cheap to keep (trees are shared until changed)
//! and cheap to compare: each file has a digest, and a tree's digest is the sum of its files', so the cost of a step
//! follows its changes. Two states are the same if their digests are; [`Pool::differences`] lists the differences in
//! words.
//!
//! Not modelled are link counts, blocks, counters and deadlists, which the engine's own checks judge, and change and
//! access times, which are never promised.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    sync::Arc,
};

use dataset::{
    fs::{FileAttributes, FileType, Ino, ROOT},
    name::Name,
};
use xxhash_rust::xxh3::xxh3_64;

/// A file, directory or symbolic link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) file_type: FileType,
    pub(crate) mode: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: i64,
    /// A file's bytes or a link's target.
    pub(crate) content: Arc<Vec<u8>>,
    pub(crate) entries: BTreeMap<Vec<u8>, Ino>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) attributes: FileAttributes,
}

impl Node {
    pub(crate) fn is_dir(&self) -> bool {
        self.file_type == FileType::Directory
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.file_type == FileType::Regular
    }

    fn digest(&self, ino: Ino) -> u64 {
        let mut text =
            format!("{ino} {:?} {} {:?} {} ", self.file_type, self.mode, self.owner, self.mtime).into_bytes();
        text.extend(xxh3_64(&self.content).to_le_bytes());
        for (name, ino) in &self.entries {
            push(&mut text, name);
            text.extend(ino.to_le_bytes());
        }
        text.push(b'/');
        for (name, value) in &self.xattrs {
            push(&mut text, name);
            push(&mut text, value);
        }
        push(&mut text, format!("{:?}", self.attributes).as_bytes());
        xxh3_64(&text)
    }

    fn describe(&self) -> String {
        let xattrs: Vec<_> = self.xattrs.iter().map(|(name, value)| (text(name), xxh3_64(value))).collect();
        let content = format!("{} bytes {:016x}", self.content.len(), xxh3_64(&self.content));
        format!("{:?} {:o} {:?} mtime {} {content} {xattrs:x?}", self.file_type, self.mode, self.owner, self.mtime)
    }
}

fn push(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u64).to_le_bytes());
    to.extend(bytes);
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The named files of a dataset or snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree {
    nodes: BTreeMap<Ino, Arc<Node>>,
    digest: u64,
}

impl Tree {
    /// Equal for equal trees.
    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }

    pub(crate) fn get(&self, ino: Ino) -> &Arc<Node> {
        &self.nodes[&ino]
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (Ino, &Arc<Node>)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node))
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.nodes.contains_key(&ino)
    }

    pub(crate) fn put(&mut self, ino: Ino, node: Node) {
        self.remove(ino);
        self.digest = self.digest.wrapping_add(node.digest(ino));
        self.nodes.insert(ino, Arc::new(node));
    }

    pub(crate) fn remove(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.remove(&ino) {
            self.digest = self.digest.wrapping_sub(node.digest(ino));
        }
    }

    /// The number of names of a file.
    pub(crate) fn names(&self, ino: Ino) -> usize {
        let entries = self.nodes.values().flat_map(|node| node.entries.values());
        entries.filter(|entry| **entry == ino).count()
    }

    /// Whether `ino` is `above` or lies below `above`.
    pub(crate) fn is_within(&self, ino: Ino, above: Ino) -> bool {
        ino == above || self.nodes[&above].entries.values().any(|child| self.is_within(ino, *child))
    }

    /// A description of each file, by one of its paths.
    fn described(&self) -> BTreeMap<String, String> {
        let mut described = BTreeMap::new();
        let mut todo = vec![(ROOT, String::from("/"))];
        while let Some((ino, path)) = todo.pop() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            for (name, child) in &node.entries {
                todo.push((*child, format!("{}/{}", path.trim_end_matches('/'), text(name))));
            }
            described.insert(path, format!("inode {ino}, {}", node.describe()));
        }
        described
    }
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) name: String,
    pub(crate) guid: u64,
    pub(crate) tree: Arc<Tree>,
}

/// A dataset, with its locally set properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dataset {
    pub(crate) tree: Arc<Tree>,
    /// From the oldest to the newest.
    pub(crate) snapshots: Vec<Snapshot>,
    /// The snapshot of which this dataset is a clone.
    pub(crate) origin: Option<String>,
    pub(crate) properties: BTreeMap<String, String>,
}

impl Dataset {
    fn digest(&self, name: &str) -> u64 {
        xxh3_64(&[self.frame_digest(name).to_le_bytes(), self.tree.digest.to_le_bytes()].concat())
    }

    /// A digest of everything but the dataset's own files.
    fn frame_digest(&self, name: &str) -> u64 {
        let mut text = format!("{name} {:?} {:?}", self.origin, self.properties);
        for Snapshot { name, guid, tree } in &self.snapshots {
            write!(text, " {name} {guid} {:x}", tree.digest).expect("a string takes all");
        }
        xxh3_64(text.as_bytes())
    }

    fn described(&self, name: &str, lines: &mut BTreeMap<String, String>) {
        lines.insert(name.to_owned(), format!("origin {:?} {:?}", self.origin, self.properties));
        let mut files = |name: String, tree: &Tree| {
            lines.extend(tree.described().into_iter().map(|(path, file)| (format!("{name}:{path}"), file)));
        };
        files(name.to_owned(), &self.tree);
        for (at, snapshot) in self.snapshots.iter().enumerate() {
            files(format!("{name}@{} ({at}, guid {})", snapshot.name, snapshot.guid), &snapshot.tree);
        }
    }
}

/// A pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    pub(crate) datasets: BTreeMap<String, Dataset>,
    pub(crate) comment: String,
}

/// The most differences to print.
const DIFFERENCES: usize = 24;

impl Pool {
    pub(crate) fn digest(&self) -> u64 {
        let datasets = self.datasets.iter().map(|(name, dataset)| dataset.digest(name));
        datasets.fold(xxh3_64(self.comment.as_bytes()), u64::wrapping_add)
    }

    /// A digest of everything but the files of datasets; the files of snapshots are included.
    pub(crate) fn frame_digest(&self) -> u64 {
        let datasets = self.datasets.iter().map(|(name, dataset)| dataset.frame_digest(name));
        datasets.fold(xxh3_64(self.comment.as_bytes()), u64::wrapping_add)
    }

    fn described(&self) -> BTreeMap<String, String> {
        let mut lines = BTreeMap::from([("comment".to_owned(), self.comment.clone())]);
        for (name, dataset) in &self.datasets {
            dataset.described(name, &mut lines);
        }
        lines
    }

    /// The differences of `found` from this pool, in words.
    pub(crate) fn differences(&self, found: &Pool) -> Vec<String> {
        let (expected, found) = (self.described(), found.described());
        let keys: BTreeSet<&String> = expected.keys().chain(found.keys()).collect();
        let differ = keys.into_iter().filter(|key| expected.get(*key) != found.get(*key));
        let shown = |value: Option<&String>| value.map_or("nothing".to_owned(), String::clone);
        differ
            .take(DIFFERENCES)
            .map(|key| {
                format!("{key}\n    expected {}\n    found    {}", shown(expected.get(key)), shown(found.get(key)))
            })
            .collect()
    }

    /// The files of a dataset or snapshot, if it exists.
    pub(crate) fn tree(&self, name: &Name) -> Option<&Tree> {
        let dataset = self.datasets.get(name.dataset().as_str())?;
        match name {
            Name::Snapshot(name) => {
                let snapshot = dataset.snapshots.iter().find(|snapshot| snapshot.name == name.snapshot());
                snapshot.map(|snapshot| &*snapshot.tree)
            }
            _ => Some(&dataset.tree),
        }
    }

    /// The clones of a snapshot.
    pub(crate) fn clones<'a>(&'a self, snapshot: &'a str) -> impl Iterator<Item = &'a String> {
        self.datasets
            .iter()
            .filter(move |(_, dataset)| dataset.origin.as_deref() == Some(snapshot))
            .map(|(name, _)| name)
    }

    /// Makes every clone of `from` a clone of `to`.
    pub(crate) fn move_origin(&mut self, from: &str, to: &str) {
        let clones = self.datasets.values_mut().filter(|dataset| dataset.origin.as_deref() == Some(from));
        clones.for_each(|dataset| dataset.origin = Some(to.to_owned()));
    }
}
