//! Removing a vdev from the pool: what lies on it is copied elsewhere while everything is in use, and then it leaves. Why
//! nothing is lost is argued in [`pool::txg::Vacating`] and in the pool's `space` and `admin::removal`; the walk is
//! [`super::copying`]'s.
//!
//! That a removal is under way is a row of the catalogue. It is read before anything is allocated when the pool is opened,
//! so that the vdev stays closed; all else begins again then: what was copied so far is free space to the committed state.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the row is committed | no removal |
//! | after that | the removal, which begins again; if everything had left the vdev, there is nothing to copy |
//! | after the labels leave the vdev out | a removal of a vdev that is not there: it is noted as finished |
//!
//! # When there is nothing good to copy
//!
//! What has no good copy is noted as damage, and copied as it is: it is no worse elsewhere. But if something cannot be read
//! at all, or the way to what is below a node is lost, it may be readable another time. Then nothing leaves: the removal is
//! given up.
//!
//! Nothing runs by itself: whoever owns the pool calls [`Datasets::removal_step`] again and again, and has the vdev leave
//! when it says so.

use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::{Mutex, MutexGuard};
use pool::{
    error::Error as PoolError,
    format::{
        key::Key,
        label::{DEVICE_REMOVAL, PACKED_CHUNKS},
    },
    space::{Regions, Targets},
    txg::{Evacuation, Still, Vacating},
    units::{Txg, VdevId},
};

use super::{
    copying::{Stepped, Walk},
    datasets::{Datasets, Progress},
    error::Result,
    feature,
};
use crate::catalogue::{POOL, RemovalRow, RemovalState, kind};

const REMOVAL: Key = Key::new(POOL, kind::REMOVAL, 0);

/// How a removal stands: see [`RemovalRow`].
pub type RemovalStatus = RemovalRow;

/// What a step of a removal has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removing {
    /// A step was done, or nothing can be done now.
    Went(Progress),
    /// Nothing is on this vdev any more, and no state needs it. It is to leave the pool, and then
    /// [`Datasets::removal_done`] to be called.
    Leaves(VdevId),
}

/// The removal of an opened pool.
#[derive(Default)]
pub(super) struct Evacuator {
    /// Held for a step, and by whoever starts or stops.
    steps: Mutex<Option<Copying>>,
    /// How it stands. Read at any time.
    row: Mutex<Option<RemovalRow>>,
    /// How often it was tried to get the space layer's own blocks off the vdev.
    tries: AtomicU32,
}

/// So often it is tried. Each time is a commit, and some take a few; where there is no room it is never enough.
const TRIES: u32 = 1000;

struct Copying {
    evacuation: Evacuation,
    walk: Walk,
    copied: u64,
    errors: u64,
    /// Something could not be read at all.
    is_unreadable: bool,
}

impl Datasets {
    /// Goes on with a removal that was under way when the pool was closed. To be called before anything is allocated.
    pub(super) fn resume_removal(&self) {
        // It is named before the row is written.
        if !self.engine().is_active(DEVICE_REMOVAL) {
            return;
        }
        let row = self.read(|tx| Ok(tx.find::<RemovalRow>(REMOVAL)?.map(|(row, _)| row))).unwrap_or_else(|error| {
            tracing::warn!("whether a removal is under way cannot be read: {error}");
            None
        });
        // One of a vdev that cannot be has never begun.
        let row = row.filter(|row| row.state != RemovalState::Running || under_way(row).is_some());
        if let Some(vdev) = row.as_ref().and_then(under_way)
            && !self.engine().read_only()
        {
            self.engine().storage().space.close(&Regions::Vdev(vdev));
        }
        *self.evacuator.row.lock() = row;
    }

