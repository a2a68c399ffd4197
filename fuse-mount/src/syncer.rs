//! The threads that wait for `fsync`.
//!
//! A sync may have to wait for a device or a commit, and the two to four threads that read `/dev/fuse` must not: with two
//! programs syncing, nobody else could look up a name. A sync is therefore handed to one of these threads, which sends
//! the reply when the data is safe. They are started by the mount's first sync.
//!
//! Whatever file is synced, all of its file system is ([`FileSystem::sync`](dataset::fs::FileSystem::sync)). So a thread
//! takes all syncs together that have come while the threads were waiting, and syncs once: however many programs sync,
//! each waits for two flushes at most, the one under way and the next.

use std::iter;
use std::sync::{Arc, OnceLock};

use crossbeam_channel::{Receiver, Sender, unbounded};
use fuser::ReplyEmpty;

use crate::attr::errno;
use crate::courtesy;
use crate::handler::Handler;

/// While one waits for the device, another takes what has come meanwhile; what comes then is for the first again.
const THREADS: usize = 2;

/// Does one sync and answers all of these.
type Serve<R> = dyn Fn(Vec<R>) + Send + Sync;

/// Hands syncs to waiting threads, which end when this is dropped and their work is done.
pub(crate) struct Syncer<R> {
    serve: Arc<Serve<R>>,
    name: &'static str,
    queue: OnceLock<Sender<R>>,
}

impl Syncer<ReplyEmpty> {
    /// For a mount.
    pub(crate) fn of(handler: Arc<dyn Handler>) -> Syncer<ReplyEmpty> {
        Syncer::new("fuse-sync", move |replies: Vec<ReplyEmpty>| {
            let done = handler.sync();
            for reply in replies {
                match done {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(errno(error)),
                }
            }
        })
    }
}

impl<R: Send + 'static> Syncer<R> {
    /// Whose threads, of this name, do `serve` with all that has come meanwhile.
    pub(crate) fn new(name: &'static str, serve: impl Fn(Vec<R>) + Send + Sync + 'static) -> Syncer<R> {
        Syncer { serve: Arc::new(serve), name, queue: OnceLock::new() }
    }

    /// Answers `reply` once all that was done until now is durable.
    pub(crate) fn submit(&self, reply: R) {
        let queue = self.queue.get_or_init(|| start(self.name, &self.serve));
        if let Err(refused) = queue.send(reply) {
            (self.serve)(vec![refused.into_inner()]);
        }
    }
}

/// Starts as many threads as the machine lets us. With none, the queue has no receiver and refuses what it is sent.
fn start<R: Send + 'static>(name: &str, serve: &Arc<Serve<R>>) -> Sender<R> {
    let (sender, receiver) = unbounded();
    for _ in 0..THREADS {
        let (serve, receiver) = (Arc::clone(serve), receiver.clone());
        if let Err(error) = courtesy::spawn(name, move || run(&*serve, &receiver)) {
            tracing::warn!(%error, "cannot start a thread");
        }
    }
    sender
}

fn run<R>(serve: &Serve<R>, waiting: &Receiver<R>) {
    for first in waiting {
        serve(iter::once(first).chain(waiting.try_iter()).collect());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_comes_while_all_threads_wait_shares_the_next_sync() {
        let (began, begun) = unbounded();
        let (allow, allowed) = unbounded::<()>();
        let syncer = Syncer::new("test", move |replies: Vec<u32>| {
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
