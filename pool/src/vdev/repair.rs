//! Examining a device's labels and uberblock rings, and repairing them.
//!
//! The right content has two sources. The first is the device itself: a bad copy is rewritten from a good copy. If no
//! copy is good, the process with the open pool knows the content: its own labels, and the newest states that this very
//! device has had in its rings ([`Leaf::states`](super::Leaf)). Only states of the device itself are written, because
//! by its rings a device claims to have everything written up to the newest state in them ([`super::Group`]). Another
//! member's rings may be older than what this device was resilvered with, or newer than anything it ever got. So
//! repaired rings claim nothing that they did not claim before.
//!
//! The caller excludes all writers: of labels by the pool's label lock, of uberblocks by pausing commits. The caller
//! first checks that the device is still the same ([`LabelsFound::look`]). A device with a label of another device or
//! pool belongs elsewhere and is not touched.
//!
//! Rings come before labels, the newest state before older states, and each step is flushed before the next:
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before or while the newest state is written to empty rings | no label: not this device; or a device with a label and no state, as before |
//! | while older states are written, and bad copies beside good ones | the newest state, as far as there is a label |
//! | then, while the first pair of labels is written to a device without labels | no device, or a device with the newest state |
//! | while the second pair is written | the device with the newest state |
//! | while single labels or slots are written beside good ones | the good ones: nothing that verifies is overwritten |
//!
//! If older states came first, a power failure in between would leave a single device that silently lacks the latest
//! commits.
//!
//! A device whose labels are all older than the pool's latest write is an older copy of itself. Its labels are replaced
//! as usual ([`labels::write_labels`]), and its states by newer ones of the same slot, as in a commit.
//!
//! An all-zero slot was never used. A slot with good copies of different states is the trace of a crash. Neither is
//! damage, unless the device has had a newer state there. A slot without a good copy and of unknown content is erased:
//! nothing can use it, and every scrub would count it again.

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

/// The result of examining the labels or rings of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelsExamined {
    /// Bytes read and compared.
    pub bytes: u64,
    /// Copies that failed their check.
    pub bad: u64,
    /// Bytes written over bad copies.
    pub repaired: u64,
}

impl AddAssign for LabelsExamined {
    fn add_assign(&mut self, other: LabelsExamined) {
        self.bytes += other.bytes;
        self.bad += other.bad;
        self.repaired += other.repaired;
    }
}

/// Lengthens a truncated image back to `size` bytes if `write` is set. The lost part reads as zeros, like any
/// overwritten data; the truncation counts as one bad copy.
///
/// # Errors
/// [`Error::Shrunk`] if the device is shorter and cannot be lengthened.
pub fn repair_size(device: &dyn Device, size: u64, write: bool) -> Result<LabelsExamined> {
    // A device that does not answer is found when its labels are read.
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

/// The labels of a device that is still the same device.
pub struct LabelsFound {
    /// The newest good label.
    pub newest: Option<Label>,
    /// Offsets of the bad label bodies.
    bad: Vec<u64>,
}

impl LabelsFound {
    /// Reads the labels of a device. `own` is the label expected.
    ///
    /// # Errors
    /// [`Error::Request`] if the device belongs elsewhere by now.
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
        // Beside good labels, a label with an earlier GUID of the pool may be left.
        let is_left = |label: &Label| found.newest.is_some() && label.device == own.device;
        if let Some(label) = stranger.filter(|label| !is_left(label)) {
            return Err(taken(device, &format!("it has a label of pool {}", label.pool_name)));
        }
        let is_elsewhere = |label: &Label| label.epoch != own.epoch && label.txg > own.txg;
        match found.newest.as_ref().is_some_and(is_elsewhere) {
            true => Err(taken(device, "it was imported by another host meanwhile")),
            false => Ok(found),
        }
    }

    /// Writes the newest good label over bad labels if `write` is set. If no label is as new as `own`, writes `own`
    /// over all labels.
    ///
    /// # Errors
    /// If a write or the flush fails.
    pub fn repair(&self, device: &dyn Device, own: &Label, write: bool) -> Result<LabelsExamined> {
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
        examined.repaired = (bad * BODY_SIZE) as u64;
        Ok(examined)
    }
}

/// The error for a device that belongs elsewhere by now and is left alone.
pub fn taken(device: &dyn Device, by: &str) -> Error {
    let name = device.name();
    Error::Request(format!(
        "{name} now belongs to another pool or host and is not used: {by}; to replace it: pool replace"
    ))
}

