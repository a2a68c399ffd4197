//! The state of the scrub.

use std::{collections::BTreeSet, sync::atomic::AtomicU64};

use parking_lot::Mutex;
use pool::{env::Nanos, format::key::Key};

use crate::{catalogue::ScrubRow, scrub::damage::Damage};

/// The state of the scrub in an opened pool.
#[derive(Default)]
pub(crate) struct Scrubber {
    /// Held during a step, and by the starting, pausing or stopping thread.
    pub(crate) steps: Mutex<Stepping>,
    /// The scrub's row. Read at any time.
    pub(crate) row: Mutex<Option<ScrubRow>>,
    /// Damage found in a pool opened read-only.
    pub(crate) unwritten: Mutex<BTreeSet<Damage>>,
    /// The bytes examined since the pool was opened.
    pub(crate) handled: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Stepping {
    /// Whether the row was loaded from the catalogue.
    pub(crate) is_loaded: bool,
    /// The time up to which the row's `elapsed` is counted.
    pub(crate) clock: Nanos,
    /// The bytes examined when the row was last saved.
    pub(crate) saved: u64,
    /// The key of the step to retry, and the number of retries.
    pub(crate) retried: Option<(Key, u32)>,
}
