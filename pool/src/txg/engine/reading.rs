//! Reading blocks and nodes: through the caches, verified; a bad copy of a block of an open tree is noted for repair.
//!
//! A read asks the cache in memory first, then the prefetch under way, then the cache devices, then the vdevs. A walk
//! of all trees, such as a scrub, neither reads nor feeds the cache devices.
//!
//! A block that no cache has is read with a token that says when its pointer was seen in a tree. The bytes are believed
//! only if the block's space cannot have been used again since: see [`Seen`]. Other bytes are neither cached, noted as
//! suspect nor counted. There is no way to read without a token.

use std::{ops::Range, sync::Arc};

use super::{pinned::Pinned, state::Engine};
use crate::{
    block::{Copying, Part, Spares, Stored, unpacked},
    error::{Error, Result},
    format::{key::Key, node::NODE_MAX, pointer::BlockPointer},
    space::Seen,
    tree::{Lookup, Miss, Node, verify_place},
    txg::{
        head::Head,
        streams::{Outlook, Windows},
        suspects::{Place, Suspect},
    },
};

/// Requests under way for each CPU: enough that no device waits for a CPU.
const REQUESTS: usize = 4;

impl Engine {
    /// A token for pointers found from now on. Take the token before the look-up.
    pub(crate) fn seen(&self) -> Seen {
        Seen::after(self.committed())
    }

    /// Keeps all blocks now referred to by trees from being overwritten, as long as the pool has room. Look up the
    /// trees' roots after this call.
    pub fn pin(&self) -> Pinned {
        loop {
            let seen = self.seen();
            if let Some(hold) = self.storage.space.hold_seen(seen) {
                return Pinned { seen, _hold: hold };
            }
        }
    }

