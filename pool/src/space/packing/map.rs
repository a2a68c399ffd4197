//! The map of a packed chunk.

use std::collections::BTreeSet;

use crate::{
    format::space::{
        Span,
        packing::{Entry, PackedMap},
    },
    space::chunk::Chunk,
    units::ChunkId,
};

/// Where the sectors of a packed chunk are.
#[derive(Debug, Default)]
pub(in crate::space) struct Packing {
    /// In order and disjoint.
    pub(in crate::space) entries: Vec<Entry>,
}

impl Packing {
    /// A packing with these entries, in order and disjoint.
    pub(in crate::space) fn new(entries: Vec<Entry>) -> Packing {
        Packing { entries }
    }

    /// The stored form of the map.
    pub(in crate::space) fn describe(&self, chunk: &Chunk) -> PackedMap {
        PackedMap { chunk: chunk.id, sectors: chunk.sectors, entries: self.entries.clone() }
    }

    /// The entry with all of `span`.
    pub(super) fn around(&self, span: Span) -> Option<&Entry> {
        let behind = self.entries.partition_point(|entry| entry.span.start <= span.start);
        let entry = &self.entries[behind.checked_sub(1)?];
        (entry.span.end() >= span.end()).then_some(entry)
    }

    /// The hosts, possibly with repetitions.
    pub(in crate::space) fn hosts(&self) -> impl Iterator<Item = ChunkId> {
        self.entries.iter().map(|entry| entry.host.chunk)
    }

    pub(super) fn names_any(&self, hosts: &BTreeSet<ChunkId>) -> bool {
        self.entries.iter().any(|entry| hosts.contains(&entry.host.chunk))
    }
}
