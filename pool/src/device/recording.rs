//! A device that records every write and flush, and shows what a power failure could have left of them.
//!
//! A [`Recorder`] keeps one log for any number of devices, so that the operations of a pool have one global order. A
//! *cut* is a position in that log: the power fails after so many operations. For each device, writes before its last
//! flush before the cut are kept; each later write is kept, dropped or torn, as a [`Fate`] decides. Since every such
//! write is decided independently, a later write may survive an earlier one: that is reordering.
//!
//! ```text
//! log:     w1  w2  flush  w3  w4 | cut
//! image:   w1  w2         w3? w4?
//! ```
//!
//! Lengthening a device takes effect at once, whatever the fate of earlier writes. Truncating by [`Device::truncate`]
//! does too, and makes earlier writes durable.
//!
//! Two writes to the same place keep their order, as in the page cache and on disks.

use std::{io, ops::RangeInclusive, sync::Arc};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    interface::{Device, TEAR_UNIT, check_range},
    memory::MemoryDevice,
};

/// The fate of an unflushed write in a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The write reached the device.
    Kept,
    /// The write was lost.
    Dropped,
    /// Some 512-byte sectors of the write were lost, chosen by this seed.
    Torn(u64),
}

impl Fate {
    /// An endless sequence of fates from a seed: a third of each kind.
    pub fn seeded(seed: u64) -> impl FnMut() -> Fate {
        let mut random = StdRng::seed_from_u64(seed);
        move || match random.random_range(0..3) {
            0 => Fate::Kept,
            1 => Fate::Dropped,
            _ => Fate::Torn(random.random()),
        }
    }
}

/// Positions to cut a log at, each with seeds of fates below `fates`. Every position has one seed, which differs from one
/// position to the next; with `CENOTE_CUTS=all` in the environment every position has every seed.
pub fn cuts(positions: RangeInclusive<usize>, fates: u64) -> impl Iterator<Item = (usize, u64)> {
    let is_all = all_cuts();
    positions.flat_map(move |cut| {
        let seeds = if is_all { 0..fates } else { (cut as u64 % fates)..(cut as u64 % fates + 1) };
        seeds.map(move |seed| (cut, seed))
    })
}

/// Whether tests try all cuts with all fates: `CENOTE_CUTS=all` is in the environment.
pub fn all_cuts() -> bool {
    std::env::var_os("CENOTE_CUTS").is_some_and(|value| value == "all")
}

/// An operation in the log.
enum Entry {
    Write { device: usize, offset: u64, bytes: Box<[u8]> },
    Flush { device: usize },
    Discard { device: usize, offset: u64, len: u64 },
    Size { device: usize, there: u64, is_flush: bool },
}

impl Entry {
    fn device(&self) -> usize {
        match self {
            Entry::Write { device, .. } | Entry::Flush { device } => *device,
            Entry::Discard { device, .. } | Entry::Size { device, .. } => *device,
        }
    }

    /// Whether the operation makes everything before it on its device durable.
    fn is_flush(&self) -> bool {
        matches!(self, Entry::Flush { .. } | Entry::Size { is_flush: true, .. })
    }

    /// Whether the operation itself survives any later power failure.
    fn is_certain(&self) -> bool {
        matches!(self, Entry::Flush { .. } | Entry::Size { .. })
    }
}

#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    /// The devices when wrapped.
    initial: Vec<MemoryDevice>,
    /// The devices with the first `settled.0` entries applied: the base of the last image. So a sequence of ascending
    /// cuts costs only the operations between them.
    settled: (usize, Vec<MemoryDevice>),
}

/// The log of any number of recording devices.
#[derive(Default)]
pub struct Recorder {
    log: Mutex<Log>,
}

impl Recorder {
    /// A recorder with an empty log.
    pub fn new() -> Arc<Recorder> {
        Arc::default()
    }

    /// Records the operations of `device` from now on. Images list the devices in the order of these calls.
    pub fn wrap(self: &Arc<Self>, device: MemoryDevice) -> RecordingDevice {
        let mut log = self.log.lock();
        let index = log.initial.len();
        log.initial.push(device.snapshot());
        log.settled.1.push(device.snapshot());
        RecordingDevice { recorder: Arc::clone(self), index, inner: device }
    }

