//! Shrinking the devices of a vdev: content at the end is copied elsewhere while the pool is in use; then the devices
//! end earlier. For the argument that nothing is lost see [`pool::txg::Vacating`] and the pool's `space` and
//! `admin::shrink`; the steps are in [`super::moving`].
//!
//! A row of the catalogue shows that a resize is under way. The row is read before anything is allocated in an opened
//! pool, so that the regions at the end stay closed. Everything else restarts after an import: earlier copies are free
//! space in the committed state.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the row is committed | no resize |
//! | after that | the row: the resize restarts; if the end is empty already, nothing is copied |
//! | after labels name the new end | the row, and a vdev with the new end: content behind the end is gone |
//! | after the row records the end of the resize | a finished resize |
//!
//! Labels are changed only when all devices of the vdev are present and complete: a missing device would keep the old
//! end. While waiting, the resize makes no commits, and until labels name the new end the resize can be cancelled
//! ([`Pool::keep_ends`]).
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) requests the steps, and [`Job::step`] shrinks the vdev
//! when [`Resize::advance`] reports so.

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
    job::{Job, Step},
    kind::Kind,
    moving::{Common, Emptying, Moving, refused},
    record::{Detail, JobRecord, JobState, Reason},
};
use crate::catalogue::{MoveState, POOL, ResizeRow, kind};
use crate::underway::moving::Obstacle;
use crate::underway::moving::Work;
use crate::{
    admin::{Datasets, Progress},
    error::Result,
};

/// The pause after devices could not be shrunk: each attempt takes some commits.
const REST: Duration = Duration::from_secs(60);

const RESIZE: Key = Key::new(POOL, kind::RESIZE, 0);

/// The status of a resize: see [`ResizeRow`].
pub type ResizeStatus = ResizeRow;

/// The result of a step of a resize.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resizing {
    /// A step was made, or no step is possible now.
    Went(Progress),
    /// Nothing is allocated behind the given number of regions of the vdev, and no state needs the old content. The
    /// caller shrinks the vdev, and then calls [`Resize::has_shrunk`].
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

    /// Whether a resize is under way, even paused.
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
        // A resize that waits for a device does not delay other jobs.
        Ok(if self.obstacle().is_some() { Step::Idle } else { self.datasets.a_while() })
    }

    fn mover(&self) -> Option<Moving<'_>> {
        Some(self.datasets.moving())
    }

    /// Pauses the current resize until resumed.
    fn pause(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        let _work = self.datasets.moving().work();
        match self.running() {
            None => refused("no resize is in progress".to_owned()),
            Some(_) if self.datasets.moving().is_paused() => refused("it is already paused".to_owned()),
            Some(row) if self.ends_there(&row) => refused(format!("the devices of {} already end there", row.name)),
            Some(_) => self.datasets.moving().pause(),
        }
    }

    /// Cancels the current resize, unless labels name the new end.
    fn stop(&self, pool: &Pool) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        let Some(row) = self.running() else { return refused("no resize is in progress".to_owned()) };
        let keep = |vdev, regions| pool.keep_ends(vdev, regions).map(|()| true);
        match self.give_up(&mut work, row, MoveState::Canceled, keep)? {
            true => self.datasets.moving().lift_pause(),
            false => refused("the last blocks are just being moved; try again".to_owned()),
        }
    }

    fn record(&self, _pool: &Pool) -> Result<Option<JobRecord>> {
        let Some(ResizeRow { state, name, size, start, end, total, copied, errors, .. }) = self.status() else {
            return Ok(None);
        };
        let common = Common { state, start, end, total, copied, errors };
        let record = self.datasets.moving().record(Kind::Resize, common, Detail::Resize { name, size });
        let obstacle = self.obstacle().filter(|_| record.state == JobState::Running);
        let state = obstacle.map_or(record.state, |obstacle| JobState::Waiting(Reason::Device(obstacle)));
        Ok(Some(JobRecord { state, ..record }))
    }
}

