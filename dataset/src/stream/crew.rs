//! The threads that read and verify ahead of the sending or receiving thread.
//!
//! Work is requested for a ticket, and tickets are redeemed in the order in which the stream needs the results. Without
//! threads the work is done at once by the caller, so a test can run on one thread.

use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

type Job = Box<dyn FnOnce() + Send>;

/// Some threads; dropping the crew ends the threads.
pub(super) struct Crew {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// A result, finished or pending.
pub(super) enum Ticket<T> {
    Done(T),
    Coming(Receiver<T>),
}

impl<T> Ticket<T> {
    /// Waits for the result.
    pub(super) fn redeem(self) -> T {
        match self {
            Ticket::Done(value) => value,
            Ticket::Coming(value) => value.recv().expect("a thread that works ahead does not panic"),
        }
    }
}

impl Crew {
    /// A crew of `count` threads.
    pub(super) fn new(count: usize) -> Crew {
        let (jobs, waiting) = unbounded::<Job>();
        let spawn = |number| {
            let waiting = waiting.clone();
            let work = move || waiting.iter().for_each(|job| job());
            let thread = thread::Builder::new().name(format!("cenote-stream-{number}")).spawn(work);
            thread.expect("the system can start threads")
        };
        let threads = (0..count).map(spawn).collect();
        Crew { jobs: (count > 0).then_some(jobs), threads }
    }

    /// The number of threads.
    pub(super) fn size(&self) -> usize {
        self.threads.len()
    }

    /// Queues `work`. The caller bounds the amount of queued work.
    pub(super) fn ask<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Ticket<T> {
        let Some(jobs) = &self.jobs else { return Ticket::Done(work()) };
        let (result, coming) = bounded(1);
        // If sending or receiving has failed meanwhile, the receiver of the result is gone.
        let job = move || drop(result.send(work()));
        jobs.send(Box::new(job)).expect("the threads wait as long as the crew is there");
        Ticket::Coming(coming)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            // A panic of the thread was reported at the time.
            let _ = thread.join();
        }
    }
}
