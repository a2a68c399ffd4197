//! Blocks that are being read before anybody waits for them.
//!
//! Whoever knows which blocks are asked for next begins to read them, in runs (see [`super::runs`]), and goes on: a run that
//! is under way is a *flight*. Whoever needs a block of it then waits for the flight to land, and all its blocks are verified
//! and unpacked. So devices work while others do, and several of them at a time, nothing is read twice, and no thread is
//! needed that would have to be stopped. Which blocks are asked for next is known above: see [`crate::txg`]'s streams.
//!
//! A flight whose bytes are not all good, or may be those of other blocks by now ([`Seen`]), is forgotten, and nothing counted: each of its blocks is then read alone by who
//! needs it, who mends it, finds out who is to blame, or waits for a device to come back.
//!
//! Invariants:
//! 1. Flights that nobody waits for yet hold no more than a budget of bytes, and are no more than so many. Beside them are few
//!    with nodes, which are small and asked for later than all others.
//! 2. One that nobody comes for, since whoever was expected does something else, gives its place to others: when they have
//!    read twice the budget since it began, with flights or without.
//! 3. None begins before a change of the pool's devices and lands after it: it would keep a device that has left open.

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
    cache::{BlockKey, key},
    runs::{Run, UnderWay},
    storage::Storage,
};
use crate::{format::pointer::BlockPointer, space::Seen};

/// The budget is this part of the cache in memory.
const PART_OF_CACHE: u64 = 4;
/// The most flights at a time: a device may have a thread for each.
const MOST: usize = 64;
/// The most with nodes beside them.
const MOST_WITH_NODES: usize = 16;

/// A block that has come: its pointer, as it is stored, and its content.
pub(crate) struct Part<'a> {
    pub(crate) pointer: &'a BlockPointer,
    pub(crate) stored: &'a [u8],
    pub(crate) content: Arc<Vec<u8>>,
}

/// The flights of a pool.
pub(crate) struct Ahead {
    budget: AtomicU64,
    flights: Mutex<Flights>,
}

#[derive(Default)]
struct Flights {
    by_block: HashMap<BlockKey, Arc<Flight>>,
    /// By their numbers: the oldest first.
    all: BTreeMap<u64, Arc<Flight>>,
    next: u64,
    /// What those without nodes hold, in bytes.
    bytes: u64,
    /// How many there are with nodes.
    with_nodes: usize,
    /// The bytes that were read with flights, and by those for whom there was no room.
    clock: u64,
    /// How often devices have changed.
    changes: u64,
}

/// What a flight holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Data,
    Nodes,
}

struct Flight {
    number: u64,
    what: What,
    blocks: Vec<BlockKey>,
    bytes: u64,
    /// The clock when it began.
    since: u64,
    /// Taken by who lands it.
    run: Mutex<Option<UnderWay>>,
}

impl Flights {
    fn remove(&mut self, flight: &Flight) {
        if self.all.remove(&flight.number).is_none() {
            return;
        }
        match flight.what {
            What::Data => self.bytes -= flight.bytes,
            What::Nodes => self.with_nodes -= 1,
        }
        for key in &flight.blocks {
            // A later flight may have it, too.
            if self.by_block.get(key).is_some_and(|other| other.number == flight.number) {
                self.by_block.remove(key);
            }
        }
    }

    /// How many more there may be.
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
        let flight = Arc::new(Flight { number, what, blocks, bytes, since, run: Mutex::new(Some(run)) });
        self.by_block.extend(flight.blocks.iter().map(|key| (*key, flight.clone())));
        match what {
            What::Data => self.bytes += bytes,
            What::Nodes => self.with_nodes += 1,
        }
        self.all.insert(number, flight);
    }

    /// The flights that nobody comes for any more.
    fn take_stale(&mut self, budget: u64) -> Vec<Arc<Flight>> {
        let is_stale = |flight: &&Arc<Flight>| flight.since + 2 * budget < self.clock;
        let stale: Vec<Arc<Flight>> = self.all.values().take_while(is_stale).cloned().collect();
        stale.iter().for_each(|flight| self.remove(flight));
        stale
    }
}

impl Ahead {
    /// Flights beside a cache of so many bytes.
    pub(crate) fn new(cache: u64) -> Ahead {
        Ahead { budget: AtomicU64::new(cache / PART_OF_CACHE), flights: Mutex::default() }
    }

    /// The cache has so many bytes from now on.
    pub(crate) fn set_cache(&self, cache: u64) {
        self.budget.store(cache / PART_OF_CACHE, Ordering::Relaxed);
    }

    /// What all flights together may hold, in bytes.
    pub(crate) fn budget(&self) -> u64 {
        self.budget.load(Ordering::Relaxed)
    }

