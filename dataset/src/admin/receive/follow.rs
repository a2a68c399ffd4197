//! Following a data set that was renamed at the sender: it is known by its snapshots.
//!
//! Where an increment of a replication continues a data set that is not under its name here, but elsewhere in the tree that is replicated,
//! it is moved to where the sender has it. Streams come in an order in which those above are in their places by then. What
//! stands in the way and is the sender's too has been renamed as well: it goes aside until its own stream comes.

use std::collections::BTreeSet;

use pool::units::Guid;

use super::census::{Departed, Sender, move_aside};
use crate::{
    admin::{
        error::{Error, Result},
        limits, rename,
        resolve::{self, Names},
    },
    catalogue::{DatasetRow, SnapshotRow, Transaction, dataset_key, snapshot_key},
    lineage::{dataset, snapshot},
    name::DatasetName,
    stream::Begin,
};

/// A data set of a replication that may have been renamed.
pub(super) struct Follow<'a> {
    pub(super) names: &'a Names,
    pub(super) sender: &'a Sender,
    /// The topmost data set of the replication here. It is where the user said, and is never moved.
    pub(super) top: &'a DatasetName,
    /// Where the data set belongs.
    pub(super) place: &'a DatasetName,
    pub(super) begin: &'a Begin,
}

impl Follow<'_> {
    /// Moves it. Those in `mounted` cannot be moved.
    pub(super) fn run(&self, tx: &mut Transaction<'_>, mounted: &BTreeSet<u64>) -> Result<Departed> {
        let Some((id, parent)) = self.misplaced(tx)? else { return Ok(Departed::default()) };
        let mut moved = self.leaving(tx, id, mounted)?;
        if let Some(other) = self.names.find(tx, self.place)? {
            if self.sender.counterpart(tx, other)?.is_none() {
                return Err(Error::exists("data set", self.place));
            }
            moved.extend(self.leaving(tx, other, mounted)?);
            let above = tx.row::<DatasetRow>(dataset_key(other))?.parent;
            move_aside(tx, self.names, other, above)?;
        }
        if resolve::subtree(tx, id)?.contains(&parent) {
            let (from, to) = (self.names.text_of(tx, id)?, self.place.to_string());
            return Err(Error::Misplaced { action: "rename", from, to, problem: "a data set cannot lie below itself" });
        }
        let before = tx.row::<DatasetRow>(dataset_key(id))?.parent;
        dataset::move_to(tx, id, parent, self.place.leaf())?;
        if before != parent {
            limits::check_moved(tx, self.names, before, id)?;
        }
        rename::renamed(tx, self.names, id)?;
        Ok(Departed { destroyed: Vec::new(), renamed: moved })
    }

    /// The data set, if it is elsewhere, and the one that it belongs below.
    fn misplaced(&self, tx: &Transaction<'_>) -> Result<Option<(u64, u64)>> {
        if self.place == self.top {
            return Ok(None);
        }
        if let Some(here) = self.names.find(tx, self.place)?
            && self.is_it(tx, here)?
        {
            return Ok(None);
        }
        let (Some(top), Some(above)) = (self.names.find(tx, self.top)?, self.place.parent()) else { return Ok(None) };
        let Some(parent) = self.names.find(tx, &above)? else { return Ok(None) };
        for id in resolve::subtree(tx, top)?.into_iter().skip(1) {
            if self.is_it(tx, id)? && !tx.row::<DatasetRow>(dataset_key(id))?.hidden {
                return Ok(Some((id, parent)));
            }
        }
        Ok(None)
    }

    /// Whether a data set has the snapshot that comes, or its base. The base of a clone is another's.
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

    /// The names that change with that of a data set.
    fn leaving(&self, tx: &Transaction<'_>, id: u64, mounted: &BTreeSet<u64>) -> Result<Vec<String>> {
        let all = resolve::subtree(tx, id)?.into_iter().map(|id| Ok((id, self.names.text_of(tx, id)?)));
        let all: Vec<(u64, String)> = all.collect::<Result<_>>()?;
        if let Some((_, name)) = all.iter().find(|(id, _)| mounted.contains(id)) {
            return Err(Error::Busy { name: name.clone(), holder: "it is mounted".into() });
        }
        Ok(all.into_iter().map(|(_, name)| name).collect())
    }
}
