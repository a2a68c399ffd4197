//! Writing and finding labels on a device.
//!
//! Labels change rarely: when a pool is created, imported, exported, renamed, or gets another device. They are written
//! pair by pair, one label at each end of the device, with a flush after each pair. The first pair is the expendable
//! one, because the second holds a label at least as new: normally L0 and L2 come first, after a crash perhaps L1 and
//! L3.
//!
//! | power fails | first pair | second pair | import finds |
//! | --- | --- | --- | --- |
//! | before or while the first pair is written | old, new or torn | old | the new label if a copy is whole, else the old |
//! | after the first flush, or while the second pair is written | new | old, new or torn | the new label |
//! | after the second flush | new | new | the new label |
//!
//! A torn label fails its checksum and is skipped. The good label of the highest txg wins; every change of a label
//! raises its txg. If neither label of the first pair could be written, the second pair is left alone: it holds the
//! only good labels. If no front label was written, the device does not have its label either: back labels are looked
//! for at the end of the device, and the end may move before the move is recorded.
//!
//! The last two labels stand before the device's end: the physical end or, on a shrunk device, the end that the label
//! records ([`crate::format::label::ends`]). As long as a front label is good, only front labels decide where the end
//! is, because their places are always known: leftovers at a former end are neither read nor believed.
//!
//! The uberblock rings in the labels are touched only by [`write_new_labels`], [`clear_labels`] and
//! [`move_back_labels`]; see [`crate::vdev::uberblocks`].

use std::sync::Arc;

use crate::{
    device::{Device, Pending},
    error::{Error, Result},
    format::label::{BACK_LABELS, BODY_AT, BODY_SIZE, LABEL_SIZE, LABELS, Label, RING_AT, RING_SIZE, label_offsets},
    size::format_bytes,
    units::Guid,
};

/// The pairs of labels, by label number.
const PAIRS: [[usize; 2]; 2] = [[0, 2], [1, 3]];

/// Makes the device a member of the pool that `label` describes. The former content of its labels is erased, including
/// uberblocks and signatures of foreign formats in the same places.
///
/// A crash leaves a device with no label, or with a label and no uberblock: in both cases no pool.
///
/// # Errors
/// [`Error::Request`] if the device is too small or the label too long, before anything is written.
pub fn write_new_labels(device: &dyn Device, label: &Label) -> Result<()> {
    encode(device, label)?;
    clear_labels(device)?;
    write_labels(device, label)
}

/// Replaces the labels of a device. A crash leaves the old or the new label.
///
/// # Errors
/// If neither label of a pair could be written, or neither front label, or a flush failed. The device still has a good
/// label then.
pub fn write_labels(device: &dyn Device, label: &Label) -> Result<()> {
    write_all_labels(&[(device, label)]).remove(0)
}

/// Replaces the labels of many devices in parallel, and returns a result for each. A crash may leave new labels on any
/// of them.
pub fn write_all_labels(devices: &[(&dyn Device, &Label)]) -> Vec<Result<()>> {
    let begun: Vec<_> = devices.iter().map(|(device, label)| Replacing::begin(*device, label)).collect();
    let mut all: Vec<Result<Replacing>> = begun.into_iter().map(|begun| begun.map(|ordered| ordered())).collect();
    for turn in 0..PAIRS.len() {
        together(&mut all, |one| one.begin_pair(turn), |one, begun| one.end_pair(turn, begun));
        together(&mut all, |one| one.device.begin_flush(), |one, begun| one.end_flush(begun));
    }
    all.into_iter().map(|one| one.map(drop)).collect()
}

