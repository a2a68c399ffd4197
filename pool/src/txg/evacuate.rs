//! Emptying regions while the pool is in use: the engine's part of a removal, and of all else that moves chunks.
//!
//! What becomes of chunks and rows is argued in [`crate::space`] (`moving`). Here is how everything gets out of regions, be they all of
//! a vdev:
//!
//! 1. They are closed, in an open group: what is allocated with an older view of the space is of that group at the latest.
//! 2. Commits follow until the space layer's own blocks and the intent log lie elsewhere. The first of them makes step 1
//!    good: whatever lies there was born up to it.
//! 3. The chunks there get twins, and somebody walks all trees, as for a resilver ([`super::Filling`]), and copies what
//!    lies there to the twins. What is found was born before; nothing is allocated there meanwhile; what trees take references
//!    to is copied by the commit that writes these.
//! 4. All is flushed, and chunks and twins change places, while no commit is under way. If a device of a mirror has come,
//!    gone or come back meanwhile, a disk has taken another's place, or the pool was suspended, somebody may lack copies:
//!    then all is copied once more.
//! 5. When the table says so, the regions are taken back; what lies in them now rests until no state that one goes back to
//!    has anything there. Or the vdev is to leave: then [`SAFE_STATES`] commits follow for the same reason.
//!
//! Nothing of this is stored but the table: what was interrupted begins again with step 1.

use crate::{
    block::Copying,
    error::{Error, Result},
    format::pointer::BlockPointer,
    space::{Packs, Regions, SAFE_STATES, Targets},
    txg::{Engine, Still},
    vdev::{Era, Group},
};

/// How far regions are emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vacating {
    /// It goes on with another step.
    Working,
    /// Nothing can be done before older states are let go of.
    Waiting,
    /// What is allocated there is to be copied.
    Copying,
    /// Nothing is there any more.
    Vacated,
}

/// How the devices stood when copying began: if they stand otherwise at the end, somebody may lack copies.
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
    /// Allocates nothing in regions any more.
    pub fn close(&self, regions: &Regions) {
        self.with_open_txg(|_| self.storage.space.close(regions));
    }

    /// Takes regions back that were closed. False while their chunks change places; if they have done so before, others lie
    /// there by now, which are empty.
    pub fn reopen(&self, regions: &Regions) -> bool {
        self.storage.space.reopen(regions)
    }

    /// Whether chunks of regions that are emptied have changed places. After an import that is not known any more, so it is
    /// said of all with nothing in them.
    pub fn has_changed_places(&self, regions: &Regions) -> bool {
        let space = &self.storage.space;
        space.is_switching() || space.moving_plan(regions, &Targets::Anywhere).needed == 0
    }

    /// Does a step of getting everything out of closed regions but what blocks of trees are there, with two commits at most.
    /// It goes to these vdevs, in the regions' own shape or in pieces.
    ///
    /// # Errors
    /// [`crate::error::Error::OutOfSpace`] if there are too few empty chunks for what is to be copied.
    pub fn vacate(&self, regions: &Regions, to: &Targets, packs: Packs) -> Result<Vacating> {
        let space = &self.storage.space;
        if space.is_copying() {
            return Ok(Vacating::Copying);
        }
        self.retire_log(regions)?;
        // Whoever allocated when they were closed did so for a group that is committed after this.
        self.commit_anyway()?;
        let plan = space.moving_plan(regions, to);
        if space.has_left(regions) && !space.is_switching() && plan.needed > 0 {
            // Others may have taken what there was room for, and what is kept for metadata is kept.
            if !plan.fits_as(packs) {
                return Err(Error::OutOfSpace);
            }
            space.pair(regions, to, packs)?;
            return Ok(Vacating::Copying);
        }
        // Whoever reads an older state reads it where it was.
        Ok(match (space.is_holding(), space.is_vacated(regions)) {
            (true, _) => Vacating::Waiting,
            (false, true) => Vacating::Vacated,
            (false, false) => Vacating::Working,
        })
    }

    /// Makes the commits after which no state that one may go back to has anything in regions that are vacated.
    pub fn outlast_states(&self) -> Result<()> {
        (0..SAFE_STATES).try_for_each(|_| self.commit_anyway().map(drop))
    }

    /// How the devices stand while blocks are copied elsewhere.
    pub fn evacuation(&self) -> Evacuation {
        let vdevs = self.storage.vdevs.all();
        let rounds = vdevs.iter().filter_map(|vdev| vdev.as_group()).map(Group::round).collect();
        Evacuation { forms: self.storage.vdevs.forms(), rounds, era: self.suspension().era() }
    }
}

impl Still<'_> {
    /// Copies blocks that the committed state refers to, as far as they lie in regions that are emptied. Returns of each how
    /// many bytes were copied.
    ///
    /// # Errors
    /// If no copy of it can be read, or a device refuses a write.
    pub fn evacuate(&self, blocks: &[BlockPointer]) -> Vec<Result<u64>> {
        self.engine().copy(blocks, Copying::Twins)
    }

    /// Copies what lies where a block should that has no good copy.
    ///
    /// # Errors
    /// If a device cannot be read, or it is not known where all of the block lies.
    pub fn evacuate_as_it_is(&self, pointer: &BlockPointer) -> Result<()> {
        self.engine().storage().copy_as_it_is(pointer)
    }

    /// Everything was copied: has the chunks change places. `false` if something was not, or may be missing somewhere.
    ///
    /// What is still allocated in chunks that are packed and was not met on the way through all trees is nobody's: a leak,
    /// which `pool check` names. It moves as it is, and stays what it was: were it left where it lies, nothing could be
    /// packed.
    ///
    /// # Errors
    /// [`Error::OutOfSpace`] if what is packed finds no room for its maps or for what is nobody's, and that of a device.
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
        // What contradicts itself may have been found when half was done.
        if let Err(error @ Error::Damaged { .. }) = &switched {
            engine.fail(error);
        }
        switched
    }
}
