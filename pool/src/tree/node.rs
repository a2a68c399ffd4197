//! A node of a tree in memory.
//!
//! A leaf keeps the bodies and coded pointers of its items in one heap, so that copying a leaf is copying two buffers.
//! Replaced bytes stay in the heap as waste until the waste is a third of the heap.

use std::sync::Arc;

use crate::{
    format::{
        codec::{Malformed, Reader, malformed},
        key::Key,
        node::{Header, MAX_BODY, NODE_TARGET, NodeReader, NodeWriter, item_bound},
        pointer::{BlockPointer, MAX_POINTER},
    },
    tree::{cell::Slot, record::Record, view::Miss},
    units::Txg,
};

/// The most a child takes in an interior node.
const CHILD_BOUND: usize = item_bound(0, true);
/// A node below this bound is merged with a neighbour, if possible.
pub(super) const NODE_LOW: usize = NODE_TARGET / 4;
/// Two neighbours are merged if the result is at most this large.
pub(super) const NODE_MERGED: usize = NODE_TARGET * 3 / 4;

/// A node: its range of keys, and its content.
#[derive(Clone, Debug)]
pub struct Node {
    /// The first key of its range.
    pub low: Key,
    /// The exclusive end of its range.
    pub high: Key,
    /// Items of a leaf, or children of an interior node.
    pub content: Content,
}

/// The content of a node.
#[derive(Clone, Debug)]
pub enum Content {
    /// The items of a leaf.
    Leaf(Leaf),
    /// The children of an interior node.
    Interior(Interior),
}

/// Children, in order of their ranges. Never empty.
#[derive(Clone, Debug)]
pub struct Interior {
    /// The children's level plus one.
    pub level: u8,
    /// The children, in order of their ranges.
    pub children: Vec<Child>,
}

/// A child and the first key of its range.
#[derive(Clone, Debug)]
pub struct Child {
    /// The first key of its range.
    pub low: Key,
    /// The child's address, or its dirty cell.
    pub slot: Slot,
}

/// Items in order of their keys.
#[derive(Clone, Debug, Default)]
pub struct Leaf {
    items: Vec<Item>,
    heap: Vec<u8>,
    /// Unused bytes of the heap.
    waste: usize,
    /// The most bytes of the coded items.
    bound: usize,
}

/// An item: its body stands in the leaf's heap, followed by the coded pointer of a stored block.
#[derive(Clone, Debug)]
pub struct Item {
    key: Key,
    start: u32,
    body: u16,
    block: ItemBlock,
}

/// The block of an item.
#[derive(Clone, Debug)]
pub enum ItemBlock {
    /// The item has no block.
    None,
    /// A stored block, with the length of its coded pointer.
    Stored(u8),
    /// A block still to be stored, or stored lately.
    Pending(Arc<Record>),
}

impl Node {
    /// The root of an empty tree.
    pub fn empty() -> Node {
        Node { low: Key::MIN, high: Key::MAX, content: Content::Leaf(Leaf::default()) }
    }

    /// The level, 0 for a leaf.
    pub fn level(&self) -> u8 {
        match &self.content {
            Content::Leaf(_) => 0,
            Content::Interior(interior) => interior.level,
        }
    }

    /// The most bytes of the coded node, without its header.
    pub fn bound(&self) -> usize {
        match &self.content {
            Content::Leaf(leaf) => leaf.bound,
            Content::Interior(interior) => interior.children.len() * CHILD_BOUND,
        }
    }

    /// How much memory the node takes, roughly, in bytes.
    pub fn weight(&self) -> usize {
        match &self.content {
            Content::Leaf(leaf) => size_of::<Node>() + leaf.items.capacity() * size_of::<Item>() + leaf.heap.capacity(),
            Content::Interior(interior) => size_of::<Node>() + interior.children.capacity() * size_of::<Child>(),
        }
    }

    /// The leaf's content; `None` for an interior node.
    pub fn leaf(&self) -> Option<&Leaf> {
        match &self.content {
            Content::Leaf(leaf) => Some(leaf),
            Content::Interior(_) => None,
        }
    }

    /// The interior node's content; `None` for a leaf.
    pub fn interior(&self) -> Option<&Interior> {
        match &self.content {
            Content::Leaf(_) => None,
            Content::Interior(interior) => Some(interior),
        }
    }

    /// Whether the node is a leaf without items.
    pub(super) fn is_empty(&self) -> bool {
        self.leaf().is_some_and(|leaf| leaf.items.is_empty())
    }

    /// A copy with the addresses of all blocks and children, which must be stored: for coding and for the cache.
    pub fn resolved(&self) -> Node {
        let content = match &self.content {
            Content::Leaf(leaf) => Content::Leaf(leaf.resolved()),
            Content::Interior(interior) => {
                let children = interior.children.iter().map(|child| {
                    let pointer = *child.slot.pointer().expect("children are stored before their parent");
                    Child { low: child.low, slot: Slot::Clean(pointer) }
                });
                Content::Interior(Interior { level: interior.level, children: children.collect() })
            }
        };
        Node { low: self.low, high: self.high, content }
    }

