//! Pause and limit of each job.

use parking_lot::Mutex;

use crate::catalogue::PaceRow;

/// The rows in memory, by the offset of the key: jobs that move chunks, resilver, scrub.
#[derive(Default)]
pub(crate) struct Throttles(pub(crate) [Mutex<PaceRow>; 3]);
