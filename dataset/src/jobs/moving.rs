//! Common parts of the jobs that move chunks: regions are emptied step by step while the pool is in use, within a speed
//! limit. [`super::removal`], [`super::rebalance`], [`super::defragment`], [`super::resize`] and [`super::expansion`]
//! choose the regions. For the argument that nothing is lost see [`pool::txg::Vacating`] and the pool's `space`; the
//! walk is in [`super::copying`].
//!
//! At most one of these jobs is under way (JOB-1): a job refuses to begin beside another, and an import continues one
//! job. A separate row of the catalogue records a pause or a limit.
//!
//! # Blocks without a good copy
//!
//! A block without a good copy is recorded as damage, and copied as is: the copy is no worse. But if a block cannot be
//! read at all, or a node is lost with everything below, the data may be readable later. Then nothing changes places,
//! and the job ends.
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) requests the steps, and waits in between if a limit is
//! set ([`Moving::limit`]).

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;
use pool::{
    env::Nanos,
    error::Error as PoolError,
    format::{
        key::Key,
        label::{DEFRAGMENT, PACKED_CHUNKS, REBALANCE},
    },
    space::{Batch, Packs, Regions, Targets},
    txg::{Still, Vacating},
    units::Txg,
};

use super::{
    batches::{InBatches, under_way},
    copying::{Stepped, note_failed},
    job::Job,
    kind::Kind,
    record::{Detail, JobRecord, JobState, Reason, seconds_between},
};
use crate::catalogue::{DefragmentRow, MoveState, RebalanceRow, RemovalRow, ResizeRow, Row};
use crate::underway::moving::{Copying, Work};
use crate::underway::walk::Walk;
use crate::{
    admin::{Datasets, table::feature},
    error::Result,
};

/// The most attempts to move the blocks of the space maps out of regions. Each attempt takes one or a few commits;
/// without free space no number would suffice.
const TRIES: u32 = 1000;

/// Chunks that have changed places can be released once a table records so: one of this number of commits has space for
/// the table.
const COMMITS: u32 = 10;

/// The fields that the rows of all jobs share.
pub(crate) struct Common {
    pub(crate) state: MoveState,
    pub(crate) start: Nanos,
    pub(crate) end: Nanos,
    pub(crate) total: u64,
    pub(crate) copied: u64,
    pub(crate) errors: u64,
}

/// The result of a step of emptying regions.
pub(crate) enum Emptying {
    /// More steps follow. With the bytes copied, and the number of blocks without a good copy.
    Worked { copied: u64, errors: u64 },
    /// No step is possible now.
    Idle,
    /// The regions are empty, even of blocks that only older states refer to.
    Vacated,
    /// Some data cannot be read.
    Unreadable,
    /// Other regions have too little free space.
    NoRoom,
}

impl Work {
    /// Begins with other regions.
    pub(crate) fn begin(&mut self, batch: Option<Batch>) {
        *self = Work { copying: None, tries: 0, batch, packed: (0, 0) };
    }
}

impl From<MoveState> for JobState {
    fn from(state: MoveState) -> JobState {
        match state {
            MoveState::Running => JobState::Running,
            MoveState::Finished => JobState::Finished,
            MoveState::Canceled => JobState::Canceled,
            MoveState::Unreadable => JobState::Failed(Reason::Unreadable),
            MoveState::NoRoom => JobState::Failed(Reason::NoRoom),
        }
    }
}

/// The common part of all jobs that move chunks.
pub struct Moving<'a> {
    pub(super) datasets: &'a Datasets,
}

impl<'a> Moving<'a> {
    /// Continues the jobs that were under way when the pool was closed; called before anything is allocated.
    pub(crate) fn resume(&self) {
        self.datasets.load_throttles();
        self.datasets.removal().resume();
        self.datasets.resize().resume();
        // The feature is activated before such a row is written.
        if self.datasets.engine().is_active(REBALANCE) {
            self.resume_batches::<RebalanceRow>();
        }
        if self.datasets.engine().is_active(DEFRAGMENT) {
            self.resume_batches::<DefragmentRow>();
        }
    }

    /// Whether no other job is under way, so that the job of a running row may continue. A damaged catalogue may have
    /// several running rows: the others are ignored.
    pub(crate) fn is_only<R: Row>(&self, _row: &R) -> bool {
        let is_only = !self.is_under_way();
        if !is_only {
            tracing::warn!("the {} does not continue, because another job moves chunks", R::WHAT);
        }
        is_only
    }

    /// The row of a job, if readable.
    pub(crate) fn stored<R: Row>(&self, key: Key) -> Option<R> {
        self.datasets.read(|tx| Ok(tx.find::<R>(key)?.map(|(row, _)| row))).unwrap_or_else(|error| {
            tracing::warn!("whether a {} is in progress cannot be read: {error}", R::WHAT);
            None
        })
    }

