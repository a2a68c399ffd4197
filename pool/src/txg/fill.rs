//! Filling devices with what they lack, while the pool is in use: the engine's part of a resilver.
//!
//! A device of a mirror that is new, or back, gets everything that is written from the moment on at which it joined. What
//! was there before is copied by somebody who walks all trees, in steps. In each step the pool is held still
//! ([`Still`]), so what the last committed state refers to is nobody else's while it lasts, and can be written over
//! whatever the device holds there, though new blocks are written to it at the same time.
//!
//! A walk begins with a commit. Whoever was writing when the device joined may have missed it, and wrote for that commit at
//! the latest; blocks born later are on the device. What the walk finds was born before, and is copied if it was born after
//! the newest uberblock that the device had. What is freed meanwhile needs no copy.
//!
//! When all is copied, everything is flushed, and only then the device gets its first uberblock. The intent log is not
//! copied: what it held when the walk began is committed by then.

use std::sync::Arc;

use crate::{
    error::Result,
    format::pointer::BlockPointer,
    space::{OwnCursor, OwnExamined},
    txg::{Engine, Still},
    units::{Guid, Txg},
    vdev::{Mirror, State, Vdev},
};

/// What is to be filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filling {
    /// The devices.
    pub devices: Vec<Guid>,
    /// What was born up to then is on all of them.
    pub since: Txg,
    /// How often the members of each mirror had changed: one that was out of use meanwhile lacks something again.
    rounds: Vec<u64>,
}

impl Engine {
    /// The devices that lack something and are in use; none if there are none.
    pub fn filling(&self) -> Option<Filling> {
        let vdevs = self.storage.vdevs.all();
        let since = vdevs.iter().filter_map(|vdev| vdev.filling()).min()?;
        let members = vdevs.iter().filter_map(|vdev| vdev.as_mirror()).flat_map(|mirror| {
            let members = mirror.members();
            members.iter().filter(|member| member.state() == State::Filling).map(|m| m.leaf.guid()).collect::<Vec<_>>()
        });
        let rounds = vdevs.iter().filter_map(|vdev| Some(vdev.as_mirror()?.round())).collect();
        Some(Filling { devices: members.collect(), since, rounds })
    }

    /// Notes that these devices have everything, and commits, so that they have an uberblock that says so. `false` if they
    /// were not being filled all the time: then they may lack something.
    pub fn filled(&self, filling: &Filling) -> Result<bool> {
        self.storage.vdevs.flush()?;
        let vdevs: Vec<Arc<dyn Vdev>> = self.storage.vdevs.all();
        let mirrors: Vec<&Mirror> = vdevs.iter().filter_map(|vdev| vdev.as_mirror()).collect();
        let is_as_it_was = mirrors.len() == filling.rounds.len()
            && mirrors.iter().zip(&filling.rounds).all(|(mirror, round)| mirror.filled(&filling.devices, *round));
        if !is_as_it_was {
            return Ok(false);
        }
        self.commit_anyway()?;
        // What has become complete is told.
        self.storage.vdevs.flush().map(|()| true)
    }
}

impl Still<'_> {
    /// Writes about `budget` bytes of the space layer's own blocks from `from` on to the devices that are being filled.
    pub fn fill_space(&self, from: OwnCursor, budget: u64) -> OwnExamined {
        let storage = self.engine().storage();
        storage.space.fill_own(&storage.vdevs, from, budget)
    }

    /// Writes a block that the committed state refers to to the devices that are being filled, if it was born after what
    /// they have. Returns how many bytes were copied.
    ///
    /// # Errors
    /// If no copy of it can be read, or a device refuses it, which is done without then.
    pub fn fill(&self, pointer: &BlockPointer) -> Result<u64> {
        self.engine().storage().fill(pointer)
    }
}
