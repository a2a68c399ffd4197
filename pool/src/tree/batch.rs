//! Changing a tree: puts and deletes that take effect together.
//!
//! Applying a batch has two passes. The first only reads: it walks to every leaf to be changed and to the possible
//! merge neighbours of emptied leaves, and fails with a [`Miss`] before anything has changed. The second cannot fail.

use std::{cell::RefCell, mem, sync::Arc};

use smallvec::SmallVec;

use crate::{
    format::{
        key::Key,
        pointer::{Address, BlockPointer},
    },
    tree::{
        cell::{Cell, Slot},
        node::{Child, Content, Interior, NODE_LOW, NODE_MERGED, Node, PutBlock},
        record::Record,
        view::{Block, Miss, NodeSource, Root, Step},
    },
    units::Txg,
};

/// A block dropped by the open tree. Once the transaction group is written, the tree's owner decides whether to free
/// the block or keep it for a snapshot.
#[derive(Clone, Debug)]
pub enum Kill {
    /// A block that is already stored.
    Stored(BlockPointer),
    /// A record. If it was never stored, it belongs to the group that dropped it, and there is nothing to free.
    Record(Arc<Record>),
    /// A node of an older transaction group, which sync may be storing right now.
    Node(Arc<Cell>),
}

impl Kill {
    /// Where the block is. To be asked after the transaction group before the kill's own was written.
    pub fn pointer(&self) -> Option<BlockPointer> {
        match self {
            Kill::Stored(pointer) => Some(*pointer),
            Kill::Record(record) => record.pointer().copied(),
            Kill::Node(cell) => Some(*cell.pointer().expect("a node of an earlier transaction group is stored")),
        }
    }
}

#[derive(Clone, Debug)]
enum Change {
    Put { body: Vec<u8>, block: PutBlock },
    Delete,
}

/// Changes that take effect together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In order of the calls; the last change of a key wins.
    changes: Vec<(Key, Change)>,
    kills: Vec<Kill>,
    shares: Vec<BlockPointer>,
    touched: Vec<Key>,
}

impl Batch {
    /// Puts an item, replacing any item under the same key. The key must be below [`Key::MAX`].
    pub fn put(&mut self, key: Key, body: impl Into<Vec<u8>>, block: Option<&Block>) {
        assert!(key < Key::MAX);
        self.changes.push((key, Change::Put { body: body.into(), block: Block::put(block) }));
    }

    /// Deletes the item under `key`, if any.
    pub fn delete(&mut self, key: Key) {
        self.changes.push((key, Change::Delete));
    }

    /// Notes that the block of the item under `key` was edited in place, for the intent log.
    pub fn touch(&mut self, key: Key) {
        self.touched.push(key);
    }

    /// The keys of all items put, deleted or touched, unordered and with repetitions.
    pub(crate) fn keys(&self) -> impl Iterator<Item = Key> {
        self.changes.iter().map(|(key, _)| *key).chain(self.touched.iter().copied())
    }

    /// Drops a block: after the batch no item of this tree may refer to it.
    pub fn kill(&mut self, block: Block) {
        self.kills.push(match block {
            Block::Stored(pointer) => Kill::Stored(pointer),
            Block::Pending(record) => Kill::Record(record),
        });
    }

    /// Takes a further reference to a block written by another owner. Call this once for each reference, when its first
    /// item is put; its last item kills the reference.
    pub fn share(&mut self, pointer: BlockPointer) {
        self.shares.push(pointer);
    }

    /// Takes out the references noted by [`Batch::share`].
    pub(crate) fn take_shares(&mut self) -> Vec<BlockPointer> {
        mem::take(&mut self.shares)
    }

    /// Whether the batch changes nothing.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.kills.is_empty() && self.shares.is_empty()
    }

    /// Applies the batch to a tree whose exclusive lock the caller holds. `txg` is the open transaction group. Dropped
    /// blocks and nodes are appended to `kills`. Returns the growth of the tree's dirty nodes.
    pub fn apply(
        self,
        root: &mut Root,
        txg: Txg,
        nodes: &dyn NodeSource,
        kills: &mut Vec<Kill>,
    ) -> Result<Growth, Miss> {
        if self.changes.is_empty() {
            kills.extend(self.kills);
            return Ok(Growth::default());
        }
        let mut changes = self.changes;
        sort(&mut changes);
        let nodes = &Pinned { nodes, txg, found: RefCell::default(), held: RefCell::default() };
        require(&Step::root(root), &changes, nodes)?;
        let mut editor = Editor { txg, nodes, kills, grown: Growth::default() };
        let siblings = editor.change(&mut root.slot, &changes);
        editor.fit_root(root, siblings);
        let grown = editor.grown;
        kills.extend(self.kills);
        Ok(grown)
    }
}

