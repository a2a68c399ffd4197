//! The index of blocks on cache devices: in memory, bounded.
//!
//! An entry takes 32 bytes in a hash table that is at least seven sixteenths full, and 16 in the list of its segment:
//! about 60 to 90 bytes. At the bound, the oldest segment is forgotten with all of its blocks.
//!
//! Invariant: the segment of each place in the table is in the list and names the place's key, so forgetting a segment
//! forgets all of its places.

use std::collections::{HashMap, VecDeque};

use crate::block::BlockKey;

/// The place of a block's copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The number of the device.
    pub(super) device: u32,
    /// The segment on the device.
    pub(super) segment: u32,
    /// The offset in the segment, in bytes.
    pub(super) offset: u32,
    /// The length as stored, in bytes.
    pub(super) stored: u32,
}

/// A segment, with the keys of its blocks.
struct Written {
    device: u32,
    segment: u32,
    keys: Vec<BlockKey>,
}

/// The index of all cache devices of a pool.
pub(super) struct Index {
    places: HashMap<BlockKey, Place>,
    /// The segments, oldest first.
    written: VecDeque<Written>,
    bound: usize,
}

impl Index {
    /// An empty index of at most `bound` entries.
    pub(super) fn new(bound: usize) -> Index {
        Index { places: HashMap::new(), written: VecDeque::new(), bound }
    }

    /// The place of a block, if known.
    pub(super) fn get(&self, key: &BlockKey) -> Option<Place> {
        self.places.get(key).copied()
    }

    /// The number of blocks.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// True if a new entry would need to replace one.
    pub(super) fn is_full(&self) -> bool {
        self.places.len() >= self.bound
    }

    /// Changes the bound, in entries.
    pub(super) fn set_bound(&mut self, bound: usize) {
        self.bound = bound;
        self.make_room(0);
    }

    /// Adds a segment just written. The segment's former content must have been forgotten.
    pub(super) fn add_newest(&mut self, device: u32, segment: u32, blocks: &[(BlockKey, Place)]) {
        self.make_room(blocks.len());
        self.places.extend(blocks.iter().copied());
        self.written.push_back(Written { device, segment, keys: blocks.iter().map(|(key, _)| *key).collect() });
    }

    /// Adds a segment found on a device, older than all known ones. Blocks that do not fit are left out.
    pub(super) fn add_oldest(&mut self, device: u32, segment: u32, blocks: &[(BlockKey, Place)]) {
        let mut keys = Vec::new();
        for (key, place) in blocks {
            if !self.is_full() && !self.places.contains_key(key) {
                self.places.insert(*key, *place);
                keys.push(*key);
            }
        }
        self.written.push_front(Written { device, segment, keys });
    }

    /// Forgets one block, if still in this place.
    pub(super) fn forget(&mut self, key: &BlockKey, place: Place) {
        if self.places.get(key) == Some(&place) {
            self.places.remove(key);
        }
    }

    /// Forgets a segment.
    pub(super) fn drop_segment(&mut self, device: u32, segment: u32) {
        let is_it = |written: &Written| (written.device, written.segment) == (device, segment);
        if let Some(at) = self.written.iter().position(is_it) {
            let written = self.written.remove(at).expect("it was found there");
            self.drop_keys(&written);
        }
    }

    /// Forgets all blocks on a device.
    pub(super) fn drop_device(&mut self, device: u32) {
        self.places.retain(|_, place| place.device != device);
        self.written.retain(|written| written.device != device);
    }

    /// How many segments of a device have known content.
    pub(super) fn segments(&self, device: u32) -> usize {
        self.written.iter().filter(|written| written.device == device).count()
    }

    fn make_room(&mut self, blocks: usize) {
        while self.places.len() + blocks > self.bound
            && let Some(oldest) = self.written.pop_front()
        {
            self.drop_keys(&oldest);
        }
    }

    /// Keys that moved to a later segment stay.
    fn drop_keys(&mut self, written: &Written) {
        for key in &written.keys {
            let is_there = |place: &Place| (place.device, place.segment) == (written.device, written.segment);
            if self.places.get(key).is_some_and(is_there) {
                self.places.remove(key);
            }
        }
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
        (Address { chunk: ChunkId(block), sector: 1 }, Txg(3))
    }

    fn blocks(device: u32, segment: u32, blocks: &[u32]) -> Vec<(BlockKey, Place)> {
        blocks.iter().map(|block| (key(*block), Place { device, segment, offset: 32768, stored: *block })).collect()
    }

    fn known(index: &Index) -> Vec<u32> {
        (0..100).filter(|block| index.get(&key(*block)).is_some()).collect()
    }

    #[test]
    fn the_oldest_segments_make_room() {
        let mut index = Index::new(5);
        index.add_newest(0, 0, &blocks(0, 0, &[1, 2]));
        index.add_newest(0, 1, &blocks(0, 1, &[3, 4]));
        assert_eq!(known(&index), [1, 2, 3, 4]);
        index.add_newest(1, 0, &blocks(1, 0, &[5, 6]));
        assert_eq!((known(&index), index.segments(0), index.segments(1)), (vec![3, 4, 5, 6], 1, 1));
        index.set_bound(3);
        assert_eq!(known(&index), [5, 6]);
    }

    #[test]
    fn a_rewritten_block_stays_when_its_first_copy_goes() {
        let mut index = Index::new(100);
        index.add_newest(0, 0, &blocks(0, 0, &[1, 2]));
        index.add_newest(0, 1, &blocks(0, 1, &[2]));
        index.drop_segment(0, 0);
        assert_eq!(known(&index), [2]);
        index.drop_segment(0, 7);
        index.forget(&key(2), Place { device: 0, segment: 0, offset: 32768, stored: 2 });
        assert_eq!(known(&index), [2], "another place");
        index.drop_device(0);
        assert_eq!((known(&index), index.segments(0)), (vec![], 0));
    }

    #[test]
    fn segments_found_later_are_older_and_blocks_that_fit_stay() {
        let mut index = Index::new(4);
        index.add_newest(0, 3, &blocks(0, 3, &[1, 2]));
        index.add_oldest(0, 2, &blocks(0, 2, &[2, 3, 4, 5]));
        assert_eq!(known(&index), [1, 2, 3, 4]);
        assert_eq!(index.get(&key(2)).unwrap().segment, 3);
        index.add_newest(0, 4, &blocks(0, 4, &[9]));
        assert_eq!(known(&index), [1, 2, 9], "the older segment made room");
    }
}
