//! Adjacent blocks: few requests for many of them, and the same results as block by block.

use std::iter;

use super::*;
use crate::{format::pointer::BlockPointer, vdev::Counts};

const RECORDS: u64 = 16;
const RECORD: usize = 128 << 10;

/// A pool of records in a row, opened again; the records, in order.
fn records() -> (Arc<MemoryDevice>, Arc<Engine>, Arc<Head>, Vec<Block>) {
    let device = Arc::new(MemoryDevice::new("disk", 128 * MIB));
    let (engine, head) = create(device.clone(), 1);
    (0..RECORDS).for_each(|index| put_noise(&head, index * RECORD as u64, RECORD).unwrap());
    engine.commit().unwrap();
    drop((engine, head));
    let (engine, head) = open(device.clone()).unwrap();
    let head = head.unwrap();
    let entries = head.read(|view| -> Result<Vec<_>, Plain> {
        let entries: Result<Vec<_>, _> = view.range(Key::MIN..Key::MAX).collect();
        Ok(entries?)
    });
    let blocks = entries.unwrap().iter().map(|entry| entry.block().unwrap()).collect();
    (device, engine, head, blocks)
}

fn pointers(blocks: &[Block]) -> Vec<BlockPointer> {
    blocks.iter().map(|block| block.pointer().unwrap()).collect()
}

fn counts(engine: &Engine) -> Counts {
    engine.storage().vdevs.all()[0].leaves()[0].counters().snapshot()
}

/// Flips a byte of a block on the device.
fn spoil(device: &MemoryDevice, engine: &Engine, pointer: &BlockPointer) {
    let (_, offset) = engine.storage().space.resolve(pointer.addresses[0], pointer.stored).unwrap();
    let at = crate::format::label::DATA_START + offset + 77;
    let mut byte = [0];
    device.read_at(at, &mut byte).unwrap();
    device.write_at(at, &[byte[0] ^ 1]).unwrap();
}

#[test]
fn blocks_in_a_row_are_examined_by_few_requests() {
    let (_, engine, _, blocks) = records();
    let before = counts(&engine);
    assert!(engine.suspicious(&pointers(&blocks)).is_empty());
    let after = counts(&engine);
    let requests = after.reads - before.reads;
    assert!(requests <= 3, "{requests} requests for {RECORDS} blocks");
    assert_eq!(after.read_bytes - before.read_bytes, RECORDS * RECORD as u64);
}

#[test]
fn the_bad_block_of_a_row_is_distinguished() {
    let (device, engine, _, blocks) = records();
    let pointers = pointers(&blocks);
    for bad in [0, 7, 15] {
        spoil(&device, &engine, &pointers[bad]);
    }
    assert_eq!(engine.suspicious(&pointers), [0, 7, 15]);
    assert_eq!(counts(&engine).checksum_errors, 0, "who examines counts nothing");
}

#[test]
fn what_is_brought_is_read_by_few_requests_and_not_again() {
    let (_, engine, head, blocks) = records();
    let before = counts(&engine).reads;
    head.bring(blocks[..8].iter(), iter::empty(), Seen::HELD);
    let brought = counts(&engine).reads;
    assert!(brought - before <= 2, "{} requests for 8 blocks", brought - before);
    for (index, block) in blocks[..8].iter().enumerate() {
        assert_eq!(*head.bytes(block, Seen::HELD).unwrap(), noise(index as u64 * RECORD as u64, RECORD));
    }
    head.bring(blocks[..8].iter(), iter::empty(), Seen::HELD);
    assert_eq!(counts(&engine).reads, brought);
}

#[test]
fn a_bad_block_keeps_nobody_from_its_neighbours() {
    let (device, engine, head, blocks) = records();
    spoil(&device, &engine, &pointers(&blocks)[3]);
    head.bring(blocks.iter(), iter::empty(), Seen::HELD);
    for (index, block) in blocks.iter().enumerate() {
        let read = head.bytes(block, Seen::HELD).map(|bytes| *bytes == noise(index as u64 * RECORD as u64, RECORD));
        assert_eq!(read.ok(), (index != 3).then_some(true), "block {index}");
    }
    assert_eq!(counts(&engine).checksum_errors, 1, "it is counted when it is read alone");
}
