//! Making the devices of a vdev smaller: what lies at their end is copied elsewhere while everything is in use, and then they
//! end earlier. Why nothing is lost is argued in [`pool::txg::Vacating`] and in the pool's `space` and `admin::shrink`; the
//! steps are [`super::moving`]'s.
//!
//! That it is under way is a row of the catalogue. It is read before anything is allocated when the pool is opened, so that
//! the regions at the end stay closed; all else begins again then: what was copied so far is free space to the committed
//! state.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the row is committed | nothing under way |
//! | after that | the row, and it begins again; if everything had left the end, there is nothing to copy |
//! | after labels name the new end | the row, and a vdev that ends there: what is behind is given up |
//! | after the row says that it has ended | it as it has ended |
//!
//! It waits with the labels until all devices of the vdev are there and have everything: one that is not would not be told.
//! While it waits nothing is committed, and until labels name the new end it can be given up ([`Pool::keep_ends`]).
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) calls for step after step, and a step of
//! [`Job::step`] has the vdev shrink when [`Resize::advance`] says so.

use std::time::Duration;

use pool::{
    admin::{Pool, ShrinkPlan, end_at},
    error::ErrorKind,
    format::{
        key::Key,
        label::{DEVICE_REMOVAL, PACKED_CHUNKS, REBALANCE, SHRUNKEN_DEVICES},
    },
    space::{Packs, Regions, Targets},
    units::VdevId,
    vdev::State,
};

use super::{
    Job, Kind, Step,
    moving::{Emptying, Work, refused},
};
use crate::admin::{Datasets, Progress, Result};
use crate::catalogue::{MoveState, POOL, ResizeRow, kind};

/// How long it rests after devices could not be made smaller: each time takes some commits.
const REST: Duration = Duration::from_secs(60);

const RESIZE: Key = Key::new(POOL, kind::RESIZE, 0);

/// How a resize stands: see [`ResizeRow`].
pub type ResizeStatus = ResizeRow;

/// Why a resize does not go on, though everything has been moved.
#[derive(Clone, Debug)]
pub(crate) enum Obstacle {
    /// This device is not there or lacks data.
    Lacking(String),
    /// The devices could not be made smaller, for that reason, when the environment had been up for so long.
    Failed { error: String, kind: ErrorKind, since: Duration },
}

/// What a step of a resize has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resizing {
    /// A step was done, or nothing can be done now.
    Went(Progress),
    /// Nothing is behind so many regions of this vdev any more, and no state needs what was. It is to shrink, and then
    /// [`Resize::has_shrunk`] to be called.
    Shrinks(VdevId, u32),
}

/// The resize of the devices of a vdev.
pub struct Resize<'a> {
    pub(super) datasets: &'a Datasets,
}

impl Job for Resize<'_> {
    fn kind(&self) -> Kind {
        Kind::Resize
    }

    /// Whether a resize is under way, be it paused or not.
    fn is_under_way(&self) -> bool {
        self.running().is_some()
    }

    fn step(&self, pool: &Pool, budget: u64) -> Result<Step> {
        if !self.is_under_way() || self.datasets.moving().is_paused() {
            return Ok(Step::Idle);
        }
        match self.advance(budget)? {
            Resizing::Went(Progress::Worked) => return Ok(Step::Worked),
            Resizing::Went(Progress::Idle) => {}
            Resizing::Shrinks(vdev, regions) => match pool.shrink(vdev, regions) {
                Ok(()) => return self.has_shrunk().map(|()| Step::Done),
                Err(error) => {
                    tracing::warn!("cannot make the devices of vdev {vdev} smaller: {error}");
                    self.failed(&error);
                }
            },
        }
        // A resize that waits for a device keeps no other job waiting.
        Ok(if self.obstacle().is_some() { Step::Idle } else { self.datasets.a_while() })
    }

    fn limit(&self) -> Option<u64> {
        self.datasets.moving().limit()
    }

    fn handled(&self) -> u64 {
        self.datasets.moving().copied()
    }

    /// Has the resize wait that is under way, until it is started again.
    fn pause(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        let _work = self.datasets.moving().work();
        match self.running() {
            None => refused("no resize is under way".to_owned()),
            Some(_) if self.datasets.moving().is_paused() => refused("it is paused already".to_owned()),
            Some(row) if self.ends_there(&row) => refused(format!("the devices of {} end there already", row.name)),
            Some(_) => self.datasets.moving().pause(),
        }
    }

    /// Gives the resize up that is under way, unless labels name the new end.
    fn stop(&self, pool: &Pool) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        let Some(row) = self.running() else { return refused("no resize is under way".to_owned()) };
        let keep = |vdev, regions| pool.keep_ends(vdev, regions).map(|()| true);
        match self.give_up(&mut work, row, MoveState::Canceled, keep)? {
            true => Ok(()),
            false => refused("what was at the end changes places at the moment; try again".to_owned()),
        }
    }
}

