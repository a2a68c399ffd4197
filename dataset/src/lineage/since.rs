//! What was written between two members of a line, from counters alone.
//!
//! What a member reaches and an older snapshot B does not is what it reaches, less what B reaches, plus what was dropped
//! of B's on the way: the blocks born not after B on the deadlists of all members after B.

use pool::units::Txg;

use super::deadlist;
use crate::{
    admin::{Error, Result},
    catalogue::{DatasetRow, SnapshotRow, Space, Transaction, snapshot_key},
};

/// A member of a line: a data set, or a snapshot.
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

/// The space of the blocks that `member` reaches and the snapshot `since` does not; `None` if that is none before it.
pub fn written_since(tx: &Transaction<'_>, member: Member, since: u64) -> Result<Option<Space>> {
    let base: SnapshotRow = tx.row(snapshot_key(since))?;
    let (mut at, mut dropped) = (member, Space::ZERO);
    let mut bound = Txg(u64::MAX);
    loop {
        let whole = deadlist::space_from(tx, at.deadlist, Txg::ZERO)?;
        dropped += whole - deadlist::space_from(tx, at.deadlist, base.createtxg)?;
        if at.previous == since {
            return Ok(Some(member.referenced - (base.referenced - dropped)));
        }
        if at.previous == 0 {
            return Ok(None);
        }
        let row: SnapshotRow = tx.row(snapshot_key(at.previous))?;
        if row.createtxg >= bound {
            return Err(Error::damaged(at.previous, "a snapshot that is not older than the one after it"));
        }
        if row.createtxg < base.createtxg {
            return Ok(None);
        }
        bound = row.createtxg;
        at = Member::from(&row);
    }
}
