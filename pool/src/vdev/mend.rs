//! Examining a device's labels and its rings of uberblocks, and writing there again what belongs there.
//!
//! What belongs there is known from two sides. What verifies on the device itself is one: a copy that is bad is written
//! from one that is good. Where none is good, whoever has the pool open knows it: what its labels say, and which of the
//! newest states this very device has had in its rings ([`Leaf::states`](super::Leaf)). It is given no other: a device
//! claims by its rings to have all that was written up to the newest state in them ([`super::Group`]), and what another
//! member has in its own may be older than what this one was filled with, or newer than what it ever got. So rings
//! claim nothing after this that they have not claimed before.
//!
//! The caller keeps everybody else from writing them: labels by the pool's lock for them, uberblocks by holding the
//! pool still. It looks first whether the device is still the one that it was ([`LabelsFound::look`]): one that says by
//! a label that it is another one, of this pool or of another, belongs to somebody else and is not touched.
//!
//! Rings come before labels, the newest state before older ones, and each of these steps is flushed before the next:
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before or while the newest state is written to rings that have none | no label: not this device; or one with a label and no state, as before |
//! | while older states are written, and what is bad beside good copies | the newest state, as far as there is a label |
//! | after that, while the first pair of labels is written to a device that has none | no device, or one with the newest state |
//! | while the second pair is written | the device with the newest state |
//! | while single labels or slots are written beside good ones | the good ones: nothing that verifies is overwritten |
//!
//! If older states came first, power that fails between them would leave a single device that lacks what was
//! committed since, and nobody would know it.
//!
//! A device whose labels all are older than what the pool has written since is an older copy of itself. Its labels are
//! replaced as ever ([`labels::write_labels`]), and its states by newer ones of the same slot, as a commit does.
//!
//! A slot of the ring that is zero everywhere was never used, and one whose copies are good and of different states is
//! as a crash left it: neither is damage, unless the device has had a newer one there. A slot without any good copy of
//! which nobody knows what it held is erased, for nobody can use it: else each scrub would count it again.

use std::{ops::AddAssign, sync::Arc};

use super::{
    labels::{self, failed, offsets},
    uberblocks,
};
use crate::{
    device::Device,
    error::{Error, Result},
    format::{
        label::{BODY_AT, BODY_SIZE, LABELS, Label, RING_AT, RING_SIZE},
        uberblock::{UBERBLOCK_SIZE, Uberblock, slot},
    },
    units::Guid,
};

/// What was found in the labels or the rings of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelsExamined {
    /// Bytes read.
    pub bytes: u64,
    /// Copies that were bad.
    pub bad: u64,
    /// Bytes written over bad copies.
    pub mended: u64,
}

impl AddAssign for LabelsExamined {
    fn add_assign(&mut self, other: LabelsExamined) {
        self.bytes += other.bytes;
        self.bad += other.bad;
        self.mended += other.mended;
    }
}

/// Has a device be as large as it was, `size` bytes, if it is an image that somebody has cut and `write` says so. What
/// it has lost is zeros then, as what was overwritten is; that it was cut counts as bad.
///
/// # Errors
/// [`Error::Shrunk`] if it is shorter and stays so.
pub fn mend_size(device: &dyn Device, size: u64, write: bool) -> Result<LabelsExamined> {
    // One that does not answer shows it when its labels are read.
    let there = device.measure().unwrap_or(size);
    if there >= size {
        return Ok(LabelsExamined::default());
    }
    if write && device.grow_back(size).map_err(|source| failed(device, "lengthen", source))? {
        tracing::warn!("{} was cut to {there} bytes, and has {size} again", device.name());
        return Ok(LabelsExamined { bad: 1, ..LabelsExamined::default() });
    }
    Err(Error::Shrunk { device: device.name().to_owned(), size: there, needed: size })
}

/// The labels of a device that is still the one that it was.
pub struct LabelsFound {
    /// The newest of them that says so.
    pub newest: Option<Label>,
    /// Where the bodies stand that do not.
    bad: Vec<u64>,
}

impl LabelsFound {
    /// Reads the labels of a device of which `own` is what they should say.
    ///
    /// # Errors
    /// [`Error::Request`] if it is another device by now.
    pub fn look(device: &dyn Device, own: &Label) -> Result<LabelsFound> {
        let mut found = LabelsFound { newest: None, bad: Vec::new() };
        let mut stranger = None;
        for at in offsets(device)?.map(|label| label + BODY_AT) {
            let mut body = vec![0; BODY_SIZE];
            let read = device.read_at(at, &mut body).ok().map(|()| Label::decode(&body, at));
            match read {
                Some(Ok(label)) if (label.pool, label.device) == (own.pool, own.device) => {
                    if found.newest.as_ref().is_none_or(|newest| label.txg > newest.txg) {
                        found.newest = Some(label);
                    }
                    continue;
                }
                Some(Ok(label)) => stranger = Some(label),
                Some(Err(error @ Error::Unsupported { .. })) => return Err(taken(device, &error.to_string())),
                Some(Err(_)) | None => {}
            }
            found.bad.push(at);
        }
        // Beside labels of the number that the pool has, one may be left of a number that it had.
        let is_left = |label: &Label| found.newest.is_some() && label.device == own.device;
        if let Some(label) = stranger.filter(|label| !is_left(label)) {
            return Err(taken(device, &format!("it has a label of pool {}", label.pool_name)));
        }
        let is_elsewhere = |label: &Label| label.epoch != own.epoch && label.txg > own.txg;
        match found.newest.as_ref().is_some_and(is_elsewhere) {
            true => Err(taken(device, "it was imported elsewhere meanwhile")),
            false => Ok(found),
        }
    }

