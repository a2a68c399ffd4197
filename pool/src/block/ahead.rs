//! Prefetch: blocks being read before a reader waits for them.
//!
//! The layer that predicts the next blocks starts to read them, in runs (see [`super::runs`]), and continues. A run
//! under way is a *prefetch*. A reader of one of its blocks waits for the prefetch, and all its blocks are verified
//! and decompressed. So several devices work at a time, during computation, no block is read twice, and no thread has
//! to be stopped. The prediction lives above: see [`crate::txg`]'s streams.
//!
//! A prefetch with bad bytes, or bytes that may belong to other blocks by now ([`Seen`]), is dropped, and nothing is
//! counted. Readers then read its blocks singly. Such a read repairs the block, finds the device at fault, or waits for
//! a device to return.
//!
//! Invariants:
//! 1. Prefetches without a waiting reader hold no more than a budget of bytes, and their number is bounded. Beside
//!    these are a few prefetches with nodes, which are small and needed last.
//! 2. A prefetch whose reader does something else is dropped when other readers have read twice the budget since its
//!    start, with prefetches or without.
//! 3. No prefetch begins before a change of the pool's devices and is taken afterwards: it would keep a removed device
//!    open.

use std::{
    collections::{BTreeMap, HashMap},
    mem,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

use super::{
    key::{BlockKey, key},
    runs::{Run, UnderWay},
    storage::Storage,
};
use crate::{device::IoPurpose, format::pointer::BlockPointer, space::Seen};

/// The budget is this part of the cache in memory.
const PART_OF_CACHE: u64 = 4;
/// The most prefetches at a time: a device may have a thread for each.
const MOST: usize = 64;
/// The most prefetches with nodes, beside the others.
const MOST_WITH_NODES: usize = 16;

/// A block that has arrived: its pointer, its stored bytes, and its content.
pub(crate) struct Part<'a> {
    pub(crate) pointer: &'a BlockPointer,
    pub(crate) stored: &'a [u8],
    pub(crate) content: Arc<Vec<u8>>,
}

/// The prefetches of a pool.
pub(crate) struct Ahead {
    budget: AtomicU64,
    prefetches: Mutex<Prefetches>,
}

#[derive(Default)]
struct Prefetches {
    by_block: HashMap<BlockKey, Arc<Prefetch>>,
    /// By their numbers: the oldest first.
    all: BTreeMap<u64, Arc<Prefetch>>,
    next: u64,
    /// Bytes of the prefetches without nodes.
    bytes: u64,
    /// The number of prefetches with nodes.
    with_nodes: usize,
    /// Bytes read with prefetches, and by readers for whom there was no room.
    clock: u64,
    /// How often devices have changed.
    changes: u64,
}

/// The content of a prefetch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Data,
    Nodes,
}

struct Prefetch {
    number: u64,
    what: What,
    blocks: Vec<BlockKey>,
    bytes: u64,
    /// The clock at the beginning of the prefetch.
    since: u64,
    /// Taken by the thread that takes the prefetch.
    run: Mutex<Option<UnderWay>>,
}

impl Prefetches {
    fn remove(&mut self, prefetch: &Prefetch) {
        if self.all.remove(&prefetch.number).is_none() {
            return;
        }
        match prefetch.what {
            What::Data => self.bytes -= prefetch.bytes,
            What::Nodes => self.with_nodes -= 1,
        }
        for key in &prefetch.blocks {
            // A later prefetch may have the same block.
            if self.by_block.get(key).is_some_and(|other| other.number == prefetch.number) {
                self.by_block.remove(key);
            }
        }
    }

    /// How many more prefetches of this kind may start.
    fn free(&self, what: What) -> usize {
        match what {
            What::Data => MOST.saturating_sub(self.all.len() - self.with_nodes),
            What::Nodes => MOST_WITH_NODES.saturating_sub(self.with_nodes),
        }
    }

    fn add(&mut self, run: UnderWay, what: What) {
        let number = self.next;
        self.next += 1;
        let blocks: Vec<BlockKey> = run.blocks().map(key).collect();
        let (bytes, since) = (run.bytes(), self.clock);
        let prefetch = Arc::new(Prefetch { number, what, blocks, bytes, since, run: Mutex::new(Some(run)) });
        self.by_block.extend(prefetch.blocks.iter().map(|key| (*key, prefetch.clone())));
        match what {
            What::Data => self.bytes += bytes,
            What::Nodes => self.with_nodes += 1,
        }
        self.all.insert(number, prefetch);
    }

    /// Removes the prefetches that no reader will use any more.
    fn take_stale(&mut self, budget: u64) -> Vec<Arc<Prefetch>> {
        let is_stale = |prefetch: &&Arc<Prefetch>| prefetch.since + 2 * budget < self.clock;
        let stale: Vec<Arc<Prefetch>> = self.all.values().take_while(is_stale).cloned().collect();
        stale.iter().for_each(|prefetch| self.remove(prefetch));
        stale
    }
}

impl Ahead {
    /// Prefetches beside a cache of so many bytes.
    pub(crate) fn new(cache: u64) -> Ahead {
        Ahead { budget: AtomicU64::new(cache / PART_OF_CACHE), prefetches: Mutex::default() }
    }

    /// The cache has so many bytes from now on.
    pub(crate) fn set_cache(&self, cache: u64) {
        self.budget.store(cache / PART_OF_CACHE, Ordering::Relaxed);
    }

