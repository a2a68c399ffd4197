//! A vdev that is one device.
//!
//! Offset zero is the first byte behind the front labels, and the size ends before the back ones: the layers above
//! cannot touch a label, whatever they ask for.
//!
//! A leaf outlives its device: one that failed and is back, perhaps opened anew, takes the place of the one before
//! ([`Leaf::take_back`]). Whoever writes in between is held by the pool's [`Suspension`].

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use super::{Counters, Suspension, Vdev, suspension::Era, unflushed::Unflushed};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{BODY_AT, BODY_SIZE, DATA_START, usable_size},
        uberblock::UBERBLOCK_SIZE,
    },
    units::{Guid, Txg, VdevId},
};

/// How a device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It answers.
    Online,
    /// It refuses what a commit needs, or has not answered in time.
    Faulted,
    /// It is not there.
    Unavailable,
}

impl Health {
    /// In the words of `pool status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Health::Online => "ONLINE",
            Health::Faulted => "FAULTED",
            Health::Unavailable => "UNAVAIL",
        }
    }

    /// What an error says about the device.
    fn after(source: &io::Error) -> Health {
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
    id: VdevId,
    guid: Guid,
    size: u64,
    name: String,
    device: RwLock<Arc<dyn Device>>,
    counters: Counters,
    health: Mutex<Health>,
    suspension: OnceLock<Arc<Suspension>>,
    unflushed: Unflushed,
    /// Held by whoever flushes because much is unflushed.
    relieving: Mutex<()>,
    /// The newest uberblock that the device has for good: it must not come back with an older one.
    newest: AtomicU64,
}

impl Leaf {
    /// The device that carries the labels of `guid`, as vdev `id`. It gives all that lies between the labels.
    pub fn new(id: VdevId, guid: Guid, device: Arc<dyn Device>) -> Leaf {
        Leaf {
            id,
            guid,
            size: usable_size(device.size()),
            name: device.name().to_owned(),
            device: RwLock::new(device),
            counters: Counters::default(),
            health: Mutex::new(Health::Online),
            suspension: OnceLock::new(),
            unflushed: Unflushed::default(),
            relieving: Mutex::default(),
            newest: AtomicU64::new(0),
        }
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
        Txg(self.newest.load(Relaxed))
    }

    /// Counts an uberblock that was written to the device's labels, or was not.
    pub(crate) fn count_uberblock(&self, failure: Option<&Error>) {
        self.counters.count_write(UBERBLOCK_SIZE, failure.is_none());
        if let Some(error) = failure {
            tracing::error!("an uberblock is missing on a device: {error}");
        }
    }

    /// Notes that the device has the uberblock of `txg` for good.
    pub(crate) fn note_uberblock(&self, txg: Txg) {
        self.newest.store(txg.0, Relaxed);
    }

    /// Notes that the device refuses what a commit needs.
    pub(crate) fn note_fault(&self) {
        *self.health.lock() = Health::Faulted;
    }

    /// Gives the leaf a device in place of its own: `device` was found to be the same one. What the one before may have
    /// lost is written to it first; if that fails, all is as before.
    pub fn take_back(&self, device: Arc<dyn Device>) -> Result<()> {
        self.unflushed.replay(&*device).map_err(|source| self.failed("write", source))?;
        *self.device.write() = device;
        *self.health.lock() = Health::Online;
        Ok(())
    }

    /// Lets go of the device, so that it can be opened anew.
    pub fn let_go(&self) {
        *self.device.write() = Arc::new(Gone { name: self.name.clone(), size: self.device().size() });
        *self.health.lock() = Health::Unavailable;
    }

    /// Where a range of this vdev lies on the device; an error if it leaves the vdev.
    fn place(&self, offset: u64, len: u64) -> io::Result<u64> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(DATA_START + offset),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "access outside of the pool's space")),
        }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> Error {
        Error::Device { device: self.name().to_owned(), action, source }
    }

    /// The pool's suspension, if errors of this device suspend it.
    fn suspension(&self) -> Option<&Suspension> {
        self.suspension.get().map(|suspension| &**suspension).filter(|suspension| suspension.is_enabled())
    }

    fn era(&self) -> Option<Era> {
        self.suspension().map(Suspension::era)
    }

    /// Has `attempt` done on the device that is there, again and again until it succeeds or nobody could see to it.
    fn persist(&self, action: &'static str, mut attempt: impl FnMut(&dyn Device) -> io::Result<()>) -> Result<()> {
        loop {
            let era = self.era();
            let Err(source) = attempt(&*self.device()) else { return Ok(()) };
            let health = Health::after(&source);
            let error = self.failed(action, source);
            match (era, self.suspension()) {
                (Some(era), Some(suspension)) => {
                    *self.health.lock() = health;
                    suspension.hold(era, error)?;
                }
                _ => return Err(error),
            }
        }
    }

    /// Whether it is the device that fails and not one of its sectors: then it does not give its label either.
    fn is_lost(&self, source: &io::Error) -> bool {
        source.kind() == io::ErrorKind::TimedOut
            || Health::after(source) == Health::Unavailable
            || self.device().read_at(BODY_AT, &mut [0; BODY_SIZE]).is_err()
    }

    /// Flushes when much is unflushed, unless another thread does.
    fn relieve(&self) -> Result<()> {
        match self.relieving.try_lock() {
            Some(_relieving) => self.flush(),
            None => Ok(()),
        }
    }
}

/// What is left of a device that was let go.
struct Gone {
    name: String,
    size: u64,
}

