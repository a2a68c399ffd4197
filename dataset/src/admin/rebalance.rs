//! Rebalancing: chunks of vdevs that are fuller than others move to those, until all are about equally full. Which, is chosen
//! by the pool's `space::balance`; why nothing is lost when chunks change places is argued in [`pool::txg::Vacating`] and in
//! the pool's `space`; the steps are [`super::moving`]'s.
//!
//! It goes batch by batch: some chunks are closed, copied and change places with empty ones, and their regions are taken back
//! at once, though what lies there now rests for a few commits. Then others are chosen. So little is set aside at a time, and
//! whatever has changed places stays where it is, however the rebalance ends.
//!
//! That one is under way is a row of the catalogue. Which chunks are being moved is not: it is chosen anew.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the row is committed | no rebalance |
//! | while a batch is copied | the rebalance, which chooses again; the copies are free space |
//! | after chunks have changed places, before the table that says so is committed | the same |
//! | after that | the rebalance, which goes on from what is moved; empty chunks that rest where something was moved away |
//! | after the row says that it has ended | the rebalance as it has ended, and no chunk that is closed |

use pool::{
    format::{key::Key, label::REBALANCE},
    space::{Balanced, Imbalance},
};

use super::{
    datasets::{Datasets, Progress},
    error::Result,
    moving::{Emptying, Work, refused},
};
use crate::catalogue::{MoveState, POOL, RebalanceRow, kind};

const KEY: Key = Key::new(POOL, kind::REBALANCE, 0);

/// Chunks that have changed places are taken back when a table says so: one of so many commits finds room for it.
const COMMITS: u32 = 10;

/// How a rebalance stands: see [`RebalanceRow`].
pub type RebalanceStatus = RebalanceRow;

impl Datasets {
    /// How the rebalance stood when the pool was closed. To be called before anything is allocated.
    pub(super) fn resume_rebalance(&self) {
        *self.mover.rebalance.lock() = self.stored(KEY);
    }

    /// What a rebalance would move.
    pub fn imbalance(&self) -> Imbalance {
        self.engine().storage().space.imbalance()
    }

    /// Begins to rebalance, at `limit` bytes a second if there is one. One that is paused goes on, and one that is not gets
    /// another limit. Returns why there is nothing to move, and then does not begin.
    pub fn start_rebalance(&self, limit: Option<u64>) -> Result<Option<Balanced>> {
        self.engine().writable()?;
        let mut work = self.mover_work();
        if self.is_rebalancing() {
            if self.is_moving_paused() || limit.is_some() {
                return self.go_on(limit).map(|()| None);
            }
            return refused("a rebalance is under way; use pool rebalance -s to stop it".to_owned());
        }
        if self.is_removing() {
            return refused("a removal is under way; use pool remove -s to stop it".to_owned());
        }
        let Imbalance { bytes, reason, .. } = self.imbalance();
        if reason.is_some() {
            return Ok(reason);
        }
        self.activate_moving()?;
        self.activate_for_moving(REBALANCE)?;
        self.set_limit(limit)?;
        work.begin(None);
        self.put_rebalance(RebalanceRow { start: self.now(), total: bytes, ..Default::default() })?;
        Ok(None)
    }

    /// Has the rebalance wait that is under way, until it is started again. The chunks that it has not moved are chosen again
    /// then, and nothing is set aside until then.
    pub fn pause_rebalance(&self) -> Result<()> {
        self.engine().writable()?;
        let mut work = self.mover_work();
        match self.running_rebalance() {
            None => refused("no rebalance is under way".to_owned()),
            Some(_) if self.is_moving_paused() => refused("it is paused already".to_owned()),
            Some(row) => {
                self.let_go(&mut work)?;
                self.put_rebalance(row)?;
                self.pause_moving()
            }
        }
    }

    /// Gives the rebalance up that is under way. What it has moved stays where it is.
    pub fn stop_rebalance(&self) -> Result<()> {
        self.engine().writable()?;
        let mut work = self.mover_work();
        match self.running_rebalance() {
            None => refused("no rebalance is under way".to_owned()),
            Some(row) => self.end(&mut work, row, MoveState::Canceled),
        }
    }

