//! Waiting for commands that read what another one would take away.

use std::{thread, time::Duration};

use dataset::admin::{Error, Result};
use protocol::Failure;

use super::job::Job;

/// How often it is looked whether the commands have ended.
const GLANCE: Duration = Duration::from_millis(100);

/// Whether a command waits for those that read what it would take away, or is refused.
pub(super) struct Patience<'a, 'j> {
    waits: bool,
    job: &'a Job<'j>,
}

impl<'a, 'j> Patience<'a, 'j> {
    /// That of a job: it waits until it is cancelled.
    pub(super) fn of(waits: bool, job: &'a Job<'j>) -> Patience<'a, 'j> {
        Patience { waits, job }
    }

    /// Attempts something until no command stands in its way.
    ///
    /// # Errors
    /// If the job is cancelled meanwhile. What the attempt comes to otherwise is inside.
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