    /// The content of a block, verified and decompressed, through the cache.
    ///
    /// # Errors
    /// [`Error::Stale`] if the block may have been freed since `seen`, and its space used again.
    pub fn read_block(&self, pointer: &BlockPointer, seen: Seen) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.data(pointer) {
            self.count(Lookup::DataHit);
            return Ok(bytes);
        }
        self.count(Lookup::DataMiss);
        let bytes = Arc::new(self.storage.read_block(pointer, seen)?);
        self.cache.keep_data(pointer, bytes.clone());
        Ok(bytes)
    }

    /// As [`Engine::read_block`], for the block of an item of an open tree: a bad copy is noted for repair.
    pub(in crate::txg) fn read_item(
        &self,
        head: &Head,
        key: Key,
        pointer: &BlockPointer,
        seen: Seen,
    ) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.data(pointer) {
            self.count(Lookup::DataHit);
            return Ok(bytes);
        }
        self.count(Lookup::DataMiss);
        if let Some(bytes) = self.arrive(head, pointer) {
            return Ok(bytes);
        }
        let suspect = Suspect { tree: head.id(), place: Place::Item(key), pointer: *pointer };
        let stored = self.fetch(pointer, seen, head.cached().gives_data(), || self.suspects.add(suspect))?;
        let bytes = Arc::new(unpacked(pointer, stored)?);
        if head.cached().keeps_data() {
            self.cache.keep_data(pointer, bytes.clone());
        }
        Ok(bytes)
    }

    /// As [`Engine::read_item`], without adding the block to a cache.
    pub(in crate::txg) fn read_item_once(
        &self,
        tree: u64,
        key: Key,
        pointer: &BlockPointer,
        seen: Seen,
    ) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.data(pointer) {
            self.count(Lookup::DataHit);
            return Ok(bytes);
        }
        self.count(Lookup::DataMiss);
        let suspect = Suspect { tree, place: Place::Item(key), pointer: *pointer };
        let stored = self.storage.read_stored(pointer, seen, || self.suspects.add(suspect))?;
        Ok(Arc::new(unpacked(pointer, stored)?))
    }

    /// A block of a prefetch under way, after its arrival.
    fn arrive(&self, head: &Head, pointer: &BlockPointer) -> Option<Arc<Vec<u8>>> {
        let taken = self.ahead.take(&self.storage, pointer, |part| self.keep_part(head, part));
        // Another thread may have collected it meanwhile.
        taken.or_else(|| self.cache.data(pointer)).inspect(|_| self.count(Lookup::PrefetchHit))
    }

    fn count(&self, lookup: Lookup) {
        self.cache.tally().add(lookup, 1);
    }

    /// Caches a prefetched block of a tree.
    fn keep_part(&self, head: &Head, Part { pointer, stored, content }: Part<'_>) {
        if head.cached().gives_data() {
            self.offer(pointer, stored);
        }
        self.cache.keep_data(pointer, content);
    }

    /// A block's stored bytes, from a cache device or from the vdevs; `gives` says whether they may go to a cache
    /// device. Bytes from a cache device pass the block's checksum, and only a believed read puts bytes there.
    fn fetch(&self, pointer: &BlockPointer, seen: Seen, gives: bool, bad: impl FnMut()) -> Result<Vec<u8>> {
        if let Some(stored) = self.secondary.read(pointer) {
            self.count(Lookup::DeviceHit);
            return Ok(stored);
        }
        if self.secondary.is_there() {
            self.count(Lookup::DeviceMiss);
        }
        let stored = self.storage.read_stored(pointer, seen, bad)?;
        if gives {
            self.offer(pointer, &stored);
        }
        Ok(stored)
    }

    /// Offers a block to the cache devices if the block's group is committed, so that the block cannot vanish.
    fn offer(&self, pointer: &BlockPointer, stored: &[u8]) {
        if pointer.birth <= self.committed() {
            self.secondary.offer(pointer, stored);
        }
    }

    /// Brings blocks into the cache that lie near each other and are not cached, by few requests, and starts the
    /// prefetch of the blocks `ahead`. Blocks on a cache device are left there.
    pub(in crate::txg) fn bring(
        &self,
        head: &Head,
        mut blocks: Vec<BlockPointer>,
        mut ahead: Vec<BlockPointer>,
        seen: Seen,
    ) {
        if !head.cached().keeps_data() {
            return;
        }
        let is_away = |pointer: &BlockPointer| self.cache.data(pointer).is_none() && self.is_to_begin(pointer);
        blocks.retain(is_away);
        ahead.retain(is_away);
        let waited = blocks.len();
        blocks.append(&mut ahead);
        if !blocks.is_empty() {
            self.ahead.bring(&self.storage, (&blocks, seen), waited, |part| {
                self.count(Lookup::DataBrought);
                self.keep_part(head, part);
            });
        }
    }

    /// Notes a read of an object of length `end`, and returns the ranges worth [bringing](Engine::bring) into the cache
    /// ahead, now and later.
    pub(in crate::txg) fn look_ahead(&self, head: &Head, object: u64, read: Range<u64>, end: u64) -> Outlook {
        if !head.cached().keeps_data() {
            return Outlook::default();
        }
        let windows = Windows::within(self.ahead.budget());
        let len = read.end - read.start;
        self.streams.note((head.id(), object), read, end, windows, |wanted| self.ahead.room(wanted, len))
    }

    /// Whether a block not in memory needs a new read: it is neither on a cache device nor in a prefetch under way.
    fn is_to_begin(&self, pointer: &BlockPointer) -> bool {
        !self.secondary.has(pointer) && !self.ahead.has(pointer)
    }

    /// Starts to prefetch the nodes that are not in memory, in the order of the slice.
    pub(in crate::txg) fn begin_nodes(&self, head: &Head, nodes: &[Miss], seen: Seen) {
        if nodes.is_empty() || !head.cached().keeps_nodes() {
            return;
        }
        let is_away = |pointer: &BlockPointer| may_be_node(pointer) && self.is_to_begin(pointer);
        let away: Vec<BlockPointer> = nodes.iter().map(|miss| miss.pointer).filter(is_away).collect();
        self.ahead.begin_nodes(&self.storage, &away, seen);
    }

    /// A node of a prefetch under way, after its arrival, if its pointer is the one asked for.
    fn arrive_node(&self, head: &Head, miss: &Miss) -> Option<Arc<Node>> {
        let mut arrived = None;
        self.ahead.take(&self.storage, &miss.pointer, |part| {
            let is_wanted = *part.pointer == miss.pointer;
            let node = self.keep_node(head, part);
            if is_wanted {
                arrived = node;
            }
        });
        arrived.filter(|node| verify_place(node, miss.pointer.birth, miss).is_ok())
    }

    /// Caches a prefetched node. Each use of the node verifies its place in the tree.
    fn keep_node(&self, head: &Head, Part { pointer, stored, content }: Part<'_>) -> Option<Arc<Node>> {
        if !may_be_node(pointer) {
            return None;
        }
        let (node, txg) = Node::decode(&content).ok()?;
        if txg != pointer.birth {
            return None;
        }
        if head.cached().gives_nodes() {
            self.offer(pointer, stored);
        }
        let node = Arc::new(node);
        self.cache.keep_node(pointer, node.clone());
        Some(node)
    }

    /// Drops everything cached in memory and all prefetch under way: for tests and benchmarks that need a cold start.
    pub fn forget_read(&self) {
        self.cache.clear();
        self.ahead.ground();
    }

    /// Drops the prefetch under way: devices leave, or have left.
    pub(crate) fn forget_ahead(&self) {
        self.ahead.ground();
    }

    /// Puts the stored bytes of blocks, verified, in their places in `all`, unless they are there.
    ///
    /// # Errors
    /// As [`Engine::read_block`]. What was read until then stays in `all`.
    pub(in crate::txg) fn read_all_stored(
        &self,
        pointers: &[BlockPointer],
        all: &mut [Option<Stored>],
        seen: Seen,
        spares: &Spares,
    ) -> Result<()> {
        self.storage.read_all_stored(pointers, all, seen, spares)
    }

    /// The indices of blocks with a bad copy in any source, in order. Nothing is noted or counted.
    pub fn suspicious(&self, blocks: &[BlockPointer]) -> Vec<usize> {
        self.storage.suspects(blocks, self.requests()).into_iter().collect()
    }

    /// Copies blocks of the committed state, and returns the outcome of each.
    pub(in crate::txg) fn copy(&self, blocks: &[BlockPointer], to: Copying) -> Vec<Result<u64>> {
        self.storage.copy_together(blocks, to, self.requests())
    }

    /// How many requests are under way in a pass over many blocks: one without workers.
    fn requests(&self) -> usize {
        (self.workers.count() * REQUESTS).max(1)
    }

    /// Reads a node that is not in memory.
    ///
    /// # Errors
    /// As [`Engine::read_block`].
    pub fn load_node(&self, miss: &Miss, seen: Seen) -> Result<Arc<Node>> {
        self.load_node_by(miss, true, |pointer| self.storage.read_stored(pointer, seen, || {}))
    }

    /// The same for a node of an open tree: a bad copy will be looked at again.
    pub(in crate::txg) fn load_node_of(&self, head: &Head, miss: &Miss, seen: Seen) -> Result<Arc<Node>> {
        if !self.has_node(miss)
            && let Some(node) = self.arrive_node(head, miss)
        {
            self.count(Lookup::MetadataMiss);
            self.count(Lookup::PrefetchHit);
            return Ok(node);
        }
        let suspect = Suspect { tree: head.id(), place: Place::of(miss), pointer: miss.pointer };
        let read = |pointer: &BlockPointer| {
            self.fetch(pointer, seen, head.cached().gives_nodes(), || self.suspects.add(suspect))
        };
        self.load_node_by(miss, head.cached().keeps_nodes(), read)
    }

    /// Brings nodes into the cache that lie near each other and are not cached, by few requests. Errors are left to the
    /// later load of the node.
    pub fn bring_nodes(&self, mut nodes: Vec<Miss>, seen: Seen) {
        nodes.retain(|miss| !self.has_node(miss) && may_be_node(&miss.pointer));
        let pointers: Vec<BlockPointer> = nodes.iter().map(|miss| miss.pointer).collect();
        self.storage.read_together(&pointers, seen, |at, _, bytes| {
            if let Ok(node) = decoded(&nodes[at], &bytes) {
                self.cache.keep_node(&pointers[at], node);
            }
        });
    }

    /// Whether a node is in memory.
    pub fn has_node(&self, miss: &Miss) -> bool {
        self.cache.node(&miss.pointer).is_some()
    }

    fn load_node_by(
        &self,
        miss: &Miss,
        keeps: bool,
        read: impl FnOnce(&BlockPointer) -> Result<Vec<u8>>,
    ) -> Result<Arc<Node>> {
        if let Some(node) = self.cache.node(&miss.pointer) {
            // A corrupt pointer may lead to a valid node of another place.
            verify_place(&node, miss.pointer.birth, miss).map_err(|problem| Error::damaged("tree node", problem))?;
            return Ok(node);
        }
        self.count(Lookup::MetadataMiss);
        if !may_be_node(&miss.pointer) {
            return Err(Error::damaged("tree node", format!("it is said to have {} bytes", miss.pointer.logical)));
        }
        let node = decoded(miss, &unpacked(&miss.pointer, read(&miss.pointer)?)?)?;
        if keeps {
            self.cache.keep_node(&miss.pointer, node.clone());
        }
        Ok(node)
    }
}

/// Whether a block is small enough for a node.
fn may_be_node(pointer: &BlockPointer) -> bool {
    pointer.logical as usize <= NODE_MAX
}

/// Decodes a node, and verifies that its place in the tree is the expected one.
fn decoded(miss: &Miss, bytes: &[u8]) -> Result<Arc<Node>> {
    let placed = Node::decode(bytes).and_then(|(node, txg)| verify_place(&node, txg, miss).map(|()| node));
    placed.map(Arc::new).map_err(|problem| Error::damaged("tree node", problem))
}
