//! Cache devices alone: cached blocks are found again, after any power failure, with any content on the device.

use std::{sync::Arc, time::Duration};

use proptest::prelude::*;

use super::*;
use crate::{
    block::checksum::checksum,
    device::{DeadlineDevice, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    format::{
        cache_segment::{CachedBlock, SEGMENT_HEADER, SegmentHeader},
        label::DATA_START,
        pointer::Address,
    },
    units::{ChunkId, KIB},
};

const GUID: Guid = Guid(77);
const DEVICE: u64 = 64 * MIB;
/// The segments of a device of that size.
const SEGMENTS: u64 = 15;
const LEN: usize = 100_000;
/// Blocks of that length in a segment.
const IN_SEGMENT: u32 = ((SEGMENT_SIZE - SEGMENT_HEADER) / 100_352) as u32;

fn content(block: u32) -> Vec<u8> {
    (0..LEN as u32).map(|at| (at.wrapping_mul(block + 1) >> 3) as u8).collect()
}

/// The pointer to a block born in txg `birth`.
fn born(block: u32, birth: u64) -> BlockPointer {
    let bytes = content(block);
    BlockPointer {
        addresses: [Address { chunk: ChunkId(block), sector: 8 }, Address::default(), Address::default()],
        copies: 1,
        logical: bytes.len() as u32,
        stored: bytes.len() as u32,
        checksum: checksum(Checksum::Blake3, &bytes),
        birth: Txg(birth),
        ..BlockPointer::default()
    }
}

fn pointer(block: u32) -> BlockPointer {
    born(block, 10)
}

/// The caches of an import that opened the state `opened`, with one device whose content is fully known.
fn opened_at(device: Arc<dyn Device>, epoch: u64, opened: u64) -> Secondary {
    let secondary = Secondary::new(64 * MIB, Epoch(epoch), Txg(opened), false);
    secondary.add(Arc::new(Leaf::new(GUID, device)));
    while secondary.step(Duration::ZERO).is_some() {}
    secondary
}

fn opened(device: Arc<dyn Device>, epoch: u64) -> Secondary {
    opened_at(device, epoch, 10)
}

/// Offers blocks as read for the first time, and writes what is due.
fn feed(secondary: &Secondary, blocks: impl Iterator<Item = u32>) {
    for block in blocks {
        secondary.offer(&pointer(block), &content(block));
        work(secondary);
    }
}

/// Does everything that is due, ignoring time.
fn work(secondary: &Secondary) {
    let mut now = Duration::ZERO;
    while let Some(next) = secondary.step(now) {
        now = next;
    }
}

/// The blocks found, each checked to be right.
fn found(secondary: &Secondary, blocks: u32) -> Vec<u32> {
    let is_found = |block: &u32| match secondary.read(&pointer(*block)) {
        Some(bytes) => {
            assert!(bytes == content(*block), "block {block}");
            true
        }
        None => false,
    };
    (0..blocks).filter(is_found).collect()
}

fn counts(secondary: &Secondary) -> crate::vdev::Counts {
    secondary.devices()[0].counters().snapshot()
}

fn memory() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new("cache", DEVICE))
}

/// A device with content in two segments.
fn written() -> Arc<MemoryDevice> {
    let device = memory();
    let secondary = opened(device.clone(), 1);
    feed(&secondary, 0..50);
    secondary.finish();
    assert_eq!(found(&secondary, 60), (0..50).collect::<Vec<_>>());
    device
}

#[test]
fn what_was_read_is_found_and_also_by_the_next_import() {
    let device = written();
    let secondary = opened(device.clone(), 2);
    assert_eq!(secondary.held(GUID), 2 * SEGMENT_SIZE);
    assert_eq!(found(&secondary, 60), (0..50).collect::<Vec<_>>());
    assert_eq!((counts(&secondary).checksum_errors, counts(&secondary).read_errors), (0, 0));
    // Writing continues behind the existing content.
    feed(&secondary, 100..150);
    secondary.finish();
    let third = opened(device, 3);
    assert_eq!((found(&third, 60).len(), found(&third, 200).len()), (50, 100));
}

