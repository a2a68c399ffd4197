//! Rollback to a snapshot.

use std::collections::BTreeSet;

use pool::error::Error as PoolError;

use super::destroy::{Destroyed, destroy_now};
use crate::{
    admin::{
        report::{foreseen::Foreseen, replaced::Replaced},
        table::{datasets::Datasets, history, names::Names},
    },
    catalogue::{Bookmark, SnapshotRow, Transaction, keys, kind, snapshot_key},
    error::{Error, Result},
    lineage::{branch, difference::StoredRoot, snapshot},
    name::SnapshotName,
};

/// The request of a rollback.
#[derive(Clone, Debug)]
pub struct RollbackRequest {
    /// The target snapshot.
    pub snapshot: SnapshotName,
    /// Whether to destroy later snapshots and bookmarks (`-r`).
    pub later: bool,
    /// As `later`, and also all clones of the later snapshots (`-R`).
    pub dependents: bool,
}

/// The result of a rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The id of the dataset rolled back.
    pub dataset: u64,
    /// The differences from the old tree: mounts drop their cached copies.
    pub replaced: Replaced,
    /// The snapshots and clones destroyed.
    pub destroyed: Vec<String>,
}

impl Datasets {
    /// Rolls a dataset back to a snapshot. The dataset may be in use: changes wait until the end.
    pub fn rollback(&self, request: RollbackRequest) -> Result<RolledBack> {
        let names = self.names();
        let name = request.snapshot.dataset();
        let id = self.read(|tx| names.dataset(tx, &name))?;
        // A damaged dataset cannot be opened, and so has no mount to exclude.
        drop(self.open_dataset(&name));
        let mut run = self.rolling_back(id, &request, self.mounted());
        // Identified by id: a dataset renamed meanwhile is still rolled back or destroyed.
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

    /// The changes of [`Datasets::rollback`], by its rules. Clones that are mounted count as unmounted.
    pub fn foresee_rollback(&self, request: RollbackRequest) -> Result<Foreseen> {
        let names = self.names();
        let id = self.read(|tx| names.dataset(tx, &request.snapshot.dataset()))?;
        // Recent writes count too.
        self.engine().commit()?;
        let run = self.rolling_back(id, &request, self.occupied());
        self.foresee(run, |before, after, done| {
            let of = request.snapshot.dataset();
            let bookmarks = |tx: &Transaction<'_>| tx.rows::<Bookmark>(keys(id, kind::BOOKMARK));
            let left = bookmarks(after)?;
            let gone = bookmarks(before)?.into_iter().filter(|(key, _)| left.iter().all(|(left, _)| left != key));
            let gone = gone.map(|(_, bookmark)| format!("{of}#{}", bookmark.name));
            Ok(Foreseen {
                destroyed: done.names.into_iter().chain(gone).collect(),
                reclaimed: before.master()?.physical.allocated.saturating_sub(after.master()?.physical.allocated),
                ..Foreseen::default()
            })
        })
    }

    /// Rolls the dataset with this id back in a transaction.
    fn rolling_back(
        &self,
        id: u64,
        request: &RollbackRequest,
        mounted: BTreeSet<u64>,
    ) -> impl FnMut(&mut Transaction<'_>) -> Result<Destroyed> + Send + use<> {
        let (names, asked, judgement) = (self.names(), request.clone(), self.judgement());
        move |tx| {
            let done = roll_back(tx, &names, id, &asked, &mounted)?;
            judgement.destroys(&tx.before(), &done.names)?;
            Ok(done)
        }
    }

    /// The root of a snapshot's tree.
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
        return Err(Error::no_snapshot(&request.snapshot));
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
