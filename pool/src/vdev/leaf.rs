//! One device under a vdev: what it is asked, how often it fails, and what it may still lose.
//!
//! Offset zero is the first byte behind the front labels, and the size ends before the back ones: the layers above
//! cannot touch a label, whatever they ask for.
//!
//! Each request is tried once. Whether one that failed is tried again, or done without, is decided above: by
//! [`Single`](super::Single) and [`Mirror`](super::Mirror).
//!
//! A leaf outlives its device: one that failed and is back, perhaps opened anew, takes the place of the one before
//! ([`Leaf::take_back`]).

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use super::{Counters, Suspension, unflushed::Unflushed};
use crate::{
    device::{Device, Pending},
    error::{Error, Result},
    format::{
        label::{BODY_AT, BODY_SIZE, DATA_START, device_size, usable_size},
        uberblock::{UBERBLOCK_SIZE, Uberblock},
        vdev_config::{Behind, LeafConfig, Mark},
    },
    units::{Guid, Txg},
};

/// As many states as one may go back to. So many of its rings are known of a device that has them.
pub(crate) const KEPT_STATES: usize = 4;

/// How a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    Online,
    /// It refuses what a commit needs, or has not answered in time.
    Faulted,
    /// It is not there.
    Unavailable,
    /// The operator has put it out of use.
    Offline,
}

impl Health {
    /// In the words of `pool status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Online => "ONLINE",
            Health::Faulted => "FAULTED",
            Health::Unavailable => "UNAVAIL",
            Health::Offline => "OFFLINE",
        }
    }

    /// What a request that failed says about the device.
    pub(crate) fn of(error: &Error) -> Health {
        if let Error::Device { source, .. } = error { Health::after(source) } else { Health::Faulted }
    }

    /// What an error says about the device.
    pub(crate) fn after(source: &io::Error) -> Health {
        if LetGo::is(source) {
            return Health::Unavailable;
        }
        let errno = source.raw_os_error().map(Errno::from_raw_os_error);
        match errno {
            Some(
                Errno::NODEV
                | Errno::NXIO
                | Errno::NOTCONN
                | Errno::CONNABORTED
                | Errno::CANCELED
                | Errno::STALE
                | Errno::NOENT,
            ) => Health::Unavailable,
            _ => Health::Faulted,
        }
    }
}

/// One device under a pool.
pub struct Leaf {
    guid: Guid,
    size: AtomicU64,
    name: String,
    device: RwLock<Arc<dyn Device>>,
    counters: Counters,
    health: Mutex<Health>,
    unflushed: Unflushed,
    /// Held by whoever flushes because much is unflushed.
    relieving: Mutex<()>,
    /// The newest uberblock that the device has, and the one that it may have: it must not come back with somebody else's.
    marks: Mutex<Behind>,
    /// Why it is not used, if that does not show otherwise.
    trouble: Mutex<Option<String>>,
    /// The newest uberblock that the device has for good: it must not come back with an older one.
    newest: Mutex<Txg>,
    /// The newest states that it has had in its rings for good, newest first: should its rings be lost, these belong there.
    states: Mutex<VecDeque<Arc<Uberblock>>>,
}

impl Leaf {
    /// The device that carries the labels of `guid`. It gives all that lies between the labels.
    pub fn new(guid: Guid, device: Arc<dyn Device>) -> Leaf {
        Leaf {
            guid,
            size: AtomicU64::new(usable_size(device.size())),
            name: device.name().to_owned(),
            device: RwLock::new(device),
            counters: Counters::default(),
            health: Mutex::new(Health::Online),
            unflushed: Unflushed::default(),
            relieving: Mutex::default(),
            marks: Mutex::default(),
            trouble: Mutex::default(),
            newest: Mutex::default(),
            states: Mutex::default(),
        }
    }

    /// A device that is not there, as the labels of the others describe it.
    pub fn absent(config: &LeafConfig) -> Leaf {
        let gone = Arc::new(Gone { name: config.path.clone(), size: device_size(config.size) });
        let leaf = Leaf::new(config.guid, gone);
        leaf.note_health(Health::Unavailable);
        leaf
    }

