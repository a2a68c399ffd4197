//! Writing and finding uberblocks on devices.
//!
//! A commit flushes everything that its uberblock refers to on all devices, then writes the uberblock into one slot of
//! the ring in each label of each device. The commit is done when the next flush has returned:
//!
//! | power fails | import finds |
//! | --- | --- |
//! | before or while the uberblock is written | the previous uberblock, or the new one where a copy is whole |
//! | after the flush of any device with the new uberblock | the new uberblock |
//!
//! Either is a committed state. A commit never touches the previous slot, so a torn write costs nothing.
//!
//! A device has the uberblock if one of its two front rings does. The back rings are looked for at the device's end,
//! and the end may have moved after a power failure: an image was lengthened, and the new end is not recorded yet.
//!
//! Import reads all devices and ranks the uberblocks ([`rank`]): the uberblock of the highest txg is the newest state.
//! Its *line* is the states that it descends from: the states of its own import, then of its parent up to the fork, and
//! so on. A state off the line was abandoned by an import that rewound, or written by a host that did not see the line.
//! In the second case the device whose newest state is off the line has diverged.

use std::{collections::HashMap, sync::Arc};

use super::labels::{failed, offsets};
use crate::{
    device::{Device, Pending},
    error::Result,
    format::{
        label::{LABELS, RING_AT, RING_SIZE, uberblock_offset},
        uberblock::{Epoch, UBERBLOCK_SIZE, Uberblock, slot},
        vdev_config::Mark,
    },
    units::{Guid, Txg},
};

/// Writes an uberblock to its slot in all labels of all devices in parallel, and returns a result for each device. All
/// are tried; the commit has happened if one device got the uberblock and the caller's flush succeeds.
pub fn write_uberblock(devices: &[&dyn Device], uberblock: &Uberblock) -> Vec<Result<()>> {
    let block = Arc::new(uberblock.encode());
    let begin = |device: &dyn Device| {
        Ok(offsets(device)?.map(|label| {
            let at = uberblock_offset(label, uberblock.txg);
            (at, device.begin_write(at, &block))
        }))
    };
    let begun: Vec<Result<[(u64, Pending); LABELS]>> = devices.iter().map(|device| begin(*device)).collect();
    devices.iter().zip(begun).map(|(device, begun)| in_front(*device, begun?, &block)).collect()
}

/// Succeeds if at least one front label got the block. If a device accepted some copies, failed copies are written once
/// more.
fn in_front(device: &dyn Device, begun: [(u64, Pending); LABELS], block: &[u8]) -> Result<()> {
    let mut written = begun.map(|(at, begun)| (at, begun.wait()));
    if written.iter().any(|(_, written)| written.is_ok()) {
        for (at, written) in written.iter_mut().filter(|(_, written)| written.is_err()) {
            *written = device.write_at(*at, block);
        }
    }
    match written {
        [(_, Err(source)), (_, Err(_)), ..] => Err(failed(device, "write an uberblock", source)),
        _ => Ok(()),
    }
}

/// True if a front label of the device has the uberblock, and so the device surely has it, wherever its end is.
pub fn is_in_front(device: &dyn Device, uberblock: &Uberblock) -> bool {
    let has = |label: u64| {
        let mut block = vec![0; UBERBLOCK_SIZE];
        let read = device.read_at(uberblock_offset(label, uberblock.txg), &mut block);
        read.is_ok() && Uberblock::decode(&block).is_ok_and(|found| found == *uberblock)
    };
    offsets(device).is_ok_and(|[l0, l1, ..]| has(l0) || has(l1))
}

/// Erases the slot of a txg in all labels of a device.
///
/// # Errors
/// If a label cannot be erased: the uberblock may still be found there.
pub fn erase_uberblock(device: &dyn Device, txg: Txg) -> Result<()> {
    for label in offsets(device)? {
        let erased = device.write_at(uberblock_offset(label, txg), &[0; UBERBLOCK_SIZE]);
        erased.map_err(|source| failed(device, "erase an uberblock", source))?;
    }
    Ok(())
}

