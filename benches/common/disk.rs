//! A disk that takes its time: it has one head, which moves at a cost and reads and writes at a rate.
//!
//! Its content is in memory. Requests are carried out one after the other in the order in which they come; each takes what
//! its bytes take at the disk's rate, and a seek more if it does not begin where the one before ended. A short way forward
//! is not sought, but let pass under the head, if that is faster. Reads and writes cost the same, a flush nothing.
//! Until a disk is [set going](Disk::set_going) it takes no time at all.

use std::{
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

/// How fast a disk is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Speed {
    /// Bytes a second.
    pub(crate) rate: f64,
    /// What moving the head costs.
    pub(crate) seek: Duration,
}

/// A disk.
pub(crate) struct Disk {
    memory: MemoryDevice,
    speed: Speed,
    is_going: AtomicBool,
    head: Mutex<Head>,
    seeks: AtomicU64,
}

struct Head {
    at: u64,
    /// When it has done what it was given.
    idle_at: Instant,
}

impl Disk {
    pub(crate) fn new(name: impl Into<String>, size: u64, speed: Speed) -> Disk {
        let head = Mutex::new(Head { at: 0, idle_at: Instant::now() });
        let (memory, seeks) = (MemoryDevice::new(name, size), AtomicU64::new(0));
        Disk { memory, speed, is_going: AtomicBool::new(false), head, seeks }
    }

    /// From now on its requests take time, or none.
    pub(crate) fn set_going(&self, is_going: bool) {
        self.is_going.store(is_going, Relaxed);
    }

    /// How often its head has moved since the last time this was asked.
    pub(crate) fn take_seeks(&self) -> u64 {
        self.seeks.swap(0, Relaxed)
    }

    /// Gives the head a request; when it will be done.
    fn queue(&self, offset: u64, len: usize) -> Option<Instant> {
        if !self.is_going.load(Relaxed) {
            return None;
        }
        let bytes = |len: u64| Duration::from_secs_f64(len as f64 / self.speed.rate);
        let mut head = self.head.lock();
        let way = match offset.checked_sub(head.at).map(bytes) {
            Some(way) if way <= self.speed.seek => way,
            _ => {
                self.seeks.fetch_add(1, Relaxed);
                self.speed.seek
            }
        };
        head.idle_at = Instant::now().max(head.idle_at) + way + bytes(len as u64);
        head.at = offset + len as u64;
        Some(head.idle_at)
    }
}

fn wait_until(done: Option<Instant>) {
    if let Some(done) = done {
        thread::sleep(done.saturating_duration_since(Instant::now()));
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
        wait_until(self.queue(offset, buf.len()));
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        wait_until(self.queue(offset, bytes.len()));
        self.memory.write_at(offset, bytes)
    }

    fn begin_read(&self, offset: u64, len: usize) -> Pending<Vec<u8>> {
        let done = self.queue(offset, len);
        let mut bytes = vec![0; len];
        let read = self.memory.read_at(offset, &mut bytes).map(|()| bytes);
        Pending::Begun(Box::new(move || {
            wait_until(done);
            read
        }))
    }

    fn begin_write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Pending {
        let done = self.queue(offset, bytes.len());
        let written = self.memory.write_at(offset, bytes);
        Pending::Begun(Box::new(move || {
            wait_until(done);
            written
        }))
    }

    fn flush(&self) -> io::Result<()> {
        wait_until(self.queue_end());
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.discard(offset, len)
    }
}

impl Disk {
    /// When the last request is done.
    fn queue_end(&self) -> Option<Instant> {
        self.is_going.load(Relaxed).then(|| self.head.lock().idle_at)
    }
}