    /// The coded node, written by `txg`. All blocks and children must be stored and resolved.
    pub fn encode(&self, txg: Txg) -> Vec<u8> {
        let count = match &self.content {
            Content::Leaf(leaf) => leaf.items.len(),
            Content::Interior(interior) => interior.children.len(),
        };
        let header = Header { level: self.level(), txg, low: self.low, high: self.high, count: count as u32 };
        let mut writer = NodeWriter::new(&header);
        match &self.content {
            Content::Leaf(leaf) => {
                for item in &leaf.items {
                    writer.item(item.key, leaf.body(item), leaf.coded_pointer(item));
                }
            }
            Content::Interior(interior) => {
                for child in &interior.children {
                    let pointer = child.slot.pointer().expect("children are stored before their parent");
                    writer.child(child.low, pointer);
                }
            }
        }
        writer.finish()
    }

    /// Decodes a node, and the transaction group that wrote it.
    pub fn decode(bytes: &[u8]) -> Result<(Node, Txg), Malformed> {
        let mut reader = NodeReader::new(bytes)?;
        let Header { level, txg, low, high, count } = *reader.header();
        let content = if level == 0 {
            let mut leaf = Leaf { items: Vec::with_capacity(count as usize), ..Leaf::default() };
            leaf.heap.reserve_exact(bytes.len());
            for _ in 0..count {
                let raw = reader.item()?;
                leaf.push(raw.key, raw.body, raw.block);
            }
            Content::Leaf(leaf)
        } else {
            let mut children = Vec::with_capacity(count as usize);
            for _ in 0..count {
                let (low, pointer) = reader.child()?;
                children.push(Child { low, slot: Slot::Clean(pointer) });
            }
            Content::Interior(Interior { level, children })
        };
        reader.finish()?;
        Ok((Node { low, high, content }, txg))
    }

    /// Splits off the upper part of an oversized node: at the middle, or near the end if the node grew there, so that
    /// keys added in order leave full nodes behind.
    pub(super) fn split(&mut self, grew_at_end: bool) -> Option<Node> {
        if self.bound() <= NODE_TARGET {
            return None;
        }
        let keep = if grew_at_end { NODE_TARGET * 9 / 10 } else { (self.bound() / 2).min(NODE_TARGET) };
        let (middle, content) = match &mut self.content {
            Content::Leaf(leaf) => {
                let right = leaf.split_off(keep);
                (right.items[0].key, Content::Leaf(right))
            }
            Content::Interior(interior) => {
                let children = interior.children.split_off((keep / CHILD_BOUND).max(1));
                (children[0].low, Content::Interior(Interior { level: interior.level, children }))
            }
        };
        let right = Node { low: middle, high: self.high, content };
        self.high = middle;
        Some(right)
    }

    /// Appends the content of the node to the right.
    pub(super) fn merge(&mut self, right: &Node) {
        assert_eq!(self.high, right.low);
        self.high = right.high;
        match (&mut self.content, &right.content) {
            (Content::Leaf(left), Content::Leaf(right)) => {
                for item in &right.items {
                    left.append(item, right);
                }
            }
            (Content::Interior(left), Content::Interior(right)) => left.children.extend(right.children.iter().cloned()),
            _ => unreachable!("neighbours are of one level"),
        }
    }
}

impl Interior {
    /// The index of the child with `key` in its range.
    pub fn find(&self, key: Key) -> usize {
        self.children.partition_point(|child| child.low <= key).saturating_sub(1)
    }

    /// The end of the range of child `index`; `high` is the node's own.
    pub fn high(&self, index: usize, high: Key) -> Key {
        self.children.get(index + 1).map_or(high, |next| next.low)
    }
}

impl Item {
    /// The key, unique in its tree.
    pub fn key(&self) -> Key {
        self.key
    }

    /// The item's block: stored, pending or none.
    pub fn block(&self) -> &ItemBlock {
        &self.block
    }

    fn block_len(&self) -> usize {
        match self.block {
            ItemBlock::Stored(len) => len.into(),
            ItemBlock::None | ItemBlock::Pending(_) => 0,
        }
    }

    fn heap_len(&self) -> usize {
        usize::from(self.body) + self.block_len()
    }

    fn bound(&self) -> usize {
        match self.block {
            ItemBlock::Pending(_) => item_bound(self.body.into(), true),
            ItemBlock::None | ItemBlock::Stored(_) => item_bound(self.heap_len(), false),
        }
    }
}

impl Leaf {
    /// The items in order.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// The body of an item.
    pub fn body(&self, item: &Item) -> &[u8] {
        let start = item.start as usize;
        &self.heap[start..start + usize::from(item.body)]
    }

