//! Filling devices of mirrors with what they lack: a walk through everything that the pool refers to, as a scrub's, but one
//! that copies. What makes it safe is argued in [`pool::txg::Filling`]; why a walk in steps misses nothing while snapshots
//! come and go, in [`crate::scrub`].
//!
//! Nodes born before the devices lacked anything are passed over with all that hangs under them. What was destroyed and
//! waits to be freed is not walked, and still read when it is freed; so the walk ends only when all of that is gone.
//!
//! Nothing runs by itself: whoever owns the pool calls [`Datasets::resilver_step`] again and again. How far the walk has
//! come stands in memory only. It begins again when the pool was closed meanwhile, or another device has joined.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use pool::{
    env::Nanos,
    format::key::Key,
    space::OwnCursor,
    txg::{CATALOGUE, Filling, Still},
    units::Txg,
};

use super::{
    datasets::{Datasets, Progress},
    error::Result,
};
use crate::{
    catalogue::kind,
    scrub::{
        members,
        pass::{self, Part},
    },
};

/// How a resilver stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResilverStatus {
    /// When it began, and when it ended, if it has.
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
}

/// The resilver of an opened pool.
#[derive(Default)]
pub(super) struct Resilverer {
    walk: Mutex<Option<Walk>>,
    status: Mutex<Option<ResilverStatus>>,
    /// Snapshots have moved between data sets.
    has_moved: AtomicBool,
}

struct Walk {
    filling: Filling,
    /// The commit that it began with: what was born later is where it belongs.
    limit: Txg,
    position: Position,
}

#[derive(Clone, Copy)]
enum Position {
    Space(OwnCursor),
    Catalogue(Key),
    Datasets { dataset: u64, done: Txg, member: u64, at: Key },
    Freeing,
}

impl Position {
    const FIRST_DATASET: Position = Position::Datasets { dataset: 0, done: Txg::ZERO, member: 0, at: Key::MIN };
}

impl Datasets {
    /// The resilver that runs, or the last one since the pool was opened.
    pub fn resilver_status(&self) -> Option<ResilverStatus> {
        self.resilverer.status.lock().clone()
    }

    /// Does a step of the resilver, if there is something to fill: looks at about `budget` bytes while the pool is held
    /// still.
    pub fn resilver_step(&self, budget: u64) -> Result<Progress> {
        let mut walk = self.resilverer.walk.lock();
        let Some(filling) = self.engine().filling().filter(|_| self.engine().writable().is_ok()) else {
            *walk = None;
            return Ok(Progress::Idle);
        };
        if walk.as_ref().is_none_or(|walk| walk.filling != filling) {
            *walk = Some(self.begin_resilver(filling)?);
            return Ok(Progress::Worked);
        }
        let Some(walk) = walk.as_mut() else { return Ok(Progress::Idle) };
        if self.resilverer.has_moved.swap(false, Ordering::AcqRel)
            && matches!(walk.position, Position::Datasets { .. } | Position::Freeing)
        {
            walk.position = Position::FIRST_DATASET;
        }
        if matches!(walk.position, Position::Freeing) {
            return self.finish_resilver(walk);
        }
        let still = self.engine().hold_still();
        walk.position = match walk.position {
            Position::Space(from) => {
                let filled = still.fill_space(from, budget);
                self.count(filled.bytes, filled.mended, filled.lost);
                filled.next.map_or(Position::Catalogue(Key::MIN), Position::Space)
            }
            Position::Catalogue(from) => self.copy_catalogue(&still, walk, from, budget),
            position => self.copy_data_sets(&still, walk, position, budget)?,
        };
        Ok(Progress::Worked)
    }

    /// Snapshots are about to move between data sets: the walk goes through all of these again.
    pub(super) fn resilver_from_first_data_set(&self) {
        self.resilverer.has_moved.store(true, Ordering::Release);
    }

    fn begin_resilver(&self, filling: Filling) -> Result<Walk> {
        let limit = self.engine().commit_anyway()?;
        let total = self.engine().space_totals().allocated;
        let status = ResilverStatus { start: self.now(), end: 0, total, examined: 0, copied: 0, errors: 0 };
        *self.resilverer.status.lock() = Some(status);
        Ok(Walk { filling, limit, position: Position::Space(OwnCursor::default()) })
    }

    fn finish_resilver(&self, walk: &Walk) -> Result<Progress> {
        if self.freeing()? > 0 {
            return Ok(Progress::Idle);
        }
        if self.engine().filled(&walk.filling)?
            && let Some(status) = &mut *self.resilverer.status.lock()
        {
            status.end = self.now();
        }
        Ok(Progress::Worked)
    }

    fn copy_catalogue(&self, still: &Still<'_>, walk: &Walk, from: Key, budget: u64) -> Position {
        let Some((root, level)) = self.engine().catalogue().clean_root() else { return Position::FIRST_DATASET };
        let (since, limit) = (walk.filling.since, walk.limit);
        let part = Part { tree: CATALOGUE, root, level, after: Txg::ZERO, since, limit, from };
        // The other blocks are the roots of trees.
        match self.copy(still, &part, budget, |key| key.kind == kind::PAGE) {
            Key::MAX => Position::FIRST_DATASET,
            next => Position::Catalogue(next),
        }
    }

    fn copy_data_sets(&self, still: &Still<'_>, walk: &Walk, position: Position, budget: u64) -> Result<Position> {
        let Position::Datasets { dataset, done, member: before, at } = position else { return Ok(position) };
        let found = self.read(|tx| members::next_member(tx, dataset, done))?.filter(|_| dataset != 0);
        let Some(member) = found else { return self.after_data_set(dataset) };
        // The tree that the step before was at may have become a snapshot; then its keys are done there too.
        let from = if member.id == before || before == dataset { at } else { Key::MIN };
        let (since, limit) = (walk.filling.since, walk.limit);
        let part = Part { tree: member.id, root: member.root, level: member.level, after: done, since, limit, from };
        match (self.copy(still, &part, budget, |_| true), member.taken) {
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

    /// Copies a part of a tree; the key from which to go on.
    fn copy(&self, still: &Still<'_>, part: &Part, budget: u64, is_meant: impl Fn(Key) -> bool) -> Key {
        let found = pass::collect(self.engine(), part, budget, is_meant);
        let (mut copied, mut errors) = (0, 0);
        for block in &found.suspects {
            match still.fill(&block.pointer) {
                Ok(bytes) => copied += bytes,
                Err(error) => {
                    tracing::warn!("resilver: {error}");
                    errors += 1;
                }
            }
        }
        self.count(found.bytes, copied, errors);
        found.next.unwrap_or(Key::MAX)
    }

    fn count(&self, examined: u64, copied: u64, errors: u64) {
        if let Some(status) = &mut *self.resilverer.status.lock() {
            status.examined += examined;
            status.copied += copied;
            status.errors += errors;
        }
    }
}