    /// Operations recorded: cuts go from 0 to this number.
    pub fn len(&self) -> usize {
        self.log.lock().entries.len()
    }

    /// Whether nothing was recorded yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The devices after a power failure behind the first `cut` operations. `fate` is called, in order, for each write
    /// and discard with no flush of its device between it and the cut.
    ///
    /// # Panics
    /// If `cut` is beyond the end of the log.
    pub fn images_at(&self, cut: usize, fate: &mut impl FnMut() -> Fate) -> Vec<MemoryDevice> {
        let log = &mut *self.log.lock();
        assert!(cut <= log.entries.len(), "cut {cut} is beyond the {} recorded operations", log.entries.len());
        let last_flush = log.last_flushes(cut);
        log.settle(cut, &last_flush);
        let images: Vec<MemoryDevice> = log.settled.1.iter().map(MemoryDevice::snapshot).collect();
        for (position, entry) in log.entries[..cut].iter().enumerate().skip(log.settled.0) {
            let device = entry.device();
            let fate = match position < last_flush[device] || entry.is_certain() {
                true => Fate::Kept,
                false => fate(),
            };
            apply(&images[device], entry, fate);
        }
        images
    }
}

impl Log {
    /// For each device, the position of its last flush before `cut`; 0 if there was none.
    fn last_flushes(&self, cut: usize) -> Vec<usize> {
        let mut positions = vec![0; self.initial.len()];
        for (position, entry) in self.entries[..cut].iter().enumerate() {
            if entry.is_flush() {
                positions[entry.device()] = position;
            }
        }
        positions
    }

    /// Moves `settled` to the first operation that may be lost at `cut`.
    fn settle(&mut self, cut: usize, last_flush: &[usize]) {
        let certain = |(position, entry): (usize, &Entry)| entry.is_certain() || position < last_flush[entry.device()];
        let until = self.entries[..cut].iter().enumerate().position(|entry| !certain(entry)).unwrap_or(cut);
        if until < self.settled.0 {
            self.settled = (0, self.initial.iter().map(MemoryDevice::snapshot).collect());
        }
        for entry in &self.entries[self.settled.0..until] {
            apply(&self.settled.1[entry.device()], entry, Fate::Kept);
        }
        self.settled.0 = until;
    }
}

/// Applies an operation to an image, as far as its fate lets it.
fn apply(image: &MemoryDevice, entry: &Entry, fate: Fate) {
    let result = match (entry, fate) {
        (Entry::Size { there, .. }, _) => {
            image.make(*there);
            // An image uses its whole physical size.
            image.resize(*there);
            Ok(())
        }
        (Entry::Flush { .. }, _) | (_, Fate::Dropped) => Ok(()),
        (Entry::Write { offset, bytes, .. }, Fate::Kept) => image.write_at(*offset, bytes),
        (Entry::Write { offset, bytes, .. }, Fate::Torn(seed)) => tear(image, *offset, bytes, seed),
        (Entry::Discard { offset, len, .. }, Fate::Kept) => image.discard(*offset, *len),
        (Entry::Discard { offset, len, .. }, Fate::Torn(seed)) => fray(image, *offset, *len, seed),
    };
    result.expect("what was recorded fits the device");
}

/// Writes or drops each 512-byte sector of `bytes`, chosen at random from `seed`.
fn tear(image: &MemoryDevice, offset: u64, bytes: &[u8], seed: u64) -> io::Result<()> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut at, mut rest) = (offset, bytes);
    while !rest.is_empty() {
        let len = (TEAR_UNIT - at % TEAR_UNIT).min(rest.len() as u64);
        let (sector, tail) = rest.split_at(len as usize);
        if random.random() {
            image.write_at(at, sector)?;
        }
        (at, rest) = (at + len, tail);
    }
    Ok(())
}

