//! Reading blocks and nodes: through the cache, verified, and with bad copies noted where an open tree refers to them.

use std::sync::Arc;

use super::Engine;
use crate::{
    block::Copying,
    error::{Error, Result},
    format::{key::Key, node::NODE_MAX, pointer::BlockPointer},
    tree::{Miss, Node, verify_place},
    txg::still::{Place, Suspect},
};

/// So many for each CPU: enough that no device waits for a CPU.
const REQUESTS: usize = 4;

impl Engine {
    /// The content of a block, verified and decompressed, through the cache.
    pub fn read_block(&self, pointer: &BlockPointer) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.data(pointer) {
            return Ok(bytes);
        }
        let bytes = Arc::new(self.storage.read_block(pointer)?);
        self.cache.keep_data(pointer, bytes.clone());
        Ok(bytes)
    }

    /// The same for a block that belongs to an item of an open tree: a bad copy will be looked at again.
    pub(in crate::txg) fn read_item(&self, tree: u64, key: Key, pointer: &BlockPointer) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.data(pointer) {
            return Ok(bytes);
        }
        let bytes = self.fetch_item(tree, key, pointer)?;
        self.cache.keep_data(pointer, bytes.clone());
        Ok(bytes)
    }

    /// The same without keeping what is read.
    pub(in crate::txg) fn read_item_once(&self, tree: u64, key: Key, pointer: &BlockPointer) -> Result<Arc<Vec<u8>>> {
        match self.cache.data(pointer) {
            Some(bytes) => Ok(bytes),
            None => self.fetch_item(tree, key, pointer),
        }
    }

    fn fetch_item(&self, tree: u64, key: Key, pointer: &BlockPointer) -> Result<Arc<Vec<u8>>> {
        let suspect = Suspect { tree, place: Place::Item(key), pointer: *pointer };
        Ok(Arc::new(self.storage.read_block_noting(pointer, || self.suspects.add(suspect))?))
    }

    /// Brings those of these blocks into the cache that are not there and lie near each other, by few requests.
    pub(in crate::txg) fn bring(&self, mut blocks: Vec<BlockPointer>) {
        blocks.retain(|pointer| self.cache.data(pointer).is_none());
        if blocks.len() > 1 {
            for (at, bytes) in self.storage.read_together(&blocks) {
                self.cache.keep_data(&blocks[at], Arc::new(bytes));
            }
        }
    }

    /// The bytes of a block as they are stored, verified.
    pub fn read_stored(&self, pointer: &BlockPointer) -> Result<Vec<u8>> {
        self.storage.read_stored(pointer)
    }

    /// The blocks among these of which a copy is not good in all its sources, in order. Nobody is told, and nothing counted.
    pub fn suspicious(&self, blocks: &[BlockPointer]) -> Vec<usize> {
        self.storage.suspects(blocks, self.requests()).into_iter().collect()
    }

    /// Copies blocks that the committed state refers to, and returns what became of each.
    pub(in crate::txg) fn copy(&self, blocks: &[BlockPointer], to: Copying) -> Vec<Result<u64>> {
        self.storage.copy_together(blocks, to, self.requests())
    }

    /// How many requests are under way when many blocks are gone through: one where there are no workers.
    fn requests(&self) -> usize {
        (self.workers.count() * REQUESTS).max(1)
    }

    /// Reads a node that is not in memory.
    pub fn load_node(&self, miss: &Miss) -> Result<Arc<Node>> {
        self.load_node_noting(miss, || {})
    }

    /// The same for a node of an open tree: a bad copy will be looked at again.
    pub(in crate::txg) fn load_node_of(&self, tree: u64, miss: &Miss) -> Result<Arc<Node>> {
        let suspect = Suspect { tree, place: Place::of(miss), pointer: miss.pointer };
        self.load_node_noting(miss, || self.suspects.add(suspect))
    }

    fn load_node_noting(&self, miss: &Miss, bad: impl FnMut()) -> Result<Arc<Node>> {
        if let Some(node) = self.cache.node(&miss.pointer) {
            // A pointer that lies may lead to a node that is here by right, in another place.
            verify_place(&node, miss.pointer.birth, miss).map_err(|problem| Error::damaged("tree node", problem))?;
            return Ok(node);
        }
        if miss.pointer.logical as usize > NODE_MAX {
            return Err(Error::damaged("tree node", format!("it is said to have {} bytes", miss.pointer.logical)));
        }
        let bytes = self.storage.read_block_noting(&miss.pointer, bad)?;
        let decoded = Node::decode(&bytes);
        let placed = decoded.and_then(|(node, txg)| verify_place(&node, txg, miss).map(|()| node));
        let node = Arc::new(placed.map_err(|problem| Error::damaged("tree node", problem))?);
        self.cache.keep_node(&miss.pointer, node.clone());
        Ok(node)
    }
}
