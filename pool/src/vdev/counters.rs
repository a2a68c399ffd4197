//! The I/O counters of a device: the numbers of `pool iostat` and `pool status`.
//!
//! Each number is exact; a snapshot taken while requests run may count a request's operation and not yet its bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the pool was imported; errors since `pool clear`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests to read, failed or not.
    pub reads: u64,
    /// Requests to write, failed or not.
    pub writes: u64,
    /// Flushes requested.
    pub flushes: u64,
    /// Bytes of completed reads.
    pub read_bytes: u64,
    /// Bytes of completed writes.
    pub written_bytes: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Writes and flushes that failed.
    pub write_errors: u64,
    /// Blocks with a wrong checksum.
    pub checksum_errors: u64,
}

/// The live counters of a device.
#[derive(Debug, Default)]
pub struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    read_errors: AtomicU64,
    write_errors: AtomicU64,
    checksum_errors: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

impl Counters {
    /// The current counts.
    pub fn snapshot(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: get(&self.reads),
            writes: get(&self.writes),
            flushes: get(&self.flushes),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            read_errors: get(&self.read_errors),
            write_errors: get(&self.write_errors),
            checksum_errors: get(&self.checksum_errors),
        }
    }

    /// Zeroes the error counts, as `pool clear` does. The rest keeps counting.
    pub fn clear_errors(&self) {
        for counter in [&self.read_errors, &self.write_errors, &self.checksum_errors] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn count_read(&self, len: usize, succeeded: bool) {
        add(&self.reads, 1);
        match succeeded {
            true => add(&self.read_bytes, len as u64),
            false => add(&self.read_errors, 1),
        }
    }

    pub(super) fn count_write(&self, len: usize, succeeded: bool) {
        add(&self.writes, 1);
        match succeeded {
            true => add(&self.written_bytes, len as u64),
            false => add(&self.write_errors, 1),
        }
    }

    pub(super) fn count_flush(&self, succeeded: bool) {
        add(&self.flushes, 1);
        add(&self.write_errors, u64::from(!succeeded));
    }

    pub(crate) fn count_checksum_error(&self) {
        add(&self.checksum_errors, 1);
    }
}
