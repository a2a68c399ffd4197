//! Planted defects, which the judge must find.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use pool::{
    device::{Device, RecordingDevice},
    format::label::{DATA_START, usable_size},
};

/// A defect for a whole life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plant {
    /// Every second flush returns without effect.
    LazyFlush,
    /// An fsync promises, but writes nothing.
    EmptyFsync,
    /// Lost unflushed writes of a returning device are not written again.
    ForgetfulClear,
    /// Data has no checksums, so damage is not noticed.
    NoChecksums,
    /// One device of many lacks some rows: each fifth write to it is lost.
    BarrenRows,
    /// Devices that join a pool of many lack some of the resilvered blocks.
    SkippedBlocks,
    /// Devices discard more than requested.
    GreedyTrim,
    /// During a repair, every flush of a device but the first returns without effect.
    LazyRepair,
}

/// The device, wrapped if it gets the defect. `is_new`: it joins an existing pool.
pub(super) fn planted(device: Arc<RecordingDevice>, plant: Option<Plant>, is_new: bool) -> Arc<dyn Device> {
    let is_barren = plant == Some(Plant::BarrenRows) && device.name() == "disk0";
    if is_barren || plant == Some(Plant::SkippedBlocks) && is_new {
        return Arc::new(LossyDevice { inner: device, writes: AtomicU64::new(0) });
    }
    match plant {
        Some(Plant::LazyFlush) => Arc::new(LazyDevice { inner: device, flushes: AtomicU64::new(0), every: 2 }),
        Some(Plant::GreedyTrim) => Arc::new(GreedyDevice { inner: device }),
        _ => device,
    }
}

/// The device of a pool under repair, wrapped if it gets the defect.
pub(crate) fn planted_in_repair(device: Arc<RecordingDevice>, plant: Option<Plant>) -> Arc<dyn Device> {
    match plant {
        Some(Plant::LazyRepair) => Arc::new(LazyDevice { inner: device, flushes: AtomicU64::new(0), every: u64::MAX }),
        _ => device,
    }
}

/// A device of which only every `every`th flush has an effect.
struct LazyDevice {
    inner: Arc<RecordingDevice>,
    flushes: AtomicU64,
    every: u64,
}

impl Device for LazyDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn measure(&self) -> io::Result<u64> {
        self.inner.measure()
    }

    fn resize(&self, size: u64) {
        self.inner.resize(size);
    }

    fn truncate(&self, size: u64) -> io::Result<bool> {
        self.inner.truncate(size)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        match self.flushes.fetch_add(1, Ordering::Relaxed) % self.every {
            0 => self.inner.flush(),
            _ => Ok(()),
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}

/// A device that loses each fifth write between its labels.
struct LossyDevice {
    inner: Arc<RecordingDevice>,
    writes: AtomicU64,
}

impl Device for LossyDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn measure(&self) -> io::Result<u64> {
        self.inner.measure()
    }

    fn resize(&self, size: u64) {
        self.inner.resize(size);
    }

    fn truncate(&self, size: u64) -> io::Result<bool> {
        self.inner.truncate(size)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let data = DATA_START..DATA_START + usable_size(self.size());
        if data.contains(&offset) && self.writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(5) {
            return Ok(());
        }
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}

/// How many bytes too many are discarded.
const GREED: u64 = 128 << 10;

/// A device that also discards some bytes before the requested range.
struct GreedyDevice {
    inner: Arc<RecordingDevice>,
}

impl Device for GreedyDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn measure(&self) -> io::Result<u64> {
        self.inner.measure()
    }

    fn resize(&self, size: u64) {
        self.inner.resize(size);
    }

    fn truncate(&self, size: u64) -> io::Result<bool> {
        self.inner.truncate(size)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        let begin = offset.saturating_sub(GREED).max(DATA_START);
        self.inner.discard(begin, offset + len - begin)
    }
}
