//! What removing a vdev, rebalancing, defragmenting, resizing and expanding have in common: regions are emptied while everything is in
//! use, step by step, as fast as somebody wants. What is emptied and why is [`super::removal`]'s, [`super::rebalance`]'s,
//! [`super::defragment`]'s, [`super::resize`]'s and [`super::expansion`]'s; why nothing is lost is argued in [`pool::txg::Vacating`] and in the
//! pool's `space`; the walk is [`super::copying`]'s.
//!
//! One of them is under way at a time. That it is paused, or slowed down, is a row of the catalogue of its own.
//!
//! # When there is nothing good to copy
//!
//! What has no good copy is noted as damage, and copied as it is: it is no worse elsewhere. But if something cannot be read
//! at all, or the way to what is below a node is lost, it may be readable another time. Then nothing changes places, and
//! whoever wanted it gives up.
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) calls for step after step, and waits in between if there is a limit
//! ([`Moving::limit`]).

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use pool::{
    error::Error as PoolError,
    format::{
        key::Key,
        label::{DEFRAGMENT, PACKED_CHUNKS, REBALANCE},
    },
    space::{Batch, Packs, Regions, Targets},
    txg::{Evacuation, Still, Vacating},
    units::Txg,
};

use super::{
    Job,
    batches::{InBatches, under_way},
    copying::{Stepped, Walk, note_failed},
    resize::Obstacle,
};
use crate::admin::{Datasets, Result, feature};
use crate::catalogue::{DefragmentRow, POOL, PaceRow, RebalanceRow, RemovalRow, ResizeRow, Row, kind};

const PACE: Key = Key::new(POOL, kind::PACE, 0);

/// So often it is tried to get the space layer's own blocks out of regions. Each time is a commit, and some take a few; where
/// there is no room it is never enough.
const TRIES: u32 = 1000;

/// Chunks that have changed places are taken back when a table says so: one of so many commits finds room for it.
const COMMITS: u32 = 10;

/// What is moved in an opened pool.
#[derive(Default)]
pub(crate) struct Mover {
    /// Held for a step, and by whoever starts, pauses or stops.
    work: Mutex<Work>,
    /// How the removal stands. Read at any time, as the others.
    pub(crate) removal: Mutex<Option<RemovalRow>>,
    /// What it had copied when the pool was opened, in bytes.
    pub(crate) removed_before: AtomicU64,
    /// How the rebalance stands.
    pub(crate) rebalance: Mutex<Option<RebalanceRow>>,
    /// How the defragmentation stands.
    pub(crate) defragment: Mutex<Option<DefragmentRow>>,
    /// How the resize stands.
    pub(crate) resize: Mutex<Option<ResizeRow>>,
    /// Why that one waits, if it does.
    pub(crate) obstacle: Mutex<Option<Obstacle>>,
    pace: Mutex<PaceRow>,
    /// How many bytes were copied since the pool was opened.
    copied: AtomicU64,
}

/// How far it is.
#[derive(Default)]
pub(crate) struct Work {
    copying: Option<Copying>,
    /// How often it was tried to get the space layer's own blocks elsewhere.
    tries: u32,
    /// What is emptied at the moment, if it goes batch by batch, or part by part.
    pub(crate) batch: Option<Batch>,
    /// How many chunks of it were packed, and into how many.
    pub(crate) packed: (usize, usize),
}

struct Copying {
    evacuation: Evacuation,
    walk: Walk,
    /// Something could not be read at all.
    is_unreadable: bool,
}

/// What a step of emptying regions has come to.
pub(crate) enum Emptying {
    /// It goes on with another one. So much was copied, in bytes, and so many blocks were found without a good copy.
    Worked { copied: u64, errors: u64 },
    /// Nothing can be done now.
    Idle,
    /// Nothing is there any more, not even what older states refer to.
    Vacated,
    /// Something cannot be read.
    Unreadable,
    /// There is too little room elsewhere.
    NoRoom,
}

impl Work {
    /// Begins with other regions.
    pub(crate) fn begin(&mut self, batch: Option<Batch>) {
        *self = Work { copying: None, tries: 0, batch, packed: (0, 0) };
    }
}

/// What all jobs that move chunks have in common.
pub struct Moving<'a> {
    pub(super) datasets: &'a Datasets,
}

impl<'a> Moving<'a> {
    /// Goes on with what was under way when the pool was closed. To be called before anything is allocated.
    pub(crate) fn resume(&self) {
        self.datasets.removal().resume();
        self.datasets.resize().resume();
        // It is named before such a row is written.
        if self.datasets.engine().is_active(REBALANCE) {
            self.resume_batches::<RebalanceRow>();
            *self.datasets.jobs.mover.pace.lock() = self.stored(PACE).unwrap_or_default();
        }
        if self.datasets.engine().is_active(DEFRAGMENT) {
            self.resume_batches::<DefragmentRow>();
        }
    }

    /// A row about what is moved, if there is one that can be read.
    pub(crate) fn stored<R: Row>(&self, key: Key) -> Option<R> {
        self.datasets.read(|tx| Ok(tx.find::<R>(key)?.map(|(row, _)| row))).unwrap_or_else(|error| {
            tracing::warn!("whether a {} is under way cannot be read: {error}", R::WHAT);
            None
        })
    }

