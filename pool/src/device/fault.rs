//! A device that fails on demand: errors, corruption, silence, disappearance.
//!
//! Writes stay in a cache until flushed, and the cache can be lost ([`FaultDevice::lose_cache`]): like a disk that lost
//! power, or a kernel that dropped pages it could not write.
//!
//! The plan is a list of [`Fault`]s; a test adds to it while the pool runs. Each fault waits for its operation to touch
//! its range, lets the first `skip` pass, and strikes `times` times. Nothing is random: the same calls meet the same
//! faults.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use super::interface::Device;

/// The operation that a fault waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A read that touches the range.
    Read,
    /// A write that touches the range.
    Write,
    /// A flush, whatever the range.
    Flush,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The operation fails with this error number and does nothing.
    Fail(i32),
    /// The bytes read inside the range are exclusive-ored with this mask. On other operations, nothing.
    Corrupt(u8),
    /// The operation does not return until the device is healed; then it is done.
    Hang,
}

/// A fault that a test plans.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Strikes on this operation,
    pub on: Operation,
    /// if it touches this range of bytes,
    pub range: Range<u64>,
    /// after so many matching operations passed,
    pub skip: u64,
    /// at most so many times.
    pub times: u64,
    /// What the fault does.
    pub effect: Effect,
}

impl Fault {
    /// Every `on` everywhere fails with EIO, forever.
    pub fn failing(on: Operation) -> Fault {
        let effect = Effect::Fail(Errno::IO.raw_os_error());
        Fault { on, range: 0..u64::MAX, skip: 0, times: u64::MAX, effect }
    }

    /// Every `on` everywhere hangs until the device is healed.
    pub fn hanging(on: Operation) -> Fault {
        Fault { effect: Effect::Hang, ..Fault::failing(on) }
    }

    /// Every byte read from `range` is wrong, forever.
    pub fn corrupting(range: Range<u64>) -> Fault {
        Fault { on: Operation::Read, range, skip: 0, times: u64::MAX, effect: Effect::Corrupt(0x55) }
    }

    /// Whether the fault strikes an operation on `touched`; counts a match.
    fn strikes(&mut self, on: Operation, touched: &Range<u64>) -> bool {
        let meets = self.range.start < touched.end && touched.start < self.range.end;
        if self.on != on || !(meets || on == Operation::Flush) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let strikes = self.times > 0;
        self.times = self.times.saturating_sub(1);
        strikes
    }
}

/// A device around another one, with faults.
pub struct FaultDevice {
    inner: Arc<dyn Device>,
    plan: Mutex<Vec<Fault>>,
    vanished: AtomicBool,
    /// Wakes hanging operations when the plan changes.
    healed: Condvar,
    waiting: AtomicUsize,
    /// The former content of every write since the last flush, oldest first.
    cache: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl FaultDevice {
    /// Wraps `inner`, without faults yet.
    pub fn new(inner: Arc<dyn Device>) -> FaultDevice {
        FaultDevice {
            inner,
            plan: Mutex::default(),
            vanished: AtomicBool::new(false),
            healed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            cache: Mutex::default(),
        }
    }

    /// Adds a fault to the plan.
    pub fn inject(&self, fault: Fault) {
        self.plan.lock().push(fault);
    }

    /// Ends all faults, and lets hanging operations finish.
    pub fn heal(&self) {
        self.plan.lock().clear();
        self.vanished.store(false, Ordering::SeqCst);
        self.healed.notify_all();
    }

    /// Undoes every write since the last successful flush.
    pub fn lose_cache(&self) {
        let cache = std::mem::take(&mut *self.cache.lock());
        let used = self.inner.size();
        // Also behind the end that the device was given since.
        self.inner.resize(self.inner.measure().unwrap_or(used));
        for (offset, before) in cache.iter().rev() {
            self.inner.write_at(*offset, before).expect("the device below takes back what it held");
        }
        self.inner.resize(used);
    }

    /// How many operations hang.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// From now on every operation fails with ENODEV, as if the cable had been pulled.
    pub fn vanish(&self) {
        self.vanished.store(true, Ordering::SeqCst);
    }

    /// The corruptions that strike this operation, or the error that it ends with.
    fn meet(&self, on: Operation, touched: Range<u64>) -> io::Result<Vec<(Range<u64>, u8)>> {
        if self.vanished.load(Ordering::SeqCst) {
            return Err(Errno::NODEV.into());
        }
        let mut corruptions = Vec::new();
        let mut hangs = false;
        let mut plan = self.plan.lock();
        for fault in plan.iter_mut().filter_map(|fault| fault.strikes(on, &touched).then_some(fault)) {
            match fault.effect {
                Effect::Fail(errno) => return Err(io::Error::from_raw_os_error(errno)),
                Effect::Corrupt(mask) => corruptions.push((fault.range.clone(), mask)),
                Effect::Hang => hangs = true,
            }
        }
        self.waiting.fetch_add(usize::from(hangs), Ordering::SeqCst);
        while hangs && !plan.is_empty() {
            self.healed.wait(&mut plan);
        }
        self.waiting.fetch_sub(usize::from(hangs), Ordering::SeqCst);
        Ok(corruptions)
    }
}

/// The range of `len` bytes at `offset`.
fn touched(offset: u64, len: usize) -> Range<u64> {
    offset..offset.saturating_add(len as u64)
}

impl Device for FaultDevice {
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
        self.meet(Operation::Write, size..u64::MAX)?;
        let is_cut = self.inner.truncate(size)?;
        if is_cut {
            // A truncation is durable, with all earlier writes.
            self.cache.lock().clear();
        }
        Ok(is_cut)
    }

