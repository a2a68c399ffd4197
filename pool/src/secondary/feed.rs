//! Blocks read from the pool that may go to a cache device: a bounded queue that readers never wait for.
//!
//! While a device has segments that were never written, every block read may go there. From then on only blocks read
//! for the second time: most blocks are read once, as when a large file is read from end to end, and would push out
//! blocks that are read again soon. To recognize a second read takes four bytes per block read, in a table of as many
//! entries as the index may have: a later block replaces an earlier one.

use std::collections::HashSet;

use xxhash_rust::xxh3::xxh3_64;

use crate::{
    block::BlockKey,
    format::cache_segment::{MAX_CACHED, SEGMENT_HEADER, SEGMENT_SIZE},
};

/// Bytes of a segment behind its header.
const ROOM: u64 = SEGMENT_SIZE - SEGMENT_HEADER;
/// The most bytes that wait; blocks beyond are dropped.
const MOST: u64 = 2 * ROOM;
/// Alignment of copies in a segment, in bytes.
const ALIGN: u64 = 512;
/// The most blocks that are remembered as read.
const MOST_SEEN: usize = 1 << 20;

/// A block that may go to a cache device, as stored.
pub(super) struct Candidate {
    pub(super) key: BlockKey,
    pub(super) stored: Vec<u8>,
}

/// The waiting blocks.
#[derive(Default)]
pub(super) struct Feed {
    waiting: Vec<Candidate>,
    keys: HashSet<BlockKey>,
    bytes: u64,
    seen: Vec<u32>,
}

/// Bytes that a block takes in a segment.
pub(super) fn takes(stored: usize) -> u64 {
    (stored as u64).next_multiple_of(ALIGN)
}

impl Feed {
    /// Resizes the table of blocks read to about `blocks` entries, and empties it.
    pub(super) fn remember(&mut self, blocks: usize) {
        self.seen = vec![0; blocks.clamp(1, MOST_SEEN)];
    }

    /// Drops all waiting blocks and the memory of blocks seen.
    pub(super) fn clear(&mut self) {
        *self = Feed::default();
    }

    /// Queues a block that was read, if there is room and, with `again`, if it was read before.
    pub(super) fn offer(&mut self, key: BlockKey, stored: &[u8], again: bool) {
        let takes = takes(stored.len());
        if takes > ROOM || self.keys.contains(&key) || (!self.note(&key) && again) || self.bytes + takes > MOST {
            return;
        }
        self.keys.insert(key);
        self.bytes += takes;
        self.waiting.push(Candidate { key, stored: stored.to_vec() });
    }

    /// Records that a block was read; returns whether it was read before.
    fn note(&mut self, (address, birth): &BlockKey) -> bool {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&address.chunk.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&address.sector.to_le_bytes());
        bytes[8..].copy_from_slice(&birth.0.to_le_bytes());
        let hash = xxh3_64(&bytes);
        let (at, mark) = ((hash >> 32) as usize % self.seen.len().max(1), hash as u32 | 1);
        self.seen.get_mut(at).is_some_and(|seen| std::mem::replace(seen, mark) == mark)
    }

    /// True if enough waits to fill a segment.
    pub(super) fn is_enough(&self) -> bool {
        self.bytes >= ROOM || self.waiting.len() >= MAX_CACHED
    }

    /// True if anything waits.
    pub(super) fn has_some(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes as many blocks as fit a segment.
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