#[test]
fn a_full_ring_drops_the_oldest_and_takes_blocks_read_twice() {
    let device = memory();
    let secondary = opened(device.clone(), 1);
    let all = IN_SEGMENT * (SEGMENTS as u32 + 4);
    (0..2).for_each(|_| feed(&secondary, 0..all));
    secondary.finish();
    let kept = found(&secondary, all);
    // One segment is always the next to be written.
    let most = IN_SEGMENT as usize * (SEGMENTS as usize - 1);
    assert!(kept.len() > most / 2 && kept.len() <= most, "{} of {most}", kept.len());
    assert!(!kept.contains(&0), "the oldest made room");
    // The device is warm now: blocks read for the first time stay out.
    let before = counts(&secondary).writes;
    feed(&secondary, 10_000..10_100);
    secondary.finish();
    assert_eq!((counts(&secondary).writes, found(&secondary, 10_100).len()), (before, kept.len()));
    feed(&secondary, 10_000..10_100);
    secondary.finish();
    assert!(secondary.has(&pointer(10_050)));
    assert_eq!(counts(&secondary).checksum_errors, 0);
    // The next import finds the same blocks, and continues at the right place.
    let (known, next) = (found(&secondary, 10_200), opened(device, 2));
    assert_eq!(found(&next, 10_200), known);
}

#[test]
fn segments_are_written_at_a_limited_rate_without_reader_waits() {
    let secondary = opened(memory(), 1);
    let offer = |round: u32| {
        (0..4 * IN_SEGMENT).for_each(|block| secondary.offer(&pointer(1000 * round + block), &content(block)));
    };
    offer(0);
    let begun = counts(&secondary).written_bytes;
    let now = Duration::from_secs(5);
    let first = secondary.step(now).unwrap();
    assert_eq!(first, now, "at once");
    offer(1);
    let due = secondary.step(now).unwrap();
    assert!(due > now + Duration::from_millis(50) && due < now + Duration::from_millis(70), "{due:?}");
    let written = counts(&secondary).written_bytes;
    assert!(written - begun > 3 * MIB && written - begun <= SEGMENT_SIZE + KIB, "{}", written - begun);
    assert_eq!(secondary.step(due - Duration::from_nanos(1)), Some(due));
    assert_eq!(counts(&secondary).written_bytes, written);
    work(&secondary);
    assert!(counts(&secondary).written_bytes < 3 * SEGMENT_SIZE, "what did not fit was let go");
}

#[test]
fn the_index_is_bounded_and_what_is_held_with_it() {
    let device = memory();
    let secondary = Secondary::new(0, Epoch(1), Txg(10), false);
    secondary.add(Arc::new(Leaf::new(GUID, device.clone())));
    let small = |block: u32| {
        let bytes = vec![block as u8; 512];
        (
            BlockPointer { stored: 512, logical: 512, checksum: checksum(Checksum::Blake3, &bytes), ..pointer(block) },
            bytes,
        )
    };
    while secondary.step(Duration::ZERO).is_some() {}
    for block in 0..3 * LEAST_ENTRIES as u32 {
        let (pointer, bytes) = small(block);
        secondary.offer(&pointer, &bytes);
        secondary.offer(&pointer, &bytes);
        work(&secondary);
    }
    secondary.finish();
    let known = |secondary: &Secondary| (0..3 * LEAST_ENTRIES as u32).filter(|b| secondary.has(&small(*b).0)).count();
    assert!((LEAST_ENTRIES / 2..=LEAST_ENTRIES).contains(&known(&secondary)), "{}", known(&secondary));
    let next = Secondary::new(0, Epoch(2), Txg(10), false);
    next.add(Arc::new(Leaf::new(GUID, device)));
    next.finish();
    assert!((LEAST_ENTRIES / 2..=LEAST_ENTRIES).contains(&known(&next)), "{}", known(&next));
}

#[test]
fn whatever_byte_is_wrong_what_is_found_is_right() {
    let image = written();
    for at in (0..2 * SEGMENT_SIZE).step_by(52_429).chain(0..40).chain(SEGMENT_HEADER - 32..SEGMENT_HEADER) {
        let device = Arc::new(image.snapshot());
        let mut byte = [0];
        device.read_at(DATA_START + at, &mut byte).unwrap();
        device.write_at(DATA_START + at, &[byte[0] ^ 0x20]).unwrap();
        let secondary = opened(device, 2);
        let known = found(&secondary, 60);
        let errors = counts(&secondary).checksum_errors;
        // A wrong header counts as none, and the bytes between copies do not matter.
        let lost = if at % SEGMENT_SIZE < SEGMENT_HEADER {
            [41, 9].map(|held| held * u64::from(errors == 0))
        } else {
            [errors; 2]
        };
        assert!(errors <= 1 && lost.contains(&(50 - known.len() as u64)), "byte {at}: {errors}, {known:?}");
        assert_eq!(found(&secondary, 60), known, "what was wrong is not asked for again");
        assert_eq!(counts(&secondary).checksum_errors, errors);
    }
}

