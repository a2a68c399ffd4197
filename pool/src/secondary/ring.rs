//! One cache device: a ring of segments, written one after the other.
//!
//! The segment that is written next never has a header: it was erased, and the erasing flushed, before the segment is touched.
//! So one flush does for two things, and a header that is found names what was flushed before it:
//!
//! 1. the header of the segment *after* this one is erased, and what this one holds is written;
//! 2. a flush;
//! 3. the header of this one is written.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the flush | this segment without a header; the one after with its old header or none, and all that it held |
//! | after it, before the header is written | neither |
//! | while the header is written | this segment with its header, or one whose checksum is wrong, which is none |
//! | after that | this segment, and all that it holds |
//!
//! In memory what is erased is forgotten before. Who has looked a block up before that, and reads while it is overwritten,
//! gets bytes that do not pass, and finds that the block is not known any more.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard, RwLock};

use super::{
    feed::{Candidate, takes},
    index::{Index, Place},
};
use crate::{
    block::cache::BlockKey,
    format::{
        cache_segment::{CachedBlock, SEGMENT_HEADER, SEGMENT_SIZE, SegmentHeader},
        uberblock::Epoch,
    },
    units::Txg,
    vdev::{Health, Leaf, Suspension},
};

/// The fewest segments that a ring has.
const LEAST_SEGMENTS: u32 = 3;
/// How much of a header says what it claims to be.
const START: usize = 512;
/// How much is read in one step: starts of headers, and headers.
const STARTS_AT_ONCE: u32 = 256;
const HEADERS_AT_ONCE: usize = 16;

/// What is believed of what was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    /// The import that has the pool open: what it wrote itself is right.
    pub(super) epoch: Epoch,
    /// The state that was opened: what was born later belongs to states that were given up.
    pub(super) opened: Txg,
}

/// A cache device.
pub(super) struct CacheDevice {
    pub(super) leaf: Arc<Leaf>,
    /// Its number, that no other has had.
    pub(super) id: u32,
    usable: AtomicBool,
    cold: AtomicBool,
    ring: Mutex<Ring>,
}

/// How far a device is known.
enum Ring {
    /// It is looked for headers: up to this segment it was, and found what they claim.
    Starts { next: u32, claims: Vec<(u64, u32)> },
    /// The headers are read, newest first: the last of these is the next one.
    Headers { claims: Vec<(u64, u32)>, newest: Option<(u64, u32)> },
    /// It can be written to.
    Ready { next: u32, sequence: u64 },
    /// It is not used.
    Closed,
}

impl CacheDevice {
    /// A device, if it can be used, whose content is not known yet.
    pub(super) fn new(id: u32, leaf: Arc<Leaf>) -> CacheDevice {
        let is_there = leaf.health() == Health::Online;
        let device = CacheDevice {
            leaf,
            id,
            usable: AtomicBool::new(false),
            cold: AtomicBool::new(false),
            ring: Mutex::new(Ring::Closed),
        };
        if is_there {
            device.open();
        }
        device
    }

    /// How many segments it has.
    fn segments(&self) -> u32 {
        u32::try_from(self.leaf.size() / SEGMENT_SIZE).unwrap_or(u32::MAX)
    }

    /// Begins to use it.
    pub(super) fn open(&self) {
        if self.segments() < LEAST_SEGMENTS {
            return;
        }
        *self.ring.lock() = Ring::Starts { next: 0, claims: Vec::new() };
        self.usable.store(true, Ordering::Release);
    }

    /// Whether anything may be read from it.
    pub(super) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    /// Whether it has segments that were never written.
    pub(super) fn is_cold(&self) -> bool {
        self.is_usable() && self.cold.load(Ordering::Relaxed)
    }

    /// Whether its content is not known yet.
    pub(super) fn is_loading(&self) -> bool {
        self.is_usable() && matches!(*self.ring.lock(), Ring::Starts { .. } | Ring::Headers { .. })
    }

    /// Uses it no more, and forgets what it holds. When this has returned, nothing is written to it any more.
    pub(super) fn close(&self, index: &RwLock<Index>) {
        self.shut(&mut self.ring.lock(), index);
    }

    fn shut(&self, ring: &mut Ring, index: &RwLock<Index>) {
        self.usable.store(false, Ordering::Release);
        *ring = Ring::Closed;
        index.write().drop_device(self.id);
    }

