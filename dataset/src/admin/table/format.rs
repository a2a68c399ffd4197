//! The tree of a new dataset: an empty root directory.
//!
//! The tree is made in syncing context, in the txg in which the dataset is created, so no committed dataset is without
//! a tree.

use std::sync::Arc;

use pool::{
    error::Result,
    format::pointer::BlockPointer,
    tree::{Batch, Node, NodeSource, Root, Slot},
    txg::Sync,
};

use crate::fs::{FileType, ROOT, inode::Inode, key, master::Master};

/// Writes the tree of a new dataset, a single leaf, and returns its root.
pub(in crate::admin) fn first_tree(sync: &mut Sync<'_>, owner: (u32, u32)) -> Result<BlockPointer> {
    let (txg, copies) = (sync.txg(), sync.engine().metadata_copies());
    let (seed, now) = (sync.engine().env().random(), sync.engine().env().now());
    let mut directory = Inode::new(FileType::Directory, 0o755, txg, now);
    (directory.uid, directory.gid) = owner;
    let mut batch = Batch::default();
    batch.put(key::master(), Master { next: ROOT + 1, files: 1, seed }.encode(), None);
    batch.put(key::inode(ROOT), directory.encode(), None);
    let mut root = Root::empty(txg);
    batch.apply(&mut root, txg, &InMemory, &mut Vec::new()).expect("an empty tree is in memory");
    let Slot::Dirty(cell) = &root.slot else { unreachable!("the tree was just made") };
    let node = cell.node().expect("the tree was just made");
    sync.write_block(node.resolved().encode(txg), copies)
}

/// A view of an empty tree, without stored nodes.
struct InMemory;

impl NodeSource for InMemory {
    fn node(&self, _: &BlockPointer) -> Option<Arc<Node>> {
        None
    }
}
