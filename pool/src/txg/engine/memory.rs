//! What the caches hold and have answered, and what else of a pool is in memory.

use serde::{Deserialize, Serialize};

use super::state::Engine;
use crate::tree::Lookups;

/// Lookups in the caches since the pool was opened, and the present use of memory in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFigures {
    /// Answers of the caches.
    pub lookups: Lookups,
    /// Blocks that the cache has dropped to make room.
    pub evictions: u64,
    /// Bytes in the cache.
    pub size: u64,
    /// The most bytes that the cache may take.
    pub target: u64,
    /// Bytes of `size` for content of files.
    pub data: u64,
    /// Bytes of `size` for nodes of trees.
    pub metadata: u64,
    /// Bytes of writes not yet committed, outside of the cache.
    pub dirty: u64,
    /// The limit of `dirty`.
    pub dirty_limit: u64,
    /// Bytes being read ahead, outside of the cache.
    pub prefetch: u64,
    /// Bytes on cache devices.
    pub devices: u64,
    /// Blocks on cache devices.
    pub device_blocks: u64,
    /// Bytes of memory for the index of cache devices, estimated.
    pub device_index: u64,
}

/// Bytes of an entry in the index of cache devices, at most.
const INDEX_ENTRY: u64 = 90;

impl Engine {
    /// The figures at this instant. Takes a time proportional to the number of cached blocks.
    pub fn cache_figures(&self) -> CacheFigures {
        let (data, metadata) = self.cache.weights();
        let devices = self.secondary.devices();
        let device_blocks = self.secondary.blocks();
        CacheFigures {
            lookups: self.cache.tally().snapshot(),
            evictions: self.cache.evictions(),
            size: self.cache.weight(),
            target: self.cache.capacity(),
            data,
            metadata,
            dirty: self.throttle.data.dirty() + self.throttle.nodes.dirty(),
            dirty_limit: self.throttle.data.limit(),
            prefetch: self.ahead.bytes(),
            devices: devices.iter().map(|leaf| self.secondary.held(leaf.guid())).sum(),
            device_blocks,
            device_index: device_blocks * INDEX_ENTRY,
        }
    }
}
