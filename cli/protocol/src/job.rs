//! What is asked of the jobs of a pool.

use serde::{Deserialize, Serialize};

use super::NewSize;

/// What a job is to do. The comment on each says which [`Response`](super::Response) answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Say what starting would do. `Removal`, `Rebalance`, `Defragment`, `Resize`, or of a scrub `Planned`
    Plan(JobTarget),
    /// Begin, go on after a pause, or go on at another rate. The same as of `Plan`, or `Done`
    Start {
        /// What the job is about.
        target: JobTarget,
        /// The most bytes a second; 0 lifts a limit, `None` leaves it as it was.
        limit: Option<u64>,
    },
    /// Pause, also over export and import. `Done`
    Pause,
    /// Stop for good. `Done`
    Stop,
    /// Wait for its end. `Examined` of a scrub, `Layout` of a removal and an expansion, `Resized`, or `Done`
    Wait(JobTarget),
}

impl Order {
    /// Whether the order changes what the pool does.
    pub fn is_mutating(&self) -> bool {
        !matches!(self, Order::Plan(_) | Order::Wait(_))
    }
}

/// What a job is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobTarget {
    /// The whole pool, or whatever the job is about that is under way.
    Pool,
    /// A vdev by its name, or a device by its path or number.
    Device(String),
    /// A device or a mirror, and the size it is to have.
    Size(String, NewSize),
}
