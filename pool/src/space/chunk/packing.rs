//! A chunk that is packed, and what becomes of its region and of those that take in what was in it: see
//! [`super::super::packing`].

use std::sync::atomic::Ordering::Relaxed;

use super::{Chunk, CountedIn, Standing};
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
        self.standing() == Standing::Packed
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
        // Whoever was putting it into a slot when it was closed has left it there.
        state.active = false;
        self.hints.active.store(false, Relaxed);
        self.stand(&mut state, Standing::Packed, CountedIn::default());
        self.arrive(txg);
        state.map_at.replace(map)
    }

    /// What is allocated in it now.
    pub(in crate::space) fn live(&self, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let mut state = self.state.lock();
        let mut free: Vec<Span> = self.load(&mut state, disk)?.spans().collect();
        free.extend(state.changes.iter().flat_map(|changes| changes.freed.iter()));
        Ok(complement(&normalize(free), self.sectors))
    }

    /// Allocates these spans of a chunk that was set aside, which must be free, and has it stand so, counted here.
    pub(in crate::space) fn take_in(
        &self,
        txg: Txg,
        spans: &[Span],
        (standing, tally): (Standing, CountedIn),
        disk: &Disk<'_>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        for &span in spans {
            let map = self.load(&mut state, disk)?;
            assert!(map.take_exactly(span), "what is packed lies where nothing is free");
            self.note_allocated(&mut state, txg, span);
        }
        if state.class.is_none() && !spans.is_empty() {
            state.tally.empty.fetch_sub(1, Relaxed);
            self.set_class(&mut state, Some(Class::Data));
        }
        self.stand(&mut state, standing, tally);
        Ok(())
    }

    /// Has all of a chunk that was never used be allocated and freed in `txg`: older states have something in its region.
    pub(in crate::space) fn withhold(&self, txg: Txg, stands: (Standing, CountedIn), disk: &Disk<'_>) -> Result<()> {
        let all = Span::new(0, self.sectors);
        self.take_in(txg, &[all], stands, disk)?;
        self.free(txg, all)
    }
}