    /// How much of `wanted` bytes may be begun to be read, for somebody who has just read so many.
    pub(crate) fn room(&self, wanted: u64, read: u64) -> u64 {
        let budget = self.budget();
        let mut flights = self.flights.lock();
        let room = |flights: &Flights| match flights.free(What::Data) {
            0 => 0,
            _ => budget.saturating_sub(flights.bytes).min(wanted),
        };
        let found = room(&flights);
        if found == wanted {
            return found;
        }
        flights.clock += read;
        let stale = flights.take_stale(budget);
        let found = room(&flights);
        drop(flights);
        // What it takes to let them go is not done under the lock.
        drop(stale);
        found
    }

    /// Whether a block is on its way.
    pub(crate) fn has(&self, pointer: &BlockPointer) -> bool {
        self.flights.lock().by_block.contains_key(&key(pointer))
    }

    /// Begins to read blocks, the first `waited` of which somebody is about to wait for. If these are all, and lie next to each
    /// other, they are read at once: nothing is gained by asking others for that. `keep` is given what has come.
    pub(crate) fn bring(
        &self,
        storage: &Storage,
        (blocks, seen): (&[BlockPointer], Seen),
        waited: usize,
        keep: impl Fn(Part<'_>),
    ) {
        let stale = {
            let mut flights = self.flights.lock();
            if waited == blocks.len() {
                flights.clock += blocks.iter().map(|pointer| u64::from(pointer.stored)).sum::<u64>();
            }
            flights.take_stale(self.budget())
        };
        drop(stale);
        let mut runs = storage.runs_of(blocks);
        if let ([run], true) = (&runs[..], waited == blocks.len()) {
            // Who needs a block that is alone reads it.
            if run.len() > 1 {
                storage.read_run(run, blocks, seen, &mut |at, stored, content| {
                    keep(Part { pointer: &blocks[at], stored, content: Arc::new(content) });
                });
            }
            return;
        }
        // What somebody waits for first, each in the order in which it lies.
        runs.sort_by_key(|run| run.iter().all(|copy| copy.block >= waited));
        self.begin(storage, &runs, (blocks, seen), What::Data);
    }

    /// Begins to read nodes that nobody waits for yet, the first of them that there is room for.
    pub(crate) fn begin_nodes(&self, storage: &Storage, nodes: &[BlockPointer], seen: Seen) {
        let free = self.flights.lock().free(What::Nodes);
        let nodes = &nodes[..free.min(nodes.len())];
        self.begin(storage, &storage.runs_of(nodes), (nodes, seen), What::Nodes);
    }

    fn begin(&self, storage: &Storage, runs: &[Run], (blocks, seen): (&[BlockPointer], Seen), what: What) {
        let changes = self.flights.lock().changes;
        for run in runs {
            if self.flights.lock().free(what) == 0 {
                return;
            }
            let Some(run) = storage.begin_run(run, blocks, seen) else { continue };
            let mut flights = self.flights.lock();
            if flights.changes != changes {
                return;
            }
            flights.add(run, what);
        }
    }

    /// The content of a block that is on its way, if it comes and is good. `keep` is given everything that comes with it.
    pub(crate) fn land(
        &self,
        storage: &Storage,
        pointer: &BlockPointer,
        mut keep: impl FnMut(Part<'_>),
    ) -> Option<Arc<Vec<u8>>> {
        let wanted = key(pointer);
        let flight = self.flights.lock().by_block.get(&wanted).cloned()?;
        // Somebody else may be at it: then all of it is kept when this lock is had.
        let mut run = flight.run.lock();
        let mut found = None;
        run.take()?.finish(&storage.space, |pointer, stored, content| {
            let content = Arc::new(content);
            if key(pointer) == wanted {
                found = Some(content.clone());
            }
            keep(Part { pointer, stored, content });
        });
        let mut flights = self.flights.lock();
        flights.clock += flight.bytes;
        flights.remove(&flight);
        found
    }

    /// Forgets all flights: devices are about to leave, or have left.
    pub(crate) fn ground(&self) {
        let mut flights = self.flights.lock();
        // A number is never used again: who lands a flight just now removes that one and no other.
        let (next, changes) = (flights.next, flights.changes + 1);
        let grounded = mem::replace(&mut *flights, Flights { next, changes, ..Flights::default() });
        drop(flights);
        drop(grounded);
    }
}

impl Drop for Ahead {
    /// A request that is under way may have its device open: it is waited for, so that the next one who opens the device
    /// finds it free.
    fn drop(&mut self) {
        for flight in mem::take(self.flights.get_mut()).all.into_values() {
            if let Some(run) = flight.run.lock().take() {
                run.wait();
            }
        }
    }
}
