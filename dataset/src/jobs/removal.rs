//! Removal of a vdev: its content is copied elsewhere while the pool is in use, and then the vdev leaves the pool. For
//! the argument that nothing is lost see [`pool::txg::Vacating`] and the pool's `space` and `admin::removal`; the steps
//! are in [`super::moving`].
//!
//! The vdev is closed as a whole, and emptied in parts. A part that has changed places stays in its new place, however
//! the removal ends. So little is copied again after a crash, and only the twins of one part are reserved at a time.
//! Each part takes a walk through all trees, so there are few parts. If packing is necessary, everything is packed in
//! one part, because space given to whole chunks would be missing for later packing.
//!
//! A row of the catalogue shows that a removal is under way. The row is read before anything is allocated in an opened
//! pool, so that the vdev stays closed. The current part is not stored: its copies are free space in the committed
//! state, and the part is chosen again.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the row is committed | no removal |
//! | while a part is copied, or before the table with the part's new places is committed | the removal; the part is copied again |
//! | after that, before the row counts the part | the removal, which continues with the next part, and does not count this part |
//! | after everything has left the vdev | the removal, and nothing to copy |
//! | after the labels omit the vdev | a removal of a missing vdev, which is recorded as finished |
//!
//! Nothing runs by itself: the [`Scheduler`](super::Scheduler) requests the steps, and [`Job::step`] removes the vdev
//! when [`Removal::advance`] reports so.

use pool::{
    admin::Pool,
    format::{
        key::Key,
        label::{DEVICE_REMOVAL, PACKED_CHUNKS},
    },
    space::{Batch, Packs, Regions, Targets},
    units::VdevId,
};

use super::{
    job::{Job, Step},
    kind::Kind,
    moving::{Common, Emptying, Moving, refused},
    record::{Detail, JobRecord},
};
use crate::catalogue::{MoveState, POOL, RemovalRow, kind};
use crate::underway::moving::Work;
use crate::{
    admin::{Datasets, Progress},
    error::Result,
};

/// The approximate number of parts; a part is at least one region.
const PARTS: u64 = 16;

const REMOVAL: Key = Key::new(POOL, kind::REMOVAL, 0);

/// The status of a removal: see [`RemovalRow`].
pub type RemovalStatus = RemovalRow;

/// The result of a step of a removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removing {
    /// A step was made, or no step is possible now.
    Went(Progress),
    /// The vdev is empty, and no state needs the old content. The caller removes the vdev from the pool, and then calls
    /// [`Removal::has_left`].
    Leaves(VdevId),
}

/// The removal of a vdev from a pool.
pub struct Removal<'a> {
    pub(super) datasets: &'a Datasets,
}

impl Job for Removal<'_> {
    fn kind(&self) -> Kind {
        Kind::Remove
    }

    /// Whether a removal is under way, even paused.
    fn is_under_way(&self) -> bool {
        self.running().is_some()
    }

    fn step(&self, pool: &Pool, budget: u64) -> Result<Step> {
        if !self.is_under_way() || self.datasets.moving().is_paused() {
            return Ok(Step::Idle);
        }
        Ok(match self.advance(budget)? {
            Removing::Went(Progress::Worked) => Step::Worked,
            Removing::Went(Progress::Idle) => self.datasets.a_while(),
            Removing::Leaves(vdev) => {
                pool.remove_vdev(vdev)?;
                self.has_left()?;
                Step::Done
            }
        })
    }

    fn mover(&self) -> Option<Moving<'_>> {
        Some(self.datasets.moving())
    }

    /// Pauses the current removal until resumed.
    fn pause(&self) -> Result<()> {
        self.datasets.engine().writable()?;
        let work = self.datasets.moving().work();
        match self.running() {
            None => refused("no removal is in progress".to_owned()),
            Some(_) if self.datasets.moving().is_paused() => refused("it is already paused".to_owned()),
            // The vdev is about to leave, and the end must be recorded.
            Some(row) if under_way(&row).is_none_or(|vdev| self.has_all_moved(&work, vdev)) => {
                refused("all data of the vdev has already been moved".to_owned())
            }
            Some(_) => self.datasets.moving().pause(),
        }
    }

    /// Cancels the current removal.
    fn stop(&self, _pool: &Pool) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        match self.running() {
            None => refused("no removal is in progress".to_owned()),
            Some(row) => match self.give_up(&mut work, row, MoveState::Canceled)? {
                true => self.datasets.moving().lift_pause(),
                false => refused("all data of the vdev has already been moved".to_owned()),
            },
        }
    }

    fn record(&self, _pool: &Pool) -> Result<Option<JobRecord>> {
        let Some(RemovalRow { state, vdev, name, start, end, total, copied, errors }) = self.status() else {
            return Ok(None);
        };
        let common = Common { state, start, end, total, copied, errors };
        Ok(Some(self.datasets.moving().record(Kind::Remove, common, Detail::Removal { name, vdev })))
    }
}

