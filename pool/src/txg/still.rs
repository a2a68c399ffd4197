//! Holding a pool still: no commit completes meanwhile, so the blocks of the last committed state keep their addresses.
//! Only then is it safe to overwrite a bad copy in place.
//!
//! Space freed by transaction group N can be allocated again only after N and three more groups were committed. A
//! pointer in the last committed state is freed by the open group at the earliest, so its space stays its own while no
//! commit completes: [`Still`] holds the `syncing` lock. A reader or a scrub with an older pointer does not know
//! whether the block is still in use, so [`Still::repair`] looks for the pointer first, on the way down from the root
//! in the committed catalogue. All ancestors of a pointer found this way have verified, and they establish the right
//! checksum.
//!
//! Power may fail at any of these instants:
//!
//! * Before the bad copy is written: it is bad, and another copy is good.
//! * While it is written: the torn copy was bad before. The sectors belong to this copy alone. The good copy is not
//!   touched, and was read and verified within the same hold.
//! * After it, before the flush: bad, torn or good, beside a good copy.
//! * After the flush: good. No pointer changes, so there is nothing to commit.
//!
//! Several bad copies of a block may be written at once: all are written from the copy that verified.
//!
//! A block without a good copy can be repaired with bytes from outside the pool, such as a stream
//! ([`Still::repair_from`]). The pointer in the committed tree decides whether the bytes are right: their length and
//! checksum must be the pointer's. The instants of failure are then:
//!
//! * Before a copy is written: no copy is good, as before.
//! * While copies are written: each is bad, torn or good. A RAID-Z does not know which of its columns are bad, and writes
//!   all of them. A column that was good gets the bytes that it has, so a torn write changes nothing there.
//! * After the flush: every copy is good.

use std::sync::Arc;

use crate::{
    block::{Examined, checksum::verify},
    error::{Error, Result},
    format::{
        key::Key,
        pointer::{BlockPointer, Checksum},
    },
    space::{OwnCursor, OwnExamined, Seen},
    tree::{Miss, Node, Root},
    txg::{
        engine::state::{Engine, Still},
        suspects::{Place, Suspect},
    },
    units::Txg,
    vdev::repair::LabelsExamined,
};

/// The outcome of examining a suspect.
#[derive(Debug)]
pub enum Verdict {
    /// The block is no longer in its place; another block there is not examined.
    Gone,
    /// All copies are good: another thread repaired the block, or a device reads well again.
    Whole,
    /// Bad copies were rewritten and are good again.
    Repaired {
        /// How many copies were rewritten.
        copies: usize,
    },
    /// A copy is good, and another is bad and could not be written.
    Weak(Error),
    /// No copy of the block is good.
    Lost,
    /// Whether the block is still in use is unknown: the path to it cannot be read.
    Unknown(Error),
}

