//! Cache devices: a second level of cache below the one in memory (ZFS: L2ARC).
//!
//! A cache device is a device of the pool in no vdev. It holds only copies of blocks that were read, as stored: losing
//! them costs reads of the pool's vdevs, and nothing on the device is trusted.
//!
//! ```text
//! index    the blocks on the devices, and their places: in memory, bounded
//! feed     blocks read that may go there: bounded, dropped where there is no room
//! ring     one device: segments, written one after the other; its content at import
//! feeder   the thread that writes, and reads the content at import
//! ```
//!
//! A block is identified by its first address *and* birth, as in memory. Bytes from a device must pass the checksum of
//! the pointer, so blocks without a checksum are never cached. Bytes that fail are counted as an error of the device,
//! the block is forgotten, and the vdevs are read.
//!
//! Invariants:
//! 1. Readers never wait for writes: a block is copied to a queue, or dropped if the queue is full.
//! 2. Only blocks of committed txgs are cached. A txg that was never committed may recur with other blocks at the same
//!    addresses. For the same reason, blocks born after the opened state are not taken from a device: a rewind has
//!    given up that state's successors. Later txgs are never reused, so all remaining blocks are right.
//! 3. The index takes at most about an eleventh of the memory of the first level, whatever is on the devices.
//! 4. A device that fails, or does not answer within ten seconds, is faulted, and the pool continues. No commit waits
//!    for a cache device.
//!
//! The write rate is 8 MiB a second, which wears out a disk rated for 600 TB in two years of continuous writing, and 64
//! MiB a second while the device has segments that were never written, which happens once.
//!
//! Blocks of more than 4064 KiB are not cached, since disks read them well, and neither are writes before their first
//! read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Mutex, RwLock};

use crate::{
    block::{BlockKey, checksum::verify, key},
    device::Device,
    error::Result,
    format::{
        cache_segment::SEGMENT_SIZE,
        pointer::{BlockPointer, Checksum},
        uberblock::Epoch,
    },
    units::{Guid, MIB, Txg},
    vdev::{Health, Leaf},
};

mod feed;
mod index;
mod ring;

#[cfg(test)]
mod tests;

use self::{
    feed::Feed,
    index::Index,
    ring::{CacheDevice, Trust},
};

/// Bytes of the first level per entry of the index.
const CACHE_PER_ENTRY: u64 = 1024;
/// The least bound of the index: more than the blocks of a segment.
const LEAST_ENTRIES: usize = 4096;

/// The longest wait for a device: the reader could have read the vdevs long ago.
const PATIENCE: Duration = Duration::from_secs(10);

/// Write rates, in bytes a second: while there are segments that were never written, and afterwards.
const COLD_RATE: u64 = 64 * MIB;
const RATE: u64 = 8 * MIB;

/// The bound of the index, in entries, beside a first level of `cache` bytes.
fn bound(cache: u64) -> usize {
    usize::try_from(cache / CACHE_PER_ENTRY).unwrap_or(usize::MAX).max(LEAST_ENTRIES)
}

/// The cache devices of a pool.
pub struct Secondary {
    devices: RwLock<Vec<Arc<CacheDevice>>>,
    /// Whether any device is usable.
    is_there: AtomicBool,
    ids: AtomicU32,
    index: RwLock<Index>,
    feed: Mutex<Feed>,
    /// Held while writing: when the next segment may be written, and to which device.
    turn: Mutex<Turn>,
    trust: Trust,
    read_only: bool,
    entries: Mutex<usize>,
    wake: Sender<()>,
    woken: Receiver<()>,
}

#[derive(Default)]
struct Turn {
    due: Duration,
    device: usize,
}

