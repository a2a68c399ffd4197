//! Jobs: work on a pool that takes long, in bounded steps, while the pool is used. A job is started, paused, limited and
//! waited for, and goes on after a crash.
//!
//! One [`Scheduler`] steps through the jobs of a pool, for the service and for the crash simulator alike: the resilver first,
//! then the mover, then the scrub. At most one mover runs at a time. The clock is the pool's [`Env`](pool::env::Env).
//!
//! ```text
//! scheduler  which job takes the next step, how large the step is, and how long to wait before it
//! stride     the size of a step, so that others wait for moments only
//! pace       the limit that an operator has set
//! resilver   devices get what they lack; how far it has come is stored in uberblocks (cursor)
//! removal    a vdev is emptied, and leaves
//! rebalance  chunks move from full vdevs to others           batches   chunks moved some at a time: for rebalance and
//! defragment sparse chunks are packed                                  defragment
//! resize     what lies at the end of devices moves, and they end earlier
//! expansion  rows of a RAID-Z become wider
//! scrub      everything is examined, and repaired
//! moving     regions emptied step by step: for all that move chunks
//! copying    a walk through everything, to copy it elsewhere: for the resilver, and for moving
//! ```
//!
//! Each job keeps its state where its file says: in a row of the catalogue, in uberblocks, in labels.

pub(crate) mod batches;
pub(crate) mod copying;
pub(crate) mod cursor;
mod defragment;
mod expansion;
pub(crate) mod moving;
mod pace;
mod rebalance;
mod removal;
mod resilver;
mod resize;
mod scheduler;
pub(crate) mod scrub;
mod stride;
#[cfg(test)]
mod tests;

use std::time::Duration;

use pool::admin::Pool;
use serde::{Deserialize, Serialize};

use crate::admin::{Datasets, Result};

pub(crate) use cursor::Cursor;
pub use defragment::{Defragment, DefragmentStatus};
pub use expansion::{Expanding, Expansion, ExpansionStatus, Pause};
pub use moving::Moving;
pub use rebalance::{Rebalance, RebalanceStatus};
pub use removal::{Removal, RemovalStatus, Removing};
#[cfg(test)]
pub(crate) use resilver::LOST;
pub use resilver::{Resilver, ResilverState, ResilverStatus, Resumed};
pub use resize::{Resize, ResizeStatus, Resizing};
pub use scheduler::{Scheduler, Turn};
pub use scrub::{Scrub, ScrubStatus};
pub use stride::Stride;

/// How long a job waits that cannot say for how long: for a commit, or for a device.
const A_WHILE: Duration = Duration::from_secs(1);

/// A kind of job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Devices get what they lack.
    Resilver,
    /// A vdev is emptied, and leaves.
    Remove,
    /// Chunks move from full vdevs to others.
    Rebalance,
    /// Devices become smaller.
    Resize,
    /// Sparse chunks are packed.
    Defragment,
    /// A RAID-Z becomes wider.
    Expand,
    /// Everything is examined.
    Scrub,
}

impl Kind {
    /// The kinds that take turns, most urgent first: what lacks something, what moves chunks, what examines.
    pub const IN_ORDER: [Kind; 7] =
        [Kind::Resilver, Kind::Remove, Kind::Rebalance, Kind::Resize, Kind::Defragment, Kind::Expand, Kind::Scrub];

    /// The job of this kind in a pool.
    pub fn of<'a>(self, datasets: &'a Datasets) -> Box<dyn Job + 'a> {
        match self {
            Kind::Resilver => Box::new(datasets.resilver()),
            Kind::Remove => Box::new(datasets.removal()),
            Kind::Rebalance => Box::new(datasets.rebalance()),
            Kind::Resize => Box::new(datasets.resize()),
            Kind::Defragment => Box::new(datasets.defragment()),
            Kind::Expand => Box::new(datasets.expansion()),
            Kind::Scrub => Box::new(datasets.scrub()),
        }
    }

    /// Whether the job moves chunks at an operator's order: at most one such job is under way.
    pub fn is_mover(self) -> bool {
        matches!(self, Kind::Remove | Kind::Rebalance | Kind::Resize | Kind::Defragment)
    }

    /// Whether the jobs behind this one wait while it waits. An expansion may wait for room for days.
    fn keeps_turn(self) -> bool {
        self != Kind::Expand
    }
}

/// What a step has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The step did something; there may be more to do.
    Worked,
    /// The job is not under way, is paused, or cannot go on by itself: the next job gets the turn.
    Idle,
    /// The job goes on when the environment has been up for so long.
    Wait(Duration),
    /// The job ended with this step.
    Done,
}

/// A job of one pool.
pub trait Job {
    /// Its kind.
    fn kind(&self) -> Kind;

    /// Whether the job is under way, paused or not.
    fn is_under_way(&self) -> bool;

    /// Does a step that handles about `budget` bytes. The scheduler holds neither the pool still nor any lock, and commits only
    /// between steps.
    ///
    /// # Errors
    /// If a device or the pool refuses. The state is that of before or after the step, and the step may be tried again.
    fn step(&self, pool: &Pool, budget: u64) -> Result<Step>;

    /// At most so many bytes are handled a second, if an operator has said so.
    fn limit(&self) -> Option<u64> {
        None
    }

    /// The bytes to which the limit applies, handled since the pool was opened.
    fn handled(&self) -> u64 {
        0
    }

    /// Has the job wait until it is started again.
    ///
    /// # Errors
    /// If the job is not under way, is paused already, or cannot be paused.
    fn pause(&self) -> Result<()>;

    /// Gives the job up. What it has done stays done.
    ///
    /// # Errors
    /// If the job is not under way, or cannot be given up.
    fn stop(&self, pool: &Pool) -> Result<()>;
}

/// What the jobs of an opened pool keep in memory.
#[derive(Default)]
pub(crate) struct Jobs {
    pub(crate) scrubber: scrub::Scrubber,
    resilverer: resilver::Resilverer,
    mover: moving::Mover,
    expander: expansion::Expander,
    moved: copying::Moved,
}

/// The jobs of the pool.
impl Datasets {
    /// The resilver.
    pub fn resilver(&self) -> Resilver<'_> {
        Resilver { datasets: self }
    }

    /// The removal of a vdev.
    pub fn removal(&self) -> Removal<'_> {
        Removal { datasets: self }
    }

    /// The rebalance.
    pub fn rebalance(&self) -> Rebalance<'_> {
        Rebalance { datasets: self }
    }

    /// The resize of the devices of a vdev.
    pub fn resize(&self) -> Resize<'_> {
        Resize { datasets: self }
    }

    /// The defragmentation.
    pub fn defragment(&self) -> Defragment<'_> {
        Defragment { datasets: self }
    }

    /// The expansion of a RAID-Z.
    pub fn expansion(&self) -> Expansion<'_> {
        Expansion { datasets: self }
    }

    /// What the jobs that move chunks have in common.
    pub fn moving(&self) -> Moving<'_> {
        Moving { datasets: self }
    }

    /// The scrub.
    pub fn scrub(&self) -> Scrub<'_> {
        Scrub { datasets: self }
    }

    /// The step of a job that is under way and cannot do anything at the moment.
    fn a_while(&self) -> Step {
        Step::Wait(self.engine().env().uptime() + A_WHILE)
    }
}
