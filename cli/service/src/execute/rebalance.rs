//! Requests about rebalancing. The job runs in the thread of [`super::jobs`].

use dataset::jobs::Kind;
use pool::space::{Balanced, Imbalance};
use protocol::{Failure, RebalancePlan};

use super::{job::Job, open_pool::OpenPool, refusal::OrRefused};

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
        if reason.is_none() {
            self.work_at(Kind::Rebalance, job)?;
        }
        Ok(RebalancePlan { reason: reason.map(words).map(str::to_owned), ..plan })
    }
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
