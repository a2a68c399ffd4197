//! A CPU's queue and the loop of its threads: take a request, answer, take the next.
//!
//! **Growth.** A thread that must wait (for a device, for an fsync, for a suspended pool) holds up only its own
//! request, because its only entry is taken. When fewer than [`SPARE`] threads of a queue are idle, another thread is
//! started, up to [`AT_MOST`]; beyond that, requests on that CPU wait until one of the others is answered. Threads in
//! fsync do not count: many programs may sync at once, each for long, and each sync may add one thread, up to
//! [`MOST_SYNCING`]. A queue does not shrink: an entry cannot be taken back from the kernel. The kernel gives a request
//! to the entry that was idle for the shortest time, so additional threads sleep when not needed. A sleeping thread
//! keeps its stack, and as much of its payload as was ever used, 1 MiB at most.
//!
//! **No thread ends quietly.** If a thread ended with its request unanswered, the program could not even be killed. A
//! panic while answering fails that request alone. Any other end of a thread cuts the connection ([`Connection::cut`]):
//! then every program gets an error, instead of some programs hanging for ever.

use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::budget::Share;
use super::cpus::SPARE;
use super::entry::Entry;
use super::serve;
use crate::adapter::MAX_REQUEST;
use crate::connection::Connection;
use crate::courtesy::{self, Courtesy, Staff};
use crate::handler::Handler;

/// The most threads of a queue, threads in fsync not counted.
const AT_MOST: usize = 16;
/// The most additional threads for fsync.
const MOST_SYNCING: usize = 48;

/// A CPU's queue of one mount.
pub(super) struct Queue {
    pub(super) number: u16,
    threads: AtomicUsize,
    idle: AtomicUsize,
    syncing: AtomicUsize,
}

/// The state that all threads of a mount share.
#[derive(Clone)]
pub(super) struct Post {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) device: Arc<OwnedFd>,
    pub(super) connection: Arc<Connection>,
    /// Dropped by the last thread that ends.
    pub(super) _alive: Sender<Infallible>,
}

/// A thread's place in a queue, freed when dropped.
pub(super) struct Place(Arc<Queue>);

/// Cuts the connection when dropped, unless it has ended: then another connection may have its number.
struct LastResort<'a> {
    post: &'a Post,
    has_ended: bool,
}

impl Queue {
    pub(super) fn new(number: u16) -> Queue {
        let none = || AtomicUsize::new(0);
        Queue { number, threads: none(), idle: none(), syncing: none() }
    }

    /// A place for one more thread, if there are fewer than `most`.
    pub(super) fn place(self: &Arc<Queue>, most: usize) -> Option<Place> {
        let more = |threads: usize| (threads < most).then_some(threads + 1);
        self.threads.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Place(Arc::clone(self)))
    }

    /// The most threads at present.
    fn most(&self) -> usize {
        AT_MOST + self.syncing.load(Ordering::Relaxed).min(MOST_SYNCING)
    }

    /// Starts one more thread, if the limit allows.
    fn grow(self: &Arc<Queue>, post: &Post) {
        let Some(place) = self.place(self.most()) else { return };
        let post = post.clone();
        let work = move |_share: Share| match new_entry(&post, place.0.number) {
            Ok(entry) => place.serve(entry, &post),
            Err(error) => tracing::debug!(%error, queue = place.0.number, "a queue cannot have another entry"),
        };
        let spawned = Share::take(1).and_then(|share| spawn(self.number, move || work(share)));
        if let Err(error) = spawned {
            tracing::debug!(%error, queue = self.number, "a queue cannot have another thread");
        }
    }

    /// Waits for a request and answers all but the last step: the reply goes out with the next call.
    fn turn(self: &Arc<Queue>, entry: &mut Entry, post: &Post) -> io::Result<()> {
        self.idle.fetch_add(1, Ordering::Relaxed);
        let come = entry.wait();
        let were_idle = self.idle.fetch_sub(1, Ordering::Relaxed);
        come?;
        let syncing = usize::from(serve::is_sync(entry.parts().0));
        self.syncing.fetch_add(syncing, Ordering::Relaxed);
        if were_idle <= SPARE {
            self.grow(post);
        }
        answer(&*post.handler, entry);
        self.syncing.fetch_sub(syncing, Ordering::Relaxed);
        entry.commit();
        Ok(())
    }
}

impl Place {
    pub(super) fn queue(&self) -> u16 {
        self.0.number
    }

