//! What of a chunk nobody needs, for the devices to be told: all that is free, or what has become free since they were told.
//!
//! What has become free is noted when it does, and not taken out when it is allocated again: whoever tells the devices asks
//! the map what is free, with the chunk locked. Of a chunk of which very much would have to be noted, all is.

use super::{Chunk, Map, Standing, State};
use crate::{
    error::Result,
    format::space::Span,
    space::{io::Disk, span_set::SpanSet},
};

/// The most spans that are noted of a chunk.
const NOTED: usize = 512;

impl Chunk {
    /// Hands the free spans from `from` on to `visit`, in order and with the chunk locked, until it says to stop; then where
    /// to go on. A map that is not loaded stays so, and nothing is handed out of a chunk that somebody allocates in or that is
    /// not open.
    pub(in crate::space) fn for_each_free(
        &self,
        from: u32,
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
        spans.retain(|span| span.start >= from);
        spans.sort_unstable_by_key(|span| span.start);
        for span in spans {
            if !visit(span)? {
                return Ok(Some(span.end()));
            }
        }
        Ok(None)
    }

    /// Hands what has become free since it was handed out, and still is, to `visit`, in spans of at least `least` sectors, in
    /// order and with the chunk locked, until it says to stop; `false` if it did. Shorter ones wait until more is free beside
    /// them. A map that is not loaded is read only if there may be something.
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
            // What is allocated again is noted when it becomes free again.
            state.fresh.subtract(noted);
            for short in free.within(noted).into_iter().filter(|span| span.len < least) {
                state.fresh.union(short);
            }
        }
        Ok(true)
    }
}

impl State {
    /// Notes that a span of a chunk of so many sectors has become free.
    pub(super) fn note_fresh(&mut self, span: Span, sectors: u32) {
        self.fresh.union(span);
        if self.fresh.count() > NOTED {
            self.fresh = SpanSet::from_spans([Span::new(0, sectors)]);
        }
    }
}