    /// Writes the newest good label over bad ones if `write` says so, or if none is as new as `own`, that one.
    ///
    /// # Errors
    /// If a write or the flush fails.
    pub fn mend(&self, device: &dyn Device, own: &Label, write: bool) -> Result<LabelsExamined> {
        let newest = self.newest.as_ref().filter(|newest| newest.txg >= own.txg);
        let bad = if newest.is_some() { self.bad.len() } else { LABELS };
        let mut examined =
            LabelsExamined { bytes: (LABELS * BODY_SIZE) as u64, bad: bad as u64, ..LabelsExamined::default() };
        if !write || bad == 0 {
            return Ok(examined);
        }
        match newest {
            Some(label) => {
                for at in &self.bad {
                    let body = label.encode(*at)?;
                    device.write_at(*at, &body).map_err(|source| failed(device, "write a label", source))?;
                }
                device.flush().map_err(|source| failed(device, "flush a label", source))?;
            }
            None => labels::write_labels(device, own)?,
        }
        examined.mended = (bad * BODY_SIZE) as u64;
        Ok(examined)
    }
}

/// The error that says that a device is not what it was, and is left alone.
pub fn taken(device: &dyn Device, by: &str) -> Error {
    let name = device.name();
    Error::Request(format!(
        "{name} belongs elsewhere by now and is left alone: {by}; pool replace puts another in its place"
    ))
}

/// Examines the rings of uberblocks in the labels of a device of the pool `pool`, slot by slot, and writes the newest
/// good one of a slot over bad ones if `write` says so. `states` are the newest that the device has had, newest first.
///
/// # Errors
/// If a write or the flush fails.
pub fn mend_uberblocks(
    device: &dyn Device,
    pool: Guid,
    states: &[Arc<Uberblock>],
    write: bool,
) -> Result<LabelsExamined> {
    let rings = Rings::read(device, pool)?;
    let mut examined = LabelsExamined { bytes: (RING_SIZE * LABELS) as u64, ..LabelsExamined::default() };
    let mut known = vec![None; SLOTS];
    let states = states.iter().filter(|state| state.pool == pool);
    let first: Vec<usize> = states.clone().map(|state| slot(state.txg) as usize).collect();
    states.for_each(|state| known[slot(state.txg) as usize] = Some(state));
    let others = (0..SLOTS).filter(|slot| !first.contains(slot));
    for slot in first.iter().copied().chain(others) {
        let (bad, good) = rings.look(slot, known[slot].map(|state| &**state));
        examined.bad += bad.len() as u64;
        for label in bad.into_iter().filter(|_| write) {
            let at = label + RING_AT + (slot * UBERBLOCK_SIZE) as u64;
            device.write_at(at, &good).map_err(|source| failed(device, "write an uberblock", source))?;
            examined.mended += UBERBLOCK_SIZE as u64;
        }
        // The newest state comes before all others.
        if examined.mended > 0 && first.first() == Some(&slot) {
            device.flush().map_err(|source| failed(device, "flush an uberblock", source))?;
        }
    }
    if examined.mended > 0 {
        device.flush().map_err(|source| failed(device, "flush an uberblock", source))?;
    }
    Ok(examined)
}

const SLOTS: usize = RING_SIZE / UBERBLOCK_SIZE;

/// The rings of a device.
struct Rings {
    pool: Guid,
    /// Each with where its label starts.
    rings: Vec<(u64, Vec<u8>)>,
}

impl Rings {
    fn read(device: &dyn Device, pool: Guid) -> Result<Rings> {
        let read = |label: u64| {
            let mut ring = vec![0; RING_SIZE];
            // One that cannot be read is all bad.
            let ring = device.read_at(label + RING_AT, &mut ring).map_or_else(|_| vec![0xff; RING_SIZE], |()| ring);
            (label, ring)
        };
        Ok(Rings { pool, rings: offsets(device)?.map(read).into() })
    }