impl Secondary {
    /// No device yet, for an import that opened the state `opened`, beside a first level of `cache` bytes.
    pub(crate) fn new(cache: u64, epoch: Epoch, opened: Txg, read_only: bool) -> Secondary {
        let (wake, woken) = bounded(1);
        Secondary {
            devices: RwLock::default(),
            is_there: AtomicBool::new(false),
            ids: AtomicU32::new(0),
            index: RwLock::new(Index::new(bound(cache))),
            feed: Mutex::default(),
            turn: Mutex::default(),
            trust: Trust { epoch, opened },
            read_only,
            entries: Mutex::new(bound(cache)),
            wake,
            woken,
        }
    }

    /// Receives when there may be something to write or to read before the next turn is due.
    pub(crate) fn woken(&self) -> &Receiver<()> {
        &self.woken
    }

    /// Adapts the index to a changed bound of the first level, in bytes.
    pub(crate) fn set_cache(&self, cache: u64) {
        let before = std::mem::replace(&mut *self.entries.lock(), bound(cache));
        if before == bound(cache) {
            return;
        }
        self.index.write().set_bound(bound(cache));
        if self.is_there() {
            self.feed.lock().remember(bound(cache));
        }
    }

    /// All devices, including absent and failed ones.
    pub fn devices(&self) -> Vec<Arc<Leaf>> {
        self.devices.read().iter().map(|device| device.leaf.clone()).collect()
    }

    /// Number of blocks on all devices.
    pub fn blocks(&self) -> u64 {
        self.index.read().len() as u64
    }

    /// Bytes in the segments of a device with known content.
    pub fn held(&self, device: Guid) -> u64 {
        self.find(device).map_or(0, |device| self.index.read().segments(device.id) as u64 * SEGMENT_SIZE)
    }

    fn find(&self, device: Guid) -> Option<Arc<CacheDevice>> {
        self.devices.read().iter().find(|known| known.leaf.guid() == device).cloned()
    }

    /// Adds a device. Its content is read in later steps.
    pub(crate) fn add(&self, leaf: Arc<Leaf>) {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        leaf.device().hurry(PATIENCE);
        self.devices.write().push(Arc::new(CacheDevice::new(id, leaf)));
        self.settle();
    }

    /// Removes a device. After the return nothing is written to the device.
    pub(crate) fn remove(&self, device: Guid) {
        if let Some(found) = self.find(device) {
            self.devices.write().retain(|known| known.leaf.guid() != device);
            found.close(&self.index);
            self.settle();
        }
    }

    /// Takes a device out of use, with this health. After the return nothing is written to the device.
    pub(crate) fn take_out(&self, device: Guid, health: Health) {
        if let Some(found) = self.find(device) {
            found.close(&self.index);
            found.leaf.note_health(health);
            self.settle();
        }
    }

    /// Takes a device back into use, reopened and identified as the same.
    pub(crate) fn take_back(&self, device: Guid, opened: Arc<dyn Device>) -> Result<()> {
        if let Some(found) = self.find(device) {
            opened.hurry(PATIENCE);
            found.leaf.take_back(opened)?;
            found.open();
            self.settle();
        }
        Ok(())
    }

    /// Updates whether there is a usable device; reads are remembered only if there is.
    fn settle(&self) {
        let is_there = self.devices.read().iter().any(|device| device.is_usable());
        let was_there = self.is_there.swap(is_there, Ordering::AcqRel);
        match (was_there, is_there) {
            (false, true) => self.feed.lock().remember(*self.entries.lock()),
            (true, false) => self.feed.lock().clear(),
            _ => {}
        }
        self.wake();
    }

    pub(crate) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// The key of a block that may be on a cache device.
    fn key(&self, pointer: &BlockPointer) -> Option<BlockKey> {
        (self.is_there() && pointer.checksum_kind != Checksum::Off).then(|| key(pointer))
    }

    /// Whether a block is on a cache device.
    pub(crate) fn has(&self, pointer: &BlockPointer) -> bool {
        self.key(pointer).is_some_and(|key| self.index.read().get(&key).is_some())
    }

