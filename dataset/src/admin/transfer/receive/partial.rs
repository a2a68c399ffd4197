//! Resumable receives: the token, discarding what was stored, and one receive at a time for each target.

use std::sync::Arc;

use crate::{
    admin::table::{datasets::Datasets, history},
    catalogue::{DatasetRow, ReceivingRow, Transaction, dataset_key},
    error::{Error, Result},
    lineage::{arrival, dataset},
    name::DatasetName,
    stream::{Position, Token},
};

/// Keeps a hidden dataset for one receive, until dropped.
pub(in crate::admin) struct Occupied {
    datasets: Arc<Datasets>,
    hidden: u64,
}

impl Drop for Occupied {
    fn drop(&mut self) {
        self.datasets.occupied.lock().remove(&self.hidden);
    }
}

impl Datasets {
    /// The token with which an interrupted receive into the dataset `target` continues, as of the last commit; `None`
    /// without a partial state.
    pub(in crate::admin) fn resume_token(&self, target: u64) -> Result<Option<Token>> {
        let pinned = self.engine().pin();
        let found = self.read(|tx| {
            let Some((hidden, row)) = arrival::receiving(tx, target)? else { return Ok(None) };
            let guid = tx.row::<DatasetRow>(dataset_key(hidden))?.guid;
            Ok(Some((hidden, row, guid, arrival::tree(tx, hidden)?)))
        })?;
        let Some((hidden, row, guid, (root, level))) = found else { return Ok(None) };
        let head = self.engine().open_pinned(hidden, root, level, pinned);
        let position = Position::of(&head, guid)?;
        let ReceivingRow { snapshot, guid, base, properties, .. } = row;
        let snapshot = snapshot.parse().map_err(|error| Error::damaged(hidden, error))?;
        Ok(Some(Token { snapshot, guid, base, properties, position }))
    }

    /// Discards what an interrupted receive into a dataset has stored. Its space is freed in the background.
    ///
    /// # Errors
    /// If the dataset has no partial state, or a receive fills it.
    pub fn discard_partial(self: &Arc<Self>, name: &DatasetName) -> Result<()> {
        let (names, target) = (self.names(), name.clone());
        let find = move |tx: &Transaction<'_>| match arrival::receiving(tx, names.dataset(tx, &target)?)? {
            Some((hidden, _)) => Ok(hidden),
            None => Err(Error::NotReceived {
                name: target.to_string(),
                problem: "it has no partial state of an interrupted receive to discard".into(),
                remedy: "to list partial states: fs get receive_resume_token",
            }),
        };
        let hidden = self.read(&find)?;
        let _occupied = self.occupy(hidden, name)?;
        let (name, names) = (name.clone(), self.names());
        self.run(move |tx| {
            // Another receive may have begun since the partial state was found.
            if find(tx)? != hidden {
                return Err(receiving(&name));
            }
            let children = dataset::children(tx, hidden)?;
            if !children.is_empty() {
                let ids: Vec<u64> = children.into_iter().map(|(_, child)| child).collect();
                return Err(Error::HasChildren { name: name.to_string(), children: names.of_datasets(tx, &ids)? });
            }
            arrival::abandon(tx, hidden)?;
            history::log(tx, &format!("receive -A {name}"))
        })
    }

    /// Keeps a hidden dataset for one receive, or for discarding it.
    pub(super) fn occupy(self: &Arc<Self>, hidden: u64, name: &DatasetName) -> Result<Occupied> {
        match self.occupied.lock().insert(hidden) {
            true => Ok(Occupied { datasets: self.clone(), hidden }),
            false => Err(receiving(name)),
        }
    }
}

fn receiving(name: &DatasetName) -> Error {
    Error::Busy { name: name.to_string(), holder: "a stream is being received into it".into() }
}
