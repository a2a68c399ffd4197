//! `fsync` may have to wait for a device or a commit. The few threads of `/dev/fuse` must not wait: two syncing
//! programs would block every lookup. So syncs are left to the [errand] threads, which reply when the data is safe.
//!
//! A sync of any file syncs the whole file system ([`FileSystem::sync`](dataset::fs::FileSystem::sync)). So a thread
//! takes all syncs gathered while the threads were waiting, and syncs once: however many programs sync, each waits for
//! two flushes at most, the flush under way and the next.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::errand;

/// While one thread waits for the device, the second takes the syncs arriving meanwhile, and so on in turn.
const THREADS: usize = 2;

/// Syncs once and answers all given requests.
type Serve<R> = dyn Fn(Vec<R>) + Send + Sync;

/// Hands over syncs of one mount to other threads.
pub(crate) struct Syncer<R>(Arc<Inner<R>>);

struct Inner<R> {
    serve: Box<Serve<R>>,
    state: Mutex<State<R>>,
}

struct State<R> {
    waiting: Vec<R>,
    threads: usize,
}

impl<R: Send + 'static> Syncer<R> {
    /// A syncer whose threads call `serve` with all requests gathered.
    pub(crate) fn new(serve: impl Fn(Vec<R>) + Send + Sync + 'static) -> Syncer<R> {
        let state = Mutex::new(State { waiting: Vec::new(), threads: 0 });
        Syncer(Arc::new(Inner { serve: Box::new(serve), state }))
    }

    /// Answers `reply` once all changes until now are durable.
    pub(crate) fn submit(&self, reply: R) {
        let mut state = self.0.state.lock();
        state.waiting.push(reply);
        if state.threads < THREADS {
            state.threads += 1;
            drop(state);
            let inner = Arc::clone(&self.0);
            errand::send(move || inner.run());
        }
    }
}

impl<R> Inner<R> {
    fn run(&self) {
        let one = One(self);
        loop {
            let mut state = self.state.lock();
            if state.waiting.is_empty() {
                // Under the lock: the next request starts another thread.
                state.threads -= 1;
                std::mem::forget(one);
                return;
            }
            let together = std::mem::take(&mut state.waiting);
            drop(state);
            (self.serve)(together);
        }
    }
}

/// One of the threads; a panic also takes the thread off the count.
struct One<'a, R>(&'a Inner<R>);

impl<R> Drop for One<'_, R> {
    fn drop(&mut self) {
        self.0.state.lock().threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use crossbeam_channel::unbounded;

    use super::*;

    #[test]
    fn syncs_during_a_wait_share_the_next_one() {
        let (began, begun) = unbounded();
        let (allow, allowed) = unbounded::<()>();
        let syncer = Syncer::new(move |replies: Vec<u32>| {
            began.send(replies).unwrap();
            allowed.recv().unwrap();
        });
        // Each thread has begun before the next request is sent.
        for thread in 0..THREADS as u32 {
            syncer.submit(thread);
            assert_eq!(begun.recv().unwrap(), [thread]);
        }
        (10..26).for_each(|reply| syncer.submit(reply));
        assert!(begun.is_empty());
        allow.send(()).unwrap();
        assert_eq!(begun.recv().unwrap(), (10..26).collect::<Vec<_>>());
        (0..THREADS).for_each(|_| allow.send(()).unwrap());
    }
}