/// All good uberblocks of a pool on one device, newest first, without duplicates.
///
/// # Errors
/// If none of the four rings can be read.
pub fn read_uberblocks(device: &dyn Device, pool: Guid) -> Result<Vec<Uberblock>> {
    let mut found = Vec::new();
    let mut failure = None;
    let mut readable = false;
    for label in offsets(device)? {
        let mut ring = vec![0; RING_SIZE];
        match device.read_at(label + RING_AT, &mut ring) {
            Ok(()) => {
                readable = true;
                found.extend(decode_ring(&ring).filter(|uberblock| uberblock.pool == pool));
            }
            Err(source) => failure = Some(source),
        }
    }
    match failure {
        Some(source) if !readable => Err(failed(device, "read the uberblocks", source)),
        _ => Ok(newest_first(found)),
    }
}

/// The good uberblocks of a ring that stand in their own slot.
fn decode_ring(ring: &[u8]) -> impl Iterator<Item = Uberblock> {
    let in_place = |(at, block): (u64, &[u8])| Uberblock::decode(block).ok().filter(|found| slot(found.txg) == at);
    (0..).zip(ring.chunks(UBERBLOCK_SIZE)).filter_map(in_place)
}

/// The good uberblock of a pool in the bytes of a slot.
pub(super) fn decode_in_slot(at: u64, block: &[u8], pool: Guid) -> Option<Uberblock> {
    Uberblock::decode(block).ok().filter(|found| slot(found.txg) == at && found.pool == pool)
}

/// Sorts by descending txg and removes duplicates.
fn newest_first(mut uberblocks: Vec<Uberblock>) -> Vec<Uberblock> {
    uberblocks.sort_by_key(|uberblock| std::cmp::Reverse((uberblock.txg, uberblock.epoch)));
    uberblocks.dedup_by_key(|uberblock| (uberblock.txg, uberblock.epoch));
    uberblocks
}

/// A device compared with the newest state of its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The device has the newest uberblock.
    Current,
    /// The device's newest uberblock is an ancestor of the pool's: it missed later commits.
    Behind(Txg),
    /// The device's newest uberblock is no known ancestor: another host imported the device without the rest, or the
    /// device was away longer than the rings remember.
    Diverged {
        /// The import that wrote the device's newest uberblock.
        epoch: Epoch,
        /// The txg of the device's newest uberblock.
        txg: Txg,
    },
    /// The device has no good uberblock, or cannot be read.
    Empty,
}

/// The combined uberblocks of all devices of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranking {
    /// The newest state and its ancestors, newest first: import tries the first, and `-F` may rewind to the rest.
    pub candidates: Vec<Uberblock>,
    /// Each device compared with the first candidate.
    pub standings: Vec<Standing>,
    /// The newest uberblock of each device.
    pub newest: Vec<Mark>,
    /// The highest txg on any device, on the line or off it. The next import starts above.
    pub highest: Txg,
}

/// Reads the uberblocks of all devices of a pool and ranks them. Without any good uberblock there are no candidates.
///
/// # Errors
/// If no device can be read.
pub fn find_uberblocks(devices: &[&dyn Device], pool: Guid) -> Result<Ranking> {
    let mut failures = Vec::new();
    let mut found = Vec::with_capacity(devices.len());
    for device in devices {
        found.push(read_uberblocks(*device, pool).unwrap_or_else(|error| {
            failures.push(error);
            Vec::new()
        }));
    }
    match failures.is_empty() || failures.len() < devices.len() {
        true => Ok(rank(&found)),
        false => Err(failures.swap_remove(0)),
    }
}

/// Ranks the uberblocks of each device.
pub fn rank(devices: &[Vec<Uberblock>]) -> Ranking {
    let all = newest_first(devices.concat());
    let Some(newest) = all.first() else {
        let nothing = vec![Mark::default(); devices.len()];
        return Ranking { standings: vec![Standing::Empty; devices.len()], newest: nothing, ..Ranking::default() };
    };
    let highest = newest.txg;
    let line = line_of(newest, &all);
    let on_line = |uberblock: &Uberblock| line.get(&uberblock.epoch).is_some_and(|limit| uberblock.txg <= *limit);
    let own = |device: &Vec<Uberblock>| device.iter().max_by_key(|found| (found.txg, found.epoch)).cloned();
    let mark = |own: Uberblock| Mark { epoch: own.epoch, txg: own.txg };
    let standing = |device: &Vec<Uberblock>| match own(device) {
        None => Standing::Empty,
        Some(own) if (own.txg, own.epoch) == (newest.txg, newest.epoch) => Standing::Current,
        Some(own) if on_line(&own) => Standing::Behind(own.txg),
        Some(own) => Standing::Diverged { epoch: own.epoch, txg: own.txg },
    };
    let standings = devices.iter().map(standing).collect();
    let marks = devices.iter().map(|device| own(device).map_or(Mark::default(), mark)).collect();
    let candidates = all.iter().filter(|uberblock| on_line(uberblock)).cloned().collect();
    Ranking { candidates, standings, newest: marks, highest }
}

