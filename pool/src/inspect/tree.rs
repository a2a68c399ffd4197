//! The nodes and items of a tree.

use std::io;

use super::{Item, Sink, block_text};
use crate::{
    format::{key::Key, pointer::BlockPointer},
    tree::{Event, Miss, Root, Walker},
    txg::Engine,
    units::Txg,
};

/// Describes an item by its key, its body and its block, on behalf of the tree's owner; `None` leaves the item out.
pub type Describe<'a> = &'a dyn Fn(Key, &[u8], Option<&BlockPointer>) -> Option<Item>;

/// Emits the nodes of a stored tree with keys in `keys`, in order, and the items of each leaf. With `nodes` false,
/// emits only items and damage.
pub fn tree(
    engine: &Engine,
    root: (BlockPointer, u8),
    keys: std::ops::Range<Key>,
    nodes: bool,
    describe: Describe<'_>,
    sink: Sink<'_>,
) -> io::Result<()> {
    let top = root.1;
    let root = Miss::root(&Root::stored(root.0, root.1)).expect("a stored root has an address");
    // The pool should not change meanwhile; if it does, freed nodes are not read.
    let seen = engine.seen();
    let mut walker = Walker::new(root, keys.start, Txg::ZERO);
    loop {
        match walker.next(|miss| engine.load_node(miss, seen)) {
            Ok(Some(Event::Enter(place, node))) => {
                if place.low >= keys.end {
                    return Ok(());
                }
                let depth = if nodes { usize::from(top.saturating_sub(place.level)) } else { 0 };
                if nodes {
                    let count = node.leaf().map_or_else(
                        || node.interior().map_or(0, |interior| interior.children.len()),
                        |leaf| leaf.items().len(),
                    );
                    let what = if place.level == 0 { "leaf" } else { "interior node" };
                    let item = Item::new(depth, what).with("level", place.level).with("from", place.low);
                    sink(item.with("entries", count).with("at", block_text(&place.pointer)))?;
                }
                let Some(leaf) = node.leaf() else { continue };
                for item in leaf.items().iter().filter(|item| keys.contains(&item.key())) {
                    let pointer = leaf.pointer(item);
                    if let Some(mut found) = describe(item.key(), leaf.body(item), pointer.as_ref()) {
                        found.depth += depth + usize::from(nodes);
                        sink(found)?;
                    }
                }
            }
            Ok(Some(Event::Leave(..))) => {}
            Ok(None) => return Ok(()),
            Err(error) => {
                sink(Item::damaged(0, "node, and all under it", error))?;
                walker.skip();
            }
        }
    }
}
