//! The space written between two members of a line, from counters alone.
//!
//! The space that a member references and an older snapshot B does not is `referenced` of the member, minus
//! `referenced` of B, plus the blocks of B dropped in between: the blocks born at or before B on the deadlists of all
//! members after B.

use std::collections::BTreeMap;

use pool::units::Txg;

use super::deadlist;
use crate::{
    catalogue::{DatasetRow, SnapshotRow, Space, Transaction, snapshot_key},
    error::{Error, Result},
};

/// A dataset or a snapshot, with the counters that the sums need.
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

/// Computes the space written since snapshots. Queries for all members of a line walk the line once, not once per
/// member.
#[derive(Clone, Debug, Default)]
pub struct Since {
    /// For a snapshot and an older one: the space of the older snapshot dropped in between; `None` if not in the same
    /// line.
    known: BTreeMap<(u64, u64), Option<Space>>,
    /// The snapshot before the last member queried.
    last: u64,
}

impl Since {
    /// Forgets all results except those needed for the next member of the line.
    pub fn forget_all_but_last(&mut self) {
        self.known.retain(|(id, _), _| *id == self.last);
    }

    /// The space of the blocks in `member` but not in the snapshot `since`; `None` if `since` is not older in the same
    /// line.
    pub fn written(&mut self, tx: &Transaction<'_>, member: Member, since: u64) -> Result<Option<Space>> {
        let base: SnapshotRow = tx.row(snapshot_key(since))?;
        self.last = member.previous;
        let dropped = self.dropped(tx, member, since, base.createtxg)?;
        Ok(dropped.map(|dropped| member.referenced - (base.referenced - dropped)))
    }

    /// The space of the snapshot `since`, taken in `born`, that was dropped up to a member.
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