    /// Serves request after request through a registered entry, until the connection ends.
    pub(super) fn serve(&self, mut entry: Entry, post: &Post) {
        let mut last_resort = LastResort { post, has_ended: false };
        let courtesy = Courtesy::of(Staff::in_place());
        let error = loop {
            if let Err(error) = self.0.turn(&mut entry, post) {
                break error;
            }
            courtesy.answered();
        };
        last_resort.has_ended = is_end(&error) || is_disconnected(&post.device);
        if !last_resort.has_ended {
            tracing::error!(%error, queue = self.0.number, "a mount's connection is cut: a thread cannot go on");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.threads.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for LastResort<'_> {
    fn drop(&mut self) {
        if !self.has_ended && !is_disconnected(&self.post.device) {
            self.post.connection.cut();
        }
    }
}

/// Starts a thread of a queue, on the queue's CPU.
pub(super) fn spawn(queue: u16, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let work = move || {
        bind(queue);
        work();
    };
    courtesy::spawn(&format!("fuse-ring-{queue}"), work).map(drop)
}

/// Binds the thread to the queue's CPU. An offline CPU sends no requests, and its threads may sleep anywhere.
fn bind(queue: u16) {
    let mut cpu = CpuSet::new();
    cpu.set(usize::from(queue));
    if let Err(error) = sched_setaffinity(None, &cpu) {
        tracing::debug!(%error, queue, "a thread cannot be bound to its CPU");
    }
}

fn new_entry(post: &Post, queue: u16) -> io::Result<Entry> {
    let mut entry = Entry::new(MAX_REQUEST as usize)?;
    entry.register(Arc::clone(&post.device), queue)?;
    Ok(entry)
}

/// Answers a request. A panic fails the request, and the thread goes on with the next request.
fn answer(handler: &dyn Handler, entry: &mut Entry) {
    let (header, payload) = entry.parts();
    if catch_unwind(AssertUnwindSafe(|| serve::serve(handler, header, payload))).is_err() {
        serve::fail(header, payload);
    }
}

/// Whether a command failed because the connection has ended.
fn is_end(error: &io::Error) -> bool {
    let ends = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED];
    ends.iter().any(|end| error.raw_os_error() == Some(end.raw_os_error()))
}

/// Whether the device reports the connection's end, whatever error a command under way returned.
fn is_disconnected(device: &OwnedFd) -> bool {
    let mut asked = [PollFd::new(device, PollFlags::empty())];
    let answer = poll(&mut asked, Some(&Timespec::default()));
    answer.is_ok() && asked[0].revents().contains(PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use dataset::property::SnapDir;

    use super::*;
    use crate::dispatcher::Dispatcher;
    use crate::options::MountOptions;
    use crate::server::Server;
    use crate::testing;

    #[test]
    fn a_queue_has_room_for_threads_that_do_not_sync() {
        let queue = Arc::new(Queue::new(0));
        let mut places: Vec<Place> = std::iter::from_fn(|| queue.place(queue.most())).collect();
        assert_eq!(places.len(), AT_MOST);
        queue.syncing.fetch_add(1, Ordering::Relaxed);
        places.extend(queue.place(queue.most()));
        assert_eq!(places.len(), AT_MOST + 1, "one of them syncs");
        assert!(queue.place(queue.most()).is_none());
        queue.syncing.fetch_add(1000, Ordering::Relaxed);
        assert_eq!(queue.most(), AT_MOST + MOST_SYNCING);
        drop(places);
        assert_eq!(queue.threads.load(Ordering::Relaxed), 0);
    }

    /// The connection does not exist: no connection has its device number.
    #[test]
    fn a_thread_that_cannot_go_on_leaves_its_place() {
        let Ok(entry) = Entry::new(8192) else { return };
        let (live, _pool) = testing::file_system();
        let server = Server::new(live, Arc::new(testing::Nothing), SnapDir::Hidden).unwrap();
        let post = Post {
            handler: Arc::new(Dispatcher::new(Arc::new(server), &MountOptions::new("tank")).unwrap()),
            device: Arc::new(std::fs::File::open("/dev/null").unwrap().into()),
            connection: Arc::new(Connection { mountpoint: "/nowhere".into(), device: (0, u32::MAX) }),
            _alive: crossbeam_channel::bounded(0).0,
        };
        let queue = Arc::new(Queue::new(0));
        // Never registered: its first wait fails.
        queue.place(1).unwrap().serve(entry, &post);
        assert_eq!(queue.threads.load(Ordering::Relaxed), 0);
        assert_eq!(queue.idle.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_device_says_that_it_has_no_connection() {
        let device = |path: &str| std::fs::File::options().read(true).write(true).open(path).map(OwnedFd::from);
        assert!(!is_disconnected(&device("/dev/null").unwrap()));
        let Ok(fuse) = device("/dev/fuse") else { return };
        assert!(is_disconnected(&fuse), "nothing was ever mounted through it");
    }

    #[test]
    fn the_end_of_a_connection_is_no_failure_of_a_thread() {
        for end in [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED] {
            assert!(is_end(&end.into()));
        }
        assert!(!is_end(&Errno::INVAL.into()));
        assert!(!is_end(&io::Error::other("anything else")));
    }
}
