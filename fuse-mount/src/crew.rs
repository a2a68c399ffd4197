//! The threads that serve all mounts of this process through `/dev/fuse`.
//!
//! All mounts are watched together. A waiting thread is notified of a mount with a request and serves it; so few
//! threads serve thousands of mounts that are used now and then. A busy mount gets threads of its own
//! ([`Channel::stay`]) if there are enough, and loses them when idle. One thread always waits: when the last waiting
//! thread gets a request, another thread is started, up to [`MOST`].

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use crate::channel::{Buffers, Channel, Left};
use crate::courtesy;

/// The most threads for all mounts together.
const MOST: usize = 64;
/// The most threads that stay with busy mounts.
const MOST_STAYING: usize = 40;
/// The interval of the check whether busy mounts still are, and the idle time after which a superfluous thread ends.
const LOOK: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);
/// With so many threads waiting, one more idle thread ends.
const ENOUGH: usize = 2;

/// Bounds of the number of threads for one mount.
const MIN_THREADS: usize = 2;
const MAX_THREADS: usize = 4;

struct Crew {
    /// Reports mounts with a request, each to one thread, and then not again until the mount is re-armed.
    watch: OwnedFd,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    channels: HashMap<u64, Arc<Channel>>,
    next: u64,
    threads: usize,
    waiting: usize,
    staying: usize,
    looked: Option<Instant>,
}

static CREW: LazyLock<io::Result<Crew>> = LazyLock::new(|| {
    let watch = epoll::create(CreateFlags::CLOEXEC)?;
    Ok(Crew { watch, state: Mutex::default() })
});

/// A served mount, by its number.
pub(crate) struct Served {
    number: u64,
    channel: Arc<Channel>,
}

/// Serves a mount from now on.
pub(crate) fn serve(channel: Arc<Channel>) -> io::Result<Served> {
    let crew = crew()?;
    let number = {
        let mut state = crew.state.lock();
        state.next += 1;
        let number = state.next;
        state.channels.insert(number, Arc::clone(&channel));
        number
    };
    let served = Served { number, channel };
    let begun = epoll::add(&crew.watch, &served.channel, EventData::new_u64(number), wanted()).map_err(io::Error::from);
    match begun.and_then(|()| crew.have_thread()) {
        Ok(()) => Ok(served),
        Err(error) => {
            served.let_go();
            Err(error)
        }
    }
}

impl Served {
    /// Stops serving a mount, even if it is in use.
    pub(crate) fn let_go(&self) {
        if let Ok(crew) = crew() {
            let left = self.channel.let_go();
            crew.after(self.number, &self.channel, left);
        }
    }
}

fn crew() -> io::Result<&'static Crew> {
    CREW.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))
}

fn wanted() -> EventFlags {
    EventFlags::IN | EventFlags::ONESHOT
}

/// The number of threads for one mount. Cached, because the system reads half a dozen files for the answer.
fn per_mount() -> usize {
    static CORES: LazyLock<usize> = LazyLock::new(|| thread::available_parallelism().map_or(MIN_THREADS, usize::from));
    CORES.clamp(MIN_THREADS, MAX_THREADS)
}