    /// In which labels a slot is bad of which this state is known, and what belongs there: zeros if nobody knows.
    fn look(&self, slot: usize, known: Option<&Uberblock>) -> (Vec<u64>, Vec<u8>) {
        let place = slot * UBERBLOCK_SIZE..(slot + 1) * UBERBLOCK_SIZE;
        let copies = self.rings.iter().map(|(label, ring)| (*label, &ring[place.clone()]));
        let copies: Vec<_> = copies
            .map(|(label, bytes)| {
                (label, bytes, uberblocks::decode_in_slot(slot as u64, bytes, self.pool).map(|found| found.txg))
            })
            .collect();
        let newest = copies.iter().filter_map(|(_, bytes, txg)| Some(((*txg)?, *bytes))).max_by_key(|(txg, _)| *txg);
        let known = known.filter(|known| newest.is_none_or(|(txg, _)| txg < known.txg));
        // One of another number is from before the device came to this pool, or the pool to its number.
        let is_garbage = |bytes: &[u8]| bytes.iter().any(|byte| *byte != 0) && Uberblock::decode(bytes).is_err();
        match (known, newest) {
            (Some(known), _) => (copies.iter().map(|(label, ..)| *label).collect(), known.encode()),
            (None, Some((_, good))) => {
                let bad = copies.iter().filter(|(.., txg)| txg.is_none());
                (bad.map(|(label, ..)| *label).collect(), good.to_vec())
            }
            (None, None) => {
                let bad = copies.iter().filter(|(_, bytes, _)| is_garbage(bytes));
                (bad.map(|(label, ..)| *label).collect(), vec![0; UBERBLOCK_SIZE])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::MemoryDevice,
        format::{
            label::{label_offsets, tests::sample, uberblock_offset},
            uberblock,
        },
        units::{MIB, Txg},
        vdev::{labels, uberblocks::write_uberblock},
    };

    const SIZE: u64 = 64 * MIB;
    const POOL: Guid = Guid(77);

    fn device() -> MemoryDevice {
        let device = MemoryDevice::new("disk", SIZE);
        labels::write_new_labels(&device, &sample(7)).unwrap();
        for txg in 1..=40 {
            write_uberblock(&[&device], &uberblock::tests::sample(txg, 1, 0, 0)).remove(0).unwrap();
        }
        device
    }

    fn mend_labels(device: &MemoryDevice, write: bool) -> LabelsExamined {
        LabelsFound::look(device, &sample(7)).unwrap().mend(device, &sample(7), write).unwrap()
    }

    fn mend_rings(device: &MemoryDevice) -> LabelsExamined {
        mend_uberblocks(device, POOL, &[], true).unwrap()
    }

    fn found(examined: LabelsExamined) -> (u64, u64) {
        (examined.bad, examined.mended)
    }

    #[test]
    fn good_labels_are_written_over_bad_ones() {
        for survivor in 0..LABELS {
            let device = device();
            for (n, at) in label_offsets(SIZE).into_iter().enumerate().filter(|(n, _)| *n != survivor) {
                device.write_at(at + BODY_AT + 20, &[n as u8 + 1; 9]).unwrap();
            }
            assert_eq!(found(mend_labels(&device, false)), (3, 0));
            assert_eq!(mend_labels(&device, true).bad, 3);
            assert_eq!(found(mend_labels(&device, true)), (0, 0));
            device.write_at(label_offsets(SIZE)[survivor] + BODY_AT, &[0; 4096]).unwrap();
            assert_eq!(labels::read_label(&device).unwrap(), Some(sample(7)));
        }
    }

    #[test]
    fn a_device_without_a_good_label_gets_what_the_pool_knows() {
        let device = device();
        for at in label_offsets(SIZE) {
            device.write_at(at + BODY_AT + 20, &[9; 9]).unwrap();
        }
        assert_eq!(found(mend_labels(&device, false)), (4, 0));
        assert_eq!(found(mend_labels(&device, true)), (4, 4 * BODY_SIZE as u64));
        assert_eq!(labels::read_label(&device).unwrap(), Some(sample(7)));
    }

    #[test]
    fn good_uberblocks_are_written_over_bad_and_zeroed_ones_and_unused_slots_are_no_damage() {
        let device = device();
        assert_eq!(found(mend_rings(&device)), (0, 0));
        let [l0, l1, l2, l3] = label_offsets(SIZE);
        device.write_at(uberblock_offset(l0, Txg(40)) + 8, &[0xee; 9]).unwrap();
        device.write_at(uberblock_offset(l3, Txg(39)), &[0; UBERBLOCK_SIZE]).unwrap();
        for label in [l0, l1, l2, l3] {
            device.write_at(uberblock_offset(label, Txg(20)) + 8, &[0xee; 9]).unwrap();
        }
        assert_eq!(found(mend_rings(&device)), (2 + 4, 6 * 4096), "what nobody knows is erased");
        assert_eq!(found(mend_rings(&device)), (0, 0));
        assert_eq!(uberblocks::read_uberblocks(&device, POOL).unwrap().len(), 31);
        let fresh = MemoryDevice::new("disk", SIZE);
        labels::write_new_labels(&fresh, &sample(7)).unwrap();
        assert_eq!(found(mend_rings(&fresh)), (0, 0));
    }
}
