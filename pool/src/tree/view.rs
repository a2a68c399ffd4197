//! Reading an open tree.

use std::{ops::Range, sync::Arc};

use crate::{
    format::{key::Key, pointer::BlockPointer},
    space::Seen,
    tree::{
        cell::{Cell, Slot},
        node::{Interior, Item, ItemBlock, Leaf, Node, PutBlock},
        record::Record,
    },
    units::Txg,
};

/// A node needed and not in memory: its pointer, and its expected level and range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The node's pointer.
    pub pointer: BlockPointer,
    /// The level, 0 for a leaf.
    pub level: u8,
    /// The first key of its range.
    pub low: Key,
    /// The end of its range.
    pub high: Key,
}

/// A source of stored nodes without I/O: the cache, and nodes pinned by the caller.
pub trait NodeSource {
    /// The node of `pointer`, if it is in memory.
    fn node(&self, pointer: &BlockPointer) -> Option<Arc<Node>>;
}

/// A tree's root: its slot, and its level.
#[derive(Clone, Debug)]
pub struct Root {
    /// The root node's address, or its dirty cell.
    pub slot: Slot,
    /// The level, 0 for a leaf.
    pub level: u8,
}

impl Root {
    /// An empty tree, made in the open transaction group.
    pub fn empty(txg: Txg) -> Root {
        Root { slot: Slot::Dirty(Cell::new(txg, Arc::new(Node::empty()))), level: 0 }
    }

    /// The root of a tree stored at `pointer`.
    pub fn stored(pointer: BlockPointer, level: u8) -> Root {
        Root { slot: Slot::Clean(pointer), level }
    }
}

/// The block of an item, in its present state.
#[derive(Clone, Debug)]
pub enum Block {
    /// Stored at this pointer.
    Stored(BlockPointer),
    /// In memory, not yet stored.
    Pending(Arc<Record>),
}

impl Block {
    /// The pointer, if the block is stored.
    pub fn pointer(&self) -> Option<BlockPointer> {
        match self {
            Block::Stored(pointer) => Some(*pointer),
            Block::Pending(record) => record.pointer().copied(),
        }
    }

    /// Whether both are the same block.
    pub fn same(&self, other: &Block) -> bool {
        match (self, other) {
            (Block::Pending(one), Block::Pending(two)) => Arc::ptr_eq(one, two),
            _ => match (self.pointer(), other.pointer()) {
                // An address is used again after its block was freed.
                (Some(one), Some(two)) => (one.addresses, one.birth) == (two.addresses, two.birth),
                _ => false,
            },
        }
    }

    pub(super) fn put(block: Option<&Block>) -> PutBlock {
        match block {
            None => PutBlock::None,
            Some(Block::Stored(pointer)) => PutBlock::Stored(*pointer),
            Some(Block::Pending(record)) => PutBlock::Pending(record.clone()),
        }
    }
}

/// An item found in a tree. Keeps its leaf in memory.
#[derive(Clone, Debug)]
pub struct Entry {
    leaf: Arc<Node>,
    index: usize,
}

impl Entry {
    fn item(&self) -> (&Leaf, &Item) {
        let leaf = self.leaf.leaf().expect("an entry stands in a leaf");
        (leaf, &leaf.items()[self.index])
    }

    /// The key, unique in its tree.
    pub fn key(&self) -> Key {
        self.item().1.key()
    }

    /// The body, as the upper layer coded it.
    pub fn body(&self) -> &[u8] {
        let (leaf, item) = self.item();
        leaf.body(item)
    }

    /// The item's block in its present state.
    pub fn block(&self) -> Option<Block> {
        let (leaf, item) = self.item();
        match item.block() {
            ItemBlock::None => None,
            ItemBlock::Stored(_) => leaf.pointer(item).map(Block::Stored),
            ItemBlock::Pending(record) => {
                Some(record.pointer().map_or_else(|| Block::Pending(record.clone()), |pointer| Block::Stored(*pointer)))
            }
        }
    }
}

/// A tree at one instant.
#[derive(Clone, Copy)]
pub struct View<'a> {
    root: &'a Root,
    nodes: &'a dyn NodeSource,
    txg: Txg,
    seen: Seen,
}

/// A node on the way down, with its range according to its parent.
pub(super) struct Step<'a> {
    pub(super) slot: &'a Slot,
    pub(super) level: u8,
    pub(super) low: Key,
    pub(super) high: Key,
}

