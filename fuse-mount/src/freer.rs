//! Freeing removed files.
//!
//! A removed file is freed when the kernel has forgotten it, which it says of each file by itself, right after the removal.
//! Freed at once, each would be a change of its own, made by one thread while the next removal waits on another for the
//! same tree. So files are left to an [errand] thread, which waits a moment and frees all that have come together.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dataset::fs::FileSystem;
use parking_lot::{Condvar, Mutex};

use crate::errand;

/// How long files are gathered: here, and by the kernel before it says what it forgets, where nothing else is waited for.
/// Nobody notices that space comes back so much later.
pub(crate) const GATHERING: Duration = Duration::from_millis(2);

/// Has files freed.
#[derive(Default)]
pub(crate) struct Freer(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A thread waits for more before it begins.
    is_ordered: bool,
    /// So many threads have orders.
    threads: usize,
    /// Orders are carried out at once.
    has_ended: bool,
}

impl Freer {
    /// Has what was released in this file system freed soon. It is always the same one.
    pub(crate) fn order(&self, live: &Arc<FileSystem>) {
        let mut state = self.0.state.lock();
        if state.has_ended {
            drop(state);
            live.free_unused();
        } else if !state.is_ordered {
            state.is_ordered = true;
            state.threads += 1;
            drop(state);
            let (inner, live) = (Arc::clone(&self.0), Arc::clone(live));
            errand::send(move || inner.carry_out(&live));
        }
    }

    /// Waits until what was ordered is done. From then on, orders are carried out at once.
    pub(crate) fn end(&self) {
        let mut state = self.0.state.lock();
        state.has_ended = true;
        self.0.changed.wait_while(&mut state, |state| state.threads > 0);
    }
}

impl Inner {
    fn carry_out(&self, live: &FileSystem) {
        let _done = Done(self);
        thread::sleep(GATHERING);
        // What comes from now on is another order.
        self.state.lock().is_ordered = false;
        live.free_unused();
    }
}

/// An order, until it was carried out.
struct Done<'a>(&'a Inner);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}
