//! Background activities of a pool, and the work left.

use super::{open_pool::OpenPool, refusal::OrRefused};
use dataset::{
    admin::{ResilverState, ResilverStatus},
    catalogue::ScrubState,
};
use protocol::{Activity, ActivityRecord, Failure};

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
        Ok(match activity {
            Activity::Defragment => {
                let running = self.defragment_record().map(|record| record.moved);
                let running = running.filter(|moved| moved.ended.is_none() && !moved.paused);
                running.map(|moved| moved.total.saturating_sub(moved.copied))
            }
            Activity::Freeing => {
                Some(self.datasets.freeing().or_refused(ACTION, self.name())?).filter(|bytes| *bytes > 0)
            }
            Activity::Expand => {
                let running = self.expansion().filter(|expansion| expansion.pause.is_none());
                running.map(|expansion| expansion.total.saturating_sub(expansion.copied))
            }
            Activity::Rebalance => {
                let rebalance =
                    self.rebalance_record().filter(|rebalance| rebalance.ended.is_none() && !rebalance.paused);
                rebalance.map(|rebalance| rebalance.total.saturating_sub(rebalance.copied))
            }
            Activity::Remove => {
                let removal = self.removal().filter(|removal| removal.ended.is_none() && !removal.paused);
                removal.map(|removal| removal.total.saturating_sub(removal.copied))
            }
            Activity::Replace => self.is_replacing().then(|| self.to_resilver()),
            Activity::Resize => {
                let record = self.resize_record().filter(|record| record.obstacle.is_none() || self.is_filling());
                let running = record.map(|record| record.moved);
                let running = running.filter(|moved| moved.ended.is_none() && !moved.paused);
                running.map(|moved| moved.total.saturating_sub(moved.copied))
            }
            Activity::Resilver => self.is_filling().then(|| self.to_resilver()),
            Activity::Scrub => {
                let status = self.datasets.scrub().status().or_refused(ACTION, self.name())?;
                let running = status.filter(|status| status.state == ScrubState::Running);
                running.map(|status| status.total.saturating_sub(status.examined))
            }
            Activity::Trim => self.left_to_trim(),
        })
    }

    /// Whether devices are being resilvered, so a command can wait. The end of a resilver is recorded shortly after
    /// the devices are complete.
    pub(super) fn is_filling(&self) -> bool {
        !self.is_stuck() && (self.needs().filling || self.resilver().is_some())
    }

    /// The running resilver, if any.
    fn resilver(&self) -> Option<ResilverStatus> {
        self.datasets.resilver().status().filter(|status| status.state == ResilverState::Running)
    }

    /// Bytes left to resilver: all allocated space if the resilver is about to begin.
    fn to_resilver(&self) -> u64 {
        let left = self.resilver().map(|status| status.total.saturating_sub(status.examined));
        left.unwrap_or_else(|| if self.needs().filling { self.engine().space_totals().allocated } else { 0 })
    }
}
