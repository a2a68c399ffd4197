//! Passes over the free space of vdevs. A trim tells the devices which space is free: on demand, all free space of a vdev;
//! with `autotrim=on`, newly freed space after some seconds. An initialization writes a pattern to all free space of a
//! vdev: thinly provisioned storage allocates the space now, and not at the first write of data.
//!
//! The progress of a demanded pass is in memory only, and ends when the pool is closed; trimmed space stays trimmed, and
//! written space written. Passes are no part of the order of jobs: the [`Scheduler`](super::Scheduler) gives each kind
//! turns of its own, so a pass neither waits for other jobs nor delays other jobs by more than a step.

use std::sync::atomic::Ordering;

use pool::{admin::Pool, space::TrimCursor, units::VdevId};

use super::{
    job::{Job, Step},
    kind::Kind,
    moving::refused,
    record::{Detail, JobRecord, JobState, Reason, seconds_between},
};
use crate::{
    admin::Datasets,
    error::Result,
    property::pool::AUTOTRIM,
    underway::passes::{Passes, Phase, Task},
};

/// The passes of one kind over a pool's free space.
pub struct Pass<'a> {
    datasets: &'a Datasets,
    is_trim: bool,
}

impl Datasets {
    /// The trim of the pool's free space.
    pub fn trim(&self) -> Pass<'_> {
        Pass { datasets: self, is_trim: true }
    }

    /// The initialization of the pool's free space.
    pub fn initialization(&self) -> Pass<'_> {
        Pass { datasets: self, is_trim: false }
    }
}

