//! Regions emptied batch by batch: what rebalancing and defragmenting have in common. Which chunks are next is theirs to say
//! ([`super::rebalance`], [`super::defragment`]); why nothing is lost when chunks change places or are packed is argued in
//! [`pool::txg::Vacating`] and in the pool's `space`; the steps are [`super::moving`]'s.
//!
//! Some chunks are closed, copied and moved, and their regions are taken back at once, though what lies there now rests for a
//! few commits. Then others are chosen. So little is set aside at a time, and whatever has moved stays where it is, however it
//! ends.
//!
//! That something is under way is a row of the catalogue. Which chunks are being moved is not: it is chosen anew.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the row is committed | nothing under way |
//! | while a batch is copied | the row, and it is chosen again; the copies are free space |
//! | after chunks have moved, before the table that says so is committed | the same |
//! | after that, before the row counts the batch | the row, which goes on from what has moved, and does not count this batch |
//! | after the row says that it has ended | it as it has ended, and no chunk that is closed |
//!
//! Chunks that have moved leave empty ones that rest; an import finds that in their rows.

use parking_lot::Mutex;
use pool::{
    env::Nanos,
    format::{key::Key, label::DEVICE_REMOVAL, label::REBALANCE},
    space::Batch,
};

use super::moving::{Emptying, Mover, Moving, Work, refused};
use crate::admin::{Datasets, Progress, Result};
use crate::catalogue::{MoveState, Row};

/// How something stands that goes batch by batch: a row of the catalogue.
pub(crate) trait InBatches: Row + Clone + Send + 'static {
    /// Where the row stands.
    const KEY: Key;
    /// The command that begins and ends it.
    const COMMAND: &'static str;

    /// Where it is kept in memory.
    fn of(mover: &Mover) -> &Mutex<Option<Self>>;
    /// What is next.
    fn next(&self, datasets: &Datasets) -> Result<Next>;
    /// How it stands.
    fn state(&self) -> MoveState;
    /// The same as it has ended.
    fn ended(self, state: MoveState, end: Nanos) -> Self;
    /// Counts what was copied, in bytes, and blocks without a good copy.
    fn count(&mut self, copied: u64, errors: u64);
    /// Counts how many chunks were packed, and into how many.
    fn count_packed(&mut self, packed: (usize, usize));
}

/// What is to be done next.
pub(crate) enum Next {
    /// These are emptied.
    Batch(Batch),
    /// Nothing; it has ended so.
    Over(MoveState),
}

impl Moving<'_> {
    /// How it stood when the pool was closed. To be called before anything is allocated.
    pub(crate) fn resume_batches<R: InBatches>(&self) {
        *R::of(&self.datasets.jobs.mover).lock() = self.stored(R::KEY);
    }

    /// Has it go on if it is paused, or at another limit; whether it was under way at all.
    pub(crate) fn continue_batches<R: InBatches>(&self, limit: Option<u64>) -> Result<bool> {
        match self.running::<R>() {
            None => Ok(false),
            Some(_) if self.is_paused() || limit.is_some() => self.go_on(limit).map(|()| true),
            Some(_) => refused(under_way(R::WHAT, &format!("pool {} -s", R::COMMAND))),
        }
    }

    /// Begins. That nothing else is moved was looked at.
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
            None => refused(format!("no {} is under way", R::WHAT)),
            Some(_) if self.is_paused() => refused("it is paused already".to_owned()),
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
            None => refused(format!("no {} is under way", R::WHAT)),
            Some(row) => self.end(&mut work, row, MoveState::Canceled),
        }
    }

    /// The row, if it is under way.
    pub(crate) fn running<R: InBatches>(&self) -> Option<R> {
        R::of(&self.datasets.jobs.mover).lock().clone().filter(|row| row.state() == MoveState::Running)
    }

    /// Does a step, if it is under way and not paused: copies about `budget` bytes while the pool is held still, or makes a
    /// few commits.
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

    /// Whether nothing that is allocated lies in the regions of a batch any more, and the table says so. What older states
    /// have there rests, whatever becomes of the regions.
    pub(crate) fn is_moved(&self, batch: &Batch) -> bool {
        let space = &self.datasets.engine().storage().space;
        self.datasets.engine().has_changed_places(&batch.regions) && !space.is_copying() && !space.is_switching()
    }

    fn end<R: InBatches>(&self, work: &mut Work, row: R, state: MoveState) -> Result<()> {
        let row = self.settle(work, row)?;
        self.put_batches(row.ended(state, self.datasets.now()))
    }

    /// Is done with the batch; the row that counts what has become of it.
    fn settle<R: InBatches>(&self, work: &mut Work, mut row: R) -> Result<R> {
        let packed = work.packed;
        self.let_go(work)?;
        row.count_packed(packed);
        Ok(row)
    }

    /// Takes the regions of the batch back, whatever lies there. Chunks that have moved stay where they are.
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

/// What is said to whoever wants something else moved.
pub(crate) fn under_way(what: &str, stop: &str) -> String {
    format!("a {what} is under way; use {stop} to stop it")
}
