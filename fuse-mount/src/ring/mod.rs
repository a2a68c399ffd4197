//! The transport through io_uring: one system call takes a reply and brings the next request, on the CPU of the program
//! that waits for it.
//!
//! Linux has it since 6.14, where root has switched it on (`fuse.enable_uring`). It then offers it when a mount is made,
//! and the handshake says whether it is wanted. A mount has one *queue* for each CPU of the machine, and a request goes
//! to the queue of the CPU that its program runs on. All queues must have been registered before the kernel uses any.
//! `fuser` makes the handshake, and the [crew](crate::crew) goes on reading `/dev/fuse`: what the kernel wants forgotten, interruptions, and
//! whatever came before the queues were there. Notifications go that way too.
//!
//! ```text
//! (here)  the threads of a mount: assembled, registered, started
//! queue   a CPU's queue: its threads, and what each of them does        cpus  which queues there are
//! entry   memory for one request, and an io_uring that hands it back and forth
//! serve   a request's bytes to a reply's, through the handler           budget  threads of all mounts
//! wire    requests                                                      reply   replies
//! ```
//!
//! Threads are bound to their queue's CPU. What makes this transport fast is that the program and the thread that answers
//! take turns on one CPU: a wake-up on another one costs several times what the request does. That the program stays there
//! takes some [courtesy](crate::courtesy).
//!
//! **Falling back.** Once the kernel has been told that this transport is wanted, every request waits until all queues are
//! registered, for ever if need be. So there are four steps, each of which leaves a way back:
//!
//! 1. Before the handshake a command is sent that the kernel must find too early ([`is_reachable`]). Policies and filters
//!    of system calls that let no command get as far as that show here.
//! 2. Threads, their rings and their memory are there before the kernel is told ([`Team::assemble`]).
//! 3. Each registers and says whether it was taken ([`Team::start`]). None serves before all queues have an entry.
//! 4. Whoever mounts waits for the first answer, not for ever: a kernel may have more queues than it shows.
//!
//! What fails in the first two is not told to the kernel, and `/dev/fuse` carries everything, with as many threads
//! as if there were no ring. After that the connection is of no use. It is cut, and the mount made once more without this
//! transport; `session` does that.
//!
//! **The end.** When the connection is cut or the last user of the mount is gone, each command under way completes with
//! an error, and its thread ends. [`Ended`] waits for them. An interruption comes through `/dev/fuse`, where nobody knows
//! the request; that is said, which the kernel takes no notice of, and the request goes on.
//!
//! Not here: the choice by name ([`Transport`](crate::options::Transport)), and what a request means.

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

/// Where root says whether FUSE may go through io_uring.
pub(crate) const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether the machine says that FUSE does not go through io_uring. Where it says nothing, it has to be tried.
pub(crate) fn is_switched_off() -> bool {
    match std::fs::read_to_string(SWITCH) {
        Ok(switch) => switch.trim() != "Y",
        // A kernel without it.
        Err(_) => std::path::Path::new("/sys/module/fuse/parameters").is_dir(),
    }
}

/// A thread that is ready is told this once the kernel wants it.
struct Start {
    post: Post,
    /// Says which queue has an entry now.
    registered: Sender<u16>,
    /// Says that all have.
    begin: Receiver<()>,
}

/// Threads that are ready to serve a mount, one that does not know them yet.
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
    /// Gets everything that a mount needs, so that nothing of this side's can fail any more. Dropping it ends the threads.
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

    /// Registers all queues of the connection, whose descriptor `device` is, and serves it. If one of them has no entry
    /// afterwards nobody serves, and the connection is of no use.
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
            // The threads wait for it, or have died, which shows when they do not answer.
            let _ = self.start.send(start);
        }
        drop((post, registered, self.start));
        let mut entries = vec![0; self.layout.queues().count()];
        answers.iter().for_each(|queue| entries[usize::from(queue)] += 1);
        if let Some(queue) = entries.iter().position(|&entries| entries == 0) {
            return Err(io::Error::other(format!("queue {queue} of {} could not be registered", entries.len())));
        }
        for _ in 0..entries.iter().sum() {
            // Whoever has registered listens.
            let _ = all_are.send(());
        }
        Ok(Ended { alive: ended, _share: self.share })
    }
}

impl Ended {
    /// Waits until no request is served any more.
    pub(crate) fn wait(self) {
        // Nothing is ever sent.
        let _ = self.alive.recv();
    }
}

/// A thread's work from the beginning: to be ready, to register, and to serve if all others are registered too.
fn enlist(place: &Place, started: Receiver<Start>, ready: Sender<io::Result<()>>) {
    let (entry, result) = match Entry::new(MAX_REQUEST as usize) {
        Ok(entry) => (Some(entry), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // Nobody listens any more if another thread failed.
    let _ = ready.send(result);
    drop(ready);
    let Some(mut entry) = entry else { return };
    let Ok(Start { post, registered, begin }) = started.recv() else { return };
    drop(started);
    match entry.register(Arc::clone(&post.device), place.queue()) {
        // Whoever starts the mount listens until all have answered, or have dropped the sender.
        Ok(()) => drop(registered.send(place.queue())),
        Err(error) => return tracing::warn!(%error, queue = place.queue(), "an entry could not be registered"),
    }
    drop(registered);
    if begin.recv().is_ok() {
        place.serve(entry, &post);
    }
}
