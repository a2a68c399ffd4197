//! A walk through everything that the pool refers to, to copy what lies in some places to others: to devices of mirrors that
//! lack it ([`super::resilver`]), or away from a vdev that is to leave ([`super::removal`]). What makes that safe is argued
//! in [`pool::txg`], `fill` and `evacuate`; why a walk in steps misses nothing while snapshots come and go, in
//! [`crate::scrub`].
//!
//! What was destroyed and waits to be freed is not walked, and still read when it is freed; so the walk ends only when all of
//! that is gone.
//!
//! Blocks may come to stand where the walk has been already, and vanish from where it has not:
//!
//! * What a file takes a reference to is copied by the commit that writes the reference: see `pool::txg::sync`.
//! * A promotion moves snapshots: the datasets are walked again, and the transaction that moves them says so.
//! * A stream that was landing when the walk began takes the place of a dataset that may lie behind: when it has landed, the
//!   datasets are walked again. What lands in one that begins later is younger than the walk.

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
        members, mend,
        pass::{self, Budget, Part},
    },
};

/// How often snapshots have moved between datasets. Counted where the catalogue is changed, so while nobody holds the pool
/// still.
#[derive(Clone, Default)]
pub(crate) struct Moved(Arc<AtomicU64>);

impl Moved {
    /// To be called by a transaction that moves snapshots between datasets: walks go through all of these again.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

/// A walk, and how far it has come.
#[derive(Clone)]
pub(crate) struct Walk {
    /// Blocks born up to then need no copy.
    since: Txg,
    /// The commit that it began with: what was born later is where it belongs.
    limit: Txg,
    /// The streams that were landing then.
    landing: BTreeSet<u64>,
    moved: u64,
    position: Position,
}

/// Where a walk goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// With the catalogue, whose keys below this one are done.
    Catalogue(Key),
    /// With the datasets: those before this one are done, and of it what was born up to `done`, and of its `member` the keys
    /// below `at`.
    Datasets { dataset: u64, done: Txg, member: u64, at: Key },
    /// Everything was walked but what waits to be freed.
    Through,
}

/// Copies blocks, and says of each how many bytes that were.
pub(crate) type Copy<'a> = &'a dyn Fn(&[BlockPointer]) -> Vec<PoolResult<u64>>;

/// What a step has come to.
#[derive(Default)]
pub(crate) struct Stepped {
    /// Bytes looked at, all copies counted.
    pub(crate) examined: u64,
    /// Bytes copied.
    pub(crate) copied: u64,
    /// Blocks that could not be copied, and whether something below them was passed over.
    pub(crate) failed: Vec<(Suspect, bool)>,
}

impl Position {
    const FIRST_DATASET: Position = Position::Datasets { dataset: 0, done: Txg::ZERO, member: 0, at: Key::MIN };
}

impl Walk {
    /// Begins with a commit, and passes over what was born up to `since`.
    pub(crate) fn begin(datasets: &Datasets, since: Txg) -> Result<Walk> {
        let limit = datasets.engine().commit_anyway()?;
        let landing = datasets.read(arrival::hidden)?.into_iter().collect();
        let position = Position::Catalogue(Key::MIN);
        Ok(Walk { since, limit, landing, moved: datasets.jobs.moved.count(), position })
    }

    /// Goes on where another walk had come in the state that was found when the pool was opened. Whoever lands something now may
    /// have done so since that one began.
    pub(crate) fn resumed(datasets: &Datasets, since: Txg, limit: Txg, position: Position) -> Result<Walk> {
        let landing = datasets.read(arrival::hidden)?.into_iter().collect();
        Ok(Walk { since, limit, landing, moved: datasets.jobs.moved.count(), position })
    }

    /// The commit that it began with.
    pub(crate) fn limit(&self) -> Txg {
        self.limit
    }

    /// Where it goes on by the catalogue as `tx` has it, where snapshots have moved so often.
    pub(crate) fn position_in(&self, tx: &Transaction<'_>, moved: &Moved) -> Result<Position> {
        let mut walk = self.clone();
        walk.go_back_if(arrival::hidden(tx)?, moved.count());
        Ok(walk.position)
    }

    /// Whether everything was walked, and nothing waits to be freed. The pool is held still.
    pub(crate) fn is_through(&mut self, datasets: &Datasets) -> Result<bool> {
        self.look_back(datasets)?;
        Ok(matches!(self.position, Position::Through) && datasets.freeing()? == 0)
    }

    /// Whether everything was walked but what waits to be freed.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.position, Position::Through)
    }

    /// Has about `budget` bytes copied.
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

    /// Begins with the datasets again if trees have come to stand where the walk may have been.
    fn look_back(&mut self, datasets: &Datasets) -> Result<()> {
        self.go_back_if(datasets.read(arrival::hidden)?, datasets.jobs.moved.count());
        Ok(())
    }

    /// The same if these datasets are hidden and snapshots have moved so often.
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
        // One that is being changed was not committed: that is tried again.
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
        // The other blocks are the roots of trees.
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
        // The tree that the step before was at may have become a snapshot; then its keys are done there too.
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

/// Finds out what is lost with blocks that could not be copied, and notes it.
pub(super) fn note_failed(datasets: &Datasets, failed: &[Suspect]) -> Result<()> {
    let mut lost = Vec::new();
    for suspect in failed {
        lost.extend(mend::mend(datasets.engine(), suspect, false)?.damage);
    }
    datasets.note_damage(lost)
}

/// Has a part of a tree copied; the key from which to go on.
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
            // What is below a node that could not be read was passed over, though it can be read by now.
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