    /// It has failed: uses it no more.
    fn put_out(&self, ring: &mut Ring, index: &RwLock<Index>, error: &std::io::Error) {
        tracing::warn!("the cache device {} has failed, and is not used any more: {error}", self.leaf.name());
        self.leaf.note_health(Health::after(error));
        self.shut(ring, index);
    }

    /// The same, after a read that has failed, if it is the device and not one of its sectors. Nobody waits for who may be
    /// writing: that one finds out.
    pub(super) fn note_failure(&self, error: &std::io::Error, index: &RwLock<Index>) {
        if !self.is_usable() || !self.leaf.is_lost(error) {
            return;
        }
        match self.ring.try_lock() {
            Some(mut ring) if self.is_usable() => self.put_out(&mut ring, index, error),
            Some(_) => {}
            None => {
                self.usable.store(false, Ordering::Release);
                index.write().drop_device(self.id);
                self.leaf.note_health(Health::after(error));
            }
        }
    }

    /// The bytes at a place.
    pub(super) fn read(&self, place: Place) -> std::io::Result<Vec<u8>> {
        let mut bytes = vec![0; place.stored as usize];
        // As for a commit, so with a deadline: the vdevs have it as well.
        Suspension::patiently(|| self.leaf.read(at(place.segment) + u64::from(place.offset), &mut bytes))?;
        Ok(bytes)
    }

    /// Goes on finding out what is on it, a bounded number of requests; with `erase` it can be written to in the end.
    pub(super) fn load(&self, trust: Trust, index: &RwLock<Index>, erase: bool) {
        let mut ring = self.ring.lock();
        let next = match &mut *ring {
            Ring::Starts { next, claims } => self.read_starts(next, claims),
            Ring::Headers { claims, newest } => {
                self.read_headers(claims, newest, trust, index).and_then(|is_done| match is_done {
                    true => self.begin(*newest, index, erase).map(Some),
                    false => Ok(None),
                })
            }
            Ring::Ready { .. } | Ring::Closed => Ok(None),
        };
        match next {
            Ok(Some(next)) => *ring = next,
            Ok(None) => {}
            Err(error) => self.put_out(&mut ring, index, &error),
        }
        // A reader has put it out meanwhile.
        if !self.is_usable() {
            self.shut(&mut ring, index);
        }
    }

    /// Looks at the starts of some headers; what follows if these were the last ones.
    fn read_starts(&self, next: &mut u32, claims: &mut Vec<(u64, u32)>) -> std::io::Result<Option<Ring>> {
        let end = next.saturating_add(STARTS_AT_ONCE).min(self.segments());
        for segment in *next..end {
            let mut start = [0; START];
            match self.leaf.read(at(segment), &mut start) {
                Ok(()) => claims.extend(SegmentHeader::claimed_sequence(&start).map(|sequence| (sequence, segment))),
                Err(error) if self.leaf.is_lost(&error) => return Err(error),
                Err(_) => {}
            }
        }
        *next = end;
        if end < self.segments() {
            return Ok(None);
        }
        claims.sort_unstable();
        Ok(Some(Ring::Headers { claims: std::mem::take(claims), newest: None }))
    }

    /// Reads some headers, and notes the newest of all; whether these were the last that are wanted.
    fn read_headers(
        &self,
        claims: &mut Vec<(u64, u32)>,
        newest: &mut Option<(u64, u32)>,
        trust: Trust,
        index: &RwLock<Index>,
    ) -> std::io::Result<bool> {
        for _ in 0..HEADERS_AT_ONCE {
            let Some((_, segment)) = claims.pop().filter(|_| newest.is_none() || !index.read().is_full()) else {
                return Ok(true);
            };
            let mut bytes = vec![0; SEGMENT_HEADER as usize];
            match self.leaf.read(at(segment), &mut bytes) {
                Err(error) if self.leaf.is_lost(&error) => return Err(error),
                Err(_) => continue,
                Ok(()) => {}
            }
            let header = SegmentHeader::decode(&bytes, at(segment)).ok();
            let Some(header) = header.filter(|header| header.device == self.leaf.guid()) else { continue };
            newest.get_or_insert((header.sequence, segment));
            let is_right = |block: &&CachedBlock| header.epoch == trust.epoch || block.birth <= trust.opened;
            let right: Vec<_> = header.blocks.iter().filter(is_right).map(|b| self.entry(segment, b)).collect();
            index.write().add_oldest(self.id, segment, &right);
        }
        Ok(false)
    }

    fn entry(&self, segment: u32, block: &CachedBlock) -> (BlockKey, Place) {
        let place = Place { device: self.id, segment, offset: block.offset, stored: block.stored };
        ((block.address, block.birth), place)
    }

