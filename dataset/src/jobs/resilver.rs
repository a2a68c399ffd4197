//! Resilver: walks everything that the pool refers to, like a scrub, and copies to devices of mirrors whatever is
//! missing there. For the argument of safety see [`pool::txg::Resilvering`].
//!
//! Nodes born before the devices lacked anything are skipped with everything below. For the walk see
//! [`super::copying`].
//!
//! # Blocks without a good copy
//!
//! A block that no complete device can supply stays missing on the incomplete devices, although an unavailable device
//! may have the block, or the same device an hour later. No device becomes complete without the block: the incomplete
//! device stays incomplete, and stays beside the device that it replaces. The loss is recorded as damage. The walk
//! restarts when there is new hope: after another device was added or removed, or after the administrator has cleared
//! errors.
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) requests the steps. The walk's position is in memory,
//! and in each uberblock ([`crate::underway::cursor`]), so a resilver continues after an export or a crash. The resilver
//! restarts if devices were added, removed or returned since, or if some blocks could not be copied.

use std::sync::atomic::Ordering;

use pool::{
    admin::Pool,
    env::Nanos,
    format::pointer::BlockPointer,
    space::OwnCursor,
    txg::{Resilvering, Still},
    units::{Guid, Txg},
};

use super::{
    copying::{Stepped, note_failed},
    job::{Job, Step},
    kind::Kind,
    moving::refused,
    record::{Detail, JobRecord, JobState, seconds_between},
    scrub::SPACE_STEP,
};
use crate::underway::resilver::{Missed, ResilverState, ResilverStatus, Resumed, Running};
use crate::underway::{
    cursor::{Cursor, Noted, Shown},
    walk::Walk,
};
use crate::{
    admin::{Datasets, Progress},
    error::Result,
};

/// The refusal without a resilver to pause or to limit.
const NONE: &str = "no resilver is in progress";

/// The most blocks listed individually that a resilver cannot copy. Fewer in tests.
pub(crate) const LOST: usize = if cfg!(test) { 16 } else { 1 << 16 };

impl ResilverStatus {
    fn running(resilvering: Resilvering, shown: Shown) -> ResilverStatus {
        let Shown { start, total, examined, copied } = shown;
        let state = ResilverState::Running;
        ResilverStatus { state, start, end: 0, total, examined, copied, errors: 0, resumed: None, resilvering }
    }

    /// The average bytes examined per second since the resilver runs in the opened pool. `now` is the time of day, for
    /// a running resilver.
    pub fn rate(&self, now: Nanos) -> u64 {
        let begun = self.resumed.unwrap_or(Resumed { at: self.start, examined: 0 });
        let examined = self.examined.saturating_sub(begun.examined);
        examined.checked_div(self.seconds_since(begun.at, now)).unwrap_or(0)
    }

    /// The seconds since the start, including time with the pool closed. `now` is the time of day, for a running
    /// resilver.
    pub fn seconds(&self, now: Nanos) -> u64 {
        self.seconds_since(self.start, now)
    }

    fn seconds_since(&self, begin: Nanos, now: Nanos) -> u64 {
        let end = if self.state == ResilverState::Running { now } else { self.end };
        seconds_between(begin, end)
    }
}