    /// Begins to remove a vdev that is called `name`, on which `total` bytes are allocated. Whether it can be was looked at.
    pub fn start_removal(&self, vdev: VdevId, name: &str, total: u64) -> Result<()> {
        self.engine().writable()?;
        let _steps = self.evacuator.steps.lock();
        if let Some(running) = self.running_removal() {
            return refused(format!("the removal of {} is under way; use pool remove -s to stop it", running.name));
        }
        if feature_is_disabled(self)? {
            return refused(format!("the pool's feature {DEVICE_REMOVAL} is disabled; it is enabled by pool set"));
        }
        let plan = self.engine().storage().space.moving_plan(&Regions::Vdev(vdev), &Targets::Anywhere);
        if !plan.fits_whole() && !self.may_pack(vdev)? {
            let problem = "what lies on it finds no empty regions of its kind elsewhere, and the pool's feature";
            return refused(format!("{problem} {PACKED_CHUNKS} is disabled; it is enabled by pool set"));
        }
        self.engine().activate(DEVICE_REMOVAL)?;
        let row =
            RemovalRow { vdev: vdev.0.into(), name: name.to_owned(), start: self.now(), total, ..Default::default() };
        self.evacuator.tries.store(0, Ordering::Relaxed);
        self.put_removal(row)?;
        self.engine().close(&Regions::Vdev(vdev));
        Ok(())
    }

    /// Gives the removal up that is under way.
    pub fn stop_removal(&self) -> Result<()> {
        self.engine().writable()?;
        let mut steps = self.evacuator.steps.lock();
        match self.running_removal() {
            None => refused("no removal is under way".to_owned()),
            Some(row) => match self.give_up(&mut steps, row, RemovalState::Canceled)? {
                true => Ok(()),
                false => refused("everything on the vdev has been moved already".to_owned()),
            },
        }
    }

    /// The removal that is under way, or the last one.
    pub fn removal_status(&self) -> Option<RemovalStatus> {
        self.evacuator.row.lock().clone()
    }

    /// Whether a removal is under way.
    pub fn is_removing(&self) -> bool {
        self.running_removal().is_some()
    }

    /// Does a step of the removal, if one is under way: copies about `budget` bytes while the pool is held still, or makes a
    /// few commits.
    pub fn removal_step(&self, budget: u64) -> Result<Removing> {
        let mut steps = self.evacuator.steps.lock();
        let idle = Ok(Removing::Went(Progress::Idle));
        let Some(row) = self.running_removal().filter(|_| self.engine().writable().is_ok()) else { return idle };
        let Some(vdev) = under_way(&row) else { return idle };
        if self.engine().storage().vdevs.get(vdev).is_err() {
            self.put_removal(RemovalRow { state: RemovalState::Finished, end: self.now(), ..row })?;
            return idle;
        }
        if steps.is_some() {
            return self.copy_step(&mut steps, row, budget);
        }
        let packs = self.may_pack(vdev)?;
        match self.engine().vacate(&Regions::Vdev(vdev), &Targets::Anywhere, packs) {
            Ok(Vacating::Working) => {
                if self.evacuator.tries.fetch_add(1, Ordering::Relaxed) > TRIES {
                    self.give_up(&mut steps, row, RemovalState::NoRoom)?;
                }
            }
            Ok(Vacating::Waiting) => return idle,
            Ok(Vacating::Copying) => {
                self.evacuator.tries.store(0, Ordering::Relaxed);
                let evacuation = self.engine().evacuation();
                let walk = Walk::begin(self, Txg::ZERO)?;
                *steps = Some(Copying { evacuation, walk, copied: 0, errors: 0, is_unreadable: false });
            }
            Ok(Vacating::Vacated) => {
                self.engine().outlast_states()?;
                return Ok(Removing::Leaves(vdev));
            }
            Err(PoolError::OutOfSpace) => drop(self.give_up(&mut steps, row, RemovalState::NoRoom)?),
            Err(error) => return Err(error.into()),
        }
        Ok(Removing::Went(Progress::Worked))
    }

    /// The vdev has left the pool.
    pub fn removal_done(&self) -> Result<()> {
        let _steps = self.evacuator.steps.lock();
        match self.running_removal() {
            Some(row) => self.put_removal(RemovalRow { state: RemovalState::Finished, end: self.now(), ..row }),
            None => Ok(()),
        }
    }

    /// Whether chunks of a vdev may be packed. They are only where they have to be, and the labels name the feature before.
    fn may_pack(&self, vdev: VdevId) -> Result<bool> {
        let engine = self.engine();
        let is_active = engine.is_active(PACKED_CHUNKS);
        let plan = engine.storage().space.moving_plan(&Regions::Vdev(vdev), &Targets::Anywhere);
        if is_active || plan.fits_whole() || !self.read(|tx| feature::is_enabled(tx, PACKED_CHUNKS))? {
            return Ok(is_active);
        }
        engine.activate(PACKED_CHUNKS)?;
        Ok(true)
    }

