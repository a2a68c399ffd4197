//! The free sectors of one chunk, and the place to allocate next.
//!
//! Allocation is next-fit: a *cursor* walks through one free span at a time, so that blocks allocated together lie
//! together and the common allocation is an addition. When the cursor's span is used up, the next span behind the
//! cursor with enough room is taken. If a few are too short, the best fit of the chunk is taken.
//!
//! Invariants:
//! 1. `by_start` and `by_size` hold the same spans: disjoint, not empty, not touching each other.
//! 2. The cursor's span is in neither.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::space::Span;

/// How many spans behind the cursor are looked at before the best fit is taken.
const LOOK_AHEAD: usize = 16;

/// A chunk's free sectors.
#[derive(Debug, Default)]
pub(super) struct FreeMap {
    cursor: Span,
    by_start: BTreeMap<u32, u32>,
    by_size: BTreeSet<(u32, u32)>,
}

impl FreeMap {
    /// A map of free spans, disjoint and not touching.
    pub(super) fn from_spans(spans: impl IntoIterator<Item = Span>) -> FreeMap {
        let mut map = FreeMap::default();
        for span in spans {
            map.link(span);
        }
        map
    }

    /// Takes `len` sectors in one piece, and returns the first.
    pub(super) fn take(&mut self, len: u32) -> Option<u32> {
        if self.cursor.len < len {
            self.move_cursor(len)?;
        }
        let start = self.cursor.start;
        self.cursor = Span::new(start + len, self.cursor.len - len);
        Some(start)
    }

    /// Takes exactly `span`, if all of it is free.
    pub(super) fn take_exactly(&mut self, span: Span) -> bool {
        self.park_cursor();
        let Some((&start, &len)) = self.by_start.range(..=span.start).next_back() else { return false };
        let around = Span::new(start, len);
        if around.end() < span.end() {
            return false;
        }
        self.unlink(around);
        for rest in [Span::new(start, span.start - start), Span::new(span.end(), around.end() - span.end())] {
            if rest.len > 0 {
                self.link(rest);
            }
        }
        true
    }

    /// Makes the allocated `span` free.
    pub(super) fn put(&mut self, span: Span) {
        assert!(!self.overlaps(span), "SPACE-1: sectors {}+{} are free already", span.start, span.len);
        if self.cursor.len > 0 && self.cursor.end() == span.start {
            self.cursor.len += span.len;
        } else {
            self.link_joined(span);
        }
    }

    /// Whether any sector of `span` is free.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        let in_map =
            self.by_start.range(..span.end()).next_back().is_some_and(|(&start, &len)| start + len > span.start);
        let cursor = self.cursor;
        in_map || (cursor.len > 0 && cursor.start < span.end() && span.start < cursor.end())
    }

    /// The length of the longest free span.
    pub(super) fn largest(&self) -> u32 {
        self.by_size.last().map_or(0, |&(len, _)| len).max(self.cursor.len)
    }

    /// The free spans in no particular order; some may touch.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> + '_ {
        let rest = self.by_start.iter().map(|(&start, &len)| Span { start, len });
        rest.chain(Some(self.cursor).filter(|cursor| cursor.len > 0))
    }

    fn move_cursor(&mut self, len: u32) -> Option<()> {
        let from = self.cursor.start;
        self.park_cursor();
        let behind = self.by_start.range(from..).take(LOOK_AHEAD).find(|&(_, &free)| free >= len);
        let span = match behind {
            Some((&start, &free)) => Span::new(start, free),
            None => self.by_size.range((len, 0)..).next().map(|&(free, start)| Span::new(start, free))?,
        };
        self.unlink(span);
        self.cursor = span;
        Some(())
    }

    /// Gives the rest of the cursor's span back to the map.
    fn park_cursor(&mut self) {
        let rest = std::mem::replace(&mut self.cursor.len, 0);
        if rest > 0 {
            self.link_joined(Span::new(self.cursor.start, rest));
        }
    }

    /// Adds a span, joined with touching neighbours.
    fn link_joined(&mut self, mut span: Span) {
        if let Some((&start, &len)) = self.by_start.range(..span.start).next_back()
            && start + len == span.start
        {
            self.unlink(Span::new(start, len));
            span = Span::new(start, len + span.len);
        }
        if let Some(&len) = self.by_start.get(&span.end()) {
            self.unlink(Span::new(span.end(), len));
            span.len += len;
        }
        self.link(span);
    }

    fn link(&mut self, span: Span) {
        self.by_start.insert(span.start, span.len);
        self.by_size.insert((span.len, span.start));
    }

    fn unlink(&mut self, span: Span) {
        let known = self.by_start.remove(&span.start) == Some(span.len) && self.by_size.remove(&(span.len, span.start));
        assert!(known, "SPACE-1: the two indexes of a free map differ");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::span_set::{normalize, total};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn consecutive_allocations_are_contiguous() {
        let mut map = FreeMap::from_spans([Span::new(0, 100)]);
        assert_eq!((map.take(8), map.take(1), map.take(30)), (Some(0), Some(8), Some(9)));
    }

    #[test]
    fn what_is_freed_behind_the_cursor_lengthens_it() {
        let mut map = FreeMap::from_spans([Span::new(0, 10)]);
        map.take(4);
        map.put(Span::new(10, 10));
        assert_eq!(map.take(16), Some(4));
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_sectors(steps in prop::collection::vec((0u8..4, 0u32..100, 1u32..20), 0..80)) {
            let mut map = FreeMap::from_spans([Span::new(0, 100)]);
            let mut taken: BTreeSet<u32> = BTreeSet::new();
            for (step, start, len) in steps {
                let span = Span::new(start, len);
                match step {
                    0 => for sector in span.start..span.end() {
                        if taken.remove(&sector) {
                            map.put(Span::new(sector, 1));
                        }
                    },
                    1 => {
                        let free = span.end() <= 100 && (span.start..span.end()).all(|sector| !taken.contains(&sector));
                        prop_assert_eq!(map.take_exactly(span), free);
                        if free {
                            taken.extend(span.start..span.end());
                        }
                    }
                    _ => if let Some(start) = map.take(len) {
                        prop_assert!(start + len <= 100);
                        for sector in start..start + len {
                            prop_assert!(taken.insert(sector));
                        }
                    } else {
                        prop_assert!(map.largest() < len);
                    },
                }
                let spans = normalize(map.spans().collect());
                prop_assert_eq!(total(spans.iter().copied()), 100 - taken.len() as u64);
                prop_assert!(spans.iter().all(|span| (span.start..span.end()).all(|sector| !taken.contains(&sector))));
                prop_assert!(map.largest() <= spans.iter().map(|span| span.len).max().unwrap_or(0));
            }
        }
    }
}
