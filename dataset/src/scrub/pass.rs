//! One step through a tree: what lies next in it is collected, and then read in the order in which it lies on the devices.
//!
//! Memory is bounded by the step's budget. What is found bad here is only suspected: see [`super::mend`].

use std::collections::HashSet;

use pool::{
    format::{
        key::Key,
        pointer::{Address, BlockPointer},
    },
    tree::{Event, Node, Walker},
    txg::{Engine, Place, Suspect},
    units::Txg,
};

use crate::lineage::nodes;

/// At most about so many blocks are read in one step, however small they are.
const BLOCKS: usize = 4096;

/// What a step covers of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The tree's number.
    pub tree: u64,
    /// Its root.
    pub root: BlockPointer,
    /// The root's level.
    pub level: u8,
    /// Blocks born up to then are examined already.
    pub after: Txg,
    /// Blocks that were written up to then are not to be examined.
    pub since: Txg,
    /// Blocks born later are not to be examined.
    pub limit: Txg,
    /// Keys below this are done.
    pub from: Key,
    /// Keys from this one on are not to be examined.
    pub to: Key,
}

impl Part {
    fn covers(&self, key: Key) -> bool {
        self.from <= key && key < self.to
    }
}

/// What a step has found.
#[derive(Debug, Default)]
pub struct Found {
    /// Bytes read, all copies counted.
    pub bytes: u64,
    /// Blocks with a bad copy.
    pub suspects: Vec<Suspect>,
    /// The nodes among them that could not be read at all: what is below them was passed over.
    pub unread: Vec<Place>,
    /// Keys below this are done; [`Key::MAX`] at the end.
    pub next: Option<Key>,
}

/// Examines about `budget` bytes of a tree. Of the items' blocks those are meant for which `is_meant` says so.
pub fn examine(engine: &Engine, part: &Part, budget: u64, is_meant: impl Fn(Key) -> bool) -> Found {
    let mut found = collect(engine, part, budget, is_meant);
    let pointers: Vec<BlockPointer> = found.suspects.iter().map(|block| block.pointer).collect();
    let suspicious = engine.suspicious(&pointers);
    found.suspects = suspicious.into_iter().map(|at| found.suspects[at]).collect();
    found
}

/// Collects the blocks of about `budget` bytes of a tree, in the order of their first copies, and reads none but the nodes
/// on the way to them: all are among the suspects.
pub fn collect(engine: &Engine, part: &Part, budget: u64, is_meant: impl Fn(Key) -> bool) -> Found {
    let mut collected = Collected::new(engine, part, budget);
    let mut walker = Walker::new(nodes::root(part.root, part.level), part.from, part.after.max(part.since));
    let mut next = None;
    // A step takes one leaf in any case.
    while next.is_none_or(|next| !collected.is_full() && next < part.to) {
        let mut asked = None;
        let step = walker.next(|place| {
            asked = Some(*place);
            engine.load_node(place)
        });
        match (step, asked) {
            (Ok(Some(Event::Enter(place, node))), _) => {
                collected.node(Place::of(&place), place.pointer);
                if node.leaf().is_some() {
                    next = Some(collected.items(&node, &is_meant).unwrap_or(place.high));
                }
            }
            (Ok(Some(Event::Leave(..))), _) => {}
            (Err(_), Some(place)) => {
                collected.unread(Place::of(&place), place.pointer);
                next = Some(place.high);
                walker.skip();
            }
            (Ok(None) | Err(_), _) => {
                next = Some(Key::MAX);
                break;
            }
        }
    }
    Found { next, ..collected.in_order() }
}

struct Collected<'a> {
    engine: &'a Engine,
    part: &'a Part,
    budget: u64,
    bytes: u64,
    /// Nodes entered, meant or not.
    nodes: usize,
    seen: HashSet<Address>,
    blocks: Vec<Suspect>,
    unread: Vec<Place>,
}

impl<'a> Collected<'a> {
    fn new(engine: &'a Engine, part: &'a Part, budget: u64) -> Collected<'a> {
        Collected {
            engine,
            part,
            budget,
            bytes: 0,
            nodes: 0,
            seen: HashSet::new(),
            blocks: Vec::new(),
            unread: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.budget || self.blocks.len() >= BLOCKS || self.nodes >= BLOCKS
    }

    /// A node on the way to where an earlier step stopped was read by that one, or is younger.
    fn node(&mut self, place: Place, pointer: BlockPointer) {
        self.nodes += 1;
        if matches!(place, Place::Node { low, .. } if low >= self.part.from) {
            self.add(place, pointer);
        }
    }

    /// A node that cannot be read: whether it is damaged, or was freed and is another's place by now, it must be found
    /// out, also if it is young or was read before, for what is below it may be old.
    fn unread(&mut self, place: Place, pointer: BlockPointer) {
        self.unread.push(place);
        self.blocks.push(Suspect { tree: self.part.tree, place, pointer });
    }

    /// The blocks of a leaf's items, until the step is full; the key at which it was. One block is taken in any case.
    fn items(&mut self, node: &Node, is_meant: &impl Fn(Key) -> bool) -> Option<Key> {
        let before = self.blocks.len();
        for (leaf, item) in nodes::items(node) {
            let key = item.key();
            if let Some(pointer) = leaf.pointer(item).filter(|_| self.part.covers(key) && is_meant(key)) {
                if self.is_full() && self.blocks.len() > before {
                    return Some(key);
                }
                self.add(Place::Item(key), pointer);
            }
        }
        None
    }

    fn add(&mut self, place: Place, pointer: BlockPointer) {
        let is_meant = pointer.entered() > self.part.after && pointer.birth <= self.part.limit;
        if is_meant && pointer.birth > self.part.since && self.seen.insert(pointer.addresses[0]) {
            self.bytes += self.engine.storage().taken(&pointer);
            self.blocks.push(Suspect { tree: self.part.tree, place, pointer });
        }
    }

    fn in_order(mut self) -> Found {
        self.blocks.sort_unstable_by_key(|block| (block.pointer.addresses[0].chunk, block.pointer.addresses[0].sector));
        Found { bytes: self.bytes, suspects: self.blocks, unread: self.unread, next: None }
    }
}
