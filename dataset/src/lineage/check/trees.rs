//! The blocks reachable from a root.

use std::{collections::HashMap, sync::Arc};

use pool::{
    check::Ledger,
    error::Error,
    format::{key::Key, pointer::BlockPointer},
    space::Seen,
    tree::Miss,
    txg::{Engine, Pinned},
    units::Txg,
};

use roaring::RoaringBitmap;

use crate::lineage::nodes;

/// A set of blocks, by their numbers in the ledger.
pub(super) type Blocks = RoaringBitmap;

/// The owner named in the ledger's findings.
pub(super) const WHAT: &str = "datasets";

/// Reads trees, each node once.
pub(super) struct Trees<'a> {
    engine: &'a Engine,
    pinned: Pinned,
    known: HashMap<u32, Arc<Inside>>,
}

/// The children of a node, and the blocks of its items.
struct Inside {
    children: Vec<Miss>,
    blocks: Vec<u32>,
}

/// A part of a tree: nodes and blocks born after `after`, except nodes that end at or before `cursor`.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) after: Txg,
    pub(super) cursor: Key,
}

impl Part {
    pub(super) const ALL: Part = Part { after: Txg::ZERO, cursor: Key::MIN };
}

impl<'a> Trees<'a> {
    /// For a pool pinned before the rows were read.
    pub(super) fn new(engine: &'a Engine, pinned: Pinned) -> Trees<'a> {
        Trees { engine, pinned, known: HashMap::new() }
    }

    /// The moment from which on pinned blocks stay readable.
    pub(super) fn seen(&self) -> Seen {
        self.pinned.seen()
    }

    /// Enters all blocks of a part of a tree, nodes included, into the ledger. Unreadable nodes are passed to `broken`.
    pub(super) fn reach(
        &mut self,
        ledger: &mut Ledger,
        (root, level): (BlockPointer, u8),
        part: Part,
        mut broken: impl FnMut(&Miss, Error),
    ) -> Blocks {
        let mut found = Blocks::new();
        let mut todo = vec![nodes::root(root, level)];
        while let Some(place) = todo.pop() {
            if place.pointer.birth <= part.after || place.high <= part.cursor {
                continue;
            }
            let number = ledger.refer(&place.pointer, WHAT);
            found.insert(number);
            let inside = match self.open(ledger, number, &place, part.after) {
                Ok(inside) => inside,
                Err(error) => {
                    broken(&place, error);
                    continue;
                }
            };
            todo.extend_from_slice(&inside.children);
            found.extend(&inside.blocks);
        }
        found
    }

    /// The contents of a node. Enters only blocks born after `after` into the ledger: older blocks may be free by now.
    fn open(&mut self, ledger: &mut Ledger, number: u32, place: &Miss, after: Txg) -> Result<Arc<Inside>, Error> {
        let is_whole = after == Txg::ZERO;
        if let Some(known) = self.known.get(&number).filter(|_| is_whole) {
            return Ok(known.clone());
        }
        let node = nodes::read(self.engine, place, self.seen())?;
        let blocks = nodes::items(&node).filter_map(|(leaf, item)| Some((item.key(), leaf.pointer(item)?)));
        let young = blocks.filter(|(_, block)| block.entered() > after);
        let blocks = young.map(|(key, block)| ledger.refer_at(key, &block, WHAT)).collect();
        let inside = Arc::new(Inside { children: nodes::children(&node), blocks });
        if is_whole {
            self.known.insert(number, inside.clone());
        }
        Ok(inside)
    }
}
