//! A chunk on its way to another place. What is counted where changes with it; what it holds does not.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{Chunk, CountedIn, State, seat};
use crate::units::{Txg, VdevId};

impl Chunk {
    /// Sets a chunk aside that is empty and used by nobody: nothing is allocated in it, and it counts nowhere. False if it
    /// is not such a one.
    pub(in crate::space) fn hold(&self) -> bool {
        let mut state = self.state.lock();
        if state.class.is_some() || state.active || state.held || state.free != self.sectors {
            return false;
        }
        self.count_in(&mut state, CountedIn::default());
        self.set_held(&mut state, true);
        true
    }

    /// Lets a chunk that was set aside be used, and counts it here.
    pub(in crate::space) fn release(&self, tally: CountedIn) {
        let mut state = self.state.lock();
        self.count_in(&mut state, tally);
        self.set_held(&mut state, false);
    }

    /// Counts what it has elsewhere.
    pub(in crate::space) fn recount(&self, tally: CountedIn) {
        self.count_in(&mut self.state.lock(), tally);
    }

    /// Has it lie elsewhere from `txg` on, counted here. With `held` nothing is allocated in it until it is released.
    pub(in crate::space) fn relocate(&self, (vdev, region): (VdevId, u32), txg: Txg, tally: CountedIn, held: bool) {
        let mut state = self.state.lock();
        self.count_in(&mut state, tally);
        self.set_held(&mut state, held);
        state.active = false;
        self.hints.active.store(false, Relaxed);
        self.settle(&mut state);
        self.seat.store(seat(vdev, region), Release);
        self.arrived.store(txg.0, Release);
        self.row_changed.store(true, Relaxed);
    }

    /// How many of its sectors are allocated.
    pub(in crate::space) fn allocated(&self) -> u32 {
        let state = self.state.lock();
        self.sectors - state.free - state.deferred
    }

    /// Whether it could be set aside, as of a moment ago.
    pub(in crate::space) fn is_spare(&self) -> bool {
        self.class_hint().is_none() && !self.active_hint() && !self.is_held() && self.free_hint() == self.sectors
    }

    /// Whether all of it could be allocated, if it were not set aside.
    pub(in crate::space) fn is_free(&self) -> bool {
        self.state.lock().free == self.sectors
    }

    pub(super) fn count_in(&self, state: &mut State, tally: CountedIn) {
        let (free, deferred, is_empty) = (state.free, state.deferred, state.class.is_none());
        state.tally.sub(free, deferred, is_empty);
        tally.add(free, deferred, is_empty);
        state.tally = tally;
    }

    pub(super) fn set_held(&self, state: &mut State, held: bool) {
        state.held = held;
        self.hints.held.store(held, Relaxed);
    }
}
