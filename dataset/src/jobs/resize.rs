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
//! Nothing runs by itself: whoever owns the pool calls [`Datasets::resize_step`] again and again, and has the vdev shrink
//! when it says so.

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
    /// [`Datasets::resize_done`] to be called.
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

    fn is_under_way(&self) -> bool {
        self.datasets.is_resizing()
    }

    fn step(&self, pool: &Pool, budget: u64) -> Result<Step> {
        if !self.is_under_way() || self.datasets.is_moving_paused() {
            return Ok(Step::Idle);
        }
        match self.datasets.resize_step(budget)? {
            Resizing::Went(Progress::Worked) => return Ok(Step::Worked),
            Resizing::Went(Progress::Idle) => {}
            Resizing::Shrinks(vdev, regions) => match pool.shrink(vdev, regions) {
                Ok(()) => return self.datasets.resize_done().map(|()| Step::Done),
                Err(error) => {
                    tracing::warn!("cannot make the devices of vdev {vdev} smaller: {error}");
                    self.datasets.resize_failed(&error);
                }
            },
        }
        // A resize that waits for a device keeps no other job waiting.
        Ok(if self.datasets.resize_obstacle().is_some() { Step::Idle } else { self.datasets.a_while() })
    }

    fn limit(&self) -> Option<u64> {
        self.datasets.moving_limit()
    }

    fn handled(&self) -> u64 {
        self.datasets.moved()
    }

    fn pause(&self) -> Result<()> {
        self.datasets.pause_resize()
    }

    fn stop(&self, pool: &Pool) -> Result<()> {
        self.datasets.stop_resize(pool)
    }
}

impl Datasets {
    /// Goes on with a resize that was under way when the pool was closed. To be called before anything is allocated.
    pub(crate) fn resume_resize(&self) {
        // It is named before the row is written.
        if !self.engine().is_active(SHRUNKEN_DEVICES) {
            return;
        }
        // One of a vdev that cannot be has never begun.
        let is_possible = |row: &ResizeRow| row.state != MoveState::Running || under_way(row).is_some();
        let row = self.stored::<ResizeRow>(RESIZE).filter(is_possible);
        if let Some((vdev, regions)) = row.as_ref().and_then(under_way)
            && !self.engine().read_only()
        {
            self.engine().storage().space.close(&behind(vdev, regions));
        }
        *self.jobs.mover.resize.lock() = row;
    }

    /// Begins to make the devices of a vdev smaller, at `limit` bytes a second if there is one. Whether that can be was looked
    /// at. The same one that is paused goes on, and one that is not gets another limit.
    pub fn start_resize(&self, plan: &ShrinkPlan, limit: Option<u64>) -> Result<()> {
        self.engine().writable()?;
        let mut work = self.mover_work();
        if let Some(running) = self.running_resize() {
            if under_way(&running) == Some((plan.vdev, plan.regions)) && (self.is_moving_paused() || limit.is_some()) {
                // What it waited for may be there by now: it is looked at again.
                *self.jobs.mover.obstacle.lock() = None;
                return self.go_on(limit);
            }
            return refused(format!("the resize of {} is under way; use pool resize -s to stop it", running.name));
        }
        self.check_nothing_moves()?;
        let regions = behind(plan.vdev, plan.regions);
        if !plan.moving.fits_whole() && self.packs_behind(&regions)? == Packs::Never {
            let problem = "what lies at its end finds no empty regions of its kind elsewhere, and the pool's feature";
            return refused(format!("{problem} {PACKED_CHUNKS} is disabled; it is enabled by pool set"));
        }
        [DEVICE_REMOVAL, REBALANCE, SHRUNKEN_DEVICES]
            .into_iter()
            .try_for_each(|feature| self.activate_for_moving(feature))?;
        self.set_limit(limit)?;
        let row = ResizeRow {
            vdev: plan.vdev.0.into(),
            name: plan.name.clone(),
            regions: plan.regions.into(),
            size: plan.size,
            start: self.now(),
            total: plan.moving.bytes,
            ..Default::default()
        };
        work.begin(None);
        *self.jobs.mover.obstacle.lock() = None;
        self.put_resize(row)?;
        self.engine().close(&regions);
        Ok(())
    }

