//! Requests about device removal. The job runs in the thread of [`super::jobs`].

use std::{thread, time::Duration};

use dataset::catalogue::MoveState;
use pool::{env::Nanos, size::format_bytes};
use protocol::{Failure, Layout, RemovalEnd, RemovalPlan, RemovalRecord};

use super::{job::Job, layout, open_pool::OpenPool, refusal::OrRefused};

/// Polling interval of a command that waits for a removal.
const WATCH: Duration = Duration::from_millis(50);

const NANOS: i64 = 1_000_000_000;
const ACTION: &str = "remove";

impl OpenPool {
    /// Starts the removal of a vdev; with `dry_run`, only returns the plan.
    pub(super) fn remove(
        &self,
        name: &str,
        limit: Option<u64>,
        dry_run: bool,
        job: &mut Job<'_>,
    ) -> Result<RemovalPlan, Failure> {
        if self.pool.spares().iter().any(|spare| spare.leaf.name() == name || spare.leaf.guid().to_string() == name) {
            return self.remove_spare(name, dry_run);
        }
        if self.pool.find_cache(name).is_some() {
            return self.remove_cache(name, dry_run);
        }
        let vdev = self.pool.find_vdev(name).or_refused(ACTION, name)?;
        let plan = self.pool.plan_removal(vdev.id()).or_refused(ACTION, name)?;
        let shown = RemovalPlan {
            vdev: layout::name_of(&*vdev),
            bytes: plan.bytes,
            needed: if plan.fits_whole() { plan.needed } else { plan.packed },
            available: if plan.fits_whole() { plan.available } else { plan.spare },
            region: plan.region,
            left: None,
        };
        if dry_run {
            return Ok(shown);
        }
        let goes_on = self.removal().is_some_and(|removal| removal.ended.is_none());
        if !goes_on && !plan.fits() {
            let why = format!(
                "its data needs {} empty regions of {} on other vdevs, and {} are available",
                plan.packed,
                format_bytes(plan.region),
                plan.spare
            );
            return Err(Failure::cannot(ACTION, name, why).hint("free some space, or add a device: pool add"));
        }
        self.datasets.removal().start(vdev.id(), &shown.vdev, plan.bytes, limit).or_refused(ACTION, name)?;
        self.jobs.wake();
        if self.mounts.is_none() {
            // Without a service, the command itself has to wait for the job.
            self.wait_for_removal(job)?;
        }
        Ok(shown)
    }

    /// Removes an AVAIL spare, which needs no job.
    fn remove_spare(&self, name: &str, dry_run: bool) -> Result<RemovalPlan, Failure> {
        if !dry_run {
            self.pool.remove_spare(name).or_refused(ACTION, name)?;
        }
        let left = (!dry_run).then(|| self.layout());
        Ok(RemovalPlan { vdev: name.to_owned(), bytes: 0, needed: 0, available: 0, region: 0, left })
    }

    /// Waits for a running removal. An error if the removal is paused, stopped or failed.
    pub(super) fn wait_for_removal(&self, job: &mut Job<'_>) -> Result<Layout, Failure> {
        loop {
            let Some(removal) = self.removal() else { return Ok(self.layout()) };
            let refused = |why: &str| Err(Failure::cannot(ACTION, &removal.name, why));
            match removal.ended {
                None if removal.paused => return refused("it is paused"),
                None => {}
                Some(RemovalEnd::Finished) => return Ok(self.layout()),
                Some(RemovalEnd::Canceled) => return refused("it was stopped"),
                Some(RemovalEnd::Unreadable) => return refused("data on it could not be read"),
                Some(RemovalEnd::NoRoom) => return refused("too few empty regions on other vdevs"),
            }
            self.engine().writable().or_refused(ACTION, &removal.name)?;
            job.check()?;
            let what = format!("evacuating {}", removal.name);
            job.tell(&what, removal.copied, Some(removal.total.max(removal.copied)));
            thread::sleep(WATCH);
        }
    }

    /// Seconds of work since the pool was opened, of a job started at `start`.
    pub(super) fn seconds_at_work(&self, start: Nanos) -> u64 {
        seconds_between(start, self.engine().env().now())
            .min(self.engine().env().uptime().saturating_sub(self.opened).as_secs())
    }

    /// The running or the last removal.
    pub(super) fn removal(&self) -> Option<RemovalRecord> {
        let status = self.datasets.removal().status()?;
        let ended = end_of(status.state);
        // A running removal reports only bytes copied since the pool was opened.
        let seconds = match ended {
            None => self.seconds_at_work(status.start),
            Some(_) => seconds_between(status.start, status.end),
        };
        Some(RemovalRecord {
            name: status.name,
            vdev: status.vdev,
            ended,
            paused: ended.is_none() && self.datasets.moving().is_paused(),
            limit: self.datasets.moving().limit().filter(|_| ended.is_none()),
            start: status.start.div_euclid(NANOS),
            end: status.end.div_euclid(NANOS),
            seconds,
            total: status.total,
            copied: status.copied,
            before: if ended.is_none() { self.datasets.removal().copied_before() } else { 0 },
            errors: status.errors,
        })
    }
}

/// Seconds between two wall clock times; 0 if the clock was set back.
pub(super) fn seconds_between(start: Nanos, end: Nanos) -> u64 {
    u64::try_from((end - start) / NANOS).unwrap_or(0)
}

/// How a removal or a rebalance has ended; `None` while running.
pub(super) fn end_of(state: MoveState) -> Option<RemovalEnd> {
    match state {
        MoveState::Running => None,
        MoveState::Finished => Some(RemovalEnd::Finished),
        MoveState::Canceled => Some(RemovalEnd::Canceled),
        MoveState::Unreadable => Some(RemovalEnd::Unreadable),
        MoveState::NoRoom => Some(RemovalEnd::NoRoom),
    }
}
