//! What whoever has a pool of many devices open does for it, step by step, in the order in which the service does it: what
//! is rotten is mended, devices are filled, those that were replaced leave, vdevs are emptied, rows become wide, a scrub runs.

use std::sync::Arc;

use dataset::admin::{Expanding, Progress, Removing};
use pool::{
    admin::Pool,
    vdev::{Group, Member, State, Vdev},
};

use crate::world::{Outcome, RESILVER_STEP, World};

/// After so many steps whatever is under way should have come to its end.
const STEPS: usize = 20_000;

/// A vdev that is several devices, and these.
pub(crate) type Grouped = (Arc<dyn Vdev>, Arc<Vec<Arc<Member>>>);

impl World {
    /// The vdevs that are several devices, and these.
    pub(crate) fn groups(&self) -> Vec<Grouped> {
        let vdevs = self.engine().storage().vdevs.all();
        vdevs.into_iter().filter_map(|vdev| Some((vdev.clone(), vdev.as_group().map(Group::members)?))).collect()
    }

    /// The members that lack something.
    pub(crate) fn incomplete(&self) -> Vec<String> {
        let members = self.groups().into_iter().flat_map(|(_, members)| members.to_vec());
        let lacking = members.filter(|member| member.state() != State::Complete);
        lacking.map(|member| format!("{} is {:?}", member.leaf.name(), member.state())).collect()
    }

    /// Does a step; whether there may be more to do.
    pub(crate) fn tend(&self, bytes: u64) -> Outcome<bool> {
        let datasets = &self.datasets;
        let mended = step("mending", datasets.mend_step())? == Progress::Worked;
        if step("a resilver", datasets.resilver_step(bytes))? == Progress::Worked {
            return Ok(true);
        }
        step("letting go of what was replaced", self.pool.finish_replacing())?;
        if datasets.is_resilvering() {
            return self.commit_and(mended);
        }
        if datasets.is_removing() {
            return match step("a removal", datasets.removal_step(bytes))? {
                Removing::Went(Progress::Worked) => Ok(true),
                Removing::Went(Progress::Idle) => self.commit_and(datasets.is_removing()),
                Removing::Leaves(vdev) => {
                    step("a vdev's leaving", self.pool.remove_vdev(vdev))?;
                    step("the end of a removal", datasets.removal_done()).map(|()| true)
                }
            };
        }
        if datasets.is_rebalancing() {
            return match step("a rebalance", datasets.rebalance_step(bytes))? {
                Progress::Worked => Ok(true),
                Progress::Idle => self.commit_and(datasets.is_rebalancing()),
            };
        }
        if self.widen(&self.pool, bytes)? {
            return Ok(true);
        }
        let scrubbed = step("a scrub", datasets.scrub_step(bytes))?;
        Ok(scrubbed == Progress::Worked || mended)
    }

    /// What waits for a commit gets one.
    fn commit_and(&self, goes_on: bool) -> Outcome<bool> {
        step("a commit", self.engine().commit_anyway()).map(|_| goes_on)
    }

    fn widen(&self, pool: &Pool, bytes: u64) -> Outcome<bool> {
        let Some(widening) = pool.widening() else { return Ok(false) };
        let expanding = self.datasets.expansion_step(widening.vdev, &widening.narrow, bytes);
        match step("an expansion", expanding)? {
            Expanding::Went(Progress::Worked) => Ok(true),
            Expanding::Went(Progress::Idle) if self.datasets.expansion_status().pause.is_some() => Ok(false),
            Expanding::Went(Progress::Idle) => self.commit_and(true),
            Expanding::Widens(vdev, count) => {
                step("widening", pool.widen(vdev, count))?;
                self.datasets.expansion_done();
                Ok(true)
            }
        }
    }

    /// Brings everything that is under way to its end, as far as there is room for it.
    pub(crate) fn settle(&self) -> Outcome<()> {
        for _ in 0..STEPS {
            if !self.tend(RESILVER_STEP)? {
                return Ok(());
            }
        }
        Err(format!("what is under way does not end: {:?}", self.incomplete()))
    }
}

/// The error of a step, in words.
fn step<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| format!("{what} fails: {error}"))
}
