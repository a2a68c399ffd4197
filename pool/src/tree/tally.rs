//! How often reads found a block in memory, in the prefetch, on a cache device, or nowhere but on the vdevs.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use serde::{Deserialize, Serialize};

/// Where a read found a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// Content of a file, in memory.
    DataHit,
    /// Content of a file, not in memory.
    DataMiss,
    /// Content of a file, read for a reader that will find it in memory: this hit was a miss.
    DataBrought,
    /// A node of a tree, in memory.
    MetadataHit,
    /// A node of a tree, not in memory.
    MetadataMiss,
    /// A block that was being read already, counted as a miss too.
    PrefetchHit,
    /// A miss that a cache device answered.
    DeviceHit,
    /// A miss that no cache device could answer, although the pool has some.
    DeviceMiss,
}

const KINDS: usize = 8;

/// The number of lookups since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookups {
    /// Content of files found in memory.
    pub data_hits: u64,
    /// Content of files not found in memory.
    pub data_misses: u64,
    /// Nodes of trees found in memory.
    pub metadata_hits: u64,
    /// Nodes of trees not found in memory.
    pub metadata_misses: u64,
    /// Misses answered by a block that was read ahead.
    pub prefetch_hits: u64,
    /// Misses answered by a cache device.
    pub device_hits: u64,
    /// Misses that no cache device answered; 0 without cache devices.
    pub device_misses: u64,
}

/// A line of the processor's cache, so that threads on two processors do not share one.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line([AtomicU64; KINDS]);

const LINES: usize = 8;

/// The live counters. A thread counts on one of a few lines.
#[derive(Debug, Default)]
pub(crate) struct Tally([Line; LINES]);

static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static LINE: Cell<usize> = Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % LINES);
}

impl Tally {
    /// Counts `times` lookups.
    pub(crate) fn add(&self, lookup: Lookup, times: u64) {
        self.0[LINE.get()].0[lookup as usize].fetch_add(times, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> Lookups {
        let sum = |lookup: Lookup| {
            self.0.iter().map(|line| line.0[lookup as usize].load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
        };
        let brought = sum(Lookup::DataBrought);
        Lookups {
            data_hits: sum(Lookup::DataHit).saturating_sub(brought),
            data_misses: sum(Lookup::DataMiss).saturating_add(brought),
            metadata_hits: sum(Lookup::MetadataHit),
            metadata_misses: sum(Lookup::MetadataMiss),
            prefetch_hits: sum(Lookup::PrefetchHit),
            device_hits: sum(Lookup::DeviceHit),
            device_misses: sum(Lookup::DeviceMiss),
        }
    }
}
