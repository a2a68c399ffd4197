//! The threads that compress, checksum, code and write.
//!
//! With no threads, all work runs on the caller's thread, in order, so a test can replay a run from a seed.

use rayon::{
    ThreadPool, ThreadPoolBuilder,
    iter::{IntoParallelIterator, ParallelIterator},
};

use crate::device::IoPurpose;

/// A pool of worker threads, or none.
pub(crate) struct Workers {
    threads: Option<ThreadPool>,
}

impl Workers {
    /// `count` threads; 0 for none.
    pub(crate) fn new(count: usize) -> Workers {
        let build = || {
            let builder =
                ThreadPoolBuilder::new().num_threads(count).thread_name(|index| format!("cenote-worker-{index}"));
            builder.build().expect("the system can start threads")
        };
        Workers { threads: (count > 0).then(build) }
    }

    /// The number of threads; 0 without any.
    pub(crate) fn count(&self) -> usize {
        self.threads.as_ref().map_or(0, ThreadPool::current_num_threads)
    }

    /// Calls `work` for each item, on all threads, and returns the first error.
    pub(crate) fn try_each<T: Send, E: Send>(
        &self,
        items: Vec<T>,
        work: impl Fn(T) -> Result<(), E> + Send + Sync,
    ) -> Result<(), E> {
        match &self.threads {
            Some(threads) if items.len() > 1 => {
                let purpose = IoPurpose::current();
                let work = |item| purpose.during(|| work(item));
                threads.install(|| items.into_par_iter().try_for_each(work))
            }
            _ => items.into_iter().try_for_each(work),
        }
    }

    /// Runs `work` soon on a worker, or right here without threads. No program waits for it.
    pub(crate) fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        match &self.threads {
            Some(threads) => threads.spawn(|| IoPurpose::Background.during(work)),
            None => IoPurpose::Background.during(work),
        }
    }
}
