//! The position of a walk that copies blocks. The walk itself is a job's; a commit records how far the walk has come.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use pool::{format::key::Key, units::Txg};

use crate::{catalogue::Transaction, error::Result, lineage::arrival};

/// Counts the moves of snapshots between datasets. Counted by the transactions, so not while the pool is held still.
#[derive(Clone, Default)]
pub(crate) struct Moved(Arc<AtomicU64>);

impl Moved {
    /// Called by a transaction that moves snapshots between datasets: running walks repeat the datasets.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A walk, with its position.
#[derive(Clone)]
pub(crate) struct Walk {
    /// Blocks born up to the txg need no copy.
    pub(crate) since: Txg,
    /// The commit with which the walk began: blocks born later are in place already.
    pub(crate) limit: Txg,
    /// The streams being received at that time.
    pub(crate) landing: BTreeSet<u64>,
    pub(crate) moved: u64,
    pub(crate) position: Position,
}

/// The position of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// In the catalogue; lower keys are done.
    Catalogue(Key),
    /// In the datasets: lower ids are done; of `dataset`, blocks born up to `done`; and of its `member`, keys below
    /// `at`.
    Datasets { dataset: u64, done: Txg, member: u64, at: Key },
    /// Everything was walked; pending frees are awaited.
    Through,
}

impl Position {
    pub(crate) const FIRST_DATASET: Position =
        Position::Datasets { dataset: 0, done: Txg::ZERO, member: 0, at: Key::MIN };
}

impl Walk {
    /// The position according to the catalogue in `tx`, given the moves of snapshots so far.
    pub(crate) fn position_in(&self, tx: &Transaction<'_>, moved: &Moved) -> Result<Position> {
        let mut walk = self.clone();
        walk.go_back_if(arrival::hidden(tx)?, moved.count());
        Ok(walk.position)
    }

    /// As `look_back`, for the given hidden datasets and number of moves.
    pub(crate) fn go_back_if(&mut self, hidden: Vec<u64>, moved: u64) {
        if matches!(self.position, Position::Catalogue(_)) {
            return;
        }
        let before = self.landing.len();
        self.landing.retain(|id| hidden.contains(id));
        if std::mem::replace(&mut self.moved, moved) != moved || self.landing.len() < before {
            self.position = Position::FIRST_DATASET;
        }
    }
}
