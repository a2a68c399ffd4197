//! The transport through io_uring: one system call sends a reply and fetches the next request, on the CPU of the
//! waiting program.
//!
//! Linux has this since 6.14, if root switches it on (`fuse.enable_uring`). The kernel offers the ring when a mount is
//! made, and the handshake accepts or declines. A mount has one *queue* for each CPU of the machine; a request goes to
//! the queue of its program's CPU. All queues must be registered before the kernel uses any. `fuser` makes the
//! handshake. The [crew](crate::crew) goes on reading `/dev/fuse`: forgets, interruptions, and the requests from before
//! registration. Notifications go through `/dev/fuse` too.
//!
//! ```text
//! (here)  the threads of a mount: assembled, registered, started
//! queue   a CPU's queue: its threads, and what each of them does        cpus  which queues there are
//! entry   memory for one request, and an io_uring that hands it back and forth
//! serve   a request's bytes to a reply's, through the handler           budget  threads of all mounts
//! wire    requests                                                      reply   replies
//! ```
//!
//! Threads are bound to their queue's CPU. The speed comes from program and thread taking turns on one CPU: waking
//! another CPU costs several times what the request does. Keeping the program there takes some
//! [courtesy](crate::courtesy).
//!
//! **Falling back.** Once the handshake has accepted the ring, every request waits until all queues are registered, for
//! ever if need be. So there are four steps, each with a way back:
//!
//! 1. Before the handshake a command is sent that the kernel must refuse as too early ([`is_reachable`]). This detects
//!    policies and system call filters that block commands.
//! 2. Threads, their rings and their memory are ready before the handshake accepts ([`Team::assemble`]).
//! 3. Each thread registers and reports success ([`Team::start`]). No thread serves before all queues have an entry.
//! 4. The mounting thread waits for the first answer, with a limit: a kernel may have more queues than it shows.
//!
//! A failure in the first two steps stays unknown to the kernel: `/dev/fuse` carries everything, with as many threads
//! as without a ring. A later failure makes the connection useless. `session` cuts the connection and makes the mount
//! once more without this transport.
//!
//! **The end.** When the connection is cut or the last user of the mount is gone, each command under way completes with
//! an error, and its thread ends. [`Ended`] waits for these threads. An interruption comes through `/dev/fuse`, where
//! the request is unknown. The reply says so, the kernel ignores the reply, and the request goes on.
//!
//! Not here: the choice by name ([`Transport`](crate::options::Transport)), and the meaning of requests.

mod budget;
mod cpus;
mod entry;
mod queue;
mod reply;
pub(crate) mod serve;
mod wire;

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::io::Errno;

pub(crate) use self::cpus::Layout;
pub(crate) use self::entry::{HEADER, Header, is_reachable};
pub(crate) use self::reply::OUT_HEADER;

use self::budget::Share;
use self::entry::Entry;
use self::queue::{Place, Post, Queue};
use crate::adapter::MAX_REQUEST;
use crate::connection::Connection;
use crate::courtesy;
use crate::handler::Handler;

/// The switch by which root allows FUSE over io_uring.
pub(crate) const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the machine has FUSE over io_uring switched off. False if unknown; then a mount has to try.
pub(crate) fn is_switched_off() -> bool {
    match std::fs::read_to_string(SWITCH) {
        Ok(switch) => switch.trim() != "Y",
        // A kernel without the switch.
        Err(_) => std::path::Path::new("/sys/module/fuse/parameters").is_dir(),
    }
}

/// What a ready thread gets once the kernel has accepted the ring.
struct Start {
    post: Post,
    /// Reports the number of a queue that has an entry now.
    registered: Sender<u16>,
    /// Signals that all queues have an entry.
    begin: Receiver<()>,
}

/// Threads that are ready to serve a mount, before the mount is known.
pub(crate) struct Team {
    layout: Layout,
    start: Sender<Start>,
    share: Share,
}

/// The threads that serve a mount.
pub(crate) struct Ended {
    alive: Receiver<Infallible>,
    _share: Share,
}

impl Team {
    /// Acquires all resources of a mount's ring, so that later steps need none. Dropping the team ends the threads.
    pub(crate) fn assemble(layout: Layout) -> io::Result<Team> {
        let share = Share::take(layout.threads())?;
        courtesy::prepare();
        let (start, started) = unbounded();
        let (ready, all_ready) = unbounded();
        for (number, threads) in layout.queues() {
            let queue = Arc::new(Queue::new(number));
            for _ in 0..threads {
                let place = queue.place(threads).expect("a new queue has places for all its threads");
                let (started, ready) = (started.clone(), ready.clone());
                queue::spawn(number, move || enlist(&place, started, ready))?;
            }
        }
        drop(ready);
        let mut count = 0;
        for result in all_ready {
            result?;
            count += 1;
        }
        if count == layout.threads() { Ok(Team { layout, start, share }) } else { Err(Errno::AGAIN.into()) }
    }

    /// Registers all queues of the connection with the descriptor `device`, and serves. If a queue has no entry
    /// afterwards, no thread serves, and the connection is useless.
    pub(crate) fn start(
        self,
        handler: Arc<dyn Handler>,
        device: OwnedFd,
        connection: Arc<Connection>,
    ) -> io::Result<Ended> {
        let (alive, ended) = unbounded();
        let (registered, answers) = unbounded();
        let (all_are, begin) = unbounded();
        let post = Post { handler, device: Arc::new(device), connection, _alive: alive };
        for _ in 0..self.layout.threads() {
            let start = Start { post: post.clone(), registered: registered.clone(), begin: begin.clone() };
            // The threads wait for the start. A dead thread shows by not answering.
            let _ = self.start.send(start);
        }
        drop((post, registered, self.start));
        let mut entries = vec![0; self.layout.queues().count()];
        answers.iter().for_each(|queue| entries[usize::from(queue)] += 1);
        if let Some(queue) = entries.iter().position(|&entries| entries == 0) {
            return Err(io::Error::other(format!("queue {queue} of {} could not be registered", entries.len())));
        }
        for _ in 0..entries.iter().sum() {
            // Every registered thread listens.
            let _ = all_are.send(());
        }
        Ok(Ended { alive: ended, _share: self.share })
    }
}

impl Ended {
    /// Waits until no request is served any more.
    pub(crate) fn wait(self) {
        // The channel only closes; no value is ever sent.
        let _ = self.alive.recv();
    }
}

/// A thread's life: get ready, register, and serve once all other queues are registered too.
fn enlist(place: &Place, started: Receiver<Start>, ready: Sender<io::Result<()>>) {
    let (entry, result) = match Entry::new(MAX_REQUEST as usize) {
        Ok(entry) => (Some(entry), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // The receiver is gone if another thread failed.
    let _ = ready.send(result);
    drop(ready);
    let Some(mut entry) = entry else { return };
    let Ok(Start { post, registered, begin }) = started.recv() else { return };
    drop(started);
    match entry.register(Arc::clone(&post.device), place.queue()) {
        // The mounting thread listens until all threads have answered or dropped the sender.
        Ok(()) => drop(registered.send(place.queue())),
        Err(error) => return tracing::warn!(%error, queue = place.queue(), "an entry could not be registered"),
    }
    drop(registered);
    if begin.recv().is_ok() {
        place.serve(entry, &post);
    }
}
