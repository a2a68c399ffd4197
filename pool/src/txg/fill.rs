//! Filling devices with what they lack, while the pool is in use: the engine's part of a resilver.
//!
//! A device of a mirror that is new, or back, gets everything that is written from the moment on at which it joined. What
//! was there before is copied by somebody who walks all trees, in steps. In each step the pool is held still
//! ([`Still`]), so what the last committed state refers to is nobody else's while it lasts, and can be written over
//! whatever the device holds there, though new blocks are written to it at the same time.
//!
//! A walk begins with a commit. Whoever was writing when the device joined may have missed it, and wrote for that commit at
//! the latest; blocks born later are on the device. What the walk finds was born before, and is copied if it was born after
//! the newest uberblock that the device had; or whenever it was born, if a chunk has come to lie on the vdev since that
//! (see [`crate::space`], `moving`), for then old blocks are missing too. What is freed meanwhile needs no copy.
//!
//! A block may come to stand where the walk was already, by a reference that a copied file takes, and vanish from where the
//! walk has not been yet. So a commit copies what its trees have taken references to ([`fill_shares`]).
//!
//! # What an uberblock says of it
//!
//! How far the walk has come is noted in the uberblock ([`FillingNote`]), so that the next import goes on there. That is
//! sound if in the uberblock's state the devices have
//!
//! 1. what the walk has copied up to the place that is noted,
//! 2. what was born since the walk began, also what references and moves have brought to where the walk has been.
//!
//! The walk needs the pool held still, so it stands still while a group is written, and all that it has copied has returned by
//! then. The flush of that group makes it stable, with what was written for that group and those before. Only *after* this flush
//! it is looked whether the devices are filled as they were when the walk began: none has left or come, be it back, and
//! the pool was not suspended, for then a device may have lost what its flush was to save. If so the uberblock notes the place;
//! if not it notes none, and neither does any later one before a walk from the beginning. So an uberblock that notes a
//! place says of itself that all of this holds:
//!
//! | power fails, or the pool is closed | import finds |
//! | --- | --- |
//! | before the uberblock | the one before, and the place that it notes; what was copied since is copied again |
//! | after it | the place that it notes |
//! | after a device that is filled was put out of use, before the next uberblock | a place, and the device, which has missed at most what frames of the intent log refer to; that is gone over |
//! | after that one | no place: the walk begins again |
//! | after an import without the device that has committed | the same |
//! | after a spare that is filled was given back and has joined another vdev, before the next uberblock | a place, noted for a device that was filled elsewhere: whoever reads it tells by [`Lacking`], and begins again |
//!
//! What was born after the uberblock's state is what frames of the intent log refer to. If there are any, whoever goes on walks
//! through everything younger than that state first, and notes no place until that is done ([`Found::has_log`](crate::txg::Found)).
//!
//! Going back repeats the uberblock of an older state with what it notes. That was true of that state, and nothing that it
//! refers to is overwritten on any device. A program that does not know these numbers does not write them, and so never
//! leaves any that do not hold.
//!
//! # The end
//!
//! When all is copied, everything is flushed, and only then the device gets its first uberblock. The intent log is not
//! copied: what it held when the walk began is committed by then.

use std::ops::RangeInclusive;

use crate::{
    block::Copying,
    error::Result,
    format::pointer::BlockPointer,
    space::{OwnCursor, OwnExamined},
    txg::{Engine, Still},
    units::{Guid, Txg},
    vdev::{Era, Group, Lacking},
};

/// What is to be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filling {
    /// The devices, and what each of them has.
    pub devices: Vec<Lacking>,
    /// What was born up to then is on all of them.
    pub since: Txg,
    /// How often the members of each mirror had changed: one that was out of use meanwhile lacks something again.
    rounds: Vec<u64>,
    /// How often the pool had been resumed: devices that had failed may have lost what was copied to them.
    era: Era,
}

/// The kinds of the uberblock's counters that a [`FillingNote`] may take. What they mean is the client's to say.
pub const FILLING_COUNTERS: RangeInclusive<u8> = 16..=31;

/// How far the filling of devices has come: what an uberblock is to say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillingNote {
    /// What is filled, as it stood when the walk began.
    pub filling: Filling,
    /// The place, in counters of the kinds [`FILLING_COUNTERS`], ascending.
    pub counters: Vec<(u8, u64)>,
}