/// By how much the dirty nodes of a tree have grown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// In bytes of memory, roughly.
    pub bytes: usize,
    /// The number of additional dirty nodes.
    pub nodes: usize,
}

impl Growth {
    fn add(&mut self, node: &Node) {
        self.bytes += node.weight();
        self.nodes += 1;
    }
}

/// Sorts the changes by key, and keeps the last change of each key.
fn sort(changes: &mut Vec<(Key, Change)>) {
    changes.sort_by_key(|(key, _)| *key);
    changes.dedup_by(|later, earlier| {
        let is_same = later.0 == earlier.0;
        if is_same {
            mem::swap(later, earlier);
        }
        is_same
    });
}

/// A child's index and the changes in its range.
type Part<'a> = (usize, &'a [(Key, Change)]);

/// The changes in the range of each child of `interior`, with the child's index.
fn by_child<'a>(interior: &Interior, changes: &'a [(Key, Change)]) -> SmallVec<[Part<'a>; 4]> {
    let mut parts = SmallVec::new();
    let mut rest = changes;
    while let Some((first, _)) = rest.first() {
        let index = interior.find(*first);
        let next = interior.children.get(index + 1);
        let len = next.map_or(rest.len(), |next| rest.partition_point(|(key, _)| *key < next.low));
        let (part, others) = rest.split_at(len);
        parts.push((index, part));
        rest = others;
    }
    parts
}

/// Fails if a node needed by `changes` is not in memory.
fn require(step: &Step<'_>, changes: &[(Key, Change)], nodes: &Pinned<'_>) -> Result<(), Miss> {
    let node = nodes.load(step)?;
    let Some(interior) = node.interior() else { return Ok(()) };
    for (index, part) in by_child(interior, changes) {
        let child = |index: usize| Step::below(interior, index, node.high);
        require(&child(index), part, nodes)?;
        let shrinks = part.iter().any(|(_, change)| matches!(change, Change::Delete));
        if shrinks && nodes.load(&child(index))?.bound() < NODE_LOW {
            let neighbour = if index + 1 < interior.children.len() { index + 1 } else { index.saturating_sub(1) };
            nodes.load(&child(neighbour))?;
        }
    }
    Ok(())
}

/// Keeps the nodes found by the first pass. Before the second pass, other threads' reads may evict them from the cache,
/// and sync, storing the nodes of the previous group, may release them.
struct Pinned<'a> {
    nodes: &'a dyn NodeSource,
    txg: Txg,
    found: RefCell<Vec<(Address, Arc<Node>)>>,
    held: RefCell<Vec<(Arc<Cell>, Arc<Node>)>>,
}

impl Pinned<'_> {
    fn load(&self, step: &Step<'_>) -> Result<Arc<Node>, Miss> {
        let node = step.load(self)?;
        if let Slot::Dirty(cell) = step.slot
            && cell.txg() != self.txg
        {
            self.held.borrow_mut().push((cell.clone(), node.clone()));
        }
        Ok(node)
    }

    /// The node in `slot`, loaded by the first pass.
    fn loaded(&self, slot: &Slot) -> Option<Arc<Node>> {
        if let Slot::Dirty(cell) = slot {
            let held = self.held.borrow();
            let held = held.iter().find(|(other, _)| Arc::ptr_eq(other, cell)).map(|(_, node)| node.clone());
            return held.or_else(|| cell.node());
        }
        self.node(slot.pointer()?)
    }
}

impl NodeSource for Pinned<'_> {
    fn node(&self, pointer: &BlockPointer) -> Option<Arc<Node>> {
        let address = pointer.addresses[0];
        let mut found = self.found.borrow_mut();
        if let Some((_, node)) = found.iter().rev().find(|(other, _)| *other == address) {
            return Some(node.clone());
        }
        let node = self.nodes.node(pointer)?;
        found.push((address, node.clone()));
        Some(node)
    }
}

struct Editor<'a> {
    txg: Txg,
    nodes: &'a Pinned<'a>,
    kills: &'a mut Vec<Kill>,
    grown: Growth,
}

