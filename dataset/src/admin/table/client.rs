//! The syncing context: records the written trees, and then carries out requests.
//!
//! All trees written in a txg show the same instant, and requests follow. So a snapshot of many datasets, taken by one
//! request, shows one instant.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;
use pool::{
    error::{Error as PoolError, Result as PoolResult},
    txg::{ResilverNote, Sync, SyncClient, Written},
    units::Txg,
};

use super::{format, long_hold::LongHolds, opened::OpenTable};
use crate::{
    catalogue::{Effect, Transaction},
    error::{Error, Result},
    lineage::{reference, written},
    underway::cursor::Cursor,
};

type Task = Box<dyn FnOnce(&mut Sync<'_>, &mut OpenTable) -> PoolResult<()> + Send>;

/// Takes part in every sync.
#[derive(Default)]
pub(in crate::admin) struct Client {
    queue: Mutex<VecDeque<(Txg, Task)>>,
    /// The open datasets. Locked while requests are carried out, so that no dataset is opened meanwhile.
    pub(in crate::admin) table: Mutex<OpenTable>,
    /// The snapshots that commands read as a whole.
    pub(in crate::admin) holds: Arc<LongHolds>,
    /// The position of a resilver, from which an import can continue.
    pub(in crate::admin) cursor: Mutex<Option<Cursor>>,
}

/// The place for a request's answer.
pub(in crate::admin) struct Ticket<T>(Arc<Mutex<Option<Result<T>>>>);

impl<T> Ticket<T> {
    /// Stores the answer.
    pub(in crate::admin) fn leave(&self, answer: Result<T>) {
        *self.0.lock() = Some(answer);
    }

    /// The answer, once the request was carried out.
    pub(in crate::admin) fn take(&self) -> Option<Result<T>> {
        self.0.lock().take()
    }
}

impl<T> Default for Ticket<T> {
    fn default() -> Ticket<T> {
        Ticket(Arc::default())
    }
}

impl<T> Clone for Ticket<T> {
    fn clone(&self) -> Ticket<T> {
        Ticket(self.0.clone())
    }
}

impl Client {
    /// Queues a request for the write of `txg`, the open txg; its answer goes to the ticket.
    pub(in crate::admin) fn enqueue<T, F>(
        &self,
        txg: Txg,
        request: Arc<Mutex<F>>,
        answered: impl FnOnce(Result<T>) + Send + 'static,
    ) where
        F: FnMut(&mut Transaction<'_>) -> Result<T> + Send + 'static,
    {
        let holds = self.holds.clone();
        let task: Task = Box::new(move |sync, table| {
            let answer = written::transact(sync, |tx| (request.lock())(tx));
            let answer = match answer {
                Ok((value, effects)) => {
                    carry_out(sync, table, &holds, effects)?;
                    Ok(value)
                }
                Err(error) => Err(error),
            };
            answered(answer);
            Ok(())
        });
        self.queue.lock().push_back((txg, task));
    }

    /// The requests of a txg, in the order of arrival.
    fn due(&self, txg: Txg) -> Vec<Task> {
        let mut queue = self.queue.lock();
        let mut due = Vec::new();
        while queue.front().is_some_and(|(queued, _)| *queued <= txg) {
            due.extend(queue.pop_front().map(|(_, task)| task));
        }
        due
    }
}

impl SyncClient for Client {
    fn sync(&self, sync: &mut Sync<'_>, written: Vec<Written>) -> PoolResult<()> {
        written::take_over_all(sync, written).map_err(into_pool)?;
        let mut table = self.table.lock();
        for task in self.due(sync.txg()) {
            task(sync, &mut table)?;
        }
        table.refresh(sync).map_err(into_pool)
    }

    fn resilvering(&self, sync: &mut Sync<'_>) -> Option<ResilverNote> {
        let cursor = self.cursor.lock().clone()?;
        cursor
            .note(sync)
            .inspect_err(|error| tracing::warn!("how far the resilver has come is not noted: {error}"))
            .ok()
    }
}

fn carry_out(sync: &mut Sync<'_>, table: &mut OpenTable, holds: &LongHolds, effects: Vec<Effect>) -> PoolResult<()> {
    let mut free = Vec::new();
    for effect in effects {
        match effect {
            Effect::Free(block) => free.push(block),
            Effect::Format { id, owner } => {
                let root = format::first_tree(sync, owner)?;
                written::put_first(sync, id, root, 0).map_err(into_pool)?;
            }
            Effect::Replace { id, root, level } => table.replace(id, root, level),
            Effect::Close(id) => {
                table.close(sync.engine(), id);
                holds.note_closed(id);
            }
        }
    }
    reference::give_up(sync, free).map_err(into_pool)
}

fn into_pool(error: Error) -> PoolError {
    match error {
        Error::Pool(error) => error,
        other => PoolError::damaged("catalogue", other),
    }
}
