//! Background work of an open pool: freeing destroyed datasets and removed files, and closing unused snapshots of
//! `.zfs`.
//!
//! Freeing continues in steps until nothing is left. Each step is a separate commit.

use std::{
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, unbounded};
use dataset::admin::{Datasets, Progress};

use super::{mounts::Mounts, vital::Vital};

/// Interval between two checks for work.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a closing pool continues to free space, so that commands without a service free something too.
const LAST_CHANCE: Duration = Duration::from_secs(2);

/// The background thread, which ends on drop.
pub(crate) struct Background {
    orders: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the background thread.
    pub(crate) fn start(datasets: Arc<Datasets>, mounts: Option<Weak<Mounts>>) -> Background {
        let (orders, received) = unbounded();
        let worker = Worker { datasets, mounts };
        let thread = thread::Builder::new().name("cenote-background".into());
        let thread = thread.spawn(move || worker.run(&received)).expect("the system can start threads");
        Background { orders: Some(orders), thread: Some(thread) }
    }

    /// Wakes the thread after a destruction.
    pub(crate) fn free(&self) {
        let orders = self.orders.as_ref().expect("it runs until it is dropped");
        // The thread ends early only after a panic, which was logged.
        let _ = orders.send(());
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Worker {
    datasets: Arc<Datasets>,
    mounts: Option<Weak<Mounts>>,
}

impl Worker {
    fn run(&self, orders: &Receiver<()>) {
        let _vital = Vital::new(self.datasets.engine(), "thread that frees what was destroyed");
        // An order during freeing only means to continue.
        let is_wanted = || orders.try_recv() != Err(TryRecvError::Disconnected);
        loop {
            // Also at the start: an earlier owner of the pool may have left work.
            self.free_while(is_wanted);
            match orders.recv_timeout(INTERVAL) {
                Ok(()) => {}
                Err(RecvTimeoutError::Timeout) => self.close_idle_snapshots(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let env = self.datasets.engine().env();
        let end = env.uptime() + LAST_CHANCE;
        self.free_while(|| env.uptime() < end);
    }

    /// Frees large removed files and destroyed datasets: at least one step of each, and more while `goes_on` holds.
    fn free_while(&self, goes_on: impl Fn() -> bool) {
        if self.datasets.engine().writable().is_err() {
            return;
        }
        while self.datasets.reap_files() && goes_on() {}
        loop {
            match self.datasets.background_step() {
                Ok(Progress::Worked) if goes_on() => {}
                Ok(Progress::Worked | Progress::Idle) => return,
                Err(error) => return tracing::warn!("cannot free what was destroyed: {error}"),
            }
        }
    }

    fn close_idle_snapshots(&self) {
        if let Some(mounts) = self.mounts.as_ref().and_then(Weak::upgrade) {
            mounts.reap();
        }
    }
}
