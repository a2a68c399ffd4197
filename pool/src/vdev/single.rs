//! A vdev that is one device.
//!
//! The vdev has no redundancy: a thread that needs the failed device is held by the pool's [`Suspension`] until the
//! device is back; then the same request is tried again.

use std::{
    io,
    sync::{Arc, OnceLock},
};

use super::{
    interface::Vdev,
    leaf::{Clear, Health, Leaf},
    reads::{Begun, Check, Examined, Found, Sources},
    suspension::{Era, Suspension},
};
use crate::{
    error::Result,
    units::{Guid, VdevId},
};

/// A top-level vdev of one device.
pub struct Single {
    id: VdevId,
    leaf: Arc<Leaf>,
    suspension: OnceLock<Arc<Suspension>>,
}

impl Single {
    /// The device as vdev `id`.
    pub fn new(id: VdevId, leaf: Arc<Leaf>) -> Single {
        Single { id, leaf, suspension: OnceLock::new() }
    }

    /// The only device. The leaf outlives a reopened file or node.
    pub fn leaf(&self) -> &Leaf {
        &self.leaf
    }

    /// The pool's suspension, if errors of this device suspend the pool.
    fn suspension(&self) -> Option<&Suspension> {
        self.suspension.get().map(|suspension| &**suspension).filter(|suspension| suspension.is_enabled())
    }

    fn era(&self) -> Option<Era> {
        self.suspension().map(Suspension::era)
    }

    /// Repeats `attempt` on the current device until it succeeds or the suspension ends in an error.
    fn persist(&self, action: &'static str, mut attempt: impl FnMut() -> io::Result<()>) -> Result<()> {
        loop {
            let era = self.era();
            let Err(source) = attempt() else { return Ok(()) };
            let health = Health::after(&source);
            let error = self.leaf.failed(action, source);
            match (era, self.suspension()) {
                (Some(era), Some(suspension)) => {
                    self.leaf.note_health(health);
                    suspension.hold(era, error)?;
                }
                _ => return Err(error),
            }
        }
    }
}

impl Vdev for Single {
    fn id(&self) -> VdevId {
        self.id
    }

    fn guid(&self) -> Guid {
        self.leaf.guid()
    }

    fn size(&self) -> u64 {
        self.leaf.size()
    }

    fn join(&self, suspension: &Arc<Suspension>) {
        // A vdev stays in one pool for life.
        let _ = self.suspension.set(suspension.clone());
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.leaf.check_range("read", offset, buf.len() as u64)?;
        loop {
            let era = self.era();
            let Err(source) = self.leaf.read(offset, buf) else { return Ok(()) };
            let health = Health::after(&source);
            let is_lost = era.is_some() && self.leaf.is_lost(&source);
            let error = self.leaf.failed("read", source);
            let (Some(era), Some(suspension), true) = (era, self.suspension(), is_lost) else { return Err(error) };
            self.leaf.note_health(health);
            if !suspension.holds_readers() {
                suspension.suspend(era, &error);
                return Err(error);
            }
            suspension.hold(era, error)?;
        }
    }

    fn read_checked(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read(offset, buf)?;
        if is_good(buf) {
            return Ok(Found::Good);
        }
        self.leaf.counters().count_checksum_error();
        Ok(Found::Bad)
    }

    fn read_simply(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.read(offset, buf)?;
        Ok(if is_good(buf) { Found::Good } else { Found::Bad })
    }

    fn begin(self: Arc<Self>, offset: u64, len: usize, _: Sources) -> Begun {
        let begun = self.leaf.begin_read(offset, len);
        Box::new(move |is_good| self.leaf.end_read(len, begun).ok().filter(|bytes| is_good(bytes)))
    }

