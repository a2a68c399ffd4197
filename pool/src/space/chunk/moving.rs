//! A chunk that moves to another place. Its counters change with the place; its content does not.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{Chunk, CountedIn, Standing, State, seat};
use crate::units::{Txg, VdevId};

impl Chunk {
    /// Sets aside an empty, unused chunk, for copies into its region. False if the chunk is not empty and unused.
    pub(in crate::space) fn hold(&self) -> bool {
        self.set_aside(Standing::Target)
    }

    /// Sets aside a chunk if it is empty, because older states refer to its region.
    pub(in crate::space) fn rest(&self) -> bool {
        self.set_aside(Standing::Resting)
    }

    fn set_aside(&self, standing: Standing) -> bool {
        let mut state = self.state.lock();
        let is_unused = state.class.is_none() && !state.active && state.free == self.sectors;
        if !is_unused || state.standing != Standing::Open {
            return false;
        }
        self.stand(&mut state, standing, CountedIn::default());
        true
    }

    /// Changes the role of a chunk to one that is not set aside, with these counters.
    pub(in crate::space) fn set_standing(&self, standing: Standing, tally: CountedIn) {
        self.stand(&mut self.state.lock(), standing, tally);
    }

    /// Moves the chunk to another place from `txg` on, closed or resting, with these counters.
    pub(in crate::space) fn relocate(
        &self,
        (vdev, region): (VdevId, u32),
        txg: Txg,
        standing: Standing,
        tally: CountedIn,
    ) {
        let mut state = self.state.lock();
        assert_ne!(standing, Standing::Open, "SPACE-6: a chunk has moved, and no table names its place");
        self.stand(&mut state, standing, tally);
        state.active = false;
        self.hints.active.store(false, Relaxed);
        self.settle(&mut state);
        self.seat.store(seat(vdev, region), Release);
        self.arrive(txg);
    }

    /// Notes that the table of `txg` is the first that may name the chunk's new place.
    pub(in crate::space) fn arrive(&self, txg: Txg) {
        self.arrived.store(txg.0, Release);
        self.row_changed.store(true, Relaxed);
    }

    /// How many of its sectors are allocated.
    pub(in crate::space) fn allocated(&self) -> u32 {
        let state = self.state.lock();
        self.sectors - state.free - state.deferred
    }

    /// Whether the chunk could be set aside, as of a moment ago.
    pub(in crate::space) fn is_spare(&self) -> bool {
        let is_open = self.standing() == Standing::Open;
        is_open && self.class_hint().is_none() && !self.active_hint() && self.free_hint() == self.sectors
    }

    /// Whether all sectors are free.
    pub(in crate::space) fn is_free(&self) -> bool {
        self.state.lock().free == self.sectors
    }

    pub(super) fn stand(&self, state: &mut State, standing: Standing, tally: CountedIn) {
        let (free, deferred, is_empty) = (state.free, state.deferred, state.class.is_none());
        state.tally.sub(free, deferred, is_empty);
        tally.add(free, deferred, is_empty);
        state.tally = tally;
        state.standing = standing;
        self.hints.standing.store(standing as u8, Relaxed);
    }
}