impl Engine {
    /// Holds the pool still. Changes go on; commits wait. The caller must not hold locks that syncing takes.
    pub fn hold_still(&self) -> Still<'_> {
        Still { engine: self, _syncing: self.syncing.lock() }
    }

    /// As [`Engine::hold_still`], unless a commit is under way.
    pub fn try_hold_still(&self) -> Option<Still<'_>> {
        Some(Still { engine: self, _syncing: self.syncing.try_lock()? })
    }

    /// Examines and repairs the labels of devices in no vdev. No commit may wait for the caller, because such a device
    /// may hang.
    pub fn repair_labels_apart(&self) -> LabelsExamined {
        self.labels().map_or_else(LabelsExamined::default, |labels| labels.repair_apart(self))
    }

    /// The next block with a bad copy found by a reader; the same one until [settled](Engine::settle_suspect).
    pub fn next_suspect(&self) -> Option<Suspect> {
        self.suspects.0.lock().blocks.front().copied()
    }

    /// Notes that a suspect was examined, or could not be: then only a scrub examines it.
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

    /// Notes that a full scrub begins.
    pub fn note_scrub_begins(&self) {
        let mut waiting = self.suspects.0.lock();
        waiting.covered = waiting.passed;
    }

    /// Notes that a scrub has examined everything that existed at its beginning.
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

    /// The token to read blocks of the committed state: none is freed while this lives.
    pub fn seen(&self) -> Seen {
        self.engine.seen()
    }

    /// The engine of the pool held still.
    pub fn engine(&self) -> &'a Engine {
        self.engine
    }

    /// Reads every copy of a block again if the block is still in its place in the tree under `root`, the tree's root
    /// in the committed state. Rewrites bad copies from a good one, and flushes. With `count`, bad copies are added to
    /// the error counters: a reader has already counted its own.
    pub fn repair(&self, root: (BlockPointer, u8), suspect: &Suspect, count: bool) -> Verdict {
        self.repair_from(root, suspect, None, count)
    }

    /// As [`Still::repair`]. If no copy is good, the copies are rewritten with `outside`, the stored bytes of the block
    /// from outside the pool, if they have the pointer's length and checksum. A block stored in pieces, or without a
    /// checksum, is not rewritten from outside: nothing would verify the places of the pieces, or the bytes.
    pub fn repair_from(
        &self,
        root: (BlockPointer, u8),
        suspect: &Suspect,
        outside: Option<&Arc<Vec<u8>>>,
        count: bool,
    ) -> Verdict {
        match self.stands(root, suspect) {
            Ok(true) => self.repair_referenced(&suspect.pointer, outside, count),
            Ok(false) => Verdict::Gone,
            Err(error) => Verdict::Unknown(error),
        }
    }

    /// Examines about `budget` bytes of the space layer's own blocks from `from` on, and repairs bad copies.
    pub fn repair_space(&self, from: OwnCursor, budget: u64) -> OwnExamined {
        let storage = self.engine.storage();
        let mut examined = storage.space.repair_own(&storage.vdevs, from, budget, self.engine.writable().is_ok());
        for (vdev, source) in &examined.bad {
            if let Ok(vdev) = storage.vdevs.get(*vdev) {
                vdev.note_checksum_error(*source);
            }
        }
        if examined.repaired > 0 && storage.vdevs.flush().is_err() {
            // The failed flush is counted at its device; the repairs may be lost.
            examined.repaired = 0;
        }
        examined
    }

    /// Examines and repairs the labels and uberblocks of all vdev members. A refused write is counted at its device. A
    /// device that was exchanged is faulted or, if it cannot be, the pool is suspended.
    pub fn repair_labels(&self) -> LabelsExamined {
        self.engine.labels().map_or_else(LabelsExamined::default, |labels| labels.repair(self))
    }

    /// Whether no copy of a block is good. Nothing is noted, counted or written.
    pub fn is_lost(&self, pointer: &BlockPointer) -> bool {
        self.engine.storage().examine(pointer).good.is_none()
    }

    fn repair_referenced(&self, pointer: &BlockPointer, outside: Option<&Arc<Vec<u8>>>, count: bool) -> Verdict {
        let storage = self.engine.storage();
        let Examined { good, bad } = storage.examine(pointer);
        if count {
            bad.iter().for_each(|bad| storage.note_bad(bad));
        }
        let outside = outside.filter(|bytes| is_stored_form(pointer, bytes)).cloned();
        let Some(good) = good.map(Arc::new).or(outside) else { return Verdict::Lost };
        if bad.is_empty() {
            return Verdict::Whole;
        }
        let repaired = self.engine.writable().and_then(|()| {
            let rewritten: Vec<Result<()>> = bad.iter().map(|bad| storage.rewrite(pointer, bad, &good)).collect();
            // While too many devices of a RAID-Z return bad data, each rewrite may fail; the last examination decides.
            match rewritten.into_iter().find_map(Result::err).filter(|_| !storage.examine(pointer).is_whole()) {
                Some(error) => Err(error),
                None => storage.vdevs.flush(),
            }
        });
        match repaired {
            Ok(()) => Verdict::Repaired { copies: bad.len() },
            Err(error) => Verdict::Weak(error),
        }
    }

    /// Whether a suspect is in its place in the tree under `root`, the tree's root in the committed state.
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

/// Whether bytes from outside the pool can take the place of a block.
fn is_stored_form(pointer: &BlockPointer, bytes: &[u8]) -> bool {
    !pointer.gang
        && pointer.checksum_kind != Checksum::Off
        && bytes.len() == pointer.stored as usize
        && verify(pointer.checksum_kind, bytes, &pointer.checksum)
}

fn same_block(one: &BlockPointer, other: &BlockPointer) -> bool {
    (one.addresses(), one.birth, one.checksum) == (other.addresses(), other.birth, other.checksum)
}

/// The place of the child whose range contains a key; none in a leaf.
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