impl Editor<'_> {
    /// Applies `changes` under `slot`. Returns the nodes split off to its right.
    fn change(&mut self, slot: &mut Slot, changes: &[(Key, Change)]) -> Vec<Child> {
        let cell = self.own(slot);
        let right = cell.edit(|node| {
            let before = node.bound();
            let grew_at_end = match &mut node.content {
                Content::Leaf(leaf) => {
                    let mut last = 0;
                    for (key, change) in changes {
                        match change {
                            Change::Put { body, block } => last = leaf.put(*key, body, block),
                            Change::Delete => drop(leaf.delete(*key)),
                        }
                    }
                    last + 1 == leaf.items().len()
                }
                Content::Interior(interior) => self.change_children(interior, node.high, changes),
            };
            self.grown.bytes += node.bound().saturating_sub(before);
            split(node, grew_at_end)
        });
        right.into_iter().map(|node| self.adopt(node)).collect()
    }

    /// Returns whether the last child was split.
    fn change_children(&mut self, interior: &mut Interior, high: Key, changes: &[(Key, Change)]) -> bool {
        // From last to first, so that the indices still to come stay valid.
        let mut grew_at_end = false;
        for (index, part) in by_child(interior, changes).into_iter().rev() {
            let siblings = self.change(&mut interior.children[index].slot, part);
            if siblings.is_empty() {
                self.merge_around(interior, index, high);
            } else {
                grew_at_end |= index + 1 == interior.children.len();
                interior.children.splice(index + 1..index + 1, siblings);
            }
        }
        grew_at_end
    }

    /// Merges a child that has become small with a neighbour, if the neighbour is in memory and the two fit.
    fn merge_around(&mut self, interior: &mut Interior, index: usize, high: Key) {
        let load = |editor: &Self, interior: &Interior, index: usize| {
            editor.nodes.load(&Step::below(interior, index, high)).ok()
        };
        let Some(node) = load(self, interior, index).filter(|node| node.bound() < NODE_LOW) else { return };
        let left = if index + 1 < interior.children.len() { index } else { index.saturating_sub(1) };
        if left + 1 >= interior.children.len() {
            return;
        }
        let neighbour = if left == index { index + 1 } else { left };
        let Some(other) = load(self, interior, neighbour) else { return };
        if node.bound() + other.bound() > NODE_MERGED && !node.is_empty() && !other.is_empty() {
            return;
        }
        let right = if left == index { other } else { node };
        let removed = interior.children.remove(left + 1);
        self.own(&mut interior.children[left].slot).edit(|node| node.merge(&right));
        self.drop_slot(removed.slot);
    }

    /// Adjusts the root's height: one more level for nodes split off the root, one less while it has a single child.
    fn fit_root(&mut self, root: &mut Root, siblings: Vec<Child>) {
        let mut siblings = siblings;
        while !siblings.is_empty() {
            root.level += 1;
            let mut children = vec![Child { low: Key::MIN, slot: root.slot.clone() }];
            children.append(&mut siblings);
            let mut node = Node {
                low: Key::MIN,
                high: Key::MAX,
                content: Content::Interior(Interior { level: root.level, children }),
            };
            let right = split(&mut node, false);
            siblings = right.into_iter().map(|node| self.adopt(node)).collect();
            root.slot = Slot::Dirty(Cell::new(self.txg, Arc::new(node)));
        }
        while let Some(only) = self.only_child(root) {
            let old = mem::replace(&mut root.slot, only);
            root.level -= 1;
            self.drop_slot(old);
        }
    }

    fn only_child(&self, root: &Root) -> Option<Slot> {
        let Slot::Dirty(cell) = &root.slot else { return None };
        let node = cell.node()?;
        match node.interior()?.children.as_slice() {
            [only] => Some(only.slot.clone()),
            _ => None,
        }
    }

    /// A cell of the open transaction group in `slot`: the present one, or a copy.
    fn own(&mut self, slot: &mut Slot) -> Arc<Cell> {
        if let Slot::Dirty(cell) = slot
            && cell.txg() == self.txg
        {
            return cell.clone();
        }
        let node = self.nodes.loaded(slot).expect("the first pass has found every node");
        self.grown.add(&node);
        let cell = Cell::new(self.txg, node);
        let old = mem::replace(slot, Slot::Dirty(cell.clone()));
        self.drop_slot(old);
        cell
    }

    fn adopt(&mut self, node: Node) -> Child {
        self.grown.add(&node);
        Child { low: node.low, slot: Slot::Dirty(Cell::new(self.txg, Arc::new(node))) }
    }

    fn drop_slot(&mut self, slot: Slot) {
        match slot {
            Slot::Clean(pointer) => self.kills.push(Kill::Stored(pointer)),
            Slot::Dirty(cell) if cell.txg() != self.txg => self.kills.push(Kill::Node(cell)),
            Slot::Dirty(_) => {}
        }
    }
}

/// Splits a node until every part fits; returns the parts to its right.
fn split(node: &mut Node, grew_at_end: bool) -> Vec<Node> {
    let mut parts: Vec<Node> = Vec::new();
    while let Some(right) = parts.last_mut().unwrap_or(node).split(grew_at_end) {
        parts.push(right);
    }
    parts
}
