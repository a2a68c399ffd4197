//! The state of the jobs that move chunks.

use std::{sync::atomic::AtomicU64, time::Duration};

use parking_lot::Mutex;
use pool::{error::ErrorKind, space::Batch, txg::Evacuation};

use super::walk::Walk;
use crate::catalogue::{DefragmentRow, RebalanceRow, RemovalRow, ResizeRow};

/// The state of the jobs that move chunks, in an opened pool.
#[derive(Default)]
pub(crate) struct Mover {
    /// Held during a step, and by the starting, pausing or stopping thread.
    pub(crate) work: Mutex<Work>,
    /// The removal's status. Read at any time, as all statuses.
    pub(crate) removal: Mutex<Option<RemovalRow>>,
    /// The rebalance's status.
    pub(crate) rebalance: Mutex<Option<RebalanceRow>>,
    /// The defragmentation's status.
    pub(crate) defragment: Mutex<Option<DefragmentRow>>,
    /// The resize's status.
    pub(crate) resize: Mutex<Option<ResizeRow>>,
    /// The reason why the resize waits, if it does.
    pub(crate) obstacle: Mutex<Option<Obstacle>>,
    /// The bytes copied since the pool was opened.
    pub(crate) copied: AtomicU64,
    /// The part of `copied` from before the start of the last job.
    pub(crate) copied_before: AtomicU64,
}

/// The progress of the current job.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) copying: Option<Copying>,
    /// The number of attempts to move the blocks of the space maps.
    pub(crate) tries: u32,
    /// The batch or part being emptied.
    pub(crate) batch: Option<Batch>,
    /// The number of packed chunks of the batch, and of chunks that received the data.
    pub(crate) packed: (usize, usize),
}

pub(crate) struct Copying {
    pub(crate) evacuation: Evacuation,
    pub(crate) walk: Walk,
    /// Whether some data could not be read at all.
    pub(crate) is_unreadable: bool,
}

/// The reason why a resize waits although everything was moved.
#[derive(Clone, Debug)]
pub(crate) enum Obstacle {
    /// The named device is missing or incomplete.
    Lacking(String),
    /// Shrinking failed at uptime `since`, for the given reason.
    Failed { error: String, kind: ErrorKind, since: Duration },
}
