//! The transport through io_uring: requests come without a system call of their own, to a thread on the CPU of the
//! program that waits for them.
//!
//! Linux has it since 6.14, where root has switched it on (`fuse.enable_uring`). It then offers it when a mount is made,
//! and the handshake says whether it is wanted. A mount has one *queue* for each CPU of the machine, and a request goes
//! to the queue of the CPU that its program runs on. All queues must have been registered before the kernel uses any.
//! `fuser` makes the handshake, and goes on reading `/dev/fuse`: what the kernel wants forgotten, interruptions, and
//! whatever came before the queues were there. Notifications go that way too.
//!
//! ```text
//! entry  memory for one request, and an io_uring that hands it back and forth; all the unsafe code
//! serve  a request's bytes to a reply's, through the dispatcher      wire  requests       reply  replies
//! ```
//!
//! **Threads.** Each queue has [`AT_FIRST`] threads, bound to its CPU, with one entry each. What makes this transport
//! fast is that the program and the thread that answers take turns on one CPU: a wake-up on another one costs several
//! times what the request does. A thread that must wait (for a device, for an fsync, for a pool that is suspended)
//! holds up no request but its own, because its only entry is taken. When fewer than [`SPARE`] threads of a queue are
//! left idle, another one is started, up to [`AT_MOST`]; beyond that, requests on that CPU wait until one of the others is
//! answered. The kernel gives a request to the entry that was idle for the shortest time, so the additional threads sleep
//! when they are not needed, and their memory is never touched.
//!
//! **Falling back.** Threads, their rings and their memory are there before the kernel is told that this transport is
//! wanted; if one of them is not to be had, it is not told, and `/dev/fuse` carries everything. After that, only the
//! registration can fail: the kernel then withdraws the offer itself. `fuser` has as many threads in either case.
//!
//! **The end.** When the connection is cut or the last user of the mount is gone, each command under way completes with
//! an error, and its thread ends. [`Ended`] waits for them.
//!
//! Not here: the choice by name ([`Transport`](crate::options::Transport)), and what a request means.

mod entry;
mod reply;
mod serve;
mod wire;

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use self::entry::Entry;
use crate::adapter::MAX_REQUEST;
use crate::dispatcher::Dispatcher;

/// The threads that a queue begins with: one that serves, and the spare ones for when it has to wait.
const AT_FIRST: usize = 1 + SPARE;
/// The threads of a queue that should be idle. Two, because a request may come before a new thread is there, and what
/// waits without a thread is not given to one that comes later: it waits for the next answer.
const SPARE: usize = 2;
/// The most it may have.
const AT_MOST: usize = 16;
/// Machines with more CPUs than this are served by `/dev/fuse`: a mount would have hundreds of threads.
const MOST_QUEUES: usize = 64;
/// The most threads that all mounts of this process may have: each has a descriptor too, and a process often no more
/// than a thousand.
const MOST_THREADS: usize = 512;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A CPU's queue of one mount.
struct Queue {
    number: u16,
    threads: AtomicUsize,
    idle: AtomicUsize,
}

/// What all threads of a mount share.
#[derive(Clone)]
struct Post {
    dispatcher: Arc<Dispatcher>,
    device: Arc<OwnedFd>,
    /// Dropped by the last thread that ends.
    _alive: Sender<Infallible>,
}

/// A thread that is ready is told this once the kernel wants it.
struct Start {
    post: Post,
    registered: Sender<(u16, bool)>,
}

/// Threads that are ready to serve a mount, one that does not know them yet.
pub(crate) struct Team {
    queues: usize,
    start: Sender<Start>,
    share: Share,
}

/// The threads that serve a mount.
pub(crate) struct Ended {
    alive: Receiver<Infallible>,
    _share: Share,
}

/// A mount's part of the threads that all mounts may have.
struct Share(usize);

impl Team {
    /// Gets everything that a mount needs, so that nothing of this side's can fail any more. Dropping it ends the threads.
    pub(crate) fn assemble() -> io::Result<Team> {
        let queues = queues()?;
        let share = Share::take(queues * AT_FIRST)?;
        let (start, started) = unbounded();
        let (ready, all_ready) = unbounded();
        for number in 0..queues {
            let queue = Arc::new(Queue::new(number as u16));
            for _ in 0..AT_FIRST {
                let (queue, started, ready) = (Arc::clone(&queue), started.clone(), ready.clone());
                spawn(queue.number, move || wait_for_start(&queue, started, ready))?;
            }
        }
        drop(ready);
        let mut count = 0;
        for result in all_ready {
            result?;
            count += 1;
        }
        if count == queues * AT_FIRST { Ok(Team { queues, start, share }) } else { Err(Errno::AGAIN.into()) }
    }

    /// Registers all queues of the connection. True if the kernel took all of them; it then uses them and nothing else.
    pub(crate) fn start(self, dispatcher: Arc<Dispatcher>, device: OwnedFd) -> (bool, Ended) {
        let (alive, ended) = unbounded();
        let (registered, answers) = unbounded();
        let post = Post { dispatcher, device: Arc::new(device), _alive: alive };
        for _ in 0..self.queues * AT_FIRST {
            let start = Start { post: post.clone(), registered: registered.clone() };
            // The threads wait for it, or have died, which shows when they do not answer.
            let _ = self.start.send(start);
        }
        drop((post, registered, self.start));
        let mut taken = vec![false; self.queues];
        answers.iter().for_each(|(queue, is_taken)| taken[usize::from(queue)] |= is_taken);
        (taken.iter().all(|taken| *taken), Ended { alive: ended, _share: self.share })
    }
}

impl Ended {
    /// Waits until no request is served any more.
    pub(crate) fn wait(self) {
        // Nothing is ever sent.
        let _ = self.alive.recv();
    }
}

