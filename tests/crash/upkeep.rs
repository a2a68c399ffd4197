//! What the owner of a pool of many devices does for it, step by step: spares step in and are given back, and the service's own
//! scheduler has the jobs take turns, with steps of a fixed size.

use std::{sync::Arc, time::Duration};

use dataset::{
    error::Error,
    jobs::{Job as _, JobState, Kind, Scheduler, Step},
};
use pool::{
    admin::SpareChange,
    error::ErrorKind,
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

    /// Has the service's scheduler take a turn; whether there may be more to do.
    pub(crate) fn tend(&self, scheduler: &mut Scheduler) -> Outcome<bool> {
        self.see_to_spares()?;
        let before = self.datasets.resize().failure();
        let turn = scheduler.turn(&self.datasets, &self.pool);
        // A device refuses for a while only, and the owner of the pool tries again.
        let refused = |error: &Error| matches!(error, Error::Pool(error) if error.kind() == ErrorKind::Device);
        let turn = match turn {
            Err(error) if refused(&error) => return Ok(false),
            turn => step("a job", turn)?,
        };
        self.see_to_movers(turn.job)?;
        let failure = self.datasets.resize().failure();
        if let Some(failure) = failure.filter(|_| failure != before) {
            return self.see_to_resize(failure);
        }
        match turn.job {
            Some(_) if turn.worked => Ok(true),
            // What waits for a commit gets one.
            Some(waits) => {
                step("a commit", self.engine().commit_anyway())?;
                Ok(waits != Kind::Resilver || turn.worked)
            }
            None => Ok(turn.worked),
        }
    }

    /// At most one mover is under way, and no job runs before a more urgent one.
    fn see_to_movers(&self, at_work: Option<Kind>) -> Outcome<()> {
        let at_work = at_work.filter(|kind| !kind.is_pass());
        let is_under_way = |kind: &Kind| kind.of(&self.datasets).is_under_way();
        let movers: Vec<Kind> =
            Kind::IN_ORDER.into_iter().filter(|kind| kind.is_mover() && is_under_way(kind)).collect();
        if movers.len() > 1 {
            return Err(format!("several movers are under way: {movers:?}"));
        }
        let is_behind = |kind: &Kind| at_work.is_some_and(|at_work| at_work > *kind);
        match movers.first().filter(|mover| is_behind(mover) && self.datasets.resize().obstacle().is_none()) {
            Some(mover) => Err(format!("{at_work:?} works before {mover:?}")),
            None => Ok(()),
        }
    }

    /// Devices could not be made smaller, because a device refused or is not there: the owner of the pool tries again later.
    fn see_to_resize(&self, (kind, vdev): (ErrorKind, VdevId)) -> Outcome<bool> {
        if kind != ErrorKind::Device && self.is_whole(vdev) {
            return Err(format!("devices cannot be made smaller: {:?}", self.datasets.resize().obstacle()));
        }
        self.engine().env().sleep(REST);
        Ok(false)
    }

    /// Whether all devices of a vdev are present and complete, and none is a spare. A device may have failed in the
    /// last commits.
    fn is_whole(&self, vdev: VdevId) -> bool {
        let (label, groups) = (self.pool.label(), self.groups());
        let mut members = groups.iter().filter(|(group, _)| group.id() == vdev).flat_map(|(_, members)| members.iter());
        members.all(|member| member.state() == State::Complete && !label.is_spare(member.leaf.guid()))
    }

    /// Brings everything that is under way to its end, as far as there is room for it.
    pub(crate) fn settle(&self) -> Outcome<()> {
        let mut scheduler = Scheduler::of_steps(RESILVER_STEP, &self.datasets);
        for _ in 0..STEPS {
            if !self.tend(&mut scheduler)? {
                return Ok(());
            }
        }
        Err(format!("what is under way does not end: {:?}", self.incomplete()))
    }
}

impl World {
    /// Initializes and trims all free space, and drops the cache of blocks read.
    pub(crate) fn clear_all(&self) -> Outcome<()> {
        let vdevs = self.engine().storage().vdevs.all();
        let vdevs: Vec<VdevId> = vdevs.iter().filter(|vdev| !vdev.is_lost()).map(|vdev| vdev.id()).collect();
        for pass in [self.datasets.initialization(), self.datasets.trim()] {
            step("a pass", pass.start(&vdevs, None))?;
            while step("a pass", pass.step(&self.pool, u64::MAX))? == Step::Worked {}
            for record in vdevs.iter().filter_map(|vdev| pass.record_of(*vdev)) {
                if record.state != JobState::Finished {
                    return Err(format!("a pass over free space fails: {:?}", record.state));
                }
            }
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
