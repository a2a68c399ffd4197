//! Follows destroys and renames at the sender, according to the census of a replication.
//!
//! The *counterpart* of a local dataset is the sender's dataset that has the newest of the common snapshots; names do
//! not matter. A local dataset without a counterpart was destroyed at the sender, and is destroyed here. Snapshots that
//! the sender no longer has are destroyed too, and snapshots with another name at the sender are renamed. All of the
//! changes are made in one transaction; if a hold, a clone or a mount prevents one, none is made. A tree whose topmost
//! dataset shares no snapshot with the sender is left alone: the census is about another tree. A tree that is newer
//! than the census is refused.
//!
//! A dataset without a counterpart whose name the sender also has is kept at first: the dataset may be the same, with
//! all common snapshots destroyed at the sender, or another. Its own stream decides, and so does the stream of a
//! dataset that was renamed to this name. Renamed datasets are not moved here: see [`super::follow`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use pool::units::Guid;

use crate::{
    admin::{
        lifecycle::{
            destroy::{self, Destroyed},
            rename,
        },
        table::names::{self, Names},
    },
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::{Error, Result},
    lineage::{branch, dataset, snapshot},
    name::DatasetName,
    stream::Census,
};

/// A census, indexed by GUID.
pub(super) struct Sender {
    /// The sender's datasets, and the newest snapshot of each.
    datasets: BTreeMap<Arc<str>, Option<Guid>>,
    /// The dataset and name of each snapshot at the sender.
    snapshots: HashMap<Guid, (Arc<str>, String)>,
}

impl Sender {
    pub(super) fn new(census: &Census) -> Sender {
        let mut sender = Sender { datasets: BTreeMap::new(), snapshots: HashMap::new() };
        for counted in &census.datasets {
            let dataset: Arc<str> = counted.dataset.as_str().into();
            for (guid, name) in &counted.snapshots {
                sender.snapshots.insert(*guid, (dataset.clone(), name.clone()));
            }
            let newest = sender.datasets.entry(dataset).or_default();
            *newest = counted.snapshots.last().map(|(guid, _)| *guid).or(*newest);
        }
        sender
    }

    /// The sender's name of a local dataset's counterpart.
    pub(super) fn counterpart(&self, tx: &Transaction<'_>, id: u64) -> Result<Option<Arc<str>>> {
        for of in snapshot::line(tx, id)?.into_iter().rev() {
            let row: SnapshotRow = tx.row(snapshot_key(of))?;
            if let Some((dataset, _)) = self.snapshots.get(&row.guid) {
                return Ok(Some(dataset.clone()));
            }
        }
        Ok(None)
    }
}

/// The former names of destroyed and renamed datasets and snapshots.
#[derive(Default)]
pub(super) struct Departed {
    pub(super) destroyed: Vec<String>,
    pub(super) renamed: Vec<String>,
}

impl Departed {
    /// The ids of the datasets among the names, in the catalogue before the change.
    pub(super) fn datasets(&self, tx: &Transaction<'_>, names: &Names) -> Result<BTreeSet<u64>> {
        let named = self.destroyed.iter().chain(&self.renamed).filter_map(|name| name.parse::<DatasetName>().ok());
        Ok(named.map(|name| names.find(tx, &name)).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }
}

/// A local tree of datasets that follows the sender's tree.
pub(super) struct Tree {
    pub(super) sender: Sender,
    pub(super) names: Names,
    /// The topmost dataset, here and at the sender.
    pub(super) top: DatasetName,
    pub(super) sent: DatasetName,
}

impl Tree {
    /// Makes the destroys and renames. Fails if a mounted dataset (`mounted`) is among them.
    pub(super) fn reconcile(&self, tx: &mut Transaction<'_>, mounted: &BTreeSet<u64>) -> Result<Departed> {
        let Some(top) = self.names.find(tx, &self.top)? else { return Ok(Departed::default()) };
        if self.sender.counterpart(tx, top)?.is_none() {
            return Ok(Departed::default());
        }
        self.check_recent(tx, top)?;
        let (mut done, mut renamed) = (Destroyed::default(), Vec::new());
        let all = names::subtree(tx, top)?;
        for id in &all {
            renamed.extend(self.promote(tx, *id)?);
        }
        let (kept, doomed) = self.divide(tx, &all[1..])?;
        renamed.extend(self.destroy(tx, top, &kept, &doomed, mounted, &mut done)?);
        for id in [&[top], kept.as_slice()].concat() {
            if self.sender.counterpart(tx, id)?.is_some() {
                self.destroy_snapshots(tx, id, mounted, &mut done)?;
                renamed.extend(self.rename_snapshots(tx, id)?);
            }
        }
        Ok(Departed { destroyed: done.names, renamed })
    }