    /// Begins to write behind the newest segment that was found. With `erase`, what stands there is erased for good.
    fn begin(&self, newest: Option<(u64, u32)>, index: &RwLock<Index>, erase: bool) -> std::io::Result<Ring> {
        let (next, sequence) = newest.map_or((0, 0), |(sequence, segment)| (self.after(segment), sequence + 1));
        self.note_cold(&index.read());
        if erase {
            self.erase(next, index)?;
            self.leaf.flush()?;
        }
        Ok(Ring::Ready { next, sequence })
    }

    fn after(&self, segment: u32) -> u32 {
        if segment + 1 < self.segments() { segment + 1 } else { 0 }
    }

    /// Forgets a segment, and takes its header away; for good with the next flush.
    fn erase(&self, segment: u32, index: &RwLock<Index>) -> std::io::Result<()> {
        index.write().drop_segment(self.id, segment);
        self.leaf.write(at(segment), &Arc::new(vec![0; START]))
    }

    /// Writes a segment, if the device can be written to; how many bytes that were.
    pub(super) fn write(&self, taken: &[Candidate], epoch: Epoch, index: &RwLock<Index>) -> u64 {
        let mut ring = self.ring.lock();
        let Ring::Ready { next, sequence } = *ring else { return 0 };
        let (bytes, blocks) = gathered(taken);
        let header = SegmentHeader { device: self.leaf.guid(), sequence, epoch, blocks };
        let written = bytes.len() as u64;
        match self.write_segment(next, &header, Arc::new(bytes), index) {
            Ok(()) => {
                let entries: Vec<_> = header.blocks.iter().map(|block| self.entry(next, block)).collect();
                index.write().add_newest(self.id, next, &entries);
                self.go_on(&mut ring, index);
                if !self.is_usable() {
                    // A reader has found that it has failed.
                    self.shut(&mut ring, index);
                }
            }
            Err(error) => self.put_out(&mut ring, index, &error),
        }
        written
    }

    fn write_segment(
        &self,
        segment: u32,
        header: &SegmentHeader,
        bytes: Arc<Vec<u8>>,
        index: &RwLock<Index>,
    ) -> std::io::Result<()> {
        self.erase(self.after(segment), index)?;
        self.leaf.write(at(segment) + SEGMENT_HEADER, &bytes)?;
        self.leaf.flush()?;
        self.leaf.write(at(segment), &Arc::new(header.encode(at(segment))))
    }

    fn go_on(&self, ring: &mut MutexGuard<'_, Ring>, index: &RwLock<Index>) {
        let Ring::Ready { next, sequence } = &mut **ring else { return };
        *next = self.after(*next);
        // What was found is far below the largest number, whoever wrote it.
        *sequence += 1;
        self.note_cold(&index.read());
    }

    /// It is cold while more segments hold nothing that is known than the one that is written next.
    fn note_cold(&self, index: &Index) {
        let is_cold = !index.is_full() && index.segments(self.id) + 1 < self.segments() as usize;
        self.cold.store(is_cold, Ordering::Relaxed);
    }

    /// Returns when all that was written is found by the next import.
    pub(super) fn flush(&self, index: &RwLock<Index>) {
        let mut ring = self.ring.lock();
        if matches!(*ring, Ring::Ready { .. })
            && let Err(error) = self.leaf.flush()
        {
            self.put_out(&mut ring, index, &error);
        }
    }
}

/// Where a segment starts, in bytes.
fn at(segment: u32) -> u64 {
    u64::from(segment) * SEGMENT_SIZE
}

/// What a segment holds behind its header, and where in it each block lies.
fn gathered(taken: &[Candidate]) -> (Vec<u8>, Vec<CachedBlock>) {
    let len = taken.iter().map(|candidate| takes(candidate.stored.len())).sum::<u64>();
    let mut bytes = Vec::with_capacity(len as usize);
    let mut blocks = Vec::with_capacity(taken.len());
    for Candidate { key: (address, birth), stored } in taken {
        let Range { start, end } = bytes.len()..bytes.len() + takes(stored.len()) as usize;
        let offset = SEGMENT_HEADER as u32 + start as u32;
        blocks.push(CachedBlock { address: *address, birth: *birth, offset, stored: stored.len() as u32 });
        bytes.extend_from_slice(stored);
        bytes.resize(end, 0);
    }
    assert!(bytes.len() as u64 <= SEGMENT_SIZE - SEGMENT_HEADER, "a segment holds what fits into it");
    (bytes, blocks)
}
