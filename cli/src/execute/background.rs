//! What an open pool does by itself: free what was destroyed and files that were removed, write its history, and let go of
//! snapshots that nobody browses any more.
//!
//! Freeing goes on step by step until nothing is left; an order is carried out between two steps, and each order is
//! followed by at least one, so commands that come often delay freeing but never starve it. Lines of the history are written here because each is a commit, and a command that is done should not wait for it.

use std::{
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use dataset::admin::{Datasets, Progress};

use super::{devices, mounts::Mounts};

/// How often it looks by itself whether there is something to do.
const INTERVAL: Duration = Duration::from_secs(1);

/// How long a pool that is closed goes on freeing first, so that commands without a service get something freed too.
const LAST_CHANCE: Duration = Duration::from_secs(2);

enum Order {
    /// Write this line.
    Record(String),
    /// There may be something to free.
    Free,
}

/// The thread; it ends when this is dropped, with every line written.
pub(crate) struct Background {
    orders: Option<Sender<Order>>,
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

    /// Adds a line to the history.
    pub(crate) fn record(&self, command: &str) {
        self.order(Order::Record(command.to_owned()));
    }

    /// Says that something was destroyed.
    pub(crate) fn free(&self) {
        self.order(Order::Free);
    }

    fn order(&self, order: Order) {
        let orders = self.orders.as_ref().expect("it runs until it is dropped");
        // The thread ends early only by a defect, which was logged.
        let _ = orders.send(order);
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
    fn run(&self, orders: &Receiver<Order>) {
        // What an earlier owner of the pool left is pending from the start.
        let mut pending = true;
        loop {
            let patience = if pending { Duration::ZERO } else { INTERVAL };
            match orders.recv_timeout(patience) {
                Ok(Order::Record(line)) => self.record(&line),
                Ok(Order::Free) => pending = true,
                Err(RecvTimeoutError::Timeout) => {
                    self.close_idle_snapshots();
                    pending = true;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if pending {
                pending = self.free_while(|| orders.is_empty());
            }
        }
        let end = Instant::now() + LAST_CHANCE;
        self.free_while(|| Instant::now() < end);
    }

    fn record(&self, line: &str) {
        let user = rustix::process::geteuid().as_raw().to_string();
        if let Err(error) = self.datasets.record(line, &user, &devices::host().1) {
            tracing::warn!("the history lacks '{line}': {error}");
        }
    }

    /// Frees large files that have lost their last name and what was destroyed, at least one step of each and more while
    /// `goes_on` says so; `true` if it was stopped before all was done.
    fn free_while(&self, goes_on: impl Fn() -> bool) -> bool {
        if self.datasets.engine().writable().is_err() {
            return false;
        }
        let mut files_left = self.datasets.reap_files();
        while files_left && goes_on() {
            files_left = self.datasets.reap_files();
        }
        loop {
            match self.datasets.background_step() {
                Ok(Progress::Worked) if goes_on() => {}
                Ok(Progress::Worked) => return true,
                Ok(Progress::Idle) => return files_left,
                Err(error) => {
                    tracing::warn!("cannot free what was destroyed: {error}");
                    return false;
                }
            }
        }
    }

    fn close_idle_snapshots(&self) {
        if let Some(mounts) = self.mounts.as_ref().and_then(Weak::upgrade) {
            mounts.reap();
        }
    }
}
