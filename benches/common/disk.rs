//! A disk with realistic times: one head, which seeks at a cost and reads and writes at a rate.
//!
//! The content is in memory. A request takes the time of its bytes at the disk's rate, plus a seek if it does not begin
//! at the end of the previous request. A short way forward passes under the head without a seek, if that is faster.
//! Reads and writes cost the same, a flush nothing. A free head takes the request that it can reach first, as disks
//! with command queueing do. Until a disk is [set going](Disk::set_going) requests take no time.
//!
//! No thread moves the head: a thread that waits for a request computes the head's work up to now, from the arrival
//! times of the requests.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use pool::device::{Device, MemoryDevice, Pending};

/// The speed of a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    /// Bytes a second.
    pub(crate) rate: f64,
    /// The cost of a seek.
    pub(crate) seek: Duration,
}

/// A disk.
pub(crate) struct Disk {
    memory: MemoryDevice,
    is_going: AtomicBool,
    head: Arc<Mutex<Head>>,
    seeks: Arc<AtomicU64>,
}

struct Head {
    speed: Speed,
    at: u64,
    /// When the head finishes the requests it has taken.
    idle_at: Instant,
    /// The requests not yet taken, by number.
    waiting: BTreeMap<u64, Request>,
    /// The completion times of requests taken and not yet awaited.
    done: BTreeMap<u64, Instant>,
    next: u64,
}

#[derive(Clone, Copy)]
struct Request {
    came: Instant,
    offset: u64,
    len: u64,
}

impl Head {
    fn bytes(&self, len: u64) -> Duration {
        Duration::from_secs_f64(len as f64 / self.speed.rate)
    }

    /// The time to reach a request, and whether it needs a seek.
    fn way(&self, request: &Request) -> (Duration, bool) {
        match request.offset.checked_sub(self.at).map(|gap| self.bytes(gap)) {
            Some(way) if way <= self.speed.seek => (way, false),
            _ => (self.speed.seek, true),
        }
    }

    /// Takes the next request, if the head is free by `now`.
    fn turn(&mut self, now: Instant, seeks: &AtomicU64) -> bool {
        let Some(first) = self.waiting.values().map(|request| request.came).min() else { return false };
        let start = self.idle_at.max(first);
        if start > now {
            return false;
        }
        let there = self.waiting.iter().filter(|(_, request)| request.came <= start);
        let (&number, &request) = there.min_by_key(|(_, request)| self.way(request).0).expect("the first one is there");
        let (way, is_sought) = self.way(&request);
        seeks.fetch_add(is_sought.into(), Relaxed);
        self.waiting.remove(&number);
        self.idle_at = start + way + self.bytes(request.len);
        self.at = request.offset + request.len;
        self.done.insert(number, self.idle_at);
        true
    }
}

/// A submitted request.
struct Ticket {
    head: Arc<Mutex<Head>>,
    seeks: Arc<AtomicU64>,
    number: u64,
}

impl Ticket {
    /// Returns when the request is done.
    fn wait(self) {
        loop {
            let until = {
                let mut head = self.head.lock();
                while head.turn(Instant::now(), &self.seeks) {}
                match head.done.remove(&self.number) {
                    Some(done) => {
                        drop(head);
                        thread::sleep(done.saturating_duration_since(Instant::now()));
                        return;
                    }
                    None => head.idle_at,
                }
            };
            thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

impl Disk {
    pub(crate) fn new(name: impl Into<String>, size: u64, speed: Speed) -> Disk {
        let (waiting, done) = (BTreeMap::new(), BTreeMap::new());
        let head = Head { speed, at: 0, idle_at: Instant::now(), waiting, done, next: 0 };
        Disk {
            memory: MemoryDevice::new(name, size),
            is_going: AtomicBool::new(false),
            head: Arc::new(Mutex::new(head)),
            seeks: Arc::default(),
        }
    }

    /// Sets whether requests take time from now on.
    pub(crate) fn set_going(&self, is_going: bool) {
        self.is_going.store(is_going, Relaxed);
    }

    /// The number of seeks since the last call.
    pub(crate) fn take_seeks(&self) -> u64 {
        self.seeks.swap(0, Relaxed)
    }

    /// Submits a request to the head.
    fn ask(&self, offset: u64, len: usize) -> Option<Ticket> {
        if !self.is_going.load(Relaxed) {
            return None;
        }
        let mut head = self.head.lock();
        let number = head.next;
        head.next += 1;
        head.waiting.insert(number, Request { came: Instant::now(), offset, len: len as u64 });
        drop(head);
        Some(Ticket { head: self.head.clone(), seeks: self.seeks.clone(), number })
    }

    fn take_time(&self, offset: u64, len: usize) {
        if let Some(ticket) = self.ask(offset, len) {
            ticket.wait();
        }
    }
}

/// Waits for a request whose outcome is known.
fn begun<T: Send + 'static>(ticket: Option<Ticket>, outcome: io::Result<T>) -> Pending<T> {
    match ticket {
        Some(ticket) => Pending::Begun(Box::new(move || {
            ticket.wait();
            outcome
        })),
        None => Pending::Done(outcome),
    }
}

impl Device for Disk {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.take_time(offset, buf.len());
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.take_time(offset, bytes.len());
        self.memory.write_at(offset, bytes)
    }

    fn begin_read(&self, offset: u64, len: usize) -> Pending<Vec<u8>> {
        let mut bytes = vec![0; len];
        let read = self.memory.read_at(offset, &mut bytes).map(|()| bytes);
        begun(self.ask(offset, len), read)
    }

    fn begin_write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Pending {
        begun(self.ask(offset, bytes.len()), self.memory.write_at(offset, bytes))
    }

    /// A flush is only called after its writes have returned, so there is nothing to wait for.
    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.discard(offset, len)
    }
}
