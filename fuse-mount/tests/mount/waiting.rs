//! Requests that have to wait.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fuse_mount::{Opcode, Transport};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::support::Mounted;

/// Binds this thread, and threads started from it, to one of the allowed CPUs.
fn stay_on_one_cpu() {
    let allowed = sched_getaffinity(None).unwrap();
    let mut one = CpuSet::new();
    one.set((0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap());
    sched_setaffinity(None, &one).unwrap();
}

/// Whether requests come through io_uring. If `CENOTE_TRANSPORT` demands io_uring, a mount without it has failed
/// already.
fn has_ring(mounted: &Mounted) -> bool {
    let has = mounted.mount.transport() == Transport::Uring;
    if !has {
        #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
        {
            eprintln!("skipped: requests come through /dev/fuse");
        }
    }
    has
}

/// Through io_uring, where the requests of a CPU have threads of their own.
#[test]
fn what_waits_does_not_hold_up_others_on_its_cpu() {
    let Some(mounted) = Mounted::new() else { return };
    if !has_ring(&mounted) {
        return;
    }
    let look = |path: &Path| fs::metadata(path).map(drop).map_err(|error| error.kind());
    let snapshots = mounted.path().join(".zfs/snapshot");
    look(&snapshots).unwrap();
    stay_on_one_cpu();
    let lookups = || mounted.mount.counters().get(Opcode::Lookup);
    let before = lookups();
    // Blocks the listing of snapshots, but not the lookup of `.zfs` on the way.
    let taken = mounted.snapshots.0.lock();
    thread::scope(|scope| {
        let waiting = [(); 2].map(|()| scope.spawn(|| look(&snapshots)));
        while lookups() < before + 4 {
            thread::yield_now();
        }
        assert_eq!(look(&mounted.path().join("absent")), Err(ErrorKind::NotFound));
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        drop(taken);
        waiting.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), Ok(())));
    });
}

/// Answering threads get a fair share of the CPU, not just what other threads leave.
#[test]
fn a_machine_with_other_work_on_every_cpu_still_answers() {
    let Some(mounted) = Mounted::new() else { return };
    let file = mounted.path().join("file");
    fs::write(&file, "content").unwrap();
    let ask = || {
        // The absence is not cached, so each call sends a request.
        assert_eq!(rustix::fs::getxattr(&file, "user.none", &mut [0; 8][..]), Err(Errno::NODATA));
    };
    (0..200).for_each(|_| ask());
    let is_over = Arc::new(AtomicBool::new(false));
    let _end = AtEnd(Arc::clone(&is_over));
    for _ in 0..2 * thread::available_parallelism().unwrap().get() {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || while !is_over.load(Ordering::Relaxed) {});
    }
    // With almost no CPU time this would take minutes, and the mount would be cut before.
    (0..500).for_each(|_| ask());
}

/// Ends the computing threads, however the test ends.
struct AtEnd(Arc<AtomicBool>);

impl Drop for AtEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
