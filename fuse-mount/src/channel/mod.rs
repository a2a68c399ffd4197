//! The transport of every kernel: requests are read from `/dev/fuse`, and replies written there.
//!
//! A mount is served in one of two ways, by the threads common to all mounts (the [crew](crate::crew)):
//!
//! * *Shared*: a thread comes when the kernel has a request, reads without waiting until no request is left, and goes.
//!   So an idle mount has no thread.
//! * *Owned*: requests come so fast that coming and going would cost. Then some threads stay and wait in read(2), and
//!   each request takes one system call less. After a while without requests the threads are woken and go.
//!
//! Both ways give the same results, and send a reply with one writev(2). The [handler](crate::handler) knows the
//! meaning of requests; [`serve`](crate::ring) parses their bytes, here as for the ring.
//!
//! A connection ends when the kernel reports its end, when a thread fails, or when this side drops the connection. The
//! last thread to leave tells the handler.

mod request;

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use rustix::io::{Errno, writev};

use crate::adapter::MAX_REQUEST;
use crate::connection::Connection;
use crate::counters::Opcode;
use crate::courtesy::{self, Staff};
use crate::errand;
use crate::freer::GATHERING;
use crate::handler::Handler;
use crate::ring::serve::{self, Asked, Parted};
use crate::ring::{self, HEADER, Header, OUT_HEADER};
use crate::serving::Ending;
use crate::syncer::Syncer;

use self::request::{BATCH_FORGET, FORGET, NOTIFY_REPLY, RELEASE};

/// A message that the kernel answers with a `NOTIFY_REPLY`, on which one read(2) returns.
const RETRIEVE: i32 = 5;
const ROOT_NODE: u64 = 1;

/// Requests are many if `BURST` arrive within `QUICK`.
const BURST: u32 = 64;
const QUICK: Duration = Duration::from_secs(1);
/// Requests after which a visiting thread leaves, so that other mounts have their turn.
const PER_VISIT: usize = 16;

/// The connection of one mount.
pub(crate) struct Channel {
    device: OwnedFd,
    handler: Arc<dyn Handler>,
    connection: Arc<Connection>,
    staff: Arc<Staff>,
    syncer: Syncer<Reply>,
    /// Whether the ring serves the mount: then only forgets come through the device.
    serves_forgets_only: bool,
    state: Mutex<State>,
    /// The number of requests served, wrapping.
    served: AtomicU32,
    /// The number of the last request after which the kernel was given time to gather forgets.
    gathered: AtomicU64,
}

struct State {
    mode: Mode,
    /// Threads inside the mount, and the number of staying threads among them.
    inside: usize,
    staying: usize,
    /// Wake-up messages not yet read by a thread.
    called: usize,
    /// The start of the last burst.
    since: Instant,
    /// The number of requests served at the last look.
    seen: u32,
    has_ended: bool,
    /// Done when all threads have gone.
    end: Option<End>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    Shared,
    Owned,
    /// Owned, and the threads are asked to go.
    Left,
}

struct End {
    ring: Option<ring::Ended>,
    ending: Arc<Ending>,
}

/// A request with a reply from another thread.
struct Reply {
    channel: Arc<Channel>,
    unique: u64,
}

/// A thread's buffers for reading and writing.
pub(crate) struct Buffers {
    header: Header,
    /// The longest request without its header.
    input: Vec<u8>,
    output: Vec<u8>,
}

/// How a thread leaves a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Left {
    /// The caller must watch the mount for requests.
    Watch,
    /// Other threads serve the mount.
    Served,
    /// The connection has ended, and no thread serves the mount.
    Ended,
}

enum Answered {
    Yes,
    /// No request, but a wake-up message.
    Woken,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers { header: [0; HEADER], input: vec![0; MAX_REQUEST as usize + 4096], output: Vec::new() }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

impl Channel {
    /// A connection after the handshake. If there is a `ring`, the ring serves everything but forgets.
    pub(crate) fn new(
        device: OwnedFd,
        handler: Arc<dyn Handler>,
        ring: Option<ring::Ended>,
        (connection, ending): (Arc<Connection>, Arc<Ending>),
    ) -> io::Result<Arc<Channel>> {
        courtesy::prepare();
        set_waiting(&device, false)?;
        let serves_forgets_only = ring.is_some();
        let end = Some(End { ring, ending });
        let (mode, since) = (Mode::Shared, Instant::now());
        let state = Mutex::new(State { mode, inside: 0, staying: 0, called: 0, since, seen: 0, has_ended: false, end });
        let to_sync = Arc::clone(&handler);
        let syncer = Syncer::new(move |replies: Vec<Reply>| {
            let done = to_sync.sync();
            replies.into_iter().for_each(|reply| reply.send(done));
        });
        let (served, gathered) = (AtomicU32::new(0), AtomicU64::new(0));
        let staff = Staff::following();
        let channel =
            Channel { device, handler, connection, staff, syncer, serves_forgets_only, state, served, gathered };
        Ok(Arc::new(channel))
    }

