//! Reads everything visible in an opened pool, as a user would, into a [`model`](crate::model).

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use dataset::{
    admin::Listed,
    fs::{Errno, FileSystem, FileType, Ino, ROOT},
    name::Name,
    property::{Property, Source},
};

use crate::{
    model::{Dataset, Node, Pool, Snapshot, Tree},
    world::{Outcome, World},
};

/// The native properties that the simulation sets.
pub(crate) const NATIVE: [&str; 4] = ["compression", "copies", "recordsize", "checksum"];

/// Trees read before, by the checksums of their roots. A root's checksum covers the whole tree below. So after a check
/// that has verified every block, a known tree need not be read again.
#[derive(Default)]
pub(crate) struct Known(RefCell<HashMap<[u8; 32], Arc<Tree>>>);

impl Known {
    /// The files of a tree: known, or read now.
    fn files(&self, fs: &FileSystem, of: &impl ToString) -> Outcome<Arc<Tree>> {
        let root = fs.head().clean_root().map(|(root, _)| root.checksum);
        if let Some(tree) = root.and_then(|root| self.0.borrow().get(&root).cloned()) {
            return Ok(tree);
        }
        let tree = Arc::new(files(fs, of)?);
        self.0.borrow_mut().extend(root.map(|root| (root, tree.clone())));
        Ok(tree)
    }
}

/// Everything visible in a pool, with every byte read.
pub(crate) fn pool(world: &World, listed: &[Listed]) -> Outcome<Pool> {
    pool_knowing(world, listed, &Known::default())
}

/// Everything visible in a pool that has just been checked.
pub(crate) fn pool_knowing(world: &World, listed: &[Listed], known: &Known) -> Outcome<Pool> {
    let failed = |error| format!("the pool's comment cannot be read: {error}");
    let comment = world.datasets.pool_property("comment").map_err(failed)?.unwrap_or_default();
    let mut pool = Pool { comment, ..Pool::default() };
    for one in listed {
        match &one.name {
            Name::Dataset(name) => {
                let opened = world.datasets.open_dataset(name).map_err(|error| format!("{name}: {error}"))?;
                pool.datasets.insert(name.to_string(), dataset(one, known.files(opened.fs(), name)?));
            }
            Name::Snapshot(name) => {
                let opened = world.datasets.open_snapshot(name).map_err(|error| format!("{name}: {error}"))?;
                let tree = known.files(&opened.fs, name)?;
                let snapshot = Snapshot { name: name.snapshot().to_owned(), guid: one.guid(), tree };
                let dataset = pool.datasets.get_mut(name.dataset().as_str());
                dataset.ok_or_else(|| format!("{name} is listed before its dataset"))?.snapshots.push(snapshot);
            }
            Name::Bookmark(_) => {}
        }
    }
    Ok(pool)
}

fn dataset(listed: &Listed, tree: Arc<Tree>) -> Dataset {
    let value = |name: &str| listed.value(&Property::of_dataset(name).expect("a native property"));
    let native = NATIVE.iter().filter_map(|name| Some((*name, value(name)?)));
    let user = listed.user_properties().map(|(name, valued)| (name, valued.clone()));
    let local = native.chain(user).filter(|(_, valued)| valued.source == Source::Local);
    Dataset {
        tree,
        snapshots: Vec::new(),
        origin: value("origin").map(|valued| valued.value),
        properties: local.map(|(name, valued)| (name.to_owned(), valued.value)).collect(),
    }
}

/// All files of a file system.
pub(crate) fn files(fs: &FileSystem, of: &impl ToString) -> Outcome<Tree> {
    let mut tree = Tree::default();
    let mut todo = vec![ROOT];
    while let Some(ino) = todo.pop() {
        if tree.contains(ino) {
            continue;
        }
        let node = node(fs, ino).map_err(|errno| format!("{}: inode {ino} cannot be read: {errno}", of.to_string()))?;
        todo.extend(node.entries.values());
        tree.put(ino, node);
    }
    Ok(tree)
}

/// A file as the model has it.
pub(crate) fn node(fs: &FileSystem, ino: Ino) -> Result<Node, Errno> {
    let attr = fs.getattr(ino)?;
    let content = match attr.file_type {
        FileType::Regular => content(fs, ino, attr.size as usize)?,
        FileType::Symlink => fs.readlink(ino)?,
        _ => Vec::new(),
    };
    let entries = if attr.file_type == FileType::Directory { entries(fs, ino)? } else { BTreeMap::new() };
    let xattrs = fs.listxattr(ino)?.into_iter();
    Ok(Node {
        file_type: attr.file_type,
        mode: attr.mode,
        owner: (attr.uid, attr.gid),
        mtime: attr.mtime,
        content: Arc::new(content),
        entries,
        attributes: fs.file_attributes(ino)?,
        xattrs: xattrs.map(|name| Ok((name.clone(), fs.getxattr(ino, &name)?))).collect::<Result<_, Errno>>()?,
    })
}

fn content(fs: &FileSystem, ino: Ino, size: usize) -> Result<Vec<u8>, Errno> {
    let mut content = Vec::with_capacity(size);
    while content.len() < size {
        let before = content.len();
        fs.read(ino, before as u64, size - before, &mut content)?;
        if content.len() == before {
            return Err(Errno::IO);
        }
    }
    Ok(content)
}

fn entries(fs: &FileSystem, dir: Ino) -> Result<BTreeMap<Vec<u8>, Ino>, Errno> {
    let mut entries = BTreeMap::new();
    fs.readdir(dir, 0, &mut |entry| {
        entries.insert(entry.name.to_vec(), entry.ino);
        true
    })?;
    entries.retain(|name, _| name != b"." && name != b"..");
    Ok(entries)
}
