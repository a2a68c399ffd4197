//! Which files differ between a snapshot and a later state of its dataset.
//!
//! Both trees are compared without reading their common subtrees, so the cost is proportional to the changes. A file
//! counts as changed if its change time differs: every modification sets the change time, and reading does not.

use pool::{error::Error as PoolError, format::key::Key};
use rustix::io::Errno;

use crate::{
    admin::table::{datasets::Datasets, names::Target, opened::OpenSnapshot},
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::{Error, Result},
    fs::{
        FileType, Paths,
        inode::Inode,
        key::{INODE, Ino},
    },
    lineage::difference::{self, Change, Found},
    name::{Name, SnapshotName},
};

/// The kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// Listed as `-`: only the earlier side has the file.
    Removed,
    /// Listed as `+`: only the later side has the file.
    Added,
    /// Listed as `M`: content or attributes differ.
    Modified,
    /// Listed as `R`: the same file under another name.
    Renamed,
}

impl DifferenceKind {
    /// The character shown by `fs diff`.
    pub fn sign(self) -> char {
        match self {
            DifferenceKind::Removed => '-',
            DifferenceKind::Added => '+',
            DifferenceKind::Modified => 'M',
            DifferenceKind::Renamed => 'R',
        }
    }
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The kind of difference, one sign in the output.
    pub kind: DifferenceKind,
    /// The type of the file.
    pub file_type: FileType,
    /// The path from the dataset's root in the earlier state, or in the later state for an added file.
    pub path: Vec<u8>,
    /// The path in the later state, if different.
    pub new_path: Option<Vec<u8>>,
    /// The change of the number of names.
    pub links: i64,
    /// The change time of the file, in nanoseconds since 1970.
    pub time: i64,
}

impl Datasets {
    /// Calls `each` for every file that differs between the snapshot `from` and `to`: a later snapshot of the same
    /// dataset, the current dataset, or a clone of a later snapshot.
    pub fn diff(&self, from: &SnapshotName, to: &Name, mut each: impl FnMut(Difference) -> Result<()>) -> Result<()> {
        if matches!(to, Name::Dataset(_)) && !self.engine().read_only() {
            self.engine().commit()?;
        }
        let names = self.names();
        let related = self.read_judged(|tx| is_earlier(tx, names.snapshot(tx, from)?, &names.target(tx, to)?))?;
        if !related {
            return Err(Error::Unrelated { from: from.to_string(), to: to.to_string() });
        }
        let (mut old, mut new) = (self.state(&Name::Snapshot(from.clone()))?, self.state(to)?);
        let (old_tree, new_tree) = (old.open.head.clone(), new.open.head.clone());
        difference::compare(Some(&old_tree), Some(&new_tree), |change| {
            match difference_of(&mut old, &mut new, &change)? {
                Some(found) => each(found),
                None => Ok(()),
            }
        })
    }

    fn state(&self, name: &Name) -> Result<State> {
        let open = match name {
            Name::Snapshot(name) => self.open_snapshot(name)?,
            Name::Dataset(name) => self.open_as_written(name)?,
            Name::Bookmark(name) => return Err(Error::no_snapshot(name)),
        };
        Ok(State { open, paths: Paths::default() })
    }
}

/// One of the compared states; neither changes.
struct State {
    open: OpenSnapshot,
    paths: Paths,
}

/// Whether a snapshot is in the line of a target, at or before the target.
fn is_earlier(tx: &Transaction<'_>, from: u64, to: &Target) -> Result<bool> {
    let from: SnapshotRow = tx.row(snapshot_key(from))?;
    let (mut dataset, mut until) = match to {
        Target::Dataset(id) => (*id, tx.txg().next()),
        Target::Snapshot(id) => {
            let row: SnapshotRow = tx.row(snapshot_key(*id))?;
            (row.dataset, row.createtxg)
        }
        Target::Bookmark(..) => return Ok(false),
    };
    while dataset != from.dataset {
        let row: DatasetRow = tx.row(dataset_key(dataset))?;
        if row.origin == 0 || row.origin_txg >= until {
            return Ok(false);
        }
        until = row.origin_txg;
        dataset = tx.row::<SnapshotRow>(snapshot_key(row.origin))?.dataset;
    }
    Ok(from.createtxg <= until)
}

fn difference_of(old: &mut State, new: &mut State, change: &Change) -> Result<Option<Difference>> {
    if change.key.kind != INODE || change.key.object == 0 {
        return Ok(None);
    }
    let ino = change.key.object;
    let (before, after) = (inode(change.key, change.old.as_ref())?, inode(change.key, change.new.as_ref())?);
    let found = match (before, after) {
        (None, None) => None,
        (Some(inode), None) => one_sided(DifferenceKind::Removed, old, ino, &inode)?,
        (None, Some(inode)) => one_sided(DifferenceKind::Added, new, ino, &inode)?,
        (Some(before), Some(after)) => two_sided(old, new, ino, &before, &after)?,
    };
    Ok(found)
}

/// The inode of an item, if the inode has a name: nameless files are not shown.
fn inode(key: Key, found: Option<&Found>) -> Result<Option<Inode>> {
    let Some(found) = found else { return Ok(None) };
    let inode = Inode::decode(found.body()).map_err(|error| PoolError::damaged(format!("inode at {key}"), error))?;
    Ok((inode.nlink > 0).then_some(inode))
}

fn one_sided(kind: DifferenceKind, state: &mut State, ino: Ino, inode: &Inode) -> Result<Option<Difference>> {
    let path = path(state, ino)?;
    Ok(Some(Difference { kind, file_type: inode.file_type, path, new_path: None, links: 0, time: inode.ctime }))
}

fn two_sided(old: &mut State, new: &mut State, ino: Ino, before: &Inode, after: &Inode) -> Result<Option<Difference>> {
    if before.ctime == after.ctime {
        return Ok(None);
    }
    let (path, new_path) = (path(old, ino)?, path(new, ino)?);
    let is_renamed = path != new_path;
    let kind = if is_renamed { DifferenceKind::Renamed } else { DifferenceKind::Modified };
    // The links of a directory come from its subdirectories, which are shown themselves.
    let links = if after.is_dir() { 0 } else { i64::from(after.nlink) - i64::from(before.nlink) };
    let new_path = is_renamed.then_some(new_path);
    Ok(Some(Difference { kind, file_type: after.file_type, path, new_path, links, time: after.ctime }))
}

fn path(state: &mut State, ino: Ino) -> Result<Vec<u8>> {
    match state.paths.of(&state.open.fs, ino) {
        Ok(path) => Ok(path),
        Err(Errno::NOENT) => Ok(b"(on delete queue)".to_vec()),
        Err(Errno::STALE) => Err(PoolError::Stale.into()),
        Err(errno) => Err(PoolError::damaged(format!("path of inode {ino}"), errno).into()),
    }
}
