//! What an open pool does by itself: free what was destroyed and files that were removed, and let go of snapshots that
//! nobody browses any more.
//!
//! Freeing goes on step by step until nothing is left, each of them a commit of its own.

use std::{
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, unbounded};
use dataset::admin::{Datasets, Progress};

use super::{mounts::Mounts, vital::Vital};

/// How often it looks by itself whether there is something to do.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a pool that is closed goes on freeing first, so that commands without a service get something freed too.
const LAST_CHANCE: Duration = Duration::from_secs(2);

/// The thread; it ends when this is dropped.
pub(crate) struct Background {
    orders: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// Starts the thread.
    pub(crate) fn start(datasets: Arc<Datasets>, mounts: Option<Weak<Mounts>>) -> Background {
        let (orders, received) = unbounded();
        let worker = Worker { datasets, mounts };
        let thread = thread::Builder::new().name("cenote-background".into());
        let thread = thread.spawn(move || worker.run(&received)).expect("the system can start threads");
        Background { orders: Some(orders), thread: Some(thread) }
    }

    /// Says that something was destroyed.
    pub(crate) fn free(&self) {
        let orders = self.orders.as_ref().expect("it runs until it is dropped");
        // The thread ends early only by a defect, which was logged.
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
        // An order that comes while something is freed asks for no more than to go on.
        let is_wanted = || orders.try_recv() != Err(TryRecvError::Disconnected);
        loop {
            // Also at the start: an earlier owner of the pool may have left something.
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

    /// Frees large files that have lost their last name and what was destroyed, at least one step of each and more while
    /// `goes_on` says so.
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
