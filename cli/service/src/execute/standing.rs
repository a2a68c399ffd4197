//! The conditions of an open pool, from which [`crate::health`] derives state and advice.

use std::{sync::Arc, time::Duration};

use dataset::{
    admin::NearQuota,
    jobs::{JobRecord, JobState, Kind, records},
    property::pool::CAPACITY_WARN,
};
use pool::{device::Whereabouts, units::Txg, vdev::Leaf};
use protocol::{AlertRecord, Failure, State, VdevRecord};

use super::{devices, open_pool::OpenPool, pool::percent, refusal::OrRefused};
use crate::health::{self, Condition, Details, Verdict};

/// Percentage of a quota from which the quota counts as nearly used up.
const NEAR: u64 = 90;

const NANOS: i64 = 1_000_000_000;

/// How long after its latest start a scrub is overdue, and how long a service must have had the pool open: scrubs that
/// fell due while the machine was off start within this time.
const OVERDUE: Duration = Duration::from_secs(3600);

/// Shortest interval of searches for quotas, each of which reads a row of each dataset.
const FRESH: Duration = Duration::from_secs(5);

/// Least ratio of an interval to the preceding search: searches take a thousandth of a CPU at most.
const RATIO: u32 = 1000;

/// The nearly used quotas, as last found.
#[derive(Default)]
pub(super) struct Near {
    quotas: Vec<NearQuota>,
    /// The newest transaction group at the search; without a commit nothing has changed.
    committed: Option<Txg>,
    /// The uptime of the earliest next search.
    next: Duration,
}

/// Paths of devices with errors, and the number of errors of each. Errors that belong to no device count for the vdev.
pub(super) fn with_errors(vdevs: &[VdevRecord]) -> Vec<(String, u64)> {
    let own = |vdev: &VdevRecord| (vdev.path.clone(), vdev.read_errors + vdev.write_errors + vdev.checksum_errors);
    let mut all = Vec::new();
    for vdev in vdevs {
        let before = all.len();
        all.extend(vdev.members.iter().map(own).filter(|(_, errors)| *errors > 0));
        if all.len() == before {
            all.extend(Some(own(vdev)).filter(|(_, errors)| *errors > 0));
        }
    }
    all
}

impl OpenPool {
    /// All present alerts, for the events.
    pub(crate) fn alerts(&self) -> Result<Vec<AlertRecord>, Failure> {
        let damaged = match self.engine().suspension().is_suspended() {
            true => None,
            false => Some(self.datasets.damage().or_refused("open", self.name())?.len()),
        };
        let (waiting, passed) = self.engine().unexamined();
        let jobs = records(&self.datasets, &self.pool).or_refused("open", self.name())?;
        let errors = with_errors(&self.vdev_records());
        Ok(self.verdict(damaged, waiting + passed > 0, errors, &jobs)?.alerts)
    }

    /// Looks at the devices, and passes all present alerts to the events.
    pub(crate) fn note_alerts(&self) {
        self.images.look();
        match self.alerts() {
            Ok(alerts) => self.events.note_alerts(&alerts),
            Err(failure) => tracing::debug!("alerts are unknown: {failure}"),
        }
    }

    /// The conditions that leave the pool healthy, and need planning.
    fn notices(&self, details: &mut Details) -> Vec<Condition> {
        details.quotas = self.near_quotas();
        let totals = self.engine().space_totals();
        details.capacity = percent(totals.size - totals.free, totals.size);
        let warn = self.datasets.pool_setting(&CAPACITY_WARN);
        let (due, env) = (self.datasets.due_scrub(), self.engine().env());
        let now = env.now();
        // Where no service has the pool open, no scrub starts.
        let is_settled = self.mounts.is_none() || env.uptime().saturating_sub(self.opened) >= OVERDUE;
        let patience = OVERDUE.as_secs().cast_signed() * NANOS;
        let is_overdue = is_settled && due.is_some_and(|due| now.saturating_sub(due.latest) >= patience);
        let late = due.map_or(0, |due| now.saturating_sub(due.from));
        details.overdue = u64::try_from(late / NANOS).unwrap_or(0);
        let all = [
            (!details.quotas.is_empty(), Condition::NearQuota),
            (warn > 0 && details.capacity >= warn, Condition::Full),
            (is_overdue, Condition::ScrubOverdue),
        ];
        all.into_iter().filter(|(is_so, _)| *is_so).map(|(_, condition)| condition).collect()
    }

    fn near_quotas(&self) -> Vec<NearQuota> {
        let (env, committed) = (self.engine().env(), Some(self.engine().committed()));
        let begun = env.uptime();
        let mut known = self.near.lock();
        if known.committed.is_none() || (known.committed != committed && begun >= known.next) {
            let quotas = self.datasets.near_quotas(NEAR).unwrap_or_default();
            let ended = env.uptime();
            let next = ended + FRESH.max(ended.saturating_sub(begun) * RATIO);
            *known = Near { quotas, committed, next };
        }
        known.quotas.clone()
    }

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
        errors: Vec<(String, u64)>,
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
        let others = [(is_unexamined, Condition::Unexamined), (!errors.is_empty(), Condition::Errors)];
        conditions.extend(others.into_iter().filter(|(is_so, _)| *is_so).map(|(_, condition)| condition));
        details.errors = errors;
        // Reading the catalogue may need a device, which a suspended pool lacks.
        if !engine.suspension().is_suspended() {
            conditions.extend(self.notices(&mut details));
        }
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
