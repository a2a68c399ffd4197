//! Defragmenting: chunks of data that are mostly holes are packed into fewer, and their regions are empty again. Which, is
//! chosen by the pool's `space::holes`; what packing is, and why nothing is lost by it, is argued in the pool's
//! `space::packing`; the rest is [`super::batches`]'s.
//!
//! It ends when no region more would come of it. While somebody goes on writing and deleting that may never be so: it also
//! ends when it has emptied twice as many regions as it set out to.
//!
//! When no batch can be chosen for want of room, the regions that were emptied last may still rest. They are waited for before
//! it is given up.

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
    Job, Kind, Step,
    batches::{InBatches, Next},
    moving::Mover,
};
use crate::admin::{Datasets, Progress, Result};
use crate::catalogue::{DefragmentRow, MoveState, POOL, kind};

/// How a defragmentation stands: see [`DefragmentRow`].
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

    /// Whether a defragmentation is under way, be it paused or not.
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

    fn limit(&self) -> Option<u64> {
        self.datasets.moving().limit()
    }

    fn handled(&self) -> u64 {
        self.datasets.moving().copied()
    }

    /// Has the defragmentation wait that is under way, until it is started again. The chunks that it has not packed are chosen
    /// again then, and nothing is set aside until then.
    fn pause(&self) -> Result<()> {
        self.datasets.moving().pause_batches::<DefragmentRow>()
    }

    /// Gives the defragmentation up that is under way. What it has moved stays where it is.
    fn stop(&self, _pool: &Pool) -> Result<()> {
        self.datasets.moving().stop_batches::<DefragmentRow>()
    }
}

impl Defragment<'_> {
    /// What a defragmentation would do.
    pub fn plan(&self) -> Fragmentation {
        self.datasets.engine().storage().space.holes(self.datasets.engine().available())
    }

    /// Begins to defragment, at `limit` bytes a second if there is one. One that is paused goes on, and one that is not gets
    /// another limit. Returns why there is nothing to do, and then does not begin.
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

    /// The defragmentation that is under way, or the last one.
    pub fn status(&self) -> Option<DefragmentStatus> {
        self.datasets.jobs.mover.defragment.lock().clone()
    }

    /// Does a step of the defragmentation, if one is under way and not paused: copies about `budget` bytes while the pool is
    /// held still, or makes a few commits.
    pub fn advance(&self, budget: u64) -> Result<Progress> {
        self.datasets.moving().batch_step::<DefragmentRow>(budget)
    }
}
