//! Emptying regions in batches: the common part of rebalance and defragmentation. [`super::rebalance`] and
//! [`super::defragment`] choose the chunks; for the argument that nothing is lost see [`pool::txg::Vacating`] and the
//! pool's `space`; the steps are in [`super::moving`].
//!
//! Some chunks are closed, copied and moved, and their regions are reopened at once, although the old content rests for
//! a few commits. Then other chunks are chosen. So little space is reserved at a time, and moved chunks stay in their
//! new places, however the job ends.
//!
//! A row of the catalogue shows that a job is under way. The current batch is not stored: a batch is chosen again.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the row is committed | no job |
//! | while a batch is copied | the row, and a batch is chosen again; the copies are free space |
//! | after chunks have moved, before the table with the new places is committed | the same |
//! | after that, before the row counts the batch | the row, which continues from the new state, and does not count this batch |
//! | after the row records the end | a finished job, and no closed chunk |
//!
//! Moved chunks leave resting empty chunks behind; an import finds these in their rows.

use parking_lot::Mutex;
use pool::{
    env::Nanos,
    format::{key::Key, label::DEVICE_REMOVAL, label::REBALANCE},
    space::Batch,
};

use super::moving::{Emptying, Moving, refused};
use crate::catalogue::{MoveState, Row};
use crate::underway::moving::{Mover, Work};
use crate::{
    admin::{Datasets, Progress},
    error::Result,
};

/// The row of a job in batches.
pub(crate) trait InBatches: Row + Clone + Send + 'static {
    /// The key of the row.
    const KEY: Key;
    /// The command that starts and stops the job.
    const COMMAND: &'static str;

    /// The row in memory.
    fn of(mover: &Mover) -> &Mutex<Option<Self>>;
    /// The next batch, or why there is none now.
    fn next(&self, datasets: &Datasets) -> Result<Next>;
    /// The state recorded in the row.
    fn state(&self) -> MoveState;
    /// The row of the ended job.
    fn ended(self, state: MoveState, end: Nanos) -> Self;
    /// Adds bytes copied, and blocks without a good copy.
    fn count(&mut self, copied: u64, errors: u64);
    /// Adds packed chunks, and the chunks that received the data.
    fn count_packed(&mut self, packed: (usize, usize));
}

/// The next action of a job.
pub(crate) enum Next {
    /// Empty the regions of the batch.
    Batch(Batch),
    /// Nothing: the job has ended with the given state.
    Over(MoveState),
}

