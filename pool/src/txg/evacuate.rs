//! Vacating a vdev that is to leave, while the pool is in use: the engine's part of a removal.
//!
//! What becomes of chunks and rows is argued in [`crate::space`] (`moving`). Here is how everything gets off a vdev:
//!
//! 1. It is closed, in an open group: what is allocated with an older view of the space is of that group at the latest.
//! 2. Commits follow until the space layer's own blocks and the intent log lie elsewhere. The first of them makes step 1
//!    good: whatever lies on the vdev was born up to it.
//! 3. Its chunks get twins, and somebody walks all trees, as for a resilver ([`super::Filling`]), and copies what lies on
//!    the vdev to the twins. What is found was born before; nothing is allocated there meanwhile; what trees take references
//!    to is copied by the commit that writes these.
//! 4. All is flushed, and chunks and twins change places, while no commit is under way. If a device of a mirror has come,
//!    gone or come back meanwhile, or the pool was suspended, somebody may lack copies: then all is copied once more.
//! 5. When the table says so, [`SAFE_STATES`] commits follow, so that no state that one goes back to has anything there.
//!
//! Nothing of this is stored but the table: a removal that was interrupted begins again with step 1.

use crate::{
    block::Copying,
    error::{Error, Result},
    format::pointer::BlockPointer,
    space::SAFE_STATES,
    txg::{Engine, Still},
    units::VdevId,
    vdev::{Era, Group},
};

/// How far a vdev is vacated.
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
    /// The vdev.
    pub vdev: VdevId,
    rounds: Vec<u64>,
    era: Era,
}

impl Engine {
    /// Allocates nothing on a vdev any more.
    pub fn close_vdev(&self, vdev: VdevId) {
        self.with_open_txg(|_| self.storage.space.close_vdev(vdev));
    }

    /// Takes a vdev back that was closed. False if its chunks have changed places already.
    pub fn open_vdev_again(&self, vdev: VdevId) -> bool {
        self.storage.space.open_vdev_again(vdev)
    }

    /// Whether chunks of a vdev that is vacated have changed places: older states lie where blocks would be allocated if it
    /// were taken back. After an import that is not known any more, so it is said of every one with nothing on it.
    pub fn has_changed_places(&self, vdev: VdevId) -> bool {
        let space = &self.storage.space;
        space.is_switching() || space.removal_plan(vdev).needed == 0
    }

    /// Does a step of getting everything off a closed vdev but what blocks of trees are there, with two commits at most.
    ///
    /// # Errors
    /// [`crate::error::Error::OutOfSpace`] if there are too few empty chunks for what is to be copied.
    pub fn vacate(&self, vdev: VdevId) -> Result<Vacating> {
        let space = &self.storage.space;
        if space.is_copying() {
            return Ok(Vacating::Copying);
        }
        self.retire_log(vdev)?;
        // Whoever allocated when the vdev was closed did so for a group that is committed after this.
        self.commit_anyway()?;
        let plan = space.removal_plan(vdev);
        if space.has_left(vdev) && !space.is_switching() && plan.needed > 0 {
            // Others may have taken what there was room for, and what is kept for metadata is kept.
            if !plan.fits() {
                return Err(Error::OutOfSpace);
            }
            space.pair(vdev)?;
            return Ok(Vacating::Copying);
        }
        // Whoever reads an older state reads it where it was.
        Ok(match (space.is_holding(), space.is_vacated(vdev)) {
            (true, _) => Vacating::Waiting,
            (false, true) => Vacating::Vacated,
            (false, false) => Vacating::Working,
        })
    }

    /// Makes the commits after which no state that one may go back to has anything on a vdev that is vacated.
    pub fn outlast_states(&self) -> Result<()> {
        (0..SAFE_STATES).try_for_each(|_| self.commit_anyway().map(drop))
    }

    /// How the devices stand while blocks of a vdev are copied.
    pub fn evacuation(&self, vdev: VdevId) -> Evacuation {
        let vdevs = self.storage.vdevs.all();
        let rounds = vdevs.iter().filter_map(|vdev| vdev.as_group()).map(Group::round).collect();
        Evacuation { vdev, rounds, era: self.suspension().era() }
    }
}

impl Still<'_> {
    /// Copies blocks that the committed state refers to, as far as they lie on the vdev that is vacated. Returns of each how
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
    pub fn change_places(&self, evacuation: &Evacuation) -> Result<bool> {
        let engine = self.engine();
        engine.storage().vdevs.flush()?;
        if engine.evacuation(evacuation.vdev) != *evacuation {
            return Ok(false);
        }
        Ok(engine.with_open_txg(|txg| engine.storage().space.switch(evacuation.vdev, txg)))
    }
}