impl Device for Gone {
    fn name(&self) -> &str {
        &self.name
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(Errno::NODEV.into())
    }

    fn write_at(&self, _: u64, _: &[u8]) -> io::Result<()> {
        Err(Errno::NODEV.into())
    }

    fn flush(&self) -> io::Result<()> {
        Err(Errno::NODEV.into())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<()> {
        Err(Errno::NODEV.into())
    }
}

impl Vdev for Leaf {
    fn id(&self) -> VdevId {
        self.id
    }

    fn guid(&self) -> Guid {
        self.guid
    }

    fn size(&self) -> u64 {
        self.size
    }

    fn join(&self, suspension: &Arc<Suspension>) {
        // A vdev is in one pool for life.
        let _ = self.suspension.set(suspension.clone());
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let at = self.place(offset, buf.len() as u64).map_err(|source| self.failed("read", source))?;
        loop {
            let era = self.era();
            // A commit is waited for by many, and must not be caught in the system.
            let result = match Suspension::is_patient() {
                true => self.device().read_at(at, buf),
                false => self.device().read_trusting(at, buf),
            };
            self.counters.count_read(buf.len(), result.is_ok());
            let Err(source) = result else { return Ok(()) };
            let health = Health::after(&source);
            let is_lost = era.is_some() && self.is_lost(&source);
            let error = self.failed("read", source);
            let (Some(era), Some(suspension), true) = (era, self.suspension(), is_lost) else { return Err(error) };
            *self.health.lock() = health;
            if !suspension.holds_readers() {
                suspension.suspend(era, &error);
                return Err(error);
            }
            suspension.hold(era, error)?;
        }
    }

    fn write_shared(&self, offset: u64, bytes: Arc<Vec<u8>>) -> Result<()> {
        let at = self.place(offset, bytes.len() as u64).map_err(|source| self.failed("write", source))?;
        let kept = self.suspension().map(|_| self.unflushed.begin(at, &bytes));
        let written = self.persist("write", |device| {
            let result = device.write_shared(at, &bytes);
            self.counters.count_write(bytes.len(), result.is_ok());
            result
        });
        match (kept, written) {
            (None, written) => written,
            (Some(kept), Ok(())) if self.unflushed.done(kept) => self.relieve(),
            (Some(_), Ok(())) => Ok(()),
            (Some(kept), Err(error)) => {
                self.unflushed.forget(kept);
                Err(error)
            }
        }
    }

    fn flush(&self) -> Result<()> {
        self.persist("flush", |device| {
            let kept = self.unflushed.flushing();
            let result = device.flush();
            self.counters.count_flush(result.is_ok());
            if result.is_ok() {
                self.unflushed.flushed(&kept);
            }
            result
        })
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let result = self.place(offset, len).and_then(|at| self.device().discard(at, len));
        result.map_err(|source| self.failed("discard", source))
    }

    fn note_checksum_error(&self, _offset: u64) {
        self.counters.count_checksum_error();
    }

    fn leaves(&self) -> Vec<&Leaf> {
        vec![self]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::{Fault, FaultDevice, MemoryDevice, Operation},
        units::MIB,
        vdev::Counts,
    };

    const SIZE: u64 = 64 * MIB;

    #[test]
    fn labels_are_out_of_reach() {
        let device = Arc::new(MemoryDevice::new("disk", SIZE));
        let leaf = Leaf::new(VdevId(0), Guid(1), device.clone());
        let end = leaf.size();
        leaf.write(0, b"first").unwrap();
        leaf.write(end - 4, b"last").unwrap();
        for (offset, len) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX - DATA_START, 8)] {
            assert!(leaf.write(offset, &vec![9; len]).is_err(), "{len} bytes at {offset}");
            assert!(leaf.read(offset, &mut vec![9; len]).is_err(), "{len} bytes at {offset}");
            assert!(leaf.discard(offset, len as u64).is_err(), "{len} bytes at {offset}");
        }
        let mut labels = vec![1; DATA_START as usize];
        device.read_at(0, &mut labels).unwrap();
        assert!(labels.iter().all(|byte| *byte == 0));
        let mut first = [0; 5];
        device.read_at(DATA_START, &mut first).unwrap();
        assert_eq!(&first, b"first");
    }

    #[test]
    fn requests_bytes_and_errors_are_counted() {
        let device = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("disk", SIZE))));
        let leaf = Leaf::new(VdevId(0), Guid(1), device.clone());
        leaf.write(0, &[1; 100]).unwrap();
        leaf.read(0, &mut [0; 30]).unwrap();
        leaf.flush().unwrap();
        for on in [Operation::Read, Operation::Write, Operation::Flush] {
            device.inject(Fault::failing(on));
        }
        let error = leaf.write(0, &[1; 100]).unwrap_err();
        assert!(error.to_string().starts_with("disk: cannot write: "), "{error}");
        assert!(leaf.flush().is_err());
        assert!(leaf.read(0, &mut [0; 30]).is_err());
        leaf.note_checksum_error(0);
        let expected = Counts {
            reads: 2,
            writes: 2,
            flushes: 2,
            read_bytes: 30,
            written_bytes: 100,
            read_errors: 1,
            write_errors: 2,
            checksum_errors: 1,
        };
        assert_eq!(leaf.counters().snapshot(), expected);
        leaf.counters().clear_errors();
        let cleared = Counts { read_errors: 0, write_errors: 0, checksum_errors: 0, ..expected };
        assert_eq!(leaf.counters().snapshot(), cleared);
    }
}
