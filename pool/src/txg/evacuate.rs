//! Emptying regions while the pool is in use: the engine's part of device removal and of every other job that moves
//! chunks.
//!
//! [`crate::space`] (`moving`) argues what becomes of chunks and rows. This file gets everything out of a set of
//! regions, which may be all regions of a vdev:
//!
//! 1. The regions are closed while a group is open. An allocation made with an older view of the space belongs to that
//!    group at the latest.
//! 2. Commits follow until the space layer's own blocks and the intent log lie elsewhere. The first commit completes
//!    step 1: every block in the regions was born by then.
//! 3. The chunks there get twins. The dataset layer walks all trees, as for a resilver ([`super::Resilvering`]), and
//!    copies to the twins every block that lies in the regions. All blocks found were born before, and no block is
//!    allocated there meanwhile. When a tree takes a reference to such a block, the commit that writes the reference
//!    copies the block.
//! 4. Everything is flushed. Chunks and twins change places while no commit is under way. Copies may be missing if
//!    meanwhile a device of a mirror came, left or returned, a disk was replaced, or the pool was suspended: then
//!    everything is copied again.
//! 5. When the chunk table says so on disk, the regions are taken back; the space in them stays reserved until no state
//!    that a rewind can reach refers to the regions. If the vdev is to leave the pool, [`SAFE_STATES`] commits follow
//!    for the same reason.
//!
//! Only the table is stored. An interrupted job starts again with step 1.

use crate::{
    block::Copying,
    error::{Error, Result},
    format::pointer::BlockPointer,
    space::{Packs, Regions, SAFE_STATES, Targets},
    txg::engine::state::{Engine, Still},
    vdev::{Era, Group},
};

/// How far regions are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vacating {
    /// The caller takes another step.
    Working,
    /// The job waits until held states are released.
    Waiting,
    /// The caller copies the blocks that are allocated there.
    Copying,
    /// The regions are empty.
    Vacated,
}

/// The state of the devices when copying began. If it differs at the end, copies may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evacuation {
    /// How often vdevs had become mirrors, and disks again: to replace a disk is both.
    forms: u64,
    /// How often the members of each had changed.
    rounds: Vec<u64>,
    /// How often the pool had been resumed.
    era: Era,
}

impl Engine {
    /// Stops allocation in regions.
    pub fn close(&self, regions: &Regions) {
        self.with_open_txg(|_| self.storage.space.close(regions));
    }

    /// Takes closed regions back. False while their chunks change places. After the change the regions hold other,
    /// empty chunks.
    pub fn reopen(&self, regions: &Regions) -> bool {
        self.storage.space.reopen(regions)
    }

    /// Whether chunks of the emptied regions have changed places. An import forgets this, so afterwards the answer is
    /// yes for all regions with no blocks in them.
    pub fn has_changed_places(&self, regions: &Regions) -> bool {
        let space = &self.storage.space;
        space.is_switching() || space.moving_plan(regions, &Targets::Anywhere).needed == 0
    }

    /// Takes a step towards emptying closed regions of everything but blocks of trees, with at most two commits. Chunks
    /// move to the vdevs of `to`, in the regions' own shape or packed as `packs` says.
    ///
    /// # Errors
    /// [`crate::error::Error::OutOfSpace`] if there are too few empty chunks for the copies.
    pub fn vacate(&self, regions: &Regions, to: &Targets, packs: Packs) -> Result<Vacating> {
        let space = &self.storage.space;
        if space.is_copying() {
            return Ok(Vacating::Copying);
        }
        self.retire_log(regions)?;
        // Allocations that raced with the closing belong to a group that this commit makes durable.
        self.commit_anyway()?;
        let plan = space.moving_plan(regions, to);
        if space.has_left(regions) && !space.is_switching() && plan.needed > 0 {
            // Other writers may have used the room since the plan was made, and the reserve for metadata is not
            // touched.
            if !plan.fits_as(packs) {
                return Err(Error::OutOfSpace);
            }
            space.pair(regions, to, packs)?;
            return Ok(Vacating::Copying);
        }
        // Readers of an older state read at the old addresses.
        Ok(match (space.is_holding(), space.is_vacated(regions)) {
            (true, _) => Vacating::Waiting,
            (false, true) => Vacating::Vacated,
            (false, false) => Vacating::Working,
        })
    }

    /// Makes the commits after which no state that a rewind can reach refers to vacated regions.
    pub fn outlast_states(&self) -> Result<()> {
        (0..SAFE_STATES).try_for_each(|_| self.commit_anyway().map(drop))
    }

    /// The present state of the devices, to compare with at the end of copying.
    pub fn evacuation(&self) -> Evacuation {
        let vdevs = self.storage.vdevs.all();
        let rounds = vdevs.iter().filter_map(|vdev| vdev.as_group()).map(Group::round).collect();
        Evacuation { forms: self.storage.vdevs.forms(), rounds, era: self.suspension().era() }
    }
}

impl Still<'_> {
    /// Copies the parts of blocks of the committed state that lie in regions being emptied. Returns the bytes copied
    /// for each block.
    ///
    /// # Errors
    /// If no copy of the block can be read, or a device refuses a write.
    pub fn evacuate(&self, blocks: &[BlockPointer]) -> Vec<Result<u64>> {
        self.engine().copy(blocks, Copying::Twins)
    }

    /// Copies the stored bytes of a block without a good copy, unverified.
    ///
    /// # Errors
    /// If a device cannot be read, or not all addresses of the block are known.
    pub fn evacuate_as_it_is(&self, pointer: &BlockPointer) -> Result<()> {
        self.engine().storage().copy_as_it_is(pointer)
    }

    /// Makes the chunks change places after everything was copied. `false` if something was not copied, or copies may
    /// be missing on a device.
    ///
    /// Space that is still allocated in packed chunks and was not met during the walk of all trees is a leak, which
    /// `pool check` reports. Leaked space moves unchanged and stays a leak: if it stayed behind, nothing could be
    /// packed.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if the maps of packed chunks, or the leaks, find no room; and errors of a device.
    pub fn change_places(&self, evacuation: &Evacuation) -> Result<bool> {
        let engine = self.engine();
        let storage = engine.storage();
        if storage.space.is_copied() {
            storage.copy_unclaimed()?;
        }
        storage.vdevs.flush()?;
        if engine.evacuation() != *evacuation {
            return Ok(false);
        }
        let switched = engine.with_open_txg(|txg| storage.space.switch(txg, &storage.vdevs));
        // A contradiction may have been found when half was done.
        if let Err(error @ Error::Damaged { .. }) = &switched {
            engine.fail(error);
        }
        switched
    }
}
