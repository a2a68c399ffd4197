//! Holding a pool still: as long as it lasts no commit completes, so whatever the last committed state refers to lies
//! where it lies. That makes it safe to write over a bad copy in place.
//!
//! What transaction group N frees can be allocated again only when N and three more groups were committed. A pointer that
//! stands in the last committed state is freed by the open group at the earliest, so its space is nobody else's while no
//! commit completes: [`Still`] holds the lock that every commit needs. Whoever has a pointer from before (a reader, a
//! scrub) does not know whether it still stands, so [`Still::mend`] looks for it first, on the way down from the root that
//! the committed catalogue has now. A pointer that is found is one whose ancestors all verified, and it is that way that
//! says which bytes are the right ones.
//!
//! Power may fail at any of these instants:
//!
//! * Before the bad copy is written: it is bad, and its twin is good.
//! * While it is written: what is torn is a copy that was bad before. The sectors are the copy's own, and the twin is not
//!   touched; it was read and verified within the same hold.
//! * After it, before the flush: bad, torn or good, with a good twin.
//! * After the flush: good. Nothing refers to the rewriting, so there is nothing to commit.
//!
//! One bad copy may be written while another of the same block is bad too: all are written from the one that verified.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    block::Examined,
    error::{Error, Result},
    format::{key::Key, pointer::BlockPointer},
    space::{OwnCursor, OwnExamined, Seen},
    tree::{Miss, Node, Root},
    txg::Engine,
    units::Txg,
    vdev::mend::LabelsExamined,
};

/// At most so many blocks wait to be looked at again; more are left to the next scrub.
const SUSPECTS: usize = 1024;

/// Where in a tree a block stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It is the node of this level whose range begins and ends here.
    Node {
        /// The level.
        level: u8,
        /// The first key of the range.
        low: Key,
        /// The end of the range.
        high: Key,
    },
    /// It belongs to the item under this key.
    Item(Key),
}

impl Place {
    /// The place of a node.
    pub fn of(miss: &Miss) -> Place {
        Place::Node { level: miss.level, low: miss.low, high: miss.high }
    }

    fn start(&self) -> Key {
        match self {
            Place::Node { low, .. } => *low,
            Place::Item(key) => *key,
        }
    }
}

/// A block of which a copy was found bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The number under which its tree is open.
    pub tree: u64,
    /// Where it stood there.
    pub place: Place,
    /// Its pointer.
    pub pointer: BlockPointer,
}

/// What became of a suspect.
#[derive(Debug)]
pub enum Verdict {
    /// It does not stand there any more: what lies in its place is not its business.
    Gone,
    /// All copies are good: somebody was faster, or a device reads well again.
    Whole,
    /// This many copies were bad and are good again.
    Mended {
        /// The copies.
        copies: usize,
    },
    /// A copy is good, and another is bad and could not be written.
    Weak(Error),
    /// No copy is good.
    Lost,
    /// Whether it stands is not known: the way to it cannot be read.
    Unknown(Error),
}

/// The blocks that readers found bad copies of and that were not examined since.
#[derive(Debug, Default)]
pub(super) struct Suspects(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// A block stays here until it was examined.
    blocks: VecDeque<Suspect>,
    /// How many more there were than have room, or than could be examined.
    passed: u64,
    /// So many of these had been met when the scrub began.
    covered: u64,
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

/// A pool that is held still.
#[must_use]
pub struct Still<'a> {
    engine: &'a Engine,
    _syncing: MutexGuard<'a, ()>,
}

impl Engine {
    /// Holds the pool still. Changes go on; commits wait. To be called where a commit could be waited for: without the
    /// locks that syncing takes.
    pub fn hold_still(&self) -> Still<'_> {
        Still { engine: self, _syncing: self.syncing.lock() }
    }

    /// The same, if nobody is committing.
    pub fn try_hold_still(&self) -> Option<Still<'_>> {
        Some(Still { engine: self, _syncing: self.syncing.try_lock()? })
    }

    /// Examines the labels of the devices in no vdev, and mends what is bad. No commit may wait for who calls this: such a device
    /// may hang.
    pub fn mend_labels_apart(&self) -> LabelsExamined {
        self.labels().map_or_else(LabelsExamined::default, |labels| labels.mend_apart(self))
    }

    /// The next block that a reader found a bad copy of. It stays the next one until it is [settled](Engine::settle_suspect).
    pub fn next_suspect(&self) -> Option<Suspect> {
        self.suspects.0.lock().blocks.front().copied()
    }

    /// Notes that a suspect was examined, or could not be: then only a scrub tells what became of it.
    pub fn settle_suspect(&self, suspect: &Suspect, is_examined: bool) {
        let mut waiting = self.suspects.0.lock();
        waiting.blocks.retain(|other| other != suspect);
        waiting.passed += u64::from(!is_examined);
    }

    /// How many blocks with a bad copy wait to be examined, and how many more only a scrub examines.
    pub fn unexamined(&self) -> (u64, u64) {
        let waiting = self.suspects.0.lock();
        (waiting.blocks.len() as u64, waiting.passed)
    }

    /// Notes that a scrub of everything begins.
    pub fn note_scrub_begins(&self) {
        let mut waiting = self.suspects.0.lock();
        waiting.covered = waiting.passed;
    }

    /// Notes that a scrub has examined everything that was there when it began.
    pub fn note_scrub_ends(&self) {
        let mut waiting = self.suspects.0.lock();
        waiting.passed -= waiting.covered.min(waiting.passed);
        waiting.covered = 0;
    }
}

