//! Waiting for other commands that still read data about to be destroyed.

use std::{thread, time::Duration};

use dataset::error::{Error, Result};
use protocol::Failure;

use super::job::Job;

/// Interval of checks whether the readers have ended.
const GLANCE: Duration = Duration::from_millis(100);

/// Whether a command waits for readers of the data to be destroyed, or is refused.
pub(super) struct Patience<'a, 'j> {
    waits: bool,
    job: &'a Job<'j>,
}

impl<'a, 'j> Patience<'a, 'j> {
    /// A job's patience: a wait ends at the latest when the job is cancelled.
    pub(super) fn of(waits: bool, job: &'a Job<'j>) -> Patience<'a, 'j> {
        Patience { waits, job }
    }

    /// Repeats `attempt` while readers prevent its success.
    ///
    /// # Errors
    /// If the job is cancelled meanwhile. The inner result is the result of `attempt`.
    pub(super) fn for_readers<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<Result<T>, Failure> {
        loop {
            match attempt() {
                Err(Error::InUse { .. }) if self.waits => {
                    self.job.check()?;
                    thread::sleep(GLANCE);
                }
                done => return Ok(done),
            }
        }
    }
}