#[test]
fn with_every_byte_wrong_each_block_counts_one_error() {
    let device = Arc::new(FaultDevice::new(written()));
    let secondary = opened(device.clone(), 2);
    device.inject(Fault::corrupting(0..DEVICE));
    assert_eq!(found(&secondary, 60), []);
    assert_eq!(found(&secondary, 60), []);
    assert_eq!(counts(&secondary).checksum_errors, 50);
}

#[test]
fn a_bad_sector_costs_one_block_and_a_lost_device_is_faulted() {
    let device = Arc::new(FaultDevice::new(written()));
    let secondary = opened(device.clone(), 2);
    let place = DATA_START + SEGMENT_HEADER + 50_000;
    device.inject(Fault { range: place..place + 1, ..Fault::failing(Operation::Read) });
    assert_eq!(found(&secondary, 60), (1..50).collect::<Vec<_>>());
    assert_eq!((secondary.devices()[0].health(), counts(&secondary).read_errors), (Health::Online, 1));
    device.inject(Fault::failing(Operation::Read));
    assert_eq!(found(&secondary, 60), []);
    assert_eq!(secondary.devices()[0].health(), Health::Faulted);
    let asked = counts(&secondary).reads;
    assert_eq!(found(&secondary, 60), []);
    assert_eq!((counts(&secondary).reads, secondary.held(GUID)), (asked, 0), "it is asked no more");
    // After the device's return everything is found.
    device.heal();
    secondary.take_back(GUID, device).unwrap();
    secondary.finish();
    assert_eq!(found(&secondary, 60), (0..50).collect::<Vec<_>>());
}

#[test]
fn an_unwritable_device_is_faulted_and_a_hanging_one_holds_none() {
    for on in [Operation::Write, Operation::Flush] {
        let device = Arc::new(FaultDevice::new(written()));
        let secondary = opened(device.clone(), 2);
        device.inject(Fault::failing(on));
        feed(&secondary, 100..200);
        secondary.finish();
        assert_eq!(secondary.devices()[0].health(), Health::Faulted, "{on:?}");
        assert_eq!(found(&secondary, 200), []);
    }
    let inner = Arc::new(FaultDevice::new(written()));
    let device = Arc::new(DeadlineDevice::new(inner.clone(), Duration::from_millis(50)));
    let secondary = opened(device, 2);
    inner.inject(Fault::hanging(Operation::Write));
    feed(&secondary, 100..200);
    assert_eq!(found(&secondary, 200), []);
    assert_ne!(secondary.devices()[0].health(), Health::Online);
    inner.heal();
}

#[test]
fn wherever_power_fails_what_a_header_names_is_there() {
    let recorder = Recorder::new();
    let device: Arc<dyn Device> = Arc::new(recorder.wrap(MemoryDevice::new("cache", 3 * SEGMENT_SIZE + 2 * MIB)));
    let secondary = opened(device, 1);
    // Around the ring, and into segments written before.
    feed(&secondary, 0..IN_SEGMENT * 3);
    (0..2).for_each(|_| feed(&secondary, IN_SEGMENT * 3..IN_SEGMENT * 6));
    secondary.finish();
    assert!(counts(&secondary).flushes >= 6);
    let mut most = 0;
    for cut in 0..=recorder.len() {
        for seed in 0..6 {
            let image = recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0);
            let next = opened(Arc::new(image), 2);
            let known = found(&next, IN_SEGMENT * 6);
            assert_eq!(counts(&next).checksum_errors, 0, "cut {cut}, seed {seed}");
            most = most.max(known.len());
        }
    }
    assert!(most > IN_SEGMENT as usize, "{most}");
}

