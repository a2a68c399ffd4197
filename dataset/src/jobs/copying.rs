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

use pool::{
    error::Result as PoolResult,
    format::{key::Key, pointer::BlockPointer},
    txg::{CATALOGUE, Still, Suspect},
    units::Txg,
};

use crate::underway::walk::{Position, Walk};
use crate::{admin::Datasets, error::Result};
use crate::{
    catalogue::kind,
    lineage::arrival,
    scrub::{
        members,
        pass::{self, Budget, Part},
        repair,
    },
};

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
