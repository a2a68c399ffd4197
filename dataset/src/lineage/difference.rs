//! The difference of two trees.
//!
//! Both trees are walked side by side. Shared subtrees have equal pointers and are skipped unread, so the cost is
//! proportional to the changes. Either tree may be a snapshot, the last written tree of a dataset, or empty. If a tree
//! is destroyed meanwhile, the comparison fails.

use std::{cmp::Ordering, collections::VecDeque, sync::Arc};

use pool::{
    format::{key::Key, pointer::BlockPointer},
    tree::{Miss, Node},
    txg::Head,
};

use super::nodes;
use crate::error::Result;

/// A stored tree's root and its level.
pub type StoredRoot = (BlockPointer, u8);

/// An item of a stored tree.
#[derive(Clone, Debug)]
pub struct Found {
    leaf: Arc<Node>,
    index: usize,
}

impl Found {
    fn parts(&self) -> (&pool::tree::Leaf, &pool::tree::Item) {
        let leaf = self.leaf.leaf().expect("an item stands in a leaf");
        (leaf, &leaf.items()[self.index])
    }

    /// The key, unique in its tree.
    pub fn key(&self) -> Key {
        self.parts().1.key()
    }

    /// The item's coded body.
    pub fn body(&self) -> &[u8] {
        let (leaf, item) = self.parts();
        leaf.body(item)
    }

    /// The pointer of the item's block, if any.
    pub fn block(&self) -> Option<BlockPointer> {
        let (leaf, item) = self.parts();
        leaf.pointer(item)
    }

    fn same(&self, other: &Found) -> bool {
        self.body() == other.body() && self.block() == other.block()
    }
}

/// An item that differs between two trees.
#[derive(Clone, Debug)]
pub struct Change {
    /// The key in both trees.
    pub key: Key,
    /// The item in the first tree.
    pub old: Option<Found>,
    /// The item in the second tree.
    pub new: Option<Found>,
}

/// Calls `each` for every difference between two unchanging trees, in key order.
pub fn compare(old: Option<&Head>, new: Option<&Head>, mut each: impl FnMut(Change) -> Result<()>) -> Result<()> {
    let (mut old, mut new) = (Side::new(old), Side::new(new));
    loop {
        match (old.front(), new.front()) {
            (None, None) => return Ok(()),
            (Some(Part::Tree(one)), Some(Part::Tree(two))) if one.pointer == two.pointer => {
                old.parts.pop_front();
                new.parts.pop_front();
            }
            (Some(Part::Tree(one)), Some(Part::Tree(two))) => {
                // Open the subtree with the higher level; with equal levels, the first in key order.
                let first = two.level.cmp(&one.level).then(one.low.cmp(&two.low));
                if first == Ordering::Greater { new.open()? } else { old.open()? }
            }
            (Some(Part::Tree(tree)), Some(Part::Item(item))) if tree.low > item.key() => each(new.only_new())?,
            (Some(Part::Item(item)), Some(Part::Tree(tree))) if tree.low > item.key() => each(old.only_old())?,
            (Some(Part::Tree(_)), _) => old.open()?,
            (_, Some(Part::Tree(_))) => new.open()?,
            (Some(Part::Item(one)), Some(Part::Item(two))) => match one.key().cmp(&two.key()) {
                Ordering::Less => each(old.only_old())?,
                Ordering::Greater => each(new.only_new())?,
                Ordering::Equal => {
                    let (one, two) = (old.take(), new.take());
                    if !one.same(&two) {
                        each(Change { key: one.key(), old: Some(one), new: Some(two) })?;
                    }
                }
            },
            (Some(Part::Item(_)), None) => each(old.only_old())?,
            (None, Some(Part::Item(_))) => each(new.only_new())?,
        }
    }
}

/// The rest of one tree: unopened subtrees and items, in order.
struct Side<'a> {
    tree: Option<&'a Head>,
    parts: VecDeque<Part>,
}

enum Part {
    Tree(Miss),
    Item(Found),
}

impl<'a> Side<'a> {
    fn new(tree: Option<&'a Head>) -> Side<'a> {
        let root = tree.and_then(Head::clean_root);
        let whole = root.map(|(pointer, level)| Part::Tree(nodes::root(pointer, level)));
        Side { tree, parts: whole.into_iter().collect() }
    }

    fn front(&self) -> Option<&Part> {
        self.parts.front()
    }

    /// Replaces the first part, a subtree, by the children or items of its root.
    fn open(&mut self) -> Result<()> {
        let (Some(Part::Tree(place)), Some(tree)) = (self.parts.pop_front(), self.tree) else {
            unreachable!("the caller has looked")
        };
        let node = tree.load_node(&place)?;
        for child in nodes::children(&node).into_iter().rev() {
            self.parts.push_front(Part::Tree(child));
        }
        for index in (0..node.leaf().map_or(0, |leaf| leaf.items().len())).rev() {
            self.parts.push_front(Part::Item(Found { leaf: node.clone(), index }));
        }
        Ok(())
    }

    /// Removes the first part, an item.
    fn take(&mut self) -> Found {
        let Some(Part::Item(item)) = self.parts.pop_front() else { unreachable!("the caller has looked") };
        item
    }

    fn only_old(&mut self) -> Change {
        let item = self.take();
        Change { key: item.key(), old: Some(item), new: None }
    }

    fn only_new(&mut self) -> Change {
        let item = self.take();
        Change { key: item.key(), old: None, new: Some(item) }
    }
}
