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

/// The nodes of a tree that are stored twice, in a pool with several vdevs: the property `redundant_metadata`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Redundancy {
    /// Every node of the tree.
    #[default]
    All,
    /// Every node but the leaves. A lost leaf costs the files whose items the leaf has.
    Most,
    /// The root only. A lost node costs everything below.
    Critical,
    /// No node of the tree.
    Nothing,
}

impl Redundancy {
    const ALL: [Redundancy; 4] = [Redundancy::All, Redundancy::Most, Redundancy::Critical, Redundancy::Nothing];

    /// The copies of a node at `level`, in a tree whose root is at level `top`. `most` is what the pool has room for.
    pub(in crate::txg) fn copies(self, level: usize, top: usize, most: u8) -> u8 {
        let is_redundant = match self {
            Redundancy::All => true,
            Redundancy::Most => level > 0 || top == 0,
            Redundancy::Critical => level == top,
            Redundancy::Nothing => false,
        };
        if is_redundant { most } else { 1 }
    }
}

/// The caching of a tree, in memory and on cache devices, and the copies of its nodes.
#[derive(Debug, Default)]
pub(in crate::txg) struct Cached {
    memory: AtomicU8,
    devices: AtomicU8,
    redundancy: AtomicU8,
}

impl Cached {
    pub(in crate::txg) fn set(&self, memory: Caching, devices: Caching) {
        self.memory.store(memory as u8, Ordering::Relaxed);
        self.devices.store(devices as u8, Ordering::Relaxed);
    }

    pub(in crate::txg) fn set_redundancy(&self, redundancy: Redundancy) {
        self.redundancy.store(redundancy as u8, Ordering::Relaxed);
    }

    /// Which nodes are stored twice.
    pub(in crate::txg) fn redundancy(&self) -> Redundancy {
        Redundancy::ALL[usize::from(self.redundancy.load(Ordering::Relaxed))]
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