/// Examines the uberblock rings of a device of the pool `pool`, slot by slot, and writes the newest good copy of a slot
/// over bad copies if `write` is set. `states` are the newest states that the device has had, newest first.
///
/// # Errors
/// If a write or the flush fails.
pub fn repair_uberblocks(
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
            examined.repaired += UBERBLOCK_SIZE as u64;
        }
        // The newest state is flushed before all others are written.
        if examined.repaired > 0 && first.first() == Some(&slot) {
            device.flush().map_err(|source| failed(device, "flush an uberblock", source))?;
        }
    }
    if examined.repaired > 0 {
        device.flush().map_err(|source| failed(device, "flush an uberblock", source))?;
    }
    Ok(examined)
}

const SLOTS: usize = RING_SIZE / UBERBLOCK_SIZE;

/// The uberblock rings of a device.
struct Rings {
    pool: Guid,
    /// Each ring, with the offset of its label.
    rings: Vec<(u64, Vec<u8>)>,
}

impl Rings {
    fn read(device: &dyn Device, pool: Guid) -> Result<Rings> {
        let read = |label: u64| {
            let mut ring = vec![0; RING_SIZE];
            // An unreadable ring is treated as all bad.
            let ring = device.read_at(label + RING_AT, &mut ring).map_or_else(|_| vec![0xff; RING_SIZE], |()| ring);
            (label, ring)
        };
        Ok(Rings { pool, rings: offsets(device)?.map(read).into() })
    }

    /// The labels in which a slot is bad, and the right content of the slot: zeros if unknown. `known` is the state
    /// that the device has had there.
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
        // An uberblock with another GUID is from before the device joined the pool, or from before the pool changed its
        // GUID.
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

    fn repair_labels(device: &MemoryDevice, write: bool) -> LabelsExamined {
        LabelsFound::look(device, &sample(7)).unwrap().repair(device, &sample(7), write).unwrap()
    }

    fn repair_rings(device: &MemoryDevice) -> LabelsExamined {
        repair_uberblocks(device, POOL, &[], true).unwrap()
    }

    fn found(examined: LabelsExamined) -> (u64, u64) {
        (examined.bad, examined.repaired)
    }

    #[test]
    fn good_labels_are_written_over_bad_ones() {
        for survivor in 0..LABELS {
            let device = device();
            for (n, at) in label_offsets(SIZE).into_iter().enumerate().filter(|(n, _)| *n != survivor) {
                device.write_at(at + BODY_AT + 20, &[n as u8 + 1; 9]).unwrap();
            }
            assert_eq!(found(repair_labels(&device, false)), (3, 0));
            assert_eq!(repair_labels(&device, true).bad, 3);
            assert_eq!(found(repair_labels(&device, true)), (0, 0));
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
        assert_eq!(found(repair_labels(&device, false)), (4, 0));
        assert_eq!(found(repair_labels(&device, true)), (4, 4 * BODY_SIZE as u64));
        assert_eq!(labels::read_label(&device).unwrap(), Some(sample(7)));
    }

    #[test]
    fn bad_uberblocks_are_rewritten_and_unused_slots_are_no_damage() {
        let device = device();
        assert_eq!(found(repair_rings(&device)), (0, 0));
        let [l0, l1, l2, l3] = label_offsets(SIZE);
        device.write_at(uberblock_offset(l0, Txg(40)) + 8, &[0xee; 9]).unwrap();
        device.write_at(uberblock_offset(l3, Txg(39)), &[0; UBERBLOCK_SIZE]).unwrap();
        for label in [l0, l1, l2, l3] {
            device.write_at(uberblock_offset(label, Txg(20)) + 8, &[0xee; 9]).unwrap();
        }
        assert_eq!(found(repair_rings(&device)), (2 + 4, 6 * 4096), "what nobody knows is erased");
        assert_eq!(found(repair_rings(&device)), (0, 0));
        assert_eq!(uberblocks::read_uberblocks(&device, POOL).unwrap().len(), 31);
        let fresh = MemoryDevice::new("disk", SIZE);
        labels::write_new_labels(&fresh, &sample(7)).unwrap();
        assert_eq!(found(repair_rings(&fresh)), (0, 0));
    }
}
