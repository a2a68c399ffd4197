//! Trim: devices are told which space is free. On demand, all free space of a vdev; with `autotrim=on`, newly freed space
//! after some seconds.
//!
//! The progress of a demanded trim is in memory only, and ends when the pool is closed; trimmed space stays trimmed.
//! Trim is no part of the order of jobs: the [`Scheduler`](super::Scheduler) gives trim turns of its own, so trim
//! neither waits for other jobs nor delays other jobs by more than a step.

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
    underway::trim::{Phase, Task, Trimmer},
};

/// The trim of a pool's free space.
pub struct Trim<'a> {
    datasets: &'a Datasets,
}

impl Datasets {
    /// The trim of the pool's free space.
    pub fn trim(&self) -> Trim<'_> {
        Trim { datasets: self }
    }
}

impl Job for Trim<'_> {
    fn kind(&self) -> Kind {
        Kind::Trim
    }

    fn is_under_way(&self) -> bool {
        self.trimmer().tasks.lock().values().any(Task::is_open)
    }

    fn step(&self, pool: &Pool, budget: u64) -> Result<Step> {
        if self.datasets.engine().writable().is_err() || self.datasets.engine().suspension().is_suspended() {
            return Ok(Step::Idle);
        }
        let worked = self.demanded_step(pool, budget) || self.fresh_step(pool, budget);
        Ok(if worked { Step::Worked } else { Step::Idle })
    }

    /// All demanded trims together. While some are running, only these.
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
        Some(self.trimmer().limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    fn handled(&self) -> u64 {
        self.trimmer().handled.load(Ordering::Relaxed)
    }

    fn pause(&self) -> Result<()> {
        self.suspend(&self.vdevs())
    }

    fn stop(&self, _pool: &Pool) -> Result<()> {
        self.cancel(&self.vdevs())
    }
}

impl Trim<'_> {
    /// Starts or resumes trims of vdevs, with a limit in bytes per second, if any, of all trims together; the limit 0
    /// means none. A running trim only gets another limit.
    pub fn start(&self, vdevs: &[VdevId], limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut tasks = self.trimmer().tasks.lock();
        let is_running = |vdev: &VdevId| tasks.get(vdev).is_some_and(|task| task.phase == Phase::Running);
        if limit.is_none() && vdevs.iter().any(is_running) {
            return refused("a trim is already in progress; use -s to suspend or -c to cancel the trim".to_owned());
        }
        self.trimmer().limit.store(limit.unwrap_or(0), Ordering::Relaxed);
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

    /// Suspends the trims of vdevs, which keep the progress.
    pub fn suspend(&self, vdevs: &[VdevId]) -> Result<()> {
        let mut tasks = self.trimmer().tasks.lock();
        let meant = tasks.iter_mut().filter(|(vdev, task)| vdevs.contains(vdev) && task.phase == Phase::Running);
        match meant.map(|(_, task)| task.phase = Phase::Suspended).count() {
            0 => refused(NONE.to_owned()),
            _ => Ok(()),
        }
    }

    /// Cancels the trims of vdevs, which lose the progress.
    pub fn cancel(&self, vdevs: &[VdevId]) -> Result<()> {
        let mut tasks = self.trimmer().tasks.lock();
        let before = tasks.len();
        tasks.retain(|vdev, task| !(vdevs.contains(vdev) && task.is_open()));
        if tasks.len() == before { refused(NONE.to_owned()) } else { Ok(()) }
    }

    /// The record of the last demanded trim of a vdev; `None` if canceled.
    pub fn record_of(&self, vdev: VdevId) -> Option<JobRecord> {
        let task = self.trimmer().tasks.lock().get(&vdev)?.clone();
        let is_under_way = task.is_open();
        let Task { phase, cursor, bytes, begun, ended } = task;
        let state = JobState::from(phase);
        let space = &self.datasets.engine().storage().space;
        let (done, total) = space.trim_progress(vdev, cursor);
        let seconds = seconds_between(begun, if is_under_way { self.datasets.now() } else { ended });
        let done = if state == JobState::Finished { total } else { done };
        Some(JobRecord {
            kind: Kind::Trim,
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
            detail: Detail::Trim { bytes },
        })
    }

    /// Makes a step of the first demanded trim that runs. Returns whether work may be left.
    fn demanded_step(&self, pool: &Pool, budget: u64) -> bool {
        let running = |(_, task): &(&VdevId, &Task)| task.phase == Phase::Running;
        let next = self.trimmer().tasks.lock().iter().find(running).map(|(vdev, task)| (*vdev, task.cursor));
        let Some((vdev, cursor)) = next else { return false };
        let step = pool.trim(vdev, cursor, budget);
        let bytes = step.as_ref().map_or(0, |step| step.bytes);
        self.trimmer().handled.fetch_add(bytes, Ordering::Relaxed);
        // A trim started meanwhile is a different trim.
        if let Some(task) = self.trimmer().tasks.lock().get_mut(&vdev).filter(|now| now.cursor == cursor) {
            match step {
                Ok(step) => {
                    task.bytes += step.bytes;
                    task.cursor = step.next.unwrap_or_default();
                    if step.next.is_none() {
                        (task.phase, task.ended) = (Phase::Finished, self.datasets.now());
                    }
                }
                Err(error) => {
                    tracing::warn!("cannot trim: {error}");
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
        let from = self.trimmer().fresh.lock().unwrap_or_default();
        let next = pool.trim_fresh(from, budget).map_or_else(
            |error| {
                tracing::warn!("newly freed space is not trimmed: {error}");
                None
            },
            |step| step.next,
        );
        *self.trimmer().fresh.lock() = next;
        next.is_some()
    }

    fn vdevs(&self) -> Vec<VdevId> {
        self.trimmer().tasks.lock().keys().copied().collect()
    }

    fn trimmer(&self) -> &Trimmer {
        &self.datasets.jobs.trimmer
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

/// The refusal without a trim to suspend or to cancel.
const NONE: &str = "there is no active trim";