/// Discards or keeps each part of a range, chosen at random from `seed`.
fn fray(image: &MemoryDevice, offset: u64, len: u64, seed: u64) -> io::Result<()> {
    const PART: u64 = 64 << 10;
    let mut random = StdRng::seed_from_u64(seed);
    for at in (0..len).step_by(PART as usize) {
        if random.random() {
            image.discard(offset + at, PART.min(len - at))?;
        }
    }
    Ok(())
}

/// A memory device whose writes and flushes are recorded.
pub struct RecordingDevice {
    recorder: Arc<Recorder>,
    index: usize,
    inner: MemoryDevice,
}

impl RecordingDevice {
    /// Changes the physical size: see [`MemoryDevice::make`].
    pub fn make(&self, there: u64) {
        let mut log = self.recorder.log.lock();
        self.inner.make(there);
        log.entries.push(Entry::Size { device: self.index, there, is_flush: false });
    }

    /// Performs an operation and records it, as one step: the log's order is the order in which content changed.
    fn record(&self, entry: Entry) -> io::Result<()> {
        let mut log = self.recorder.log.lock();
        apply(&self.inner, &entry, Fate::Kept);
        log.entries.push(entry);
        Ok(())
    }
}

impl Device for RecordingDevice {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn measure(&self) -> io::Result<u64> {
        self.inner.measure()
    }

    fn resize(&self, size: u64) {
        self.inner.resize(size);
    }

    fn truncate(&self, size: u64) -> io::Result<bool> {
        let mut log = self.recorder.log.lock();
        let before = self.inner.measure()?;
        let is_cut = self.inner.truncate(size)?;
        let there = self.inner.measure()?;
        if there != before {
            log.entries.push(Entry::Size { device: self.index, there, is_flush: true });
        }
        Ok(is_cut)
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        check_range(self.size(), offset, bytes.len() as u64)?;
        self.record(Entry::Write { device: self.index, offset, bytes: bytes.into() })
    }

