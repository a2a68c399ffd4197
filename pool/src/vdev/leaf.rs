//! One device under a vdev: its requests, its error counters, and the writes that it may still lose.
//!
//! Offset zero is the first byte behind the front labels, and the size ends before the back labels: the layers above
//! cannot touch a label at any offset.
//!
//! Each request is tried once. [`Single`](super::Single) and [`Group`](super::Group) above decide whether to retry or
//! to continue without the device.
//!
//! A leaf outlives its device: a failed device that returns, possibly opened anew, replaces the handle of the leaf
//! ([`Leaf::take_back`]).

use std::{
    collections::VecDeque,
    io, slice,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use super::{counters::Counters, suspension::Suspension, unflushed::Unflushed};
use crate::{
    device::{Device, Meter, Pending},
    error::{Error, Result},
    format::{
        label::{BODY_AT, BODY_SIZE, DATA_START, device_size, usable_size},
        uberblock::{UBERBLOCK_SIZE, Uberblock},
        vdev_config::{Behind, LeafConfig, Mark},
    },
    units::{Guid, MIB, Txg},
};

/// How many past states the pool can rewind to, and so how many states a leaf remembers of its rings.
pub(crate) const KEPT_STATES: usize = 4;

/// What becomes of a range whose content is no longer needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clear {
    /// The device is told (TRIM).
    Discard,
    /// A pattern is written.
    Fill,
}

/// The pattern of an initialization: bytes that OpenZFS writes too, so that tools know the space.
static PATTERN: LazyLock<Arc<Vec<u8>>> =
    LazyLock::new(|| Arc::new(0xdead_beef_dead_beee_u64.to_le_bytes().repeat(MIB as usize / 8)));

/// The health of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The device answers.
    Online,
    /// The device failed a request that a commit needs, or missed a deadline.
    Faulted,
    /// The device is missing.
    Unavailable,
    /// The administrator took the device offline.
    Offline,
}

impl Health {
    /// The word in `pool status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Online => "ONLINE",
            Health::Faulted => "FAULTED",
            Health::Unavailable => "UNAVAIL",
            Health::Offline => "OFFLINE",
        }
    }

    /// The health of a device after a failed request.
    pub(crate) fn of(error: &Error) -> Health {
        if let Error::Device { source, .. } = error { Health::after(source) } else { Health::Faulted }
    }

    /// The health of a device after an I/O error.
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
    meter: Arc<Meter>,
    health: Mutex<Health>,
    unflushed: Unflushed,
    /// Held by the thread that flushes because much is unflushed.
    relieving: Mutex<()>,
    /// The newest uberblock on the device, and the newest that may be on the device. A returning device with an
    /// uberblock beyond both was written by another system and is refused.
    marks: Mutex<Behind>,
    /// Why the device is not used, if no error counter or health shows the reason.
    trouble: Mutex<Option<String>>,
    /// The newest uberblock durable on the device. A returning device must not have an older one.
    newest: Mutex<Txg>,
    /// The newest states durable in the device's rings, newest first. Lost rings are rewritten from these.
    states: Mutex<VecDeque<Arc<Uberblock>>>,
}

impl Leaf {
    /// The device that carries the labels of `guid`. The leaf offers all bytes between the labels.
    pub fn new(guid: Guid, device: Arc<dyn Device>) -> Leaf {
        let meter = Arc::default();
        device.count_in(&meter);
        Leaf {
            guid,
            size: AtomicU64::new(usable_size(device.size())),
            name: device.name().to_owned(),
            device: RwLock::new(device),
            counters: Counters::default(),
            meter,
            health: Mutex::new(Health::Online),
            unflushed: Unflushed::default(),
            relieving: Mutex::default(),
            marks: Mutex::default(),
            trouble: Mutex::default(),
            newest: Mutex::default(),
            states: Mutex::default(),
        }
    }

    /// A missing device, as the labels of the remaining devices describe it.
    pub fn absent(config: &LeafConfig) -> Leaf {
        let gone = Arc::new(Gone { name: config.path.clone(), size: device_size(config.size) });
        let leaf = Leaf::new(config.guid, gone);
        leaf.note_health(Health::Unavailable);
        leaf
    }

    /// The permanent GUID of the device.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// Bytes between the labels.
    pub fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// The size of the device, in bytes, if the device has grown.
    ///
    /// # Errors
    /// If the device does not answer.
    pub(crate) fn grown(&self) -> io::Result<Option<u64>> {
        let size = self.device().measure()?;
        Ok((usable_size(size) > self.size()).then_some(size))
    }

    /// Takes up the new size of a grown device, after its labels were written at the new end.
    pub(crate) fn take_size(&self) {
        self.size.fetch_max(usable_size(self.device().size()), Ordering::Relaxed);
    }

