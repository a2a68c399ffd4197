//! The threads that wait for `fsync`.
//!
//! A synced file may have to wait for a commit, and the two to four threads that serve a mount must not: with two
//! programs syncing, nobody else could look up a name. A sync is therefore handed to one of these threads, which sends
//! the reply when the data is safe. They are started by the mount's first sync.

use std::sync::{Arc, OnceLock};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use dataset::fs::{Errno, Ino};
use fuser::ReplyEmpty;

use crate::attr::errno;
use crate::server::Server;

/// Syncs that wait at once. More than that wait in line, and find much of their work done by those before them.
const THREADS: usize = 4;

/// What is to be made durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sync {
    File(Ino),
    Directory(Ino),
}

type Job = (Sync, ReplyEmpty);

/// Hands syncs to waiting threads, which end when this is dropped and their work is done.
pub(crate) struct Syncer {
    server: Arc<Server>,
    queue: OnceLock<Sender<Job>>,
}

impl Syncer {
    pub(crate) fn new(server: Arc<Server>) -> Syncer {
        Syncer { server, queue: OnceLock::new() }
    }

    /// Answers `reply` once the object is durable.
    pub(crate) fn submit(&self, sync: Sync, reply: ReplyEmpty) {
        let queue = self.queue.get_or_init(|| start(&self.server));
        if let Err(refused) = queue.send((sync, reply)) {
            serve(&self.server, refused.into_inner());
        }
    }
}

/// Starts as many threads as the machine lets us. With none, the queue has no receiver and refuses what it is sent.
fn start(server: &Arc<Server>) -> Sender<Job> {
    let (sender, receiver) = unbounded();
    for _ in 0..THREADS {
        let (server, receiver) = (Arc::clone(server), receiver.clone());
        if let Err(error) = thread::Builder::new().name("fuse-sync".into()).spawn(move || run(&server, &receiver)) {
            tracing::warn!(%error, "cannot start a thread for fsync");
        }
    }
    sender
}

fn run(server: &Server, jobs: &Receiver<Job>) {
    for job in jobs {
        serve(server, job);
    }
}

fn serve(server: &Server, (sync, reply): Job) {
    let done: Result<(), Errno> = match sync {
        Sync::File(ino) => server.live.fsync(ino),
        Sync::Directory(ino) => server.live.fsyncdir(ino),
    };
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}
