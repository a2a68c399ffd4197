//! The bounded cache of decoded nodes and decompressed data.

use std::{
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use quick_cache::{
    DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle},
};

use crate::{
    block::{BlockKey, key},
    format::pointer::BlockPointer,
    tree::{node::Node, tally::Tally},
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

type Dropping = DefaultLifecycle<BlockKey, Entry>;

/// Counts evicted blocks, which are dropped outside of the cache's locks.
#[derive(Clone, Default)]
struct Evictions {
    dropping: Dropping,
    count: Arc<AtomicU64>,
}

impl Lifecycle<BlockKey, Entry> for Evictions {
    type RequestState = <Dropping as Lifecycle<BlockKey, Entry>>::RequestState;

    fn begin_request(&self) -> Self::RequestState {
        self.dropping.begin_request()
    }

    fn on_evict(&self, state: &mut Self::RequestState, key: BlockKey, entry: Entry) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.dropping.on_evict(state, key, entry);
    }
}

/// Nodes and data read or written lately.
pub struct BlockCache {
    cache: Cache<BlockKey, Entry, ByMemory, DefaultHashBuilder, Evictions>,
    evictions: Arc<AtomicU64>,
    tally: Tally,
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
        let lifecycle = Evictions::default();
        let evictions = lifecycle.count.clone();
        let cache = Cache::with_options(options, ByMemory, DefaultHashBuilder::default(), lifecycle);
        BlockCache { cache, evictions, tally: Tally::default() }
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

    /// How many bytes are data, and how many are nodes. Looks at every block.
    pub fn weights(&self) -> (u64, u64) {
        let (mut data, mut nodes) = (0, 0);
        for (key, entry) in self.cache.iter() {
            match entry {
                Entry::Data(_) => data += ByMemory.weight(&key, &entry),
                Entry::Node(_) => nodes += ByMemory.weight(&key, &entry),
            }
        }
        (data, nodes)
    }

    /// The bound of the cache, in bytes.
    pub fn capacity(&self) -> u64 {
        self.cache.capacity()
    }

    /// How many blocks were dropped to make room for others.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Ordering::Relaxed)
    }

    /// Counts of lookups, by those who look up: only a read counts, no probe for one.
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
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
