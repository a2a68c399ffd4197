//! Resilver, the engine's part: copying to devices the blocks they lack while the pool is in use.
//!
//! A member that joins or returns gets every write from that moment on. Older blocks are copied by the dataset layer,
//! which walks all trees in steps. Each step holds the pool still ([`Still`]), so no block of the last committed state
//! is freed and allocated again during the step. The copy can therefore overwrite the device's sectors at the block's
//! address, even while new blocks are written to the device.
//!
//! A walk begins with a commit. A writer that was active when the device joined may have missed the device, and wrote
//! for that commit at the latest; blocks born later are on the device. The walk finds blocks born before. A block is
//! copied if it was born after the newest uberblock that the device had. It is copied whatever its birth if a chunk has
//! moved onto the vdev since then (see [`crate::space`], `moving`), because old blocks are missing too. Blocks freed
//! meanwhile need no copy.
//!
//! A copied file may take a reference to a block in a part already walked, while the block vanishes from a part not yet
//! walked. So a commit copies the blocks to which its trees have taken references ([`resilver_shares`]).
//!
//! # Progress in the uberblock
//!
//! The uberblock records the progress of the walk ([`ResilverNote`]), and the next import continues there. The record
//! is sound if in the uberblock's state the devices have
//!
//! 1. all blocks copied by the walk up to the recorded place,
//! 2. all blocks born since the walk began, including blocks brought by references and moves to parts already walked.
//!
//! The walk holds the pool still, so it pauses while a group is written, and all its writes have returned by then. The
//! flush of that group makes the copies stable, with all writes of that group and earlier ones. Only *after* this flush
//! the committer checks that the same devices are being resilvered as when the walk began: no device has left, joined
//! or returned, and the pool was not suspended, because a suspended device may have lost data before its flush. If so,
//! the uberblock records the place. Otherwise the uberblock records none, and no later one does before a walk from the
//! beginning. So the following holds for an uberblock that records a place:
//!
//! | power fails, or the pool is closed | import finds |
//! | --- | --- |
//! | before the uberblock | the previous uberblock and its place; blocks copied since are copied again |
//! | after the uberblock | its place |
//! | after a device being resilvered was faulted or taken offline, before the next uberblock | a place, and the device, which lacks at most blocks referred to by frames of the intent log; the walk repeats these |
//! | after that next uberblock | no place: the walk begins again |
//! | after an import without the device that has committed | the same |
//! | after a spare being resilvered was released and joined another vdev, before the next uberblock | a place recorded for a device in another vdev: the reader tells by [`Lacking`], and begins again |
//!
//! Blocks born after the uberblock's state are those referred to by frames of the intent log. If there are any, the
//! resumed walk first covers everything younger than that state, and records no place until that is done
//! ([`Found::has_log`](crate::txg::Found)).
//!
//! A rewind repeats the uberblock of an older state with its recorded place. The place was true of that state, and none
//! of that state's blocks is overwritten on any device. Software that does not know these counters does not write them,
//! so it never leaves wrong ones.
//!
//! # The end of a resilver
//!
//! When all is copied, everything is flushed, and only then does the device get its first uberblock. The intent log is
//! not copied: its entries from before the walk are committed by then.

pub(super) mod note;

use self::note::{RESILVER_COUNTERS, ResilverNote, Resilvering};
use crate::{
    block::Copying,
    error::Result,
    format::pointer::BlockPointer,
    space::{OwnCursor, OwnExamined},
    txg::engine::state::{Engine, Still},
    units::{Guid, Txg},
    vdev::{Group, Lacking},
};

/// The counters for the uberblock from a note made before the flush: none if devices have joined or left since the walk
/// began.
pub(super) fn noted(engine: &Engine, note: Option<ResilverNote>) -> Vec<(u8, u64)> {
    let note = note.filter(|note| engine.resilvering().as_ref() == Some(&note.resilvering));
    let counters = note.map_or_else(Vec::new, |note| note.counters);
    assert!(
        counters.iter().all(|(kind, _)| RESILVER_COUNTERS.contains(kind)),
        "TXG-6: counters of other owners: {counters:?}"
    );
    counters
}

