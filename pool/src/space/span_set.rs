//! Sets of sectors inside one chunk, kept as spans.

use std::collections::BTreeMap;

use crate::format::space::Span;

/// A set of sectors, as disjoint spans that do not touch.
#[derive(Clone, Debug, Default)]
pub(super) struct SpanSet {
    /// From start to length, in sectors.
    spans: BTreeMap<u32, u32>,
}

impl SpanSet {
    /// The set of the spans, in any order and possibly overlapping.
    pub(super) fn from_spans(spans: impl IntoIterator<Item = Span>) -> SpanSet {
        let mut set = SpanSet::default();
        for span in spans {
            set.union(span);
        }
        set
    }

    /// Whether any sector of `span` is in the set.
    pub(super) fn overlaps(&self, span: Span) -> bool {
        self.spans.range(..span.end()).next_back().is_some_and(|(&start, &len)| start + len > span.start)
    }

    /// Adds the sectors of `span`.
    pub(super) fn union(&mut self, span: Span) {
        let (mut start, mut end) = (span.start, span.end());
        if let Some((&before, &len)) = self.spans.range(..start).next_back()
            && before + len >= start
        {
            start = before;
            end = end.max(before + len);
        }
        while let Some((&next, &len)) = self.spans.range(start..=end).next() {
            self.spans.remove(&next);
            end = end.max(next + len);
        }
        self.spans.insert(start, end - start);
    }

    /// Takes the sectors of `span` out.
    pub(super) fn subtract(&mut self, span: Span) {
        if let Some((&before, &len)) = self.spans.range(..span.start).next_back()
            && before + len > span.start
        {
            self.spans.insert(before, span.start - before);
            if before + len > span.end() {
                self.spans.insert(span.end(), before + len - span.end());
            }
        }
        while let Some((&next, &len)) = self.spans.range(span.start..span.end()).next() {
            self.spans.remove(&next);
            if next + len > span.end() {
                self.spans.insert(span.end(), next + len - span.end());
            }
        }
    }

    /// The number of spans.
    pub(super) fn count(&self) -> usize {
        self.spans.len()
    }

    /// The parts of `span` in the set, in order.
    pub(super) fn within(&self, span: Span) -> Vec<Span> {
        let before = self.spans.range(..span.start).next_back();
        let touching = before.into_iter().chain(self.spans.range(span.start..span.end()));
        let part = |(&start, &len): (&u32, &u32)| {
            let (from, to) = (start.max(span.start), (start + len).min(span.end()));
            (from < to).then(|| Span::new(from, to - from))
        };
        touching.filter_map(part).collect()
    }

    /// The spans, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        self.spans.iter().map(|(&start, &len)| Span { start, len })
    }
}

/// How many sectors disjoint spans have together.
pub(super) fn total(spans: impl IntoIterator<Item = Span>) -> u64 {
    spans.into_iter().map(|span| u64::from(span.len)).sum()
}

/// Sorts disjoint spans and joins touching ones.
pub(super) fn normalize(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    spans.dedup_by(|next, last| {
        let touches = last.end() == next.start;
        if touches {
            last.len += next.len;
        }
        touches
    });
    spans
}

/// The spans of `0..sectors` between sorted, disjoint `spans`.
pub(super) fn complement(spans: &[Span], sectors: u32) -> Vec<Span> {
    let mut gaps = Vec::new();
    let mut end = 0;
    for span in spans.iter().copied().chain([Span::new(sectors, 0)]) {
        if span.start > end {
            gaps.push(Span::new(end, span.start - end));
        }
        end = span.end();
    }
    gaps
}

/// Whether spans begin and end with units.
pub(super) fn are_whole(spans: &[Span], unit: u32) -> bool {
    spans.iter().all(|span| span.start.is_multiple_of(unit) && span.len.is_multiple_of(unit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn behaves_like_a_set_of_sectors(steps in prop::collection::vec((any::<bool>(), 0u32..60, 1u32..12), 0..40)) {
            let (mut set, mut model) = (SpanSet::default(), BTreeSet::new());
            for (add, start, len) in steps {
                let span = Span::new(start, len);
                prop_assert_eq!(set.overlaps(span), (start..start + len).any(|sector| model.contains(&sector)));
                if add {
                    set.union(span);
                    model.extend(start..start + len);
                } else {
                    set.subtract(span);
                    model.retain(|sector| !(start..start + len).contains(sector));
                }
                let spans: Vec<Span> = set.iter().collect();
                prop_assert_eq!(normalize(spans.clone()), spans.clone());
                let sectors: BTreeSet<u32> = spans.iter().flat_map(|span| span.start..span.end()).collect();
                prop_assert_eq!(&sectors, &model);
                let gaps: BTreeSet<u32> = complement(&spans, 80).iter().flat_map(|gap| gap.start..gap.end()).collect();
                prop_assert_eq!(gaps, (0..80).filter(|sector| !model.contains(sector)).collect::<BTreeSet<_>>());
            }
        }
    }
}
