//! Requests about defragmentation. The job runs in the thread of [`super::jobs`].

use dataset::catalogue::DefragmentRow;
use pool::space::{Dense, Fragmentation};
use protocol::{DefragmentPlan, DefragmentRecord, Failure};

use super::{job::Job, open_pool::OpenPool, rebalance::Stood, refusal::OrRefused};

const ACTION: &str = "defragment";

impl OpenPool {
    /// Starts defragmentation; with `dry_run`, only returns the plan.
    pub(super) fn defragment(
        &self,
        limit: Option<u64>,
        dry_run: bool,
        job: &mut Job<'_>,
    ) -> Result<DefragmentPlan, Failure> {
        let Fragmentation { chunks, bytes, empty, empty_then, reason } = self.datasets.defragment().plan();
        let region = self.engine().storage().space.region();
        let shown = |reason: Option<Dense>| reason.map(words).map(str::to_owned);
        let plan = DefragmentPlan { bytes, chunks, empty, empty_then, region, reason: shown(reason) };
        if dry_run {
            return Ok(plan);
        }
        let reason = self.datasets.defragment().start(limit).or_refused(ACTION, self.name())?;
        if reason == Some(Dense::NoRoom) {
            let hint = "free some space, or add a device: pool add";
            return Err(Failure::cannot(ACTION, self.name(), words(Dense::NoRoom)).hint(hint));
        }
        self.jobs.wake();
        if self.mounts.is_none() && reason.is_none() {
            // Without a service, the command itself has to wait for the job.
            self.wait_for_defragment(job)?;
        }
        Ok(DefragmentPlan { reason: shown(reason), ..plan })
    }

    /// Waits for a running defragmentation. An error if the job is paused, stopped or failed.
    pub(super) fn wait_for_defragment(&self, job: &mut Job<'_>) -> Result<(), Failure> {
        let record = || self.defragment_record().map(|record| record.moved);
        self.wait_for_batches((ACTION, "defragmenting"), words(Dense::NoRoom), &record, job)
    }

    /// The running or the last defragmentation.
    pub(super) fn defragment_record(&self) -> Option<DefragmentRecord> {
        let DefragmentRow { state, start, end, total, copied, errors, wanted, emptied, taken } =
            self.datasets.defragment().status()?;
        let moved = self.batches_record(Stood { state, start, end, total, copied, errors });
        let (packed, maps) = self.engine().storage().space.packed();
        Some(DefragmentRecord { moved, wanted, emptied, taken, packed: packed as u64, maps })
    }
}

/// The reason for moving nothing, as text.
fn words(reason: Dense) -> &'static str {
    match reason {
        Dense::Enough => "no further region could be emptied",
        Dense::NoRoom => "too little free space",
    }
}
