//! Telling the devices of a pool which space nobody needs, while the caller waits.

use std::{
    thread,
    time::{Duration, Instant},
};

use pool::space::TrimCursor;

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused};
use crate::failure::Failure;

/// About how many bytes one step tells of.
const STEP: u64 = 64 << 20;
/// How often it is looked whether anybody still waits.
const GLANCE: Duration = Duration::from_millis(50);

impl OpenPool {
    /// Goes through all free space, at most so many bytes a second; how many bytes the devices were told of.
    pub(super) fn trim(&self, rate: Option<u64>, job: &mut Job<'_>) -> Result<u64, Failure> {
        let what = format!("trimming {}", self.name());
        let begun = Instant::now();
        let (mut from, mut bytes) = (Some(TrimCursor::default()), 0u64);
        while let Some(at) = from {
            job.check()?;
            let budget = rate.map_or(STEP, |rate| rate.div_ceil(4).min(STEP));
            let step = self.pool.trim(at, budget).or_refused("trim", self.name())?;
            (from, bytes) = (step.next, bytes + step.bytes);
            job.tell(&what, bytes, None);
            while rate.is_some_and(|rate| begun.elapsed() < due(bytes, rate)) {
                job.check()?;
                thread::sleep(GLANCE);
            }
        }
        Ok(bytes)
    }
}

/// When so many bytes are due.
fn due(bytes: u64, rate: u64) -> Duration {
    let milliseconds = u128::from(bytes) * 1000 / u128::from(rate.max(1));
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_says_when_bytes_are_due() {
        assert_eq!(due(10 << 20, 5 << 20), Duration::from_secs(2));
        assert_eq!(due(u64::MAX, 0), Duration::from_millis(u64::MAX));
    }
}