/// The imports that `newest` descends from, each with the last txg inherited from it.
fn line_of(newest: &Uberblock, all: &[Uberblock]) -> HashMap<Epoch, Txg> {
    let origins: HashMap<Epoch, (Epoch, Txg)> =
        all.iter().map(|uberblock| (uberblock.epoch, (uberblock.parent, uberblock.forked_at))).collect();
    let mut line = HashMap::new();
    let mut at = Some((newest.epoch, newest.txg));
    while let Some((epoch, limit)) = at.filter(|(epoch, _)| !line.contains_key(epoch)) {
        line.insert(epoch, limit);
        at = origins.get(&epoch).copied();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        device::{Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
        format::{
            label::{LABEL_SIZE, label_offsets},
            uberblock::{RING_SLOTS, tests::sample},
        },
        units::MIB,
        vdev::labels::crowd::crowd,
    };

    const SIZE: u64 = 64 * MIB;
    const POOL: Guid = Guid(77);

    fn disk() -> MemoryDevice {
        MemoryDevice::new("disk", SIZE)
    }

    fn txgs(uberblocks: &[Uberblock]) -> Vec<u64> {
        uberblocks.iter().map(|uberblock| uberblock.txg.0).collect()
    }

    #[test]
    fn the_ring_keeps_the_last_commits_of_this_pool() {
        let device = disk();
        for txg in 1..=50 {
            write_uberblock(&[&device], &sample(txg, 1, 0, 0)).remove(0).unwrap();
        }
        let found = read_uberblocks(&device, POOL).unwrap();
        assert_eq!(txgs(&found), (51 - RING_SLOTS..=50).rev().collect::<Vec<_>>());
        assert!(read_uberblocks(&device, Guid(1)).unwrap().is_empty());
    }

    #[test]
    fn an_uberblock_in_another_slot_is_passed_over() {
        let device = disk();
        let at = uberblock_offset(label_offsets(SIZE)[1], Txg(6));
        device.write_at(at, &sample(5, 1, 0, 0).encode()).unwrap();
        assert!(read_uberblocks(&device, POOL).unwrap().is_empty());
    }

    #[test]
    fn one_front_slot_suffices_for_writing_and_any_for_reading() {
        let [l0, l1, l2, l3] = label_offsets(SIZE);
        let ranges = |good: u64| [0..good, good + LABEL_SIZE..SIZE];
        for good in [l0, l1] {
            let bad = FaultDevice::new(Arc::new(disk()));
            for on in [Operation::Write, Operation::Read] {
                ranges(good).into_iter().for_each(|range| bad.inject(Fault { range, ..Fault::failing(on) }));
            }
            write_uberblock(&[&bad], &sample(5, 1, 0, 0)).remove(0).unwrap();
            assert_eq!(txgs(&read_uberblocks(&bad, POOL).unwrap()), [5]);
        }
        for good in [l2, l3] {
            let bad = FaultDevice::new(Arc::new(disk()));
            write_uberblock(&[&bad], &sample(5, 1, 0, 0)).remove(0).unwrap();
            ranges(good).into_iter().for_each(|range| bad.inject(Fault { range, ..Fault::failing(Operation::Read) }));
            assert_eq!(txgs(&read_uberblocks(&bad, POOL).unwrap()), [5]);
        }
    }

    #[test]
    fn a_device_that_takes_it_only_at_its_end_has_not_got_it() {
        let bad = FaultDevice::new(Arc::new(disk()));
        bad.inject(Fault { range: 0..label_offsets(SIZE)[2], ..Fault::failing(Operation::Write) });
        assert!(write_uberblock(&[&bad], &sample(5, 1, 0, 0)).remove(0).is_err());
    }

    #[test]
    fn a_copy_that_is_refused_once_is_written_again() {
        for refused in 1..LABELS as u64 {
            let device = Arc::new(disk());
            let bad = FaultDevice::new(device.clone());
            bad.inject(Fault { times: refused, ..Fault::failing(Operation::Write) });
            write_uberblock(&[&bad], &sample(5, 1, 0, 0)).remove(0).unwrap();
            for label in label_offsets(SIZE) {
                let mut ring = vec![0; RING_SIZE];
                device.read_at(label + RING_AT, &mut ring).unwrap();
                assert_eq!(decode_ring(&ring).count(), 1, "{refused} refused, label at {label}");
            }
        }
    }

    #[test]
    fn all_devices_are_tried_and_one_is_enough() {
        let (bad, good) = (FaultDevice::new(Arc::new(disk())), disk());
        bad.vanish();
        let written = write_uberblock(&[&bad, &good], &sample(5, 1, 0, 0));
        assert_eq!(written.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true]);
        let ranking = find_uberblocks(&[&bad, &good], POOL).unwrap();
        assert_eq!(ranking.standings, [Standing::Empty, Standing::Current]);
        assert!(find_uberblocks(&[&bad], POOL).is_err());
    }

    #[test]
    fn devices_get_it_at_the_same_time_and_in_all_their_labels() {
        let devices = crowd(3, LABELS, SIZE);
        let all: Vec<&dyn Device> = devices.iter().map(|device| device as &dyn Device).collect();
        write_uberblock(&all, &sample(5, 1, 0, 0)).into_iter().for_each(Result::unwrap);
        let ranking = find_uberblocks(&all, POOL).unwrap();
        assert_eq!(ranking.standings, [Standing::Current; 3]);
    }

    #[test]
    fn a_crash_in_a_commit_leaves_the_new_uberblock_or_the_old() {
        let recorder = Recorder::new();
        let devices = [recorder.wrap(disk()), recorder.wrap(disk())];
        let devices: Vec<&dyn Device> = devices.iter().map(|device| device as &dyn Device).collect();
        let commit = |txg| {
            write_uberblock(&devices, &sample(txg, 1, 0, 0)).into_iter().for_each(Result::unwrap);
            devices.iter().for_each(|device| device.flush().unwrap());
        };
        commit(1);
        let first = recorder.len();
        commit(2);
        for cut in first..=recorder.len() {
            for seed in 0..30 {
                let images = recorder.images_at(cut, &mut Fate::seeded(seed));
                let images: Vec<&dyn Device> = images.iter().map(|image| image as &dyn Device).collect();
                let found = find_uberblocks(&images, POOL).unwrap().highest.0;
                assert!(found == 2 || found == 1 && cut < first + 9, "cut {cut}, seed {seed}: {found}");
            }
        }
    }

    #[test]
    fn candidates_are_the_line_of_the_newest() {
        // Import 2 wrote 10 to 14; import 3 rewound to 12 and wrote 15; import 4 opened 16 of import 3.
        let device = vec![
            sample(10, 2, 1, 9),
            sample(12, 2, 1, 9),
            sample(13, 2, 1, 9),
            sample(14, 2, 1, 9),
            sample(15, 3, 2, 12),
            sample(16, 3, 2, 12),
            sample(17, 4, 3, 16),
        ];
        let ranking = rank(&[device]);
        assert_eq!(txgs(&ranking.candidates), [17, 16, 15, 12, 10]);
        assert_eq!(ranking.standings, [Standing::Current]);
        assert_eq!(ranking.highest, Txg(17));
    }

    #[test]
    fn devices_that_are_behind_or_diverged_are_distinguished() {
        let newest = vec![sample(10, 2, 1, 9), sample(14, 3, 2, 12), sample(15, 3, 2, 12)];
        let behind = vec![sample(10, 2, 1, 9), sample(14, 3, 2, 12)];
        let ancestor = vec![sample(12, 2, 1, 9)];
        let split = vec![sample(10, 2, 1, 9), sample(14, 8, 2, 12)];
        let ranking = rank(&[newest, behind, ancestor, split, vec![]]);
        let diverged = Standing::Diverged { epoch: Epoch(8), txg: Txg(14) };
        let expected =
            [Standing::Current, Standing::Behind(Txg(14)), Standing::Behind(Txg(12)), diverged, Standing::Empty];
        assert_eq!(ranking.standings, expected);
        assert_eq!(txgs(&ranking.candidates), [15, 14, 12, 10]);
    }

    #[test]
    fn imports_that_claim_to_descend_from_each_other_do_not_hang() {
        let ranking = rank(&[vec![sample(9, 1, 2, 5), sample(10, 2, 1, 5)]]);
        assert_eq!(txgs(&ranking.candidates), [10]);
        assert_eq!(rank(&[]), Ranking::default());
    }
}
