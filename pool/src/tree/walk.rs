//! Walking the nodes of a stored tree: for destroying, sending, comparing and checking.

use std::sync::Arc;

use crate::{
    error::Result,
    format::key::Key,
    tree::{
        node::Node,
        view::{Miss, Root},
    },
    units::Txg,
};

/// A place in the walk. Every node is entered before its children and left after them. Destroying a tree frees nodes on
/// leaving: a node exists as long as anything under it.
#[derive(Debug)]
pub enum Event {
    /// The walk goes down to the node's children.
    Enter(Miss, Arc<Node>),
    /// The walk has left all of the node's children.
    Leave(Miss, Arc<Node>),
}

/// Walks the nodes of a stored tree in key order, those born after a given transaction group. An older node is skipped
/// with its whole subtree, because nothing reachable from a node is younger.
#[derive(Debug)]
pub struct Walker {
    from: Key,
    born_after: Txg,
    pending: Option<Miss>,
    stack: Vec<(Miss, Arc<Node>, usize)>,
}

impl Miss {
    /// The root of a stored tree.
    pub fn root(root: &Root) -> Option<Miss> {
        let pointer = *root.slot.pointer()?;
        Some(Miss { pointer, level: root.level, low: Key::MIN, high: Key::MAX })
    }
}

impl Walker {
    /// A walk over the nodes under `root` with a range that ends after `from`, born after `born_after`.
    pub fn new(root: Miss, from: Key, born_after: Txg) -> Walker {
        Walker { from, born_after, pending: Some(root), stack: Vec::new() }
    }

    /// The next nodes of the walk under its present node, in order.
    pub fn coming(&self) -> impl Iterator<Item = Miss> {
        let below = self.stack.last().into_iter().flat_map(|(place, node, next)| {
            let left = node.interior().map_or(0..0, |interior| *next..interior.children.len());
            left.filter_map(|at| child(place, node, at))
        });
        self.pending.into_iter().chain(below).filter(|place| self.is_met(place))
    }

    /// Whether a node belongs to the walk.
    fn is_met(&self, place: &Miss) -> bool {
        place.pointer.birth > self.born_after && place.high > self.from
    }

    /// The next step. `load` reads a node.
    pub fn next(&mut self, mut load: impl FnMut(&Miss) -> Result<Arc<Node>>) -> Result<Option<Event>> {
        loop {
            if let Some(place) = self.pending.take() {
                if !self.is_met(&place) {
                    continue;
                }
                let node = match load(&place) {
                    Ok(node) => node,
                    Err(error) => {
                        self.pending = Some(place);
                        return Err(error);
                    }
                };
                self.stack.push((place, node.clone(), 0));
                return Ok(Some(Event::Enter(place, node)));
            }
            let Some((place, node, next)) = self.stack.last_mut() else { return Ok(None) };
            match child(place, node, *next) {
                Some(below) => {
                    self.pending = Some(below);
                    *next += 1;
                }
                None => {
                    let event = Event::Leave(*place, node.clone());
                    self.stack.pop();
                    return Ok(Some(event));
                }
            }
        }
    }

    /// Skips an unreadable node with its subtree.
    pub fn skip(&mut self) {
        self.pending = None;
    }
}

/// A child of a stored node; `None` for a leaf, or if there are fewer children.
fn child(place: &Miss, node: &Node, index: usize) -> Option<Miss> {
    let interior = node.interior()?;
    let child = interior.children.get(index)?;
    let pointer = *child.slot.pointer().expect("a stored node's children are stored");
    Some(Miss { pointer, level: place.level - 1, low: child.low, high: interior.high(index, node.high) })
}