impl<'a> Still<'a> {
    /// The committed transaction group.
    pub fn txg(&self) -> Txg {
        self.engine.committed()
    }

    /// What it takes to read what the committed state refers to: nothing of that is freed meanwhile.
    pub fn seen(&self) -> Seen {
        self.engine.seen()
    }

    /// The engine.
    pub fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// Looks at every copy of a block again, if it stands in its place in the tree under `root`, which must be that of the
    /// committed state; writes bad copies from a good one, and flushes. With `count`, bad copies are counted: a reader has
    /// counted what it met.
    pub fn mend(&self, root: (BlockPointer, u8), suspect: &Suspect, count: bool) -> Verdict {
        match self.stands(root, suspect) {
            Ok(true) => self.mend_standing(&suspect.pointer, count),
            Ok(false) => Verdict::Gone,
            Err(error) => Verdict::Unknown(error),
        }
    }

    /// Examines about `budget` bytes of the space layer's own blocks from `from` on, and mends what is bad.
    pub fn mend_space(&self, from: OwnCursor, budget: u64) -> OwnExamined {
        let storage = self.engine.storage();
        let mut examined = storage.space.mend_own(&storage.vdevs, from, budget, self.engine.writable().is_ok());
        for (vdev, source) in &examined.bad {
            if let Ok(vdev) = storage.vdevs.get(*vdev) {
                vdev.note_checksum_error(*source);
            }
        }
        if examined.mended > 0 && storage.vdevs.flush().is_err() {
            // The flush's failure is counted at its device; what was written may not stay.
            examined.mended = 0;
        }
        examined
    }

    /// Examines the labels and uberblocks of all devices in vdevs, and mends what is bad. What a device refuses is counted
    /// there; one that is not what it was is put out of use, or if it cannot be done without, the pool is suspended.
    pub fn mend_labels(&self) -> LabelsExamined {
        self.engine.labels().map_or_else(LabelsExamined::default, |labels| labels.mend(self))
    }

    fn mend_standing(&self, pointer: &BlockPointer, count: bool) -> Verdict {
        let storage = self.engine.storage();
        let Examined { good, bad } = storage.examine(pointer);
        if count {
            bad.iter().for_each(|bad| storage.note_bad(bad));
        }
        let Some(good) = good.map(Arc::new) else { return Verdict::Lost };
        if bad.is_empty() {
            return Verdict::Whole;
        }
        let mended = self.engine.writable().and_then(|()| {
            let rewritten: Vec<Result<()>> = bad.iter().map(|bad| storage.rewrite(pointer, bad, &good)).collect();
            // As long as too many devices of a RAID-Z are wrong, all of them may be: the last one tells.
            match rewritten.into_iter().find_map(Result::err).filter(|_| !storage.examine(pointer).is_whole()) {
                Some(error) => Err(error),
                None => storage.vdevs.flush(),
            }
        });
        match mended {
            Ok(()) => Verdict::Mended { copies: bad.len() },
            Err(error) => Verdict::Weak(error),
        }
    }

    /// Whether a suspect stands in its place in the tree under `root`, which must be that of the committed state.
    pub fn stands(&self, root: (BlockPointer, u8), suspect: &Suspect) -> Result<bool> {
        let is_it = |pointer: &BlockPointer| same_block(pointer, &suspect.pointer);
        let start = suspect.place.start();
        let mut at = Miss::root(&Root::stored(root.0, root.1)).expect("a stored root has an address");
        loop {
            if let Place::Node { level, low, high } = suspect.place
                && at.level <= level
            {
                return Ok((at.level, at.low, at.high) == (level, low, high) && is_it(&at.pointer));
            }
            let node = self.engine.load_node(&at, self.seen())?;
            let Some(child) = child(&node, at.level, start) else {
                return Ok(item(&node, start).is_some_and(|p| is_it(&p)));
            };
            at = child;
        }
    }
}

fn same_block(one: &BlockPointer, other: &BlockPointer) -> bool {
    (one.addresses(), one.birth, one.checksum) == (other.addresses(), other.birth, other.checksum)
}

/// The place of the child in whose range a key lies; none in a leaf.
fn child(node: &Arc<Node>, level: u8, key: Key) -> Option<Miss> {
    let interior = node.interior()?;
    let index = interior.find(key);
    let child = &interior.children[index];
    let pointer = *child.slot.pointer()?;
    Some(Miss { pointer, level: level - 1, low: child.low, high: interior.high(index, node.high) })
}

fn item(node: &Arc<Node>, key: Key) -> Option<BlockPointer> {
    let leaf = node.leaf()?;
    let index = leaf.search(key).ok()?;
    leaf.pointer(&leaf.items()[index])
}
