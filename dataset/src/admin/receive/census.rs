//! Doing here what was done at the sender besides adding to data sets: by the census of a replication.
//!
//! A data set here is the *counterpart* of the one at the sender that has its newest snapshot that the sender has at all:
//! names do not matter. What has no counterpart is gone at the sender, and goes here; so do snapshots that the sender does
//! not have, and snapshots that it calls otherwise are renamed. All of it happens in one transaction, or nothing, where
//! something is held, cloned or in use. A tree whose topmost data set has nothing of the sender's is not touched: it is
//! not what the census is about.
//!
//! Data sets that were renamed are not moved here but where their streams come: see [`super::follow`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use pool::units::Guid;

use crate::{
    admin::{
        destroy::{self, Destroyed},
        error::Result,
        rename,
        resolve::{self, Names},
    },
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    lineage::{branch, dataset, snapshot},
    name::DatasetName,
    stream::Census,
};

/// What a census says, by guid.
pub(super) struct Sender {
    datasets: BTreeSet<Arc<str>>,
    /// Whose each snapshot is, and how it is called.
    snapshots: HashMap<Guid, (Arc<str>, String)>,
}

impl Sender {
    pub(super) fn new(census: &Census) -> Sender {
        let mut sender = Sender { datasets: BTreeSet::new(), snapshots: HashMap::new() };
        for counted in &census.datasets {
            let dataset: Arc<str> = counted.dataset.as_str().into();
            for (guid, name) in &counted.snapshots {
                sender.snapshots.insert(*guid, (dataset.clone(), name.clone()));
            }
            sender.datasets.insert(dataset);
        }
        sender
    }

    /// The name at the sender of what a data set is here.
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

/// The former names of what is gone, or called otherwise.
#[derive(Default)]
pub(super) struct Departed {
    pub(super) destroyed: Vec<String>,
    pub(super) renamed: Vec<String>,
}

/// A tree of data sets that is to be as the sender's.
pub(super) struct Tree {
    pub(super) sender: Arc<Sender>,
    pub(super) names: Names,
    /// The topmost data set here, and at the sender.
    pub(super) top: DatasetName,
    pub(super) sent: DatasetName,
}

impl Tree {
    /// Destroys and renames what it takes. Those in `mounted` cannot be destroyed.
    pub(super) fn reconcile(&self, tx: &mut Transaction<'_>, mounted: &BTreeSet<u64>) -> Result<Departed> {
        let Some(top) = self.names.find(tx, &self.top)? else { return Ok(Departed::default()) };
        if self.sender.counterpart(tx, top)?.is_none() {
            return Ok(Departed::default());
        }
        let (mut done, mut renamed) = (Destroyed::default(), Vec::new());
        let all = resolve::subtree(tx, top)?;
        for id in &all {
            renamed.extend(self.promote(tx, *id)?);
        }
        let (mut kept, mut doomed) = (vec![top], BTreeSet::new());
        for id in all.into_iter().skip(1) {
            if tx.row::<DatasetRow>(dataset_key(id))?.hidden {
                continue;
            }
            match self.stays(tx, id)? {
                true => kept.push(id),
                false => _ = doomed.insert(id),
            }
        }
        self.destroy(tx, top, &kept, &doomed, mounted, &mut done)?;
        for id in kept {
            self.destroy_snapshots(tx, id, mounted, &mut done)?;
            renamed.extend(self.rename_snapshots(tx, id)?);
        }
        Ok(Departed { destroyed: done.names, renamed })
    }

    /// Whether the sender has it. One without snapshots counts as the one of its name.
    fn stays(&self, tx: &Transaction<'_>, id: u64) -> Result<bool> {
        if self.sender.counterpart(tx, id)?.is_some() {
            return Ok(true);
        }
        let name = self.names.text_of(tx, id)?;
        let sent = format!("{}{}", self.sent, &name[self.top.as_str().len()..]);
        Ok(dataset::oldest_snapshot(tx, id)?.is_none() && self.sender.datasets.contains(sent.as_str()))
    }

    /// Promotes a clone whose origin is its counterpart's own by now. Says which snapshots have another name then.
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

    fn destroy(
        &self,
        tx: &mut Transaction<'_>,
        top: u64,
        kept: &[u64],
        doomed: &BTreeSet<u64>,
        mounted: &BTreeSet<u64>,
        done: &mut Destroyed,
    ) -> Result<()> {
        for id in kept {
            // What was moved away from below one that is gone stays, and is put right with its own stream.
            let row: DatasetRow = tx.row(dataset_key(*id))?;
            if doomed.contains(&row.parent) {
                move_aside(tx, &self.names, *id, top)?;
            }
        }
        let mut tops = Vec::new();
        for id in doomed {
            let row: DatasetRow = tx.row(dataset_key(*id))?;
            if !doomed.contains(&row.parent) {
                tops.push(*id);
            }
        }
        destroy::destroy_datasets(tx, &self.names, &tops, false, mounted, done)
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

    /// Renames the snapshots that the sender calls otherwise, and says what they were called.
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

/// Moves a data set to below `parent`, under a name that nothing else has.
pub(super) fn move_aside(tx: &mut Transaction<'_>, names: &Names, id: u64, parent: u64) -> Result<()> {
    let row: DatasetRow = tx.row(dataset_key(id))?;
    dataset::move_to(tx, id, parent, &format!("moved-{:016x}", row.guid.0))?;
    rename::renamed(tx, names, id).map(drop)
}
