//! Going back to a snapshot.

use std::collections::BTreeSet;

use pool::error::Error as PoolError;

use super::{
    datasets::Datasets,
    destroy::{Destroyed, destroy_now},
    error::{Error, Result},
    history,
    replaced::Replaced,
    resolve::Names,
};
use crate::{
    catalogue::{Bookmark, SnapshotRow, Transaction, keys, kind, snapshot_key},
    lineage::{branch, difference::StoredRoot, snapshot},
    name::SnapshotName,
};

/// A dataset to take back.
#[derive(Clone, Debug)]
pub struct RollbackRequest {
    /// The snapshot to go back to.
    pub snapshot: SnapshotName,
    /// Whether to destroy later snapshots and bookmarks.
    pub later: bool,
    /// Whether to destroy these and the clones of these.
    pub dependents: bool,
}

/// What a rollback has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The dataset's id.
    pub dataset: u64,
    /// What of it differs now: what a mount of it has cached of that is void.
    pub replaced: Replaced,
    /// Snapshots and clones that were destroyed.
    pub destroyed: Vec<String>,
}

impl Datasets {
    /// Takes a dataset back to the state of a snapshot. The dataset may be in use: changes wait until it is done.
    pub fn rollback(&self, request: RollbackRequest) -> Result<RolledBack> {
        let names = self.names();
        let name = request.snapshot.dataset();
        let id = self.read(|tx| names.dataset(tx, &name))?;
        // A dataset whose tree is damaged cannot be opened; then there is nobody to keep out.
        drop(self.open_dataset(&name));
        let mounted = self.mounted();
        let asked = request.clone();
        let mut run = move |tx: &mut Transaction<'_>| roll_back(tx, &names, id, &asked, &mounted);
        // Kept by their ids: one that is renamed now is still the one that is rolled back or destroyed.
        let mut touched = self.dry_run(&mut run)?.datasets;
        touched.push(id);
        let open = self.open_with_ids(touched);
        let _quiet: Vec<_> = open.iter().map(|dataset| dataset.head().exclude_changes()).collect();
        let own = open.iter().find(|dataset| dataset.id() == id);
        let replaced = own.map_or(Replaced::Everything, |dataset| {
            self.would_differ(dataset, || self.tree_of(&request.snapshot).ok().flatten())
        });
        let destroyed = self.run(run)?.names;
        if let Some(dataset) = own {
            dataset.fs().tree_replaced().map_err(|errno| PoolError::damaged(name.as_str(), errno))?;
        }
        Ok(RolledBack { dataset: id, replaced, destroyed })
    }

    /// The tree of a snapshot.
    fn tree_of(&self, name: &SnapshotName) -> Result<Option<StoredRoot>> {
        let names = self.names();
        self.read(|tx| {
            let (row, root) = tx.row_and_block::<SnapshotRow>(snapshot_key(names.snapshot(tx, name)?))?;
            Ok(root.map(|root| (root, row.level)))
        })
    }
}

fn roll_back(
    tx: &mut Transaction<'_>,
    names: &Names,
    dataset: u64,
    request: &RollbackRequest,
    mounted: &BTreeSet<u64>,
) -> Result<Destroyed> {
    let target = names.snapshot(tx, &request.snapshot)?;
    let row: SnapshotRow = tx.row(snapshot_key(target))?;
    if row.dataset != dataset {
        return Err(Error::not_found("snapshot", &request.snapshot));
    }
    let mut later = snapshot::line(tx, dataset)?;
    later.drain(..=later.iter().position(|id| *id == target).unwrap_or(0));
    if !request.later && !request.dependents {
        check_newest(tx, names, dataset, request, &row, &later)?;
    }
    let mut done = Destroyed::default();
    for id in later.into_iter().rev() {
        destroy_now(tx, names, id, request.dependents, mounted, &mut done)?;
    }
    branch::roll_back(tx, dataset)?;
    history::log(tx, &format!("rollback to {}", request.snapshot))?;
    Ok(done)
}

fn check_newest(
    tx: &Transaction<'_>,
    names: &Names,
    dataset: u64,
    request: &RollbackRequest,
    target: &SnapshotRow,
    later: &[u64],
) -> Result<()> {
    let snapshots = later.iter().map(|id| Ok(names.of_snapshot(tx, *id)?.to_string()));
    let mut lost = snapshots.collect::<Result<Vec<_>>>()?;
    let of = request.snapshot.dataset();
    let bookmarks = tx.rows::<Bookmark>(keys(dataset, kind::BOOKMARK))?;
    let bookmarks = bookmarks.into_iter().filter(|(_, bookmark)| bookmark.createtxg > target.createtxg);
    lost.extend(bookmarks.map(|(_, bookmark)| format!("{of}#{}", bookmark.name)));
    if lost.is_empty() {
        return Ok(());
    }
    Err(Error::NotNewest { snapshot: request.snapshot.to_string(), later: lost })
}
