//! Requests about rebalancing. The work is done by the thread that scrubs: see [`super::scrub`].

use std::{thread, time::Duration};

use pool::space::{Balanced, Imbalance};

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused, removal::end_of};
use crate::{
    failure::Failure,
    protocol::{RebalancePlan, RebalanceRecord, RemovalEnd},
};

/// How often who waits for a rebalance looks at it.
const WATCH: Duration = Duration::from_millis(50);

const NANOS: i64 = 1_000_000_000;
const ACTION: &str = "rebalance";

impl OpenPool {
    /// Begins to rebalance, or with `dry_run` only says what would be moved.
    pub(super) fn rebalance(
        &self,
        limit: Option<u64>,
        dry_run: bool,
        job: &mut Job<'_>,
    ) -> Result<RebalancePlan, Failure> {
        let Imbalance { chunks, bytes, reason } = self.datasets.imbalance();
        let region = self.engine().storage().space.region();
        let plan = RebalancePlan { bytes, chunks, region, reason: reason.map(words).map(str::to_owned) };
        if dry_run {
            return Ok(plan);
        }
        let reason = self.datasets.start_rebalance(limit).or_refused(ACTION, self.name())?;
        if reason == Some(Balanced::NoRoom) {
            let hint = "delete something, or add a device: pool add";
            return Err(Failure::cannot(ACTION, self.name(), words(Balanced::NoRoom)).hint(hint));
        }
        self.scrubbing.wake();
        if self.mounts.is_none() && reason.is_none() {
            // Nobody else would do it.
            self.wait_for_rebalance(job)?;
        }
        Ok(RebalancePlan { reason: reason.map(words).map(str::to_owned), ..plan })
    }

    pub(super) fn pause_rebalance(&self) -> Result<(), Failure> {
        self.datasets.pause_rebalance().or_refused("pause the rebalance of", self.name())
    }

    pub(super) fn stop_rebalance(&self) -> Result<(), Failure> {
        self.datasets.stop_rebalance().or_refused("stop the rebalance of", self.name())
    }

    /// Returns when no rebalance is under way.
    pub(super) fn wait_for_rebalance(&self, job: &mut Job<'_>) -> Result<(), Failure> {
        let what = format!("rebalancing {}", self.name());
        loop {
            let Some(rebalance) = self.rebalance_record() else { return Ok(()) };
            let refused = |why: &str| Err(Failure::cannot(ACTION, self.name(), why));
            match rebalance.ended {
                None if rebalance.paused => return refused("it is paused"),
                None => {}
                Some(RemovalEnd::Finished) => return Ok(()),
                Some(RemovalEnd::Canceled) => return refused("it was stopped"),
                Some(RemovalEnd::Unreadable) => return refused("something could not be read"),
                Some(RemovalEnd::NoRoom) => return refused(words(Balanced::NoRoom)),
            }
            self.engine().writable().or_refused(ACTION, self.name())?;
            job.check()?;
            job.tell(&what, rebalance.copied, Some(rebalance.total.max(rebalance.copied)));
            thread::sleep(WATCH);
        }
    }

    /// How the rebalance stands that is under way or was the last one.
    pub(super) fn rebalance_record(&self) -> Option<RebalanceRecord> {
        let status = self.datasets.rebalance_status()?;
        let ended = end_of(status.state);
        let until = if ended.is_none() { self.engine().env().now() } else { status.end };
        Some(RebalanceRecord {
            ended,
            paused: ended.is_none() && self.datasets.is_moving_paused(),
            limit: self.datasets.moving_limit().filter(|_| ended.is_none()),
            start: status.start.div_euclid(NANOS),
            end: status.end.div_euclid(NANOS),
            seconds: u64::try_from((until - status.start) / NANOS).unwrap_or(0),
            total: status.total,
            copied: status.copied,
            errors: status.errors,
        })
    }
}

/// Why nothing is moved.
fn words(reason: Balanced) -> &'static str {
    match reason {
        Balanced::NoPeers => "there are no two vdevs that may exchange what lies on them",
        Balanced::Level => "all vdevs are about equally full",
        Balanced::NoRoom => "there are too few empty regions",
    }
}