impl Resize<'_> {
    /// Continues a resize that was under way when the pool was closed; called before anything is allocated.
    pub(crate) fn resume(&self) {
        // The feature is activated before the row is written.
        if !self.datasets.engine().is_active(SHRUNKEN_DEVICES) {
            return;
        }
        // A row about an impossible vdev belongs to a resize that never began.
        let may_run = |row: &ResizeRow| under_way(row).is_some() && self.datasets.moving().is_only(row);
        let is_possible = |row: &ResizeRow| row.state != MoveState::Running || may_run(row);
        let row = self.datasets.moving().stored::<ResizeRow>(RESIZE).filter(is_possible);
        if let Some((vdev, regions)) = row.as_ref().and_then(under_way)
            && !self.datasets.engine().read_only()
        {
            self.datasets.engine().storage().space.close(&behind(vdev, regions));
        }
        *self.datasets.jobs.mover.resize.lock() = row;
    }

    /// Starts to shrink the devices of a vdev, with a limit in bytes per second, if any. The caller has checked the
    /// plan. If the same resize is paused, it resumes; if running, it gets the new limit.
    pub fn start(&self, plan: &ShrinkPlan, limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        if let Some(running) = self.running() {
            if under_way(&running) == Some((plan.vdev, plan.regions))
                && (self.datasets.moving().is_paused() || limit.is_some())
            {
                // The obstacle may be gone by now, so check again.
                *self.datasets.jobs.mover.obstacle.lock() = None;
                return self.datasets.moving().go_on(limit);
            }
            return refused(format!("the resize of {} is in progress; use pool resize -s to stop it", running.name));
        }
        self.datasets.moving().check_none()?;
        let regions = behind(plan.vdev, plan.regions);
        if !plan.moving.fits_whole() && self.packs_behind(&regions)? == Packs::Never {
            let problem = "no empty regions of the same kind are left for the data at its end, and the pool's feature";
            return refused(format!("{problem} {PACKED_CHUNKS} is disabled; to enable it: pool set"));
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

    /// The current resize, or the last.
    pub fn status(&self) -> Option<ResizeStatus> {
        self.datasets.jobs.mover.resize.lock().clone()
    }

    /// The reason why the current resize waits although everything was moved.
    pub fn obstacle(&self) -> Option<String> {
        let obstacle = self.datasets.jobs.mover.obstacle.lock().clone().filter(|_| self.is_under_way());
        obstacle.map(|obstacle| match obstacle {
            Obstacle::Lacking(device) => format!("it is waiting for {device}, which is missing or incomplete"),
            Obstacle::Failed { error, .. } => format!("it is retried every minute: {error}"),
        })
    }

    /// The kind of error of the last attempt to shrink the devices, and the vdev; `None` if the resize waits for
    /// nothing else.
    pub fn failure(&self) -> Option<(ErrorKind, VdevId)> {
        let vdev = self.running().as_ref().and_then(under_way)?.0;
        match &*self.datasets.jobs.mover.obstacle.lock() {
            Some(Obstacle::Failed { kind, .. }) => Some((*kind, vdev)),
            _ => None,
        }
    }

    /// Records that the devices could not be shrunk; the attempt is repeated later.
    pub fn failed(&self, error: &pool::error::Error) {
        let _work = self.datasets.moving().work();
        // The resize may have been cancelled meanwhile.
        if self.is_under_way() {
            let now = self.datasets.engine().env().uptime();
            *self.datasets.jobs.mover.obstacle.lock() =
                Some(Obstacle::Failed { error: error.to_string(), kind: error.kind(), since: now });
        }
    }

    /// Makes a step of the resize, if running: copies about `budget` bytes while the pool is held still, or makes a few
    /// commits.
    pub fn advance(&self, budget: u64) -> Result<Resizing> {
        let mut work = self.datasets.moving().work();
        let idle = Ok(Resizing::Went(Progress::Idle));
        let is_possible = self.datasets.engine().writable().is_ok() && !self.datasets.moving().is_paused();
        let Some(row) = self.running().filter(|_| is_possible) else { return idle };
        let Some((vdev, regions)) = under_way(&row) else { return idle };
        let leaving = behind(vdev, regions);
        if self.datasets.engine().storage().vdevs.get(vdev).is_err() {
            // After a rewind to a state from before the vdev was removed.
            self.put(ResizeRow { state: MoveState::Canceled, end: self.datasets.now(), ..row })?;
            return idle;
        }
        if self.is_obstructed(vdev, &leaving)? {
            return idle;
        }
        if !self.datasets.engine().storage().space.is_copying() {
            // A job that used a grown vdev's space may have added regions since.
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
            // A device that has disappeared since is awaited by the next step.
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

    /// Records that the vdev has shrunk.
    pub fn has_shrunk(&self) -> Result<()> {
        let _work = self.datasets.moving().work();
        match self.running() {
            Some(row) => self.put(ResizeRow { state: MoveState::Finished, end: self.datasets.now(), ..row }),
            None => Ok(()),
        }
    }

    /// Whether only waiting is left. Checked without a commit, because a wait would otherwise cost one commit per
    /// second.
    fn is_obstructed(&self, vdev: VdevId, leaving: &Regions) -> Result<bool> {
        let before = self.datasets.jobs.mover.obstacle.lock().clone();
        let now = match (&before, self.lacking(vdev)?) {
            // Vacated regions stay vacated: the regions are closed.
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
        // The last failure is shown until the next attempt has a result.
        if is_obstructed || matches!(*self.datasets.jobs.mover.obstacle.lock(), Some(Obstacle::Lacking(_))) {
            *self.datasets.jobs.mover.obstacle.lock() = now;
        }
        Ok(is_obstructed)
    }

    /// A missing or incomplete device of a vdev.
    fn lacking(&self, vdev: VdevId) -> Result<Option<String>> {
        let members = self.datasets.engine().storage().vdevs.get(vdev)?.as_group().map(|group| group.members());
        let mut members = members.iter().flat_map(|members| members.iter());
        let lacking = members.find(|member| member.state() != State::Complete);
        Ok(lacking.map(|member| member.leaf.name().to_owned()))
    }

    /// Whether the devices already have the new end.
    fn ends_there(&self, row: &ResizeRow) -> bool {
        let vdevs = self.datasets.engine().storage().vdevs.all();
        vdevs.iter().any(|vdev| u64::from(vdev.id().0) == row.vdev && end_at(&vdev.labelled(), row.size))
    }

    /// Whether chunks are packed: only if necessary.
    fn packs_behind(&self, regions: &Regions) -> Result<Packs> {
        let plan = || self.datasets.engine().storage().space.moving_plan(regions, &Targets::Anywhere);
        Ok(if self.datasets.moving().may_pack(|| !plan().fits_whole())? { Packs::IfNeeded } else { Packs::Never })
    }

    fn running(&self) -> Option<ResizeRow> {
        self.status().filter(|row| row.state == MoveState::Running)
    }

    /// Cancels a resize that cannot continue, unless everything was moved: labels may name the new end then.
    fn end(&self, work: &mut Work, row: ResizeRow, state: MoveState) -> Result<Resizing> {
        let keep = |vdev, regions| Ok(!self.datasets.engine().has_changed_places(&behind(vdev, regions)));
        let is_over = self.give_up(work, row, state, keep)?;
        Ok(Resizing::Went(if is_over { Progress::Worked } else { Progress::Idle }))
    }

    /// Cancels a resize; false if `keep` returns true for its vdev and regions, or chunks are changing places. The
    /// caller does not hold the pool still.
    ///
    /// The regions are reopened before the row records the end: if power fails in between, the resize restarts with the
    /// content there.
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
            // While the pool is held still, no thread makes chunks change places or shrinks devices; a later attempt
            // finds the regions in use.
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

/// The regions behind the new end.
fn behind(vdev: VdevId, regions: u32) -> Regions {
    Regions::Range(vdev, regions..u32::MAX)
}

/// The vdev of a running resize, and the number of regions that stay.
fn under_way(row: &ResizeRow) -> Option<(VdevId, u32)> {
    let is_running = row.state == MoveState::Running;
    let (vdev, regions) = (u32::try_from(row.vdev).ok()?, u32::try_from(row.regions).ok()?);
    is_running.then_some((VdevId(vdev), regions))
}
