//! Orders to the jobs of a pool.

use serde::{Deserialize, Serialize};

use super::record::{Location, NewSize};

/// An order to a job. The comment on each variant ends with its [`Response`](super::Response).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Report the effect of starting the job. `Removal`, `Rebalance`, `Defragment`, `Resize`, or for a scrub, a trim or an
    /// initialization `Bytes`
    Plan(JobTarget),
    /// Start, resume after a pause, or change the rate. The response of `Plan`, or `Done`
    Start {
        /// The pool, or what to work on.
        target: JobTarget,
        /// Limit in bytes per second; 0 removes a limit, `None` keeps the present limit.
        limit: Option<u64>,
    },
    /// Pause; a pause lasts over export and import, except of a trim or an
    /// initialization. `Done`
    Pause(JobTarget),
    /// Stop for good. `Done`
    Stop(JobTarget),
    /// Forget an ended initialization. `Done`
    Forget(JobTarget),
    /// Wait for the job to end. `Examined` for a scrub, `Bytes` for a trim or an initialization, `Layout` for a removal or an expansion,
    /// `Resized`, or `Done`
    Wait(JobTarget),
}

impl Order {
    /// Whether the order changes the state of the pool.
    pub fn is_mutating(&self) -> bool {
        !matches!(self, Order::Plan(_) | Order::Wait(_))
    }
}

/// The object of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobTarget {
    /// The whole pool, or the object of the running job.
    Pool,
    /// A vdev by its name, or a device by its path or GUID.
    Device(String),
    /// The vdevs of devices: of a trim or an initialization.
    Devices(Vec<String>),
    /// A device or a mirror, with its requested size.
    Size(String, NewSize),
}

/// A part of a pool to scrub.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScrubPart {
    /// A file; a root directory means its whole file system or snapshot.
    Place(Location),
    /// All blocks with known damage.
    Damage,
}
