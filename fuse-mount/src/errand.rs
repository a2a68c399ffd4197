//! Threads for deferred parts of requests, shared by all mounts of the process: syncs, and freeing removed files.
//!
//! If no thread waits, new work starts a thread, up to [`MOST`]; a thread that has waited for [`PATIENCE`] ends. Work
//! that comes when all threads are busy waits its turn.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::courtesy;

/// The most threads. Each may wait for a device.
const MOST: usize = 24;
/// How long a thread waits for work before it ends.
const PATIENCE: Duration = Duration::from_secs(10);

type Work = Box<dyn FnOnce() + Send>;

struct Errands {
    queue: VecDeque<Work>,
    threads: usize,
    waiting: usize,
}

static ERRANDS: Mutex<Errands> = Mutex::new(Errands { queue: VecDeque::new(), threads: 0, waiting: 0 });
static COME: Condvar = Condvar::new();

/// Does `work` soon on another thread, or on this thread if none can be had.
pub(crate) fn send(work: impl FnOnce() + Send + 'static) {
    let mut errands = ERRANDS.lock();
    errands.queue.push_back(Box::new(work));
    if errands.waiting >= errands.queue.len() {
        COME.notify_one();
        return;
    }
    if errands.threads == MOST {
        return;
    }
    errands.threads += 1;
    drop(errands);
    if let Err(error) = courtesy::spawn("fuse-errand", run) {
        tracing::warn!(%error, "cannot start a thread for what requests leave to be done");
        let mut errands = ERRANDS.lock();
        errands.threads -= 1;
        // A running thread will take the work; without any, this thread does.
        let work = if errands.threads == 0 { errands.queue.pop_front() } else { None };
        drop(errands);
        work.into_iter().for_each(|work| work());
    }
}

fn run() {
    while let Some(work) = next() {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            tracing::error!("what a request left to be done panicked");
        }
    }
}

fn next() -> Option<Work> {
    let mut errands = ERRANDS.lock();
    loop {
        if let Some(work) = errands.queue.pop_front() {
            return Some(work);
        }
        errands.waiting += 1;
        let has_waited = COME.wait_for(&mut errands, PATIENCE).timed_out();
        errands.waiting -= 1;
        if has_waited && errands.queue.is_empty() {
            errands.threads -= 1;
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_that_waits_does_not_keep_other_work() {
        let (go, gone) = channel::<()>();
        let (sender, receiver) = channel();
        let first_sender = sender.clone();
        send(move || {
            gone.recv().unwrap();
            first_sender.send("first").unwrap();
        });
        send(move || sender.send("second").unwrap());
        assert_eq!(receiver.recv(), Ok("second"));
        go.send(()).unwrap();
        assert_eq!(receiver.recv(), Ok("first"));
        assert!(ERRANDS.lock().threads <= MOST);
    }

    #[test]
    fn work_that_panics_takes_no_thread_along() {
        let (sender, receiver) = channel();
        send(|| panic!("expected by the test"));
        send(move || sender.send(()).unwrap());
        assert_eq!(receiver.recv(), Ok(()));
    }
}
