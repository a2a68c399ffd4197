//! How much may be dirty.
//!
//! Data that was taken in and is not stored yet needs memory and will need space. Every byte is admitted here first:
//! against the room that is left, and against the bound on dirty memory.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::units::Txg;

/// Counts what was admitted and is not committed yet, in the open group and in the one being written.
pub(crate) struct Throttle {
    dirty: [AtomicU64; 2],
    nodes: [AtomicU64; 2],
    limit: AtomicU64,
}

impl Throttle {
    pub(crate) fn new(limit: u64) -> Throttle {
        Throttle { dirty: Default::default(), nodes: Default::default(), limit: AtomicU64::new(limit) }
    }

    pub(crate) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Bytes admitted and not committed.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.iter().map(|group| group.load(Relaxed)).sum()
    }

    pub(crate) fn add(&self, txg: Txg, bytes: u64) {
        self.dirty[(txg.0 % 2) as usize].fetch_add(bytes, Relaxed);
    }

    /// Bytes of nodes that are dirty, with all their copies.
    pub(crate) fn nodes(&self) -> u64 {
        self.nodes.iter().map(|group| group.load(Relaxed)).sum()
    }

    pub(crate) fn add_nodes(&self, txg: Txg, bytes: u64) {
        self.nodes[(txg.0 % 2) as usize].fetch_add(bytes, Relaxed);
    }

    /// The group is committed: nothing of it is dirty.
    pub(crate) fn committed(&self, txg: Txg) {
        self.dirty[(txg.0 % 2) as usize].store(0, Relaxed);
        self.nodes[(txg.0 % 2) as usize].store(0, Relaxed);
    }
}
