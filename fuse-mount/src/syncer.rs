//! `fsync`, which may have to wait for a device or a commit, while the few threads that read `/dev/fuse` must not: with two
//! programs syncing, nobody else could look up a name. A sync is therefore left to the [errand] threads, and replied to
//! when the data is safe.
//!
//! Whatever file is synced, all of its file system is ([`FileSystem::sync`](dataset::fs::FileSystem::sync)). So a thread
//! takes all syncs together that have come while the threads were waiting, and syncs once: however many programs sync,
//! each waits for two flushes at most, the one under way and the next.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::errand;

/// While one waits for the device, another takes what has come meanwhile; what comes then is for the first again.
const THREADS: usize = 2;

/// Does one sync and answers all of these.
type Serve<R> = dyn Fn(Vec<R>) + Send + Sync;

/// Leaves syncs of one mount to other threads.
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
    /// Whose threads do `serve` with all that has come meanwhile.
    pub(crate) fn new(serve: impl Fn(Vec<R>) + Send + Sync + 'static) -> Syncer<R> {
        let state = Mutex::new(State { waiting: Vec::new(), threads: 0 });
        Syncer(Arc::new(Inner { serve: Box::new(serve), state }))
    }

    /// Answers `reply` once all that was done until now is durable.
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
                // Under the lock: whoever comes next starts another thread.
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

/// One of the threads, not counted any more if it panics.
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
    fn whoever_comes_while_all_threads_wait_shares_the_next_sync() {
        let (began, begun) = unbounded();
        let (allow, allowed) = unbounded::<()>();
        let syncer = Syncer::new(move |replies: Vec<u32>| {
            began.send(replies).unwrap();
            allowed.recv().unwrap();
        });
        // Each thread is seen to have begun before anything more comes.
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
