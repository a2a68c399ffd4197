//! The state of all trees at some time, for readers without locks.

use std::sync::Arc;

use crate::space::{Hold, Seen};

/// The state of all trees at some time, kept as long as this lives and the pool has room. A read of it returns the
/// right bytes or fails.
#[derive(Clone)]
pub struct Pinned {
    pub(super) seen: Seen,
    pub(super) _hold: Arc<Hold>,
}

impl Pinned {
    /// The token to read blocks of the pinned state.
    pub fn seen(&self) -> Seen {
        self.seen
    }
}
