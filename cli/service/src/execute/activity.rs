//! What goes on in a pool in the background, and how much of it is left.

use super::{open_pool::OpenPool, refusal::OrRefused};
use dataset::{
    admin::{ResilverState, ResilverStatus},
    catalogue::ScrubState,
};
use protocol::{Activity, ActivityRecord, Failure};

const ACTION: &str = "wait for";

impl OpenPool {
    /// How each activity stands. In a pool that is only read there is none.
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

    /// About how many bytes an activity has before it; `None` if it is not under way.
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

    /// Whether devices get what they lack, and so may be waited for. That a resilver has ended is noted a moment after they have
    /// everything.
    pub(super) fn is_filling(&self) -> bool {
        !self.is_stuck() && (self.needs().filling || self.resilver().is_some())
    }

    /// The resilver that is under way.
    fn resilver(&self) -> Option<ResilverStatus> {
        self.datasets.resilver().status().filter(|status| status.state == ResilverState::Running)
    }

    /// What a resilver has before it: everything, if it is about to begin.
    fn to_resilver(&self) -> u64 {
        let left = self.resilver().map(|status| status.total.saturating_sub(status.examined));
        left.unwrap_or_else(|| if self.needs().filling { self.engine().space_totals().allocated } else { 0 })
    }
}
