//! What was read from the pool and may go to a cache device: bounded, and never waited for.
//!
//! While a device has segments that were never written, all that is read may go there. From then on only what is read for the
//! second time: most of what is read once, such as large files from one end to the other, is not read again soon, and would
//! push out what is. To know that takes four bytes a block that was read, in a table of as many as the index may have: a
//! later block takes the place of an earlier one.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    block::cache::BlockKey,
    format::cache_segment::{MAX_CACHED, SEGMENT_HEADER, SEGMENT_SIZE},
};

/// What a segment holds beside its header, in bytes.
const ROOM: u64 = SEGMENT_SIZE - SEGMENT_HEADER;
/// No more than so many bytes wait; what comes then is let go.
const MOST: u64 = 2 * ROOM;
/// Copies begin at a multiple of this, in bytes.
const ALIGN: u64 = 512;
/// The most blocks that are known to have been read before.
const MOST_SEEN: usize = 1 << 20;

/// A block that may go to a cache device, as it is stored.
pub(super) struct Candidate {
    pub(super) key: BlockKey,
    pub(super) stored: Vec<u8>,
}

/// What waits.
#[derive(Default)]
pub(super) struct Feed {
    waiting: Vec<Candidate>,
    keys: HashSet<BlockKey>,
    bytes: u64,
    seen: Vec<u32>,
}

/// What a block takes in a segment, in bytes.
pub(super) fn takes(stored: usize) -> u64 {
    (stored as u64).next_multiple_of(ALIGN)
}

impl Feed {
    /// Remembers about so many blocks that were read.
    pub(super) fn remember(&mut self, blocks: usize) {
        self.seen = vec![0; blocks.clamp(1, MOST_SEEN)];
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Feed::default();
    }

    /// A block was read. It is kept if there is room and, with `again`, if it was read before.
    pub(super) fn offer(&mut self, key: BlockKey, stored: &[u8], again: bool) {
        let takes = takes(stored.len());
        if takes > ROOM || self.keys.contains(&key) || (!self.note(&key) && again) || self.bytes + takes > MOST {
            return;
        }
        self.keys.insert(key);
        self.bytes += takes;
        self.waiting.push(Candidate { key, stored: stored.to_vec() });
    }

    /// Notes that a block was read; whether it was before.
    fn note(&mut self, (address, birth): &BlockKey) -> bool {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&address.chunk.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&address.sector.to_le_bytes());
        bytes[8..].copy_from_slice(&birth.0.to_le_bytes());
        let hash = xxh3_64(&bytes);
        let (at, mark) = ((hash >> 32) as usize % self.seen.len().max(1), hash as u32 | 1);
        self.seen.get_mut(at).is_some_and(|seen| std::mem::replace(seen, mark) == mark)
    }

    /// Whether as much waits as a segment holds.
    pub(super) fn is_enough(&self) -> bool {
        self.bytes >= ROOM || self.waiting.len() >= MAX_CACHED
    }

    /// Whether anything waits.
    pub(super) fn has_some(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes what a segment holds of it.
    pub(super) fn take(&mut self) -> Vec<Candidate> {
        let mut room = ROOM;
        let fits = |candidate: &&Candidate| {
            let rest = room.checked_sub(takes(candidate.stored.len()));
            room = rest.unwrap_or(room);
            rest.is_some()
        };
        let count = self.waiting.iter().take(MAX_CACHED).take_while(fits).count();
        let taken: Vec<Candidate> = self.waiting.drain(..count).collect();
        for candidate in &taken {
            self.keys.remove(&candidate.key);
            self.bytes -= takes(candidate.stored.len());
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        format::pointer::Address,
        units::{ChunkId, Txg},
    };

    fn key(block: u32) -> BlockKey {
        (Address { chunk: ChunkId(3), sector: block }, Txg(9))
    }

    fn feed() -> Feed {
        let mut feed = Feed::default();
        feed.remember(1 << 16);
        feed
    }

    #[test]
    fn what_does_not_fit_is_let_go_and_what_is_taken_fits_a_segment() {
        let mut feed = feed();
        (0..200).for_each(|block| feed.offer(key(block), &[1; 100_000], false));
        feed.offer(key(500), &vec![0; ROOM as usize + 1], false);
        assert!(feed.bytes <= MOST && feed.bytes + takes(100_000) > MOST);
        let mut taken = Vec::new();
        while feed.is_enough() {
            let segment = feed.take();
            assert!(segment.iter().map(|candidate| takes(candidate.stored.len())).sum::<u64>() <= ROOM);
            taken.extend(segment.into_iter().map(|candidate| candidate.key));
        }
        taken.extend(feed.take().into_iter().map(|candidate| candidate.key));
        assert_eq!(taken, (0..taken.len() as u32).map(key).collect::<Vec<_>>());
        assert_eq!((feed.bytes, feed.keys.len(), feed.take().len()), (0, 0, 0));
    }

    #[test]
    fn small_blocks_are_as_many_as_a_header_names() {
        let mut feed = feed();
        (0..2000).for_each(|block| feed.offer(key(block), &[1; 10], false));
        assert!(feed.is_enough());
        assert_eq!(feed.take().len(), MAX_CACHED);
    }

    #[test]
    fn nothing_waits_twice_and_second_reads_count() {
        let mut feed = feed();
        (0..3).for_each(|_| feed.offer(key(1), &[1; 10], false));
        assert_eq!(feed.take().len(), 1);
        feed.offer(key(2), &[1; 10], true);
        assert_eq!(feed.take().len(), 0);
        feed.offer(key(2), &[1; 10], true);
        feed.offer(key(1), &[1; 10], true);
        assert_eq!(feed.take().len(), 2, "the second time, also of what has been there");
    }
}