    /// Has the resize wait that is under way, until it is started again.
    pub fn pause_resize(&self) -> Result<()> {
        self.engine().writable()?;
        let _work = self.mover_work();
        match self.running_resize() {
            None => refused("no resize is under way".to_owned()),
            Some(_) if self.is_moving_paused() => refused("it is paused already".to_owned()),
            Some(row) if self.ends_there(&row) => refused(format!("the devices of {} end there already", row.name)),
            Some(_) => self.pause_moving(),
        }
    }

    /// Gives the resize up that is under way, unless labels name the new end.
    pub fn stop_resize(&self, pool: &Pool) -> Result<()> {
        self.engine().writable()?;
        let mut work = self.mover_work();
        let Some(row) = self.running_resize() else { return refused("no resize is under way".to_owned()) };
        let keep = |vdev, regions| pool.keep_ends(vdev, regions).map(|()| true);
        match self.give_resize_up(&mut work, row, MoveState::Canceled, keep)? {
            true => Ok(()),
            false => refused("what was at the end changes places at the moment; try again".to_owned()),
        }
    }

    /// The resize that is under way, or the last one.
    pub fn resize_status(&self) -> Option<ResizeStatus> {
        self.jobs.mover.resize.lock().clone()
    }

    /// Whether a resize is under way, be it paused or not.
    pub fn is_resizing(&self) -> bool {
        self.running_resize().is_some()
    }

    /// Why the resize that is under way does not go on by itself, though everything has been moved.
    pub fn resize_obstacle(&self) -> Option<String> {
        let obstacle = self.jobs.mover.obstacle.lock().clone().filter(|_| self.is_resizing());
        obstacle.map(|obstacle| match obstacle {
            Obstacle::Lacking(device) => format!("it waits for {device}, which is not there or lacks data"),
            Obstacle::Failed { error, .. } => format!("it is tried again each minute: {error}"),
        })
    }

    /// Why the devices could not be made smaller when that was tried last, and which vdev they are of; `None` if the resize does
    /// not wait for that.
    pub fn resize_failure(&self) -> Option<(ErrorKind, VdevId)> {
        let vdev = self.running_resize().as_ref().and_then(under_way)?.0;
        match &*self.jobs.mover.obstacle.lock() {
            Some(Obstacle::Failed { kind, .. }) => Some((*kind, vdev)),
            _ => None,
        }
    }

    /// The devices could not be made smaller: it is tried again later.
    pub fn resize_failed(&self, error: &pool::error::Error) {
        let _work = self.mover_work();
        // Or it was given up meanwhile.
        if self.is_resizing() {
            let now = self.engine().env().uptime();
            *self.jobs.mover.obstacle.lock() =
                Some(Obstacle::Failed { error: error.to_string(), kind: error.kind(), since: now });
        }
    }

    /// Does a step of the resize, if one is under way and not paused: copies about `budget` bytes while the pool is held
    /// still, or makes a few commits.
    pub fn resize_step(&self, budget: u64) -> Result<Resizing> {
        let mut work = self.mover_work();
        let idle = Ok(Resizing::Went(Progress::Idle));
        let is_possible = self.engine().writable().is_ok() && !self.is_moving_paused();
        let Some(row) = self.running_resize().filter(|_| is_possible) else { return idle };
        let Some((vdev, regions)) = under_way(&row) else { return idle };
        let leaving = behind(vdev, regions);
        if self.engine().storage().vdevs.get(vdev).is_err() {
            // A state from before the vdev left was gone back to.
            self.put_resize(ResizeRow { state: MoveState::Canceled, end: self.now(), ..row })?;
            return idle;
        }
        if self.is_obstructed(vdev, &leaving)? {
            return idle;
        }
        if !self.engine().storage().space.is_copying() {
            // Whoever was about to use what the vdev has grown when this began may have added regions since.
            self.engine().close(&leaving);
        }
        let packs = self.packs_behind(&leaving)?;
        match self.empty_step(&mut work, (&leaving, &Targets::Anywhere), packs, budget)? {
            Emptying::Worked { copied, errors } => {
                if let Some(row) = &mut *self.jobs.mover.resize.lock() {
                    (row.copied, row.errors) = (row.copied + copied, row.errors + errors);
                }
            }
            Emptying::Idle => return idle,
            // One that has left since is waited for by the next step.
            Emptying::Vacated if self.lacking(vdev)?.is_some() => return idle,
            Emptying::Vacated => {
                self.engine().outlast_states()?;
                return Ok(Resizing::Shrinks(vdev, regions));
            }
            Emptying::Unreadable => return self.end_resize(&mut work, row, MoveState::Unreadable),
            Emptying::NoRoom => return self.end_resize(&mut work, row, MoveState::NoRoom),
        }
        Ok(Resizing::Went(Progress::Worked))
    }

