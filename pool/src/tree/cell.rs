//! A child of a node: an address, or a node that has none yet.

use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

use crate::{format::pointer::BlockPointer, tree::node::Node, units::Txg};

/// A node that was changed: its content until it was stored, its address from then on.
///
/// Invariant: there is a node or an address, or both. While the cell's transaction group is open the node is edited in
/// place, under the exclusive lock of its tree; after that it never changes. So the lock in here is never waited for while
/// a node is edited: it stands between those who read a stored node and who lets go of it.
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

    /// The transaction group that made it.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// The node, unless it was stored and let go.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.read().clone()
    }

    /// Where the node was stored.
    pub fn pointer(&self) -> Option<&BlockPointer> {
        self.pointer.get()
    }

    /// Tells where the node was stored, and lets go of it. The node must be in the cache by now.
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

/// A child as its parent holds it.
#[derive(Clone, Debug)]
pub enum Slot {
    /// Stored, and to be found through the cache.
    Clean(BlockPointer),
    /// Changed since it was stored.
    Dirty(Arc<Cell>),
}

impl Slot {
    /// The child's address, if it has one.
    pub fn pointer(&self) -> Option<&BlockPointer> {
        match self {
            Slot::Clean(pointer) => Some(pointer),
            Slot::Dirty(cell) => cell.pointer(),
        }
    }
}
