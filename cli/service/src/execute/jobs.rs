//! The thread in which the jobs of an open pool take turns. The same thread activates spares and notices enlarged
//! devices. [`dataset::jobs::Scheduler`] decides which job has a turn, and when. Requests about jobs are in the files
//! beside this module, one file per job.

use std::{
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use dataset::{
    admin::Datasets,
    jobs::{DueScrub, Scheduler, operations},
};
use pool::admin::Pool;

use super::{
    automatic::{self, Watch},
    vital::Vital,
};

/// Interval of checks for spares and devices, and maximum time between two turns.
const INTERVAL: Duration = Duration::from_secs(1);

/// The job thread, which ends on drop after saving the progress of jobs.
pub(crate) struct Jobs {
    orders: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Jobs {
    /// Starts the thread. In a service, the thread also handles spares and enlarged devices.
    pub(crate) fn start(datasets: Arc<Datasets>, pool: Arc<Pool>, is_service: bool) -> Jobs {
        let (orders, received) = unbounded();
        let thread = thread::Builder::new().name("cenote-jobs".into());
        let thread =
            thread.spawn(move || run(&datasets, &pool, is_service, &received)).expect("the system can start threads");
        Jobs { orders: Some(orders), thread: Some(thread) }
    }

    /// Wakes the thread, because a job may have work.
    pub(super) fn wake(&self) {
        let orders = self.orders.as_ref().expect("the thread runs until this is dropped");
        // The thread ends early only after a panic, which was logged.
        let _ = orders.send(());
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // The thread's panic was already reported.
            let _ = thread.join();
        }
    }
}

fn run(datasets: &Datasets, pool: &Pool, is_service: bool, orders: &Receiver<()>) {
    let _vital = Vital::new(datasets.engine(), "thread that runs jobs");
    let env = datasets.engine().env();
    let mut scheduler = Scheduler::new(datasets);
    let mut growth = Watch::new(env.uptime());
    let mut due = DueScrub::new(datasets);
    let (mut wait, mut looked) = (Duration::ZERO, None);
    loop {
        match orders.recv_timeout(wait) {
            Ok(()) => scheduler.wake(),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        wait = scheduler.turn(datasets, pool).map_or_else(
            |error| {
                tracing::warn!("a job cannot go on: {error}");
                INTERVAL
            },
            |turn| turn.wait,
        );
        let now = env.uptime();
        if is_service && looked.is_none_or(|looked| now.saturating_sub(looked) >= INTERVAL) {
            automatic::start_due_scrub(datasets, &mut due);
            let before = operations(datasets);
            automatic::replace_failed(datasets, pool);
            growth.step(datasets, pool);
            due.overlook(operations(datasets).saturating_sub(before));
            scheduler.overlook(datasets);
            looked = Some(now);
        }
    }
    scheduler.finish(datasets);
}