/// What an uberblock may say of a note that was made before everything was flushed: nothing, if devices have come or gone
/// since the walk began.
pub(super) fn noted(engine: &Engine, note: Option<FillingNote>) -> Vec<(u8, u64)> {
    let note = note.filter(|note| engine.filling().as_ref() == Some(&note.filling));
    let counters = note.map_or_else(Vec::new, |note| note.counters);
    assert!(
        counters.iter().all(|(kind, _)| FILLING_COUNTERS.contains(kind)),
        "these counters are others': {counters:?}"
    );
    counters
}

impl Engine {
    /// The devices that lack something and are in use; none if there are none.
    pub fn filling(&self) -> Option<Filling> {
        let era = self.suspension().era();
        let vdevs = self.storage.vdevs.all();
        let since = vdevs.iter().filter_map(|vdev| self.storage.filling(&**vdev)).min()?;
        let groups: Vec<&Group> = vdevs.iter().filter_map(|vdev| vdev.as_group()).collect();
        let rounds = groups.iter().map(|group| group.round()).collect();
        let lacks = |group: &&Group| {
            let has = |has| self.storage.lacks_since(group.id(), has);
            let filled = group.being_filled().into_iter();
            filled.map(|lacking| Lacking { has: has(lacking.has), ..lacking }).collect::<Vec<_>>()
        };
        let devices = groups.iter().flat_map(lacks).collect();
        Some(Filling { devices, since, rounds, era })
    }
}

impl Still<'_> {
    /// Writes about `budget` bytes of the space layer's own blocks from `from` on to the devices that are being filled.
    pub fn fill_space(&self, from: OwnCursor, budget: u64) -> OwnExamined {
        let storage = self.engine().storage();
        storage.space.fill_own(&storage.vdevs, from, budget)
    }

    /// Writes blocks that the committed state refers to to the devices that are being filled, if they were born after what
    /// these have. Returns of each how many bytes were copied.
    ///
    /// # Errors
    /// If no copy of it can be read, or a device refuses it, which is done without then.
    pub fn fill(&self, blocks: &[BlockPointer]) -> Vec<Result<u64>> {
        self.engine().copy(blocks, Copying::Members)
    }

    /// Notes that these devices have everything but blocks born up to `failed`, which could not be copied; those that had
    /// such old ones before are complete. Commits, so that they have an uberblock that says so. `false` if they were not
    /// being filled all the time: then they may lack something.
    pub fn filled(self, filling: &Filling, failed: Txg) -> Result<bool> {
        let engine = self.engine();
        let storage = engine.storage();
        storage.vdevs.flush()?;
        // A flush that was tried again has not saved what the device had lost before.
        if engine.suspension().era() != filling.era {
            return Ok(false);
        }
        let vdevs = storage.vdevs.all();
        let groups: Vec<&Group> = vdevs.iter().filter_map(|vdev| vdev.as_group()).collect();
        let whole = filling.devices.iter().filter(|lacking| lacking.has >= failed).map(|lacking| lacking.device);
        let whole: Vec<Guid> = whole.collect();
        let is_as_it_was = groups.len() == filling.rounds.len()
            && groups.iter().zip(&filling.rounds).all(|(group, round)| group.filled(&whole, *round));
        if !is_as_it_was || whole.is_empty() {
            return Ok(is_as_it_was);
        }
        // It takes what was held.
        drop(self);
        engine.commit_anyway()?;
        // What has become complete is told.
        storage.vdevs.flush().map(|()| true)
    }
}

/// Writes what trees have taken references to in the group that is being written to where it is being copied: the
/// walk may have passed where it stands now, and find it gone where it stood. Nobody else has its place, for it was there
/// when the group was open. What cannot be read is left to a walk from the beginning, which says so.
pub(super) fn fill_shares<'a>(engine: &Engine, shares: impl Iterator<Item = &'a BlockPointer>) {
    let storage = engine.storage();
    let vdevs = storage.vdevs.all();
    let is_filling = vdevs.iter().any(|vdev| vdev.filling().is_some());
    if !is_filling && !storage.space.is_copying() {
        return;
    }
    for pointer in shares {
        if let Err(error) = storage.copy(pointer, Copying::Members) {
            tracing::warn!("resilver: {error}");
            vdevs.iter().filter_map(|vdev| vdev.as_group()).for_each(Group::fill_anew);
        }
        if let Err(error) = storage.copy(pointer, Copying::Twins) {
            tracing::warn!("evacuation: {error}");
            storage.space.note_uncopied();
        }
    }
}
