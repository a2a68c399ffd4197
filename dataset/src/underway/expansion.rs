//! The state of the expansion of a RAID-Z.

use parking_lot::Mutex;
use pool::{
    env::Nanos,
    space::{MovingPlan, Regions},
    units::{Txg, VdevId},
};

/// The reason why an expansion waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// The content of narrow rows does not fit into other rows.
    NoRoom,
    /// Some devices of the RAID-Z are not complete.
    Degraded,
    /// Some data could not be read. The expansion retries after the next import.
    Unreadable,
    /// Paused by the administrator, until resumed.
    Operator,
}

/// The status of the current round, since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpansionStatus {
    /// The reason for waiting, if any.
    pub pause: Option<Pause>,
    /// The start of the round, in nanoseconds since 1970.
    pub start: Nanos,
    /// The number of regions that the round widens; 0 without a round.
    pub regions: u32,
    /// The bytes to copy.
    pub total: u64,
    /// The bytes copied so far.
    pub copied: u64,
}

/// The state of the expansion in an opened pool.
#[derive(Default)]
pub(crate) struct Expander {
    /// Changed only by the holder of the mover's work.
    pub(crate) round: Mutex<Option<Round>>,
    /// Read without waiting for a step.
    pub(crate) status: Mutex<ExpansionStatus>,
    /// The state in which there was no space for a round.
    pub(crate) looked: Mutex<Txg>,
    /// The last unpacked round that ran out of space, since a round was completed.
    pub(crate) short_whole: Mutex<Option<Short>>,
    /// The last packed round that ran out of space.
    pub(crate) short_packed: Mutex<Option<Short>>,
}

/// A round with `count` regions ran out of space, although `empty` regions were empty at its start.
#[derive(Clone, Copy)]
pub(crate) struct Short {
    pub(crate) count: u32,
    pub(crate) empty: u32,
}

/// The regions emptied by a round.
#[derive(Clone)]
pub(crate) struct Round {
    pub(crate) vdev: VdevId,
    pub(crate) count: u32,
    pub(crate) regions: Regions,
    /// The plan at the start of the round.
    pub(crate) plan: MovingPlan,
}