    /// The rebalance that is under way, or the last one.
    pub fn rebalance_status(&self) -> Option<RebalanceStatus> {
        self.mover.rebalance.lock().clone()
    }

    /// Whether a rebalance is under way, be it paused or not.
    pub fn is_rebalancing(&self) -> bool {
        self.running_rebalance().is_some()
    }

    /// Does a step of the rebalance, if one is under way and not paused: copies about `budget` bytes while the pool is held
    /// still, or makes a few commits.
    pub fn rebalance_step(&self, budget: u64) -> Result<Progress> {
        let mut work = self.mover_work();
        let is_possible = self.engine().writable().is_ok() && !self.is_moving_paused();
        let Some(row) = self.running_rebalance().filter(|_| is_possible) else { return Ok(Progress::Idle) };
        let Some(batch) = work.batch.clone() else {
            let space = &self.engine().storage().space;
            match space.next_batch() {
                Some(batch) => {
                    self.engine().close(&batch.regions);
                    work.begin(Some(batch));
                }
                None => {
                    let is_full = space.imbalance().reason == Some(Balanced::NoRoom);
                    let state = if is_full { MoveState::NoRoom } else { MoveState::Finished };
                    self.end(&mut work, row, state)?;
                }
            }
            return Ok(Progress::Worked);
        };
        if self.is_moved(&work) {
            self.let_go(&mut work)?;
            self.put_rebalance(row)?;
            return Ok(Progress::Worked);
        }
        match self.empty_step(&mut work, (&batch.regions, &batch.targets), false, budget)? {
            Emptying::Worked { copied, errors } => {
                if let Some(row) = &mut *self.mover.rebalance.lock() {
                    (row.copied, row.errors) = (row.copied + copied, row.errors + errors);
                }
            }
            Emptying::Idle => return Ok(Progress::Idle),
            Emptying::Vacated => self.let_go(&mut work)?,
            Emptying::Unreadable => self.end(&mut work, row, MoveState::Unreadable)?,
            Emptying::NoRoom => self.end(&mut work, row, MoveState::NoRoom)?,
        }
        Ok(Progress::Worked)
    }

    /// Whether nothing that is allocated lies in the regions of the batch any more, and the table says so. What older states
    /// have there rests, whatever becomes of the regions.
    fn is_moved(&self, work: &Work) -> bool {
        let space = &self.engine().storage().space;
        let regions = work.batch.as_ref().map(|batch| &batch.regions);
        let is_done = regions.is_some_and(|regions| self.engine().has_changed_places(regions));
        is_done && !space.is_copying() && !space.is_switching()
    }

    fn end(&self, work: &mut Work, row: RebalanceRow, state: MoveState) -> Result<()> {
        self.let_go(work)?;
        self.put_rebalance(RebalanceRow { state, end: self.now(), ..row })
    }

    /// Takes the regions of the batch back, whatever lies there. Chunks that have changed places stay where they are.
    fn let_go(&self, work: &mut Work) -> Result<()> {
        let Some(batch) = work.batch.clone() else { return Ok(()) };
        for _ in 0..COMMITS {
            if self.unpair(work) && self.engine().reopen(&batch.regions) {
                work.begin(None);
                return Ok(());
            }
            // Chunks have changed places, and the next table says so.
            self.engine().commit_anyway()?;
        }
        refused("the pool is too full to tell where what was moved is; delete something, and try again".to_owned())
    }

    fn running_rebalance(&self) -> Option<RebalanceRow> {
        self.rebalance_status().filter(|row| row.state == MoveState::Running)
    }

    fn put_rebalance(&self, row: RebalanceRow) -> Result<()> {
        let stored = row.clone();
        self.run(move |tx| {
            tx.put(KEY, &stored, None);
            Ok(())
        })?;
        *self.mover.rebalance.lock() = Some(row);
        Ok(())
    }
}
