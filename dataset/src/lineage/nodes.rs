//! Reading stored trees without an open head: trees being freed, compared or checked.

use std::sync::Arc;

use pool::{
    error::Result,
    format::{key::Key, pointer::BlockPointer},
    space::Seen,
    tree::{Item, Leaf, Miss, Node},
    txg::Engine,
};

/// The place of a tree's root: a stored pointer and its level.
pub fn root(pointer: BlockPointer, level: u8) -> Miss {
    Miss { pointer, level, low: Key::MIN, high: Key::MAX }
}

/// Reads the node at `place`; `seen` is the moment at which the place was looked up.
pub fn read(engine: &Engine, place: &Miss, seen: Seen) -> Result<Arc<Node>> {
    engine.load_node(place, seen)
}

/// The places of a node's children; none for a leaf.
pub fn children(node: &Node) -> Vec<Miss> {
    let Some(interior) = node.interior() else { return Vec::new() };
    let place = |(index, child): (usize, &pool::tree::Child)| {
        let pointer = *child.slot.pointer().expect("children of a stored node are stored");
        Miss { pointer, level: interior.level - 1, low: child.low, high: interior.high(index, node.high) }
    };
    interior.children.iter().enumerate().map(place).collect()
}

/// The items of a leaf; none for an interior node.
pub fn items(node: &Node) -> impl Iterator<Item = (&Leaf, &Item)> {
    node.leaf().into_iter().flat_map(|leaf| leaf.items().iter().map(move |item| (leaf, item)))
}
