//! Filling devices of mirrors with what they lack: a walk through everything that the pool refers to, as a scrub's, but one
//! that copies. What makes it safe is argued in [`pool::txg::Filling`]; why a walk in steps misses nothing while snapshots
//! come and go, in [`crate::scrub`].
//!
//! Nodes born before the devices lacked anything are passed over with all that hangs under them. What was destroyed and
//! waits to be freed is not walked, and still read when it is freed; so the walk ends only when all of that is gone.
//!
//! Blocks may come to stand where the walk has been already, and vanish from where it has not:
//!
//! * What a file takes a reference to is copied by the commit that writes the reference: see `pool::txg::sync`.
//! * A promotion moves snapshots: the data sets are walked again, and the transaction that moves them says so.
//! * A stream that was landing when the walk began takes the place of a data set that may lie behind: when it has landed, the
//!   data sets are walked again. What lands in one that begins later is younger than the walk.
//!
//! # When there is nothing good to copy
//!
//! A block that no complete device gives is missing on the devices that are being filled, though one that is out of use may
//! have it, or the same one an hour later. Nobody becomes complete without it: a device that lacks it stays as it is, and
//! with it the one that it replaces. What is lost is noted as damage. The walk begins again when there is hope: when another
//! device has come or gone, or an operator has cleared the pool.
//!
//! Nothing runs by itself: whoever owns the pool calls [`Datasets::resilver_step`] again and again. How far the walk has
//! come stands in memory only. It begins again when the pool was closed meanwhile, or another device has joined.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;
use pool::{
    env::Nanos,
    format::key::Key,
    space::OwnCursor,
    txg::{CATALOGUE, Filling, Still, Suspect},
    units::Txg,
};

use super::{
    datasets::{Datasets, Progress},
    error::Result,
};
use crate::{
    catalogue::kind,
    lineage::arrival,
    scrub::{
        members, mend,
        pass::{self, Part},
    },
};

/// What became of a resilver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResilverState {
    /// It runs.
    Running,
    /// It has looked at everything.
    Finished,
    /// The devices have gone, or others have joined, before it came to its end.
    Canceled,
}

/// How a resilver stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResilverStatus {
    /// Whether it runs.
    pub state: ResilverState,
    /// When it began.
    pub start: Nanos,
    /// When it ended; 0 while it runs.
    pub end: Nanos,
    /// About how many bytes there are to look at.
    pub total: u64,
    /// How many of them it has looked at.
    pub examined: u64,
    /// Bytes copied.
    pub copied: u64,
    /// Blocks of which there was nothing good to copy.
    pub errors: u64,
    /// What it fills.
    filling: Filling,
}

/// The resilver of an opened pool.
#[derive(Default)]
pub(super) struct Resilverer {
    walk: Mutex<Option<Walk>>,
    status: Mutex<Option<ResilverStatus>>,
    /// Snapshots have moved between data sets. Set where the catalogue is changed, so while nobody holds the pool still.
    has_moved: Arc<AtomicBool>,
}

struct Walk {
    filling: Filling,
    /// The commit that it began with: what was born later is where it belongs.
    limit: Txg,
    /// The streams that were landing then.
    landing: BTreeSet<u64>,
    /// When the youngest block was born that could not be copied. Who lacked nothing that old lacks nothing now.
    failed: Txg,
    position: Position,
}

#[derive(Clone, Copy)]
enum Position {
    Space(OwnCursor),
    Catalogue(Key),
    Datasets {
        dataset: u64,
        done: Txg,
        member: u64,
        at: Key,
    },
    Freeing,
    /// Everything was walked, and something could not be copied.
    Ended,
}

impl Position {
    const FIRST_DATASET: Position = Position::Datasets { dataset: 0, done: Txg::ZERO, member: 0, at: Key::MIN };
}

impl Datasets {
    /// The resilver that runs, or the last one since the pool was opened.
    pub fn resilver_status(&self) -> Option<ResilverStatus> {
        self.resilverer.status.lock().clone()
    }

    /// Whether a resilver is at work, and not only a device that it could not make complete.
    pub fn is_resilvering(&self) -> bool {
        let is_running = self.resilver_status().is_some_and(|status| status.state == ResilverState::Running);
        is_running && self.engine().filling().is_some()
    }