    /// Bytes of the prefetches under way, without nodes.
    pub(crate) fn bytes(&self) -> u64 {
        self.prefetches.lock().bytes
    }

    /// The most bytes of all prefetches together.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// How many of the `wanted` bytes may be prefetched, for a reader that has just read `read` bytes.
    pub(crate) fn room(&self, wanted: u64, read: u64) -> u64 {
        let budget = self.budget();
        let mut prefetches = self.prefetches.lock();
        let room = |prefetches: &Prefetches| match prefetches.free(What::Data) {
            0 => 0,
            _ => budget.saturating_sub(prefetches.bytes).min(wanted),
        };
        let found = room(&prefetches);
        if found == wanted {
            return found;
        }
        prefetches.clock += read;
        let stale = prefetches.take_stale(budget);
        let found = room(&prefetches);
        drop(prefetches);
        // Dropping the prefetches takes time, so the lock is free by now.
        drop(stale);
        found
    }

    /// Whether a block is on its way.
    pub(crate) fn has(&self, pointer: &BlockPointer) -> bool {
        self.prefetches.lock().by_block.contains_key(&key(pointer))
    }

    /// Starts to read blocks; a reader is about to wait for the first `waited`. If these are all, and adjacent, they
    /// are read right here: handing them to other threads gains nothing. `keep` gets the arrived blocks.
    pub(crate) fn bring(
        &self,
        storage: &Storage,
        (blocks, seen): (&[BlockPointer], Seen),
        waited: usize,
        keep: impl Fn(Part<'_>),
    ) {
        let stale = {
            let mut prefetches = self.prefetches.lock();
            if waited == blocks.len() {
                prefetches.clock += blocks.iter().map(|pointer| u64::from(pointer.stored)).sum::<u64>();
            }
            prefetches.take_stale(self.budget())
        };
        drop(stale);
        let mut runs = storage.runs_of(blocks);
        if let ([run], true) = (&runs[..], waited == blocks.len()) {
            // A single block is read by the reader itself.
            if run.len() > 1 {
                storage.read_run(run, blocks, seen, &mut |at, stored, content| {
                    keep(Part { pointer: &blocks[at], stored, content: Arc::new(content) });
                });
            }
            return;
        }
        // Runs with blocks that a reader waits for come first, each kind in order of offset.
        runs.sort_by_key(|run| run.iter().all(|copy| copy.block >= waited));
        self.begin(storage, &runs, (blocks, seen), waited, What::Data);
    }

    /// Starts to prefetch nodes, as many from the front as there is room for.
    pub(crate) fn begin_nodes(&self, storage: &Storage, nodes: &[BlockPointer], seen: Seen) {
        let free = self.prefetches.lock().free(What::Nodes);
        let nodes = &nodes[..free.min(nodes.len())];
        self.begin(storage, &storage.runs_of(nodes), (nodes, seen), 0, What::Nodes);
    }

    /// A reader waits for the first `waited` blocks.
    fn begin(
        &self,
        storage: &Storage,
        runs: &[Run],
        (blocks, seen): (&[BlockPointer], Seen),
        waited: usize,
        what: What,
    ) {
        let changes = self.prefetches.lock().changes;
        for run in runs {
            if self.prefetches.lock().free(what) == 0 {
                return;
            }
            let is_waited = run.iter().any(|copy| copy.block < waited);
            let purpose = if is_waited { IoPurpose::current() } else { IoPurpose::Background };
            let Some(run) = purpose.during(|| storage.begin_run(run, blocks, seen)) else { continue };
            let mut prefetches = self.prefetches.lock();
            if prefetches.changes != changes {
                return;
            }
            prefetches.add(run, what);
        }
    }

    /// The content of a block being prefetched, if it arrives and verifies. `keep` gets all blocks of the prefetch.
    pub(crate) fn take(
        &self,
        storage: &Storage,
        pointer: &BlockPointer,
        mut keep: impl FnMut(Part<'_>),
    ) -> Option<Arc<Vec<u8>>> {
        let wanted = key(pointer);
        let prefetch = self.prefetches.lock().by_block.get(&wanted).cloned()?;
        // Another thread may be taking the prefetch: when this lock is acquired, all blocks have been kept.
        let mut run = prefetch.run.lock();
        let mut found = None;
        run.take()?.finish(&storage.space, |pointer, stored, content| {
            let content = Arc::new(content);
            if key(pointer) == wanted {
                found = Some(content.clone());
            }
            keep(Part { pointer, stored, content });
        });
        let mut prefetches = self.prefetches.lock();
        prefetches.clock += prefetch.bytes;
        prefetches.remove(&prefetch);
        found
    }

    /// Forgets all prefetches: devices are about to leave, or have left.
    pub(crate) fn ground(&self) {
        let mut prefetches = self.prefetches.lock();
        // A number is never used again: a thread that is taking a prefetch removes no other prefetch.
        let (next, changes) = (prefetches.next, prefetches.changes + 1);
        let dropped = mem::replace(&mut *prefetches, Prefetches { next, changes, ..Prefetches::default() });
        drop(prefetches);
        drop(dropped);
    }
}

impl Drop for Ahead {
    /// A request under way may have its device open. It is waited for, so that the device is free to be opened again.
    fn drop(&mut self) {
        for prefetch in mem::take(self.prefetches.get_mut()).all.into_values() {
            if let Some(run) = prefetch.run.lock().take() {
                run.wait();
            }
        }
    }
}
