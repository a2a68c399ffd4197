//! One cache device: a ring of segments, written one after the other.
//!
//! The next segment to write never has a header: it was erased, and the erasure flushed, before the segment is touched.
//! So one flush serves two purposes, and a header found at import vouches for content flushed before the header was
//! written:
//!
//! 1. the header of the segment *after* the current one is erased, and the content of the current one is written;
//! 2. a flush;
//! 3. the header of the current segment is written.
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before the flush | the current segment without a header; the next with its old header and content, or without |
//! | after the flush, before the header is written | neither |
//! | while the header is written | the current segment with its header, or with a wrong checksum, which counts as none |
//! | later | the current segment, with all of its content |
//!
//! In memory a segment is forgotten before it is erased. A thread that looked up a block earlier, and reads during the
//! overwrite, gets bytes that do not pass, and then finds the block no longer known.

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
    block::BlockKey,
    format::{
        cache_segment::{CachedBlock, SEGMENT_HEADER, SEGMENT_SIZE, SegmentHeader},
        uberblock::Epoch,
    },
    units::Txg,
    vdev::{Health, Leaf, Suspension},
};

/// The fewest segments of a ring.
const LEAST_SEGMENTS: u32 = 3;
/// Bytes at the start of a header that show what it claims to be.
const START: usize = 512;
/// How many starts of headers, and whole headers, are read in one step.
const STARTS_AT_ONCE: u32 = 256;
const HEADERS_AT_ONCE: usize = 16;

/// Which blocks found on a device are trusted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    /// The current import: its own blocks are right.
    pub(super) epoch: Epoch,
    /// The opened state: blocks born later belong to abandoned states.
    pub(super) opened: Txg,
}

/// A cache device, written as a ring.
pub(super) struct CacheDevice {
    pub(super) leaf: Arc<Leaf>,
    /// The number of the device, never reused.
    pub(super) id: u32,
    usable: AtomicBool,
    cold: AtomicBool,
    ring: Mutex<Ring>,
}

/// How far a device's content is known.
enum Ring {
    /// Looking for headers: segments below `next` were read, and claimed these sequence numbers and segments.
    Starts { next: u32, claims: Vec<(u64, u32)> },
    /// Reading headers, newest first: the last claim is read next.
    Headers { claims: Vec<(u64, u32)>, newest: Option<(u64, u32)> },
    /// The device can be written to.
    Ready { next: u32, sequence: u64 },
    /// The device is not used.
    Closed,
}

impl CacheDevice {
    /// A device whose content is not known yet; in use if its leaf is online.
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

    /// Segments on the device.
    fn segments(&self) -> u32 {
        u32::try_from(self.leaf.size() / SEGMENT_SIZE).unwrap_or(u32::MAX)
    }

    /// Begins to use the device.
    pub(super) fn open(&self) {
        if self.segments() < LEAST_SEGMENTS {
            return;
        }
        *self.ring.lock() = Ring::Starts { next: 0, claims: Vec::new() };
        self.usable.store(true, Ordering::Release);
    }

    /// True if the device may be read.
    pub(super) fn is_usable(&self) -> bool {
        self.usable.load(Ordering::Acquire)
    }

    /// True if the device has segments that were never written.
    pub(super) fn is_cold(&self) -> bool {
        self.is_usable() && self.cold.load(Ordering::Relaxed)
    }

    /// True if the device's content is not fully known yet.
    pub(super) fn is_loading(&self) -> bool {
        self.is_usable() && matches!(*self.ring.lock(), Ring::Starts { .. } | Ring::Headers { .. })
    }

    /// Stops using the device, and forgets its content. After the return nothing is written to the device.
    pub(super) fn close(&self, index: &RwLock<Index>) {
        self.shut(&mut self.ring.lock(), index);
    }

    fn shut(&self, ring: &mut Ring, index: &RwLock<Index>) {
        self.usable.store(false, Ordering::Release);
        *ring = Ring::Closed;
        index.write().drop_device(self.id);
    }

    /// Faults the device, and stops using it.
    fn take_out(&self, ring: &mut Ring, index: &RwLock<Index>, error: &std::io::Error) {
        tracing::warn!("the cache device {} has failed, and is not used any more: {error}", self.leaf.name());
        self.leaf.note_health(Health::after(error));
        self.shut(ring, index);
    }

    /// Like [`CacheDevice::take_out`], after a failed read, if the device failed and not just a sector. Does not wait
    /// for a concurrent writer, which then shuts the ring itself.
    pub(super) fn note_failure(&self, error: &std::io::Error, index: &RwLock<Index>) {
        if !self.is_usable() || !self.leaf.is_lost(error) {
            return;
        }
        match self.ring.try_lock() {
            Some(mut ring) if self.is_usable() => self.take_out(&mut ring, index, error),
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
        // Patiently, as for a commit, so that the deadline applies: the vdevs have the block too.
        Suspension::patiently(|| self.leaf.read(at(place.segment) + u64::from(place.offset), &mut bytes))?;
        Ok(bytes)
    }

    /// Continues to read the device's content, with a bounded number of requests. With `erase` the device can be
    /// written to afterwards.
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
            Err(error) => self.take_out(&mut ring, index, &error),
        }
        // A reader may have faulted the device meanwhile.
        if !self.is_usable() {
            self.shut(&mut ring, index);
        }
    }

    /// Reads the starts of some headers; returns the next phase after the last of them.
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

    /// Reads some headers, and notes the newest of all; returns whether no more are needed.
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

    /// Begins to write behind the newest segment found. With `erase`, the segment to write is erased and flushed.
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

    /// Forgets a segment, and erases its header; durable with the next flush.
    fn erase(&self, segment: u32, index: &RwLock<Index>) -> std::io::Result<()> {
        index.write().drop_segment(self.id, segment);
        self.leaf.write(at(segment), &Arc::new(vec![0; START]))
    }

    /// Writes a segment, if the device can be written to; returns the bytes written.
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
                    // A reader found that the device has failed.
                    self.shut(&mut ring, index);
                }
            }
            Err(error) => self.take_out(&mut ring, index, &error),
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
        // Sequence numbers found are far below the maximum, whatever their origin.
        *sequence += 1;
        self.note_cold(&index.read());
    }

    /// The device is cold while more segments than the next one have no known content.
    fn note_cold(&self, index: &Index) {
        let is_cold = !index.is_full() && index.segments(self.id) + 1 < self.segments() as usize;
        self.cold.store(is_cold, Ordering::Relaxed);
    }

    /// Returns when the next import will find everything written.
    pub(super) fn flush(&self, index: &RwLock<Index>) {
        let mut ring = self.ring.lock();
        if matches!(*ring, Ring::Ready { .. })
            && let Err(error) = self.leaf.flush()
        {
            self.take_out(&mut ring, index, &error);
        }
    }
}

/// The offset of a segment, in bytes.
fn at(segment: u32) -> u64 {
    u64::from(segment) * SEGMENT_SIZE
}

/// The content of a segment behind its header, and the place of each block.
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
