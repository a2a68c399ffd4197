//! Cache devices: a second level of cache below the one in memory (ZFS: L2ARC).
//!
//! A cache device is a device of the pool in no vdev. It holds copies of blocks that were read, as they are stored, and
//! nothing else: what it loses costs reads of the pool's vdevs, and nothing that it says is believed.
//!
//! ```text
//! index    which blocks are there, and where: in memory, bounded
//! feed     what was read and may go there: bounded, and dropped where it does not fit
//! ring     one device: segments, written one after the other; what is on it when it is opened
//! feeder   the thread that writes, and finds out what is there
//! ```
//!
//! A block is known by its first address *and* birth, as in memory. What is read from a device must pass the checksum that the
//! pointer has, so blocks without one are never put there; what does not pass is counted beside the device and forgotten, and
//! the vdevs are asked.
//!
//! Invariants:
//! 1. Whoever reads waits for no writing: a block is copied to a queue, or let go if that is full.
//! 2. Only blocks of committed groups are put there. A group that never came to its commit may come again under the same
//!    number, with other blocks at the same addresses. For the same reason, what was born after the state that was opened is
//!    not taken from a device: going back has given it up. Later numbers are never used twice, so the rest is right.
//! 3. The index takes no more than about an eleventh of what the first level may, whatever devices say.
//! 4. A device that fails, or does not answer within ten seconds, is put out of use, and the pool goes on. No commit waits for one.
//!
//! How fast is written: 8 MiB a second, which wears out a disk for 600 TB in two years if it never pauses; 64 MiB a second while
//! it has segments that were never written, which happens once.
//!
//! It does not hold blocks of more than 4064 KiB, which disks read well, and what is written does not go there before it is read.

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
    block::{
        cache::{BlockKey, key},
        checksum::verify,
    },
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
mod feeder;
mod index;
mod ring;

#[cfg(test)]
mod tests;

pub use self::feeder::Feeder;
use self::{
    feed::Feed,
    index::Index,
    ring::{CacheDevice, Trust},
};

/// So many bytes of the first level stand for one entry of the index.
const CACHE_PER_ENTRY: u64 = 1024;
/// The index may always have so many entries: more than a segment has.
const LEAST_ENTRIES: usize = 4096;

/// How long is waited for a device at most: whoever reads could have asked the vdevs long ago.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many bytes are written a second: while there are segments that were never written, and after that.
const COLD_RATE: u64 = 64 * MIB;
const RATE: u64 = 8 * MIB;

/// How many entries the index may have, beside a first level of so many bytes.
fn bound(cache: u64) -> usize {
    usize::try_from(cache / CACHE_PER_ENTRY).unwrap_or(usize::MAX).max(LEAST_ENTRIES)
}

/// The cache devices of a pool.
pub struct Secondary {
    devices: RwLock<Vec<Arc<CacheDevice>>>,
    /// Whether any device can be used.
    is_there: AtomicBool,
    ids: AtomicU32,
    index: RwLock<Index>,
    feed: Mutex<Feed>,
    /// Held by who writes: when the next segment may be written, and which device gets it.
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
    /// No device yet, for an import that has opened a state, beside a first level of `cache` bytes.
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

    /// Follows a change of the first level's bound.
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

    /// The devices, also those that are not there or have failed.
    pub fn devices(&self) -> Vec<Arc<Leaf>> {
        self.devices.read().iter().map(|device| device.leaf.clone()).collect()
    }

    /// How many bytes of a device hold something that is known.
    pub fn held(&self, device: Guid) -> u64 {
        self.find(device).map_or(0, |device| self.index.read().segments(device.id) as u64 * SEGMENT_SIZE)
    }

    fn find(&self, device: Guid) -> Option<Arc<CacheDevice>> {
        self.devices.read().iter().find(|known| known.leaf.guid() == device).cloned()
    }

    /// One more device. What is on it is found out in steps.
    pub(crate) fn add(&self, leaf: Arc<Leaf>) {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        leaf.device().hurry(PATIENCE);
        self.devices.write().push(Arc::new(CacheDevice::new(id, leaf)));
        self.settle();
    }

    /// One device less. When this has returned, nothing is written to it any more.
    pub(crate) fn remove(&self, device: Guid) {
        if let Some(found) = self.find(device) {
            self.devices.write().retain(|known| known.leaf.guid() != device);
            found.close(&self.index);
            self.settle();
        }
    }

    /// Puts a device out of use, and notes why. When this has returned, nothing is written to it any more.
    pub(crate) fn put_out(&self, device: Guid, health: Health) {
        if let Some(found) = self.find(device) {
            found.close(&self.index);
            found.leaf.note_health(health);
            self.settle();
        }
    }

    /// Uses a device again that was found to be the one that was out of use.
    pub(crate) fn take_back(&self, device: Guid, opened: Arc<dyn Device>) -> Result<()> {
        if let Some(found) = self.find(device) {
            opened.hurry(PATIENCE);
            found.leaf.take_back(opened)?;
            found.open();
            self.settle();
        }
        Ok(())
    }

    /// Notes whether there is a device, and remembers what is read only if so.
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

    fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire)
    }

    /// Whether a block may be on a cache device.
    fn key(&self, pointer: &BlockPointer) -> Option<BlockKey> {
        (self.is_there() && pointer.checksum_kind != Checksum::Off).then(|| key(pointer))
    }

    /// Whether a block is there.
    pub(crate) fn has(&self, pointer: &BlockPointer) -> bool {
        self.key(pointer).is_some_and(|key| self.index.read().get(&key).is_some())
    }

    /// A block as it is stored, verified, if it is there.
    pub(crate) fn read(&self, pointer: &BlockPointer) -> Option<Vec<u8>> {
        let key = self.key(pointer)?;
        let place = self.index.read().get(&key)?;
        let device = self.devices.read().iter().find(|device| device.id == place.device).cloned()?;
        let read = if place.stored == pointer.stored { device.read(place) } else { Ok(Vec::new()) };
        match read {
            Ok(bytes) if verify(pointer.checksum_kind, &bytes, &pointer.checksum) => return Some(bytes),
            Ok(_) => {
                // If it is not known any more it was overwritten meanwhile.
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

    /// A block of a committed group was read from the vdevs, as it is stored.
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
        // Who is told already comes.
        let _ = self.wake.try_send(());
    }

    /// Does what is due: finds out what is on a device, or writes a segment. When it is to be called again; `None` if there is
    /// nothing to do until something was read.
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

    /// Writes what waits to the next device; how many bytes that were, and how many it may have a second.
    fn write(&self, turn: &mut Turn, devices: &[Arc<CacheDevice>]) -> (u64, u64) {
        let taken = self.feed.lock().take();
        let usable: Vec<_> = devices.iter().filter(|device| device.is_usable()).collect();
        let Some(device) = usable.get(turn.device % usable.len().max(1)) else { return (0, RATE) };
        turn.device = turn.device.wrapping_add(1);
        let rate = if device.is_cold() { COLD_RATE } else { RATE };
        (device.write(&taken, self.trust.epoch, &self.index), rate)
    }

    /// Finds out what is on all devices, and writes what waits.
    pub fn finish(&self) {
        while self.is_loading() {
            self.step(Duration::ZERO);
        }
        self.close();
    }

    fn is_loading(&self) -> bool {
        self.devices.read().iter().any(|device| device.is_loading())
    }

    /// Writes what waits, so that the next import has it. Nobody waits until it is known what is on the devices: as long as it is
    /// not, what waits is forgotten.
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
