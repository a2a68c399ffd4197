//! Rebalance: moves chunks from fuller vdevs to emptier vdevs, until all are about equally full. The pool's
//! `space::balance` chooses the chunks, and argues that the rebalance ends; for everything else see [`super::batches`].
//!
//! Between vdevs with rows of different widths chunks are packed, if the pool permits: the feature is activated before
//! the first packed batch.

use parking_lot::Mutex;
use pool::{
    admin::Pool,
    env::Nanos,
    format::{key::Key, label::PACKED_CHUNKS},
    space::{Balanced, Imbalance, Packs},
};

use super::{
    batches::{InBatches, Next},
    job::{Job, Step},
    kind::Kind,
    moving::{Common, Moving},
    record::{Detail, JobRecord},
};
use crate::catalogue::{MoveState, POOL, RebalanceRow, kind};
use crate::underway::moving::Mover;
use crate::{
    admin::{Datasets, Progress},
    error::Result,
};

/// The status of a rebalance: see [`RebalanceRow`].
pub type RebalanceStatus = RebalanceRow;

impl InBatches for RebalanceRow {
    const KEY: Key = Key::new(POOL, kind::REBALANCE, 0);
    const COMMAND: &'static str = "rebalance";

    fn of(mover: &Mover) -> &Mutex<Option<RebalanceRow>> {
        &mover.rebalance
    }

    fn next(&self, datasets: &Datasets) -> Result<Next> {
        let space = &datasets.engine().storage().space;
        let may_pack = datasets.moving().could_pack()?;
        let Some(batch) = space.next_batch(may_pack) else {
            let is_short = space.imbalance(may_pack).reason == Some(Balanced::NoRoom);
            return Ok(Next::Over(if is_short { MoveState::NoRoom } else { MoveState::Finished }));
        };
        if batch.packs != Packs::Never {
            datasets.moving().activate(PACKED_CHUNKS)?;
        }
        Ok(Next::Batch(batch))
    }

    fn state(&self) -> MoveState {
        self.state
    }

    fn ended(self, state: MoveState, end: Nanos) -> RebalanceRow {
        RebalanceRow { state, end, ..self }
    }

    fn count(&mut self, copied: u64, errors: u64) {
        (self.copied, self.errors) = (self.copied + copied, self.errors + errors);
    }

    fn count_packed(&mut self, _packed: (usize, usize)) {}
}

/// The rebalance of a pool.
pub struct Rebalance<'a> {
    pub(super) datasets: &'a Datasets,
}

impl Job for Rebalance<'_> {
    fn kind(&self) -> Kind {
        Kind::Rebalance
    }

    /// Whether a rebalance is under way, even paused.
    fn is_under_way(&self) -> bool {
        self.datasets.moving().running::<RebalanceRow>().is_some()
    }

    fn step(&self, _pool: &Pool, budget: u64) -> Result<Step> {
        if !self.is_under_way() || self.datasets.moving().is_paused() {
            return Ok(Step::Idle);
        }
        Ok(match self.advance(budget)? {
            Progress::Worked => Step::Worked,
            Progress::Idle => self.datasets.a_while(),
        })
    }

    fn mover(&self) -> Option<Moving<'_>> {
        Some(self.datasets.moving())
    }

    /// Pauses the current rebalance until resumed. The chunks still to be moved are chosen again then, and no space is
    /// reserved meanwhile.
    fn pause(&self) -> Result<()> {
        self.datasets.moving().pause_batches::<RebalanceRow>()
    }

    /// Cancels the current rebalance. Moved chunks stay in their new places.
    fn stop(&self, _pool: &Pool) -> Result<()> {
        self.datasets.moving().stop_batches::<RebalanceRow>()
    }

    fn record(&self, _pool: &Pool) -> Result<Option<JobRecord>> {
        let Some(RebalanceRow { state, start, end, total, copied, errors }) = self.status() else { return Ok(None) };
        let common = Common { state, start, end, total, copied, errors };
        Ok(Some(self.datasets.moving().record(Kind::Rebalance, common, Detail::None)))
    }
}

impl Rebalance<'_> {
    /// The chunks that a rebalance would move.
    pub fn plan(&self) -> Result<Imbalance> {
        Ok(self.datasets.engine().storage().space.imbalance(self.datasets.moving().could_pack()?))
    }

    /// Starts a rebalance, with a limit in bytes per second, if any. A paused rebalance resumes; a running one gets the
    /// new limit. If there is nothing to move, returns the reason and does not start.
    pub fn start(&self, limit: Option<u64>) -> Result<Option<Balanced>> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        if self.datasets.moving().continue_batches::<RebalanceRow>(limit)? {
            return Ok(None);
        }
        self.datasets.moving().check_none()?;
        let Imbalance { bytes, reason, .. } = self.plan()?;
        if reason.is_some() {
            return Ok(reason);
        }
        let row = RebalanceRow { start: self.datasets.now(), total: bytes, ..Default::default() };
        self.datasets.moving().begin_batches(&mut work, limit, row)?;
        Ok(None)
    }

    /// The current rebalance, or the last.
    pub fn status(&self) -> Option<RebalanceStatus> {
        self.datasets.jobs.mover.rebalance.lock().clone()
    }

    /// Makes a step of the rebalance, if running: copies about `budget` bytes while the pool is held still, or makes a
    /// few commits.
    pub fn advance(&self, budget: u64) -> Result<Progress> {
        self.datasets.moving().batch_step::<RebalanceRow>(budget)
    }
}
