//! What can be reached from a root.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use pool::{
    error::Error,
    format::{
        key::Key,
        pointer::{Address, BlockPointer},
    },
    tree::Miss,
    txg::Engine,
    units::Txg,
};

use crate::lineage::nodes;

/// Blocks by the address of their first copy.
pub(super) type Blocks = HashMap<Address, BlockPointer>;

/// Reads trees, each node once.
pub(super) struct Trees<'a> {
    engine: &'a Engine,
    known: HashMap<Address, Arc<Inside>>,
}

/// What a node leads to.
struct Inside {
    children: Vec<Miss>,
    blocks: Vec<BlockPointer>,
}

/// Which part of a tree is meant: all nodes and blocks younger than `after`, and of them those that do not end before
/// `cursor`.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) after: Txg,
    pub(super) cursor: Key,
}

impl Part {
    pub(super) const ALL: Part = Part { after: Txg::ZERO, cursor: Key::MIN };
}

impl<'a> Trees<'a> {
    pub(super) fn new(engine: &'a Engine) -> Trees<'a> {
        Trees { engine, known: HashMap::new() }
    }

    /// All blocks of a part of a tree, its nodes among them. Nodes that cannot be read are handed to `broken`.
    pub(super) fn reach(
        &mut self,
        root: BlockPointer,
        level: u8,
        part: Part,
        mut broken: impl FnMut(&Miss, Error),
    ) -> Blocks {
        let mut found = Blocks::new();
        let mut todo = vec![nodes::root(root, level)];
        while let Some(place) = todo.pop() {
            if place.pointer.birth <= part.after || place.high <= part.cursor {
                continue;
            }
            found.insert(place.pointer.addresses[0], place.pointer);
            let inside = match self.open(&place) {
                Ok(inside) => inside,
                Err(error) => {
                    broken(&place, error);
                    continue;
                }
            };
            todo.extend_from_slice(&inside.children);
            let young = inside.blocks.iter().filter(|block| block.birth > part.after);
            found.extend(young.map(|block| (block.addresses[0], *block)));
        }
        found
    }

    fn open(&mut self, place: &Miss) -> Result<Arc<Inside>, Error> {
        match self.known.entry(place.pointer.addresses[0]) {
            Entry::Occupied(known) => Ok(known.get().clone()),
            Entry::Vacant(free) => {
                let node = nodes::read(self.engine, place)?;
                let blocks = nodes::items(&node).filter_map(|(leaf, item)| leaf.pointer(item)).collect();
                Ok(free.insert(Arc::new(Inside { children: nodes::children(&node), blocks })).clone())
            }
        }
    }
}
