//! The demanded passes over the free space of vdevs: trims and initializations.

use std::{collections::BTreeMap, sync::atomic::AtomicU64};

use parking_lot::Mutex;
use pool::{env::Nanos, space::TrimCursor, units::VdevId};

/// The state of the passes of one kind in an opened pool.
#[derive(Default)]
pub(crate) struct Passes {
    /// The last demanded pass of each vdev.
    pub(crate) tasks: Mutex<BTreeMap<VdevId, Task>>,
    /// The limit of demanded passes in bytes per second; 0 for none.
    pub(crate) limit: AtomicU64,
    /// The bytes that demanded passes have handled since the pool was opened.
    pub(crate) handled: AtomicU64,
    /// Where to continue with newly freed space; only a trim looks for it.
    pub(crate) fresh: Mutex<Option<TrimCursor>>,
}

/// A demanded pass over the free space of a vdev.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub(crate) phase: Phase,
    pub(crate) cursor: TrimCursor,
    pub(crate) bytes: u64,
    pub(crate) begun: Nanos,
    pub(crate) ended: Nanos,
}

/// Phase of a demanded pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Suspended,
    Finished,
    /// Ended by the error.
    Failed(String),
}

impl Task {
    /// Whether the pass runs, or can be resumed.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Suspended)
    }
}
