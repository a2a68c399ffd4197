//! The free spans of a chunk for TRIM and initialization: all of them, or those freed since the last TRIM.
//!
//! A free is noted, and the note stays when the span is allocated again: TRIM asks the map for the free part, with the
//! chunk locked. A chunk with very many notes is noted as a whole.

use super::{Chunk, Map, Standing, State};
use crate::{
    error::Result,
    format::space::Span,
    space::{io::Disk, span_set::SpanSet},
};

/// The most spans noted for a chunk.
const NOTED: usize = 512;

impl Chunk {
    /// Passes the free spans from `from` on to `visit`, in order and with the chunk locked, until `visit` returns
    /// false; then returns the place to continue. Spans longer than `most` sectors come in parts of whole units. A map
    /// that is not loaded stays so. An active chunk, or one that is not open, has nothing to pass.
    pub(in crate::space) fn for_each_free(
        &self,
        (from, most): (u32, u32),
        disk: &Disk<'_>,
        visit: &mut dyn FnMut(Span) -> Result<bool>,
    ) -> Result<Option<u32>> {
        let state = self.state.lock();
        if state.active || state.standing != Standing::Open {
            return Ok(None);
        }
        let mut spans: Vec<Span> = match &state.map {
            Map::Loaded(map) => map.spans().collect(),
            Map::Unloaded(replay) => self.read_map(&state, replay, disk)?.spans().collect(),
        };
        spans.retain(|span| span.end() > from);
        spans.sort_unstable_by_key(|span| span.start);
        let most = (most - most % self.unit).max(self.unit);
        for span in spans {
            let mut start = span.start.max(from);
            while start < span.end() {
                let part = Span::new(start, most.min(span.end() - start));
                if !visit(part)? {
                    return Ok(Some(part.end()));
                }
                start = part.end();
            }
        }
        Ok(None)
    }

    /// Passes spans of at least `least` sectors that were freed since the last call, and are still free, to `visit`, in
    /// order and with the chunk locked. `false` if `visit` returned false and stopped. Shorter spans wait for more free
    /// space beside them. A map that is not loaded is read only if there are notes.
    pub(in crate::space) fn for_each_fresh(
        &self,
        least: u32,
        disk: &Disk<'_>,
        visit: &mut dyn FnMut(Span) -> Result<bool>,
    ) -> Result<bool> {
        let mut state = self.state.lock();
        let noted: Vec<Span> = state.fresh.iter().filter(|span| span.len >= least).collect();
        if noted.is_empty() || state.active || state.standing != Standing::Open {
            return Ok(true);
        }
        let free = match &state.map {
            Map::Loaded(map) => SpanSet::from_spans(map.spans()),
            Map::Unloaded(replay) => SpanSet::from_spans(self.read_map(&state, replay, disk)?.spans()),
        };
        for noted in noted {
            for span in free.within(noted) {
                if span.len < least {
                    continue;
                }
                let goes_on = visit(span)?;
                state.fresh.subtract(span);
                if !goes_on {
                    return Ok(false);
                }
            }
            // A span allocated again is noted when it is freed again.
            state.fresh.subtract(noted);
            for short in free.within(noted).into_iter().filter(|span| span.len < least) {
                state.fresh.union(short);
            }
        }
        Ok(true)
    }
}

impl State {
    /// Notes that a span was freed, in a chunk of so many sectors.
    pub(super) fn note_fresh(&mut self, span: Span, sectors: u32) {
        self.fresh.union(span);
        if self.fresh.count() > NOTED {
            self.fresh = SpanSet::from_spans([Span::new(0, sectors)]);
        }
    }
}
