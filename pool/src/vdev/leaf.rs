//! A vdev that is one device.
//!
//! Offset zero is the first byte behind the front labels, and the size ends before the back ones: the layers above
//! cannot touch a label, whatever they ask for.

use std::{io, sync::Arc};

use super::{Counters, Vdev};
use crate::{
    device::Device,
    error::{Error, Result},
    format::label::{DATA_START, usable_size},
    units::{Guid, VdevId},
};

/// One device under a pool.
pub struct Leaf {
    id: VdevId,
    guid: Guid,
    size: u64,
    device: Arc<dyn Device>,
    counters: Counters,
}

impl Leaf {
    /// The device that carries the labels of `guid`, as vdev `id`. It gives all that lies between the labels.
    pub fn new(id: VdevId, guid: Guid, device: Arc<dyn Device>) -> Leaf {
        let size = usable_size(device.size());
        Leaf { id, guid, size, device, counters: Counters::default() }
    }

    /// The device's path or name.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// The device below, for its labels.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What it was asked, and how often it failed.
    pub fn counters(&self) -> &Counters {
        &self.counters
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

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let result = self.place(offset, buf.len() as u64).and_then(|at| self.device.read_at(at, buf));
        self.counters.count_read(buf.len(), result.is_ok());
        result.map_err(|source| self.failed("read", source))
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let result = self.place(offset, bytes.len() as u64).and_then(|at| self.device.write_at(at, bytes));
        self.counters.count_write(bytes.len(), result.is_ok());
        result.map_err(|source| self.failed("write", source))
    }

    fn flush(&self) -> Result<()> {
        let result = self.device.flush();
        self.counters.count_flush(result.is_ok());
        result.map_err(|source| self.failed("flush", source))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let result = self.place(offset, len).and_then(|at| self.device.discard(at, len));
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
