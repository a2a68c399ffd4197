//! Examining a device's labels and its rings of uberblocks, and writing good ones over bad ones.
//!
//! The caller keeps everybody else from writing them: labels by the pool's lock for them, uberblocks by holding the pool
//! still. Only what does not verify is written, from what does, so a power failure tears nothing that was good, and the
//! device holds at every instant all the good labels and uberblocks that it held before.
//!
//! A slot of the ring that is zero everywhere was never used, and one whose copies are good and of different states is
//! as a crash left it: neither is damage. A slot without any good copy is left to the commit that will overwrite it, 32
//! groups later at most.

use super::{
    labels::{failed, offsets},
    uberblocks,
};
use crate::{
    device::Device,
    error::Result,
    format::{
        label::{BODY_AT, BODY_SIZE, Label, RING_AT, RING_SIZE},
        uberblock::{UBERBLOCK_SIZE, Uberblock},
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

/// Examines the four labels of a device, and writes the newest good one over bad ones if `write` says so.
///
/// # Errors
/// If a write or the flush fails.
pub fn mend_labels(device: &dyn Device, write: bool) -> Result<LabelsExamined> {
    let mut examined = LabelsExamined::default();
    let (mut newest, mut bad): (Option<Label>, Vec<u64>) = (None, Vec::new());
    for at in offsets(device)? {
        let mut body = vec![0; BODY_SIZE];
        examined.bytes += BODY_SIZE as u64;
        let read = device.read_at(at + BODY_AT, &mut body).ok();
        match read.and_then(|()| Label::decode(&body, at + BODY_AT).ok()) {
            Some(label) if newest.as_ref().is_none_or(|newest| label.txg > newest.txg) => newest = Some(label),
            Some(_) => {}
            None => bad.push(at + BODY_AT),
        }
    }
    examined.bad = bad.len() as u64;
    if let Some(label) = newest.filter(|_| write && !bad.is_empty()) {
        for at in bad {
            let body = label.encode(at)?;
            device.write_at(at, &body).map_err(|source| failed(device, "write a label", source))?;
            examined.mended += body.len() as u64;
        }
        device.flush().map_err(|source| failed(device, "flush a label", source))?;
    }
    Ok(examined)
}

/// Examines the rings of uberblocks in the labels of a device of the pool `pool`, slot by slot, and writes the newest good
/// one of a slot over bad ones if `write` says so.
///
/// # Errors
/// If a write or the flush fails.
pub fn mend_uberblocks(device: &dyn Device, pool: Guid, write: bool) -> Result<LabelsExamined> {
    let offsets = offsets(device)?;
    let rings = offsets.map(|label| {
        let mut ring = vec![0; RING_SIZE];
        // One that cannot be read is all bad.
        device.read_at(label + RING_AT, &mut ring).map_or_else(|_| vec![0xff; RING_SIZE], |()| ring)
    });
    let mut examined = LabelsExamined { bytes: (RING_SIZE * rings.len()) as u64, ..LabelsExamined::default() };
    for slot in 0..RING_SIZE / UBERBLOCK_SIZE {
        let place = slot * UBERBLOCK_SIZE..(slot + 1) * UBERBLOCK_SIZE;
        let txg = |ring: &Vec<u8>| uberblocks::decode_in_slot(slot as u64, &ring[place.clone()], pool).map(|u| u.txg);
        let newest = rings.iter().filter_map(|ring| Some((txg(ring)?, ring))).max_by_key(|(txg, _)| *txg);
        let bad: Vec<u64> =
            offsets.iter().zip(&rings).filter(|(_, ring)| txg(ring).is_none()).map(|(at, _)| *at).collect();
        let Some((_, good)) = newest else {
            // One of another number is from before the device came to this pool, or the pool to its number.
            let is_bad = |slot: &[u8]| slot.iter().any(|byte| *byte != 0) && Uberblock::decode(slot).is_err();
            examined.bad += rings.iter().filter(|ring| is_bad(&ring[place.clone()])).count() as u64;
            continue;
        };
        examined.bad += bad.len() as u64;
        for label in bad.into_iter().filter(|_| write) {
            let at = label + RING_AT + place.start as u64;
            device.write_at(at, &good[place.clone()]).map_err(|source| failed(device, "write an uberblock", source))?;
            examined.mended += UBERBLOCK_SIZE as u64;
        }
    }
    if examined.mended > 0 {
        device.flush().map_err(|source| failed(device, "flush an uberblock", source))?;
    }
    Ok(examined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::MemoryDevice,
        format::{
            label::{LABELS, label_offsets, tests::sample, uberblock_offset},
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
            assert_eq!(found(mend_labels(&device, false).unwrap()), (3, 0));
            assert_eq!(mend_labels(&device, true).unwrap().bad, 3);
            assert_eq!(found(mend_labels(&device, true).unwrap()), (0, 0));
            device.write_at(label_offsets(SIZE)[survivor] + BODY_AT, &[0; 4096]).unwrap();
            assert_eq!(labels::read_label(&device).unwrap(), Some(sample(7)));
        }
    }

    #[test]
    fn a_device_without_a_good_label_is_left_alone() {
        let device = device();
        for at in label_offsets(SIZE) {
            device.write_at(at + BODY_AT + 20, &[9; 9]).unwrap();
        }
        assert_eq!(found(mend_labels(&device, true).unwrap()), (4, 0));
    }

    #[test]
    fn good_uberblocks_are_written_over_bad_and_zeroed_ones_and_unused_slots_are_no_damage() {
        let device = device();
        assert_eq!(found(mend_uberblocks(&device, POOL, true).unwrap()), (0, 0));
        let [l0, l1, l2, l3] = label_offsets(SIZE);
        device.write_at(uberblock_offset(l0, Txg(40)) + 8, &[0xee; 9]).unwrap();
        device.write_at(uberblock_offset(l3, Txg(39)), &[0; UBERBLOCK_SIZE]).unwrap();
        for label in [l0, l1, l2, l3] {
            device.write_at(uberblock_offset(label, Txg(20)) + 8, &[0xee; 9]).unwrap();
        }
        assert_eq!(found(mend_uberblocks(&device, POOL, true).unwrap()), (2 + 4, 2 * 4096));
        assert_eq!(found(mend_uberblocks(&device, POOL, true).unwrap()), (4, 0));
        assert_eq!(uberblocks::read_uberblocks(&device, POOL).unwrap().len(), 31);
        let fresh = MemoryDevice::new("disk", SIZE);
        labels::write_new_labels(&fresh, &sample(7)).unwrap();
        assert_eq!(found(mend_uberblocks(&fresh, POOL, true).unwrap()), (0, 0));
    }
}
