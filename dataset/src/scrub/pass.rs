//! One step through a tree: what lies next in it is collected, and then read in the order in which it lies on the devices.
//!
//! Memory is bounded by the step's budget. What is found bad here is only suspected: see [`super::mend`].

use std::collections::HashSet;

use pool::{
    error::Error,
    format::{
        key::Key,
        node::NODE_MAX,
        pointer::{Address, BlockPointer},
    },
    space::Seen,
    tree::{Event, Miss, Node, Walker},
    txg::{Engine, Place, Suspect},
    units::{ChunkId, MIB, Txg},
};

use crate::lineage::nodes;

/// At most about so many blocks are read in one step, however small they are,
const BLOCKS: usize = 32 << 10;
/// and so many nodes entered.
const NODES: usize = 4096;
/// So large is an area, in bytes: what lies in one passes under a disk's head without a seek.
const AREA: u64 = MIB;
/// So many leaves are read together, if they lie together.
const AHEAD: u64 = 64;

/// How much a step takes on.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// About so many bytes,
    pub bytes: u64,
    /// in at most about so many areas of a MiB, however far from each other: each may take a disk a seek.
    pub areas: usize,
}

impl Budget {
    /// Of whoever keeps nobody waiting.
    pub fn freely(bytes: u64) -> Budget {
        Budget { bytes, areas: 4096 }
    }

    /// Of whoever holds the pool still meanwhile.
    pub fn held_still(bytes: u64) -> Budget {
        Budget { bytes, areas: 512 }
    }
}

/// What a step covers of a tree.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The tree's number.
    pub tree: u64,
    /// Its root.
    pub root: BlockPointer,
    /// The root's level.
    pub level: u8,
    /// When the root was looked up.
    pub seen: Seen,
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

/// Examines as much of a tree as the budget has. Of the items' blocks those are meant for which `is_meant` says so.
pub fn examine(engine: &Engine, part: &Part, budget: Budget, is_meant: impl Fn(Key) -> bool) -> Found {
    let mut found = collect(engine, part, budget, is_meant);
    let pointers: Vec<BlockPointer> = found.suspects.iter().map(|block| block.pointer).collect();
    let suspicious = engine.suspicious(&pointers);
    found.suspects = suspicious.into_iter().map(|at| found.suspects[at]).collect();
    found
}

/// Collects as many blocks of a tree as the budget has, in the order of their first copies, and reads none but the nodes
/// on the way to them: all are among the suspects.
pub fn collect(engine: &Engine, part: &Part, budget: Budget, is_meant: impl Fn(Key) -> bool) -> Found {
    let mut collected = Collected::new(engine, part, budget);
    let mut walker = Walker::new(nodes::root(part.root, part.level), part.from, part.after.max(part.since));
    let (mut next, mut brought) = (None, Key::MIN);
    // A step takes one leaf in any case.
    while next.is_none_or(|next| !collected.is_full() && next < part.to) {
        collected.bring(&walker, &mut brought);
        let mut asked = None;
        let step = walker.next(|place| {
            asked = Some(*place);
            engine.load_node(place, part.seen)
        });
        match (step, asked) {
            (Ok(Some(Event::Enter(place, node))), _) => {
                collected.node(Place::of(&place), place.pointer);
                if node.leaf().is_some() {
                    next = Some(collected.items(&node, &is_meant).unwrap_or(place.high));
                }
            }
            (Ok(Some(Event::Leave(..))), _) => {}
            // The token is older than the node's place by now. The next step looks the root up anew, and begins here.
            (Err(Error::Stale), Some(place)) => {
                next = Some(place.low.max(part.from));
                break;
            }
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
    budget: Budget,
    bytes: u64,
    /// Nodes entered, meant or not.
    nodes: usize,
    seen: HashSet<Address>,
    /// The chunks that blocks are in, and the areas of these.
    areas: HashSet<(ChunkId, u64)>,
    blocks: Vec<Suspect>,
    unread: Vec<Place>,
}

impl<'a> Collected<'a> {
    fn new(engine: &'a Engine, part: &'a Part, budget: Budget) -> Collected<'a> {
        Collected {
            engine,
            part,
            budget,
            bytes: 0,
            nodes: 0,
            seen: HashSet::new(),
            areas: HashSet::new(),
            blocks: Vec::new(),
            unread: Vec::new(),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes >= self.budget.bytes
            || self.areas.len() >= self.budget.areas
            || self.blocks.len() >= BLOCKS
            || self.nodes >= NODES
    }

    /// Has the leaves brought that the walk comes to next, but for more than the budget has left, and unless they were: those
    /// below `brought` are not brought twice, for a cache that is small may have let them go.
    fn bring(&self, walker: &Walker, brought: &mut Key) {
        let left = self.budget.bytes.saturating_sub(self.bytes) / NODE_MAX as u64;
        let coming = || walker.coming().take_while(|miss| miss.level == 0 && miss.low < self.part.to);
        if coming().next().is_some_and(|first| first.low >= *brought && !self.engine.has_node(&first)) {
            let leaves: Vec<Miss> = coming().take(left.clamp(1, AHEAD) as usize).collect();
            *brought = leaves.last().map_or(*brought, |last| last.high);
            self.engine.bring_nodes(leaves, self.part.seen);
        }
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
            let area = |at: &Address| (at.chunk, u64::from(at.sector) * u64::from(self.engine.sector()) / AREA);
            self.areas.extend(pointer.addresses().iter().map(area));
            self.blocks.push(Suspect { tree: self.part.tree, place, pointer });
        }
    }

    fn in_order(mut self) -> Found {
        self.blocks.sort_unstable_by_key(|block| (block.pointer.addresses[0].chunk, block.pointer.addresses[0].sector));
        Found { bytes: self.bytes, suspects: self.blocks, unread: self.unread, next: None }
    }
}