    /// Its name for life.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// What it gives to a vdev, in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// The size of the device, in bytes, if it is found to give more than it did.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) fn grown(&self) -> io::Result<Option<u64>> {
        let size = self.device().measure()?;
        Ok((usable_size(size) > self.size()).then_some(size))
    }

    /// Has a device that is larger by now give what it has. Its labels are where it ends.
    pub(crate) fn take_size(&self) {
        self.size.fetch_max(usable_size(self.device().size()), Ordering::Relaxed);
    }

    /// Has a device that was made smaller give no more than what lies between its labels. Nobody uses the rest.
    pub(crate) fn give_less(&self) {
        self.size.store(usable_size(self.device().size()), Ordering::Relaxed);
    }

    /// The device's path or name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device below, for its labels.
    pub fn device(&self) -> Arc<dyn Device> {
        self.device.read().clone()
    }

    /// What it was asked, and how often it failed.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// How the device does.
    pub fn health(&self) -> Health {
        *self.health.lock()
    }

    /// The transaction group of the newest uberblock that the device got and flushed since it was opened.
    pub fn newest_uberblock(&self) -> Txg {
        *self.newest.lock()
    }

    /// The newest uberblock that the device has, and the one that it may have.
    pub fn marks(&self) -> Behind {
        *self.marks.lock()
    }

    /// Notes how far the device has come, as it was found.
    pub(crate) fn found_marks(&self, marks: Behind) {
        *self.marks.lock() = marks;
    }

    /// Notes that the device may have this uberblock from now on.
    pub(crate) fn set_mark(&self, mark: Mark) {
        self.marks.lock().may_have = mark;
    }

    /// Why it is not used, if that does not show otherwise.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Notes why it is not used.
    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock() = trouble;
    }

    /// Counts an uberblock that was written to the device's labels, or was not.
    pub(crate) fn count_uberblock(&self, failure: Option<&Error>) {
        if matches!(failure, Some(Error::Device { source, .. }) if LetGo::is(source)) {
            return;
        }
        self.counters.count_write(UBERBLOCK_SIZE, failure.is_none());
        if let Some(error) = failure {
            tracing::error!("an uberblock is missing on a device: {error}");
        }
    }

    /// Notes that `device`, which the leaf had when this was written to it, has the state for good. If the leaf has another
    /// one by now, that was found to be the same and is to be filled: it has to get a newer state before it lacks nothing.
    pub(crate) fn note_written(&self, device: &Arc<dyn Device>, state: &Arc<Uberblock>) {
        let now = self.device.read();
        if Arc::ptr_eq(&now, device) {
            self.note_uberblock(state.txg);
            self.keep_state(state);
        }
    }

    /// Notes that the device has the uberblock of `txg` for good, which it may have had until now.
    pub(crate) fn note_uberblock(&self, txg: Txg) {
        *self.newest.lock() = txg;
        let mut marks = self.marks.lock();
        *marks = Behind::at(marks.may_have);
    }

    /// Notes that the device has this state in its rings for good.
    pub(crate) fn keep_state(&self, state: &Arc<Uberblock>) {
        let mut states = self.states.lock();
        states.push_front(state.clone());
        states.truncate(KEPT_STATES);
    }

    /// The newest states that the device has had in its rings for good since it lacks nothing, newest first.
    pub(crate) fn states(&self) -> Vec<Arc<Uberblock>> {
        self.states.lock().iter().cloned().collect()
    }

    /// Notes that the device refuses what a commit needs.
    pub(crate) fn note_fault(&self) {
        self.note_health(Health::Faulted);
    }

    /// Notes how the device does.
    pub(crate) fn note_health(&self, health: Health) {
        *self.health.lock() = health;
    }

    /// Gives the leaf a device in place of its own: `device` was found to be the same one. What the one before may have
    /// lost is written to it first; if that fails, all is as before.
    pub fn take_back(&self, device: Arc<dyn Device>) -> Result<()> {
        self.unflushed.replay(&*device).map_err(|source| self.failed("write", source))?;
        *self.device.write() = device;
        self.set_trouble(None);
        *self.health.lock() = Health::Online;
        Ok(())
    }

    /// Lets go of the device, so that it can be opened anew.
    pub fn let_go(&self) {
        *self.device.write() = Arc::new(Gone { name: self.name.clone(), size: self.device().size() });
        let mut health = self.health.lock();
        if *health != Health::Offline {
            *health = Health::Unavailable;
        }
    }

    /// Gives the leaf a device that was found to be the same one and is to be filled with what it has missed.
    pub(super) fn renew(&self, device: Arc<dyn Device>, marks: Behind) {
        self.unflushed.clear();
        self.size.store(usable_size(device.size()), Ordering::Relaxed);
        *self.device.write() = device;
        self.found_marks(marks);
        self.set_trouble(None);
        *self.newest.lock() = Txg::ZERO;
        self.states.lock().clear();
        self.note_health(Health::Online);
    }

    /// Forgets what the device may have lost: it gets nothing more, and is filled if it comes back.
    pub(super) fn forget_unflushed(&self) {
        self.unflushed.clear();
    }

    /// Where a range between the labels lies on the device; an error if it leaves them.
    fn place(&self, offset: u64, len: u64) -> io::Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(DATA_START + offset),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "access outside of the pool's space")),
        }
    }

    /// The error that says what the device refused.
    pub(crate) fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Device { device: self.name().to_owned(), action, source }
    }

    /// Fails if a range leaves what lies between the labels.
    pub(super) fn check_range(&self, action: &'static str, offset: u64, len: u64) -> Result<()> {
        self.place(offset, len).map(drop).map_err(|source| self.failed(action, source))
    }

    /// Whether it is the device that fails and not one of its sectors: then it does not give its label either.
    pub(crate) fn is_lost(&self, source: &io::Error) -> bool {
        source.kind() == io::ErrorKind::TimedOut
            || Health::after(source) == Health::Unavailable
            || self.device().read_at(BODY_AT, &mut [0; BODY_SIZE]).is_err()
    }

    /// Fills `buf` from `offset` on.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = self.place(offset, buf.len() as u64)?;
        // A commit is waited for by many, and must not be caught in the system.
        let result = match Suspension::is_patient() {
            true => self.device().read_at(at, buf),
            false => self.device().read_trusting(at, buf),
        };
        if has_met_it(&result) {
            self.counters.count_read(buf.len(), result.is_ok());
        }
        result
    }

    /// Begins to read `len` bytes from `offset` on. For [`Leaf::end_read`].
    pub(super) fn begin_read(&self, offset: u64, len: usize) -> io::Result<Pending<Vec<u8>>> {
        let at = self.place(offset, len as u64)?;
        Ok(self.device().begin_read(at, len))
    }

    /// Waits until so many bytes are read.
    pub(super) fn end_read(&self, len: usize, begun: io::Result<Pending<Vec<u8>>>) -> io::Result<Vec<u8>> {
        let result = begun?.wait();
        if has_met_it(&result) {
            self.counters.count_read(len, result.is_ok());
        }
        result
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> io::Result<()> {
        let at = self.place(offset, bytes.len() as u64)?;
        let result = self.device().write_shared(at, bytes);
        if has_met_it(&result) {
            self.counters.count_write(bytes.len(), result.is_ok());
        }
        result
    }

    /// Begins to write all of `bytes` at `offset`. For [`Leaf::end_write`].
    pub(super) fn begin_write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> io::Result<Pending> {
        let at = self.place(offset, bytes.len() as u64)?;
        Ok(self.device().begin_write(at, bytes))
    }

    /// Waits until so many bytes are written.
    pub(super) fn end_write(&self, len: usize, begun: io::Result<Pending>) -> io::Result<()> {
        let result = begun?.wait();
        if has_met_it(&result) {
            self.counters.count_write(len, result.is_ok());
        }
        result
    }

    /// Returns when every write that returned before is durable.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.end_flush(self.begin_flush())
    }

    /// Begins to flush. For [`Leaf::end_flush`].
    pub(super) fn begin_flush(&self) -> (Vec<u64>, Pending) {
        (self.unflushed.flushing(), self.device().begin_flush())
    }

    /// Returns when every write that returned before the flush began is durable.
    pub(super) fn end_flush(&self, (kept, begun): (Vec<u64>, Pending)) -> io::Result<()> {
        let result = begun.wait();
        if has_met_it(&result) {
            self.counters.count_flush(result.is_ok());
        }
        if result.is_ok() {
            self.unflushed.flushed(&kept);
        }
        result
    }

    /// Says that the content of a range is no longer needed.
    pub(super) fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let result = self.place(offset, len).and_then(|at| self.device().discard(at, len));
        result.map_err(|source| self.failed("discard", source))
    }

    /// Keeps a write that is about to begin, to be written again if the device loses it; returns its number.
    pub(super) fn keep(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> u64 {
        self.unflushed.begin(DATA_START + offset, bytes)
    }

    /// Notes that a write that is kept was done, and flushes when much is unflushed, unless another thread does.
    pub(super) fn kept(&self, number: u64, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.unflushed.done(number) {
            return Ok(());
        }
        match self.relieving.try_lock() {
            Some(_relieving) => flush(),
            None => Ok(()),
        }
    }

    /// Forgets a write that has failed for good.
    pub(super) fn forget(&self, number: u64) {
        self.unflushed.forget(number);
    }
}

/// What is left of a device that was let go.
struct Gone {
    name: String,
    size: u64,
}

/// What a request gets that comes after the device was let go. It says nothing against the device, so it is not counted.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("No such device")]
struct LetGo;

impl LetGo {
    fn is(source: &io::Error) -> bool {
        source.get_ref().is_some_and(|inner| inner.is::<LetGo>())
    }
}

impl From<LetGo> for io::Error {
    fn from(gone: LetGo) -> io::Error {
        io::Error::new(io::ErrorKind::NotConnected, gone)
    }
}

/// Whether a request has met the device.
fn has_met_it<T>(result: &io::Result<T>) -> bool {
    !result.as_ref().is_err_and(LetGo::is)
}

impl Device for Gone {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(LetGo.into())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(LetGo.into())
    }

    fn flush(&self) -> io::Result<()> {
        Err(LetGo.into())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(LetGo.into())
    }
}
