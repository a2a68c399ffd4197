//! A child of a node: an address, or a node that has none yet.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;

use crate::{format::pointer::BlockPointer, tree::node::Node, units::Txg};

/// A node that was changed: its content until it was stored, its address from then on.
///
/// Invariant: there is a node or an address, or both. While the cell's transaction group is open the node is edited in
/// place, under the exclusive lock of its tree; after that it never changes.
#[derive(Debug)]
pub struct Cell {
    txg: Txg,
    node: ArcSwapOption<Node>,
    pointer: OnceLock<BlockPointer>,
}

impl Cell {
    /// A cell of the open transaction group.
    pub fn new(txg: Txg, node: Arc<Node>) -> Arc<Cell> {
        Arc::new(Cell { txg, node: ArcSwapOption::new(Some(node)), pointer: OnceLock::new() })
    }

    /// The transaction group that made it.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// The node, unless it was stored and let go.
    pub fn node(&self) -> Option<Arc<Node>> {
        self.node.load_full()
    }

    /// Where the node was stored.
    pub fn pointer(&self) -> Option<&BlockPointer> {
        self.pointer.get()
    }

    /// Tells where the node was stored, and lets go of it. The node must be in the cache by now.
    pub fn stored(&self, pointer: BlockPointer) {
        self.pointer.set(pointer).expect("a node is stored once");
        self.node.store(None);
    }

    /// Edits the node in place. Only for the holder of the tree's exclusive lock, in the cell's own transaction group.
    pub(super) fn edit<T>(&self, edit: impl FnOnce(&mut Node) -> T) -> T {
        let mut node = self.node.swap(None).expect("a cell of the open transaction group has its node");
        let result = edit(Arc::make_mut(&mut node));
        self.node.store(Some(node));
        result
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
