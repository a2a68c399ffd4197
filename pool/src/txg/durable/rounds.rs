//! The log of an opened pool in memory: its ring, and rounds of trees that wait for a frame.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    format::{
        intent::{Entry, LogHead},
        pointer::Address,
    },
    log::{Ring, Standing},
    txg::head::Head,
    units::Txg,
};

/// Counters of the log since the pool was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Frames written; each costs one flush.
    pub frames: u64,
    /// Bytes of the frames, as written.
    pub bytes: u64,
    /// Calls served by the log: they wrote a frame, or shared one.
    pub calls: u64,
    /// Calls served by a commit instead.
    pub commits: u64,
}

/// The log of an opened pool.
#[derive(Default)]
pub(in crate::txg) struct Log {
    pub(super) state: Mutex<State>,
    /// Held while a frame is written.
    pub(super) turn: Mutex<()>,
    /// Whether entries found at import still have to be replayed. Until then nothing may be committed.
    pub(super) applying: AtomicBool,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) ring: Option<Ring>,
    /// The area of a retired log, until a commit frees it.
    pub(super) retired: Option<(Address, u32)>,
    /// The number of the first frame of the next ring: none is used twice.
    pub(super) sequence: u64,
    /// The trees that wait for a frame.
    pub(super) enlisted: BTreeMap<u64, Arc<Head>>,
    /// The round that will include the enlisted trees, and the last durable one.
    pub(super) round: u64,
    pub(super) durable: u64,
    /// Entries collected since this group was open may be lost: only a commit of this group makes the changes durable.
    pub(super) broken: Option<Txg>,
    /// The number of the next block in the log.
    pub(super) block: u64,
    pub(super) stats: LogStats,
    /// The entries found at import, until `take_log`.
    pub(super) found: Vec<Entry>,
}

impl Log {
    /// The log named by the last uberblock, if any, with the allocation unit of its area in sectors, and the entries
    /// found in the log.
    pub(in crate::txg) fn new(head: Option<(LogHead, u32)>, found: Vec<Entry>) -> Log {
        let ring = head.and_then(|(head, unit)| Ring::found(&head, unit));
        Log {
            applying: AtomicBool::new(!found.is_empty()),
            state: Mutex::new(State { ring, found, round: 1, sequence: 1, ..State::default() }),
            turn: Mutex::default(),
        }
    }

    /// Keeps frames from being written while the guard is held.
    pub(in crate::txg) fn hold(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Where the log stands when a group is frozen. The gate must be closed.
    pub(in crate::txg) fn standing(&self) -> Standing {
        self.state.lock().ring.as_ref().map(Ring::standing).unwrap_or_default()
    }

    /// The uberblock of `txg` is stable.
    pub(in crate::txg) fn committed(&self, txg: Txg) {
        let mut state = self.state.lock();
        state.broken = state.broken.filter(|broken| *broken > txg);
        if let Some(ring) = &mut state.ring {
            ring.committed(txg);
        }
    }

    /// Enlists a tree. Returns the round that will make the tree durable; `None` if no log can be written.
    pub(super) fn enlist(&self, head: &Arc<Head>) -> Option<u64> {
        let mut state = self.state.lock();
        state.stats.calls += 1;
        if state.broken.is_some() || !state.ring.as_ref().is_some_and(Ring::is_named) {
            return None;
        }
        state.enlisted.insert(head.id(), head.clone());
        Some(state.round)
    }

    pub(super) fn is_durable(&self, round: u64) -> bool {
        self.state.lock().durable >= round
    }

    /// Begins a round with all enlisted trees.
    pub(super) fn begin(&self) -> (u64, Vec<Arc<Head>>) {
        let mut state = self.state.lock();
        state.round += 1;
        (state.round - 1, std::mem::take(&mut state.enlisted).into_values().collect())
    }

    /// Whether entries found at import still have to be replayed.
    pub(in crate::txg) fn is_applying(&self) -> bool {
        self.applying.load(Ordering::Acquire)
    }

    pub(super) fn is_broken(&self) -> bool {
        self.state.lock().broken.is_some()
    }
}
