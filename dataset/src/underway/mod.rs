//! The state of the jobs of an opened pool: plain data, which the datasets keep and the jobs above change.
//!
//! ```text
//! scrub, resilver, expansion, moving   the state of each job, and of the jobs that move chunks
//! throttle   pause and limit of each job
//! passes     the demanded passes over the free space of vdevs: trims and initializations
//! walk       the position of a walk through everything
//! cursor     the position of a resilver, as recorded in uberblocks
//! ```

pub(crate) mod cursor;
pub(crate) mod expansion;
pub(crate) mod moving;
pub(crate) mod passes;
pub(crate) mod resilver;
pub(crate) mod scrub;
pub(crate) mod throttle;
pub(crate) mod walk;

use std::time::Duration;

use self::{
    expansion::Expander, moving::Mover, passes::Passes, resilver::Resilverer, scrub::Scrubber, throttle::Throttles,
    walk::Moved,
};

/// The state of the jobs of an opened pool.
#[derive(Default)]
pub(crate) struct Jobs {
    /// The uptime when the pool was opened.
    pub(crate) opened: Duration,
    pub(crate) scrubber: Scrubber,
    pub(crate) resilverer: Resilverer,
    pub(crate) mover: Mover,
    pub(crate) expander: Expander,
    pub(crate) moved: Moved,
    pub(crate) throttles: Throttles,
    pub(crate) trims: Passes,
    pub(crate) initializations: Passes,
}

impl Jobs {
    /// The jobs of a pool opened at this uptime.
    pub(crate) fn new(opened: Duration) -> Jobs {
        Jobs { opened, ..Jobs::default() }
    }
}
