//! A child of a node: an address, or a node without one.

use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::{format::pointer::BlockPointer, tree::node::Node, units::Txg};

/// A changed node: its content until stored, its address from then on.
///
/// Invariant: there is a node or an address, or both. While the cell's transaction group is open the node is edited in
/// place, under the exclusive lock of its tree; afterwards it never changes. So the cell's lock is never waited for
/// during an edit: it only separates readers of a stored node from its release.
#[derive(Debug)]
pub struct Cell {
    txg: Txg,
    node: RwLock<Option<Arc<Node>>>,
    pointer: OnceLock<BlockPointer>,
}

impl Cell {
    /// A cell of the open transaction group.
    pub fn new(txg: Txg, node: Arc<Node>) -> Arc<Cell> {
        Arc::new(Cell { txg, node: RwLock::new(Some(node)), pointer: OnceLock::new() })
    }

    /// The transaction group that made the cell.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// The node; `None` once it was stored and released.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.read().clone()
    }

    /// Where the node was stored.
    pub fn pointer(&self) -> Option<&BlockPointer> {
        self.pointer.get()
    }

    /// Sets the node's address, and releases the node. The node must be in the cache by now.
    pub fn stored(&self, pointer: BlockPointer) {
        self.pointer.set(pointer).expect("a node is stored once");
        *self.node.write() = None;
    }

    /// Edits the node in place. Only for the holder of the tree's exclusive lock, in the cell's own transaction group.
    pub(super) fn edit<T>(&self, edit: impl FnOnce(&mut Node) -> T) -> T {
        let mut node = self.node.write();
        edit(Arc::make_mut(node.as_mut().expect("a cell of the open transaction group has its node")))
    }
}

/// A child as held by its parent.
#[derive(Clone, Debug)]
pub enum Slot {
    /// Stored, and to be found through the cache.
    Clean(BlockPointer),
    /// Changed since last stored.
    Dirty(Arc<Cell>),
}

impl Slot {
    /// The child's address, if stored.
    pub fn pointer(&self) -> Option<&BlockPointer> {
        match self {
            Slot::Clean(pointer) => Some(pointer),
            Slot::Dirty(cell) => cell.pointer(),
        }
    }
}