impl Removal<'_> {
    /// Continues a removal that was under way when the pool was closed; called before anything is allocated.
    pub(crate) fn resume(&self) {
        // The feature is activated before the row is written.
        if !self.datasets.engine().is_active(DEVICE_REMOVAL) {
            return;
        }
        // A row about an impossible vdev belongs to a removal that never began.
        let is_possible = |row: &RemovalRow| row.state != MoveState::Running || under_way(row).is_some();
        let row = self.datasets.moving().stored::<RemovalRow>(REMOVAL).filter(is_possible);
        if let Some(vdev) = row.as_ref().and_then(under_way)
            && !self.datasets.engine().read_only()
        {
            self.datasets.engine().storage().space.close(&Regions::Vdev(vdev));
        }
        *self.datasets.jobs.mover.removal.lock() = row;
    }

    /// Starts to remove the vdev `name` with `total` allocated bytes, with a limit in bytes per second, if any. The
    /// caller has checked that the removal is possible. If the same removal is paused, it resumes; if running, it gets
    /// the new limit.
    pub fn start(&self, vdev: VdevId, name: &str, total: u64, limit: Option<u64>) -> Result<()> {
        self.datasets.engine().writable()?;
        let mut work = self.datasets.moving().work();
        if let Some(running) = self.running() {
            if under_way(&running) == Some(vdev) && (self.datasets.moving().is_paused() || limit.is_some()) {
                return self.datasets.moving().go_on(limit);
            }
            return refused(format!("the removal of {} is in progress; use pool remove -s to stop it", running.name));
        }
        self.datasets.moving().check_none()?;
        let plan = self.datasets.engine().storage().space.moving_plan(&Regions::Vdev(vdev), &Targets::Anywhere);
        if !plan.fits_whole() && self.packs(vdev)? == Packs::Never {
            let problem = "the other vdevs have no empty regions of the same kind, and the pool's feature";
            return refused(format!("{problem} {PACKED_CHUNKS} is disabled; to enable it: pool set"));
        }
        self.datasets.moving().activate(DEVICE_REMOVAL)?;
        self.datasets.moving().set_limit(limit)?;
        let row = RemovalRow {
            vdev: vdev.0.into(),
            name: name.to_owned(),
            start: self.datasets.now(),
            total,
            ..Default::default()
        };
        work.begin(None);
        self.put(row)?;
        self.datasets.engine().close(&Regions::Vdev(vdev));
        Ok(())
    }

    /// The current removal, or the last.
    pub fn status(&self) -> Option<RemovalStatus> {
        self.datasets.jobs.mover.removal.lock().clone()
    }

    /// Makes a step of the removal, if running: copies about `budget` bytes while the pool is held still, or makes a
    /// few commits.
    pub fn advance(&self, budget: u64) -> Result<Removing> {
        let mut work = self.datasets.moving().work();
        let idle = Ok(Removing::Went(Progress::Idle));
        let Some(row) = self.running().filter(|_| self.datasets.engine().writable().is_ok()) else { return idle };
        let Some(vdev) = under_way(&row) else { return idle };
        if self.datasets.engine().storage().vdevs.get(vdev).is_err() {
            self.put(RemovalRow { state: MoveState::Finished, end: self.datasets.now(), ..row })?;
            return idle;
        }
        if self.datasets.moving().is_paused() {
            return idle;
        }
        // The space available when the part was chosen may have been taken since.
        let (whole, packs) = (Regions::Vdev(vdev), self.packs(vdev)?);
        let part = match work.batch.clone() {
            Some(part) => part,
            None => {
                let part = self.next_part(vdev, row.total);
                work.begin(Some(part.clone()));
                part
            }
        };
        if part.regions != whole && self.datasets.moving().is_moved(&part) {
            self.end_part(&mut work, row)?;
            return Ok(Removing::Went(Progress::Worked));
        }
        match self.datasets.moving().empty_step(&mut work, (&part.regions, &part.targets), packs, budget)? {
            Emptying::Worked { copied, errors } => {
                if let Some(row) = &mut *self.datasets.jobs.mover.removal.lock() {
                    (row.copied, row.errors) = (row.copied + copied, row.errors + errors);
                }
            }
            Emptying::Idle => return idle,
            Emptying::Vacated if part.regions != whole => self.end_part(&mut work, row)?,
            Emptying::Vacated => {
                self.datasets.engine().outlast_states()?;
                return Ok(Removing::Leaves(vdev));
            }
            Emptying::Unreadable => return self.end(&mut work, row, MoveState::Unreadable),
            Emptying::NoRoom => return self.end(&mut work, row, MoveState::NoRoom),
        }
        Ok(Removing::Went(Progress::Worked))
    }

    /// Cancels a removal that cannot continue. If everything has moved, the removal waits instead: for space in which a
    /// table can record so.
    fn end(&self, work: &mut Work, row: RemovalRow, state: MoveState) -> Result<Removing> {
        let is_over = self.give_up(work, row, state)?;
        Ok(Removing::Went(if is_over { Progress::Worked } else { Progress::Idle }))
    }

    /// Records that the vdev has left the pool.
    pub fn has_left(&self) -> Result<()> {
        let _work = self.datasets.moving().work();
        match self.running() {
            Some(row) => self.put(RemovalRow { state: MoveState::Finished, end: self.datasets.now(), ..row }),
            None => Ok(()),
        }
    }

    /// The next part of a vdev with `total` bytes to move: everything if little is left or packing is necessary. Each
    /// step decides anew about packing.
    fn next_part(&self, vdev: VdevId, total: u64) -> Batch {
        let space = &self.datasets.engine().storage().space;
        let (whole, targets) = (Regions::Vdev(vdev), Targets::Anywhere);
        let plan = space.moving_plan(&whole, &targets);
        let part = plan.fits_whole().then(|| space.first_regions(vdev, total / PARTS));
        Batch { regions: part.flatten().unwrap_or(whole), targets, packs: Packs::IfNeeded }
    }

    /// Ends an empty part: the row counts the bytes copied.
    fn end_part(&self, work: &mut Work, row: RemovalRow) -> Result<()> {
        work.begin(None);
        self.put(row)
    }

    /// Whether the vdev is empty, even if no committed table shows so yet.
    fn has_all_moved(&self, work: &Work, vdev: VdevId) -> bool {
        let whole = Regions::Vdev(vdev);
        match work.batch.as_ref().is_some_and(|part| part.regions != whole) {
            true => self.datasets.engine().storage().space.moving_plan(&whole, &Targets::Anywhere).needed == 0,
            false => self.datasets.engine().has_changed_places(&whole),
        }
    }

    /// Whether chunks of a vdev are packed: only if necessary.
    fn packs(&self, vdev: VdevId) -> Result<Packs> {
        let plan = || self.datasets.engine().storage().space.moving_plan(&Regions::Vdev(vdev), &Targets::Anywhere);
        Ok(if self.datasets.moving().may_pack(|| !plan().fits_whole())? { Packs::IfNeeded } else { Packs::Never })
    }

    fn running(&self) -> Option<RemovalRow> {
        self.status().filter(|row| row.state == MoveState::Running)
    }

    /// Cancels a removal; false if too far advanced. The caller does not hold the pool still.
    fn give_up(&self, work: &mut Work, row: RemovalRow, state: MoveState) -> Result<bool> {
        let Some(vdev) = under_way(&row) else { return Ok(false) };
        if self.has_all_moved(work, vdev) {
            return Ok(false);
        }
        self.datasets.moving().unpair_settled(work)?;
        work.begin(None);
        self.put(RemovalRow { state, end: self.datasets.now(), ..row })?;
        self.datasets.engine().reopen(&Regions::Vdev(vdev));
        Ok(true)
    }

    fn put(&self, row: RemovalRow) -> Result<()> {
        let stored = row.clone();
        self.datasets.run(move |tx| {
            tx.put(REMOVAL, &stored, None);
            Ok(())
        })?;
        *self.datasets.jobs.mover.removal.lock() = Some(row);
        Ok(())
    }
}

/// The vdev of a running removal.
fn under_way(row: &RemovalRow) -> Option<VdevId> {
    let is_running = row.state == MoveState::Running;
    u32::try_from(row.vdev).ok().filter(|_| is_running).map(VdevId)
}
