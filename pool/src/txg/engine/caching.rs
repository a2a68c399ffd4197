//! What caches keep of a tree.

use std::sync::atomic::{AtomicU8, Ordering};

/// The blocks of a tree that a cache keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Caching {
    /// Nodes of trees, and contents of files.
    #[default]
    All,
    /// Nodes of trees only.
    Metadata,
    /// Neither nodes nor data.
    None,
}

/// The caching of a tree, in memory and on cache devices.
#[derive(Debug, Default)]
pub(in crate::txg) struct Cached {
    memory: AtomicU8,
    devices: AtomicU8,
}

impl Cached {
    pub(in crate::txg) fn set(&self, memory: Caching, devices: Caching) {
        self.memory.store(memory as u8, Ordering::Relaxed);
        self.devices.store(devices as u8, Ordering::Relaxed);
    }

    /// Whether data is kept in memory.
    pub(in crate::txg) fn keeps_data(&self) -> bool {
        self.memory.load(Ordering::Relaxed) == Caching::All as u8
    }

    /// Whether nodes are kept in memory.
    pub(super) fn keeps_nodes(&self) -> bool {
        self.memory.load(Ordering::Relaxed) != Caching::None as u8
    }

    /// Whether data may go to cache devices.
    pub(super) fn gives_data(&self) -> bool {
        self.devices.load(Ordering::Relaxed) == Caching::All as u8
    }

    /// Whether nodes may go to cache devices.
    pub(super) fn gives_nodes(&self) -> bool {
        self.devices.load(Ordering::Relaxed) != Caching::None as u8
    }
}
