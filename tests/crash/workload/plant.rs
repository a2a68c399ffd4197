//! What can be wrong on purpose, so that it is seen that the judge would find it.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use pool::device::{Device, RecordingDevice};

/// A defect that a life is lived with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// Every second flush returns without having done anything.
    LazyFlush,
    /// An fsync promises, and nothing is written.
    EmptyFsync,
    /// A device that was away is not told again what it may have lost.
    ForgetfulClear,
    /// Data have no checksums, so damage is not seen.
    NoChecksums,
}

/// The device, or one that has the defect.
pub(super) fn planted(device: RecordingDevice, plant: Option<Plant>) -> Arc<dyn Device> {
    match plant {
        Some(Plant::LazyFlush) => Arc::new(LazyDevice { inner: device, flushes: AtomicU64::new(0) }),
        _ => Arc::new(device),
    }
}

/// A device that flushes every second time.
struct LazyDevice {
    inner: RecordingDevice,
    flushes: AtomicU64,
}

impl Device for LazyDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        match self.flushes.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => self.inner.flush(),
            _ => Ok(()),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}