    /// Whether a removal, resize, rebalance or defragmentation is under way, even paused.
    pub fn is_under_way(&self) -> bool {
        self.datasets.removal().is_under_way()
            || self.datasets.rebalance().is_under_way()
            || self.datasets.defragment().is_under_way()
            || self.datasets.resize().is_under_way()
    }

    /// Fails while a job empties regions, for jobs that would empty others.
    pub(crate) fn check_none(&self) -> Result<()> {
        let stop = |command: &str| format!("pool {command} -s");
        if self.datasets.removal().is_under_way() {
            return refused(under_way(RemovalRow::WHAT, &stop("remove")));
        }
        if self.datasets.rebalance().is_under_way() {
            return refused(under_way(RebalanceRow::WHAT, &stop(RebalanceRow::COMMAND)));
        }
        if self.datasets.defragment().is_under_way() {
            return refused(under_way(DefragmentRow::WHAT, &stop(DefragmentRow::COMMAND)));
        }
        if self.datasets.resize().is_under_way() {
            return refused(under_way(ResizeRow::WHAT, &stop("resize")));
        }
        self.datasets.expansion().check_none()
    }

    /// Whether the current job is paused.
    pub fn is_paused(&self) -> bool {
        self.datasets.throttle(Kind::Rebalance).is_paused()
    }

    /// The record of a job. The rate of a running job is that since the pool was opened.
    pub(crate) fn record(&self, kind: Kind, common: Common, detail: Detail) -> JobRecord {
        let Common { state, start, end, total, copied, errors } = common;
        let is_running = state == MoveState::Running;
        let (until, done) = match is_running {
            true => (self.datasets.now(), self.copied().saturating_sub(self.copied_before())),
            false => (end, copied),
        };
        let env = self.datasets.engine().env();
        let open = env.uptime().saturating_sub(self.datasets.jobs.opened).as_secs();
        let seconds = seconds_between(start, until).min(if is_running { open } else { u64::MAX });
        JobRecord {
            kind,
            state: if is_running && self.is_paused() { JobState::Paused } else { state.into() },
            begun: start,
            ended: end,
            seconds,
            rate: done.checked_div(seconds).unwrap_or(0),
            total,
            done: copied,
            repaired: 0,
            errors,
            limit: self.limit().filter(|_| is_running),
            detail,
        }
    }

    /// The limit in bytes per second, if set.
    pub fn limit(&self) -> Option<u64> {
        self.datasets.throttle(Kind::Rebalance).limit()
    }

    /// The bytes copied since the pool was opened.
    pub fn copied(&self) -> u64 {
        self.datasets.jobs.mover.copied.load(Ordering::Relaxed)
    }

    fn copied_before(&self) -> u64 {
        self.datasets.jobs.mover.copied_before.load(Ordering::Relaxed)
    }

