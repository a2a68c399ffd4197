//! From names to ids and back, in one transaction.

use std::collections::BTreeSet;

use crate::{
    catalogue::{Bookmark, DatasetRow, ROOT, SnapshotRow, Transaction, dataset_key, kind, snapshot_key},
    error::{Error, Result},
    lineage::{arrival, dataset},
    name::{BookmarkName, DatasetName, MAX_DEPTH, Name, SnapshotName},
};

/// The object of a name.
#[derive(Clone, Debug)]
pub enum Target {
    /// The dataset with this id.
    Dataset(u64),
    /// The snapshot with this id.
    Snapshot(u64),
    /// A bookmark of the dataset with this id.
    Bookmark(u64, Bookmark),
}

/// The pool's name, and lookups of names and ids in one transaction.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Names {
    pub(in crate::admin) pool: DatasetName,
}

impl Names {
    /// The id of a dataset, if the dataset exists.
    pub(in crate::admin) fn find(&self, tx: &Transaction<'_>, name: &DatasetName) -> Result<Option<u64>> {
        let mut components = name.components();
        if components.next() != Some(self.pool.as_str()) {
            return Ok(None);
        }
        let mut id = ROOT;
        for component in components {
            match dataset::child(tx, id, component)? {
                Some(child) => id = child,
                None => return Ok(None),
            }
        }
        Ok(Some(id))
    }

    /// The id of a dataset; an error if missing.
    pub(in crate::admin) fn dataset(&self, tx: &Transaction<'_>, name: &DatasetName) -> Result<u64> {
        self.find(tx, name)?.ok_or_else(|| Error::no_dataset(name))
    }

    /// The id of a snapshot; an error if missing.
    pub(in crate::admin) fn snapshot(&self, tx: &Transaction<'_>, name: &SnapshotName) -> Result<u64> {
        let dataset = self.dataset(tx, &name.dataset())?;
        let found = dataset::snapshot_named(tx, dataset, name.snapshot())?;
        found.ok_or_else(|| Error::no_snapshot(name))
    }

    /// A bookmark, and the id of its dataset; an error if missing.
    pub(in crate::admin) fn bookmark(&self, tx: &Transaction<'_>, name: &BookmarkName) -> Result<(u64, Bookmark)> {
        let dataset = self.dataset(tx, &name.dataset())?;
        let found = tx.find_named::<Bookmark>(dataset, kind::BOOKMARK, name.bookmark())?;
        found.map(|(_, row)| (dataset, row)).ok_or_else(|| Error::no_bookmark(name))
    }

    /// The object of a name, in the given transaction.
    pub(in crate::admin) fn target(&self, tx: &Transaction<'_>, name: &Name) -> Result<Target> {
        Ok(match name {
            Name::Dataset(name) => Target::Dataset(self.dataset(tx, name)?),
            Name::Snapshot(name) => Target::Snapshot(self.snapshot(tx, name)?),
            Name::Bookmark(name) => {
                let (dataset, row) = self.bookmark(tx, name)?;
                Target::Bookmark(dataset, row)
            }
        })
    }

    /// The name of the dataset with the given id.
    pub(in crate::admin) fn of_dataset(&self, tx: &Transaction<'_>, id: u64) -> Result<DatasetName> {
        self.text_of(tx, id)?.parse().map_err(|error| Error::damaged(id, error))
    }

    /// The name of a dataset as a text, possibly too long for a valid name.
    pub(in crate::admin) fn text_of(&self, tx: &Transaction<'_>, id: u64) -> Result<String> {
        let mut components = Vec::new();
        let mut at = id;
        while at != ROOT {
            let row: DatasetRow = tx.row(dataset_key(at))?;
            if components.len() > 2 * MAX_DEPTH {
                return Err(Error::damaged(id, "datasets are nested too deep"));
            }
            components.push(row.name);
            at = row.parent;
        }
        components.push(self.pool.to_string());
        components.reverse();
        Ok(components.join("/"))
    }

    /// The name of the snapshot with the given id.
    pub(in crate::admin) fn of_snapshot(&self, tx: &Transaction<'_>, id: u64) -> Result<SnapshotName> {
        let row: SnapshotRow = tx.row(snapshot_key(id))?;
        let name = self.of_dataset(tx, row.dataset)?.snapshot(&row.name);
        name.map_err(|error| Error::damaged(id, error))
    }

    /// The names of datasets, sorted.
    pub(in crate::admin) fn of_datasets(&self, tx: &Transaction<'_>, ids: &[u64]) -> Result<Vec<String>> {
        let mut names = ids.iter().map(|id| self.text_of(tx, *id)).collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    /// The id of the parent of the named dataset; an error if missing.
    pub(in crate::admin) fn parent(
        &self,
        tx: &Transaction<'_>,
        name: &DatasetName,
        action: &'static str,
    ) -> Result<u64> {
        let Some(parent) = name.parent() else {
            return Err(Error::IsRoot { name: name.to_string(), action, remedy: None });
        };
        self.find(tx, &parent)?.ok_or_else(|| Error::no_parent(parent))
    }

    /// Fails if an interrupted receive creates the dataset, so its tree is a part of a snapshot.
    pub(in crate::admin) fn check_whole(&self, tx: &Transaction<'_>, id: u64) -> Result<()> {
        if !tx.row::<DatasetRow>(dataset_key(id))?.hidden {
            return Ok(());
        }
        let of = arrival::receiving(tx, id)?.map(|(_, row)| row.snapshot).unwrap_or_default();
        Err(Error::Partial { name: self.text_of(tx, id)?, of })
    }

    /// Fails if a dataset with the given name exists.
    pub(in crate::admin) fn vacant(&self, tx: &Transaction<'_>, name: &DatasetName) -> Result<()> {
        match self.find(tx, name)? {
            Some(_) => Err(Error::dataset_exists(name)),
            None => Ok(()),
        }
    }
}

/// A dataset and its descendants, parents before children, children by name. Fails if a dataset is listed twice in the
/// rows, as in a circle.
pub(in crate::admin) fn subtree(tx: &Transaction<'_>, id: u64) -> Result<Vec<u64>> {
    let (mut found, mut known) = (vec![id], BTreeSet::from([id]));
    let mut todo: Vec<u64> = children(tx, id)?;
    while let Some(next) = todo.pop() {
        if !known.insert(next) {
            return Err(Error::damaged(next, "a dataset that stands below two others, or below itself"));
        }
        found.push(next);
        todo.extend(children(tx, next)?);
    }
    Ok(found)
}

fn children(tx: &Transaction<'_>, id: u64) -> Result<Vec<u64>> {
    Ok(dataset::children(tx, id)?.into_iter().rev().map(|(_, child)| child).collect())
}
