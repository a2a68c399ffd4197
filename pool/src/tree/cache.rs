//! The bounded cache of decoded nodes and decompressed data.

use std::{num::NonZero, sync::Arc, thread};

use quick_cache::{
    DefaultHashBuilder, OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle},
};

use crate::{
    block::{BlockKey, key},
    format::pointer::BlockPointer,
    tree::node::Node,
    units::MIB,
};

/// The least capacity of a shard, in bytes: many of the largest blocks. Blocks go to shards at random, and a full shard
/// evicts even while another has room.
const SHARD: u64 = 32 * MIB;

#[derive(Clone)]
enum Entry {
    Node(Arc<Node>),
    Data(Arc<Vec<u8>>),
}

#[derive(Clone)]
struct ByMemory;

impl Weighter<BlockKey, Entry> for ByMemory {
    fn weight(&self, _: &BlockKey, entry: &Entry) -> u64 {
        const OVERHEAD: usize = 128;
        let bytes = match entry {
            Entry::Node(node) => node.weight(),
            Entry::Data(bytes) => bytes.capacity(),
        };
        (bytes + OVERHEAD) as u64
    }
}

/// Nodes and data read or written lately.
pub struct BlockCache {
    cache: Cache<BlockKey, Entry, ByMemory>,
}

impl BlockCache {
    /// A cache of at most `capacity` bytes.
    pub fn new(capacity: u64) -> BlockCache {
        let items = usize::try_from(capacity / (16 << 10)).unwrap_or(usize::MAX).max(64);
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let shards = usize::try_from(capacity / SHARD).unwrap_or(usize::MAX).clamp(1, 4 * processors);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(items)
            .weight_capacity(capacity)
            .shards(1 << shards.ilog2())
            .build()
            .expect("both capacities are given");
        let cache = Cache::with_options(options, ByMemory, DefaultHashBuilder::default(), DefaultLifecycle::default());
        BlockCache { cache }
    }

    /// The node of `pointer`, if cached.
    pub fn node(&self, pointer: &BlockPointer) -> Option<Arc<Node>> {
        match self.cache.get(&key(pointer))? {
            Entry::Node(node) => Some(node),
            Entry::Data(_) => None,
        }
    }

    /// The content of the block of `pointer`, if cached.
    pub fn data(&self, pointer: &BlockPointer) -> Option<Arc<Vec<u8>>> {
        match self.cache.get(&key(pointer))? {
            Entry::Data(bytes) => Some(bytes),
            Entry::Node(_) => None,
        }
    }

    /// Caches a node, at the cost of its memory.
    pub fn keep_node(&self, pointer: &BlockPointer, node: Arc<Node>) {
        self.cache.insert(key(pointer), Entry::Node(node));
    }

    /// Caches a block's decompressed content.
    pub fn keep_data(&self, pointer: &BlockPointer, bytes: Arc<Vec<u8>>) {
        self.cache.insert(key(pointer), Entry::Data(bytes));
    }

    /// How many bytes are cached now.
    pub fn weight(&self) -> u64 {
        self.cache.weight()
    }

    /// Changes the bound, in bytes.
    pub fn set_capacity(&self, capacity: u64) {
        self.cache.set_capacity(capacity);
    }

    /// Drops everything: for tests and benchmarks that need a cold start.
    pub fn clear(&self) {
        self.cache.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{format::pointer::Address, units::ChunkId};

    #[test]
    fn a_small_cache_keeps_as_many_blocks_as_fit() {
        for round in 0..50 {
            let cache = BlockCache::new(4 * MIB);
            let pointer = |block: u32| {
                let address = Address { chunk: ChunkId(round), sector: 256 * block };
                BlockPointer { addresses: [address; 3], ..BlockPointer::default() }
            };
            (0..8).for_each(|block| cache.keep_data(&pointer(block), Arc::new(vec![0; 128 << 10])));
            let kept = (0..8).filter(|block| cache.data(&pointer(*block)).is_some()).count();
            assert_eq!(kept, 8, "a megabyte of four");
        }
    }
}
