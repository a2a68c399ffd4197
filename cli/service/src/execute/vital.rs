//! What becomes of a pool when a thread that works for it in the background ends by a defect.
//!
//! Nobody else would do its work, and whoever waits for that would wait for ever. What the thread had begun is half done in
//! memory, so the pool takes no more changes from then on: waiters get an error, `pool status` says why, and exporting and
//! importing the pool begins anew with what the last commit left.

use std::sync::Arc;

use pool::txg::Engine;

/// Held by a thread that the pool cannot do without.
pub(super) struct Vital {
    engine: Arc<Engine>,
    thread: &'static str,
}

impl Vital {
    /// The current thread is there for this.
    pub(super) fn new(engine: &Arc<Engine>, thread: &'static str) -> Vital {
        Vital { engine: engine.clone(), thread }
    }
}

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.engine.note_defect(self.thread);
        }
    }
}