    fn running_removal(&self) -> Option<RemovalRow> {
        self.removal_status().filter(|row| row.state == RemovalState::Running)
    }

    fn copy_step(&self, steps: &mut MutexGuard<'_, Option<Copying>>, row: RemovalRow, budget: u64) -> Result<Removing> {
        let worked = Ok(Removing::Went(Progress::Worked));
        let Some(copying) = steps.as_mut() else { return worked };
        let still = self.engine().hold_still();
        if copying.walk.is_waiting() {
            return match copying.walk.is_through(self)? {
                true => self.change_places(steps, row, still),
                false if copying.walk.is_waiting() => Ok(Removing::Went(Progress::Idle)),
                false => worked,
            };
        }
        let Stepped { copied, failed, .. } =
            copying.walk.step(self, &still, budget, &|blocks| still.evacuate(blocks))?;
        if self.engine().storage().space.has_run_out() {
            drop(still);
            self.give_up(steps, row, RemovalState::NoRoom)?;
            return worked;
        }
        for (block, is_unread) in &failed {
            let as_it_is = still.evacuate_as_it_is(&block.pointer);
            copying.is_unreadable |= *is_unread || as_it_is.is_err();
        }
        drop(still);
        copying.copied += copied;
        copying.errors += failed.len() as u64;
        if let Some(row) = &mut *self.evacuator.row.lock() {
            (row.copied, row.errors) = (copying.copied, copying.errors);
        }
        self.note_failed(&failed.into_iter().map(|(block, _)| block).collect::<Vec<_>>())?;
        worked
    }

    fn change_places(
        &self,
        steps: &mut MutexGuard<'_, Option<Copying>>,
        row: RemovalRow,
        still: Still<'_>,
    ) -> Result<Removing> {
        let Some(copying) = steps.take() else { return Ok(Removing::Went(Progress::Worked)) };
        if copying.is_unreadable {
            drop(still);
            self.give_up(steps, row, RemovalState::Unreadable)?;
            return Ok(Removing::Went(Progress::Worked));
        }
        match still.change_places(&copying.evacuation) {
            Ok(true) => {}
            // A device may lack what was copied: it begins again.
            Ok(false) => drop(self.engine().storage().space.unpair()),
            Err(PoolError::OutOfSpace) => {
                drop(still);
                self.give_up(steps, row, RemovalState::NoRoom)?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(Removing::Went(Progress::Worked))
    }

    /// Gives a removal up; `false` if it has come too far. Nobody holds the pool still.
    fn give_up(
        &self,
        steps: &mut MutexGuard<'_, Option<Copying>>,
        row: RemovalRow,
        state: RemovalState,
    ) -> Result<bool> {
        let Some(vdev) = under_way(&row) else { return Ok(false) };
        let is_unpaired = {
            // A commit may be copying what files have taken references to.
            let _still = self.engine().hold_still();
            self.engine().storage().space.unpair()
        };
        if !is_unpaired || self.engine().has_changed_places(&Regions::Vdev(vdev)) {
            return Ok(false);
        }
        **steps = None;
        self.put_removal(RemovalRow { state, end: self.now(), ..row })?;
        self.engine().reopen(&Regions::Vdev(vdev));
        Ok(true)
    }

    fn put_removal(&self, row: RemovalRow) -> Result<()> {
        let stored = row.clone();
        self.run(move |tx| {
            tx.put(REMOVAL, &stored, None);
            Ok(())
        })?;
        *self.evacuator.row.lock() = Some(row);
        Ok(())
    }
}

/// The vdev of a removal that is under way.
fn under_way(row: &RemovalRow) -> Option<VdevId> {
    let is_running = row.state == RemovalState::Running;
    u32::try_from(row.vdev).ok().filter(|_| is_running).map(VdevId)
}

fn feature_is_disabled(datasets: &Datasets) -> Result<bool> {
    let is_enabled = datasets.read(|tx| feature::is_enabled(tx, DEVICE_REMOVAL))?;
    Ok(!is_enabled && !datasets.engine().is_active(DEVICE_REMOVAL))
}

fn refused<T>(problem: String) -> Result<T> {
    Err(PoolError::Request(problem).into())
}
