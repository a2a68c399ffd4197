//! The second places of a chunk in memory, by groups: see [`super::places`].

use crate::{
    format::{
        pointer::Address,
        space::{Span, packing::Entry},
    },
    space::span_set::{SpanSet, total},
    units::Txg,
};

/// Second places, and what was freed since they were stored. A chunk has this as long as a row names its places.
#[derive(Debug, Default)]
pub(in crate::space) struct Seconds {
    /// In order and disjoint.
    pub(super) entries: Vec<Entry>,
    /// Sectors of the entries that were freed, but for those in `newest`.
    dead: SpanSet,
    /// The newest group with a free in the chunk, and the sectors of the entries that it freed.
    newest: (Txg, SpanSet),
    /// How many sectors of the entries are in neither set.
    pub(super) live: u64,
    /// The group in which the stored places were written.
    pub(super) since: Txg,
    /// The newest group with a free that the stored places lack; zero if they lack none.
    pub(super) lacking: Txg,
    /// The newest group that entered second places.
    pub(super) entered: Txg,
}

impl Seconds {
    /// Second places as stored in `since`, without what the log freed since, at the latest in `lacking`.
    pub(in crate::space) fn opened(entries: Vec<Entry>, since: Txg, lacking: Txg, entered: Txg) -> Seconds {
        let live = total(entries.iter().map(|entry| entry.span));
        Seconds { entries, live, since, lacking, entered, ..Seconds::default() }
    }

    /// The living second places within a span.
    pub(super) fn within(&self, span: Span) -> Vec<Entry> {
        let first = self.entries.partition_point(|entry| entry.span.end() <= span.start);
        let touching = self.entries[first..].iter().take_while(|entry| entry.span.start < span.end());
        let inside: Vec<Entry> = touching.map(|entry| cut(entry, span)).collect();
        outside(&outside(&inside, &self.dead), &self.newest.1)
    }

    /// Notes a free, and returns the second places that end with it.
    pub(super) fn free(&mut self, txg: Txg, span: Span, is_packed: bool) -> Vec<Entry> {
        let ended = self.within(span);
        if ended.is_empty() && !is_packed {
            return ended;
        }
        self.lacking = self.lacking.max(txg);
        if txg > self.newest.0 {
            let older = std::mem::replace(&mut self.newest, (txg, SpanSet::default()));
            older.1.iter().for_each(|span| self.dead.union(span));
        }
        // While a group is synced, the next one may already have freed sectors.
        let freed = if txg == self.newest.0 { &mut self.newest.1 } else { &mut self.dead };
        ended.iter().for_each(|entry| freed.union(entry.span));
        self.live -= total(ended.iter().map(|entry| entry.span));
        ended
    }

    /// The second places at the end of `txg`, the group being synced or the open one.
    pub(super) fn at(&self, txg: Txg) -> Vec<Entry> {
        let living = outside(&self.entries, &self.dead);
        if self.newest.0 > txg { living } else { outside(&living, &self.newest.1) }
    }

    /// Whether there are none at the end of `txg`.
    pub(super) fn is_empty_at(&self, txg: Txg) -> bool {
        self.live == 0 && (self.newest.0 <= txg || self.newest.1.iter().next().is_none())
    }

    /// Notes that exactly these places of the end of `txg` were stored in it. Later frees are kept. Returns how many
    /// sectors still have a second place.
    pub(super) fn set(&mut self, txg: Txg, entries: Vec<Entry>) -> u64 {
        self.entries = entries;
        self.dead = SpanSet::default();
        if self.newest.0 <= txg {
            self.newest.1 = SpanSet::default();
        }
        self.lacking = if self.newest.0 > txg { self.newest.0 } else { Txg::ZERO };
        self.live = total(self.entries.iter().map(|entry| entry.span)) - total(self.newest.1.iter());
        self.since = txg;
        self.live
    }
}

/// The part of an entry within a span that touches it.
fn cut(entry: &Entry, span: Span) -> Entry {
    let (start, end) = (entry.span.start.max(span.start), entry.span.end().min(span.end()));
    let sector = entry.host.sector + (start - entry.span.start);
    Entry { span: Span::new(start, end - start), host: Address { sector, ..entry.host } }
}

/// The parts of entries outside a set of sectors.
pub(in crate::space) fn outside(entries: &[Entry], gone: &SpanSet) -> Vec<Entry> {
    let mut rest = Vec::with_capacity(entries.len());
    for entry in entries {
        let mut start = entry.span.start;
        for gone in gone.within(entry.span).into_iter().chain([Span::new(entry.span.end(), 0)]) {
            if gone.start > start {
                rest.push(cut(entry, Span::new(start, gone.start - start)));
            }
            start = gone.end();
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ChunkId;

    fn entry(start: u32, len: u32, sector: u32) -> Entry {
        Entry { span: Span::new(start, len), host: Address { chunk: ChunkId(7), sector } }
    }

    #[test]
    fn what_the_next_group_frees_is_still_stored_for_this_one() {
        let mut seconds = Seconds::opened(vec![entry(10, 10, 100), entry(30, 5, 0)], Txg(3), Txg::ZERO, Txg(3));
        assert_eq!(seconds.free(Txg(5), Span::new(8, 4), false), [entry(10, 2, 100)]);
        assert_eq!(seconds.free(Txg(6), Span::new(14, 2), false), [entry(14, 2, 104)]);
        assert_eq!(seconds.free(Txg(5), Span::new(18, 4), false), [entry(18, 2, 108)]);
        assert!(seconds.free(Txg(6), Span::new(14, 2), false).is_empty(), "it ended before");
        assert_eq!(seconds.at(Txg(5)), [entry(12, 6, 102), entry(30, 5, 0)]);
        assert_eq!(seconds.at(Txg(6)), [entry(12, 2, 102), entry(16, 2, 106), entry(30, 5, 0)]);
        let stored = seconds.at(Txg(5));
        seconds.set(Txg(5), stored);
        assert_eq!((seconds.live, seconds.lacking, seconds.since), (9, Txg(6), Txg(5)));
        assert_eq!(seconds.at(Txg(6)), [entry(12, 2, 102), entry(16, 2, 106), entry(30, 5, 0)]);
        for (txg, span) in [(6, Span::new(30, 5)), (7, Span::new(12, 2)), (7, Span::new(16, 2))] {
            assert!(!seconds.is_empty_at(Txg(txg)));
            seconds.free(Txg(txg), span, false);
        }
        assert!(!seconds.is_empty_at(Txg(6)) && seconds.is_empty_at(Txg(7)));
    }

    #[test]
    fn a_sector_in_use_again_has_no_old_second_place() {
        let mut seconds = Seconds::opened(vec![entry(0, 4, 0)], Txg(3), Txg::ZERO, Txg(3));
        assert_eq!(seconds.free(Txg(5), Span::new(0, 4), false).len(), 1);
        // The sectors are allocated again, without a second place, and freed again while group 9 is synced.
        assert!(seconds.free(Txg(10), Span::new(0, 4), false).is_empty());
        assert!(seconds.at(Txg(9)).is_empty() && seconds.is_empty_at(Txg(9)));
    }
}
