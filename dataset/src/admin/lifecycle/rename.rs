//! Renaming datasets and snapshots.

use super::{create::CreateRequest, hold};
use crate::{
    admin::{
        delegation::{
            judge::Caller,
            powers::{self, Powers},
        },
        report::foreseen::{self, Foreseen},
        table::{
            counts::{self, Added},
            datasets::Datasets,
            history, limits,
            names::{self, Names},
        },
    },
    catalogue::{DatasetRow, Named, SnapshotRow, Transaction, dataset_key, kind, snapshot_key},
    error::{Error, Result},
    lineage::{dataset, snapshot},
    name::{DatasetName, SnapshotName},
};

/// The result of a rename.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The datasets with a new name: ids and new names. Their mountpoints may have changed.
    pub datasets: Vec<(u64, DatasetName)>,
}

impl Datasets {
    /// Renames a dataset with all its descendants. With `parents`, missing parents of the new name are created and
    /// owned by `owner`.
    pub fn rename(&self, from: &DatasetName, to: &DatasetName, parents: bool, owner: (u32, u32)) -> Result<Renamed> {
        let names = self.names();
        self.read(|tx| check_place(tx, &names, from, to))?;
        if let Some(request) = above(to, parents, owner) {
            self.create(request)?;
        }
        self.run(self.renaming(from, to))
    }

    /// The changes of [`Datasets::rename`], by its rules.
    pub fn foresee_rename(
        &self,
        from: &DatasetName,
        to: &DatasetName,
        parents: bool,
        owner: (u32, u32),
    ) -> Result<Foreseen> {
        let names = self.names();
        self.read(|tx| check_place(tx, &names, from, to))?;
        let mut create = above(to, parents, owner).map(|request| self.creation(request)).transpose()?;
        let mut rename = self.renaming(from, to);
        let both = move |tx: &mut Transaction<'_>| {
            let created = create.as_mut().map_or(Ok(Vec::new()), |create| create(tx))?;
            Ok((created, rename(tx)?))
        };
        self.foresee(both, |before, after, (created, renamed)| {
            let top = renamed.datasets.first().map(|(id, _)| *id);
            let compared = foreseen::compared(before, after, &names, top.as_slice())?;
            Ok(Foreseen { created, ..compared })
        })
    }

    /// Renames a dataset in a transaction.
    fn renaming(
        &self,
        from: &DatasetName,
        to: &DatasetName,
    ) -> impl FnMut(&mut Transaction<'_>) -> Result<Renamed> + Send + use<> {
        let names = self.names();
        let (from, to, caller, room) = (from.clone(), to.clone(), Caller::current(), self.engine().available());
        move |tx| {
            check_place(tx, &names, &from, &to)?;
            let id = names.dataset(tx, &from)?;
            let parent = names.parent(tx, &to, "renamed")?;
            let before = tx.row::<DatasetRow>(dataset_key(id))?.parent;
            let powers = Powers::of(tx, &names, id)?;
            dataset::move_to(tx, id, parent, to.leaf())?;
            powers::withhold(tx, &names, caller.as_ref(), id, powers, room)?;
            if before != parent {
                limits::check_moved(tx, &names, before, id)?;
                counts::check(tx, &names, &[parent], Some(before), Added::Both)?;
            }
            history::log(tx, &format!("rename {from} to {to}"))?;
            renamed(tx, &names, id)
        }
    }

    /// Renames a snapshot; with `recursive` also the snapshots with the same name in descendants.
    pub fn rename_snapshot(&self, from: &SnapshotName, to: &str, recursive: bool) -> Result<()> {
        from.dataset().snapshot(to)?;
        self.run(self.renaming_snapshots(from, to, recursive)).map(drop)
    }

    /// The changes of [`Datasets::rename_snapshot`], by its rules.
    pub fn foresee_rename_snapshot(&self, from: &SnapshotName, to: &str, recursive: bool) -> Result<Foreseen> {
        from.dataset().snapshot(to)?;
        self.foresee(self.renaming_snapshots(from, to, recursive), |_, _, renamed| {
            Ok(Foreseen { renamed, ..Foreseen::default() })
        })
    }

    /// Renames snapshots in a transaction, and returns the names before and after.
    fn renaming_snapshots(
        &self,
        from: &SnapshotName,
        to: &str,
        recursive: bool,
    ) -> impl FnMut(&mut Transaction<'_>) -> Result<Vec<(String, String)>> + Send + use<> {
        let (names, from, to) = (self.names(), from.clone(), to.to_owned());
        move |tx| {
            let mut done = Vec::new();
            for (id, name) in hold::each(tx, &names, std::slice::from_ref(&from), recursive)? {
                let new = name.dataset().snapshot(&to)?;
                let row: SnapshotRow = tx.row(snapshot_key(id))?;
                if dataset::snapshot_named(tx, row.dataset, &to)?.is_some() {
                    return Err(Error::snapshot_exists(&new));
                }
                rename_snapshots(tx, row.dataset, &[(id, to.clone())])?;
                done.push((name.to_string(), new.to_string()));
            }
            history::log(tx, &format!("rename {from} to @{to}"))?;
            Ok(done)
        }
    }
}

