//! The state of the resilver.

use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use pool::{env::Nanos, format::pointer::BlockPointer, space::OwnCursor, txg::Resilvering, units::Txg};

use super::walk::Walk;

/// The state of a resilver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResilverState {
    /// The walk is under way.
    Running,
    /// The walk is complete.
    Finished,
    /// The devices were removed, or other devices were added, before the end.
    Canceled,
}

/// The status of a resilver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResilverStatus {
    /// Running, or how it ended.
    pub state: ResilverState,
    /// The start, in nanoseconds since 1970.
    pub start: Nanos,
    /// The end, in nanoseconds since 1970; 0 while running.
    pub end: Nanos,
    /// The approximate number of bytes to examine.
    pub total: u64,
    /// The bytes examined so far.
    pub examined: u64,
    /// The bytes copied so far.
    pub copied: u64,
    /// The number of blocks without a good copy.
    pub errors: u64,
    /// For a resilver continued after an import: where it continued.
    pub resumed: Option<Resumed>,
    /// The devices being resilvered.
    pub(crate) resilvering: Resilvering,
}

/// Where a resilver of an earlier import continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// The time of the import, in nanoseconds since 1970.
    pub at: Nanos,
    /// The bytes examined before the import.
    pub examined: u64,
}

/// The state of the resilver in an opened pool.
#[derive(Default)]
pub(crate) struct Resilverer {
    pub(crate) running: Mutex<Option<Running>>,
    pub(crate) status: Mutex<Option<ResilverStatus>>,
    /// The bytes examined since the pool was opened.
    pub(crate) handled: AtomicU64,
}

pub(crate) struct Running {
    pub(crate) resilvering: Resilvering,
    /// The birth of the youngest block that could not be copied. A device that lacked only older blocks lacks nothing
    /// more.
    pub(crate) failed: Txg,
    /// The first blocks that could not be copied, as many as are listed individually; true for a node whose subtree was not walked.
    pub(crate) lost: Vec<(BlockPointer, bool)>,
    /// The position in the blocks of the space maps.
    pub(crate) space: Option<OwnCursor>,
    /// Blocks of the intent log at import may be missing, too: blocks born after the txg.
    pub(crate) missed: Missed,
    /// The shown counters already include the blocks of the space maps, although these are copied again.
    pub(crate) has_counted_space: bool,
    pub(crate) walk: Walk,
    /// The walk is complete, and some blocks could not be copied.
    pub(crate) has_ended: bool,
}

/// Blocks copied before a resilver continues at the position of an earlier import.
pub(crate) enum Missed {
    Nothing,
    After(Txg),
    Walking(Walk),
}
