//! The consequence for a pool when one of its background threads panics.
//!
//! No other thread would do the work, so callers would wait for ever. The thread's work is half done in memory, so
//! the pool takes no more changes: waiting callers get an error, and `pool status` shows the reason. An export and
//! import restarts the pool from its last commit.

use std::sync::Arc;

use pool::txg::Engine;

/// Held by a thread that the pool needs.
pub(super) struct Vital {
    engine: Arc<Engine>,
    thread: &'static str,
}

impl Vital {
    /// Marks the current thread as needed.
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