#[test]
fn blocks_born_after_the_opened_state_are_not_taken() {
    let device = memory();
    let secondary = opened_at(device.clone(), 1, 5);
    let put = |birth: u64| secondary.offer(&born(birth as u32, birth), &content(birth as u32));
    (8..13).for_each(put);
    secondary.finish();
    let known = |secondary: &Secondary| (8..13).filter(|b| secondary.has(&born(*b as u32, *b))).collect::<Vec<_>>();
    assert_eq!(known(&secondary), [8, 9, 10, 11, 12]);
    assert_eq!(known(&opened_at(device.clone(), 2, 12)), [8, 9, 10, 11, 12]);
    assert_eq!(known(&opened_at(device.clone(), 2, 10)), [8, 9, 10], "gone back");
    assert_eq!(known(&opened_at(device, 1, 10)), [8, 9, 10, 11, 12], "what this import has put there itself");
}

#[test]
fn blocks_without_checksum_or_of_a_read_only_pool_stay_out() {
    let device = memory();
    let secondary = opened(device.clone(), 1);
    let off = BlockPointer { checksum_kind: Checksum::Off, checksum: [0; 32], ..pointer(1) };
    secondary.offer(&off, &content(1));
    secondary.offer(&pointer(2), &content(2));
    secondary.finish();
    assert!(!secondary.has(&off) && secondary.read(&off).is_none());
    let before = device.snapshot();
    let reading = Secondary::new(MIB, Epoch(2), Txg(10), true);
    reading.add(Arc::new(Leaf::new(GUID, device.clone())));
    reading.finish();
    assert_eq!(found(&reading, 60), [2], "what is there is used");
    feed(&reading, 3..60);
    reading.finish();
    let (mut one, mut other) = (vec![0; DEVICE as usize], vec![0; DEVICE as usize]);
    before.read_at(0, &mut one).unwrap();
    device.read_at(0, &mut other).unwrap();
    assert!(one == other, "nothing was written");
}

#[test]
fn a_removed_device_is_forgotten_and_not_written_to() {
    let device = written();
    let secondary = opened(device, 2);
    let leaf = secondary.devices().remove(0);
    secondary.remove(GUID);
    let before = leaf.counters().snapshot();
    assert_eq!((found(&secondary, 60), secondary.devices().len()), (vec![], 0));
    feed(&secondary, 100..200);
    secondary.finish();
    assert_eq!(leaf.counters().snapshot(), before);
}

#[test]
fn two_devices_share_what_is_read() {
    let (one, other) = (memory(), memory());
    let secondary = opened(one, 1);
    secondary.add(Arc::new(Leaf::new(Guid(78), other)));
    while secondary.step(Duration::ZERO).is_some() {}
    feed(&secondary, 0..4 * IN_SEGMENT);
    secondary.finish();
    assert_eq!(found(&secondary, 4 * IN_SEGMENT).len(), 4 * IN_SEGMENT as usize);
    assert_eq!(secondary.held(GUID), secondary.held(Guid(78)));
    secondary.take_out(GUID, Health::Offline);
    assert!((IN_SEGMENT as usize..3 * IN_SEGMENT as usize).contains(&found(&secondary, 4 * IN_SEGMENT).len()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Forged headers with right checksums, over arbitrary content.
    #[test]
    fn headers_that_lie_cost_reads_and_no_more(
        headers in prop::collection::vec(
            (
                any::<u32>(),
                prop_oneof![any::<u64>(), Just((1 << 62) - 1), 0u64..4],
                prop::collection::vec((0u32..60, any::<u32>(), any::<u32>(), any::<bool>()), 0..30),
            ),
            0..8,
        ),
    ) {
        let device = memory();
        for (segment, sequence, blocks) in &headers {
            let at = u64::from(*segment) % SEGMENTS * SEGMENT_SIZE;
            let room = (SEGMENT_SIZE - SEGMENT_HEADER) as u32;
            let block = |(block, offset, stored, is_long): &(u32, u32, u32, bool)| {
                let stored = if *is_long { LEN as u32 } else { stored % 5000 + 1 };
                let offset = SEGMENT_HEADER as u32 + offset % (room - stored + 1);
                CachedBlock { address: pointer(*block).addresses[0], birth: Txg(10), offset, stored }
            };
            let blocks = blocks.iter().map(block).collect();
            let header = SegmentHeader { device: GUID, sequence: *sequence, epoch: Epoch(4), blocks };
            device.write_at(DATA_START + at, &header.encode(at)).unwrap();
        }
        let secondary = opened(device, 2);
        prop_assert_eq!(found(&secondary, 60), Vec::<u32>::new());
        // The device is used like any other.
        feed(&secondary, 0..60);
        secondary.finish();
        prop_assert_eq!(found(&secondary, 60).len(), 60);
    }
}