    /// Does a step of the resilver, if there is something to fill: looks at about `budget` bytes while the pool is held
    /// still.
    pub fn resilver_step(&self, budget: u64) -> Result<Progress> {
        let mut walk = self.resilverer.walk.lock();
        let Some(filling) = self.engine().filling().filter(|_| self.engine().writable().is_ok()) else {
            *walk = None;
            self.end_resilver(ResilverState::Canceled);
            return Ok(Progress::Idle);
        };
        if walk.as_ref().is_none_or(|walk| walk.filling != filling) {
            self.end_resilver(ResilverState::Canceled);
            *walk = Some(self.begin_resilver(filling)?);
            return Ok(Progress::Worked);
        }
        let Some(walk) = walk.as_mut() else { return Ok(Progress::Idle) };
        let still = self.engine().hold_still();
        if matches!(walk.position, Position::Datasets { .. } | Position::Freeing) && self.has_moved(walk)? {
            walk.position = Position::FIRST_DATASET;
        }
        let mut failed = Vec::new();
        walk.position = match walk.position {
            Position::Space(from) => {
                let filled = still.fill_space(from, budget);
                self.count(filled.bytes, filled.mended, filled.lost);
                if filled.lost > 0 {
                    walk.failed = Txg::LIMIT;
                }
                filled.next.map_or(Position::Catalogue(Key::MIN), Position::Space)
            }
            Position::Catalogue(from) => self.copy_catalogue(&still, walk, from, budget, &mut failed),
            Position::Ended => return Ok(Progress::Idle),
            Position::Freeing => return self.finish_resilver(walk, still),
            position => self.copy_data_sets(&still, walk, position, budget, &mut failed)?,
        };
        drop(still);
        self.note_failed(&failed)?;
        Ok(Progress::Worked)
    }

    /// Whether a resilver has found nothing good to copy, and there is nothing new to try it with.
    pub fn is_resilver_stuck(&self) -> bool {
        let status =
            self.resilver_status().filter(|status| status.state == ResilverState::Finished && status.errors > 0);
        status.is_some_and(|status| self.engine().filling() == Some(status.filling))
    }

    /// Has a resilver that is stuck tried again: what had no good copy may be gone, or have one.
    pub fn try_resilver_again(&self) {
        if self.is_resilver_stuck() {
            *self.resilverer.walk.lock() = None;
        }
    }

    /// Has the resilver begin again from the beginning, if devices lack something.
    pub fn restart_resilver(&self) {
        *self.resilverer.walk.lock() = None;
    }

    /// To be set by a transaction that moves snapshots between data sets: the walk goes through all of these again.
    pub(super) fn resilver_moved(&self) -> Arc<AtomicBool> {
        self.resilverer.has_moved.clone()
    }

    fn begin_resilver(&self, filling: Filling) -> Result<Walk> {
        let limit = self.engine().commit_anyway()?;
        let landing = self.read(arrival::hidden)?.into_iter().collect();
        let (state, total) = (ResilverState::Running, self.engine().space_totals().allocated);
        let (start, filled) = (self.now(), filling.clone());
        let status = ResilverStatus { state, start, end: 0, total, examined: 0, copied: 0, errors: 0, filling: filled };
        *self.resilverer.status.lock() = Some(status);
        Ok(Walk { filling, limit, landing, failed: Txg::ZERO, position: Position::Space(OwnCursor::default()) })
    }

    /// Notes what became of the resilver, if one runs.
    fn end_resilver(&self, state: ResilverState) {
        if let Some(status) = self.resilverer.status.lock().as_mut().filter(|s| s.state == ResilverState::Running) {
            (status.state, status.end) = (state, self.now());
        }
    }

    /// Whether trees have come to stand where the walk may have been. The pool is held still.
    fn has_moved(&self, walk: &mut Walk) -> Result<bool> {
        let hidden: BTreeSet<u64> = self.read(arrival::hidden)?.into_iter().collect();
        let before = walk.landing.len();
        walk.landing.retain(|id| hidden.contains(id));
        let has_moved = self.resilverer.has_moved.swap(false, Ordering::AcqRel);
        Ok(has_moved || walk.landing.len() < before)
    }

    fn finish_resilver(&self, walk: &mut Walk, still: Still<'_>) -> Result<Progress> {
        if self.freeing()? > 0 {
            return Ok(Progress::Idle);
        }
        if still.filled(&walk.filling, walk.failed)? {
            self.end_resilver(ResilverState::Finished);
            walk.position = Position::Ended;
        }
        Ok(Progress::Worked)
    }