    /// Whether a vdev is removed or resized, or chunks are moved by a rebalance or a defragmentation, be it paused or not.
    pub fn is_under_way(&self) -> bool {
        self.datasets.removal().is_under_way()
            || self.datasets.rebalance().is_under_way()
            || self.datasets.defragment().is_under_way()
            || self.datasets.resize().is_under_way()
    }

    /// Refuses to empty other regions while some are emptied.
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

    /// Whether what is under way of these is paused.
    pub fn is_paused(&self) -> bool {
        self.datasets.jobs.mover.pace.lock().paused
    }

    /// How many bytes may be copied a second, if somebody has said so.
    pub fn limit(&self) -> Option<u64> {
        Some(self.datasets.jobs.mover.pace.lock().limit).filter(|limit| *limit > 0)
    }

    /// How many bytes were copied since the pool was opened.
    pub fn copied(&self) -> u64 {
        self.datasets.jobs.mover.copied.load(Ordering::Relaxed)
    }

    /// Nobody else does a step, starts or stops while this lives.
    pub(crate) fn work(&self) -> MutexGuard<'a, Work> {
        self.datasets.jobs.mover.work.lock()
    }

    /// Has it go on, with this limit or the one before.
    pub(crate) fn go_on(&self, limit: Option<u64>) -> Result<()> {
        let limit = limit.unwrap_or(self.datasets.jobs.mover.pace.lock().limit);
        self.set_pace(PaceRow { paused: false, limit })
    }

    /// Has it begin, with this limit or none.
    pub(crate) fn set_limit(&self, limit: Option<u64>) -> Result<()> {
        self.set_pace(PaceRow { paused: false, limit: limit.unwrap_or(0) })
    }

    pub(crate) fn pause(&self) -> Result<()> {
        let limit = self.datasets.jobs.mover.pace.lock().limit;
        self.set_pace(PaceRow { paused: true, limit })
    }

    fn set_pace(&self, pace: PaceRow) -> Result<()> {
        if *self.datasets.jobs.mover.pace.lock() == pace {
            return Ok(());
        }
        self.activate(REBALANCE)?;
        let stored = pace.clone();
        self.datasets.run(move |tx| {
            tx.put(PACE, &stored, None);
            Ok(())
        })?;
        *self.datasets.jobs.mover.pace.lock() = pace;
        Ok(())
    }

    /// Has the pool use a feature.
    pub(crate) fn activate(&self, feature: &'static str) -> Result<()> {
        self.datasets.check_feature(feature)?;
        Ok(self.datasets.engine().activate(feature)?)
    }

    /// Whether chunks may be packed: the pool does so already, or may begin to where that `is_needed`. Then the labels name
    /// the feature.
    pub(crate) fn may_pack(&self, is_needed: impl FnOnce() -> bool) -> Result<bool> {
        let engine = self.datasets.engine();
        // Asked at every step, and who needs it may have to look at all chunks.
        if engine.is_active(PACKED_CHUNKS) {
            return Ok(true);
        }
        if !is_needed() || !self.datasets.read(|tx| feature::is_enabled(tx, PACKED_CHUNKS))? {
            return Ok(false);
        }
        engine.activate(PACKED_CHUNKS)?;
        Ok(true)
    }

    /// Whether chunks are packed already, or may be: nothing is changed by asking.
    pub(crate) fn could_pack(&self) -> Result<bool> {
        Ok(self.datasets.engine().is_active(PACKED_CHUNKS)
            || self.datasets.read(|tx| feature::is_enabled(tx, PACKED_CHUNKS))?)
    }

    /// Does a step of emptying closed regions to these vdevs: copies about `budget` bytes while the pool is held still, or
    /// makes a few commits.
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
            // No commit has come between.
            Ok(true) => work.packed = self.datasets.engine().storage().space.packing(),
            // A device may lack what was copied: it begins again.
            Ok(false) => drop(self.datasets.engine().storage().space.unpair()),
            Err(PoolError::OutOfSpace) => return Ok(Emptying::NoRoom),
            Err(error) => return Err(error.into()),
        }
        Ok(Emptying::Worked { copied: 0, errors: 0 })
    }

    /// Takes the twins away again; false if chunks have changed places, and no table says so yet. Nobody holds the pool still.
    pub(crate) fn unpair(&self, work: &mut Work) -> bool {
        // A commit may be copying what files have taken references to.
        let _still = self.datasets.engine().hold_still();
        let is_unpaired = self.datasets.engine().storage().space.unpair();
        if is_unpaired {
            work.copying = None;
        }
        is_unpaired
    }

    /// The same, after the commit that says where chunks are that have changed places.
    ///
    /// # Errors
    /// If no table finds room to say so.
    pub(crate) fn unpair_settled(&self, work: &mut Work) -> Result<()> {
        for _ in 0..COMMITS {
            if self.unpair(work) {
                return Ok(());
            }
            self.datasets.engine().commit_anyway()?;
        }
        refused("the pool is too full to tell where what was moved is; delete something, and try again".to_owned())
    }
}

pub(crate) fn refused<T>(problem: String) -> Result<T> {
    Err(PoolError::Request(problem).into())
}