impl Crew {
    /// Starts a thread if none waits.
    fn have_thread(&'static self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.waiting > 0 || state.threads >= MOST {
            return Ok(());
        }
        state.threads += 1;
        // The new thread counts as waiting at once, so that no second one is started for the same need.
        state.waiting += 1;
        drop(state);
        let started = courtesy::spawn("fuse", || self.work());
        started.map(drop).inspect_err(|_| {
            let mut state = self.state.lock();
            state.threads -= 1;
            state.waiting -= 1;
        })
    }

    fn work(&'static self) {
        let mut buffers = Buffers::default();
        while let Some(number) = self.next() {
            let channel = self.state.lock().channels.get(&number).cloned();
            if let Some(channel) = channel {
                self.attend(number, &channel, &mut buffers);
            }
            self.state.lock().waiting += 1;
        }
    }

    fn attend(&'static self, number: u64, channel: &Arc<Channel>, buffers: &mut Buffers) {
        let watch = || self.watch(number, channel);
        let mut stays = false;
        let stay = || {
            stays = self.staff(number, channel);
            stays
        };
        let mut left = channel.attend(buffers, per_mount(), watch, stay);
        if stays {
            left = channel.stay(buffers);
            self.state.lock().staying -= 1;
        }
        self.after(number, channel, left);
    }

    /// Waits, as a thread already counted as waiting, for a mount with a request. `None` if this thread is superfluous.
    fn next(&'static self) -> Option<u64> {
        let mut events = Vec::with_capacity(1);
        loop {
            let has_busy = self.state.lock().staying > 0;
            let patience = if has_busy { LOOK } else { PATIENCE };
            let patience = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: 0 };
            let come = epoll::wait(&self.watch, spare_capacity(&mut events), Some(&patience));
            self.look();
            if let Some(event) = events.pop() {
                self.state.lock().waiting -= 1;
                if let Err(error) = self.have_thread() {
                    tracing::debug!(%error, "mounts cannot have another thread");
                }
                return Some(event.data.u64());
            }
            let mut state = self.state.lock();
            let is_spare = come == Ok(0) && !has_busy && state.waiting > ENOUGH;
            if is_spare {
                state.waiting -= 1;
                state.threads -= 1;
                return None;
            }
        }
    }

    /// Lets another thread be notified of the next request.
    fn watch(&self, number: u64, channel: &Channel) {
        if let Err(error) = epoll::modify(&self.watch, channel, EventData::new_u64(number), wanted()) {
            tracing::debug!(%error, "a mount is not watched");
        }
    }

    /// Gives a busy mount threads of its own, the calling thread among them.
    fn staff(&'static self, number: u64, channel: &Arc<Channel>) -> bool {
        let threads = per_mount();
        {
            let mut state = self.state.lock();
            // Without a waiting thread, other mounts would not be served while this mount has its threads.
            if state.waiting == 0 || state.staying + threads > MOST_STAYING || !channel.own(threads) {
                return false;
            }
            state.staying += threads;
            state.threads += threads - 1;
        }
        // A request for a thread in read(2) must not wake a second thread.
        let _ = epoll::delete(&self.watch, channel);
        for _ in 1..threads {
            let of_thread = Arc::clone(channel);
            let work = move || {
                let left = of_thread.stay(&mut Buffers::default());
                let mut state = self.state.lock();
                state.staying -= 1;
                state.threads -= 1;
                drop(state);
                self.after(number, &of_thread, left);
            };
            if let Err(error) = courtesy::spawn("fuse-busy", work) {
                tracing::debug!(%error, "a busy mount has a thread less");
                let mut state = self.state.lock();
                state.staying -= 1;
                state.threads -= 1;
                drop(state);
                // This thread is still inside.
                channel.leave_for_good();
            }
        }
        true
    }

    /// The follow-up when a thread has left a mount.
    fn after(&self, number: u64, channel: &Channel, left: Left) {
        match left {
            Left::Served => {}
            Left::Watch => {
                let watched = epoll::modify(&self.watch, channel, EventData::new_u64(number), wanted());
                let watched =
                    watched.or_else(|_| epoll::add(&self.watch, channel, EventData::new_u64(number), wanted()));
                if let Err(error) = watched {
                    tracing::error!(%error, "a mount is not watched any more");
                }
            }
            Left::Ended => {
                let _ = epoll::delete(&self.watch, channel);
                self.state.lock().channels.remove(&number);
            }
        }
    }

    /// Checks whether busy mounts still are, unless another thread has just done so.
    fn look(&self) {
        let busy: Vec<Arc<Channel>> = {
            let mut state = self.state.lock();
            let now = Instant::now();
            if state.staying == 0 || state.looked.is_some_and(|looked| now.duration_since(looked) < LOOK) {
                return;
            }
            state.looked = Some(now);
            state.channels.values().cloned().collect()
        };
        busy.iter().for_each(|channel| channel.look());
    }
}
