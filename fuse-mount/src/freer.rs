//! Freeing removed files.
//!
//! The kernel reports a removed file as forgotten, each file separately, right after the removal; then the file is
//! freed. Freed at once, each file would be a change of its own: one thread makes the change while the next removal, on
//! another thread, waits for the same tree. So an [errand] thread waits a moment and frees all files gathered until
//! then.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dataset::fs::FileSystem;
use parking_lot::{Condvar, Mutex};

use crate::errand;

/// How long forgets are gathered: here, and in the kernel if no other reply is due. The space becomes free so much
/// later, an unnoticeable delay.
pub(crate) const GATHERING: Duration = Duration::from_millis(2);

/// Frees files on another thread.
#[derive(Default)]
pub(crate) struct Freer(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// A thread is gathering and has not begun to free.
    is_ordered: bool,
    /// The number of threads with orders.
    threads: usize,
    /// Orders are carried out at once, by the caller.
    has_ended: bool,
}

impl Freer {
    /// Frees soon what was released in this file system. Every call passes the same file system.
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

    /// Waits until all orders are done. From then on, orders are carried out at once.
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
        // Files released from now on need a new order.
        self.state.lock().is_ordered = false;
        live.free_unused();
    }
}

/// An order until it is done.
struct Done<'a>(&'a Inner);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
        self.0.changed.notify_all();
    }
}
