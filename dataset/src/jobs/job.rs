//! What a job is: the steps that the scheduler makes, and the orders that a job takes.

use std::time::Duration;

use pool::admin::Pool;

use super::{kind::Kind, moving::Moving, record::JobRecord};
use crate::error::Result;

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The step made progress; more may follow.
    Worked,
    /// The job is not under way, paused, or blocked: the next job gets the turn.
    Idle,
    /// The job continues at the given uptime.
    Wait(Duration),
    /// The job ended with the step.
    Done,
}

/// A job of one pool.
pub trait Job {
    /// What the job does.
    fn kind(&self) -> Kind;

    /// Whether the job is under way, even paused.
    fn is_under_way(&self) -> bool;

    /// Makes a step of about `budget` bytes. The scheduler calls without holding the pool still or any lock, and
    /// commits only between steps.
    ///
    /// # Errors
    /// If a device or the pool fails. The state is as before or after the step, and the step may be retried.
    fn step(&self, pool: &Pool, budget: u64) -> Result<Step>;

    /// Progress and result of the current job, else of the last; `None` if there was none.
    fn record(&self, pool: &Pool) -> Result<Option<JobRecord>>;

    /// The pause, limit and count of bytes shared by all jobs that move chunks; `None` for any other job.
    fn mover(&self) -> Option<Moving<'_>> {
        None
    }

    /// Whether the administrator has paused the job.
    fn is_paused(&self) -> bool {
        self.mover().is_some_and(|mover| mover.is_paused())
    }

    /// The limit in bytes per second, if the administrator has set one.
    fn limit(&self) -> Option<u64> {
        self.mover().and_then(|mover| mover.limit())
    }

    /// The bytes handled since the pool was opened, to which the limit applies.
    fn handled(&self) -> u64 {
        self.mover().map_or(0, |mover| mover.copied())
    }

    /// Pauses the job until resumed.
    ///
    /// # Errors
    /// If the job is not under way, is paused already, or cannot be paused.
    fn pause(&self) -> Result<()>;

    /// Cancels the job. Work done stays done.
    ///
    /// # Errors
    /// If the job is not under way, or cannot be cancelled.
    fn stop(&self, pool: &Pool) -> Result<()>;
}