    /// The vdev has shrunk.
    pub fn resize_done(&self) -> Result<()> {
        let _work = self.mover_work();
        match self.running_resize() {
            Some(row) => self.put_resize(ResizeRow { state: MoveState::Finished, end: self.now(), ..row }),
            None => Ok(()),
        }
    }

    /// Whether nothing is left to do but to wait: without a commit, for that would be one a second, for as long as it takes.
    fn is_obstructed(&self, vdev: VdevId, leaving: &Regions) -> Result<bool> {
        let before = self.jobs.mover.obstacle.lock().clone();
        let now = match (&before, self.lacking(vdev)?) {
            // What is vacated stays so: it is closed.
            (before, Some(device)) if before.is_some() || self.engine().storage().space.is_vacated(leaving) => {
                Some(Obstacle::Lacking(device))
            }
            (Some(Obstacle::Failed { since, .. }), None) if self.engine().env().uptime() < *since + REST => before,
            _ => None,
        };
        let is_obstructed = now.is_some();
        // How it failed last is shown until it is known how it fares now.
        if is_obstructed || matches!(*self.jobs.mover.obstacle.lock(), Some(Obstacle::Lacking(_))) {
            *self.jobs.mover.obstacle.lock() = now;
        }
        Ok(is_obstructed)
    }

    /// A device of a vdev that does not hold everything.
    fn lacking(&self, vdev: VdevId) -> Result<Option<String>> {
        let members = self.engine().storage().vdevs.get(vdev)?.as_group().map(|group| group.members());
        let mut members = members.iter().flat_map(|members| members.iter());
        let lacking = members.find(|member| member.state() != State::Complete);
        Ok(lacking.map(|member| member.leaf.name().to_owned()))
    }

    /// Whether the devices end where they are to.
    fn ends_there(&self, row: &ResizeRow) -> bool {
        let vdevs = self.engine().storage().vdevs.all();
        vdevs.iter().any(|vdev| u64::from(vdev.id().0) == row.vdev && end_at(&vdev.labelled(), row.size))
    }

    /// Whether chunks are packed. They are only where they have to be.
    fn packs_behind(&self, regions: &Regions) -> Result<Packs> {
        let plan = || self.engine().storage().space.moving_plan(regions, &Targets::Anywhere);
        Ok(if self.may_pack(|| !plan().fits_whole())? { Packs::IfNeeded } else { Packs::Never })
    }

    fn running_resize(&self) -> Option<ResizeRow> {
        self.resize_status().filter(|row| row.state == MoveState::Running)
    }

    /// Gives a resize up that cannot go on, unless nothing is left to be moved: labels may say it then.
    fn end_resize(&self, work: &mut Work, row: ResizeRow, state: MoveState) -> Result<Resizing> {
        let keep = |vdev, regions| Ok(!self.engine().has_changed_places(&behind(vdev, regions)));
        let is_over = self.give_resize_up(work, row, state, keep)?;
        Ok(Resizing::Went(if is_over { Progress::Worked } else { Progress::Idle }))
    }

    /// Gives a resize up; `false` if `keep` says so of its vdev and regions, or chunks change places. Nobody holds the pool
    /// still.
    ///
    /// The regions are taken back before the row says it: if power fails in between, it begins again with what lies there.
    fn give_resize_up(
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
            let _still = self.engine().hold_still();
            if !keep(vdev, regions)? || !self.engine().reopen(&leaving) {
                return Ok(false);
            }
            work.begin(None);
        }
        if let Err(error) = self.put_resize(ResizeRow { state, end: self.now(), ..row }) {
            self.engine().close(&leaving);
            return Err(error);
        }
        Ok(true)
    }

    fn put_resize(&self, row: ResizeRow) -> Result<()> {
        let stored = row.clone();
        self.run(move |tx| {
            tx.put(RESIZE, &stored, None);
            Ok(())
        })?;
        *self.jobs.mover.resize.lock() = Some(row);
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
