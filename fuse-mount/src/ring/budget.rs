//! The limit on ring threads of all mounts of this process.
//!
//! Each thread needs a descriptor for its io_uring; devices, sockets and mounts need descriptors too. So ring threads
//! take at most half of the process's descriptors. Without a share, a mount is served by `/dev/fuse`, and a queue does
//! not grow.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::process::{Resource, getrlimit};

/// The most threads, however many descriptors there are.
const MOST_THREADS: usize = 512;

static BUDGET: Budget = Budget(AtomicUsize::new(0));

/// The number of threads taken.
#[derive(Debug)]
struct Budget(AtomicUsize);

/// A share of the threads, returned when dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: &'static Budget,
    threads: usize,
}

impl Share {
    /// Takes `threads` more threads. An error if fewer are left.
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

/// The most threads for a process with this limit on descriptors. `None`: no limit.
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