impl Engine {
    /// The devices in use that are incomplete; `None` if all are complete.
    pub fn resilvering(&self) -> Option<Resilvering> {
        let era = self.suspension().era();
        let vdevs = self.storage.vdevs.all();
        let since = vdevs.iter().filter_map(|vdev| self.storage.resilvering(&**vdev)).min()?;
        let groups: Vec<&Group> = vdevs.iter().filter_map(|vdev| vdev.as_group()).collect();
        let rounds = groups.iter().map(|group| group.round()).collect();
        let lacks = |group: &&Group| {
            let has = |has| self.storage.lacks_since(group.id(), has);
            let resilvered = group.being_resilvered().into_iter();
            resilvered.map(|lacking| Lacking { has: has(lacking.has), ..lacking }).collect::<Vec<_>>()
        };
        let devices = groups.iter().flat_map(lacks).collect();
        Some(Resilvering { devices, since, rounds, era })
    }
}

impl Still<'_> {
    /// Writes about `budget` bytes of the space layer's own blocks, from `from` on, to the devices being resilvered.
    pub fn resilver_space(&self, from: OwnCursor, budget: u64) -> OwnExamined {
        let storage = self.engine().storage();
        storage.space.resilver_own(&storage.vdevs, from, budget)
    }

    /// Writes blocks of the committed state to the devices being resilvered that lack blocks of that birth. Returns the
    /// bytes copied for each block.
    ///
    /// # Errors
    /// If no copy of the block can be read. Also if a device refuses the write: the device is faulted.
    pub fn resilver(&self, blocks: &[BlockPointer]) -> Vec<Result<u64>> {
        self.engine().copy(blocks, Copying::Members)
    }

    /// Records that the devices have everything but blocks born up to `failed`, which could not be copied. Devices that
    /// were complete up to `failed` before are complete now. Commits, so that their uberblocks say so. `false` if the
    /// set of devices has changed since the walk began, so that blocks may be missing.
    pub fn resilvered(self, resilvering: &Resilvering, failed: Txg) -> Result<bool> {
        let engine = self.engine();
        let storage = engine.storage();
        storage.vdevs.flush()?;
        // A repeated flush does not save data that the device lost before.
        if engine.suspension().era() != resilvering.era {
            return Ok(false);
        }
        let vdevs = storage.vdevs.all();
        let groups: Vec<&Group> = vdevs.iter().filter_map(|vdev| vdev.as_group()).collect();
        let whole = resilvering.devices.iter().filter(|lacking| lacking.has >= failed).map(|lacking| lacking.device);
        let whole: Vec<Guid> = whole.collect();
        let is_as_it_was = groups.len() == resilvering.rounds.len()
            && groups.iter().zip(&resilvering.rounds).all(|(group, round)| group.resilvered(&whole, *round));
        if !is_as_it_was || whole.is_empty() {
            return Ok(is_as_it_was);
        }
        // The commit takes the lock that `self` holds.
        drop(self);
        engine.commit_anyway()?;
        // Makes the new labels stable.
        storage.vdevs.flush().map(|()| true)
    }
}

/// Copies the blocks to which trees took references in the group being written, to devices being resilvered and to
/// twins. The walk may have passed the new place of such a block, and find it gone from the old one. The block's
/// sectors are still its own, for the block was in use when the group was open. A block that cannot be read is left to
/// a new walk from the beginning, which reports it.
pub(super) fn resilver_shares<'a>(engine: &Engine, shares: impl Iterator<Item = &'a BlockPointer>) {
    let storage = engine.storage();
    let vdevs = storage.vdevs.all();
    let is_resilvering = vdevs.iter().any(|vdev| vdev.resilvering().is_some());
    if !is_resilvering && !storage.space.is_copying() {
        return;
    }
    for pointer in shares {
        if let Err(error) = storage.copy(pointer, Copying::Members) {
            tracing::warn!("resilver: {error}");
            vdevs.iter().filter_map(|vdev| vdev.as_group()).for_each(Group::restart_resilver);
        }
        if let Err(error) = storage.copy(pointer, Copying::Twins) {
            tracing::warn!("evacuation: {error}");
            storage.space.note_uncopied();
        }
    }
}
