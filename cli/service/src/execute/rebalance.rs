//! Requests about rebalancing, and code shared with requests about defragmentation. The jobs run in the thread of
//! [`super::jobs`].

use std::{thread, time::Duration};

use dataset::catalogue::{MoveState, RebalanceRow};
use pool::{
    env::Nanos,
    space::{Balanced, Imbalance},
};
use protocol::{Failure, RebalancePlan, RebalanceRecord, RemovalEnd};

use super::{
    job::Job,
    open_pool::OpenPool,
    refusal::OrRefused,
    removal::{end_of, seconds_between},
};

/// Polling interval of a waiting command.
pub(super) const WATCH: Duration = Duration::from_millis(50);

const NANOS: i64 = 1_000_000_000;
const ACTION: &str = "rebalance";

impl OpenPool {
    /// Starts a rebalance; with `dry_run`, only returns the plan.
    pub(super) fn rebalance(
        &self,
        limit: Option<u64>,
        dry_run: bool,
        job: &mut Job<'_>,
    ) -> Result<RebalancePlan, Failure> {
        let Imbalance { chunks, bytes, reason } = self.datasets.rebalance().plan().or_refused(ACTION, self.name())?;
        let region = self.engine().storage().space.region();
        let plan = RebalancePlan { bytes, chunks, region, reason: reason.map(words).map(str::to_owned) };
        if dry_run {
            return Ok(plan);
        }
        let reason = self.datasets.rebalance().start(limit).or_refused(ACTION, self.name())?;
        if reason == Some(Balanced::NoRoom) {
            let hint = "free some space, or add a device: pool add";
            return Err(Failure::cannot(ACTION, self.name(), words(Balanced::NoRoom)).hint(hint));
        }
        self.jobs.wake();
        if self.mounts.is_none() && reason.is_none() {
            // Without a service, the command itself has to wait for the job.
            self.wait_for_rebalance(job)?;
        }
        Ok(RebalancePlan { reason: reason.map(words).map(str::to_owned), ..plan })
    }

    /// Waits for a running rebalance. An error if the job is paused, stopped or failed.
    pub(super) fn wait_for_rebalance(&self, job: &mut Job<'_>) -> Result<(), Failure> {
        self.wait_for_batches((ACTION, "rebalancing"), words(Balanced::NoRoom), &|| self.rebalance_record(), job)
    }

    /// Waits for a running job that moves data in batches.
    pub(super) fn wait_for_batches(
        &self,
        (action, doing): (&str, &str),
        no_room: &str,
        record: &dyn Fn() -> Option<RebalanceRecord>,
        job: &mut Job<'_>,
    ) -> Result<(), Failure> {
        let what = format!("{doing} {}", self.name());
        loop {
            let Some(record) = record() else { return Ok(()) };
            let refused = |why: &str| Err(Failure::cannot(action, self.name(), why));
            match record.ended {
                None if record.paused => return refused("it is paused"),
                None => {}
                Some(RemovalEnd::Finished) => return Ok(()),
                Some(RemovalEnd::Canceled) => return refused("it was stopped"),
                Some(RemovalEnd::Unreadable) => return refused("data could not be read"),
                Some(RemovalEnd::NoRoom) => return refused(no_room),
            }
            self.engine().writable().or_refused(action, self.name())?;
            job.check()?;
            job.tell(&what, record.copied, Some(record.total.max(record.copied)));
            thread::sleep(WATCH);
        }
    }

    /// The running or the last rebalance.
    pub(super) fn rebalance_record(&self) -> Option<RebalanceRecord> {
        let RebalanceRow { state, start, end, total, copied, errors } = self.datasets.rebalance().status()?;
        Some(self.batches_record(Stood { state, start, end, total, copied, errors }))
    }

    /// The state of a job that moves data in batches, as a record.
    pub(super) fn batches_record(&self, stood: Stood) -> RebalanceRecord {
        let Stood { state, start, end, total, copied, errors } = stood;
        let ended = end_of(state);
        let until = if ended.is_none() { self.engine().env().now() } else { end };
        RebalanceRecord {
            ended,
            paused: ended.is_none() && self.datasets.moving().is_paused(),
            limit: self.datasets.moving().limit().filter(|_| ended.is_none()),
            start: start.div_euclid(NANOS),
            end: end.div_euclid(NANOS),
            seconds: seconds_between(start, until),
            total,
            copied,
            errors,
        }
    }
}

/// The fields common to the catalogue rows of jobs that move data in batches.
pub(super) struct Stood {
    pub(super) state: MoveState,
    pub(super) start: Nanos,
    pub(super) end: Nanos,
    pub(super) total: u64,
    pub(super) copied: u64,
    pub(super) errors: u64,
}

/// The reason for moving nothing, as text.
fn words(reason: Balanced) -> &'static str {
    match reason {
        Balanced::NoPeers => "no two vdevs can exchange data",
        Balanced::Level => "all vdevs are about equally full",
        Balanced::NoRoom => "too few empty regions",
        Balanced::Unpacked => {
            "vdevs have rows of different widths, and packed_chunks is disabled: pool set feature@packed_chunks=enabled"
        }
        Balanced::Kept => "the excess of the fuller vdevs cannot be moved: metadata, small amounts, or data in pieces",
    }
}