impl Resize<'_> {
    /// Goes on with a resize that was under way when the pool was closed. To be called before anything is allocated.
    pub(crate) fn resume(&self) {
        // It is named before the row is written.
        if !self.datasets.engine().is_active(SHRUNKEN_DEVICES) {
            return;
        }
        // One of a vdev that cannot be has never begun.
        let is_possible = |row: &ResizeRow| row.state != MoveState::Running || under_way(row).is_some();
        let row = self.datasets.moving().stored::<ResizeRow>(RESIZE).filter(is_possible);
        if let Some((vdev, regions)) = row.as_ref().and_then(under_way)
            && !self.datasets.engine().read_only()
        {
            self.datasets.engine().storage().space.close(&behind(vdev, regions));
        }
        *self.datasets.jobs.mover.resize.lock() = row;
    }

    /// Begins to make the devices of a vdev smaller, at `limit` bytes a second if there is one. Whether that can be was looked
    /// at. The same one that is paused goes on, and one that is not gets another limit.
    pub fn start(&self, plan: &ShrinkPlan, limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        if let Some(running) = self.running() {
            if under_way(&running) == Some((plan.vdev, plan.regions))
                && (self.datasets.moving().is_paused() || limit.is_some())
            {
                // What it waited for may be there by now: it is looked at again.
                *self.datasets.jobs.mover.obstacle.lock() = None;
                return self.datasets.moving().go_on(limit);
            }
            return refused(format!("the resize of {} is under way; use pool resize -s to stop it", running.name));
        }
        self.datasets.moving().check_none()?;
        let regions = behind(plan.vdev, plan.regions);
        if !plan.moving.fits_whole() && self.packs_behind(&regions)? == Packs::Never {
            let problem = "what lies at its end finds no empty regions of its kind elsewhere, and the pool's feature";
            return refused(format!("{problem} {PACKED_CHUNKS} is disabled; it is enabled by pool set"));
        }
        [DEVICE_REMOVAL, REBALANCE, SHRUNKEN_DEVICES]
            .into_iter()
            .try_for_each(|feature| self.datasets.moving().activate(feature))?;
        self.datasets.moving().set_limit(limit)?;
        let row = ResizeRow {
            vdev: plan.vdev.0.into(),
            name: plan.name.clone(),
            regions: plan.regions.into(),
            size: plan.size,
            start: self.datasets.now(),
            total: plan.moving.bytes,
            ..Default::default()
        };
        work.begin(None);
        *self.datasets.jobs.mover.obstacle.lock() = None;
        self.put(row)?;
        self.datasets.engine().close(&regions);
        Ok(())
    }

    /// The resize that is under way, or the last one.
    pub fn status(&self) -> Option<ResizeStatus> {
        self.datasets.jobs.mover.resize.lock().clone()
    }

    /// Why the resize that is under way does not go on by itself, though everything has been moved.
    pub fn obstacle(&self) -> Option<String> {
        let obstacle = self.datasets.jobs.mover.obstacle.lock().clone().filter(|_| self.is_under_way());
        obstacle.map(|obstacle| match obstacle {
            Obstacle::Lacking(device) => format!("it waits for {device}, which is not there or lacks data"),
            Obstacle::Failed { error, .. } => format!("it is tried again each minute: {error}"),
        })
    }

    /// Why the devices could not be made smaller when that was tried last, and which vdev they are of; `None` if the resize does
    /// not wait for that.
    pub fn failure(&self) -> Option<(ErrorKind, VdevId)> {
        let vdev = self.running().as_ref().and_then(under_way)?.0;
        match &*self.datasets.jobs.mover.obstacle.lock() {
            Some(Obstacle::Failed { kind, .. }) => Some((*kind, vdev)),
            _ => None,
        }
    }

    /// The devices could not be made smaller: it is tried again later.
    pub fn failed(&self, error: &pool::error::Error) {
        let _work = self.datasets.moving().work();
        // Or it was given up meanwhile.
        if self.is_under_way() {
            let now = self.datasets.engine().env().uptime();
            *self.datasets.jobs.mover.obstacle.lock() =
                Some(Obstacle::Failed { error: error.to_string(), kind: error.kind(), since: now });
        }
    }

    /// Does a step of the resize, if one is under way and not paused: copies about `budget` bytes while the pool is held
    /// still, or makes a few commits.
    pub fn advance(&self, budget: u64) -> Result<Resizing> {
        let mut work = self.datasets.moving().work();
        let idle = Ok(Resizing::Went(Progress::Idle));
        let is_possible = self.datasets.engine().writable().is_ok() && !self.datasets.moving().is_paused();
        let Some(row) = self.running().filter(|_| is_possible) else { return idle };
        let Some((vdev, regions)) = under_way(&row) else { return idle };
        let leaving = behind(vdev, regions);
        if self.datasets.engine().storage().vdevs.get(vdev).is_err() {
            // A state from before the vdev left was gone back to.
            self.put(ResizeRow { state: MoveState::Canceled, end: self.datasets.now(), ..row })?;
            return idle;
        }
        if self.is_obstructed(vdev, &leaving)? {
            return idle;
        }
        if !self.datasets.engine().storage().space.is_copying() {
            // Whoever was about to use what the vdev has grown when this began may have added regions since.
            self.datasets.engine().close(&leaving);
        }
        let packs = self.packs_behind(&leaving)?;
        match self.datasets.moving().empty_step(&mut work, (&leaving, &Targets::Anywhere), packs, budget)? {
            Emptying::Worked { copied, errors } => {
                if let Some(row) = &mut *self.datasets.jobs.mover.resize.lock() {
                    (row.copied, row.errors) = (row.copied + copied, row.errors + errors);
                }
            }
            Emptying::Idle => return idle,
            // One that has left since is waited for by the next step.
            Emptying::Vacated if self.lacking(vdev)?.is_some() => return idle,
            Emptying::Vacated => {
                self.datasets.engine().outlast_states()?;
                return Ok(Resizing::Shrinks(vdev, regions));
            }
            Emptying::Unreadable => return self.end(&mut work, row, MoveState::Unreadable),
            Emptying::NoRoom => return self.end(&mut work, row, MoveState::NoRoom),
        }
        Ok(Resizing::Went(Progress::Worked))
    }

    /// The vdev has shrunk.
    pub fn has_shrunk(&self) -> Result<()> {
        let _work = self.datasets.moving().work();
        match self.running() {
            Some(row) => self.put(ResizeRow { state: MoveState::Finished, end: self.datasets.now(), ..row }),
            None => Ok(()),
        }
    }

    /// Whether nothing is left to do but to wait: without a commit, for that would be one a second, for as long as it takes.
    fn is_obstructed(&self, vdev: VdevId, leaving: &Regions) -> Result<bool> {
        let before = self.datasets.jobs.mover.obstacle.lock().clone();
        let now = match (&before, self.lacking(vdev)?) {
            // What is vacated stays so: it is closed.
            (before, Some(device))
                if before.is_some() || self.datasets.engine().storage().space.is_vacated(leaving) =>
            {
                Some(Obstacle::Lacking(device))
            }
            (Some(Obstacle::Failed { since, .. }), None) if self.datasets.engine().env().uptime() < *since + REST => {
                before
            }
            _ => None,
        };
        let is_obstructed = now.is_some();
        // How it failed last is shown until it is known how it fares now.
        if is_obstructed || matches!(*self.datasets.jobs.mover.obstacle.lock(), Some(Obstacle::Lacking(_))) {
            *self.datasets.jobs.mover.obstacle.lock() = now;
        }
        Ok(is_obstructed)
    }

    /// A device of a vdev that does not hold everything.
    fn lacking(&self, vdev: VdevId) -> Result<Option<String>> {
        let members = self.datasets.engine().storage().vdevs.get(vdev)?.as_group().map(|group| group.members());
        let mut members = members.iter().flat_map(|members| members.iter());
        let lacking = members.find(|member| member.state() != State::Complete);
        Ok(lacking.map(|member| member.leaf.name().to_owned()))
    }

    /// Whether the devices end where they are to.
    fn ends_there(&self, row: &ResizeRow) -> bool {
        let vdevs = self.datasets.engine().storage().vdevs.all();
        vdevs.iter().any(|vdev| u64::from(vdev.id().0) == row.vdev && end_at(&vdev.labelled(), row.size))
    }

    /// Whether chunks are packed. They are only where they have to be.
    fn packs_behind(&self, regions: &Regions) -> Result<Packs> {
        let plan = || self.datasets.engine().storage().space.moving_plan(regions, &Targets::Anywhere);
        Ok(if self.datasets.moving().may_pack(|| !plan().fits_whole())? { Packs::IfNeeded } else { Packs::Never })
    }

    fn running(&self) -> Option<ResizeRow> {
        self.status().filter(|row| row.state == MoveState::Running)
    }

    /// Gives a resize up that cannot go on, unless nothing is left to be moved: labels may say it then.
    fn end(&self, work: &mut Work, row: ResizeRow, state: MoveState) -> Result<Resizing> {
        let keep = |vdev, regions| Ok(!self.datasets.engine().has_changed_places(&behind(vdev, regions)));
        let is_over = self.give_up(work, row, state, keep)?;
        Ok(Resizing::Went(if is_over { Progress::Worked } else { Progress::Idle }))
    }

    /// Gives a resize up; `false` if `keep` says so of its vdev and regions, or chunks change places. Nobody holds the pool
    /// still.
    ///
    /// The regions are taken back before the row says it: if power fails in between, it begins again with what lies there.
    fn give_up(
        &self,
        work: &mut Work,
        row: ResizeRow,
        state: MoveState,
        keep: impl FnOnce(VdevId, u32) -> pool::error::Result<bool>,
    ) -> Result<bool> {
        let Some((vdev, regions)) = under_way(&row) else { return Ok(false) };
        let leaving = behind(vdev, regions);
        {
            // Nobody has chunks change places or devices become smaller meanwhile; who would have them do it next finds
            // regions that are in use.
            let _still = self.datasets.engine().hold_still();
            if !keep(vdev, regions)? || !self.datasets.engine().reopen(&leaving) {
                return Ok(false);
            }
            work.begin(None);
        }
        if let Err(error) = self.put(ResizeRow { state, end: self.datasets.now(), ..row }) {
            self.datasets.engine().close(&leaving);
            return Err(error);
        }
        Ok(true)
    }

    fn put(&self, row: ResizeRow) -> Result<()> {
        let stored = row.clone();
        self.datasets.run(move |tx| {
            tx.put(RESIZE, &stored, None);
            Ok(())
        })?;
        *self.datasets.jobs.mover.resize.lock() = Some(row);
        Ok(())
    }
}

/// What is given up.
fn behind(vdev: VdevId, regions: u32) -> Regions {
    Regions::Range(vdev, regions..u32::MAX)
}

/// The vdev of a resize that is under way, and how many regions it keeps.
fn under_way(row: &ResizeRow) -> Option<(VdevId, u32)> {
    let is_running = row.state == MoveState::Running;
    let (vdev, regions) = (u32::try_from(row.vdev).ok()?, u32::try_from(row.regions).ok()?);
    is_running.then_some((VdevId(vdev), regions))
}
