//! After a crash: applies the intent log to the datasets, before any other change.

use std::collections::BTreeMap;

use pool::{error::Error as PoolError, format::intent::Entry};

use super::table::datasets::Datasets;
use crate::{
    catalogue::{DatasetRow, dataset_key},
    error::{Error, Result},
    fs::replay::{Claims, Replay},
};

impl Datasets {
    /// Applies the intent log and commits. The log is empty afterwards, so a later crash can neither apply the records
    /// again nor lose them.
    pub(crate) fn replay_log(&self) -> Result<()> {
        let mut trees: BTreeMap<u64, Vec<Entry>> = BTreeMap::new();
        for entry in self.engine().take_log() {
            trees.entry(entry.tree).or_default().push(entry);
        }
        let mut claims = Claims::default();
        for (&id, entries) in &trees {
            self.replay_tree(id, entries, &mut claims)?;
        }
        self.engine().log_applied()?;
        trees.keys().for_each(|id| self.engine().close_head(*id));
        Ok(())
    }

    fn replay_tree(&self, id: u64, entries: &[Entry], claims: &mut Claims) -> Result<()> {
        let names = self.names();
        let found = self.read(|tx| {
            if !tx.contains(dataset_key(id))? {
                return Ok(None);
            }
            let (row, root) = tx.row_and_block::<DatasetRow>(dataset_key(id))?;
            Ok(Some((row, root, self.options(tx, &names, id)?)))
        })?;
        // A dataset missing from the committed state was never acknowledged to a user.
        let Some((row, root, options)) = found else { return Ok(()) };
        let root = root.ok_or_else(|| Error::damaged(id, "a dataset without a tree"))?;
        let head = self.engine().open_head(id, Some((root, row.level)));
        let mut replay = Replay::new(&head, options.policy, claims);
        let applied: Result<(), PoolError> = entries.iter().try_for_each(|entry| replay.apply(entry));
        tracing::info!(data_set = id, entries = entries.len(), "put back what the intent log holds");
        Ok(applied?)
    }
}
