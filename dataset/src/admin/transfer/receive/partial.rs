//! Resumable receives: the token, discarding what was stored, and one receive at a time for each target.

use std::sync::Arc;

use pool::txg::Head;

use crate::{
    admin::table::{datasets::Datasets, history},
    catalogue::{DatasetRow, ReceivingRow, Transaction, dataset_key},
    error::{Error, Result},
    lineage::{arrival, dataset},
    name::DatasetName,
    stream::{Position, Token},
};

/// What an interrupted receive has stored.
pub(in crate::admin) struct Partial {
    /// The hidden dataset's id.
    pub(in crate::admin) hidden: u64,
    /// The hidden dataset's tree, as of a commit.
    pub(in crate::admin) head: Arc<Head>,
    /// What the sender needs to continue.
    pub(in crate::admin) token: Token,
    /// The id of the snapshot that the hidden dataset was cloned from, or zero.
    pub(in crate::admin) origin: u64,
    /// Whether the receive creates its dataset.
    pub(in crate::admin) is_new: bool,
}

/// Keeps a hidden dataset for one receive, or for one send of the partial state, until dropped.
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
        Ok(self.partial(target)?.map(|partial| partial.token))
    }

    /// What an interrupted receive into the dataset `target` has stored, as of the last commit; `None` without a partial
    /// state.
    pub(in crate::admin) fn partial(&self, target: u64) -> Result<Option<Partial>> {
        let pinned = self.engine().pin();
        let found = self.read(|tx| {
            let Some((hidden, row)) = arrival::receiving(tx, target)? else { return Ok(None) };
            let own: DatasetRow = tx.row(dataset_key(hidden))?;
            Ok(Some((hidden, row, own, arrival::tree(tx, hidden)?, arrival::is_backup(tx, hidden)?)))
        })?;
        let Some((hidden, row, own, (root, level), backup)) = found else { return Ok(None) };
        let head = self.engine().open_pinned(hidden, root, level, pinned);
        let position = Position::of(&head, own.guid)?;
        let ReceivingRow { snapshot, guid, base, properties, .. } = row;
        let snapshot = snapshot.parse().map_err(|error| Error::damaged(hidden, error))?;
        let token = Token { snapshot, guid, base, properties, backup, position };
        Ok(Some(Partial { hidden, head, token, origin: own.origin, is_new: row.target == hidden }))
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

    /// Keeps a hidden dataset for one receive, or for sending or discarding its content.
    pub(in crate::admin) fn occupy(self: &Arc<Self>, hidden: u64, name: &DatasetName) -> Result<Occupied> {
        match self.occupied.lock().insert(hidden) {
            true => Ok(Occupied { datasets: self.clone(), hidden }),
            false => Err(receiving(name)),
        }
    }
}

fn receiving(name: &DatasetName) -> Error {
    Error::Busy {
        name: name.to_string(),
        holder: "a stream is being received into it, or its partial state is being sent".into(),
    }
}
