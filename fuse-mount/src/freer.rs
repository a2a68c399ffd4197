//! The thread that frees removed files.
//!
//! A removed file is freed when the kernel has forgotten it, which it says of each file by itself, right after the removal.
//! Freed at once, each would be a change of its own, made by one thread while the next removal waits on another for the
//! same tree. So files are left to this thread, which waits a moment and frees all that have come together. It is
//! started by the first.

use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use dataset::fs::FileSystem;

/// How long files are gathered. Nobody notices that space comes back so much later; thousands may be removed in it.
const GATHERING: Duration = Duration::from_millis(2);

/// Wakes the thread, which ends when this is dropped.
#[derive(Default)]
pub(crate) struct Freer {
    /// `None` if there is no thread to be had.
    orders: OnceLock<Option<Sender<()>>>,
}

impl Freer {
    /// Has what was released in this file system freed soon. It is always the same one.
    pub(crate) fn order(&self, live: &Arc<FileSystem>) {
        match self.orders.get_or_init(|| start(live)) {
            // If it is full, the thread has not begun yet with what that order was for.
            Some(orders) => drop(orders.try_send(())),
            None => live.free_unused(),
        }
    }
}

fn start(live: &Arc<FileSystem>) -> Option<Sender<()>> {
    let (orders, received) = bounded(1);
    // Whoever unmounts does not wait for the thread.
    let live = Arc::downgrade(live);
    match thread::Builder::new().name("fuse-free".into()).spawn(move || run(&received, &live)) {
        Ok(_) => Some(orders),
        Err(error) => {
            tracing::warn!(%error, "cannot start a thread for removed files");
            None
        }
    }
}

fn run(orders: &Receiver<()>, live: &Weak<FileSystem>) {
    for () in orders {
        thread::sleep(GATHERING);
        // If it is gone, so are its files' users, and whoever opens it next frees what they left.
        if let Some(live) = live.upgrade() {
            live.free_unused();
        }
    }
}