    fn copy_catalogue(
        &self,
        still: &Still<'_>,
        walk: &mut Walk,
        from: Key,
        budget: u64,
        failed: &mut Vec<Suspect>,
    ) -> Position {
        // One that is being changed was not committed: that is tried again.
        let Some((root, level)) = self.engine().catalogue().clean_root() else { return walk.position };
        let (since, limit) = (walk.filling.since, walk.limit);
        let part = Part { tree: CATALOGUE, root, level, after: Txg::ZERO, since, limit, from, to: Key::MAX };
        // The other blocks are the roots of trees.
        match self.copy(still, walk, &part, budget, |key| key.kind == kind::PAGE, failed) {
            Key::MAX => Position::FIRST_DATASET,
            next => Position::Catalogue(next),
        }
    }

    fn copy_data_sets(
        &self,
        still: &Still<'_>,
        walk: &mut Walk,
        position: Position,
        budget: u64,
        failed: &mut Vec<Suspect>,
    ) -> Result<Position> {
        let Position::Datasets { dataset, done, member: before, at } = position else { return Ok(position) };
        let found = self.read(|tx| members::next_member(tx, dataset, done))?.filter(|_| dataset != 0);
        let Some(member) = found else { return self.after_data_set(dataset) };
        // The tree that the step before was at may have become a snapshot; then its keys are done there too.
        let from = if member.id == before || before == dataset { at } else { Key::MIN };
        let (since, limit) = (walk.filling.since, walk.limit);
        let part = Part {
            tree: member.id,
            root: member.root,
            level: member.level,
            after: done,
            since,
            limit,
            from,
            to: Key::MAX,
        };
        match (self.copy(still, walk, &part, budget, |_| true, failed), member.taken) {
            (Key::MAX, None) => self.after_data_set(dataset),
            (Key::MAX, Some(taken)) => Ok(Position::Datasets { dataset, done: taken, member: 0, at: Key::MIN }),
            (next, _) => Ok(Position::Datasets { dataset, done, member: member.id, at: next }),
        }
    }

    fn after_data_set(&self, dataset: u64) -> Result<Position> {
        let next = self.read(|tx| match members::next_dataset(tx, dataset)? {
            Some(next) => Ok(Some((next, members::done_before(tx, next)?))),
            None => Ok(None),
        })?;
        let position = |(dataset, done)| Position::Datasets { dataset, done, member: 0, at: Key::MIN };
        Ok(next.map_or(Position::Freeing, position))
    }

    /// Copies a part of a tree; the key from which to go on. What could not be copied is added to `failed`.
    fn copy(
        &self,
        still: &Still<'_>,
        walk: &mut Walk,
        part: &Part,
        budget: u64,
        is_meant: impl Fn(Key) -> bool,
        failed: &mut Vec<Suspect>,
    ) -> Key {
        let found = pass::collect(self.engine(), part, budget, is_meant);
        let (mut copied, before) = (0, failed.len());
        for block in &found.suspects {
            match still.fill(&block.pointer) {
                // What is below a node that could not be read was passed over, though it can be read by now.
                Ok(_) if found.unread.contains(&block.place) => failed.push(*block),
                Ok(bytes) => copied += bytes,
                Err(error) => {
                    tracing::warn!("resilver: {error}");
                    failed.push(*block);
                }
            }
        }
        let births = failed[before..].iter().map(|block| block.pointer.birth);
        walk.failed = births.fold(walk.failed, Txg::max);
        self.count(found.bytes, copied, (failed.len() - before) as u64);
        found.next.unwrap_or(Key::MAX)
    }

    /// Finds out what is lost with blocks that could not be copied, and notes it.
    fn note_failed(&self, failed: &[Suspect]) -> Result<()> {
        let mut lost = Vec::new();
        for suspect in failed {
            lost.extend(mend::mend(self.engine(), suspect, false)?.damage);
        }
        self.note_damage(lost)
    }

    fn count(&self, examined: u64, copied: u64, errors: u64) {
        if let Some(status) = &mut *self.resilverer.status.lock() {
            status.examined += examined;
            status.copied += copied;
            status.errors += errors;
        }
    }
}
