//! What there is: a walk over data sets, snapshots and bookmarks.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    datasets::{Datasets, Mount},
    error::{Error, Result},
    limits,
    property::{self, Effective},
    resolve::{Names, Target},
};
use crate::{
    catalogue::{Bookmark, DatasetRow, SnapshotRow, Space, Transaction, dataset_key, keys, kind, snapshot_key},
    lineage::{
        dataset,
        since::{Member, Since},
        snapshot,
    },
    name::{DatasetName, Name, SnapshotName},
    property::Kinds,
};

/// What to list.
#[derive(Clone, Debug)]
pub struct ListRequest {
    /// Where to begin; empty for the pool's root data set.
    pub roots: Vec<Name>,
    /// How many levels below the roots; `None` for all. The snapshots and children of a root are one level below it.
    pub depth: Option<usize>,
    /// What to list.
    pub kinds: Kinds,
}

/// The named things alone, whatever they are.
impl Default for ListRequest {
    fn default() -> ListRequest {
        ListRequest { roots: Vec::new(), depth: Some(0), kinds: Kinds::ALL_DATASETS }
    }
}

/// A data set, snapshot or bookmark with all that its properties are computed from. See [`Listed::value`].
#[derive(Clone, Debug)]
pub struct Listed {
    /// Its name.
    pub name: Name,
    /// What it is: one kind.
    pub kind: Kinds,
    /// Its id; for a bookmark its data set's.
    pub id: u64,
    pub(super) facts: Facts,
    pub(super) effective: Effective,
    /// What it received, by name.
    pub(super) received: BTreeMap<String, String>,
    /// For each snapshot that was asked about, the bytes written since.
    pub(super) written_since: BTreeMap<String, u64>,
}

/// What the catalogue says about it.
#[derive(Clone, Debug)]
pub(super) enum Facts {
    Dataset { row: Box<DatasetRow>, available: u64, origin: Option<String>, mount: Option<Mount> },
    Snapshot { row: Box<SnapshotRow>, unique: Space, written: Space, clones: Vec<String> },
    Bookmark(Bookmark),
}

impl Datasets {
    /// Lists what there is: each data set, then its snapshots in the order in which they were taken, its bookmarks, and
    /// the data sets below it by name.
    pub fn list(&self, request: &ListRequest) -> Result<Vec<Listed>> {
        self.list_since(request, &[])
    }

    /// The same, with what was written since each of the snapshots that `since` names, for who wants `written@SNAPSHOT`.
    pub fn list_since(&self, request: &ListRequest, since: &[String]) -> Result<Vec<Listed>> {
        let names = self.names();
        let roots = match request.roots.as_slice() {
            [] => vec![Name::Dataset(self.pool_name())],
            roots => roots.to_vec(),
        };
        let mounts = self.mounts.lock().clone();
        let room = self.engine().available_soon();
        self.read(|tx| {
            let (known, found) = (BTreeSet::new(), Vec::new());
            let (written, mounts) = (Since::default(), &mounts);
            let mut walk = Walk { tx, names: &names, request, since, written, mounts, room, known, found };
            roots.iter().try_for_each(|root| walk.root(root))?;
            Ok(walk.found)
        })
    }
}

struct Walk<'a, 'v> {
    tx: &'a Transaction<'v>,
    names: &'a Names,
    request: &'a ListRequest,
    since: &'a [String],
    written: Since,
    mounts: &'a std::collections::HashMap<u64, Mount>,
    room: u64,
    /// The data sets below one root: rows that lie could lead in a circle, or on many ways to one.
    known: BTreeSet<u64>,
    found: Vec<Listed>,
}

impl Walk<'_, '_> {
    fn wants(&self, kind: Kinds) -> bool {
        self.request.kinds.intersects(kind)
    }

    fn root(&mut self, name: &Name) -> Result<()> {
        match self.names.target(self.tx, name)? {
            Target::Dataset(id) => {
                self.known = BTreeSet::from([id]);
                let effective = property::effective(self.tx, self.names, id)?;
                self.dataset(id, name.dataset(), &effective, 0)
            }
            Target::Snapshot(id) => {
                let row: SnapshotRow = self.tx.row(snapshot_key(id))?;
                let effective = property::effective(self.tx, self.names, row.dataset)?;
                self.snapshot(id, name.clone(), &effective)
            }
            Target::Bookmark(dataset, row) => {
                self.bookmark(dataset, name.clone(), row);
                Ok(())
            }
        }
    }