    /// Destroys a dataset that the sender does not have, with all descendants without a counterpart. Other descendants
    /// are moved aside until their own streams place them.
    pub(super) fn clear(&self, tx: &mut Transaction<'_>, id: u64, mounted: &BTreeSet<u64>) -> Result<Departed> {
        let (top, mut done) = (self.names.dataset(tx, &self.top)?, Destroyed::default());
        let (mut kept, mut doomed) = (Vec::new(), BTreeSet::new());
        for id in names::subtree(tx, id)? {
            match self.sender.counterpart(tx, id)?.is_some() {
                true => kept.push(id),
                false => _ = doomed.insert(id),
            }
        }
        let renamed = self.destroy(tx, top, &kept, &doomed, mounted, &mut done)?;
        Ok(Departed { destroyed: done.names, renamed })
    }

    /// Refuses a census older than the local tree: the topmost dataset has the census's newest snapshot, and snapshots
    /// beyond.
    fn check_recent(&self, tx: &Transaction<'_>, top: u64) -> Result<()> {
        let newest = self.sender.datasets.get(self.sent.as_str()).copied().flatten();
        let mut has_newest = false;
        for of in snapshot::line(tx, top)? {
            let row: SnapshotRow = tx.row(snapshot_key(of))?;
            if has_newest && !self.sender.snapshots.contains_key(&row.guid) {
                return Err(Error::NotReceived {
                    name: self.top.to_string(),
                    problem: format!("the destination already has all of its snapshots, and the later @{}", row.name),
                    remedy: "receive a later stream, or destroy the later snapshots first",
                });
            }
            has_newest |= Some(row.guid) == newest;
        }
        Ok(())
    }

    /// Divides the descendants of the topmost dataset into kept and doomed.
    fn divide(&self, tx: &Transaction<'_>, below: &[u64]) -> Result<(Vec<u64>, BTreeSet<u64>)> {
        let (mut kept, mut doomed) = (Vec::new(), BTreeSet::new());
        for id in below {
            let row: DatasetRow = tx.row(dataset_key(*id))?;
            if row.hidden {
                continue;
            }
            // The same name alone does not keep a dataset below a doomed parent.
            let stays = self.sender.counterpart(tx, *id)?.is_some()
                || !doomed.contains(&row.parent) && self.has_name_of(tx, *id)?;
            match stays {
                true => kept.push(*id),
                false => _ = doomed.insert(*id),
            }
        }
        Ok((kept, doomed))
    }

    /// Whether the sender has a dataset with the same name.
    fn has_name_of(&self, tx: &Transaction<'_>, id: u64) -> Result<bool> {
        let name = self.names.text_of(tx, id)?;
        let sent = format!("{}{}", self.sent, &name[self.top.as_str().len()..]);
        Ok(self.sender.datasets.contains_key(sent.as_str()))
    }

