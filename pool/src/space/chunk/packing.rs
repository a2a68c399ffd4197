//! A packed chunk, the chunk that takes over its region, and its hosts: see [`super::super::packing`].

use std::sync::atomic::Ordering::Relaxed;

use super::{Chunk, CountedIn, Standing};
use crate::{
    error::Result,
    format::space::{Class, PhysicalPointer, Span, packing::Entry},
    space::{
        io::Disk,
        span_set::{complement, normalize},
    },
    units::Txg,
};

impl Chunk {
    /// Whether the chunk is packed.
    pub(in crate::space) fn is_packed(&self) -> bool {
        self.standing() == Standing::Packed
    }

    /// The stored map or places, if the chunk has any.
    pub(in crate::space) fn map_at(&self) -> Option<PhysicalPointer> {
        self.state.lock().map_at
    }

    /// Sets the map that the table now names, or none if it names no places either, and returns the former one.
    pub(in crate::space) fn set_map_at(&self, map: Option<PhysicalPointer>) -> Option<PhysicalPointer> {
        let mut state = self.state.lock();
        state.seconds = None;
        std::mem::replace(&mut state.map_at, map)
    }

    /// Packs the chunk with this map from `txg` on: no more allocations, and no counters. Returns the former map. A
    /// concurrent reader of the old place still finds the blocks. Stored places, with their second ones, take the place
    /// of a map.
    pub(in crate::space) fn pack(
        &self,
        txg: Txg,
        map: PhysicalPointer,
        seconds: Option<Vec<Entry>>,
    ) -> Option<PhysicalPointer> {
        let mut state = self.state.lock();
        // A thread that activated the chunk while it was being closed has left it active.
        state.active = false;
        self.hints.active.store(false, Relaxed);
        self.stand(&mut state, Standing::Packed, CountedIn::default());
        self.arrive(txg);
        drop(state);
        match seconds {
            Some(seconds) => self.set_places(txg, seconds, map),
            None => self.set_map_at(Some(map)),
        }
    }

    /// The spans allocated now.
    pub(in crate::space) fn live(&self, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let mut state = self.state.lock();
        let mut free: Vec<Span> = self.load(&mut state, disk)?.spans().collect();
        free.extend(state.changes.iter().flat_map(|changes| changes.freed.iter()));
        Ok(complement(&normalize(free), self.sectors))
    }

    /// Allocates the spans, which must be free, in a chunk that was set aside, and puts it into use with this role and
    /// these counters.
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
            assert!(map.take_exactly(span), "SPACE-1: packed blocks get sectors that are not free");
            self.note_allocated(&mut state, txg, span);
        }
        if state.class.is_none() && !spans.is_empty() {
            state.tally.empty.fetch_sub(1, Relaxed);
            self.set_class(&mut state, Some(Class::Data));
        }
        self.stand(&mut state, standing, tally);
        Ok(())
    }

    /// Allocates and frees a whole unused chunk in `txg`: older states refer to its region.
    pub(in crate::space) fn withhold(&self, txg: Txg, stands: (Standing, CountedIn), disk: &Disk<'_>) -> Result<()> {
        let all = Span::new(0, self.sectors);
        self.take_in(txg, &[all], stands, disk)?;
        self.free(txg, all)
    }
}