    fn examine(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined {
        let mut bytes = vec![0; len];
        let read = self.read(offset, &mut bytes);
        Examined::of_one(self.guid(), read.map(|()| bytes), is_good)
    }

    fn repair(&self, _: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
        self.write_shared(offset, good.clone())
    }

    fn write_shared(&self, offset: u64, bytes: Arc<Vec<u8>>) -> Result<()> {
        self.write_parts(offset, &[bytes])
    }

    fn write_parts(&self, offset: u64, parts: &[Arc<Vec<u8>>]) -> Result<()> {
        let len = parts.iter().map(|part| part.len() as u64).sum();
        self.leaf.check_range("write", offset, len)?;
        let kept = self.suspension().map(|_| self.leaf.keep_parts(offset, parts));
        let written = self.persist("write", || self.leaf.write_parts(offset, parts));
        match (kept, written) {
            (None, written) => written,
            (Some(kept), Ok(())) => self.leaf.kept(kept, || self.flush()),
            (Some(kept), Err(error)) => {
                self.leaf.forget(kept);
                Err(error)
            }
        }
    }

    fn flush(&self) -> Result<()> {
        self.persist("flush", || self.leaf.flush())
    }

    fn clear(&self, offset: u64, len: u64, how: Clear) -> Result<()> {
        self.leaf.clear(offset, len, how)
    }

    fn note_checksum_error(&self, _: Guid) {
        self.leaf.counters().count_checksum_error();
    }

    fn leaves(&self) -> Vec<Arc<Leaf>> {
        vec![self.leaf.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::{Device, Fault, FaultDevice, MemoryDevice, Operation},
        format::label::DATA_START,
        units::MIB,
        vdev::Counts,
    };

    const SIZE: u64 = 64 * MIB;

    fn single(device: Arc<dyn Device>) -> Single {
        Single::new(VdevId(0), Arc::new(Leaf::new(Guid(1), device)))
    }

    #[test]
    fn labels_are_out_of_reach() {
        let device = Arc::new(MemoryDevice::new("disk", SIZE));
        let vdev = single(device.clone());
        let end = vdev.size();
        vdev.write(0, b"first").unwrap();
        vdev.write(end - 4, b"last").unwrap();
        for (offset, len) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (u64::MAX - DATA_START, 8)] {
            assert!(vdev.write(offset, &vec![9; len]).is_err(), "{len} bytes at {offset}");
            assert!(vdev.read(offset, &mut vec![9; len]).is_err(), "{len} bytes at {offset}");
            assert!(vdev.clear(offset, len as u64, Clear::Discard).is_err(), "{len} bytes at {offset}");
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
        let vdev = single(device.clone());
        vdev.write(0, &[1; 100]).unwrap();
        vdev.read(0, &mut [0; 30]).unwrap();
        vdev.flush().unwrap();
        for on in [Operation::Read, Operation::Write, Operation::Flush] {
            device.inject(Fault::failing(on));
        }
        let error = vdev.write(0, &[1; 100]).unwrap_err();
        assert!(error.to_string().starts_with("disk: cannot write: "), "{error}");
        assert!(vdev.flush().is_err());
        assert!(vdev.read(0, &mut [0; 30]).is_err());
        vdev.note_checksum_error(Guid(1));
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
        assert_eq!(vdev.leaf().counters().snapshot(), expected);
        vdev.leaf().counters().clear_errors();
        let cleared = Counts { read_errors: 0, write_errors: 0, checksum_errors: 0, ..expected };
        assert_eq!(vdev.leaf().counters().snapshot(), cleared);
    }

    #[test]
    fn much_that_is_not_flushed_is_flushed_by_who_writes_more() {
        let vdev = single(Arc::new(MemoryDevice::new("disk", SIZE)));
        let suspension = Arc::new(Suspension::default());
        suspension.enable();
        vdev.join(&suspension);
        let bytes = Arc::new(vec![7; MIB as usize]);
        let flushes = |writes: u64| {
            (0..writes).for_each(|n| vdev.write_shared(n * MIB, bytes.clone()).unwrap());
            vdev.leaf().counters().snapshot().flushes
        };
        assert_eq!([flushes(32), flushes(1), flushes(32), flushes(1)], [0, 1, 1, 2]);
    }
}
