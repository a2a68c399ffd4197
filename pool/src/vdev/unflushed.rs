//! Writes to a device that may still be lost with the device's cache.
//!
//! A device that goes away loses the writes in its cache. A device whose flush failed loses them too: the kernel drops
//! pages that it could not write, and the next flush succeeds. Therefore every write is kept until a flush that began
//! after the write has succeeded; when the device is back, all kept writes are replayed.

use std::{collections::BTreeMap, io, sync::Arc};

use parking_lot::Mutex;

use crate::device::Device;

/// Kept bytes above which a flush is due.
const ENOUGH: usize = 32 << 20;

/// The writes of one device since its last flush.
#[derive(Debug, Default)]
pub(super) struct Unflushed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    writes: BTreeMap<u64, Write>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Write {
    at: u64,
    parts: Vec<Arc<Vec<u8>>>,
    done: bool,
}

impl Unflushed {
    /// Keeps a write of parts, one after another, that is about to begin; returns its number.
    pub(super) fn begin(&self, at: u64, parts: &[Arc<Vec<u8>>]) -> u64 {
        let mut state = self.0.lock();
        let number = state.next;
        state.next += 1;
        let write = Write { at, parts: parts.to_vec(), done: false };
        state.bytes += write.len();
        state.writes.insert(number, write);
        number
    }

    /// Records that a write was done; `true` if a flush is due.
    pub(super) fn done(&self, number: u64) -> bool {
        let mut state = self.0.lock();
        if let Some(write) = state.writes.get_mut(&number) {
            write.done = true;
        }
        state.bytes > ENOUGH
    }

    /// Drops a write that has failed for good.
    pub(super) fn forget(&self, number: u64) {
        self.0.lock().remove(number);
    }

    /// The writes that a flush beginning now makes durable.
    pub(super) fn flushing(&self) -> Vec<u64> {
        let state = self.0.lock();
        state.writes.iter().filter(|(_, write)| write.done).map(|(&number, _)| number).collect()
    }

    /// Drops the writes that a flush has made durable.
    pub(super) fn flushed(&self, numbers: &[u64]) {
        let mut state = self.0.lock();
        numbers.iter().for_each(|&number| state.remove(number));
    }

    /// Drops all writes, without writing them again.
    pub(super) fn clear(&self) {
        let mut state = self.0.lock();
        state.writes.clear();
        state.bytes = 0;
    }

    /// Repeats all writes, in order.
    pub(super) fn replay(&self, device: &dyn Device) -> io::Result<()> {
        let writes: Vec<_> = self.0.lock().writes.values().map(|write| (write.at, write.parts.clone())).collect();
        writes.iter().try_for_each(|(at, parts)| device.write_parts(*at, parts))
    }
}

impl State {
    fn remove(&mut self, number: u64) {
        if let Some(write) = self.writes.remove(&number) {
            self.bytes -= write.len();
        }
    }
}

impl Write {
    fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    #[test]
    fn a_flush_drops_only_writes_done_before_it_began() {
        let unflushed = Unflushed::default();
        let begin = |at, byte| unflushed.begin(at, &[Arc::new(vec![byte]), Arc::new(vec![byte])]);
        let (early, under_way, failed) = (begin(0, 1), begin(10, 2), begin(20, 3));
        unflushed.done(early);
        unflushed.forget(failed);
        let flushing = unflushed.flushing();
        unflushed.done(under_way);
        let late = begin(30, 4);
        unflushed.done(late);
        unflushed.flushed(&flushing);
        let device = MemoryDevice::new("disk", 100);
        unflushed.replay(&device).unwrap();
        let mut bytes = [0; 40];
        device.read_at(0, &mut bytes).unwrap();
        assert_eq!([bytes[0], bytes[10], bytes[11], bytes[20], bytes[30]], [0, 2, 2, 0, 4]);
    }

    #[test]
    fn much_that_is_kept_asks_for_a_flush() {
        let unflushed = Unflushed::default();
        let bytes = Arc::new(vec![0; ENOUGH / 2 + 1]);
        let bytes = [bytes];
        assert!(!unflushed.done(unflushed.begin(0, &bytes)));
        assert!(unflushed.done(unflushed.begin(0, &bytes)));
        unflushed.flushed(&unflushed.flushing());
        assert!(!unflushed.done(unflushed.begin(0, &bytes)));
    }
}