    /// The pointer of an item's block, if it is stored.
    pub fn pointer(&self, item: &Item) -> Option<BlockPointer> {
        match &item.block {
            ItemBlock::None => None,
            ItemBlock::Stored(_) => {
                let coded = self.coded_pointer(item);
                Some(BlockPointer::decode(&mut Reader::new(coded)).expect("a pointer in memory was verified"))
            }
            ItemBlock::Pending(record) => record.pointer().copied(),
        }
    }

    /// The index of the item under `key`, or the index where it would be inserted.
    pub fn search(&self, key: Key) -> Result<usize, usize> {
        self.items.binary_search_by(|item| item.key.cmp(&key))
    }

    fn coded_pointer(&self, item: &Item) -> &[u8] {
        let start = item.start as usize + usize::from(item.body);
        &self.heap[start..start + item.block_len()]
    }

    /// Puts an item, replacing any item under the same key.
    pub(super) fn put(&mut self, key: Key, body: &[u8], block: &PutBlock) -> usize {
        assert!(body.len() <= MAX_BODY);
        let start = self.heap.len() as u32;
        self.heap.extend_from_slice(body);
        let block = match block {
            PutBlock::None => ItemBlock::None,
            PutBlock::Stored(pointer) => {
                pointer.encode(&mut self.heap);
                ItemBlock::Stored((self.heap.len() - start as usize - body.len()) as u8)
            }
            PutBlock::Pending(record) => ItemBlock::Pending(record.clone()),
        };
        let item = Item { key, start, body: body.len() as u16, block };
        self.bound += item.bound();
        let index = match self.search(key) {
            Ok(index) => {
                let old = std::mem::replace(&mut self.items[index], item);
                self.discard(&old);
                index
            }
            Err(index) => {
                self.items.insert(index, item);
                index
            }
        };
        self.compact();
        index
    }

    /// Takes the item under `key` out; false if there is none.
    pub(super) fn delete(&mut self, key: Key) -> bool {
        let Ok(index) = self.search(key) else { return false };
        let old = self.items.remove(index);
        self.discard(&old);
        self.compact();
        true
    }

    fn discard(&mut self, item: &Item) {
        self.bound -= item.bound();
        self.waste += item.heap_len();
    }

    fn compact(&mut self) {
        if self.waste > 4096 && self.waste > self.heap.len() / 3 {
            *self = self.copy(self.items.iter());
        }
    }

    fn copy<'a>(&self, items: impl Iterator<Item = &'a Item>) -> Leaf {
        let mut copy = Leaf::default();
        for item in items {
            copy.append(item, self);
        }
        copy
    }

    /// Appends an item of another leaf.
    fn append(&mut self, item: &Item, from: &Leaf) {
        let start = self.heap.len() as u32;
        let first = item.start as usize;
        self.heap.extend_from_slice(&from.heap[first..first + item.heap_len()]);
        self.bound += item.bound();
        self.items.push(Item { start, ..item.clone() });
    }

    fn push(&mut self, key: Key, body: &[u8], coded: &[u8]) {
        let start = self.heap.len() as u32;
        self.heap.extend_from_slice(body);
        self.heap.extend_from_slice(coded);
        let block = if coded.is_empty() { ItemBlock::None } else { ItemBlock::Stored(coded.len() as u8) };
        let item = Item { key, start, body: body.len() as u16, block };
        self.bound += item.bound();
        self.items.push(item);
    }

    fn split_off(&mut self, keep: usize) -> Leaf {
        let mut index = 1;
        let mut sum = self.items[0].bound();
        while index + 1 < self.items.len() && sum + self.items[index].bound() <= keep {
            sum += self.items[index].bound();
            index += 1;
        }
        let right = self.copy(self.items[index..].iter());
        *self = self.copy(self.items[..index].iter());
        right
    }

    fn resolved(&self) -> Leaf {
        let mut leaf = Leaf { heap: Vec::with_capacity(self.heap.len()), ..Leaf::default() };
        leaf.items.reserve_exact(self.items.len());
        let mut coded = Vec::with_capacity(MAX_POINTER);
        for item in &self.items {
            let ItemBlock::Pending(record) = &item.block else {
                leaf.append(item, self);
                continue;
            };
            coded.clear();
            record.pointer().expect("records are stored before their leaf").encode(&mut coded);
            leaf.push(item.key, self.body(item), &coded);
        }
        leaf
    }
}

/// The block of an item to be put.
#[derive(Clone, Debug)]
pub(super) enum PutBlock {
    None,
    Stored(BlockPointer),
    Pending(Arc<Record>),
}

/// Verifies that a node read from a device has the expected place; `txg` is the group named in the node.
pub fn verify_place(node: &Node, txg: Txg, meant: &Miss) -> Result<(), Malformed> {
    if node.level() != meant.level {
        return malformed("node's level");
    }
    if node.low != meant.low || node.high != meant.high {
        return malformed("node's range");
    }
    if txg != meant.pointer.birth {
        return malformed("node's transaction group");
    }
    Ok(())
}
