//! A walk through everything that the pool refers to, copying blocks: to incomplete devices of mirrors
//! ([`super::resilver`]), or away from a vdev being removed ([`super::removal`]). For the argument of safety see
//! [`pool::txg`], `resilver` and `evacuate`; [`crate::scrub`] explains why a walk in steps misses nothing while
//! snapshots are taken and destroyed.
//!
//! Destroyed trees queued for freeing are not walked, yet are read when freed; so the walk ends only when the queue is
//! empty.
//!
//! Blocks may move from places still to be walked to places already walked:
//!
//! * A new reference of a file: the commit that writes the reference copies the block; see `pool::txg::sync`.
//! * A promotion moves snapshots: the promoting transaction notes so, and the datasets are walked again.
//! * A stream being received when the walk began may replace a dataset already walked: after the receive, the datasets
//!   are walked again. Later receives contain only blocks younger than the walk.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use pool::{
    error::Result as PoolResult,
    format::{key::Key, pointer::BlockPointer},
    txg::{CATALOGUE, Still, Suspect},
    units::Txg,
};

use crate::admin::{Datasets, Result};
use crate::{
    catalogue::{Transaction, kind},
    lineage::arrival,
    scrub::{
        members,
        pass::{self, Budget, Part},
        repair,
    },
};

/// Counts the moves of snapshots between datasets. Counted by the transactions, so not while the pool is held still.
#[derive(Clone, Default)]
pub(crate) struct Moved(Arc<AtomicU64>);

impl Moved {
    /// Called by a transaction that moves snapshots between datasets: running walks repeat the datasets.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A walk, with its position.
#[derive(Clone)]
pub(crate) struct Walk {
    /// Blocks born up to the txg need no copy.
    since: Txg,
    /// The commit with which the walk began: blocks born later are in place already.
    limit: Txg,
    /// The streams being received at that time.
    landing: BTreeSet<u64>,
    moved: u64,
    position: Position,
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

/// Copies blocks, and returns the bytes copied for each.
pub(crate) type Copy<'a> = &'a dyn Fn(&[BlockPointer]) -> Vec<PoolResult<u64>>;

/// The result of a step.
#[derive(Default)]
pub(crate) struct Stepped {
    /// Bytes examined, over all copies.
    pub(crate) examined: u64,
    /// Bytes written to the devices in resilver.
    pub(crate) copied: u64,
    /// Blocks that could not be copied; true if blocks below were skipped.
    pub(crate) failed: Vec<(Suspect, bool)>,
}

impl Position {
    const FIRST_DATASET: Position = Position::Datasets { dataset: 0, done: Txg::ZERO, member: 0, at: Key::MIN };
}

impl Walk {
    /// Begins with a commit; blocks born up to `since` are skipped.
    pub(crate) fn begin(datasets: &Datasets, since: Txg) -> Result<Walk> {
        let limit = datasets.engine().commit_anyway()?;
        let landing = datasets.read(arrival::hidden)?.into_iter().collect();
        let position = Position::Catalogue(Key::MIN);
        Ok(Walk { since, limit, landing, moved: datasets.jobs.moved.count(), position })
    }

    /// Continues at the position of another walk, recorded in the opened state. Any receive found now may have run
    /// since that walk began.
    pub(crate) fn resumed(datasets: &Datasets, since: Txg, limit: Txg, position: Position) -> Result<Walk> {
        let landing = datasets.read(arrival::hidden)?.into_iter().collect();
        Ok(Walk { since, limit, landing, moved: datasets.jobs.moved.count(), position })
    }

    /// The commit with which the walk began.
    pub(crate) fn limit(&self) -> Txg {
        self.limit
    }

    /// The position according to the catalogue in `tx`, given the moves of snapshots so far.
    pub(crate) fn position_in(&self, tx: &Transaction<'_>, moved: &Moved) -> Result<Position> {
        let mut walk = self.clone();
        walk.go_back_if(arrival::hidden(tx)?, moved.count());
        Ok(walk.position)
    }

    /// Whether everything was walked, and no frees are pending. The pool is held still.
    pub(crate) fn is_through(&mut self, datasets: &Datasets) -> Result<bool> {
        self.look_back(datasets)?;
        Ok(matches!(self.position, Position::Through) && datasets.freeing()? == 0)
    }

    /// Whether everything was walked except pending frees.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.position, Position::Through)
    }

    /// Copies about `budget` bytes.
    pub(crate) fn step(
        &mut self,
        datasets: &Datasets,
        still: &Still<'_>,
        budget: u64,
        copy: Copy<'_>,
    ) -> Result<Stepped> {
        self.look_back(datasets)?;
        let mut stepped = Stepped::default();
        match self.position {
            Position::Catalogue(from) => self.catalogue(still, from, budget, copy, &mut stepped),
            Position::Datasets { .. } => self.data_sets(datasets, still, budget, copy, &mut stepped)?,
            Position::Through => {}
        }
        Ok(stepped)
    }

