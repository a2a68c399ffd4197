//! A device that stops one thread before its n-th read, or before its n-th step.

use std::{
    io,
    sync::Arc,
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use pool::device::{Device, MemoryDevice};

/// After this time, another thread is considered to wait for the stopped thread.
const PATIENCE: Duration = Duration::from_secs(60);

/// The event before which a thread is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// A read of the device.
    Read,
    /// A step of a command that takes many.
    Step,
}

pub(super) struct Stopping {
    memory: MemoryDevice,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The thread to stop, the event, and the number of events left.
    armed: Option<(ThreadId, Before, usize)>,
    is_stopped: bool,
}

impl Stopping {
    pub(super) fn new(size: u64) -> Arc<Stopping> {
        let memory = MemoryDevice::new("disk", size);
        Arc::new(Stopping { memory, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Stops the calling thread before its n-th read or step from now on.
    pub(super) fn arm(&self, before: Before, nth: usize) {
        self.state.lock().armed = Some((thread::current().id(), before, nth));
    }

    /// Waits until the thread is stopped; false if `is_over` reports that the thread has finished.
    pub(super) fn wait(&self, is_over: impl Fn() -> bool) -> bool {
        let mut state = self.state.lock();
        while !state.is_stopped && !is_over() {
            self.changed.wait_for(&mut state, Duration::from_millis(1));
        }
        state.is_stopped
    }

    /// Lets the thread continue.
    pub(super) fn go_on(&self) {
        *self.state.lock() = State::default();
        self.changed.notify_all();
    }

    /// Called by a command before each step, and by the device before each read.
    pub(super) fn pass(&self, now: Before) {
        let mut state = self.state.lock();
        let Some((thread, before, left)) = &mut state.armed else { return };
        if *thread != thread::current().id() || *before != now {
            return;
        }
        *left -= 1;
        if *left > 0 {
            return;
        }
        state.armed = None;
        state.is_stopped = true;
        self.changed.notify_all();
        let end = Instant::now() + PATIENCE;
        while state.is_stopped {
            let is_late = self.changed.wait_until(&mut state, end).timed_out();
            assert!(!is_late, "another command waits for the one that stands still");
        }
    }
}

impl Device for Stopping {
    fn name(&self) -> &str {
        self.memory.name()
    }

    fn size(&self) -> u64 {
        self.memory.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.pass(Before::Read);
        self.memory.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.memory.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.memory.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.memory.discard(offset, len)
    }
}