impl<'a> Step<'a> {
    /// The way to a tree's root.
    pub(super) fn root(root: &'a Root) -> Step<'a> {
        Step { slot: &root.slot, level: root.level, low: Key::MIN, high: Key::MAX }
    }

    /// The step to a child of a node whose range ends at `high`.
    pub(super) fn below(interior: &'a Interior, index: usize, high: Key) -> Step<'a> {
        let child = &interior.children[index];
        Step { slot: &child.slot, level: interior.level - 1, low: child.low, high: interior.high(index, high) }
    }

    pub(super) fn load(&self, nodes: &dyn NodeSource) -> Result<Arc<Node>, Miss> {
        if let Slot::Dirty(cell) = self.slot
            && let Some(node) = cell.node()
        {
            return Ok(node);
        }
        let pointer = *self.slot.pointer().expect("a slot without a node has an address");
        // A corrupt pointer may lead to a node in memory that belongs elsewhere: the read then reports the damage.
        let meant = |node: &Arc<Node>| (node.level(), node.low, node.high) == (self.level, self.low, self.high);
        let miss = Miss { pointer, level: self.level, low: self.low, high: self.high };
        nodes.node(&pointer).filter(meant).ok_or(miss)
    }

    /// Adds the missing nodes of a range that intersects this step's range.
    fn away(&self, nodes: &dyn NodeSource, range: &Range<Key>, away: &mut Vec<Miss>) {
        let node = match self.load(nodes) {
            Ok(node) => node,
            Err(miss) => return away.push(miss),
        };
        let Some(interior) = node.interior() else { return };
        for index in interior.find(range.start)..interior.children.len() {
            let step = Step::below(interior, index, self.high);
            if step.low >= range.end {
                return;
            }
            step.away(nodes, range, away);
        }
    }
}

impl<'a> View<'a> {
    /// A view of `root`; `txg` is the open transaction group, or the group of a frozen tree.
    pub fn new(root: &'a Root, nodes: &'a dyn NodeSource, txg: Txg) -> View<'a> {
        View { root, nodes, txg, seen: Seen::NEVER }
    }

    /// The view with the token of a tree of an opened pool.
    pub(crate) fn seen_then(self, seen: Seen) -> View<'a> {
        View { seen, ..self }
    }

    /// The token to read blocks found in this view later.
    pub fn seen(&self) -> Seen {
        self.seen
    }

    /// The transaction group of changes made now.
    pub fn txg(&self) -> Txg {
        self.txg
    }

    /// The item under `key`.
    pub fn get(&self, key: Key) -> Result<Option<Entry>, Miss> {
        let leaf = self.descend(|interior| interior.find(key))?;
        let found = leaf.leaf().expect("the way down ends at a leaf").search(key);
        Ok(found.ok().map(|index| Entry { leaf, index }))
    }

    /// The items with `range.start <= key < range.end`, in order.
    pub fn range(&self, range: Range<Key>) -> Cursor<'a> {
        Cursor { view: *self, next: range.start, end: range.end, leaf: None }
    }

    /// The first item not below `key` and below `end`.
    pub fn first(&self, range: Range<Key>) -> Result<Option<Entry>, Miss> {
        self.range(range).next().transpose()
    }

    /// The last item below `key`, and not below `start`.
    pub fn last_before(&self, start: Key, key: Key) -> Result<Option<Entry>, Miss> {
        let mut end = key;
        while end > start {
            // The child with the predecessor of `end`, if any child has it.
            let leaf =
                self.descend(|interior| interior.children.partition_point(|child| child.low < end).saturating_sub(1))?;
            let index = leaf.leaf().expect("the way down ends at a leaf").search(end).unwrap_or_else(|index| index);
            if let Some(index) = index.checked_sub(1) {
                let entry = Entry { leaf, index };
                return Ok((entry.key() >= start).then_some(entry));
            }
            end = leaf.low;
        }
        Ok(None)
    }

    /// The nodes on the way to the items of a range that are not in memory, in order. Nodes below a missing node are
    /// unknown.
    pub fn away(&self, range: Range<Key>) -> Vec<Miss> {
        let mut away = Vec::new();
        if !range.is_empty() {
            Step::root(self.root).away(self.nodes, &range, &mut away);
        }
        away
    }

    fn descend(&self, choose: impl Fn(&Interior) -> usize) -> Result<Arc<Node>, Miss> {
        let mut node = Step::root(self.root).load(self.nodes)?;
        while let Some(interior) = node.interior() {
            node = Step::below(interior, choose(interior), node.high).load(self.nodes)?;
        }
        Ok(node)
    }
}

/// Walks a range of items.
pub struct Cursor<'a> {
    view: View<'a>,
    next: Key,
    end: Key,
    leaf: Option<(Arc<Node>, usize)>,
}

impl Iterator for Cursor<'_> {
    type Item = Result<Entry, Miss>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.next < self.end {
            let (leaf, index) = match self.leaf.take() {
                Some(place) => place,
                None => match self.view.descend(|interior| interior.find(self.next)) {
                    Ok(leaf) => {
                        let found = leaf.leaf().expect("the way down ends at a leaf").search(self.next);
                        (leaf, found.unwrap_or_else(|index| index))
                    }
                    Err(miss) => return Some(Err(miss)),
                },
            };
            if let Some(item) = leaf.leaf().expect("a cursor stands on a leaf").items().get(index) {
                let key = item.key();
                if key >= self.end {
                    self.next = self.end;
                    return None;
                }
                self.next = key.successor();
                self.leaf = Some((leaf.clone(), index + 1));
                return Some(Ok(Entry { leaf, index }));
            }
            self.next = leaf.high;
        }
        None
    }
}
