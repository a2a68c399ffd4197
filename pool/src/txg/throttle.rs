//! How much may be dirty, and how writers are slowed when much is.
//!
//! Admitted data that is not yet stored needs memory and will need space. Every byte is admitted here first: against
//! the room that is left, and against the bound on dirty memory. Nodes are counted beside the data, with a bound of
//! their own: frees change nodes too, and a commit must find room for all of them.
//!
//! The fuller of the two decides. Its cause is counted as *work*: the callers' bytes, and a little for each update.
//! Nodes, and blocks read in order to be changed, are not counted as work, because they would hit one caller and spare
//! the next. They make everyone's work fill memory sooner instead. From empty to full:
//!
//! * Up to a quarter nothing happens, and asking costs a few loads.
//! * When the open group alone is fuller, a commit is requested. Under pressure commits follow each other.
//! * When both groups together are fuller, a writer waits for its turn: see [`crate::txg::pace`].
//! * At the limit, the last resort: the engine makes the writer wait for the commit under way, or commit itself.
//!
//! Nothing here sleeps or tells the time: the engine does, without any lock.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;

use crate::{
    txg::pace::{FREE, Load, Pace, Turn},
    units::Txg,
};

/// Bytes of work of an update, beside its data.
const UPDATE: u64 = 512;

/// Dirty bytes not yet committed, of the open group and of the one being written.
pub(super) struct Throttle {
    /// Bytes of data, as admitted.
    pub(super) data: Gauge,
    /// Bytes of nodes in memory, with all their copies.
    pub(super) nodes: Gauge,
    /// The most that records may take beyond their bytes. Rounding needs no memory.
    rounding: Groups,
    work: Groups,
    pace: Mutex<Pace>,
}

impl Throttle {
    pub(super) fn new(limit: u64) -> Throttle {
        let (data, nodes) = (Gauge::new(limit), Gauge::new(limit));
        Throttle { data, nodes, rounding: Groups::default(), work: Groups::default(), pace: Mutex::default() }
    }

    /// Sets the limit of dirty bytes.
    pub(super) fn set_limit(&self, limit: u64) {
        self.data.set_limit(limit);
        self.pace.lock().forget_capacity();
    }

    /// Counts an update in the open group `txg`, with the bytes of nodes made dirty.
    pub(super) fn add_update(&self, txg: Txg, nodes: u64) {
        self.add_work(txg, UPDATE);
        self.nodes.add(txg, nodes);
    }

    /// Counts work in the open group `txg`.
    pub(super) fn add_work(&self, txg: Txg, work: u64) {
        self.work.of(txg).fetch_add(work, Relaxed);
    }

    /// Counts the most that a record in the open group `txg` may take beyond its bytes.
    pub(super) fn add_rounding(&self, txg: Txg, bytes: u64) {
        self.rounding.of(txg).fetch_add(bytes, Relaxed);
    }

    /// How many bytes of space dirty records may need, without nodes.
    pub(super) fn expected(&self) -> u64 {
        self.data.dirty() + self.rounding.sum()
    }

    /// Whether both gauges are at or below [`FREE`].
    pub(super) fn is_light(&self) -> bool {
        self.data.fullness() <= FREE && self.nodes.fullness() <= FREE
    }

    /// Whether the group alone is above [`FREE`].
    pub(super) fn is_worth_a_commit(&self, txg: Txg) -> bool {
        self.load_of(txg).fullness > FREE
    }

    /// Takes a place in the queue of writers, for `work` or at least an update; `None` if no wait is needed.
    pub(super) fn queue(&self, work: u64, now: Duration) -> Option<Turn> {
        self.pace.lock().queue(work.max(UPDATE), self.load(), now)
    }

    /// How long to sleep before asking again, or nothing if the turn has come.
    pub(super) fn wait(&self, turn: Turn, now: Duration) -> Option<Duration> {
        self.pace.lock().wait(turn, self.load(), now)
    }

    /// The writing of `txg` begins. Only its own sync adds to it any more.
    pub(super) fn syncing(&self, txg: Txg, now: Duration) {
        self.pace.lock().syncing(self.load_of(txg), now);
    }

    /// The group is committed: none of its bytes is dirty.
    pub(super) fn committed(&self, txg: Txg, now: Duration) {
        let mut pace = self.pace.lock();
        for groups in [&self.data.groups, &self.nodes.groups, &self.rounding, &self.work] {
            groups.of(txg).store(0, Relaxed);
        }
        pace.committed(now);
    }

    fn load(&self) -> Load {
        Load { work: self.work.sum(), fullness: self.data.fullness().max(self.nodes.fullness()) }
    }

    fn load_of(&self, txg: Txg) -> Load {
        Load { work: self.work.get(txg), fullness: self.data.fullness_of(txg).max(self.nodes.fullness_of(txg)) }
    }
}

/// Dirty bytes of one kind, and their limit.
pub(super) struct Gauge {
    groups: Groups,
    limit: AtomicU64,
}

impl Gauge {
    fn new(limit: u64) -> Gauge {
        Gauge { groups: Groups::default(), limit: AtomicU64::new(limit) }
    }

    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Relaxed);
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Dirty bytes of both groups.
    pub(super) fn dirty(&self) -> u64 {
        self.groups.sum()
    }

    /// Whether `bytes` more would be too many.
    pub(super) fn is_full(&self, bytes: u64) -> bool {
        self.dirty() + bytes > self.limit()
    }

    /// Counts dirty bytes in the open group `txg`.
    pub(super) fn add(&self, txg: Txg, bytes: u64) {
        self.groups.of(txg).fetch_add(bytes, Relaxed);
    }

    fn fullness(&self) -> f64 {
        self.dirty() as f64 / self.limit() as f64
    }

    fn fullness_of(&self, txg: Txg) -> f64 {
        self.groups.get(txg) as f64 / self.limit() as f64
    }
}

/// A number for the open group and another for the group being written.
#[derive(Default)]
struct Groups([AtomicU64; 2]);

impl Groups {
    fn of(&self, txg: Txg) -> &AtomicU64 {
        &self.0[(txg.0 % 2) as usize]
    }

    fn get(&self, txg: Txg) -> u64 {
        self.of(txg).load(Relaxed)
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(|group| group.load(Relaxed)).sum()
    }
}