impl Moving<'_> {
    /// Loads the row of a job when the pool was opened; called before anything is allocated.
    pub(crate) fn resume_batches<R: InBatches>(&self) {
        let row = self.stored(R::KEY).filter(|row: &R| row.state() != MoveState::Running || self.is_only(row));
        *R::of(&self.datasets.jobs.mover).lock() = row;
    }

    /// Resumes a paused job, or changes its limit; false if the job is not under way.
    pub(crate) fn continue_batches<R: InBatches>(&self, limit: Option<u64>) -> Result<bool> {
        match self.running::<R>() {
            None => Ok(false),
            Some(_) if self.is_paused() || limit.is_some() => self.go_on(limit).map(|()| true),
            Some(_) => refused(under_way(R::WHAT, &format!("pool {} -s", R::COMMAND))),
        }
    }

    /// Starts a job. The caller has checked that no other job moves chunks.
    pub(crate) fn begin_batches<R: InBatches>(&self, work: &mut Work, limit: Option<u64>, row: R) -> Result<()> {
        self.activate(DEVICE_REMOVAL)?;
        self.activate(REBALANCE)?;
        self.set_limit(limit)?;
        work.begin(None);
        self.put_batches(row)
    }

    pub(crate) fn pause_batches<R: InBatches>(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.work();
        match self.running::<R>() {
            None => refused(format!("no {} is in progress", R::WHAT)),
            Some(_) if self.is_paused() => refused("it is already paused".to_owned()),
            Some(row) => {
                let row = self.settle(&mut work, row)?;
                self.put_batches(row)?;
                self.pause()
            }
        }
    }

    pub(crate) fn stop_batches<R: InBatches>(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.work();
        match self.running::<R>() {
            None => refused(format!("no {} is in progress", R::WHAT)),
            Some(row) => {
                self.end(&mut work, row, MoveState::Canceled)?;
                self.lift_pause()
            }
        }
    }

    /// The row, if the job is under way.
    pub(crate) fn running<R: InBatches>(&self) -> Option<R> {
        R::of(&self.datasets.jobs.mover).lock().clone().filter(|row| row.state() == MoveState::Running)
    }

    /// Makes a step, if the job is running: copies about `budget` bytes while the pool is held still, or makes a few
    /// commits.
    pub(crate) fn batch_step<R: InBatches>(&self, budget: u64) -> Result<Progress> {
        let mut work = self.work();
        let is_possible = self.datasets.engine().writable().is_ok() && !self.is_paused();
        let Some(row) = self.running::<R>().filter(|_| is_possible) else { return Ok(Progress::Idle) };
        let Some(batch) = work.batch.clone() else {
            match row.next(self.datasets)? {
                Next::Batch(batch) => {
                    self.datasets.engine().close(&batch.regions);
                    work.begin(Some(batch));
                }
                Next::Over(state) => self.end(&mut work, row, state)?,
            }
            return Ok(Progress::Worked);
        };
        if self.is_moved(&batch) {
            let row = self.settle(&mut work, row)?;
            self.put_batches(row)?;
            return Ok(Progress::Worked);
        }
        match self.empty_step(&mut work, (&batch.regions, &batch.targets), batch.packs, budget)? {
            Emptying::Worked { copied, errors } => {
                if let Some(row) = &mut *R::of(&self.datasets.jobs.mover).lock() {
                    row.count(copied, errors);
                }
            }
            Emptying::Idle => return Ok(Progress::Idle),
            Emptying::Vacated => self.let_go(&mut work)?,
            Emptying::Unreadable => self.end(&mut work, row, MoveState::Unreadable)?,
            Emptying::NoRoom => self.end(&mut work, row, MoveState::NoRoom)?,
        }
        Ok(Progress::Worked)
    }

    /// Whether nothing is allocated in the regions of a batch, and the table records so. Blocks of older states rest
    /// there, whatever happens to the regions.
    pub(crate) fn is_moved(&self, batch: &Batch) -> bool {
        let space = &self.datasets.engine().storage().space;
        self.datasets.engine().has_changed_places(&batch.regions) && !space.is_copying() && !space.is_switching()
    }

    fn end<R: InBatches>(&self, work: &mut Work, row: R, state: MoveState) -> Result<()> {
        let row = self.settle(work, row)?;
        self.put_batches(row.ended(state, self.datasets.now()))
    }

    /// Ends the batch; returns the row with the results counted.
    fn settle<R: InBatches>(&self, work: &mut Work, mut row: R) -> Result<R> {
        let packed = work.packed;
        self.let_go(work)?;
        row.count_packed(packed);
        Ok(row)
    }

    /// Reopens the regions of the batch, whatever their content. Moved chunks stay in their new places.
    fn let_go(&self, work: &mut Work) -> Result<()> {
        let Some(batch) = work.batch.clone() else { return Ok(()) };
        self.unpair_settled(work)?;
        self.datasets.engine().reopen(&batch.regions);
        work.begin(None);
        Ok(())
    }

    fn put_batches<R: InBatches>(&self, row: R) -> Result<()> {
        let stored = row.clone();
        self.datasets.run(move |tx| {
            tx.put(R::KEY, &stored, None);
            Ok(())
        })?;
        *R::of(&self.datasets.jobs.mover).lock() = Some(row);
        Ok(())
    }
}

/// The refusal for another job that would move chunks.
pub(crate) fn under_way(what: &str, stop: &str) -> String {
    format!("a {what} is in progress; use {stop} to stop it")
}
