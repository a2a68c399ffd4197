//! A suspended pool, with a commit waiting for a device: refusing requests, resuming, and giving up.

use std::time::Duration;

use pool::{error::Error, txg::Engine};
use protocol::{Failure, Request, Suspended};

use super::{open_pool::OpenPool, refusal::OrRefused};

/// Time limit for the suspended commit after a resume.
const PATIENCE: Duration = Duration::from_secs(60);

/// The failure of requests that a suspended pool cannot serve; `None` if the pool is not suspended.
pub(crate) fn refusal(engine: &Engine, pool: &str) -> Option<Failure> {
    let why = engine.suspension().reason()?;
    Some(Failure::engine("use", pool, &Error::Suspended(why)))
}

impl OpenPool {
    /// Refuses a request that needs a commit, instead of blocking.
    pub(super) fn check_not_suspended(&self, request: &Request) -> Result<(), Failure> {
        match request.traits().suspended {
            Suspended::Answered | Suspended::Tried => Ok(()),
            Suspended::Refused => refusal(self.engine(), self.name().as_str()).map_or(Ok(()), Err),
        }
    }

    /// Clears the errors of the devices, or of one device. If the pool is suspended, brings its devices back online,
    /// resumes the pool, and waits for the commit.
    pub(super) fn clear(&self, device: Option<&str>) -> Result<(), Failure> {
        const ACTION: &str = "clear errors for";
        self.clear_counters(device)?;
        self.pool.clear(&|path| self.reopen(path)).or_refused(ACTION, self.name())?;
        self.go_on(ACTION, device)
    }

    /// Reopens devices that stopped responding, resumes a suspended pool, and waits for the commit.
    pub(super) fn reopen_devices(&self) -> Result<(), Failure> {
        const ACTION: &str = "reopen";
        self.pool.resume(&|path| self.reopen(path)).or_refused(ACTION, self.name())?;
        self.go_on(ACTION, None)?;
        if self.engine().read_only() { Ok(()) } else { self.remeasure() }
    }

    fn go_on(&self, action: &str, device: Option<&str>) -> Result<(), Failure> {
        self.engine().commit_within(PATIENCE).or_refused(action, self.name())?;
        self.datasets.resilver().try_again();
        self.take_back_failed(device);
        Ok(())
    }
}
