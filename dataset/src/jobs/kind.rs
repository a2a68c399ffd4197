//! The kinds of jobs.

use serde::{Deserialize, Serialize};

/// The kinds of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Completes devices.
    Resilver,
    /// Empties and removes a vdev.
    Remove,
    /// Moves chunks from full vdevs to others.
    Rebalance,
    /// Shrinks the devices of a vdev.
    Resize,
    /// Packs sparse chunks.
    Defragment,
    /// Widens the rows of a RAID-Z.
    Expand,
    /// Reads and repairs everything.
    Scrub,
    /// Tells devices which space is free, in turns of its own.
    Trim,
    /// Writes a pattern to free space, in turns of its own.
    Initialize,
}

impl Kind {
    /// The kinds in the order of their turns, most urgent first: missing redundancy, moving chunks, scrub. The
    /// kinds of [`Kind::PASSES`] have turns of their own.
    pub const IN_ORDER: [Kind; 7] =
        [Kind::Resilver, Kind::Remove, Kind::Rebalance, Kind::Resize, Kind::Defragment, Kind::Expand, Kind::Scrub];

    /// The passes over the free space of vdevs, beside all other jobs.
    pub const PASSES: [Kind; 2] = [Kind::Trim, Kind::Initialize];

    /// Whether the job is a pass over the free space of vdevs.
    pub fn is_pass(self) -> bool {
        Kind::PASSES.contains(&self)
    }

    /// Whether the administrator starts the job to move chunks: at most one such job is under way.
    pub fn is_mover(self) -> bool {
        matches!(self, Kind::Remove | Kind::Rebalance | Kind::Resize | Kind::Defragment)
    }

    /// Whether the job examines everything in the pool: a resilver or a scrub.
    pub fn is_scan(self) -> bool {
        matches!(self, Kind::Resilver | Kind::Scrub)
    }

    /// Whether a waiting job delays the later jobs. An expansion does not: it may wait for space for days.
    pub(super) fn keeps_turn(self) -> bool {
        self != Kind::Expand
    }
}