impl Running {
    fn new(resilvering: Resilvering, walk: Walk) -> Running {
        let space = Some(OwnCursor::default());
        let (missed, lost) = (Missed::Nothing, Vec::new());
        Running {
            resilvering,
            failed: Txg::ZERO,
            lost,
            space,
            missed,
            has_counted_space: false,
            walk,
            has_ended: false,
        }
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

    /// Whether a resilver is walking; false if it only waits because a device could not be completed.
    fn is_under_way(&self) -> bool {
        let is_running = self.status().is_some_and(|status| status.state == ResilverState::Running);
        is_running && self.datasets.engine().resilvering().is_some()
    }

    fn step(&self, pool: &Pool, budget: u64) -> Result<Step> {
        let is_paused = self.is_paused() && self.is_under_way();
        if !is_paused && self.advance(budget)? == Progress::Worked {
            return Ok(Step::Worked);
        }
        if self.datasets.engine().writable().is_ok() {
            if !self.is_under_way() {
                // A later resilver restores redundancy, so neither pause nor limit outlast this one.
                self.datasets.throttle(Kind::Resilver).reset(None)?;
            }
            // Also replacements left by an earlier owner of the pool.
            pool.finish_replacing()?;
        }
        Ok(if self.is_under_way() && !is_paused { self.datasets.a_while() } else { Step::Idle })
    }

    fn record(&self, _pool: &Pool) -> Result<Option<JobRecord>> {
        let (now, status) = (self.datasets.now(), self.status());
        Ok(status.map(|status| JobRecord {
            kind: Kind::Resilver,
            state: match status.state {
                ResilverState::Running if self.is_paused() => JobState::Paused,
                ResilverState::Running => JobState::Running,
                ResilverState::Finished => JobState::Finished,
                ResilverState::Canceled => JobState::Canceled,
            },
            begun: status.start,
            ended: status.end,
            seconds: status.seconds(now),
            rate: status.rate(now),
            total: status.total,
            done: status.examined,
            repaired: status.copied,
            errors: status.errors,
            limit: self.limit().filter(|_| status.state == ResilverState::Running),
            detail: Detail::None,
        }))
    }

    fn is_paused(&self) -> bool {
        self.datasets.throttle(Kind::Resilver).is_paused()
    }

    fn limit(&self) -> Option<u64> {
        self.datasets.throttle(Kind::Resilver).limit()
    }

    fn handled(&self) -> u64 {
        self.datasets.jobs.resilverer.handled.load(Ordering::Relaxed)
    }

    /// Pauses the current resilver until resumed. Pause and limit end with the resilver.
    fn pause(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        match (self.is_wanted(), self.is_paused()) {
            (false, _) => refused(NONE.to_owned()),
            (true, true) => refused("it is already paused".to_owned()),
            (true, false) => self.datasets.throttle(Kind::Resilver).pause(),
        }
    }

    fn stop(&self, _pool: &Pool) -> Result<()> {
        refused("a resilver cannot be stopped: devices lack what it copies".to_owned())
    }
}

impl Resilver<'_> {
    /// Continues the resilver recorded in the opened state; called before the first commit. A resilver that cannot
    /// continue restarts.
    pub(crate) fn resume(&self) {
        let found = self.datasets.engine().found();
        let resilvering = self.datasets.engine().resilvering().filter(|_| self.datasets.engine().writable().is_ok());
        let noted = resilvering.and_then(|resilvering| Some((Noted::found(found, &resilvering)?, resilvering)));
        let Some((noted, resilvering)) = noted else { return };
        let walk = match Walk::resumed(self.datasets, resilvering.since, noted.limit, noted.position) {
            Ok(walk) => walk,
            Err(error) => return tracing::warn!("the resilver begins again: {error}"),
        };
        let missed = if found.has_log { Missed::After(found.txg) } else { Missed::Nothing };
        let examined = noted.shown.examined;
        let resumed = Some(Resumed { at: self.datasets.now(), examined });
        let status = ResilverStatus { resumed, ..ResilverStatus::running(resilvering.clone(), noted.shown) };
        *self.datasets.jobs.resilverer.status.lock() = Some(status);
        // A resilver that examined anything was through with the blocks of the space maps, and has counted these
        // blocks.
        let running = Running { missed, has_counted_space: examined > 0, ..Running::new(resilvering, walk) };
        self.note_place(&running);
        *self.datasets.jobs.resilverer.running.lock() = Some(running);
    }

    /// Makes a commit that records the position, unless a recent commit did.
    pub fn save(&self) -> Result<()> {
        let newest = self.datasets.cursor().lock().as_ref().map(|cursor| cursor.committed);
        if newest == Some(self.datasets.engine().committed()) {
            self.datasets.engine().commit_anyway()?;
        }
        Ok(())
    }

    /// The current resilver, or the last since the pool was opened.
    pub fn status(&self) -> Option<ResilverStatus> {
        self.datasets.jobs.resilverer.status.lock().clone()
    }

