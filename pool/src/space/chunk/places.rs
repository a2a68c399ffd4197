//! The second places of a chunk's sectors, on archives: see [`super::super::sitting`].
//!
//! Invariants, under the chunk's lock:
//!
//! 1. A sector with a second place is allocated in the chunk, and the second place is allocated on the archive, in every
//!    group alike: `SPACE-7`.
//! 2. Stored places, less the frees in the logs of their group *since* and later, are the places at the end of the state.
//!    Therefore a checkpoint, after which the log of earlier groups may go, brings new places if the stored ones lack
//!    frees: `SPACE-8`.
//!
//! Frees of the next group go on while a group is synced. The places stored for the group must still have what only the
//! next group frees; otherwise a crash in between would leave the archive's sectors allocated for nothing.

use super::{Chunk, State, seconds::Seconds};
use crate::{
    error::Result,
    format::{
        pointer::Address,
        space::{PhysicalPointer, Span, packing::Entry, places::Places},
    },
    space::{io::Disk, span_set::normalize},
    units::Txg,
};

impl State {
    /// Frees the second places of a span, and returns them.
    pub(super) fn end_seconds(&mut self, txg: Txg, span: Span, is_packed: bool) -> Vec<Entry> {
        self.seconds.as_mut().map_or_else(Vec::new, |seconds| seconds.free(txg, span, is_packed))
    }

    /// The group that entered the newest second places, and the stored places; none if the chunk has a map or nothing.
    pub(super) fn stored_places(&self) -> (Txg, Option<PhysicalPointer>) {
        match (&self.seconds, self.map_at) {
            (Some(seconds), Some(places)) => (seconds.entered, Some(places)),
            _ => (Txg::ZERO, None),
        }
    }
}

impl Chunk {
    /// Where sectors have a second place, if one entry has it whole.
    pub(in crate::space) fn second(&self, span: Span) -> Option<Address> {
        let state = self.state.lock();
        match state.seconds.as_ref()?.within(span)[..] {
            [entry] if entry.span == span => Some(entry.host),
            _ => None,
        }
    }

    /// The stored form of places written in `txg`.
    pub(in crate::space) fn places(&self, txg: Txg, homes: Vec<Entry>, seconds: Vec<Entry>) -> Places {
        Places { chunk: self.id, sectors: self.sectors, since: txg, homes, seconds }
    }

    /// Whether any of the sectors has a second place.
    pub(in crate::space) fn has_second(&self, span: Span) -> bool {
        self.state.lock().seconds.as_ref().is_some_and(|seconds| !seconds.within(span).is_empty())
    }

    /// Whether the chunk's row names places, and not a map or nothing.
    pub(in crate::space) fn has_places(&self) -> bool {
        self.state.lock().seconds.is_some()
    }

    /// Whether the stored places lack frees.
    pub(in crate::space) fn lacks_frees(&self) -> bool {
        let is_lacking = |seconds: &Seconds| seconds.lacking > Txg::ZERO && seconds.lacking >= seconds.since;
        self.state.lock().seconds.as_ref().is_some_and(is_lacking)
    }

    /// The log up to the group before `txg` is about to go.
    ///
    /// # Panics
    /// If the stored places lack frees of groups up to `txg`, the group being synced.
    pub(in crate::space) fn assert_no_free_is_missing(&self, txg: Txg) {
        if let Some(Seconds { lacking, since, .. }) = self.state.lock().seconds.as_ref() {
            let is_missing = (*since..=txg).contains(lacking) && *lacking > Txg::ZERO;
            assert!(!is_missing, "SPACE-8: the places of chunk {} lack what {lacking} freed", self.id);
        }
    }

    /// The second places at the end of `txg`, the group being synced or the open one.
    pub(in crate::space) fn seconds_at(&self, txg: Txg) -> Vec<Entry> {
        self.state.lock().seconds.as_ref().map_or_else(Vec::new, |seconds| seconds.at(txg))
    }

    /// Whether there are none at the end of `txg`.
    pub(in crate::space) fn has_no_seconds_at(&self, txg: Txg) -> bool {
        self.state.lock().seconds.as_ref().is_none_or(|seconds| seconds.is_empty_at(txg))
    }

    /// The newest group that entered second places of the chunk; zero if there are none.
    pub(in crate::space) fn entered(&self) -> Txg {
        self.state.lock().seconds.as_ref().map_or(Txg::ZERO, |seconds| seconds.entered)
    }

    /// How many entries the second places have.
    pub(in crate::space) fn second_entries(&self) -> usize {
        self.state.lock().seconds.as_ref().map_or(0, |seconds| seconds.entries.len())
    }

    /// Notes that the places of the end of `txg` are stored there, with these second places, and returns what they
    /// replace: former places or a map.
    pub(in crate::space) fn set_places(
        &self,
        txg: Txg,
        seconds: Vec<Entry>,
        at: PhysicalPointer,
    ) -> Option<PhysicalPointer> {
        let mut state = self.state.lock();
        let living = state.seconds.get_or_insert_default().set(txg, seconds);
        let allocated = u64::from(self.sectors - state.free - state.deferred);
        assert!(living <= allocated, "SPACE-7: chunk {} has {living} second places of {allocated} sectors", self.id);
        state.map_at.replace(at)
    }

    /// As [`Chunk::set_places`], with second places entered in the open group `txg`, whose table must name them.
    pub(in crate::space) fn enter(
        &self,
        txg: Txg,
        seconds: Vec<Entry>,
        at: PhysicalPointer,
    ) -> Option<PhysicalPointer> {
        let former = self.set_places(txg, seconds, at);
        if let Some(seconds) = &mut self.state.lock().seconds {
            seconds.entered = txg;
        }
        self.row_changed.store(true, std::sync::atomic::Ordering::Relaxed);
        former
    }

    /// The spans that are free now, in order.
    pub(in crate::space) fn free_spans(&self, disk: &Disk<'_>) -> Result<Vec<Span>> {
        let mut state = self.state.lock();
        Ok(normalize(self.load(&mut state, disk)?.spans().collect()))
    }
}
