//! How far a resilver is.

use std::ops::RangeInclusive;

use crate::{
    units::Txg,
    vdev::{Era, Lacking},
};

/// The devices being resilvered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resilvering {
    /// The devices, each with the txg up to which it is complete.
    pub devices: Vec<Lacking>,
    /// All of the devices have every block born up to this txg.
    pub since: Txg,
    /// How often the members of each mirror or RAID-Z had changed: a device that was offline meanwhile lacks blocks
    /// again.
    pub(super) rounds: Vec<u64>,
    /// How often the pool had been resumed: a failed device may have lost blocks copied before.
    pub(super) era: Era,
}

/// The kinds of the uberblock's counters that a [`ResilverNote`] may take. The client defines their meaning.
pub const RESILVER_COUNTERS: RangeInclusive<u8> = 16..=31;

/// The progress of a resilver, to be recorded in an uberblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResilverNote {
    /// The devices as they stood when the walk began.
    pub resilvering: Resilvering,
    /// The place, in counters of the kinds [`RESILVER_COUNTERS`], ascending.
    pub counters: Vec<(u8, u64)>,
}