    /// Makes a step of the resilver, if devices are incomplete: examines about `budget` bytes while the pool is held
    /// still.
    pub fn advance(&self, budget: u64) -> Result<Progress> {
        let mut running = self.datasets.jobs.resilverer.running.lock();
        let Some(resilvering) =
            self.datasets.engine().resilvering().filter(|_| self.datasets.engine().writable().is_ok())
        else {
            *running = None;
            self.end(ResilverState::Canceled);
            return Ok(Progress::Idle);
        };
        if running.as_ref().is_none_or(|running| running.resilvering != resilvering) {
            self.end(ResilverState::Canceled);
            let begun = self.begin(resilvering)?;
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
            let resilvered = still.resilver_space(from, budget.min(SPACE_STEP));
            let (bytes, repaired) =
                if running.has_counted_space { (0, 0) } else { (resilvered.bytes, resilvered.repaired) };
            self.count(bytes, repaired, resilvered.lost);
            if resilvered.lost > 0 {
                running.failed = Txg::LIMIT;
                self.note_place(running);
            }
            running.space = resilvered.next;
            return Ok(Progress::Worked);
        }
        if matches!(&running.missed, Missed::Walking(walk) if walk.is_waiting()) {
            running.missed = Missed::Nothing;
        }
        if running.walk.is_waiting() && matches!(running.missed, Missed::Nothing) {
            return match running.walk.is_through(self.datasets)? {
                true => self.finish(running, still),
                // Datasets may have to be walked again.
                false if !running.walk.is_waiting() => Ok(Progress::Worked),
                false => Ok(Progress::Idle),
            };
        }
        let walk = match &mut running.missed {
            Missed::Walking(missed) => missed,
            _ => &mut running.walk,
        };
        let Stepped { examined, copied, failed } =
            walk.step(self.datasets, &still, budget, &|blocks| still.resilver(blocks))?;
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

    /// Whether a resilver has blocks without a good copy, and nothing new to try.
    pub fn is_stuck(&self) -> bool {
        let status = self.status().filter(|status| status.state == ResilverState::Finished && status.errors > 0);
        status.is_some_and(|status| self.datasets.engine().resilvering() == Some(status.resilvering))
    }

    /// Marks devices as complete although blocks are missing that a stuck resilver found no good copy of: the blocks
    /// are lost on all devices, and are recorded as damage. Everything else is on the devices: copied by the walk,
    /// written since, or unreadable then and copied now. Subtrees of unreadable nodes were not walked, so the resilver
    /// restarts if such a node is readable by now.
    ///
    /// # Errors
    /// If no resilver is stuck, devices were added or removed since, the resilver restarts, more blocks are lost than
    /// are listed individually, or blocks of the space maps are lost, which are needed to open the pool.
    pub fn accept_losses(&self, devices: &[Guid]) -> Result<()> {
        let mut slot = self.datasets.jobs.resilverer.running.lock();
        let is_now = |running: &&Running| {
            running.has_ended && self.datasets.engine().resilvering().as_ref() == Some(&running.resilvering)
        };
        let Some(running) = slot.as_ref().filter(is_now) else {
            return refused("no resilver has finished with unrecovered blocks".to_owned());
        };
        if running.failed == Txg::LIMIT {
            return refused("blocks of the space maps have no good copy; to rewrite the blocks: pool scrub".to_owned());
        }
        if running.lost.len() > LOST {
            return refused(format!("more than {LOST} blocks have no good copy"));
        }
        let still = self.datasets.engine().hold_still();
        let pointers: Vec<BlockPointer> = running.lost.iter().map(|(pointer, _)| *pointer).collect();
        let copied = still.resilver(&pointers);
        if running.lost.iter().zip(&copied).any(|((_, is_unread), copied)| *is_unread && copied.is_ok()) {
            *slot = None;
            return refused("blocks became readable again, so the resilver restarts; try again afterwards".to_owned());
        }
        let mut resilvering = running.resilvering.clone();
        resilvering.devices.retain(|lacking| devices.contains(&lacking.device));
        match still.resilvered(&resilvering, Txg::ZERO)? {
            true => Ok(()),
            false => refused("devices were added or lost meanwhile; try again".to_owned()),
        }
    }

    /// Restarts a stuck resilver: blocks without a good copy may be gone, or readable by now.
    pub fn try_again(&self) {
        if !self.is_stuck() {
            return;
        }
        let mut running = self.datasets.jobs.resilverer.running.lock();
        // The resilver may have restarted meanwhile.
        if self.is_stuck() {
            *running = None;
            // The old result is void until the retry: `pool wait` waits for the retry.
            *self.datasets.jobs.resilverer.status.lock() = None;
        }
    }

    /// Whether an administrator has paused the resilver.
    pub fn is_paused(&self) -> bool {
        self.datasets.throttle(Kind::Resilver).is_paused()
    }

    /// Resumes a paused resilver, or changes the limit, in bytes per second: 0 means none. Otherwise restarts the
    /// resilver from the beginning, if devices are incomplete.
    pub fn start(&self, limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        match limit {
            Some(_) if !self.is_wanted() => refused(NONE.to_owned()),
            None if !self.is_paused() => {
                self.restart();
                Ok(())
            }
            _ => self.datasets.throttle(Kind::Resilver).go_on(limit),
        }
    }

    /// Whether devices are incomplete, and the resilver has something to try.
    fn is_wanted(&self) -> bool {
        self.datasets.engine().resilvering().is_some() && !self.is_stuck()
    }

    /// Restarts the resilver from the beginning, if devices are incomplete.
    pub fn restart(&self) {
        let mut running = self.datasets.jobs.resilverer.running.lock();
        *self.datasets.cursor().lock() = None;
        *running = None;
    }

    fn begin(&self, resilvering: Resilvering) -> Result<Running> {
        let walk = Walk::begin(self.datasets, resilvering.since)?;
        let (start, total) = (self.datasets.now(), self.datasets.engine().space_totals().allocated);
        let status = ResilverStatus::running(resilvering.clone(), Shown { start, total, examined: 0, copied: 0 });
        *self.datasets.jobs.resilverer.status.lock() = Some(status);
        Ok(Running::new(resilvering, walk))
    }

    /// Lets commits record the position, if the resilver could continue there.
    fn note_place(&self, running: &Running) {
        let is_sound = running.failed == Txg::ZERO && matches!(running.missed, Missed::Nothing);
        let shown = self.datasets.jobs.resilverer.status.lock().as_ref().map(|status| Shown {
            start: status.start,
            total: status.total,
            examined: status.examined,
            copied: status.copied,
        });
        let cursor = shown.filter(|_| is_sound).map(|shown| Cursor {
            resilvering: running.resilvering.clone(),
            walk: running.walk.clone(),
            moved: self.datasets.jobs.moved.clone(),
            shown,
            committed: self.datasets.engine().committed(),
        });
        *self.datasets.cursor().lock() = cursor;
    }

    /// Records the end of the resilver, if one runs.
    fn end(&self, state: ResilverState) {
        *self.datasets.cursor().lock() = None;
        if let Some(status) =
            self.datasets.jobs.resilverer.status.lock().as_mut().filter(|s| s.state == ResilverState::Running)
        {
            (status.state, status.end) = (state, self.datasets.now());
        }
    }

    fn finish(&self, running: &mut Running, still: Still<'_>) -> Result<Progress> {
        if still.resilvered(&running.resilvering, running.failed)? {
            self.end(ResilverState::Finished);
            running.has_ended = true;
        }
        Ok(Progress::Worked)
    }

    /// The recorded counters are untrusted, so the sums saturate.
    fn count(&self, examined: u64, copied: u64, errors: u64) {
        self.datasets.jobs.resilverer.handled.fetch_add(examined, Ordering::Relaxed);
        if let Some(status) = &mut *self.datasets.jobs.resilverer.status.lock() {
            status.examined = status.examined.saturating_add(examined);
            status.copied = status.copied.saturating_add(copied);
            status.errors = status.errors.saturating_add(errors);
        }
    }
}
