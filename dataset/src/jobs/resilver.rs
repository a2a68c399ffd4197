//! Filling devices of mirrors with what they lack: a walk through everything that the pool refers to, as a scrub's, but one
//! that copies. What makes it safe is argued in [`pool::txg::Filling`].
//!
//! Nodes born before the devices lacked anything are passed over with all that hangs under them. The walk itself is
//! [`super::copying`]'s.
//!
//! # When there is nothing good to copy
//!
//! A block that no complete device gives is missing on the devices that are being filled, though one that is out of use may
//! have it, or the same one an hour later. Nobody becomes complete without it: a device that lacks it stays as it is, and
//! with it the one that it replaces. What is lost is noted as damage. The walk begins again when there is hope: when another
//! device has come or gone, or an operator has cleared the pool.
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) calls for step after step. How far the walk has
//! come stands in memory, and in each uberblock ([`super::cursor`]), so that it goes on there after an export or a crash. It
//! begins again when a device has come, gone, or come back since, and if it had found something that it could not copy.

use parking_lot::Mutex;
use pool::{
    admin::Pool,
    env::Nanos,
    format::pointer::BlockPointer,
    space::OwnCursor,
    txg::{Filling, Still},
    units::{Guid, Txg},
};

use super::{
    Job, Kind, Step,
    copying::{Stepped, Walk, note_failed},
    cursor::{Cursor, Noted, Shown},
    moving::refused,
    scrub::SPACE_STEP,
};
use crate::admin::{Datasets, Progress, Result};

/// So much is known one by one of what a resilver cannot copy. A test shall not need as much.
pub(crate) const LOST: usize = if cfg!(test) { 16 } else { 1 << 16 };

const NANOS: Nanos = 1_000_000_000;

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
    /// If it began before the pool was opened, and goes on: since when.
    pub resumed: Option<Resumed>,
    /// What it fills.
    filling: Filling,
}

/// That a resilver goes on which an earlier import has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// When it was taken over.
    pub at: Nanos,
    /// How many bytes it had looked at by then.
    pub examined: u64,
}

impl ResilverStatus {
    fn running(filling: Filling, shown: Shown) -> ResilverStatus {
        let Shown { start, total, examined, copied } = shown;
        let state = ResilverState::Running;
        ResilverStatus { state, start, end: 0, total, examined, copied, errors: 0, resumed: None, filling }
    }

    /// How many bytes it has looked at in one second on the average, as long as it has been at work since the pool was opened.
    /// `now` is the time of day if it runs.
    pub fn rate(&self, now: Nanos) -> u64 {
        let begun = self.resumed.unwrap_or(Resumed { at: self.start, examined: 0 });
        let examined = self.examined.saturating_sub(begun.examined);
        examined.checked_div(self.seconds_since(begun.at, now)).unwrap_or(0)
    }

    /// How many seconds it has taken, also with the pool closed. `now` is the time of day if it runs.
    pub fn seconds(&self, now: Nanos) -> u64 {
        self.seconds_since(self.start, now)
    }

    fn seconds_since(&self, begin: Nanos, now: Nanos) -> u64 {
        let end = if self.state == ResilverState::Running { now } else { self.end };
        u64::try_from(end.saturating_sub(begin) / NANOS).unwrap_or(0)
    }
}

/// The resilver of an opened pool.
#[derive(Default)]
pub(crate) struct Resilverer {
    running: Mutex<Option<Running>>,
    status: Mutex<Option<ResilverStatus>>,
}

struct Running {
    filling: Filling,
    /// When the youngest block was born that could not be copied. Who lacked nothing that old lacks nothing now.
    failed: Txg,
    /// What could not be copied, the first [`LOST`] of it, each with whether it is a node below which nothing was walked.
    lost: Vec<(BlockPointer, bool)>,
    /// Where the space layer's own blocks are to be gone on with.
    space: Option<OwnCursor>,
    /// What the intent log referred to when the pool was opened may be missing, too: what was born after this.
    missed: Missed,
    /// What is shown has counted these, though they are filled again.
    has_counted_space: bool,
    walk: Walk,
    /// Everything was walked, and something could not be copied.
    has_ended: bool,
}