    /// Excludes all other steps, starts and stops until dropped.
    pub(crate) fn work(&self) -> MutexGuard<'a, Work> {
        self.datasets.jobs.mover.work.lock()
    }

    /// Resumes the current job, with the given or the previous limit.
    pub(crate) fn go_on(&self, limit: Option<u64>) -> Result<()> {
        self.datasets.throttle(Kind::Rebalance).go_on(limit)
    }

    /// Sets the limit for a new job.
    pub(crate) fn set_limit(&self, limit: Option<u64>) -> Result<()> {
        self.datasets.jobs.mover.copied_before.store(self.copied(), Ordering::Relaxed);
        self.datasets.throttle(Kind::Rebalance).reset(limit)
    }

    pub(crate) fn pause(&self) -> Result<()> {
        self.datasets.throttle(Kind::Rebalance).pause()
    }

    /// Ends the pause of a job that was stopped: an expansion that waited for the job continues.
    pub(crate) fn lift_pause(&self) -> Result<()> {
        if self.is_paused() { self.go_on(None) } else { Ok(()) }
    }

    /// Activates a feature of the pool.
    pub(crate) fn activate(&self, feature: &'static str) -> Result<()> {
        self.datasets.check_feature(feature)?;
        Ok(self.datasets.engine().activate(feature)?)
    }

    /// Whether chunks may be packed: the feature is active, or is activated now because packing `is_needed`.
    pub(crate) fn may_pack(&self, is_needed: impl FnOnce() -> bool) -> Result<bool> {
        let engine = self.datasets.engine();
        // Checked first, because this is called in every step, and `is_needed` may examine all chunks.
        if engine.is_active(PACKED_CHUNKS) {
            return Ok(true);
        }
        if !is_needed() || !self.datasets.read(|tx| feature::is_enabled(tx, PACKED_CHUNKS))? {
            return Ok(false);
        }
        engine.activate(PACKED_CHUNKS)?;
        Ok(true)
    }

    /// Whether chunks are packed already or may be; changes nothing.
    pub(crate) fn could_pack(&self) -> Result<bool> {
        Ok(self.datasets.engine().is_active(PACKED_CHUNKS)
            || self.datasets.read(|tx| feature::is_enabled(tx, PACKED_CHUNKS))?)
    }

    /// Makes a step of emptying closed regions to the given vdevs: copies about `budget` bytes while the pool is held
    /// still, or makes a few commits.
    pub(crate) fn empty_step(
        &self,
        work: &mut Work,
        (from, to): (&Regions, &Targets),
        packs: Packs,
        budget: u64,
    ) -> Result<Emptying> {
        if work.copying.is_some() {
            return self.copy_step(work, budget);
        }
        match self.datasets.engine().vacate(from, to, packs) {
            Ok(Vacating::Working) => {
                work.tries += 1;
                if work.tries > TRIES {
                    return Ok(Emptying::NoRoom);
                }
            }
            Ok(Vacating::Waiting) => return Ok(Emptying::Idle),
            Ok(Vacating::Copying) => {
                work.tries = 0;
                let evacuation = self.datasets.engine().evacuation();
                let walk = Walk::begin(self.datasets, Txg::ZERO)?;
                work.copying = Some(Copying { evacuation, walk, is_unreadable: false });
            }
            Ok(Vacating::Vacated) => return Ok(Emptying::Vacated),
            Err(PoolError::OutOfSpace) => return Ok(Emptying::NoRoom),
            Err(error) => return Err(error.into()),
        }
        Ok(Emptying::Worked { copied: 0, errors: 0 })
    }

    fn copy_step(&self, work: &mut Work, budget: u64) -> Result<Emptying> {
        let worked = Ok(Emptying::Worked { copied: 0, errors: 0 });
        let Some(copying) = work.copying.as_mut() else { return worked };
        let still = self.datasets.engine().hold_still();
        if copying.walk.is_waiting() {
            return match copying.walk.is_through(self.datasets)? {
                true => self.change_places(work, still),
                false if copying.walk.is_waiting() => Ok(Emptying::Idle),
                false => worked,
            };
        }
        let Stepped { copied, failed, .. } =
            copying.walk.step(self.datasets, &still, budget, &|blocks| still.evacuate(blocks))?;
        if self.datasets.engine().storage().space.has_run_out() {
            return Ok(Emptying::NoRoom);
        }
        for (block, is_unread) in &failed {
            let as_it_is = still.evacuate_as_it_is(&block.pointer);
            copying.is_unreadable |= *is_unread || as_it_is.is_err();
        }
        drop(still);
        self.datasets.jobs.mover.copied.fetch_add(copied, Ordering::Relaxed);
        let errors = failed.len() as u64;
        note_failed(self.datasets, &failed.into_iter().map(|(block, _)| block).collect::<Vec<_>>())?;
        Ok(Emptying::Worked { copied, errors })
    }

    fn change_places(&self, work: &mut Work, still: Still<'_>) -> Result<Emptying> {
        let Some(copying) = work.copying.take() else { return Ok(Emptying::Idle) };
        if copying.is_unreadable {
            return Ok(Emptying::Unreadable);
        }
        match still.change_places(&copying.evacuation) {
            // No commit came in between.
            Ok(true) => work.packed = self.datasets.engine().storage().space.packing(),
            // A device may lack a copy: the copy restarts.
            Ok(false) => drop(self.datasets.engine().storage().space.unpair()),
            Err(PoolError::OutOfSpace) => return Ok(Emptying::NoRoom),
            Err(error) => return Err(error.into()),
        }
        Ok(Emptying::Worked { copied: 0, errors: 0 })
    }

    /// Releases the twins; false if chunks have changed places and no table records so yet. The caller does not hold
    /// the pool still.
    pub(crate) fn unpair(&self, work: &mut Work) -> bool {
        // A commit may be copying blocks with new references.
        let _still = self.datasets.engine().hold_still();
        let is_unpaired = self.datasets.engine().storage().space.unpair();
        if is_unpaired {
            work.copying = None;
        }
        is_unpaired
    }

    /// As `unpair`, after the commit that records the chunks' new places.
    ///
    /// # Errors
    /// If no table has space for the new places.
    pub(crate) fn unpair_settled(&self, work: &mut Work) -> Result<()> {
        for _ in 0..COMMITS {
            if self.unpair(work) {
                return Ok(());
            }
            self.datasets.engine().commit_anyway()?;
        }
        refused("the pool is too full to record moved blocks; free some space and try again".to_owned())
    }
}

pub(crate) fn refused<T>(problem: String) -> Result<T> {
    Err(PoolError::Request(problem).into())
}
