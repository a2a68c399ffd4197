//! What whoever has a pool of many devices open does for it, step by step, in the order in which the service does it: spares
//! step in and stand by again, what is rotten is mended, devices are filled, those that were replaced leave, vdevs and regions
//! are emptied, rows become wide, a scrub runs.

use std::{sync::Arc, time::Duration};

use dataset::admin::{Expanding, Progress, Removing, Resizing};
use pool::{
    admin::{Pool, SpareChange},
    error::ErrorKind,
    space::TrimCursor,
    units::VdevId,
    vdev::{Group, Member, State, Vdev},
};

use crate::world::{Outcome, RESILVER_STEP, World};

/// After so many steps whatever is under way should have come to its end.
const STEPS: usize = 20_000;

/// So long nobody tries again to make devices smaller that could not be.
const REST: Duration = Duration::from_secs(60);

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

    /// Has spares step in and stand by again. What was done with them.
    pub(crate) fn see_to_spares(&self) -> Outcome<Vec<SpareChange>> {
        let done = tried("what is due with spares", self.pool.spare_step())?;
        Ok(done.unwrap_or_default())
    }

    /// Finds out what is on cache devices.
    pub(crate) fn load_caches(&self) {
        let secondary = self.engine().secondary();
        while secondary.step(Duration::ZERO) == Some(Duration::ZERO) {}
    }

    /// Has cache devices get what was read, however little it is: as when a pool is closed.
    pub(crate) fn feed_caches(&self) {
        self.load_caches();
        self.engine().secondary().close();
    }

    /// How many cache devices hold something.
    pub(crate) fn caches_in_use(&self) -> usize {
        let caches = self.pool.caches();
        caches.iter().filter(|leaf| self.engine().secondary().held(leaf.guid()) > 0).count()
    }

    /// Does a step; whether there may be more to do.
    pub(crate) fn tend(&self, bytes: u64) -> Outcome<bool> {
        let datasets = &self.datasets;
        self.see_to_spares()?;
        let mended = step("mending", datasets.mend_step())? == Progress::Worked;
        if step("a resilver", datasets.resilver_step(bytes))? == Progress::Worked {
            return Ok(true);
        }
        tried("letting go of what was replaced", self.pool.finish_replacing())?;
        if datasets.is_resilvering() {
            return self.commit_and(mended);
        }
        if datasets.is_removing() {
            return match step("a removal", datasets.removal_step(bytes))? {
                Removing::Went(Progress::Worked) => Ok(true),
                Removing::Went(Progress::Idle) => self.commit_and(datasets.is_removing()),
                Removing::Leaves(vdev) => {
                    if tried("a vdev's leaving", self.pool.remove_vdev(vdev))?.is_none() {
                        return Ok(false);
                    }
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
        if datasets.is_resizing() && self.make_smaller(bytes)? {
            return Ok(true);
        }
        if datasets.is_defragmenting() {
            return match step("a defragmentation", datasets.defragment_step(bytes))? {
                Progress::Worked => Ok(true),
                Progress::Idle => self.commit_and(datasets.is_defragmenting()),
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

    /// Does a step of a resize; whether there may be more to do of it, but to wait.
    fn make_smaller(&self, bytes: u64) -> Outcome<bool> {
        let datasets = &self.datasets;
        let (vdev, regions) = match step("a resize", datasets.resize_step(bytes))? {
            Resizing::Went(Progress::Worked) => return Ok(true),
            Resizing::Went(Progress::Idle) if datasets.resize_obstacle().is_some() => return Ok(false),
            Resizing::Went(Progress::Idle) => return self.commit_and(datasets.is_resizing()),
            Resizing::Shrinks(vdev, regions) => (vdev, regions),
        };
        match self.pool.shrink(vdev, regions) {
            Ok(()) => step("the end of a resize", datasets.resize_done()).map(|()| true),
            Err(error) if error.kind() == ErrorKind::Device || !self.is_whole(vdev) => {
                datasets.resize_failed(&error);
                // Whoever owns the pool tries again then.
                self.engine().env().sleep(REST);
                Ok(false)
            }
            Err(error) => Err(format!("devices cannot be made smaller: {error}")),
        }
    }

    /// Whether all devices of a vdev are there and lack nothing, and none is a spare. One may have failed in the last commits.
    fn is_whole(&self, vdev: VdevId) -> bool {
        let (label, groups) = (self.pool.label(), self.groups());
        let mut members = groups.iter().filter(|(group, _)| group.id() == vdev).flat_map(|(_, members)| members.iter());
        members.all(|member| member.state() == State::Complete && !label.is_spare(member.leaf.guid()))
    }

    fn widen(&self, pool: &Pool, bytes: u64) -> Outcome<bool> {
        let Some(widening) = pool.widening() else { return Ok(false) };
        let expanding = self.datasets.expansion_step(widening.vdev, &widening.narrow, bytes);
        match step("an expansion", expanding)? {
            Expanding::Went(Progress::Worked) => Ok(true),
            Expanding::Went(Progress::Idle) if self.datasets.expansion_status().pause.is_some() => Ok(false),
            // It waits for a resize that waits for a device.
            Expanding::Went(Progress::Idle) if self.datasets.is_resizing() => Ok(false),
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

impl World {
    /// Tells the devices of all that is free. What was read before is forgotten.
    pub(crate) fn trim_all(&self) -> Outcome<()> {
        for vdev in self.engine().storage().vdevs.all().iter().filter(|vdev| !vdev.is_lost()) {
            step("a trim", self.pool.trim(vdev.id(), TrimCursor::default(), u64::MAX))?;
        }
        self.engine().forget_read();
        Ok(())
    }
}

/// What a step has come to that writes labels; none if a device refused that: it does so for a while only, and whoever owns the
/// pool tries again.
fn tried<T>(what: &str, result: pool::error::Result<T>) -> Outcome<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::Device => Ok(None),
        result => step(what, result.map(Some)),
    }
}

/// The error of a step, in words.
fn step<T, E: std::fmt::Display>(what: &str, result: Result<T, E>) -> Outcome<T> {
    result.map_err(|error| format!("{what} fails: {error}"))
}