    fn flush(&self) -> io::Result<()> {
        self.record(Entry::Flush { device: self.index })
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_range(self.size(), offset, len)?;
        self.record(Entry::Discard { device: self.index, offset, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: usize = TEAR_UNIT as usize;

    fn byte(device: &impl Device, offset: u64) -> u8 {
        let mut byte = [0];
        device.read_at(offset, &mut byte).unwrap();
        byte[0]
    }

    fn recorded() -> (Arc<Recorder>, RecordingDevice) {
        let recorder = Recorder::new();
        let device = recorder.wrap(MemoryDevice::new("recorded", 1 << 20));
        (recorder, device)
    }

    #[test]
    fn a_torn_discard_takes_parts() {
        let (recorder, device) = recorded();
        device.write_at(0, &[1; 1 << 20]).unwrap();
        device.flush().unwrap();
        device.discard(0, 1 << 20).unwrap();
        let left = |fate| {
            let image = &recorder.images_at(3, &mut || fate)[0];
            (0..16).filter(|part| byte(image, part << 16) == 1).count()
        };
        assert_eq!((left(Fate::Kept), left(Fate::Dropped)), (0, 16));
        assert!((1..16).contains(&left(Fate::Torn(1))));
    }

    #[test]
    fn a_device_is_as_long_as_it_was_at_the_cut() {
        let recorder = Recorder::new();
        let device = recorder.wrap(MemoryDevice::new("recorded", 1 << 20).as_image());
        device.write_at(0, &[1]).unwrap();
        device.write_at((1 << 20) - 1, &[2]).unwrap();
        device.make(2 << 20);
        device.resize(2 << 20);
        device.write_at((2 << 20) - 1, &[3]).unwrap();
        assert!(device.truncate(1 << 19).unwrap());
        let images: Vec<_> = (0..=5).map(|cut| recorder.images_at(cut, &mut || Fate::Dropped).remove(0)).collect();
        let sizes: Vec<u64> = images.iter().map(|image| image.size() >> 19).collect();
        assert_eq!(sizes, [2, 2, 2, 4, 4, 1]);
        assert_eq!((byte(&images[3], 0), byte(&images[4], 0)), (0, 0), "to be made longer is no flush");
        assert_eq!((byte(&images[4], (2 << 20) - 1), byte(&images[5], 0)), (0, 1), "to be cut is");
    }

    #[test]
    fn flushed_writes_are_always_there_and_later_ones_never() {
        let (recorder, device) = recorded();
        device.write_at(0, &[1]).unwrap();
        device.flush().unwrap();
        device.write_at(1, &[2]).unwrap();
        device.write_at(2, &[3]).unwrap();
        let dropped = &recorder.images_at(3, &mut || Fate::Dropped)[0];
        assert_eq!((byte(dropped, 0), byte(dropped, 1), byte(dropped, 2)), (1, 0, 0));
        let kept = &recorder.images_at(3, &mut || Fate::Kept)[0];
        assert_eq!((byte(kept, 0), byte(kept, 1), byte(kept, 2)), (1, 2, 0));
        let early = &recorder.images_at(1, &mut || Fate::Dropped)[0];
        assert_eq!(byte(early, 0), 0);
    }

    #[test]
    fn a_later_write_can_survive_an_earlier_one() {
        let (recorder, device) = recorded();
        device.write_at(0, &[1]).unwrap();
        device.write_at(1, &[2]).unwrap();
        let mut fates = [Fate::Dropped, Fate::Kept].into_iter();
        let image = &recorder.images_at(2, &mut || fates.next().unwrap())[0];
        assert_eq!((byte(image, 0), byte(image, 1)), (0, 2));
    }

    #[test]
    fn a_torn_write_is_torn_at_sectors() {
        let (recorder, device) = recorded();
        device.write_at(0, &[7; 64 * SECTOR]).unwrap();
        let image = &recorder.images_at(1, &mut || Fate::Torn(5))[0];
        let mut content = vec![0; 64 * SECTOR];
        image.read_at(0, &mut content).unwrap();
        let sectors: Vec<u8> = content.chunks(SECTOR).map(|sector| sector[0]).collect();
        assert!(content.chunks(SECTOR).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        assert!(sectors.contains(&0) && sectors.contains(&7));
    }

    #[test]
    fn a_flush_of_one_device_says_nothing_about_another() {
        let recorder = Recorder::new();
        let devices = [0, 1].map(|n| recorder.wrap(MemoryDevice::new(format!("disk{n}"), 4096)));
        devices[0].write_at(0, &[1]).unwrap();
        devices[1].write_at(0, &[2]).unwrap();
        devices[1].flush().unwrap();
        let images = recorder.images_at(3, &mut || Fate::Dropped);
        assert_eq!((byte(&images[0], 0), byte(&images[1], 0)), (0, 2));
        devices[0].flush().unwrap();
        let images = recorder.images_at(4, &mut || Fate::Dropped);
        assert_eq!((byte(&images[0], 0), byte(&images[1], 0)), (1, 2));
    }

    #[test]
    fn images_do_not_depend_on_the_order_of_requests() {
        let (recorder, device) = recorded();
        for n in 0..40u64 {
            device.write_at(n % 7 * 100, &[n as u8; 1000]).unwrap();
            if n % 5 == 4 {
                device.flush().unwrap();
            }
        }
        let content = |cut: usize| {
            let mut bytes = vec![0; 4096];
            recorder.images_at(cut, &mut Fate::seeded(cut as u64))[0].read_at(0, &mut bytes).unwrap();
            bytes
        };
        let ascending: Vec<_> = (0..=recorder.len()).map(content).collect();
        for cut in (0..=recorder.len()).rev() {
            assert!(content(cut) == ascending[cut], "cut {cut}");
        }
    }

    #[test]
    fn a_device_is_recorded_from_its_wrapping_on() {
        let device = MemoryDevice::new("used", 4096);
        device.write_at(9, &[9]).unwrap();
        let recorder = Recorder::new();
        let device = recorder.wrap(device);
        assert!(recorder.is_empty());
        assert!(device.write_at(4096, &[1]).is_err());
        assert!(recorder.is_empty());
        assert_eq!(byte(&recorder.images_at(0, &mut || Fate::Dropped)[0], 9), 9);
    }
}
