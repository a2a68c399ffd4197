//! One step through a tree: collects the next blocks, and reads the blocks in the order of their place on the devices.
//!
//! Memory is bounded by the step's budget. Bad copies are only suspects here: see [`super::repair`].

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

/// The approximate number of blocks read in one step, however small,
const BLOCKS: usize = 32 << 10;
/// and of nodes entered.
const NODES: usize = 4096;
/// The size of an area in bytes: a disk reads one area without a seek.
const AREA: u64 = MIB;
/// The number of adjacent leaves read together.
const AHEAD: u64 = 64;

/// The work of one step.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The approximate number of bytes,
    pub bytes: u64,
    /// in at most about this number of areas of 1 MiB: each may cost a seek.
    pub areas: usize,
}

impl Budget {
    /// For a caller that delays no other thread.
    pub fn freely(bytes: u64) -> Budget {
        Budget { bytes, areas: 4096 }
    }

    /// For a caller that holds the pool still.
    pub fn held_still(bytes: u64) -> Budget {
        Budget { bytes, areas: 512 }
    }
}

/// The part of a tree covered by a step.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// The id of the dataset or snapshot.
    pub tree: u64,
    /// The root of the tree.
    pub root: BlockPointer,
    /// The root's level, 0 for a leaf.
    pub level: u8,
    /// When the root was looked up.
    pub seen: Seen,
    /// Blocks born up to the txg are examined already.
    pub after: Txg,
    /// Blocks written up to the txg are skipped.
    pub since: Txg,
    /// Blocks born later are skipped.
    pub limit: Txg,
    /// Lower keys are done.
    pub from: Key,
    /// Keys from this key on are skipped.
    pub to: Key,
}

impl Part {
    fn covers(&self, key: Key) -> bool {
        self.from <= key && key < self.to
    }
}

/// The result of a step.
#[derive(Debug, Default)]
pub struct Found {
    /// Bytes read, over all copies.
    pub bytes: u64,
    /// Blocks with a bad copy.
    pub suspects: Vec<Suspect>,
    /// The unreadable nodes among the suspects: everything below was skipped.
    pub unread: Vec<Place>,
    /// Lower keys are done; [`Key::MAX`] at the end of the tree.
    pub next: Option<Key>,
}

/// Examines a part of a tree within the budget; of the items' blocks only blocks accepted by `is_meant`.
pub fn examine(engine: &Engine, part: &Part, budget: Budget, is_meant: impl Fn(Key) -> bool) -> Found {
    let mut found = collect(engine, part, budget, is_meant);
    let pointers: Vec<BlockPointer> = found.suspects.iter().map(|block| block.pointer).collect();
    let suspicious = engine.suspicious(&pointers);
    found.suspects = suspicious.into_iter().map(|at| found.suspects[at]).collect();
    found
}

/// Collects blocks of a tree within the budget, in the order of their first copies, reading only nodes on the way. All
/// collected blocks are returned as suspects.
pub fn collect(engine: &Engine, part: &Part, budget: Budget, is_meant: impl Fn(Key) -> bool) -> Found {
    let mut collected = Collected::new(engine, part, budget);
    let mut walker = Walker::new(nodes::root(part.root, part.level), part.from, part.after.max(part.since));
    let (mut next, mut brought) = (None, Key::MIN);
    // A step takes at least one leaf.
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
            // The lookup of the root is too old by now. The next step looks up the root again, and begins here.
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
    /// The number of nodes entered, collected or not.
    nodes: usize,
    seen: HashSet<Address>,
    /// The areas of the collected blocks, with their chunks.
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

    /// Prefetches the next leaves of the walk, within the budget. Leaves below `brought` are not prefetched twice,
    /// because a small cache may have dropped them.
    fn bring(&self, walker: &Walker, brought: &mut Key) {
        let left = self.budget.bytes.saturating_sub(self.bytes) / NODE_MAX as u64;
        let coming = || walker.coming().take_while(|miss| miss.level == 0 && miss.low < self.part.to);
        if coming().next().is_some_and(|first| first.low >= *brought && !self.engine.has_node(&first)) {
            let leaves: Vec<Miss> = coming().take(left.clamp(1, AHEAD) as usize).collect();
            *brought = leaves.last().map_or(*brought, |last| last.high);
            self.engine.bring_nodes(leaves, self.part.seen);
        }
    }

    /// A node on the path to the start of the step was read by an earlier step, or is younger.
    fn node(&mut self, place: Place, pointer: BlockPointer) {
        self.nodes += 1;
        if matches!(place, Place::Node { low, .. } if low >= self.part.from) {
            self.add(place, pointer);
        }
    }

    /// An unreadable node is damaged, or was freed and its space reused. The caller must find out, even for a young or
    /// known node, because blocks below may be old.
    fn unread(&mut self, place: Place, pointer: BlockPointer) {
        self.unread.push(place);
        self.blocks.push(Suspect { tree: self.part.tree, place, pointer });
    }

    /// Collects the blocks of a leaf's items until the step is full; returns the key at that point. At least one block
    /// is collected.
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