    fn dataset(&mut self, id: u64, name: DatasetName, effective: &Effective, depth: usize) -> Result<()> {
        let row: DatasetRow = self.tx.row(dataset_key(id))?;
        if self.wants(Kinds::FILESYSTEM) {
            self.push_dataset(id, &name, &row, effective)?;
        }
        if self.request.depth.is_some_and(|most| depth >= most) {
            return Ok(());
        }
        if self.wants(Kinds::SNAPSHOT) {
            for of in snapshot::line(self.tx, id)? {
                let full = Name::Snapshot(self.names.of_snapshot(self.tx, of)?);
                self.snapshot(of, full, effective)?;
            }
        }
        if self.wants(Kinds::BOOKMARK) {
            let mut rows = self.tx.rows::<Bookmark>(keys(id, kind::BOOKMARK))?;
            rows.sort_by_key(|(_, row)| row.createtxg);
            for (_, row) in rows {
                self.bookmark(id, Name::Bookmark(name.bookmark(&row.name)?), row);
            }
        }
        for (component, child) in dataset::children(self.tx, id)? {
            if !self.known.insert(child) {
                return Err(Error::damaged(child, "a data set that stands below two others, or below itself"));
            }
            if self.tx.row::<DatasetRow>(dataset_key(child))?.hidden {
                continue;
            }
            let name = name.child(&component)?;
            let mut below = property::inherited(effective, &name);
            property::own(self.tx, child, &mut below)?;
            self.dataset(child, name, &below, depth + 1)?;
        }
        Ok(())
    }

    fn push_dataset(&mut self, id: u64, name: &DatasetName, row: &DatasetRow, effective: &Effective) -> Result<()> {
        let origin = match row.origin {
            0 => None,
            origin => Some(self.names.of_snapshot(self.tx, origin)?.to_string()),
        };
        let available = limits::available_to_head(self.tx, id, self.room)?;
        let mount = self.mounts.get(&id).cloned();
        let mut effective = effective.clone();
        if let Some(mount) = &mount {
            property::overlay(&mut effective, mount);
        }
        let facts = Facts::Dataset { row: Box::new(row.clone()), available, origin, mount };
        let (name, kind) = (Name::Dataset(name.clone()), Kinds::FILESYSTEM);
        let (received, written_since) = (property::received(self.tx, id)?, self.written_since(&name, row.into())?);
        self.found.push(Listed { name, kind, id, facts, effective, received, written_since });
        Ok(())
    }

    fn snapshot(&mut self, id: u64, name: Name, dataset: &Effective) -> Result<()> {
        let row: SnapshotRow = self.tx.row(snapshot_key(id))?;
        let before = match row.previous {
            0 => Space::ZERO,
            previous => self.tx.row::<SnapshotRow>(snapshot_key(previous))?.referenced,
        };
        let unique = snapshot::unique(self.tx, &row)?;
        let clones = match row.clones {
            0 => Vec::new(),
            _ => self.names.of_datasets(self.tx, &snapshot::clones(self.tx, id)?)?,
        };
        let effective = property::of_snapshot(self.tx, self.names, id, dataset)?;
        let written = row.referenced - (before - row.dead);
        let (received, written_since) = (property::received(self.tx, id)?, self.written_since(&name, (&row).into())?);
        let facts = Facts::Snapshot { row: Box::new(row), unique, written, clones };
        self.found.push(Listed { name, kind: Kinds::SNAPSHOT, id, facts, effective, received, written_since });
        Ok(())
    }

    /// For each snapshot asked about that is one before this, what was written since.
    fn written_since(&mut self, of: &Name, member: Member) -> Result<BTreeMap<String, u64>> {
        let mut written = BTreeMap::new();
        for since in self.since {
            let Some(name) = snapshot_name(&of.dataset(), since) else { continue };
            let base = match self.names.snapshot(self.tx, &name) {
                Err(Error::NotFound { .. }) => continue,
                found => found?,
            };
            if let Some(space) = self.written.written(self.tx, member, base)? {
                written.insert(since.clone(), space.allocated);
            }
        }
        Ok(written)
    }

    fn bookmark(&mut self, id: u64, name: Name, row: Bookmark) {
        let facts = Facts::Bookmark(row);
        let (effective, received, written_since) = (Effective::new(), BTreeMap::new(), BTreeMap::new());
        self.found.push(Listed { name, kind: Kinds::BOOKMARK, id, facts, effective, received, written_since });
    }
}

/// The snapshot that `written@TEXT` of a data set is about: one of its own by its short name, or any by its full one.
fn snapshot_name(of: &DatasetName, text: &str) -> Option<SnapshotName> {
    match text.contains('@') {
        true => text.parse().ok(),
        false => of.snapshot(text).ok(),
    }
}