    /// Reads a block, as stored and verified, if it is on a cache device.
    pub(crate) fn read(&self, pointer: &BlockPointer) -> Option<Vec<u8>> {
        let key = self.key(pointer)?;
        let place = self.index.read().get(&key)?;
        let device = self.devices.read().iter().find(|device| device.id == place.device).cloned()?;
        let read = if place.stored == pointer.stored { device.read(place) } else { Ok(Vec::new()) };
        match read {
            Ok(bytes) if verify(pointer.checksum_kind, &bytes, &pointer.checksum) => return Some(bytes),
            Ok(_) => {
                // A place that is no longer known was overwritten during the read.
                if self.index.read().get(&key) == Some(place) {
                    device.leaf.counters().count_checksum_error();
                    tracing::warn!("the cache device {} gave a block that is wrong", device.leaf.name());
                }
            }
            Err(error) => {
                device.note_failure(&error, &self.index);
                self.settle();
            }
        }
        self.index.write().forget(&key, place);
        None
    }

    /// Offers a block of a committed txg that was read from the vdevs, as stored.
    pub(crate) fn offer(&self, pointer: &BlockPointer, stored: &[u8]) {
        let Some(key) = self.key(pointer).filter(|_| !self.read_only) else { return };
        let is_cold = self.devices.read().iter().any(|device| device.is_cold());
        let mut feed = self.feed.lock();
        feed.offer(key, stored, !is_cold);
        if feed.is_enough() {
            self.wake();
        }
    }

    fn wake(&self) {
        // A thread already woken comes anyway.
        let _ = self.wake.try_send(());
    }

    /// Does what is due: reads a part of a device's content, or writes a segment. Returns the time of the next call;
    /// `None` if there is nothing to do until a block is read.
    pub fn step(&self, now: Duration) -> Option<Duration> {
        let mut turn = self.turn.lock();
        let devices = self.devices.read().clone();
        if let Some(device) = devices.iter().find(|device| device.is_loading()) {
            device.load(self.trust, &self.index, !self.read_only);
            drop(turn);
            self.settle();
            return Some(now);
        }
        if self.read_only || !self.feed.lock().is_enough() {
            return None;
        }
        if now < turn.due {
            return Some(turn.due);
        }
        let (written, rate) = self.write(&mut turn, &devices);
        turn.due = now + Duration::from_nanos(written.saturating_mul(1_000_000_000) / rate);
        drop(turn);
        self.settle();
        Some(now)
    }

    /// Writes waiting blocks to the next device; returns the bytes written, and the rate allowed, in bytes a second.
    fn write(&self, turn: &mut Turn, devices: &[Arc<CacheDevice>]) -> (u64, u64) {
        let taken = self.feed.lock().take();
        let usable: Vec<_> = devices.iter().filter(|device| device.is_usable()).collect();
        let Some(device) = usable.get(turn.device % usable.len().max(1)) else { return (0, RATE) };
        turn.device = turn.device.wrapping_add(1);
        let rate = if device.is_cold() { COLD_RATE } else { RATE };
        (device.write(&taken, self.trust.epoch, &self.index), rate)
    }

    /// Reads the content of all devices, and writes all waiting blocks.
    pub fn finish(&self) {
        while self.is_loading() {
            self.step(Duration::ZERO);
        }
        self.close();
    }

    fn is_loading(&self) -> bool {
        self.devices.read().iter().any(|device| device.is_loading())
    }

    /// Writes all waiting blocks, so that the next import has them. If the content of the devices is not fully read
    /// yet, they are dropped instead, because that would take too long.
    pub fn close(&self) {
        if self.read_only || !self.is_there() || self.is_loading() {
            return;
        }
        let mut turn = self.turn.lock();
        let devices = self.devices.read().clone();
        while self.feed.lock().has_some() {
            self.write(&mut turn, &devices);
        }
        devices.iter().for_each(|device| device.flush(&self.index));
    }
}
