//! Requests about vdevs that leave the pool. The work is done in the thread of [`super::jobs`].

use std::{thread, time::Duration};

use dataset::catalogue::MoveState;
use pool::{env::Nanos, size::format_bytes};
use protocol::{Failure, Layout, RemovalEnd, RemovalPlan, RemovalRecord};

use super::{job::Job, layout, open_pool::OpenPool, refusal::OrRefused};

/// How often who waits for a removal looks at it.
const WATCH: Duration = Duration::from_millis(50);

const NANOS: i64 = 1_000_000_000;
const ACTION: &str = "remove";

impl OpenPool {
    /// Begins to remove a vdev, or with `dry_run` only says what that takes.
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
            // Nobody else would do it.
            self.wait_for_removal(job)?;
        }
        Ok(shown)
    }

    /// A spare that stands by leaves at once.
    fn remove_spare(&self, name: &str, dry_run: bool) -> Result<RemovalPlan, Failure> {
        if !dry_run {
            self.pool.remove_spare(name).or_refused(ACTION, name)?;
        }
        let left = (!dry_run).then(|| self.layout());
        Ok(RemovalPlan { vdev: name.to_owned(), bytes: 0, needed: 0, available: 0, region: 0, left })
    }

    /// Returns when no removal is under way.
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

    /// How long that has been under way since the pool was opened which began at `start`.
    pub(super) fn seconds_at_work(&self, start: Nanos) -> u64 {
        seconds_between(start, self.engine().env().now())
            .min(self.engine().env().uptime().saturating_sub(self.opened).as_secs())
    }

    /// How the removal stands that is under way or was the last one.
    pub(super) fn removal(&self) -> Option<RemovalRecord> {
        let status = self.datasets.removal().status()?;
        let ended = end_of(status.state);
        // What is shown of one that is under way was copied since the pool was opened.
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

/// How many seconds lie between two times of day, which may have been set back.
pub(super) fn seconds_between(start: Nanos, end: Nanos) -> u64 {
    u64::try_from((end - start) / NANOS).unwrap_or(0)
}

/// How a removal or a rebalance has ended, if it has.
pub(super) fn end_of(state: MoveState) -> Option<RemovalEnd> {
    match state {
        MoveState::Running => None,
        MoveState::Finished => Some(RemovalEnd::Finished),
        MoveState::Canceled => Some(RemovalEnd::Canceled),
        MoveState::Unreadable => Some(RemovalEnd::Unreadable),
        MoveState::NoRoom => Some(RemovalEnd::NoRoom),
    }
}