/// Begins something on all devices that have not failed, and then waits for each.
fn together<'a, T>(
    all: &mut [Result<Replacing<'a>>],
    begin: impl Fn(&Replacing<'a>) -> T,
    end: impl Fn(&mut Replacing<'a>, T) -> Result<()>,
) {
    let begun: Vec<Option<T>> = all.iter().map(|one| one.as_ref().ok().map(&begin)).collect();
    for (one, begun) in all.iter_mut().zip(begun) {
        if let (Ok(replacing), Some(begun)) = (&mut *one, begun)
            && let Err(error) = end(replacing, begun)
        {
            *one = Err(error);
        }
    }
}

/// A device whose labels are being replaced.
struct Replacing<'a> {
    device: &'a dyn Device,
    bodies: Vec<(u64, Arc<Vec<u8>>)>,
    /// The pairs in writing order: a pair with a newest label comes last.
    order: [[usize; 2]; 2],
    /// True if a front label was written.
    is_in_front: bool,
}

impl<'a> Replacing<'a> {
    /// Begins to read the present labels.
    fn begin(device: &'a dyn Device, label: &Label) -> Result<impl FnOnce() -> Replacing<'a> + use<'a>> {
        let bodies = encode(device, label)?.into_iter().map(|(at, body)| (at, Arc::new(body))).collect();
        let begun = offsets(device)?.map(|at| (at, device.begin_read(at + BODY_AT, BODY_SIZE)));
        Ok(move || {
            let txgs = begun.map(|(at, body)| Some(decode_at(&body.wait().ok()?, at).ok()??.txg));
            let newest = txgs.iter().max().expect("a device has four labels");
            let [first, second] = PAIRS;
            let is_second_newest = second.iter().any(|n| txgs[*n] == *newest);
            let order = if is_second_newest { [first, second] } else { [second, first] };
            Replacing { device, bodies, order, is_in_front: false }
        })
    }

    fn begin_pair(&self, turn: usize) -> [Pending; 2] {
        self.order[turn].map(|n| self.device.begin_write(self.bodies[n].0, &self.bodies[n].1))
    }

    fn end_pair(&mut self, turn: usize, begun: [Pending; 2]) -> Result<()> {
        let [front, back] = begun.map(Pending::wait);
        self.is_in_front |= front.is_ok();
        let is_last = turn + 1 == PAIRS.len();
        match front {
            Err(source) if back.is_err() || is_last && !self.is_in_front => {
                Err(failed(self.device, "write a label", source))
            }
            _ => Ok(()),
        }
    }

    fn end_flush(&self, begun: Pending) -> Result<()> {
        begun.wait().map_err(|source| failed(self.device, "flush a label", source))
    }
}

/// Moves the device's end to `size`, because it has grown or is about to shrink. The new back labels get the newest
/// label, and the uberblock rings of the former back labels or, if unreadable, of another label. The caller then writes
/// the changed labels, and meanwhile excludes label writers and commits. After an error the end is where it was.
///
/// | power fails | import finds |
/// | --- | --- |
/// | before or while the new place is written | the front labels, as they were, and at the end nothing, or what was at the old one |
/// | then, before the labels are written | all four, as they were |
/// | while the labels are written | as always: the first pair has L0, the second L1, and one of the pairs is as it was |
///
/// The former back labels stay until the space is used. If the device is cut back to its former size meanwhile, they
/// are found, and are older than the front labels. Where the new place overlaps the former one, the front labels are
/// the only labels for a moment, as after any growth of a device of an exported pool.
///
/// For a smaller size the same holds: until a label names the new end, an import finds the unchanged back labels at the
/// old end. Nothing of the pool may lie at the new place.
///
/// # Errors
/// [`Error::Device`] if the new place cannot be written.
pub fn move_back_labels(device: &dyn Device, size: u64) -> Result<()> {
    let (before, places) = (device.size(), offsets(device)?);
    assert!(size != before, "a device whose end has moved has another size");
    let label = read_label(device)?;
    let read = |at: usize| {
        let mut ring = vec![0; RING_SIZE];
        device.read_at(places[at] + RING_AT, &mut ring).ok().map(|()| ring)
    };
    // Each back label keeps its own ring, as the rings in front may be damaged. If no copy of a ring is readable, the
    // next commits fill a new one.
    let rings = [[2, 3, 0, 1], [3, 2, 1, 0]].map(|order| order.into_iter().find_map(read));
    device.resize(size);
    let moved = write_back(device, label.as_ref(), &rings);
    if moved.is_err() {
        device.resize(before);
    }
    moved
}

/// Writes both back labels as a whole, erases the rest behind them, and flushes.
fn write_back(device: &dyn Device, label: Option<&Label>, rings: &[Option<Vec<u8>>; 2]) -> Result<()> {
    let offsets = offsets(device)?;
    let bodies = label.map(|label| encode(device, label)).transpose()?;
    let image = |at: usize| {
        let mut image = vec![0; LABEL_SIZE as usize];
        if let Some(bodies) = &bodies {
            image[BODY_AT as usize..][..BODY_SIZE].copy_from_slice(&bodies[at].1);
        }
        if let Some(ring) = &rings[at - 2] {
            image[RING_AT as usize..].copy_from_slice(ring);
        }
        image
    };
    let end = offsets[LABELS - 1] + LABEL_SIZE;
    let tail = vec![0; (device.size() - end) as usize];
    let written = [(offsets[2], image(2)), (offsets[3], image(3)), (end, tail)];
    let written = written.iter().try_for_each(|(at, bytes)| device.write_at(*at, bytes));
    written.and_then(|()| device.flush()).map_err(|source| failed(device, "move the back labels", source))
}

/// Sets the device's end to the one in the pool's newest label. Called before anything but the label is read.
pub(crate) fn settle_end(device: &dyn Device, label: &Label, guid: Guid) {
    if let Some(end) = label.end_of(guid)
        && end < device.size()
    {
        device.resize(end);
    }
}

/// Gives up the space behind the end of a shrunk device, as recorded in its front labels. An image is truncated. On a
/// device that cannot be truncated, the labels at the former end are erased, so that a loss of the front labels does
/// not bring them back. Returns the physical size, in bytes. The caller excludes all use of the device.
///
/// # Errors
/// [`Error::Device`] if the device refuses, [`Error::Damaged`] if its front labels do not record the end.
pub(crate) fn give_up_behind(device: &dyn Device) -> Result<u64> {
    let end = device.size();
    let there = device.measure().map_err(|source| failed(device, "measure", source))?;
    if there <= end || device.truncate(end).map_err(|source| failed(device, "cut", source))? {
        return Ok(there.min(end));
    }
    // From then on only the front labels record the end.
    if front_label(device).and_then(|front| front.end_of(front.device)) != Some(end) {
        return Err(Error::damaged(format!("front labels of {}", device.name()), "they do not say where it ends"));
    }
    let from = label_offsets(there)[2].max(end);
    device.resize(there);
    let zeros = vec![0; (there - from) as usize];
    let erased = device.write_at(from, &zeros).and_then(|()| device.flush());
    device.resize(end);
    erased.map(|()| there).map_err(|source| failed(device, "erase the former labels", source))
}

/// The newer of the good front labels.
fn front_label(device: &dyn Device) -> Option<Label> {
    let good = PAIRS.map(|[front, _]| read_label_at(device, label_offsets(device.size())[front]).ok().flatten());
    good.into_iter().flatten().max_by_key(|label| label.txg)
}

/// Offsets of the labels, if the end of the device is not yet settled: as recorded by the front labels or, if lost, by
/// the labels at the physical end.
///
/// # Errors
/// [`Error::Request`] if the device is too small for labels.
pub fn places(device: &dyn Device) -> Result<[u64; LABELS]> {
    let offsets = offsets(device)?;
    let at_end = || offsets[2..].iter().filter_map(|at| read_label_at(device, *at).ok().flatten()).next();
    let label = front_label(device).or_else(at_end);
    let end = label.and_then(|label| label.end_of(label.device)).filter(|end| *end < device.size());
    Ok(end.map_or(offsets, label_offsets))
}

/// Erases all four labels and the rest behind the last one, so that the device belongs to no pool and shows no foreign
/// signature. Back labels are erased at every possible end: the end recorded by the pool, the end when the device was
/// opened, and the physical end. After an error the remaining places are still tried.
///
/// Labels at former ends are erased first, because the front labels lead to them: after a power failure they are found
/// again.
pub fn clear_labels(device: &dyn Device) -> Result<()> {
    let offsets = offsets(device)?;
    let elsewhere = clear_elsewhere(device, offsets[2]);
    let cleared = clear_at(device, offsets);
    elsewhere.and(cleared)
}

/// Erases back labels that do not lie at the device's current end, and flushes.
fn clear_elsewhere(device: &dyn Device, back: u64) -> Result<()> {
    let there = device.measure().map_err(|source| failed(device, "measure", source))?;
    let size = device.size();
    let mut starts = vec![places(device)?[2], label_offsets(there.max(size))[2]];
    starts.retain(|start| *start != back);
    if starts.is_empty() {
        return Ok(());
    }
    let zeros = vec![0; BACK_LABELS as usize];
    device.resize(there.max(size));
    let results: Vec<_> = starts.into_iter().map(|start| device.write_at(start, &zeros)).collect();
    device.resize(size);
    let erased = results.into_iter().collect::<std::io::Result<()>>().and_then(|()| device.flush());
    erased.map_err(|source| failed(device, "erase the labels", source))
}

/// Erases four labels, and the rest behind the last one.
fn clear_at(device: &dyn Device, offsets: [u64; LABELS]) -> Result<()> {
    let zeros = vec![0; LABEL_SIZE as usize];
    let end = offsets[LABELS - 1] + LABEL_SIZE;
    let tail = &zeros[..(device.size() - end) as usize];
    let labels = offsets.map(|at| device.write_at(at, &zeros));
    let results = labels.into_iter().chain([device.write_at(end, tail), device.flush()]);
    let errors: Vec<_> = results.filter_map(Result::err).collect();
    match errors.into_iter().next() {
        Some(source) => Err(failed(device, "erase the labels", source)),
        None => Ok(()),
    }
}

/// The newest good label of a device; `None` if no place holds a label, good or damaged.
///
/// # Errors
/// [`Error::Device`] if nothing can be read, [`Error::Unsupported`] if all labels are of another version,
/// [`Error::Damaged`] if all labels are damaged.
pub fn read_label(device: &dyn Device) -> Result<Option<Label>> {
    let Ok(offsets) = places(device) else { return Ok(None) };
    let mut best: Option<Label> = None;
    let (mut absent, mut failure) = (false, None);
    for at in PAIRS.into_iter().flatten().map(|n| offsets[n]) {
        match read_label_at(device, at) {
            Ok(Some(label)) if best.as_ref().is_none_or(|best| label.txg > best.txg) => best = Some(label),
            Ok(Some(_)) => {}
            Ok(None) => absent = true,
            Err(error) => failure = Some(more_informative(failure, error)),
        }
    }
    match (best, failure) {
        (Some(label), _) => Ok(Some(label)),
        // An unreadable label beside an absent one is no evidence of a pool.
        (None, Some(Error::Device { .. })) if absent => Ok(None),
        (None, Some(error)) => Err(error),
        (None, None) => Ok(None),
    }
}

/// The label at an offset; `None` if the bytes do not claim to be a label.
fn read_label_at(device: &dyn Device, at: u64) -> Result<Option<Label>> {
    let mut body = vec![0; BODY_SIZE];
    device.read_at(at + BODY_AT, &mut body).map_err(|source| failed(device, "read a label", source))?;
    decode_at(&body, at)
}

/// Decodes the body of the label at an offset; `None` if the bytes do not claim to be a label.
fn decode_at(body: &[u8], at: u64) -> Result<Option<Label>> {
    match Label::claims(body) {
        true => Label::decode(body, at + BODY_AT).map(Some),
        false => Ok(None),
    }
}

/// The more telling error: another version, then damage, then a device that does not answer.
fn more_informative(before: Option<Error>, error: Error) -> Error {
    let rank = |error: &Error| match error {
        Error::Unsupported { .. } => 2,
        Error::Damaged { .. } => 1,
        _ => 0,
    };
    match before {
        Some(before) if rank(&before) >= rank(&error) => before,
        _ => error,
    }
}

/// The four label bodies, each with its offset on the device.
fn encode(device: &dyn Device, label: &Label) -> Result<Vec<(u64, Vec<u8>)>> {
    let encode_at = |label_at| {
        let offset = label_at + BODY_AT;
        let body = label.encode(offset)?;
        // An unreadable label is worse than none.
        match Label::decode(&body, offset) {
            Ok(_) => Ok((offset, body)),
            Err(error) => Err(Error::Request(format!("pool {} cannot be told by a label: {error}", label.pool_name))),
        }
    };
    offsets(device)?.into_iter().map(encode_at).collect()
}

/// Offsets of the four labels.
pub(super) fn offsets(device: &dyn Device) -> Result<[u64; LABELS]> {
    match device.size() {
        size if size < LABELS as u64 * LABEL_SIZE => {
            Err(Error::Request(format!("{} is too small for a pool: {}", device.name(), format_bytes(size))))
        }
        size => Ok(label_offsets(size)),
    }
}

pub(super) fn failed(device: &dyn Device, action: &'static str, source: std::io::Error) -> Error {
    Error::Device { device: device.name().to_owned(), action, source }
}

/// Devices that check whether requests to several devices run in parallel.
#[cfg(test)]
pub(super) mod crowd {
    use std::{
        io,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    };

    use crate::device::{Device, MemoryDevice, Pending};

    /// One of several devices. A request fails if it is waited for before all devices were asked.
    pub(crate) struct Crowded {
        inner: MemoryDevice,
        count: usize,
        writes_each: usize,
        writes: Arc<AtomicUsize>,
        flushes: Arc<AtomicUsize>,
    }

    /// `count` devices, each of which expects `writes_each` writes before the first wait.
    pub(crate) fn crowd(count: usize, writes_each: usize, size: u64) -> Vec<Crowded> {
        let (writes, flushes) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let one = |number| Crowded {
            inner: MemoryDevice::new(format!("disk{number}"), size),
            count,
            writes_each,
            writes: writes.clone(),
            flushes: flushes.clone(),
        };
        (0..count).map(one).collect()
    }

    /// Fails if fewer than `together` requests have begun at the time of the wait.
    fn among(begun: &Arc<AtomicUsize>, together: usize, done: io::Result<()>) -> Pending {
        begun.fetch_add(1, Relaxed);
        let begun = begun.clone();
        Pending::Begun(Box::new(move || match begun.load(Relaxed).is_multiple_of(together) {
            true => done,
            false => Err(io::Error::other("waited for before all were asked")),
        }))
    }

    impl Device for Crowded {
        fn name(&self) -> &str {
            self.inner.name()
        }

        fn size(&self) -> u64 {
            self.inner.size()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.inner.read_at(offset, buf)
        }

        fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
            self.begin_write(offset, &Arc::new(bytes.to_vec())).wait()
        }

        fn begin_write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Pending {
            among(&self.writes, self.count * self.writes_each, self.inner.write_at(offset, bytes))
        }

        fn flush(&self) -> io::Result<()> {
            self.begin_flush().wait()
        }

        fn begin_flush(&self) -> Pending {
            among(&self.flushes, self.count, self.inner.flush())
        }

        fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
            self.inner.discard(offset, len)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::{
        admin::probe::probe_foreign,
        device::{Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
        error::ErrorKind,
        format::{label::tests::sample, uberblock},
        units::{Guid, MIB, Txg},
        vdev::uberblocks,
    };

    const SIZE: u64 = 64 * MIB + 1000;

    fn labelled(txg: u64) -> MemoryDevice {
        let device = MemoryDevice::new("disk", SIZE);
        write_new_labels(&device, &sample(txg)).unwrap();
        device
    }

    fn smash(device: &MemoryDevice, labels: &[usize]) {
        for n in labels {
            device.write_at(label_offsets(SIZE)[*n] + BODY_AT + 20, &[0xee; 9]).unwrap();
        }
    }

    #[test]
    fn any_one_label_is_enough() {
        for survivor in 0..LABELS {
            let device = labelled(7);
            let others: Vec<usize> = (0..LABELS).filter(|n| *n != survivor).collect();
            smash(&device, &others);
            assert_eq!(read_label(&device).unwrap(), Some(sample(7)), "label {survivor}");
        }
    }

    #[test]
    fn the_newest_good_label_counts() {
        let device = labelled(7);
        let [l0, l1, ..] = label_offsets(SIZE);
        for (at, txg) in [(l0, 8), (l1, 9)] {
            device.write_at(at + BODY_AT, &sample(txg).encode(at + BODY_AT).unwrap()).unwrap();
        }
        assert_eq!(read_label(&device).unwrap().unwrap().txg, Txg(9));
        smash(&device, &[1]);
        assert_eq!(read_label(&device).unwrap().unwrap().txg, Txg(8));
    }

    #[test]
    fn absent_damaged_and_unreadable_labels_are_distinguished() {
        assert_eq!(read_label(&MemoryDevice::new("empty", SIZE)).unwrap(), None);
        assert_eq!(read_label(&MemoryDevice::new("tiny", 1000)).unwrap(), None);
        let device = labelled(7);
        smash(&device, &[0, 1, 2, 3]);
        assert_eq!(read_label(&device).unwrap_err().kind(), ErrorKind::Damage);
        let device = FaultDevice::new(Arc::new(labelled(7)));
        device.inject(Fault::failing(Operation::Read));
        assert_eq!(read_label(&device).unwrap_err().kind(), ErrorKind::Device);
    }

    #[test]
    fn new_labels_erase_old_pools_and_foreign_signatures() {
        let device = MemoryDevice::new("disk", SIZE);
        device.write_at(0, b"XFSB").unwrap();
        write_new_labels(&device, &sample(900)).unwrap();
        uberblocks::write_uberblock(&[&device], &uberblock::tests::sample(900, 2, 1, 5)).remove(0).unwrap();
        write_new_labels(&device, &sample(1)).unwrap();
        assert_eq!(probe_foreign(&device).unwrap(), None);
        assert_eq!(read_label(&device).unwrap().unwrap().txg, Txg(1));
        assert!(uberblocks::read_uberblocks(&device, Guid(77)).unwrap().is_empty());
        clear_labels(&device).unwrap();
        assert_eq!(read_label(&device).unwrap(), None);
    }

    fn failing(range: Range<u64>) -> Fault {
        Fault { range, ..Fault::failing(Operation::Write) }
    }

    /// A device of `SIZE` shrunk to half: its label records the end, and its back labels lie there.
    fn made_smaller() -> (MemoryDevice, u64) {
        const END: u64 = 32 * MIB;
        let device = labelled(7);
        let mut label = sample(8);
        label.sections.ends.insert(label.device, END);
        move_back_labels(&device, END).unwrap();
        write_labels(&device, &label).unwrap();
        (device, END)
    }

    /// Offsets of labels left on a device that ended at `end` or at `SIZE`.
    fn left(device: &MemoryDevice, end: u64) -> Vec<u64> {
        device.resize(SIZE);
        let mut places = [label_offsets(end), label_offsets(SIZE)].concat();
        places.retain(|at| !matches!(read_label_at(device, *at), Ok(None)));
        places
    }

    #[test]
    fn clearing_erases_labels_at_every_former_end() {
        // The end is the one set by the pool, or the physical one that another process finds.
        for is_open in [true, false] {
            let (device, end) = made_smaller();
            assert_eq!(
                left(&device.snapshot(), end).len(),
                8,
                "the former ones are there, and the front ones are the same"
            );
            if !is_open {
                device.resize(SIZE);
            }
            let size = device.size();
            clear_labels(&device).unwrap();
            assert_eq!(device.size(), size);
            assert_eq!(left(&device, end), [], "{is_open}");
        }
    }

    #[test]
    fn former_labels_are_erased_only_if_front_labels_record_the_end() {
        for are_lost in [false, true] {
            let (device, end) = made_smaller();
            if are_lost {
                smash(&device, &[0, 1]);
            }
            let given_up = give_up_behind(&device).map_err(|error| error.kind());
            assert_eq!(given_up, if are_lost { Err(ErrorKind::Damage) } else { Ok(SIZE) });
            assert_eq!(device.size(), end);
            let former = &label_offsets(SIZE)[2..];
            assert_eq!(
                left(&device, end).iter().filter(|at| former.contains(at)).count(),
                if are_lost { 2 } else { 0 }
            );
        }
    }

    #[test]
    fn clearing_a_shrunk_device_again_completes_it_after_a_crash() {
        let recorder = Recorder::new();
        let (device, end) = made_smaller();
        let device = recorder.wrap(device.snapshot());
        clear_labels(&device).unwrap();
        for (cut, seed) in (0..=recorder.len()).flat_map(|cut| (0..10).map(move |seed| (cut, seed))) {
            let image = recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0);
            clear_labels(&image).unwrap();
            assert_eq!(left(&image, end), [], "cut {cut}, seed {seed}");
        }
    }

    #[test]
    fn a_device_that_is_too_small_is_refused_untouched() {
        let device = MemoryDevice::new("tiny", MIB - 1);
        assert_eq!(write_new_labels(&device, &sample(1)).unwrap_err().kind(), ErrorKind::Request);
        assert_eq!(device.resident(), 0);
    }

    #[test]
    fn devices_get_their_labels_at_the_same_time() {
        let devices = crowd::crowd(3, 2, SIZE);
        let labels = [7, 8, 9].map(sample);
        let each: Vec<(&dyn Device, &Label)> =
            devices.iter().zip(&labels).map(|(device, label)| (device as &dyn Device, label)).collect();
        write_all_labels(&each).into_iter().for_each(|written| written.unwrap());
        let found: Vec<_> = devices.iter().map(|device| read_label(device).unwrap().unwrap().txg.0).collect();
        assert_eq!(found, [7, 8, 9]);
    }

    #[test]
    fn a_device_that_refuses_its_label_keeps_no_other_from_its_own() {
        for on in [Operation::Write, Operation::Flush] {
            let (bad, good) = (FaultDevice::new(Arc::new(labelled(7))), labelled(7));
            bad.inject(Fault::failing(on));
            let written = write_all_labels(&[(&bad, &sample(8)), (&good, &sample(8))]);
            assert_eq!(written.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true], "{on:?}");
            assert_eq!(read_label(&good).unwrap(), Some(sample(8)));
            assert!(
                read_label_at(&bad, label_offsets(SIZE)[1]).unwrap() == Some(sample(7)),
                "its second pair is left alone"
            );
        }
    }

    #[test]
    fn a_crash_leaves_the_old_label_or_the_new_one() {
        let recorder = Recorder::new();
        let device = recorder.wrap(labelled(7));
        write_labels(&device, &sample(8)).unwrap();
        assert_eq!(recorder.len(), 6);
        for cut in 0..=recorder.len() {
            for seed in 0..40 {
                let image = recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0);
                let found = read_label(&image).unwrap().expect("a label").txg.0;
                // From the first flush on, the third operation, the old label cannot come back.
                assert!(found == 8 || found == 7 && cut < 3, "cut {cut}, seed {seed}: {found}");
            }
        }
    }

    #[test]
    fn a_second_crash_while_labels_are_rewritten_is_survived() {
        let recorder = Recorder::new();
        let device = recorder.wrap(labelled(7));
        write_labels(&device, &sample(8)).unwrap();
        for (cut, seed) in (0..=recorder.len()).flat_map(|cut| (0..10).map(move |seed| (cut, seed))) {
            let again = Recorder::new();
            let image = recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0);
            let before = read_label(&image).unwrap().expect("a label").txg;
            write_labels(&again.wrap(image), &sample(9)).unwrap();
            for (cut, seed) in (0..=again.len()).flat_map(|cut| (0..5).map(move |seed| (cut, seed))) {
                let image = again.images_at(cut, &mut Fate::seeded(seed)).remove(0);
                let found = read_label(&image).unwrap().expect("a label").txg;
                assert!(found == before || found == Txg(9), "{found} after {before}");
            }
        }
    }

    #[test]
    fn a_crash_while_a_pool_is_made_leaves_its_label_or_none() {
        let recorder = Recorder::new();
        let device = recorder.wrap(labelled(900));
        write_new_labels(&device, &sample(1)).unwrap();
        for cut in 6..=recorder.len() {
            for seed in 0..20 {
                let image = recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0);
                match read_label(&image) {
                    Ok(found) => assert!(found.is_none_or(|label| label.txg == Txg(1)), "cut {cut}, seed {seed}"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Damage, "cut {cut}, seed {seed}"),
                }
            }
        }
    }

    #[test]
    fn one_bad_label_is_survived_and_a_bad_pair_stops_in_time() {
        let [l0, _, l2, _] = label_offsets(SIZE);
        let device = FaultDevice::new(Arc::new(labelled(7)));
        device.inject(failing(l0..l0 + LABEL_SIZE));
        write_labels(&device, &sample(8)).unwrap();
        assert_eq!(read_label(&device).unwrap().unwrap().txg, Txg(8));
        device.inject(failing(l2..l2 + LABEL_SIZE));
        assert_eq!(write_labels(&device, &sample(9)).unwrap_err().kind(), ErrorKind::Device);
        assert_eq!(read_label(&device).unwrap().unwrap().txg, Txg(8));
    }

    #[test]
    fn a_device_that_takes_its_label_only_at_its_end_has_not_got_it() {
        let [_, l1, l2, l3] = label_offsets(SIZE);
        let device = FaultDevice::new(Arc::new(labelled(7)));
        device.inject(failing(l1..l1 + LABEL_SIZE));
        device.inject(failing(l2..l3 + LABEL_SIZE));
        write_labels(&device, &sample(8)).unwrap_err();
        device.heal();
        device.inject(failing(0..l2));
        assert_eq!(write_labels(&device, &sample(9)).unwrap_err().kind(), ErrorKind::Device);
        device.heal();
        device.inject(failing(l1..l1 + LABEL_SIZE));
        write_labels(&device, &sample(10)).unwrap();
    }
}
