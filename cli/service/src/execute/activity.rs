//! Background activities of a pool, and the work left.

use dataset::jobs::{Kind, ResilverState, ResilverStatus};
use protocol::{Activity, ActivityRecord, Failure};

use super::{open_pool::OpenPool, refusal::OrRefused};

const ACTION: &str = "wait for";

impl OpenPool {
    /// The state of each activity. A read-only pool has none.
    pub(super) fn activities(&self) -> Result<Vec<ActivityRecord>, Failure> {
        let none = |activity| Ok(ActivityRecord { activity, left: None });
        if self.engine().read_only() {
            return Activity::ALL.iter().copied().map(none).collect();
        }
        self.engine().writable().or_refused(ACTION, self.name())?;
        Activity::ALL
            .iter()
            .map(|activity| Ok(ActivityRecord { activity: *activity, left: self.left(*activity)? }))
            .collect()
    }

    /// Approximate number of bytes left for an activity; `None` if not running.
    fn left(&self, activity: Activity) -> Result<Option<u64>, Failure> {
        let kind = match activity {
            Activity::Freeing => {
                let freeing = self.datasets.freeing().or_refused(ACTION, self.name())?;
                return Ok(Some(freeing).filter(|bytes| *bytes > 0));
            }
            Activity::Replace | Activity::Resilver if self.datasets.resilver().is_paused() => return Ok(None),
            Activity::Replace => return Ok(self.is_replacing().then(|| self.to_resilver())),
            Activity::Resilver => return Ok(self.is_resilvering().then(|| self.to_resilver())),
            Activity::Defragment => Kind::Defragment,
            Activity::Expand => Kind::Expand,
            Activity::Rebalance => Kind::Rebalance,
            Activity::Remove => Kind::Remove,
            Activity::Resize => Kind::Resize,
            Activity::Scrub => Kind::Scrub,
            Activity::Trim => Kind::Trim,
            Activity::Initialize => Kind::Initialize,
        };
        Ok(self.record_of(kind)?.filter(|record| self.goes_on(record)).map(|record| record.left()))
    }

    /// Whether devices are being resilvered, so a command can wait. The end of a resilver is recorded shortly after
    /// the devices are complete.
    pub(super) fn is_resilvering(&self) -> bool {
        !self.is_stuck() && (self.needs().resilvering || self.resilver().is_some())
    }

    /// The running resilver, if any.
    fn resilver(&self) -> Option<ResilverStatus> {
        self.datasets.resilver().status().filter(|status| status.state == ResilverState::Running)
    }

    /// Bytes left to resilver: all allocated space if the resilver is about to begin.
    fn to_resilver(&self) -> u64 {
        let left = self.resilver().map(|status| status.total.saturating_sub(status.examined));
        left.unwrap_or_else(|| if self.needs().resilvering { self.engine().space_totals().allocated } else { 0 })
    }
}
