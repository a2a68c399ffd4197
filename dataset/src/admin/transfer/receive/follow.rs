//! Follows the rename of a dataset at the sender, recognized by its snapshots.
//!
//! If an incremental stream of a replication continues a local dataset with another name in the replicated tree, the
//! dataset is renamed to the sender's name. Streams are sorted so that the parents are in place by then.
//!
//! Another dataset may occupy the name, also the name of a new dataset. If the sender has the other dataset too, it was
//! renamed as well: the dataset is moved aside until its own stream places it. If not, the dataset was destroyed at the
//! sender, and with `-F` is destroyed here.

use std::collections::BTreeSet;

use pool::units::Guid;

use super::census::{Departed, Tree, leaving, move_aside};
use crate::{
    admin::{
        lifecycle::rename,
        table::{
            counts::{self, Added},
            limits, names,
        },
    },
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    error::{Error, Result},
    lineage::{arrival, dataset, snapshot},
    name::DatasetName,
    stream::Begin,
};

/// A dataset of a replication that may have been renamed.
pub(super) struct Follow<'a> {
    /// The replicated tree. Its topmost dataset is the user's choice, and is never moved.
    pub(super) tree: &'a Tree,
    /// The name that the dataset should have.
    pub(super) place: &'a DatasetName,
    pub(super) begin: &'a Begin,
    /// Whether to destroy datasets that the sender does not have.
    pub(super) force: bool,
}

impl Follow<'_> {
    /// Moves the dataset, and any other dataset at its place. Fails if one is in `mounted`.
    pub(super) fn run(&self, tx: &mut Transaction<'_>, mounted: &BTreeSet<u64>) -> Result<Departed> {
        let (names, mut departed) = (&self.tree.names, Departed::default());
        let standing = names.find(tx, self.place)?;
        if *self.place == self.tree.top || standing.map_or(Ok(false), |id| self.is_it(tx, id))? {
            return Ok(departed);
        }
        if let Some(id) = standing
            && tx.row::<DatasetRow>(dataset_key(id))?.hidden
        {
            // Only a stream that continues the interrupted receive fits.
            return Ok(departed);
        }
        let elsewhere = self.elsewhere(tx)?;
        if let Some((id, _)) = elsewhere {
            departed.renamed = leaving(tx, names, id, mounted)?;
        }
        if let Some(other) = standing {
            let vacated = self.vacate(tx, other, elsewhere.is_some(), mounted)?;
            departed.destroyed.extend(vacated.destroyed);
            departed.renamed.extend(vacated.renamed);
        }
        if let Some((id, parent)) = elsewhere {
            self.take_place(tx, id, parent)?;
        }
        Ok(departed)
    }

    /// Vacates the place, if the stream shows that the dataset there is not the stream's.
    fn vacate(
        &self,
        tx: &mut Transaction<'_>,
        other: u64,
        is_elsewhere: bool,
        mounted: &BTreeSet<u64>,
    ) -> Result<Departed> {
        let continues = match &self.begin.base {
            Some(base) => !self.begin.clone || arrival::snapshot_with(tx, other, base.guid)?.is_some(),
            None => false,
        };
        if continues && !is_elsewhere {
            return Ok(Departed::default());
        }
        let row: DatasetRow = tx.row(dataset_key(other))?;
        match self.tree.sender.counterpart(tx, other)? {
            Some(sent) if *sent == *self.begin.dataset && !is_elsewhere => Ok(Departed::default()),
            Some(_) => {
                let renamed = move_aside(tx, &self.tree.names, other, row.parent, mounted)?;
                Ok(Departed { renamed, ..Departed::default() })
            }
            None if !self.force && is_elsewhere => Err(Error::dataset_exists(self.place)),
            // A full stream overwrites a dataset without snapshots, and keeps the descendants.
            None if !self.force || row.newest == 0 && !self.begin.clone && !is_elsewhere => Ok(Departed::default()),
            None => self.tree.clear(tx, other, mounted),
        }
    }

    fn take_place(&self, tx: &mut Transaction<'_>, id: u64, parent: u64) -> Result<()> {
        let names = &self.tree.names;
        if names::subtree(tx, id)?.contains(&parent) {
            let (from, to) = (names.text_of(tx, id)?, self.place.to_string());
            return Err(Error::Misplaced { action: "rename", from, to, problem: "a dataset cannot lie below itself" });
        }
        let before = tx.row::<DatasetRow>(dataset_key(id))?.parent;
        dataset::move_to(tx, id, parent, self.place.leaf())?;
        if before != parent {
            limits::check_moved(tx, names, before, id)?;
            counts::check(tx, names, &[parent], Some(before), Added::Both)?;
        }
        rename::renamed(tx, names, id).map(drop)
    }

    /// The dataset under another name, and its new parent.
    fn elsewhere(&self, tx: &Transaction<'_>) -> Result<Option<(u64, u64)>> {
        let names = &self.tree.names;
        let (Some(top), Some(above)) = (names.find(tx, &self.tree.top)?, self.place.parent()) else { return Ok(None) };
        let Some(parent) = names.find(tx, &above)? else { return Ok(None) };
        for id in names::subtree(tx, top)?.into_iter().skip(1) {
            if self.is_it(tx, id)? && !tx.row::<DatasetRow>(dataset_key(id))?.hidden {
                return Ok(Some((id, parent)));
            }
        }
        Ok(None)
    }

    /// Whether a dataset has the stream's snapshot or its base. The base of a clone belongs to another dataset.
    fn is_it(&self, tx: &Transaction<'_>, id: u64) -> Result<bool> {
        let base = self.begin.base.as_ref().filter(|_| !self.begin.clone).map(|base| base.guid);
        let wanted = |guid: Guid| guid == self.begin.guid || Some(guid) == base;
        for of in snapshot::line(tx, id)?.into_iter().rev() {
            if wanted(tx.row::<SnapshotRow>(snapshot_key(of))?.guid) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
