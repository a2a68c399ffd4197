//! Long holds on snapshots that a command reads as a whole.
//!
//! A command that reads a snapshot from beginning to end, such as a send, holds the snapshot (OpenZFS: a long hold). No
//! request can then take the snapshot out of its line: no destroy, with or without `-d`; no destroy of its dataset; no
//! destroy of the last clone, and no release of the last hold, after `-d`; no rollback; and no receive that replaces
//! the snapshot or follows a census. A hold names the snapshot by its id, so a rename or a promote is possible and does
//! not affect the hold.
//!
//! Finding the snapshots that a command needs takes many reads of the catalogue, and requests are carried out
//! meanwhile. The hold is taken afterwards, under the lock held while requests are carried out, and is refused if a
//! request has closed one of the snapshots since the look began ([`Looking`]). A request is checked under the same
//! lock, in syncing context, when the trees to be closed are known. So either a snapshot is held before a request is
//! checked, or the command looks again.
//!
//! Holds are in memory only: after a crash no command reads any more, and nothing is left behind. Holds serve the user,
//! not safety: even if a held tree were gone, no byte of another tree would be read; see [`pool::space::Seen`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use pool::env::Nanos;

use super::names::Names;
use crate::{
    catalogue::Transaction,
    error::{Error, Holder, Reader, Result},
    stream::Hold,
};

/// The held snapshots, by id.
#[derive(Debug, Default)]
pub(in crate::admin) struct LongHolds {
    held: Mutex<BTreeMap<u64, Vec<Entry>>>,
    next: AtomicU64,
    closings: Mutex<Closings>,
}

/// The trees closed while commands looked for snapshots.
#[derive(Debug, Default)]
struct Closings {
    /// The number of commands that are looking.
    looking: usize,
    /// The ids closed since the first of these commands began.
    closed: BTreeSet<u64>,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    reader: Arc<Reader>,
    since: Nanos,
}

impl LongHolds {
    /// Begins a look for snapshots to hold.
    pub(in crate::admin) fn look(self: &Arc<Self>) -> Looking {
        self.closings.lock().looking += 1;
        Looking(self.clone())
    }

    /// Records a tree closed by the current request.
    pub(in crate::admin) fn note_closed(&self, id: u64) {
        let mut closings = self.closings.lock();
        if closings.looking > 0 {
            closings.closed.insert(id);
        }
    }

    fn take(self: &Arc<Self>, ids: Vec<u64>, reader: &Arc<Reader>, since: Nanos) -> LongHold {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut held = self.held.lock();
        for id in &ids {
            held.entry(*id).or_default().push(Entry { number, reader: reader.clone(), since });
        }
        LongHold { holds: self.clone(), ids, number }
    }

    /// Refuses a transaction that closes a held snapshot.
    pub(in crate::admin) fn check(&self, tx: &Transaction<'_>, names: &Names) -> Result<()> {
        for id in tx.closes() {
            if let Some(holder) = self.holder(id, tx.now()) {
                // The name before the transaction.
                let name = names.of_snapshot(&tx.before(), id)?.to_string();
                return Err(Error::InUse { name, holder });
            }
        }
        Ok(())
    }

    /// The oldest holder of a snapshot.
    fn holder(&self, id: u64, now: Nanos) -> Option<Holder> {
        let held = self.held.lock();
        let Entry { reader, since, .. } = held.get(&id)?.first()?;
        Some(Holder { reader: Reader::clone(reader), age: now - since })
    }
}

/// A look at the catalogue for snapshots to hold.
#[derive(Debug)]
pub(in crate::admin) struct Looking(Arc<LongHolds>);

impl Looking {
    /// Whether none of the snapshots was closed since the look began.
    pub(in crate::admin) fn stands(&self, ids: &[u64]) -> bool {
        let closings = self.0.closings.lock();
        !ids.iter().any(|id| closings.closed.contains(id))
    }

    /// Holds snapshots found since the look began; `None` if one was closed. The caller has the lock held while
    /// requests are carried out.
    pub(in crate::admin) fn take(&self, ids: Vec<u64>, reader: &Arc<Reader>, since: Nanos) -> Option<LongHold> {
        self.stands(&ids).then(|| self.0.take(ids, reader, since))
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        let mut closings = self.0.closings.lock();
        closings.looking -= 1;
        if closings.looking == 0 {
            closings.closed.clear();
        }
    }
}

/// Holds snapshots until dropped.
#[derive(Debug)]
pub struct LongHold {
    holds: Arc<LongHolds>,
    ids: Vec<u64>,
    number: u64,
}

impl Hold for LongHold {}

impl Drop for LongHold {
    fn drop(&mut self) {
        let mut held = self.holds.held.lock();
        for id in &self.ids {
            if let Some(entries) = held.get_mut(id) {
                entries.retain(|entry| entry.number != self.number);
                if entries.is_empty() {
                    held.remove(id);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_held_until_the_last_holder_drops_it() {
        let holds = Arc::new(LongHolds::default());
        let reader = |command: &str| Arc::new(Reader { command: command.into(), process: Some(7), user: None });
        let first = holds.take(vec![1, 2], &reader("one"), 0);
        let second = holds.take(vec![2], &reader("two"), 5_000_000_000);
        let command = |id| holds.holder(id, 65_000_000_000).map(|holder| holder.reader.command);
        assert_eq!([1, 2, 3].map(command), [Some("one".into()), Some("one".into()), None]);
        drop(first);
        assert_eq!([1, 2].map(command), [None, Some("two".into())]);
        assert_eq!(holds.holder(2, 65_000_000_000).unwrap().to_string(), "'two' (process 7), for 60 s");
        drop(second);
        assert!(holds.held.lock().is_empty());
    }

    #[test]
    fn what_was_closed_since_it_was_looked_for_is_not_held() {
        let holds = Arc::new(LongHolds::default());
        let reader = Arc::default();
        holds.note_closed(1);
        let first = holds.look();
        holds.note_closed(2);
        let second = holds.look();
        assert!(first.take(vec![1, 3], &reader, 0).is_some());
        assert!(first.take(vec![3, 2], &reader, 0).is_none());
        assert!(holds.held.lock().is_empty(), "nothing is held of what is refused");
        drop(first);
        assert!(second.take(vec![2], &reader, 0).is_none());
        drop(second);
        assert!(holds.look().take(vec![2], &reader, 0).is_some());
    }
}