/// What is gone over before a resilver goes on where an earlier import has left it.
enum Missed {
    Nothing,
    After(Txg),
    Walking(Walk),
}

impl Running {
    fn new(filling: Filling, walk: Walk) -> Running {
        let space = Some(OwnCursor::default());
        let (missed, lost) = (Missed::Nothing, Vec::new());
        Running { filling, failed: Txg::ZERO, lost, space, missed, has_counted_space: false, walk, has_ended: false }
    }
}

/// The resilver of a pool's devices.
pub struct Resilver<'a> {
    pub(super) datasets: &'a Datasets,
}

impl Job for Resilver<'_> {
    fn kind(&self) -> Kind {
        Kind::Resilver
    }

    /// Whether a resilver is at work, and not only a device that it could not make complete.
    fn is_under_way(&self) -> bool {
        let is_running = self.status().is_some_and(|status| status.state == ResilverState::Running);
        is_running && self.datasets.engine().filling().is_some()
    }

    fn step(&self, pool: &Pool, budget: u64) -> Result<Step> {
        if self.advance(budget)? == Progress::Worked {
            return Ok(Step::Worked);
        }
        if self.datasets.engine().writable().is_ok() {
            // Also what an earlier owner of the pool has left.
            pool.finish_replacing()?;
        }
        Ok(if self.is_under_way() { self.datasets.a_while() } else { Step::Idle })
    }

    fn pause(&self) -> Result<()> {
        refused("a resilver cannot be paused".to_owned())
    }

    fn stop(&self, _pool: &Pool) -> Result<()> {
        refused("a resilver cannot be stopped: devices lack what it copies".to_owned())
    }
}

