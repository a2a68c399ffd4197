//! The conditions of an open pool, from which [`crate::health`] derives state and advice.

use std::sync::Arc;

use dataset::jobs::{JobRecord, JobState, Kind};
use pool::{device::Whereabouts, vdev::Leaf};
use protocol::{Failure, State};

use super::{devices, open_pool::OpenPool, refusal::OrRefused};
use crate::health::{self, Condition, Details, Verdict};

impl OpenPool {
    /// The pool's state, determined without I/O.
    pub(super) fn state(&self) -> State {
        let mut conditions = self.conditions_of_commits();
        conditions.extend(self.needs().conditions());
        conditions.extend(self.conditions_of_devices(&mut Details::default()));
        health::state_of(&conditions)
    }

    /// The pool's state and advice. `damaged` is the number of damaged files, `None` for a suspended pool.
    pub(super) fn verdict(
        &self,
        damaged: Option<usize>,
        is_unexamined: bool,
        has_errors: bool,
        jobs: &[JobRecord],
    ) -> Result<Verdict, Failure> {
        let engine = self.engine();
        let mut details = Details { deadline: devices::deadline(), ..Details::default() };
        let is_clean = |scrub: &JobRecord| (&scrub.state, scrub.errors) == (&JobState::Finished, 0);
        details.is_scrubbed = jobs.iter().any(|job| job.kind == Kind::Scrub && is_clean(job));
        details.why = engine.suspension().reason().or_else(|| engine.failure().map(str::to_owned));
        let mut conditions = self.conditions_of_commits();
        conditions.extend(self.needs().conditions());
        if damaged.is_some_and(|count| count > 0) {
            conditions.push(Condition::Damaged);
            details.has_lost_nodes = self.datasets.has_lost_nodes().or_refused("open", self.name())?;
        }
        let others = [(is_unexamined, Condition::Unexamined), (has_errors, Condition::Errors)];
        conditions.extend(others.into_iter().filter(|(is_so, _)| *is_so).map(|(_, condition)| condition));
        if let Some(leaf) = self.slow_device() {
            conditions.push(Condition::Slow);
            details.device = Some(leaf.name().to_owned());
        }
        if let Some(cache) = self.cache_out() {
            conditions.push(Condition::CacheOut);
            details.device = Some(cache);
        }
        conditions.extend(self.conditions_of_devices(&mut details));
        Ok(health::verdict(self.name().as_str(), &conditions, &details))
    }

    /// A device of a vdev that answers slowly, if any.
    fn slow_device(&self) -> Option<Arc<Leaf>> {
        let vdevs = self.engine().storage().vdevs.all();
        vdevs.iter().flat_map(|vdev| vdev.leaves()).find(|leaf| leaf.meter().is_slow())
    }

    fn conditions_of_commits(&self) -> Vec<Condition> {
        let engine = self.engine();
        let all = [
            (engine.suspension().is_suspended(), Condition::Suspended),
            (engine.failure().is_some(), Condition::CommitFailed),
        ];
        all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, condition)| condition).collect()
    }

    /// Conditions from the files and response times of devices. `details` describes the device of the first
    /// condition.
    fn conditions_of_devices(&self, details: &mut Details) -> Vec<Condition> {
        let sight = self.images.sight();
        let mut found: Vec<(Condition, Arc<Leaf>, bool)> = Vec::new();
        for vdev in self.engine().storage().vdevs.all() {
            for leaf in vdev.leaves() {
                let condition = match (sight.of(&leaf), sight.state(&leaf).0) {
                    (_, State::Removed) => Condition::Removed,
                    (Whereabouts::Cut(_), State::Degraded) => Condition::Cut,
                    (_, State::Degraded) => Condition::Silent,
                    _ => continue,
                };
                found.push((condition, leaf, vdev.as_group().is_none()));
            }
        }
        found.sort_by_key(|(condition, ..)| *condition);
        if let Some((_, leaf, is_alone)) = found.first() {
            details.device = Some(leaf.name().to_owned());
            details.is_alone = *is_alone;
        }
        found.into_iter().map(|(condition, ..)| condition).collect()
    }
}
