//! Doing here what was done at the sender besides adding to datasets: by the census of a replication.
//!
//! A dataset here is the *counterpart* of the one at the sender that has its newest snapshot that the sender has at all:
//! names do not matter. What has no counterpart is gone at the sender, and goes here; so do snapshots that the sender does
//! not have, and snapshots that it calls otherwise are renamed. All of it happens in one transaction, or nothing, where
//! something is held, cloned or in use. A tree whose topmost dataset has nothing of the sender's is not touched: it is
//! not what the census is about. Nor is one that has gone further than the census, which is from before then.
//!
//! What has no counterpart but a name that the sender has stays at first: it may be the same dataset, with all
//! snapshots that it had in common destroyed at the sender, or another. That its own stream tells, and so does that of a
//! dataset that was renamed to this name; datasets that were renamed are not moved here either: see
//! [`super::follow`].

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use pool::units::Guid;

use crate::{
    admin::{
        destroy::{self, Destroyed},
        error::{Error, Result},
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
    /// The datasets, and the newest snapshot of each.
    datasets: BTreeMap<Arc<str>, Option<Guid>>,
    /// Whose each snapshot is, and how it is called.
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

    /// The name at the sender of what a dataset is here.
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

impl Departed {
    /// The datasets among them, in the catalogue as it was before.
    pub(super) fn datasets(&self, tx: &Transaction<'_>, names: &Names) -> Result<BTreeSet<u64>> {
        let named = self.destroyed.iter().chain(&self.renamed).filter_map(|name| name.parse::<DatasetName>().ok());
        Ok(named.map(|name| names.find(tx, &name)).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }
}

/// A tree of datasets that is to be as the sender's.
pub(super) struct Tree {
    pub(super) sender: Sender,
    pub(super) names: Names,
    /// The topmost dataset here, and at the sender.
    pub(super) top: DatasetName,
    pub(super) sent: DatasetName,
}

impl Tree {
    /// Destroys and renames what it takes. Those in `mounted` can be neither destroyed nor renamed.
    pub(super) fn reconcile(&self, tx: &mut Transaction<'_>, mounted: &BTreeSet<u64>) -> Result<Departed> {
        let Some(top) = self.names.find(tx, &self.top)? else { return Ok(Departed::default()) };
        if self.sender.counterpart(tx, top)?.is_none() {
            return Ok(Departed::default());
        }
        self.check_recent(tx, top)?;
        let (mut done, mut renamed) = (Destroyed::default(), Vec::new());
        let all = resolve::subtree(tx, top)?;
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

    /// Destroys a dataset that the sender does not have, with what is below it and has no counterpart either. The rest
    /// is moved away, and is put right with its own streams.
    pub(super) fn clear(&self, tx: &mut Transaction<'_>, id: u64, mounted: &BTreeSet<u64>) -> Result<Departed> {
        let (top, mut done) = (self.names.dataset(tx, &self.top)?, Destroyed::default());
        let (mut kept, mut doomed) = (Vec::new(), BTreeSet::new());
        for id in resolve::subtree(tx, id)? {
            match self.sender.counterpart(tx, id)?.is_some() {
                true => kept.push(id),
                false => _ = doomed.insert(id),
            }
        }
        let renamed = self.destroy(tx, top, &kept, &doomed, mounted, &mut done)?;
        Ok(Departed { destroyed: done.names, renamed })
    }

    /// Refuses a census from before what is here: all that the sender had then of the topmost dataset has come, and
    /// more has since.
    fn check_recent(&self, tx: &Transaction<'_>, top: u64) -> Result<()> {
        let newest = self.sender.datasets.get(self.sent.as_str()).copied().flatten();
        let mut has_newest = false;
        for of in snapshot::line(tx, top)? {
            let row: SnapshotRow = tx.row(snapshot_key(of))?;
            if has_newest && !self.sender.snapshots.contains_key(&row.guid) {
                return Err(Error::NotReceived {
                    name: self.top.to_string(),
                    problem: format!("all that it brings is here already, and @{} is later", row.name),
                    remedy: "receive what was sent later, or destroy the later snapshots first",
                });
            }
            has_newest |= Some(row.guid) == newest;
        }
        Ok(())
    }

    /// Which datasets below the topmost one stay, and which the sender does not have.
    fn divide(&self, tx: &Transaction<'_>, below: &[u64]) -> Result<(Vec<u64>, BTreeSet<u64>)> {
        let (mut kept, mut doomed) = (Vec::new(), BTreeSet::new());
        for id in below {
            let row: DatasetRow = tx.row(dataset_key(*id))?;
            if row.hidden {
                continue;
            }
            // A name alone keeps nothing below one that goes.
            let stays = self.sender.counterpart(tx, *id)?.is_some()
                || !doomed.contains(&row.parent) && self.has_name_of(tx, *id)?;
            match stays {
                true => kept.push(*id),
                false => _ = doomed.insert(*id),
            }
        }
        Ok((kept, doomed))
    }

    /// Whether the sender has a dataset of this one's name.
    fn has_name_of(&self, tx: &Transaction<'_>, id: u64) -> Result<bool> {
        let name = self.names.text_of(tx, id)?;
        let sent = format!("{}{}", self.sent, &name[self.top.as_str().len()..]);
        Ok(self.sender.datasets.contains_key(sent.as_str()))
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

    /// Destroys datasets, and says what those below them that stay were called.
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
            // What was moved away from below one that is gone stays, and is put right with its own stream.
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

/// Moves a dataset to below `parent`, under a name that nothing else has. Says which names change with its own.
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

/// The names that change with that of a dataset. Those in `mounted` cannot.
pub(super) fn leaving(tx: &Transaction<'_>, names: &Names, id: u64, mounted: &BTreeSet<u64>) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for id in resolve::subtree(tx, id)? {
        let name = names.text_of(tx, id)?;
        if mounted.contains(&id) {
            return Err(Error::Busy { name, holder: "it is mounted".into() });
        }
        all.push(name);
    }
    Ok(all)
}
