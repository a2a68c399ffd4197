//! What was written between two members of a line, from counters alone.
//!
//! What a member reaches and an older snapshot B does not is what it reaches, less what B reaches, plus what was dropped
//! of B's on the way: the blocks born not after B on the deadlists of all members after B.

use std::collections::BTreeMap;

use pool::units::Txg;

use super::deadlist;
use crate::{
    admin::{Error, Result},
    catalogue::{DatasetRow, SnapshotRow, Space, Transaction, snapshot_key},
};

/// A member of a line: a dataset, or a snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    referenced: Space,
    deadlist: u64,
    previous: u64,
}

impl From<&DatasetRow> for Member {
    fn from(row: &DatasetRow) -> Member {
        Member { referenced: row.referenced, deadlist: row.deadlist, previous: row.newest }
    }
}

impl From<&SnapshotRow> for Member {
    fn from(row: &SnapshotRow) -> Member {
        Member { referenced: row.referenced, deadlist: row.deadlist, previous: row.previous }
    }
}

/// Answers what was written since snapshots. Whoever asks about all members of a line walks along it once, not once for
/// each of them.
#[derive(Clone, Debug, Default)]
pub struct Since {
    /// By a snapshot and an older one: how much of the older one's was dropped in between, or that it is none before.
    known: BTreeMap<(u64, u64), Option<Space>>,
    /// The snapshot before the member that was asked about last.
    last: u64,
}

impl Since {
    /// Forgets what does not help with the member after the one that was asked about last.
    pub fn forget_all_but_last(&mut self) {
        self.known.retain(|(id, _), _| *id == self.last);
    }

    /// The space of the blocks that `member` reaches and the snapshot `since` does not; `None` if that is none before it.
    pub fn written(&mut self, tx: &Transaction<'_>, member: Member, since: u64) -> Result<Option<Space>> {
        let base: SnapshotRow = tx.row(snapshot_key(since))?;
        self.last = member.previous;
        let dropped = self.dropped(tx, member, since, base.createtxg)?;
        Ok(dropped.map(|dropped| member.referenced - (base.referenced - dropped)))
    }

    /// How much of what the snapshot `since`, taken in `born`, reaches was dropped after it, up to a member.
    fn dropped(&mut self, tx: &Transaction<'_>, member: Member, since: u64, born: Txg) -> Result<Option<Space>> {
        let mut way = vec![(None, member)];
        let (mut at, mut bound) = (member.previous, Txg(u64::MAX));
        let mut sum = loop {
            if at == since {
                break Some(Space::ZERO);
            }
            if at == 0 {
                break None;
            }
            if let Some(known) = self.known.get(&(at, since)) {
                break *known;
            }
            let row: SnapshotRow = tx.row(snapshot_key(at))?;
            if row.createtxg >= bound {
                return Err(Error::damaged(at, "a snapshot that is not older than the one after it"));
            }
            if row.createtxg < born {
                break None;
            }
            bound = row.createtxg;
            way.push((Some(at), Member::from(&row)));
            at = row.previous;
        };
        for (id, Member { deadlist, .. }) in way.into_iter().rev() {
            if let Some(sum) = &mut sum {
                *sum += deadlist::space_from(tx, deadlist, Txg::ZERO)? - deadlist::space_from(tx, deadlist, born)?;
            }
            if let Some(id) = id {
                self.known.insert((id, since), sum);
            }
        }
        Ok(sum)
    }
}
