//! How many threads all mounts of this process may have together.
//!
//! Each has a descriptor too, its io_uring's, and devices, sockets and mounts need some as well: so no more than half of
//! the descriptors that a process may have are taken. Who gets none does without: a mount is then served by `/dev/fuse`,
//! and a queue does not grow.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

/// The most there may be, however many descriptors there are.
const MOST_THREADS: usize = 512;

static BUDGET: Budget = Budget(AtomicUsize::new(0));

/// Threads that are taken.
#[derive(Debug)]
struct Budget(AtomicUsize);

/// A part of the threads, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: &'static Budget,
    threads: usize,
}

impl Share {
    /// For so many threads more.
    pub(super) fn take(threads: usize) -> io::Result<Share> {
        BUDGET.share(threads, most(getrlimit(Resource::Nofile).current))
    }
}

impl Budget {
    fn share(&'static self, threads: usize, most: usize) -> io::Result<Share> {
        let room = |taken: usize| (taken + threads <= most).then_some(taken + threads);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(Share { of: self, threads }),
            Err(taken) => Err(io::Error::other(format!("mounts have {taken} of {most} threads"))),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.threads, Ordering::Relaxed);
    }
}

/// How many threads there may be where a process may have so many descriptors. `None` is any number.
fn most(descriptors: Option<u64>) -> usize {
    let half = descriptors.map_or(usize::MAX, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX));
    half.min(MOST_THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_mounts_share_a_number_of_threads() {
        static BUDGET: Budget = Budget(AtomicUsize::new(0));
        let most = BUDGET.share(10, 12).unwrap();
        assert!(BUDGET.share(3, 12).is_err());
        let rest = BUDGET.share(2, 12).unwrap();
        assert!(BUDGET.share(1, 12).is_err());
        drop(most);
        assert!(BUDGET.share(10, 12).is_ok());
        drop(rest);
        assert_eq!(BUDGET.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn half_of_the_descriptors_are_left_to_others() {
        assert_eq!(most(Some(100)), 50);
        assert_eq!(most(Some(1 << 20)), MOST_THREADS);
        assert_eq!(most(None), MOST_THREADS);
    }
}
