//! The upkeep of a pool of many devices, step by step, in the service's order: spares are put in and released, rot is
//! repaired, devices are resilvered, replaced devices leave, vdevs and regions are emptied, rows are widened, a scrub
//! runs.

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

/// The limit on steps until all jobs under way must have finished.
const STEPS: usize = 20_000;

/// The pause before a failed shrink of devices is tried again.
const REST: Duration = Duration::from_secs(60);

/// A mirror or RAID-Z, with its members.
pub(crate) type Grouped = (Arc<dyn Vdev>, Arc<Vec<Arc<Member>>>);

impl World {
    /// The mirrors and RAID-Zs, each with its members.
    pub(crate) fn groups(&self) -> Vec<Grouped> {
        let vdevs = self.engine().storage().vdevs.all();
        vdevs.into_iter().filter_map(|vdev| Some((vdev.clone(), vdev.as_group().map(Group::members)?))).collect()
    }

    /// The incomplete members, with their states.
    pub(crate) fn incomplete(&self) -> Vec<String> {
        let members = self.groups().into_iter().flat_map(|(_, members)| members.to_vec());
        let lacking = members.filter(|member| member.state() != State::Complete);
        lacking.map(|member| format!("{} is {:?}", member.leaf.name(), member.state())).collect()
    }

    /// Puts spares in and releases spares. Returns the changes.
    pub(crate) fn see_to_spares(&self) -> Outcome<Vec<SpareChange>> {
        let done = tried("what is due with spares", self.pool.spare_step())?;
        Ok(done.unwrap_or_default())
    }

    /// Reads the indexes of cache devices.
    pub(crate) fn load_caches(&self) {
        let secondary = self.engine().secondary();
        while secondary.step(Duration::ZERO) == Some(Duration::ZERO) {}
    }

    /// Writes data read before to cache devices, however little: as at the close of a pool.
    pub(crate) fn feed_caches(&self) {
        self.load_caches();
        self.engine().secondary().close();
    }

    /// The number of cache devices that hold data.
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

    /// Commits for work that waits for a commit.
    fn commit_and(&self, goes_on: bool) -> Outcome<bool> {
        step("a commit", self.engine().commit_anyway()).map(|_| goes_on)
    }

    /// Does a step of a resize; whether there may be more to do at once.
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
                // The pool's owner then tries again.
                self.engine().env().sleep(REST);
                Ok(false)
            }
            Err(error) => Err(format!("devices cannot be made smaller: {error}")),
        }
    }

    /// Whether all devices of a vdev are present and complete, and none is a spare. A device may have failed in the
    /// last commits.
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

    /// Finishes all jobs under way, as far as space allows.
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
    /// Trims all free space, and drops the cache of blocks read.
    pub(crate) fn trim_all(&self) -> Outcome<()> {
        for vdev in self.engine().storage().vdevs.all().iter().filter(|vdev| !vdev.is_lost()) {
            step("a trim", self.pool.trim(vdev.id(), TrimCursor::default(), u64::MAX))?;
        }
        self.engine().forget_read();
        Ok(())
    }
}

/// The result of a step that writes labels; `None` if a device refused the write: the refusal is temporary, and the
/// pool's owner tries again.
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
