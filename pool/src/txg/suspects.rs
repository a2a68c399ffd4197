//! Blocks with a bad copy that readers have met, until a job examines them.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::{
    format::{key::Key, pointer::BlockPointer},
    tree::Miss,
};

/// At most so many blocks wait to be looked at again; more are left to the next scrub.
const SUSPECTS: usize = 1024;

/// Where in a tree a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The node of this level with this key range.
    Node {
        /// The node's level, 0 for a leaf.
        level: u8,
        /// The first key of the range.
        low: Key,
        /// The end of the range.
        high: Key,
    },
    /// The block of the item under this key.
    Item(Key),
}

impl Place {
    /// The place of a node.
    pub fn of(miss: &Miss) -> Place {
        Place::Node { level: miss.level, low: miss.low, high: miss.high }
    }

    /// The first key of the place.
    pub(super) fn start(&self) -> Key {
        match self {
            Place::Node { low, .. } => *low,
            Place::Item(key) => *key,
        }
    }
}

/// A block with a bad copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The number of its open tree.
    pub tree: u64,
    /// Its place in the tree.
    pub place: Place,
    /// The block's pointer as read.
    pub pointer: BlockPointer,
}

/// The blocks with a bad copy found by readers and not examined since.
#[derive(Debug, Default)]
pub(super) struct Suspects(pub(super) Mutex<Waiting>);

#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// A block stays queued until examined.
    pub(super) blocks: VecDeque<Suspect>,
    /// How many more there were than have room, or than could be examined.
    pub(super) passed: u64,
    /// The value of `passed` when the scrub began.
    pub(super) covered: u64,
}

impl Suspects {
    pub(super) fn add(&self, suspect: Suspect) {
        let mut waiting = self.0.lock();
        if waiting.blocks.contains(&suspect) {
            return;
        }
        match waiting.blocks.len() < SUSPECTS {
            true => waiting.blocks.push_back(suspect),
            false => waiting.passed += 1,
        }
    }
}
