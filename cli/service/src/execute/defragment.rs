//! Requests about defragmentation. The job runs in the thread of [`super::jobs`].

use dataset::jobs::Kind;
use pool::space::{Dense, Fragmentation};
use protocol::{DefragmentPlan, Failure};

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused};

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
        if reason.is_none() {
            self.work_at(Kind::Defragment, job)?;
        }
        Ok(DefragmentPlan { reason: shown(reason), ..plan })
    }
}

/// The reason for moving nothing, as text.
fn words(reason: Dense) -> &'static str {
    match reason {
        Dense::Enough => "no further region could be emptied",
        Dense::NoRoom => "too little free space",
    }
}