    /// Restarts at the datasets if trees may have moved to places already walked.
    fn look_back(&mut self, datasets: &Datasets) -> Result<()> {
        self.go_back_if(datasets.read(arrival::hidden)?, datasets.jobs.moved.count());
        Ok(())
    }

    /// As `look_back`, for the given hidden datasets and number of moves.
    fn go_back_if(&mut self, hidden: Vec<u64>, moved: u64) {
        if matches!(self.position, Position::Catalogue(_)) {
            return;
        }
        let before = self.landing.len();
        self.landing.retain(|id| hidden.contains(id));
        if std::mem::replace(&mut self.moved, moved) != moved || self.landing.len() < before {
            self.position = Position::FIRST_DATASET;
        }
    }

    fn catalogue(&mut self, still: &Still<'_>, from: Key, budget: u64, copy: Copy<'_>, stepped: &mut Stepped) {
        // A changed catalogue is not committed yet: the next step retries.
        let Some((root, level)) = still.engine().catalogue().clean_root() else { return };
        let (since, limit) = (self.since, self.limit);
        let part = Part {
            tree: CATALOGUE,
            root,
            level,
            seen: still.seen(),
            after: Txg::ZERO,
            since,
            limit,
            from,
            to: Key::MAX,
        };
        // All other blocks are the roots of trees.
        self.position = match part_of(still, &part, budget, |key| key.kind == kind::PAGE, copy, stepped) {
            Key::MAX => Position::FIRST_DATASET,
            next => Position::Catalogue(next),
        };
    }

    fn data_sets(
        &mut self,
        datasets: &Datasets,
        still: &Still<'_>,
        budget: u64,
        copy: Copy<'_>,
        stepped: &mut Stepped,
    ) -> Result<()> {
        let Position::Datasets { dataset, done, member: before, at } = self.position else { return Ok(()) };
        let found = datasets.read(|tx| members::next_member(tx, dataset, done))?.filter(|_| dataset != 0);
        let Some(member) = found else { return self.after_data_set(datasets, dataset) };
        // The tree of the previous step may have become a snapshot; its keys are done there too.
        let from = if member.id == before || before == dataset { at } else { Key::MIN };
        let (since, limit) = (self.since, self.limit);
        let part = Part {
            tree: member.id,
            root: member.root,
            level: member.level,
            seen: still.seen(),
            after: done,
            since,
            limit,
            from,
            to: Key::MAX,
        };
        self.position = match (part_of(still, &part, budget, |_| true, copy, stepped), member.taken) {
            (Key::MAX, None) => return self.after_data_set(datasets, dataset),
            (Key::MAX, Some(taken)) => Position::Datasets { dataset, done: taken, member: 0, at: Key::MIN },
            (next, _) => Position::Datasets { dataset, done, member: member.id, at: next },
        };
        Ok(())
    }

    fn after_data_set(&mut self, datasets: &Datasets, dataset: u64) -> Result<()> {
        let next = datasets.read(|tx| match members::next_dataset(tx, dataset)? {
            Some(next) => Ok(Some((next, members::done_before(tx, next)?))),
            None => Ok(None),
        })?;
        let position = |(dataset, done)| Position::Datasets { dataset, done, member: 0, at: Key::MIN };
        self.position = next.map_or(Position::Through, position);
        Ok(())
    }
}

/// Determines and records the damage of blocks that could not be copied.
pub(super) fn note_failed(datasets: &Datasets, failed: &[Suspect]) -> Result<()> {
    let mut lost = Vec::new();
    for suspect in failed {
        lost.extend(repair::repair(datasets.engine(), suspect, false)?.damage);
    }
    datasets.note_damage(lost)
}

/// Copies a part of a tree; returns the key to continue at.
fn part_of(
    still: &Still<'_>,
    part: &Part,
    budget: u64,
    is_meant: impl Fn(Key) -> bool,
    copy: Copy<'_>,
    stepped: &mut Stepped,
) -> Key {
    let found = pass::collect(still.engine(), part, Budget::held_still(budget), is_meant);
    let pointers: Vec<BlockPointer> = found.suspects.iter().map(|block| block.pointer).collect();
    for (block, copied) in found.suspects.iter().zip(copy(&pointers)) {
        let is_unread = found.unread.contains(&block.place);
        match copied {
            // Everything below an unreadable node was skipped, even if the node is readable by now.
            Ok(_) if is_unread => stepped.failed.push((*block, true)),
            Ok(bytes) => stepped.copied += bytes,
            Err(error) => {
                tracing::warn!("a block cannot be copied: {error}");
                stepped.failed.push((*block, is_unread));
            }
        }
    }
    stepped.examined += found.bytes;
    found.next.unwrap_or(Key::MAX)
}