impl Job for Pass<'_> {
    fn kind(&self) -> Kind {
        if self.is_trim { Kind::Trim } else { Kind::Initialize }
    }

    fn is_under_way(&self) -> bool {
        self.passes().tasks.lock().values().any(Task::is_open)
    }

    fn step(&self, pool: &Pool, budget: u64) -> Result<Step> {
        if self.datasets.engine().writable().is_err() || self.datasets.engine().suspension().is_suspended() {
            return Ok(Step::Idle);
        }
        let worked = self.demanded_step(pool, budget) || self.is_trim && self.fresh_step(pool, budget);
        Ok(if worked { Step::Worked } else { Step::Idle })
    }

    /// All demanded passes together. While some are running, only these.
    fn record(&self, _pool: &Pool) -> Result<Option<JobRecord>> {
        let records: Vec<JobRecord> = self.vdevs().into_iter().filter_map(|vdev| self.record_of(vdev)).collect();
        let is_running = records.iter().any(|record| record.state == JobState::Running);
        let meant = records.into_iter().filter(|record| !is_running || record.state == JobState::Running);
        Ok(meant.reduce(|mut sum, record| {
            (sum.total, sum.done) = (sum.total + record.total, sum.done + record.done);
            sum
        }))
    }

    fn limit(&self) -> Option<u64> {
        Some(self.passes().limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    fn handled(&self) -> u64 {
        self.passes().handled.load(Ordering::Relaxed)
    }

    fn pause(&self) -> Result<()> {
        self.suspend(&self.vdevs())
    }

    fn stop(&self, _pool: &Pool) -> Result<()> {
        self.cancel(&self.vdevs())
    }
}

impl Pass<'_> {
    /// The bytes that a pass over vdevs would trim or write now.
    pub fn plan(&self, pool: &Pool, vdevs: &[VdevId]) -> Result<u64> {
        let plan = |vdev: &VdevId| if self.is_trim { pool.plan_trim(*vdev) } else { pool.plan_initialize(*vdev) };
        Ok(vdevs.iter().map(plan).sum::<pool::error::Result<u64>>()?)
    }

    /// Starts or resumes passes over vdevs, with a limit in bytes per second, if any, of all of them together; the limit
    /// 0 means none. A running pass only gets another limit.
    pub fn start(&self, vdevs: &[VdevId], limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut tasks = self.passes().tasks.lock();
        let is_running = |vdev: &VdevId| tasks.get(vdev).is_some_and(|task| task.phase == Phase::Running);
        if limit.is_none() && vdevs.iter().any(is_running) {
            let name = self.name();
            return refused(format!("{name} is already in progress; use -s to suspend or -c to cancel"));
        }
        self.passes().limit.store(limit.unwrap_or(0), Ordering::Relaxed);
        let begun = self.datasets.now();
        let fresh = Task { phase: Phase::Running, cursor: TrimCursor::default(), bytes: 0, begun, ended: 0 };
        for vdev in vdevs {
            let task = tasks.entry(*vdev).or_insert_with(|| fresh.clone());
            match task.is_open() {
                true => task.phase = Phase::Running,
                false => *task = fresh.clone(),
            }
        }
        Ok(())
    }

    /// Suspends the passes over vdevs, with the progress kept.
    pub fn suspend(&self, vdevs: &[VdevId]) -> Result<()> {
        let mut tasks = self.passes().tasks.lock();
        let meant = tasks.iter_mut().filter(|(vdev, task)| vdevs.contains(vdev) && task.phase == Phase::Running);
        match meant.map(|(_, task)| task.phase = Phase::Suspended).count() {
            0 => self.refuse_none(),
            _ => Ok(()),
        }
    }

    /// Cancels the passes over vdevs, with the progress lost.
    pub fn cancel(&self, vdevs: &[VdevId]) -> Result<()> {
        let mut tasks = self.passes().tasks.lock();
        let before = tasks.len();
        tasks.retain(|vdev, task| !(vdevs.contains(vdev) && task.is_open()));
        if tasks.len() == before { self.refuse_none() } else { Ok(()) }
    }

    /// Forgets the ended passes over vdevs; a pass under way is an error.
    pub fn forget(&self, vdevs: &[VdevId]) -> Result<()> {
        let mut tasks = self.passes().tasks.lock();
        if tasks.iter().any(|(vdev, task)| vdevs.contains(vdev) && task.is_open()) {
            return refused(format!("{} is in progress; to cancel: -c", self.name()));
        }
        tasks.retain(|vdev, _| !vdevs.contains(vdev));
        Ok(())
    }

    /// The record of the last demanded pass over a vdev; `None` if canceled.
    pub fn record_of(&self, vdev: VdevId) -> Option<JobRecord> {
        let task = self.passes().tasks.lock().get(&vdev)?.clone();
        let is_under_way = task.is_open();
        let Task { phase, cursor, bytes, begun, ended } = task;
        let state = JobState::from(phase);
        let space = &self.datasets.engine().storage().space;
        let (done, total) = space.trim_progress(vdev, cursor);
        let seconds = seconds_between(begun, if is_under_way { self.datasets.now() } else { ended });
        let done = if state == JobState::Finished { total } else { done };
        Some(JobRecord {
            kind: self.kind(),
            state,
            begun,
            ended,
            seconds,
            rate: bytes.checked_div(seconds).unwrap_or(0),
            total: total * space.region(),
            done: done * space.region(),
            repaired: 0,
            errors: 0,
            limit: self.limit().filter(|_| is_under_way),
            detail: Detail::Pass { bytes },
        })
    }

    /// Makes a step of the first demanded pass that runs. Returns whether work may be left.
    fn demanded_step(&self, pool: &Pool, budget: u64) -> bool {
        let running = |(_, task): &(&VdevId, &Task)| task.phase == Phase::Running;
        let next = self.passes().tasks.lock().iter().find(running).map(|(vdev, task)| (*vdev, task.cursor));
        let Some((vdev, cursor)) = next else { return false };
        let step = match self.is_trim {
            true => pool.trim(vdev, cursor, budget),
            false => pool.initialize(vdev, cursor, budget),
        };
        let bytes = step.as_ref().map_or(0, |step| step.bytes);
        self.passes().handled.fetch_add(bytes, Ordering::Relaxed);
        // A pass started meanwhile is a different pass.
        if let Some(task) = self.passes().tasks.lock().get_mut(&vdev).filter(|now| now.cursor == cursor) {
            match step {
                Ok(step) => {
                    task.bytes += step.bytes;
                    task.cursor = step.next.unwrap_or_default();
                    if step.next.is_none() {
                        (task.phase, task.ended) = (Phase::Finished, self.datasets.now());
                    }
                }
                Err(error) => {
                    tracing::warn!("{} fails: {error}", self.name());
                    (task.phase, task.ended) = (Phase::Failed(error.to_string()), self.datasets.now());
                }
            }
        }
        true
    }

    /// Trims newly freed space, if `autotrim` is on. Returns whether work may be left.
    fn fresh_step(&self, pool: &Pool, budget: u64) -> bool {
        if !self.datasets.pool_setting(&AUTOTRIM) {
            return false;
        }
        let from = self.passes().fresh.lock().unwrap_or_default();
        let next = pool.trim_fresh(from, budget).map_or_else(
            |error| {
                tracing::warn!("newly freed space is not trimmed: {error}");
                None
            },
            |step| step.next,
        );
        *self.passes().fresh.lock() = next;
        next.is_some()
    }

    fn vdevs(&self) -> Vec<VdevId> {
        self.passes().tasks.lock().keys().copied().collect()
    }

    fn passes(&self) -> &Passes {
        if self.is_trim { &self.datasets.jobs.trims } else { &self.datasets.jobs.initializations }
    }

    /// The pass in a message.
    fn name(&self) -> &'static str {
        if self.is_trim { "a trim" } else { "an initialization" }
    }

    /// The refusal without a pass to suspend or to cancel.
    fn refuse_none(&self) -> Result<()> {
        refused(format!("there is no active {}", if self.is_trim { "trim" } else { "initialization" }))
    }
}

impl From<Phase> for JobState {
    fn from(phase: Phase) -> JobState {
        match phase {
            Phase::Running => JobState::Running,
            Phase::Suspended => JobState::Paused,
            Phase::Finished => JobState::Finished,
            Phase::Failed(why) => JobState::Failed(Reason::Device(why)),
        }
    }
}
