//! A chunk that is packed, and what becomes of its region and of those that take in what was in it: see
//! [`super::super::packing`].

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Chunk, CountedIn};
use crate::{
    error::Result,
    format::space::{Class, PhysicalPointer, Span},
    space::{
        io::Disk,
        span_set::{complement, normalize},
    },
    units::Txg,
};

impl Chunk {
    /// Whether it lies on no region any more.
    pub(in crate::space) fn is_packed(&self) -> bool {
        self.is_packed.load(Acquire)
    }

    /// Where its map is stored, if it is packed and something is in it.
    pub(in crate::space) fn map_at(&self) -> Option<PhysicalPointer> {
        self.state.lock().map_at
    }

    /// Has its map be this one, as the table says by now, and returns the former.
    pub(in crate::space) fn set_map_at(&self, map: Option<PhysicalPointer>) -> Option<PhysicalPointer> {
        std::mem::replace(&mut self.state.lock().map_at, map)
    }

    /// Has it lie where this map says from `txg` on: nothing is allocated in it any more, and it counts nowhere. Returns the
    /// map it had. Whoever looks where it lay finds that still.
    pub(in crate::space) fn pack(&self, txg: Txg, map: PhysicalPointer) -> Option<PhysicalPointer> {
        let mut state = self.state.lock();
        assert!(!state.active, "somebody allocates in a chunk that is packed");
        self.count_in(&mut state, CountedIn::default());
        self.set_held(&mut state, true);
        self.arrived.store(txg.0, Release);
        self.is_packed.store(true, Release);
        self.row_changed.store(true, Relaxed);
        state.map_at.replace(map)
    }

    /// Has nothing be allocated in it for now, as in one that is emptied.
    #[cfg(test)]
    pub(in crate::space) fn close(&self, is_closed: bool) {
        self.set_held(&mut self.state.lock(), is_closed);
    }

    /// What is allocated in it now.
    pub(in crate::space) fn live(&self, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let mut state = self.state.lock();
        let mut free: Vec<Span> = self.load(&mut state, disk)?.spans().collect();
        free.extend(state.changes.iter().flat_map(|changes| changes.freed.iter()));
        Ok(complement(&normalize(free), self.sectors))
    }

    /// Allocates these spans of a chunk that was set aside, which must be free, and lets it be used and counted here.
    pub(in crate::space) fn take_in(&self, txg: Txg, spans: &[Span], tally: CountedIn, disk: &Disk<'_>) -> Result<()> {
        let mut state = self.state.lock();
        self.load(&mut state, disk)?;
        for &span in spans {
            let map = self.load(&mut state, disk)?;
            assert!(map.take_exactly(span), "what is packed lies where nothing is free");
            self.note_allocated(&mut state, txg, span);
        }
        if state.class.is_none() && !spans.is_empty() {
            state.tally.empty.fetch_sub(1, Relaxed);
            self.set_class(&mut state, Some(Class::Data));
        }
        self.count_in(&mut state, tally);
        self.set_held(&mut state, false);
        Ok(())
    }

    /// Has all of a chunk that was never used be allocated and freed in `txg`: older states have something in its region.
    pub(in crate::space) fn withhold(&self, txg: Txg, disk: &Disk<'_>, tally: CountedIn) -> Result<()> {
        let all = Span::new(0, self.sectors);
        self.take_in(txg, &[all], tally, disk)?;
        self.free(txg, all)
    }
}