impl Resilver<'_> {
    /// Goes on with the resilver that the state notes that was opened. To be called before anything is committed. One that
    /// cannot be gone on with begins again.
    pub(crate) fn resume(&self) {
        let found = self.datasets.engine().found();
        let filling = self.datasets.engine().filling().filter(|_| self.datasets.engine().writable().is_ok());
        let noted = filling.and_then(|filling| Some((Noted::found(found, &filling)?, filling)));
        let Some((noted, filling)) = noted else { return };
        let walk = match Walk::resumed(self.datasets, filling.since, noted.limit, noted.position) {
            Ok(walk) => walk,
            Err(error) => return tracing::warn!("the resilver begins again: {error}"),
        };
        let missed = if found.has_log { Missed::After(found.txg) } else { Missed::Nothing };
        let examined = noted.shown.examined;
        let resumed = Some(Resumed { at: self.datasets.now(), examined });
        let status = ResilverStatus { resumed, ..ResilverStatus::running(filling.clone(), noted.shown) };
        *self.datasets.jobs.resilverer.status.lock() = Some(status);
        // If it came further than through the space layer's own blocks, it has counted these.
        let running = Running { missed, has_counted_space: examined > 0, ..Running::new(filling, walk) };
        self.note_place(&running);
        *self.datasets.jobs.resilverer.running.lock() = Some(running);
    }

    /// Has a commit note how far the resilver has come, if none did since.
    pub fn save(&self) -> Result<()> {
        let newest = self.datasets.cursor().lock().as_ref().map(|cursor| cursor.committed);
        if newest == Some(self.datasets.engine().committed()) {
            self.datasets.engine().commit_anyway()?;
        }
        Ok(())
    }

    /// The resilver that runs, or the last one since the pool was opened.
    pub fn status(&self) -> Option<ResilverStatus> {
        self.datasets.jobs.resilverer.status.lock().clone()
    }

    /// Does a step of the resilver, if there is something to fill: looks at about `budget` bytes while the pool is held
    /// still.
    pub fn advance(&self, budget: u64) -> Result<Progress> {
        let mut running = self.datasets.jobs.resilverer.running.lock();
        let Some(filling) = self.datasets.engine().filling().filter(|_| self.datasets.engine().writable().is_ok())
        else {
            *running = None;
            self.end(ResilverState::Canceled);
            return Ok(Progress::Idle);
        };
        if running.as_ref().is_none_or(|running| running.filling != filling) {
            self.end(ResilverState::Canceled);
            let begun = self.begin(filling)?;
            self.note_place(&begun);
            *running = Some(begun);
            return Ok(Progress::Worked);
        }
        let Some(running) = running.as_mut().filter(|running| !running.has_ended) else { return Ok(Progress::Idle) };
        if let Missed::After(since) = running.missed {
            running.missed = Missed::Walking(Walk::begin(self.datasets, since)?);
            return Ok(Progress::Worked);
        }
        let still = self.datasets.engine().hold_still();
        if let Some(from) = running.space {
            let filled = still.fill_space(from, budget.min(SPACE_STEP));
            let (bytes, mended) = if running.has_counted_space { (0, 0) } else { (filled.bytes, filled.mended) };
            self.count(bytes, mended, filled.lost);
            if filled.lost > 0 {
                running.failed = Txg::LIMIT;
                self.note_place(running);
            }
            running.space = filled.next;
            return Ok(Progress::Worked);
        }
        if matches!(&running.missed, Missed::Walking(walk) if walk.is_waiting()) {
            running.missed = Missed::Nothing;
        }
        if running.walk.is_waiting() && matches!(running.missed, Missed::Nothing) {
            return match running.walk.is_through(self.datasets)? {
                true => self.finish(running, still),
                // There may be datasets to go through again.
                false if !running.walk.is_waiting() => Ok(Progress::Worked),
                false => Ok(Progress::Idle),
            };
        }
        let walk = match &mut running.missed {
            Missed::Walking(missed) => missed,
            _ => &mut running.walk,
        };
        let Stepped { examined, copied, failed } =
            walk.step(self.datasets, &still, budget, &|blocks| still.fill(blocks))?;
        drop(still);
        let births = failed.iter().map(|(block, _)| block.pointer.birth);
        running.failed = births.fold(running.failed, Txg::max);
        let room = LOST + 1 - running.lost.len();
        running.lost.extend(failed.iter().take(room).map(|(block, is_unread)| (block.pointer, *is_unread)));
        self.count(examined, copied, failed.len() as u64);
        self.note_place(running);
        note_failed(self.datasets, &failed.iter().map(|(block, _)| *block).collect::<Vec<_>>())?;
        Ok(Progress::Worked)
    }

    /// Whether a resilver has found nothing good to copy, and there is nothing new to try it with.
    pub fn is_stuck(&self) -> bool {
        let status = self.status().filter(|status| status.state == ResilverState::Finished && status.errors > 0);
        status.is_some_and(|status| self.datasets.engine().filling() == Some(status.filling))
    }

    /// Calls these devices complete although they lack what a resilver that is stuck found no good copy of: it is as lost
    /// on them as on the others, and noted as damage. All else they have: the walk has copied it, or it was written since, or
    /// it could not be read then and is copied now. Below a node that can be read by now nothing was walked, so the resilver
    /// begins again if there is one.
    ///
    /// # Errors
    /// If no resilver is stuck, devices have come or gone since, the resilver begins again, more is lost than is known one by
    /// one, or it is blocks of the space layer that are lost: to open the pool takes these.
    pub fn accept_losses(&self, devices: &[Guid]) -> Result<()> {
        let mut slot = self.datasets.jobs.resilverer.running.lock();
        let is_now = |running: &&Running| {
            running.has_ended && self.datasets.engine().filling().as_ref() == Some(&running.filling)
        };
        let Some(running) = slot.as_ref().filter(is_now) else {
            return refused("no resilver has come to its end with something left".to_owned());
        };
        if running.failed == Txg::LIMIT {
            return refused("blocks of the space maps have no good copy; pool scrub writes them anew".to_owned());
        }
        if running.lost.len() > LOST {
            return refused(format!("more than {LOST} blocks have no good copy"));
        }
        let still = self.datasets.engine().hold_still();
        let pointers: Vec<BlockPointer> = running.lost.iter().map(|(pointer, _)| *pointer).collect();
        let copied = still.fill(&pointers);
        if running.lost.iter().zip(&copied).any(|((_, is_unread), copied)| *is_unread && copied.is_ok()) {
            *slot = None;
            return refused("what could not be read can be by now, so the resilver begins again".to_owned());
        }
        let mut filling = running.filling.clone();
        filling.devices.retain(|lacking| devices.contains(&lacking.device));
        match still.filled(&filling, Txg::ZERO)? {
            true => Ok(()),
            false => refused("devices have come or gone meanwhile".to_owned()),
        }
    }

    /// Has a resilver that is stuck tried again: what had no good copy may be gone, or have one.
    pub fn try_again(&self) {
        if !self.is_stuck() {
            return;
        }
        let mut running = self.datasets.jobs.resilverer.running.lock();
        // It may have begun meanwhile.
        if self.is_stuck() {
            *running = None;
            // What came of it says nothing until it was tried: who waits for a resilver waits for that.
            *self.datasets.jobs.resilverer.status.lock() = None;
        }
    }

    /// Has the resilver begin again from the beginning, if devices lack something.
    pub fn restart(&self) {
        let mut running = self.datasets.jobs.resilverer.running.lock();
        *self.datasets.cursor().lock() = None;
        *running = None;
    }

    fn begin(&self, filling: Filling) -> Result<Running> {
        let walk = Walk::begin(self.datasets, filling.since)?;
        let (start, total) = (self.datasets.now(), self.datasets.engine().space_totals().allocated);
        let status = ResilverStatus::running(filling.clone(), Shown { start, total, examined: 0, copied: 0 });
        *self.datasets.jobs.resilverer.status.lock() = Some(status);
        Ok(Running::new(filling, walk))
    }

    /// Has commits note how far a resilver has come, if it could be gone on with from there.
    fn note_place(&self, running: &Running) {
        let is_sound = running.failed == Txg::ZERO && matches!(running.missed, Missed::Nothing);
        let shown = self.datasets.jobs.resilverer.status.lock().as_ref().map(|status| Shown {
            start: status.start,
            total: status.total,
            examined: status.examined,
            copied: status.copied,
        });
        let cursor = shown.filter(|_| is_sound).map(|shown| Cursor {
            filling: running.filling.clone(),
            walk: running.walk.clone(),
            moved: self.datasets.jobs.moved.clone(),
            shown,
            committed: self.datasets.engine().committed(),
        });
        *self.datasets.cursor().lock() = cursor;
    }

    /// Notes what became of the resilver, if one runs.
    fn end(&self, state: ResilverState) {
        *self.datasets.cursor().lock() = None;
        if let Some(status) =
            self.datasets.jobs.resilverer.status.lock().as_mut().filter(|s| s.state == ResilverState::Running)
        {
            (status.state, status.end) = (state, self.datasets.now());
        }
    }

    fn finish(&self, running: &mut Running, still: Still<'_>) -> Result<Progress> {
        if still.filled(&running.filling, running.failed)? {
            self.end(ResilverState::Finished);
            running.has_ended = true;
        }
        Ok(Progress::Worked)
    }

    /// What was noted may be anything.
    fn count(&self, examined: u64, copied: u64, errors: u64) {
        if let Some(status) = &mut *self.datasets.jobs.resilverer.status.lock() {
            status.examined = status.examined.saturating_add(examined);
            status.copied = status.copied.saturating_add(copied);
            status.errors = status.errors.saturating_add(errors);
        }
    }
}