/// The request that creates the missing parents of a new name.
fn above(to: &DatasetName, parents: bool, owner: (u32, u32)) -> Option<CreateRequest> {
    let name = to.parent().filter(|_| parents)?;
    Some(CreateRequest { name, parents, properties: Vec::new(), owner })
}

/// Renames snapshots of one dataset, all at once: a snapshot may get the former name of another.
pub(in crate::admin) fn rename_snapshots(
    tx: &mut Transaction<'_>,
    dataset: u64,
    new_names: &[(u64, String)],
) -> Result<()> {
    for (id, _) in new_names {
        let row: SnapshotRow = tx.row(snapshot_key(*id))?;
        tx.delete_named::<Named>(dataset, kind::SNAPSHOT_NAME, &row.name)?;
    }
    for (id, name) in new_names {
        if dataset::snapshot_named(tx, dataset, name)?.is_some() {
            return Err(Error::snapshot_exists(name));
        }
        let row: SnapshotRow = tx.row(snapshot_key(*id))?;
        tx.put_named(dataset, kind::SNAPSHOT_NAME, &Named { name: name.clone(), id: *id })?;
        tx.set(snapshot_key(*id), &SnapshotRow { name: name.clone(), ..row })?;
    }
    Ok(())
}

fn check_place(tx: &Transaction<'_>, names: &Names, from: &DatasetName, to: &DatasetName) -> Result<()> {
    let misplaced = |problem| {
        let (from, to) = (from.to_string(), to.to_string());
        Err(Error::Misplaced { action: "rename", from, to, problem })
    };
    names.dataset(tx, from)?;
    if from.is_pool() {
        return Err(Error::IsRoot { name: from.to_string(), action: "renamed", remedy: None });
    }
    if from.pool() != to.pool() {
        return misplaced("source and target pools differ");
    }
    if to != from && to.is_within(from) {
        return misplaced("a dataset cannot lie below itself");
    }
    names.vacant(tx, to)
}

/// The new names of a moved dataset and its descendants. Fails if a name, with its snapshots, has become too long.
pub(in crate::admin) fn renamed(tx: &Transaction<'_>, names: &Names, id: u64) -> Result<Renamed> {
    let mut datasets = Vec::new();
    for moved in names::subtree(tx, id)? {
        let name: DatasetName = names.text_of(tx, moved)?.parse()?;
        for of in snapshot::line(tx, moved)? {
            name.snapshot(&tx.row::<SnapshotRow>(snapshot_key(of))?.name)?;
        }
        datasets.push((moved, name));
    }
    Ok(Renamed { datasets })
}