    /// Promotes a clone whose origin, at the sender, belongs to the clone's counterpart. Returns the former names of
    /// the moved snapshots.
    fn promote(&self, tx: &mut Transaction<'_>, id: u64) -> Result<Vec<String>> {
        let row: DatasetRow = tx.row(dataset_key(id))?;
        if row.origin == 0 {
            return Ok(Vec::new());
        }
        let origin: SnapshotRow = tx.row(snapshot_key(row.origin))?;
        let owner = self.sender.snapshots.get(&origin.guid).map(|(dataset, _)| dataset.clone());
        if owner.is_none() || owner != self.sender.counterpart(tx, id)? {
            return Ok(Vec::new());
        }
        let promotion = branch::promote(tx, id)?;
        let former = self.names.text_of(tx, promotion.former)?;
        Ok(promotion.snapshots.into_iter().map(|(_, name)| format!("{former}@{name}")).collect())
    }

    /// Destroys datasets, and returns the former names of kept descendants.
    fn destroy(
        &self,
        tx: &mut Transaction<'_>,
        top: u64,
        kept: &[u64],
        doomed: &BTreeSet<u64>,
        mounted: &BTreeSet<u64>,
        done: &mut Destroyed,
    ) -> Result<Vec<String>> {
        let mut renamed = Vec::new();
        for id in kept {
            // A kept dataset below a doomed parent is moved aside until its own stream places it.
            let row: DatasetRow = tx.row(dataset_key(*id))?;
            if doomed.contains(&row.parent) {
                renamed.extend(move_aside(tx, &self.names, *id, top, mounted)?);
            }
        }
        let mut tops = Vec::new();
        for id in doomed {
            let row: DatasetRow = tx.row(dataset_key(*id))?;
            if !doomed.contains(&row.parent) {
                tops.push(*id);
            }
        }
        destroy::destroy_datasets(tx, &self.names, &tops, false, mounted, done)?;
        Ok(renamed)
    }

    fn destroy_snapshots(
        &self,
        tx: &mut Transaction<'_>,
        id: u64,
        mounted: &BTreeSet<u64>,
        done: &mut Destroyed,
    ) -> Result<()> {
        for of in snapshot::line(tx, id)?.into_iter().rev() {
            let row: SnapshotRow = tx.row(snapshot_key(of))?;
            if !self.sender.snapshots.contains_key(&row.guid) {
                destroy::destroy_now(tx, &self.names, of, false, mounted, done)?;
            }
        }
        Ok(())
    }

    /// Renames snapshots to the sender's names, and returns the former names.
    fn rename_snapshots(&self, tx: &mut Transaction<'_>, id: u64) -> Result<Vec<String>> {
        let name = self.names.of_dataset(tx, id)?;
        let (mut renamed, mut before) = (Vec::new(), Vec::new());
        for of in snapshot::line(tx, id)? {
            let row: SnapshotRow = tx.row(snapshot_key(of))?;
            match self.sender.snapshots.get(&row.guid) {
                Some((_, new)) if *new != row.name => {
                    name.snapshot(new)?;
                    renamed.push((of, new.clone()));
                    before.push(format!("{name}@{}", row.name));
                }
                _ => {}
            }
        }
        rename::rename_snapshots(tx, id, &renamed)?;
        Ok(before)
    }
}

/// Moves a dataset below `parent`, under an unused name. Returns the former names of the dataset and its descendants.
pub(super) fn move_aside(
    tx: &mut Transaction<'_>,
    names: &Names,
    id: u64,
    parent: u64,
    mounted: &BTreeSet<u64>,
) -> Result<Vec<String>> {
    let before = leaving(tx, names, id, mounted)?;
    let row: DatasetRow = tx.row(dataset_key(id))?;
    dataset::move_to(tx, id, parent, &format!("moved-{:016x}", row.guid.0))?;
    rename::renamed(tx, names, id)?;
    Ok(before)
}

/// The names that change with a dataset's name: its own and its descendants'. Fails if one is in `mounted`.
pub(super) fn leaving(tx: &Transaction<'_>, names: &Names, id: u64, mounted: &BTreeSet<u64>) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for id in names::subtree(tx, id)? {
        let name = names.text_of(tx, id)?;
        if mounted.contains(&id) {
            return Err(Error::Busy { name, holder: "it is mounted".into() });
        }
        all.push(name);
    }
    Ok(all)
}