impl Share {
    fn take(threads: usize) -> io::Result<Share> {
        let room = |taken: usize| (taken + threads <= MOST_THREADS).then_some(taken + threads);
        match THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(Share(threads)),
            Err(_) => Err(io::Error::other("mounts have as many threads as there may be")),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        THREADS.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Queue {
    fn new(number: u16) -> Queue {
        Queue { number, threads: AtomicUsize::new(AT_FIRST), idle: AtomicUsize::new(0) }
    }

    /// Starts one more thread, if there may be one.
    fn grow(self: &Arc<Queue>, post: &Post) {
        let more = |threads: usize| (threads < AT_MOST).then_some(threads + 1);
        if self.threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return;
        }
        let (queue, post) = (Arc::clone(self), post.clone());
        let work = move |_share: Share| match Entry::new(MAX_REQUEST as usize) {
            Ok(entry) => run(&queue, entry, &post, |_| {}),
            Err(error) => tracing::debug!(%error, queue = queue.number, "a queue cannot have another entry"),
        };
        let spawned = Share::take(1).and_then(|share| spawn(self.number, move || work(share)));
        if let Err(error) = spawned {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            tracing::debug!(%error, queue = self.number, "a queue cannot have another thread");
        }
    }
}

/// How many queues a mount needs here.
fn queues() -> io::Result<usize> {
    let cpus = |which: &str| -> io::Result<Vec<usize>> {
        let text = fs::read_to_string(format!("/sys/devices/system/cpu/{which}"))?;
        cpu_list(&text).ok_or_else(|| io::Error::other(format!("the list of {which} CPUs cannot be read")))
    };
    let (possible, online) = (cpus("possible")?, cpus("online")?);
    let allowed = sched_getaffinity(None)?;
    if !possible.iter().copied().eq(0..possible.len()) || possible.len() > MOST_QUEUES {
        return Err(io::Error::other(format!("there are {} CPUs", possible.len())));
    }
    if online.iter().any(|&cpu| cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu)) {
        return Err(io::Error::other("this process may not use all CPUs"));
    }
    Ok(possible.len())
}

/// The numbers in a list such as `0-3,8`.
fn cpu_list(text: &str) -> Option<Vec<usize>> {
    const MOST: usize = 1 << 16;
    let mut cpus = Vec::new();
    for range in text.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MOST {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

fn spawn(queue: u16, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(format!("fuse-ring-{queue}")).spawn(work).map(drop)
}

fn wait_for_start(queue: &Arc<Queue>, started: Receiver<Start>, ready: Sender<io::Result<()>>) {
    bind(queue.number);
    let (entry, result) = match Entry::new(MAX_REQUEST as usize) {
        Ok(entry) => (Some(entry), Ok(())),
        Err(error) => (None, Err(error)),
    };
    // Nobody listens any more if another thread failed.
    let _ = ready.send(result);
    drop(ready);
    let start = started.recv();
    drop(started);
    if let (Some(entry), Ok(Start { post, registered })) = (entry, start) {
        run(queue, entry, &post, move |is_taken| {
            // Whoever starts the mount listens until all have said so, which drops the sender.
            let _ = registered.send((queue.number, is_taken));
        });
    }
}

/// Stays on the queue's CPU. One that is offline has no requests, and its threads may sleep anywhere.
fn bind(queue: u16) {
    let mut cpu = CpuSet::new();
    cpu.set(usize::from(queue));
    if let Err(error) = sched_setaffinity(None, &cpu) {
        tracing::debug!(%error, queue, "a thread cannot be bound to its CPU");
    }
}

/// Serves one request after the other until the connection ends.
fn run(queue: &Arc<Queue>, mut entry: Entry, post: &Post, registered: impl FnOnce(bool)) {
    let offered = entry.register(Arc::clone(&post.device), queue.number);
    registered(offered.is_ok());
    let served = offered.and_then(|()| {
        loop {
            queue.idle.fetch_add(1, Ordering::Relaxed);
            let come = entry.wait();
            if queue.idle.fetch_sub(1, Ordering::Relaxed) <= SPARE && come.is_ok() {
                queue.grow(post);
            }
            come?;
            answer(&post.dispatcher, &mut entry);
            entry.commit()?;
        }
    });
    let error: io::Error = served.map_or_else(|error| error, |never: Infallible| match never {});
    if !is_end(&error) {
        tracing::warn!(%error, queue = queue.number, "a thread has stopped to serve requests");
    }
}

/// A request whose thread panics fails, and the thread goes on with the next one.
fn answer(dispatcher: &Dispatcher, entry: &mut Entry) {
    let (header, payload) = entry.parts();
    if catch_unwind(AssertUnwindSafe(|| serve::serve(dispatcher, header, payload))).is_err() {
        serve::fail(header, payload);
    }
}

/// Whether a command failed because the connection has ended.
fn is_end(error: &io::Error) -> bool {
    let ends = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    ends.iter().any(|end| error.raw_os_error() == Some(end.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(cpu_list("0-1\n"), Some(vec![0, 1]));
        assert_eq!(cpu_list("0"), Some(vec![0]));
        assert_eq!(cpu_list("0-1,4,6-7"), Some(vec![0, 1, 4, 6, 7]));
        for wrong in ["", "a", "1-", "0-99999999999", "0-70000"] {
            assert_eq!(cpu_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn all_mounts_share_a_number_of_threads() {
        let most = Share::take(MOST_THREADS - THREADS.load(Ordering::Relaxed)).unwrap();
        assert!(Share::take(1).is_err());
        drop(most);
        assert!(Share::take(1).is_ok());
    }
}
