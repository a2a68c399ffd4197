//! Defragmentation: packs data chunks that are mostly holes into fewer chunks, and so empties their regions. The pool's
//! `space::holes` chooses the chunks; `space::packing` explains packing, and argues that nothing is lost; for
//! everything else see [`super::batches`].
//!
//! The defragmentation ends when no further region can be emptied. With constant writes and deletes that may never be
//! so: it also ends after emptying twice as many regions as planned.
//!
//! If no batch fits, recently emptied regions may still rest. These are awaited before the defragmentation ends.

use parking_lot::Mutex;
use pool::{
    admin::Pool,
    env::Nanos,
    format::{
        key::Key,
        label::{DEFRAGMENT, DEVICE_REMOVAL, PACKED_CHUNKS, REBALANCE},
    },
    space::{Dense, Fragmentation},
};

use super::{
    batches::{InBatches, Next},
    job::{Job, Step},
    kind::Kind,
    moving::{Common, Moving},
    record::{Detail, JobRecord},
};
use crate::catalogue::{DefragmentRow, MoveState, POOL, kind};
use crate::underway::moving::Mover;
use crate::{
    admin::{Datasets, Progress},
    error::Result,
};

/// The status of a defragmentation: see [`DefragmentRow`].
pub type DefragmentStatus = DefragmentRow;

impl InBatches for DefragmentRow {
    const KEY: Key = Key::new(POOL, kind::DEFRAGMENT, 0);
    const COMMAND: &'static str = "defragment";

    fn of(mover: &Mover) -> &Mutex<Option<DefragmentRow>> {
        &mover.defragment
    }

    fn next(&self, datasets: &Datasets) -> Result<Next> {
        let engine = datasets.engine();
        let space = &engine.storage().space;
        if self.emptied >= self.wanted.saturating_mul(2) {
            return Ok(Next::Over(MoveState::Finished));
        }
        if let Some(batch) = space.next_holes(engine.available()) {
            return Ok(Next::Batch(batch));
        }
        engine.outlast_states()?;
        Ok(match space.next_holes(engine.available()) {
            Some(batch) => Next::Batch(batch),
            None => match datasets.defragment().plan().reason {
                Some(Dense::NoRoom) => Next::Over(MoveState::NoRoom),
                _ => Next::Over(MoveState::Finished),
            },
        })
    }

    fn state(&self) -> MoveState {
        self.state
    }

    fn ended(self, state: MoveState, end: Nanos) -> DefragmentRow {
        DefragmentRow { state, end, ..self }
    }

    fn count(&mut self, copied: u64, errors: u64) {
        (self.copied, self.errors) = (self.copied + copied, self.errors + errors);
    }

    fn count_packed(&mut self, (packed, hosts): (usize, usize)) {
        (self.emptied, self.taken) = (self.emptied + packed as u64, self.taken + hosts as u64);
    }
}

/// The defragmentation of a pool.
pub struct Defragment<'a> {
    pub(super) datasets: &'a Datasets,
}

impl Job for Defragment<'_> {
    fn kind(&self) -> Kind {
        Kind::Defragment
    }

    /// Whether a defragmentation is under way, even paused.
    fn is_under_way(&self) -> bool {
        self.datasets.moving().running::<DefragmentRow>().is_some()
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

    /// Pauses the current defragmentation until resumed. The chunks still to be packed are chosen again then, and no
    /// space is reserved meanwhile.
    fn pause(&self) -> Result<()> {
        self.datasets.moving().pause_batches::<DefragmentRow>()
    }

    /// Cancels the current defragmentation. Moved chunks stay in their new places.
    fn stop(&self, _pool: &Pool) -> Result<()> {
        self.datasets.moving().stop_batches::<DefragmentRow>()
    }

    fn record(&self, _pool: &Pool) -> Result<Option<JobRecord>> {
        let Some(DefragmentRow { state, start, end, total, copied, errors, wanted, emptied, taken }) = self.status()
        else {
            return Ok(None);
        };
        let common = Common { state, start, end, total, copied, errors };
        let (packed, maps) = self.datasets.engine().storage().space.packed();
        let detail = Detail::Defragment { wanted, emptied, taken, packed: packed as u64, maps };
        Ok(Some(self.datasets.moving().record(Kind::Defragment, common, detail)))
    }
}

impl Defragment<'_> {
    /// The effect of a defragmentation, as far as known in advance.
    pub fn plan(&self) -> Fragmentation {
        self.datasets.engine().storage().space.holes(self.datasets.engine().available())
    }

    /// Starts a defragmentation, with a limit in bytes per second, if any. A paused defragmentation resumes; a running
    /// one gets the new limit. If there is nothing to do, returns the reason and does not start.
    pub fn start(&self, limit: Option<u64>) -> Result<Option<Dense>> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        if self.datasets.moving().continue_batches::<DefragmentRow>(limit)? {
            return Ok(None);
        }
        self.datasets.moving().check_none()?;
        let Fragmentation { bytes, chunks, reason, .. } = self.plan();
        if reason.is_some() {
            return Ok(reason);
        }
        [DEVICE_REMOVAL, REBALANCE, PACKED_CHUNKS, DEFRAGMENT]
            .into_iter()
            .try_for_each(|feature| self.datasets.moving().activate(feature))?;
        let row =
            DefragmentRow { start: self.datasets.now(), total: bytes, wanted: chunks.into(), ..Default::default() };
        self.datasets.moving().begin_batches(&mut work, limit, row)?;
        Ok(None)
    }

    /// The current defragmentation, or the last.
    pub fn status(&self) -> Option<DefragmentStatus> {
        self.datasets.jobs.mover.defragment.lock().clone()
    }

    /// Makes a step of the defragmentation, if running: copies about `budget` bytes while the pool is held still, or
    /// makes a few commits.
    pub fn advance(&self, budget: u64) -> Result<Progress> {
        self.datasets.moving().batch_step::<DefragmentRow>(budget)
    }
}