    /// Takes up the new size of a shrunk device: only the space between the labels remains. The rest is unused.
    pub(crate) fn give_less(&self) {
        self.size.store(usable_size(self.device().size()), Ordering::Relaxed);
    }

    /// The device's path or name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The device below, for access to its labels.
    pub fn device(&self) -> Arc<dyn Device> {
        self.device.read().clone()
    }

    /// Requests and failures since the pool was opened.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Waits and sizes of requests since the pool was opened.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The current health of the device.
    pub fn health(&self) -> Health {
        *self.health.lock()
    }

    /// The txg of the newest uberblock written and flushed to the device since it was opened.
    pub fn newest_uberblock(&self) -> Txg {
        *self.newest.lock()
    }

    /// The newest uberblock on the device, and the newest that may be on the device.
    pub fn marks(&self) -> Behind {
        *self.marks.lock()
    }

    /// Records the uberblocks found on the device.
    pub(crate) fn found_marks(&self, marks: Behind) {
        *self.marks.lock() = marks;
    }

    /// Records that the device may have this uberblock from now on.
    pub(crate) fn set_mark(&self, mark: Mark) {
        self.marks.lock().may_have = mark;
    }

    /// Why the device is not used, if no error counter or health shows the reason.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().clone()
    }

    /// Records why the device is not used.
    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        *self.trouble.lock() = trouble;
    }

    /// Counts an uberblock write to the device's labels, with its failure if there was one.
    pub(crate) fn count_uberblock(&self, failure: Option<&Error>) {
        if matches!(failure, Some(Error::Device { source, .. }) if LetGo::is(source)) {
            return;
        }
        self.counters.count_write(UBERBLOCK_SIZE, failure.is_none());
        if let Some(error) = failure {
            tracing::error!("an uberblock is missing on a device: {error}");
        }
    }

    /// Records that `state` is durable on `device`. Ignored if the leaf has another device by now: the new device is
    /// yet to be resilvered and needs a newer state before it is complete.
    pub(crate) fn note_written(&self, device: &Arc<dyn Device>, state: &Arc<Uberblock>) {
        let now = self.device.read();
        if Arc::ptr_eq(&now, device) {
            self.note_uberblock(state.txg);
            self.keep_state(state);
        }
    }

    /// Records that the uberblock of `txg` is durable on the device. Until now the device may have had it.
    pub(crate) fn note_uberblock(&self, txg: Txg) {
        *self.newest.lock() = txg;
        let mut marks = self.marks.lock();
        *marks = Behind::at(marks.may_have);
    }

    /// Records that the state is durable in the device's rings.
    pub(crate) fn keep_state(&self, state: &Arc<Uberblock>) {
        let mut states = self.states.lock();
        states.push_front(state.clone());
        states.truncate(KEPT_STATES);
    }

    /// The newest states durable in the device's rings since the device became complete, newest first.
    pub(crate) fn states(&self) -> Vec<Arc<Uberblock>> {
        self.states.lock().iter().cloned().collect()
    }

    /// Records that the device failed a request that a commit needs.
    pub(crate) fn note_fault(&self) {
        self.note_health(Health::Faulted);
    }

    /// Records the health of the device.
    pub(crate) fn note_health(&self, health: Health) {
        *self.health.lock() = health;
    }

    /// Replaces the leaf's device with `device`, identified as the same one. Unflushed writes are replayed to `device`
    /// first; if a replay fails, nothing changes.
    pub fn take_back(&self, device: Arc<dyn Device>) -> Result<()> {
        self.unflushed.replay(&*device).map_err(|source| self.failed("write", source))?;
        device.count_in(&self.meter);
        *self.device.write() = device;
        self.set_trouble(None);
        *self.health.lock() = Health::Online;
        Ok(())
    }

    /// Closes the device, so that it can be opened anew.
    pub fn let_go(&self) {
        *self.device.write() = Arc::new(Gone { name: self.name.clone(), size: self.device().size() });
        let mut health = self.health.lock();
        if *health != Health::Offline {
            *health = Health::Unavailable;
        }
    }

    /// Replaces the leaf's device with `device`, identified as the same one; what the device missed is resilvered.
    pub(super) fn renew(&self, device: Arc<dyn Device>, marks: Behind) {
        self.unflushed.clear();
        self.size.store(usable_size(device.size()), Ordering::Relaxed);
        device.count_in(&self.meter);
        *self.device.write() = device;
        self.found_marks(marks);
        self.set_trouble(None);
        *self.newest.lock() = Txg::ZERO;
        self.states.lock().clear();
        self.note_health(Health::Online);
    }

    /// Drops the unflushed writes: the device gets no more writes, and is resilvered if it returns.
    pub(super) fn forget_unflushed(&self) {
        self.unflushed.clear();
    }

    /// Converts an offset between the labels to an offset on the device; an error if the range leaves the space between
    /// the labels.
    fn place(&self, offset: u64, len: u64) -> io::Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size() => Ok(DATA_START + offset),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "access outside of the pool's space")),
        }
    }

    /// The error for a failed request, with the device's name.
    pub(crate) fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Device { device: self.name().to_owned(), action, source }
    }

    /// Fails if a range leaves the space between the labels.
    pub(super) fn check_range(&self, action: &'static str, offset: u64, len: u64) -> Result<()> {
        self.place(offset, len).map(drop).map_err(|source| self.failed(action, source))
    }

    /// True if the whole device failed and not only a sector: a lost device cannot read its label either.
    pub(crate) fn is_lost(&self, source: &io::Error) -> bool {
        source.kind() == io::ErrorKind::TimedOut
            || Health::after(source) == Health::Unavailable
            || self.device().read_at(BODY_AT, &mut [0; BODY_SIZE]).is_err()
    }

    /// Fills `buf` from `offset` on.
    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let at = self.place(offset, buf.len() as u64)?;
        // Many threads wait for a commit, so its reads must not be stuck in the kernel.
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

    /// Waits until `len` bytes are read.
    pub(super) fn end_read(&self, len: usize, begun: io::Result<Pending<Vec<u8>>>) -> io::Result<Vec<u8>> {
        let result = begun?.wait();
        if has_met_it(&result) {
            self.counters.count_read(len, result.is_ok());
        }
        result
    }

    /// Writes all of `bytes` at `offset`.
    pub(crate) fn write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> io::Result<()> {
        self.write_parts(offset, slice::from_ref(bytes))
    }

    /// Writes all parts, one after another, from `offset` on.
    pub(super) fn write_parts(&self, offset: u64, parts: &[Arc<Vec<u8>>]) -> io::Result<()> {
        let len = parts.iter().map(|part| part.len()).sum();
        let at = self.place(offset, len as u64)?;
        let result = self.device().write_parts(at, parts);
        if has_met_it(&result) {
            self.counters.count_write(len, result.is_ok());
        }
        result
    }

    /// Begins to write all of `bytes` at `offset`. For [`Leaf::end_write`].
    pub(super) fn begin_write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> io::Result<Pending> {
        let at = self.place(offset, bytes.len() as u64)?;
        Ok(self.device().begin_write(at, bytes))
    }

    /// Waits until `len` bytes are written.
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

    /// Waits for a flush that was begun.
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

    /// Clears a range whose content is no longer needed. The pattern is not kept for a replay.
    pub(super) fn clear(&self, offset: u64, len: u64, how: Clear) -> Result<()> {
        match how {
            Clear::Discard => {
                let result = self.place(offset, len).and_then(|at| self.device().discard(at, len));
                result.map_err(|source| self.failed("discard", source))
            }
            Clear::Fill => {
                let whole = PATTERN.len() as u64;
                let piece = |at: u64| match len - at {
                    rest if rest < whole => Arc::new(PATTERN[..rest as usize].to_vec()),
                    _ => PATTERN.clone(),
                };
                let write = |at| self.write(offset + at, &piece(at));
                (0..len).step_by(PATTERN.len()).try_for_each(write).map_err(|source| self.failed("write", source))
            }
        }
    }

    /// Keeps the bytes of a write about to begin, for a replay if the device loses the write; returns a number for
    /// [`Leaf::kept`] and [`Leaf::forget`].
    pub(super) fn keep(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> u64 {
        self.keep_parts(offset, slice::from_ref(bytes))
    }

    /// As [`Leaf::keep`], for a write of parts one after another.
    pub(super) fn keep_parts(&self, offset: u64, parts: &[Arc<Vec<u8>>]) -> u64 {
        self.unflushed.begin(DATA_START + offset, parts)
    }

    /// Records that a kept write was done. Flushes when much is unflushed, unless another thread is already flushing
    /// for the same reason.
    pub(super) fn kept(&self, number: u64, flush: impl FnOnce() -> Result<()>) -> Result<()> {
        if !self.unflushed.done(number) {
            return Ok(());
        }
        match self.relieving.try_lock() {
            Some(_relieving) => flush(),
            None => Ok(()),
        }
    }

    /// Drops a write that has failed for good.
    pub(super) fn forget(&self, number: u64) {
        self.unflushed.forget(number);
    }
}

/// Stands for a device that was closed.
struct Gone {
    name: String,
    size: u64,
}

/// The error of a request that arrives after the device was closed. It is not counted, as the device is not at fault.
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

/// True if a request reached the device.
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