    fn grow_back(&self, size: u64) -> io::Result<bool> {
        self.meet(Operation::Write, self.inner.measure()?..size)?;
        self.inner.grow_back(size)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let touched = touched(offset, buf.len());
        let corruptions = self.meet(Operation::Read, touched.clone())?;
        self.inner.read_at(offset, buf)?;
        for (range, mask) in corruptions {
            let start = range.start.max(touched.start) - offset;
            let end = range.end.min(touched.end) - offset;
            buf[start as usize..end as usize].iter_mut().for_each(|byte| *byte ^= mask);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.meet(Operation::Write, touched(offset, bytes.len()))?;
        let mut before = vec![0; bytes.len()];
        self.inner.read_at(offset, &mut before)?;
        let mut cache = self.cache.lock();
        self.inner.write_at(offset, bytes)?;
        cache.push((offset, before));
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.meet(Operation::Flush, 0..0)?;
        self.inner.flush()?;
        self.cache.lock().clear();
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.meet(Operation::Write, offset..offset.saturating_add(len))?;
        self.inner.discard(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    fn device() -> FaultDevice {
        FaultDevice::new(Arc::new(MemoryDevice::new("faulty", 1 << 20)))
    }

    #[test]
    fn a_fault_strikes_its_operation_in_its_range_after_skipping() {
        let device = device();
        let effect = Effect::Fail(Errno::NOSPC.raw_os_error());
        device.inject(Fault { on: Operation::Write, range: 100..200, skip: 1, times: 1, effect });
        device.write_at(0, &[1; 100]).unwrap();
        device.read_at(100, &mut [0; 10]).unwrap();
        device.write_at(150, &[1]).unwrap();
        let error = device.write_at(199, &[1; 10]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::NOSPC.raw_os_error()));
        device.write_at(150, &[1]).unwrap();
    }

    #[test]
    fn a_lost_cache_takes_what_was_not_flushed() {
        let device = device();
        device.write_at(0, b"kept").unwrap();
        device.flush().unwrap();
        device.write_at(2, b"lost").unwrap();
        device.write_at(0, b"gone").unwrap();
        device.lose_cache();
        let mut buf = [0; 6];
        device.read_at(0, &mut buf).unwrap();
        assert_eq!(&buf, b"kept\0\0");
    }

    #[test]
    fn a_lost_cache_takes_what_lies_behind_the_end_too() {
        let device = device();
        device.write_at((1 << 20) - 4, b"lost").unwrap();
        device.resize(1 << 19);
        device.lose_cache();
        assert_eq!(device.size(), 1 << 19);
        device.resize(1 << 20);
        let mut buf = [1; 4];
        device.read_at((1 << 20) - 4, &mut buf).unwrap();
        assert_eq!(buf, [0; 4]);
    }

    #[test]
    fn corruption_changes_what_is_read_and_not_what_is_stored() {
        let device = device();
        device.write_at(0, &[0xff; 8]).unwrap();
        device.inject(Fault::corrupting(2..4));
        let mut buf = [0; 3];
        device.read_at(1, &mut buf).unwrap();
        assert_eq!(buf, [0xff, 0xaa, 0xaa]);
        device.heal();
        device.read_at(1, &mut buf).unwrap();
        assert_eq!(buf, [0xff; 3]);
    }

    #[test]
    fn a_vanished_device_answers_nothing_until_healed() {
        let device = device();
        device.vanish();
        assert!(device.read_at(0, &mut [0]).is_err());
        assert!(device.write_at(0, &[0]).is_err());
        assert!(device.flush().is_err());
        assert!(device.discard(0, 1).is_err());
        device.heal();
        device.flush().unwrap();
        device.inject(Fault::failing(Operation::Flush));
        assert!(device.flush().is_err());
    }
}
