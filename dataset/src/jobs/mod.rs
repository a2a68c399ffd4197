//! Jobs: long-running work on a pool in use, in bounded steps. A job can be started, paused, limited and waited for,
//! and continues after a crash.
//!
//! One [`Scheduler`] makes the steps of a pool's jobs, for the service and for the crash simulator alike: first the
//! resilver, then the mover, then the scrub; beside these, trim and initialization. At most one mover runs at a time. The clock is the pool's
//! [`Env`](pool::env::Env).
//!
//! ```text
//! job        what a job does: steps, pause, stop
//! scheduler  chooses the job for the next step, the size of the step, and the wait before it
//! stride     the size of a step, small enough to delay others only briefly
//! throttle   pause and limit, as the administrator set them
//! pace       keeps a job to its limit
//! kind       the kinds of jobs, and the order of their turns
//! record     progress and result of a job, for all that show jobs
//! resilver   completes devices; its position is stored in uberblocks
//! removal    empties and removes a vdev
//! rebalance  moves chunks from full vdevs to others          batches    moves some chunks at a time: for rebalance and
//! defragment packs sparse chunks                                        defragment
//! resize     moves the content at the end of devices, and shrinks the devices
//! expansion  widens the rows of a RAID-Z
//! scrub      reads and repairs everything                    examine    a part of the pool, for a command that waits
//! passes     trims or initializes free space, beside the other jobs
//! due_scrub  starts scrubs when due, at idle time
//! moving     empties regions step by step: for all jobs that move chunks
//! copying    a walk through everything, to copy data elsewhere: for resilver and moving
//! ```
//!
//! | id | invariant |
//! | --- | --- |
//! | JOB-1 | At most one removal, rebalance, resize or defragmentation is under way. |
//!
//! Each job's file says where the job keeps its state: in a row of the catalogue, in uberblocks, or in labels.

pub(crate) mod batches;
pub(crate) mod copying;
mod defragment;
mod due_scrub;
mod examine;
mod expansion;
mod job;
mod kind;
pub(crate) mod moving;
mod pace;
mod passes;
mod rebalance;
mod record;
mod removal;
mod resilver;
mod resize;
mod scheduler;
pub(crate) mod scrub;
mod stride;
#[cfg(test)]
mod tests;
mod throttle;

use std::time::Duration;

use pool::admin::Pool;

use crate::{admin::Datasets, error::Result};

pub use defragment::{Defragment, DefragmentStatus};
pub use due_scrub::{Due, DueScrub};
pub use examine::{Examination, Examined, Scope};
pub use expansion::{Expanding, Expansion};
pub use job::{Job, Step};
pub use kind::Kind;
pub use moving::Moving;
pub use pace::Pace;
pub use passes::Pass;
pub use rebalance::{Rebalance, RebalanceStatus};
pub use record::{Detail, JobRecord, JobState, Reason};
pub use removal::{Removal, RemovalStatus, Removing};
#[cfg(test)]
pub(crate) use resilver::LOST;
pub use resilver::Resilver;
pub use resize::{Resize, ResizeStatus, Resizing};
pub use scheduler::{Scheduler, Turn, operations};
pub use scrub::{Scrub, ScrubStatus};
pub use stride::Stride;

pub use crate::underway::{
    expansion::{ExpansionStatus, Pause},
    resilver::{ResilverState, ResilverStatus, Resumed},
};

/// The wait of a job that cannot predict its wait: for a commit, or for a device.
const A_WHILE: Duration = Duration::from_secs(1);

impl Kind {
    /// The pool's job of the kind.
    pub fn of<'a>(self, datasets: &'a Datasets) -> Box<dyn Job + 'a> {
        match self {
            Kind::Resilver => Box::new(datasets.resilver()),
            Kind::Remove => Box::new(datasets.removal()),
            Kind::Rebalance => Box::new(datasets.rebalance()),
            Kind::Resize => Box::new(datasets.resize()),
            Kind::Defragment => Box::new(datasets.defragment()),
            Kind::Expand => Box::new(datasets.expansion()),
            Kind::Scrub => Box::new(datasets.scrub()),
            Kind::Trim => Box::new(datasets.trim()),
            Kind::Initialize => Box::new(datasets.initialization()),
        }
    }
}

/// The jobs of the pool.
impl Datasets {
    /// The resilver of all devices.
    pub fn resilver(&self) -> Resilver<'_> {
        Resilver { datasets: self }
    }

    /// The removal of a vdev.
    pub fn removal(&self) -> Removal<'_> {
        Removal { datasets: self }
    }

    /// The rebalance of all vdevs.
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

    /// The common part of the jobs that move chunks.
    pub fn moving(&self) -> Moving<'_> {
        Moving { datasets: self }
    }

    /// The scrub of the whole pool.
    pub fn scrub(&self) -> Scrub<'_> {
        Scrub { datasets: self }
    }

    /// The step of a job that is under way but blocked at the moment.
    fn a_while(&self) -> Step {
        Step::Wait(self.engine().env().uptime() + A_WHILE)
    }
}

/// The records of a pool's jobs. Of scrub and resilver only the current or the later; of a suspended pool neither,
/// because the record of a scrub may need a device.
pub fn records(datasets: &Datasets, pool: &Pool) -> Result<Vec<JobRecord>> {
    let is_suspended = datasets.engine().suspension().is_suspended();
    let kinds = Kind::IN_ORDER.into_iter().filter(|kind| !(is_suspended && kind.is_scan()));
    let found = kinds.filter_map(|kind| kind.of(datasets).record(pool).transpose());
    let mut records = found.collect::<Result<Vec<JobRecord>>>()?;
    // The resilver is the first in the order, and the scrub the last.
    if let [first, .., last] = &records[..]
        && (first.kind, last.kind) == (Kind::Resilver, Kind::Scrub)
    {
        let is_resilver = datasets.resilver().is_under_way() || last.begun < first.begun;
        records.remove(if is_resilver { records.len() - 1 } else { 0 });
    }
    Ok(records)
}
