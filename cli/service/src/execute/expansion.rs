//! Requests about RAID-Z expansion. The job runs in the thread of [`super::jobs`].

use std::{thread, time::Duration};

use dataset::jobs::Pause;
use protocol::{ExpansionPause, ExpansionRecord, Failure, Layout};

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused};

/// Polling interval of a command that waits for an expansion.
const WATCH: Duration = Duration::from_millis(50);

const NANOS: i64 = 1_000_000_000;
const ACTION: &str = "expand";

impl OpenPool {
    /// Resumes a paused expansion, or changes its rate limit.
    pub(super) fn resume_expansion(&self, limit: Option<u64>) -> Result<(), Failure> {
        self.datasets.expansion().go_on(limit).or_refused(ACTION, self.name())?;
        self.jobs.wake();
        Ok(())
    }

    /// Waits for a running expansion, until its end or until free space is too short to continue.
    pub(super) fn wait_for_expansion(&self, job: &mut Job<'_>) -> Result<Layout, Failure> {
        while let Some(expansion) = self.expansion() {
            match expansion.pause {
                None => {}
                // The expansion is complete as far as possible.
                Some(ExpansionPause::NoRoom) => break,
                Some(ExpansionPause::Degraded) => {
                    return Err(Failure::cannot(ACTION, &expansion.name, "not all of its devices are complete"));
                }
                Some(ExpansionPause::Operator) => {
                    return Err(Failure::cannot(ACTION, &expansion.name, "it is paused"));
                }
                Some(ExpansionPause::Unreadable) => {
                    return Err(Failure::cannot(ACTION, &expansion.name, "data on it could not be read"));
                }
            }
            self.engine().writable().or_refused(ACTION, &expansion.name)?;
            job.check()?;
            job.tell(&format!("expanding {}", expansion.name), expansion.rows_done, Some(expansion.rows));
            thread::sleep(WATCH);
        }
        Ok(self.layout())
    }

    /// The running expansion, if any.
    pub(super) fn expansion(&self) -> Option<ExpansionRecord> {
        let widening = self.pool.widening()?;
        let status = self.datasets.expansion().status();
        let seconds = if status.regions == 0 { 0 } else { (self.engine().env().now() - status.start) / NANOS };
        Some(ExpansionRecord {
            name: widening.name,
            pause: status.pause.map(|pause| match pause {
                Pause::NoRoom => ExpansionPause::NoRoom,
                Pause::Degraded => ExpansionPause::Degraded,
                Pause::Unreadable => ExpansionPause::Unreadable,
                Pause::Operator => ExpansionPause::Operator,
            }),
            columns: widening.columns as u64,
            rows: widening.rows,
            rows_done: widening.done,
            regions: status.regions.into(),
            total: status.total,
            copied: status.copied,
            seconds: u64::try_from(seconds).unwrap_or(0),
            limit: self.datasets.moving().limit(),
        })
    }
}