    /// Serves pending requests as a visit. Called by a thread that was notified of a request. `watch` lets other
    /// threads be notified of the next request; at most `most` threads serve one mount. If requests are many and `stay`
    /// agrees, threads stay.
    pub(crate) fn attend(
        self: &Arc<Self>,
        buffers: &mut Buffers,
        most: usize,
        watch: impl Fn(),
        mut stay: impl FnMut() -> bool,
    ) -> Left {
        let most = if self.serves_forgets_only { 1 } else { most };
        self.state.lock().inside += 1;
        for _ in 0..PER_VISIT {
            let come = {
                let state = self.state.lock();
                if state.has_ended || state.mode != Mode::Shared {
                    break;
                }
                let come = self.read(buffers);
                if come.is_ok() && state.inside < most {
                    watch();
                }
                come
            };
            match come {
                Ok(length) => drop(self.answer(buffers, length, false)),
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    self.note_end(errno);
                    break;
                }
            }
            if self.is_busy() && stay() {
                break;
            }
        }
        self.leave()
    }

    /// Serves until the thread is sent away or the mount ends. [`Channel::own`] has counted the thread already.
    pub(crate) fn stay(self: &Arc<Self>, buffers: &mut Buffers) -> Left {
        loop {
            match self.read(buffers) {
                Ok(length) => {
                    let answered = self.answer(buffers, length, true);
                    if matches!(answered, Answered::Woken) && self.state.lock().must_go() {
                        break;
                    }
                }
                // The device was just set not to wait.
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    self.note_end(errno);
                    break;
                }
            }
        }
        courtesy::forget_program();
        self.leave_for_good()
    }

    /// Prepares for `threads` staying threads. False if impossible now.
    pub(crate) fn own(&self, threads: usize) -> bool {
        let mut state = self.state.lock();
        if state.has_ended || state.mode != Mode::Shared || set_waiting(&self.device, true).is_err() {
            return false;
        }
        state.mode = Mode::Owned;
        state.inside += threads;
        state.staying += threads;
        state.seen = self.served.load(Ordering::Relaxed).wrapping_sub(1);
        true
    }

    /// Sends the staying threads away if no request came since the last call. Called periodically.
    pub(crate) fn look(&self) {
        let mut state = self.state.lock();
        let served = self.served.load(Ordering::Relaxed);
        let is_idle = std::mem::replace(&mut state.seen, served) == served;
        if state.staying > 0 && is_idle {
            if state.mode == Mode::Owned {
                state.mode = Mode::Left;
            }
            // A visiting thread may have read a wake-up meant for a staying thread.
            self.wake(&mut state);
        }
    }

    /// Drops the connection: requests are served no longer.
    pub(crate) fn let_go(&self) -> Left {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.inside += 1;
        self.wake(&mut state);
        drop(state);
        self.leave()
    }

    /// Takes a staying thread off the count.
    pub(crate) fn leave_for_good(&self) -> Left {
        self.state.lock().staying -= 1;
        self.leave()
    }

    fn leave(&self) -> Left {
        let mut state = self.state.lock();
        state.inside -= 1;
        // As soon as the first thread leaves, visits begin again: the other threads may be busy for long.
        if state.mode == Mode::Left && set_waiting(&self.device, false).is_ok() {
            state.mode = Mode::Shared;
        }
        if state.inside > 0 {
            let others_watch = state.mode == Mode::Shared && !state.has_ended;
            return if others_watch { Left::Watch } else { Left::Served };
        }
        if !state.has_ended {
            return Left::Watch;
        }
        let end = state.end.take();
        drop(state);
        let Some(End { ring, ending }) = end else { return Left::Served };
        let handler = Arc::clone(&self.handler);
        let Some(ring) = ring else {
            handler.ended();
            ending.end();
            return Left::Ended;
        };
        // The ring's threads end when the connection is cut, perhaps by the caller.
        let started = courtesy::spawn("fuse-end", move || {
            ring.wait();
            handler.ended();
            ending.end();
        });
        if let Err(error) = started {
            tracing::error!(%error, "the end of a mount is not noticed");
        }
        Left::Ended
    }

    fn note_end(&self, errno: Errno) {
        if errno != Errno::NODEV {
            tracing::error!(error = %io::Error::from(errno), "a mount's connection failed");
            self.connection.cut();
        }
        let mut state = self.state.lock();
        state.has_ended = true;
        // Waiting threads see the same error, unless only this thread had failed.
        self.wake(&mut state);
    }

    /// Makes read(2) return in each staying thread. A busy thread reads its wake-up later, and is not sent a second.
    fn wake(&self, state: &mut State) {
        let mut message = [0; 16 + 32];
        message[..4].copy_from_slice(&48u32.to_ne_bytes());
        message[4..8].copy_from_slice(&RETRIEVE.to_ne_bytes());
        message[24..32].copy_from_slice(&ROOT_NODE.to_ne_bytes());
        while state.called < state.staying {
            if let Err(error) = rustix::io::write(&self.device, &message) {
                tracing::debug!(%error, "a thread stays with an idle mount");
                break;
            }
            state.called += 1;
        }
    }

    /// Whether requests come fast enough for threads to stay.
    fn is_busy(&self) -> bool {
        if self.serves_forgets_only || !self.served.load(Ordering::Relaxed).is_multiple_of(BURST) {
            return false;
        }
        let now = Instant::now();
        let since = std::mem::replace(&mut self.state.lock().since, now);
        now.duration_since(since) < QUICK
    }

    /// Reads a request; returns its length in bytes.
    fn read(&self, buffers: &mut Buffers) -> Result<usize, Errno> {
        request::read(&self.device, &mut buffers.header, &mut buffers.input)
    }

    fn answer(self: &Arc<Self>, buffers: &mut Buffers, length: usize, is_owned: bool) -> Answered {
        let payload = request::arrange(&mut buffers.header, &mut buffers.input, length);
        let Buffers { header, input, output } = buffers;
        let payload = &input[payload];
        let request = Asked::of(header, payload.len());
        self.served.fetch_add(1, Ordering::Relaxed);
        match request.opcode {
            NOTIFY_REPLY => {
                let mut state = self.state.lock();
                state.called = state.called.saturating_sub(1);
                return Answered::Woken;
            }
            FORGET => self.forget(request.unique, &[(request.node.0, request.count)]),
            BATCH_FORGET => self.forget(request.unique, &request::forgotten(payload)),
            _ if serve::is_sync(header) => self.sync(&request),
            _ if serve::waits_for_others(&*self.handler, header) => self.leave_to_others(header, payload),
            _ => {
                // No program waits for a RELEASE, and it carries no thread number. Counted as a turn, a RELEASE would
                // look like a second program, and the threads would leave a program that opens file after file.
                let is_turn = is_owned && request.opcode != RELEASE;
                let turn = is_turn.then(|| self.staff.begin(request.pid, request.size));
                self.serve(header, payload, output);
                drop(turn);
                self.send(header, output);
            }
        }
        Answered::Yes
    }

    fn serve(&self, header: &mut Header, asked: &[u8], reply: &mut Vec<u8>) {
        let mut parted = Parted { asked, reply };
        let served = catch_unwind(AssertUnwindSafe(|| serve::serve(&*self.handler, header, &mut parted)));
        if served.is_err() {
            tracing::error!("a request panicked");
            serve::fail(header, &mut parted);
        }
    }

    /// Hands a request that waits for other requests of this mount to another thread: the few threads of the mount must
    /// serve those requests.
    fn leave_to_others(self: &Arc<Self>, header: &Header, payload: &[u8]) {
        let (channel, mut header, asked) = (Arc::clone(self), *header, payload.to_vec());
        errand::send(move || {
            let mut reply = Vec::new();
            channel.serve(&mut header, &asked, &mut reply);
            channel.send(&header, &reply);
        });
    }

    fn send(&self, header: &Header, payload: &[u8]) {
        let parts = [IoSlice::new(&header[..OUT_HEADER as usize]), IoSlice::new(payload)];
        match writev(&self.device, &parts) {
            // The program has gone, or the mount.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => tracing::warn!(%error, "the kernel does not take a reply"),
        }
    }

    fn sync(self: &Arc<Self>, request: &Asked) {
        Opcode::of(request.opcode).into_iter().for_each(|opcode| self.handler.count(opcode));
        let reply = Reply { channel: Arc::clone(self), unique: request.unique };
        match self.handler.must_sync(request.node) {
            Ok(true) => self.syncer.submit(reply),
            done => reply.send(done.map(drop)),
        }
    }

    /// Forgets nodes. If only forgets come here, then waits for the kernel to gather more: else each removed file would
    /// wake a thread. Forgets in one batch share one number.
    fn forget(&self, unique: u64, nodes: &[(u64, u64)]) {
        for &(node, count) in nodes {
            self.handler.count(Opcode::Forget);
            self.handler.forget(fuser::INodeNo(node), count);
        }
        if self.serves_forgets_only && self.gathered.swap(unique, Ordering::Relaxed) != unique {
            thread::sleep(GATHERING);
        }
    }
}

impl State {
    fn must_go(&self) -> bool {
        self.has_ended || self.mode != Mode::Owned
    }
}

impl Reply {
    fn send(self, done: Result<(), Errno>) {
        self.channel.send(&serve::replied(self.unique, done), &[]);
    }
}

/// Sets whether read(2) waits for a request.
fn set_waiting(device: &OwnedFd, waits: bool) -> io::Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(device)?;
    flags.set(OFlags::NONBLOCK, !waits);
    Ok(rustix::fs::fcntl_setfl(device, flags)?)
}
