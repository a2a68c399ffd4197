//! Streams of a big-endian machine: those of zfs-fuse with every number's bytes swapped bring the same files.

use std::collections::HashMap;

use super::{
    world::World,
    zfs::{compare, manifest},
    zfs_forged::{HEADER, OBJECT, Records, WRITE, number, records_of},
};
use crate::zfs::tests::fixture;

const BEGIN: u8 = 0;
const END: u8 = 5;
const FILE: u32 = 19;
const ZNODE: usize = 264;

fn swap(bytes: &mut [u8], at: usize, width: usize) {
    bytes[at..at + width].reverse();
}

fn swap_all(bytes: &mut [u8], from: usize, to: usize, width: usize) {
    (from..to).step_by(width).for_each(|at| swap(bytes, at, width));
}

/// Swaps the numbers of a header. Texts and single bytes stay.
fn swap_header(header: &mut [u8]) {
    let kind = header[0];
    swap_all(header, 0, 8, 4);
    match kind {
        BEGIN => {
            swap_all(header, 8, 32, 8);
            swap_all(header, 32, 40, 4);
            swap_all(header, 40, 56, 8);
        }
        OBJECT => {
            swap(header, 8, 8);
            swap_all(header, 16, 32, 4);
            swap(header, 36, 4);
            swap(header, 40, 8);
        }
        WRITE => {
            swap(header, 8, 8);
            swap(header, 16, 4);
            swap_all(header, 24, 48, 8);
            swap(header, 96, 8);
        }
        _ => swap_all(header, 8, 56, 8),
    }
}

/// Swaps the numbers of a block of a map.
fn swap_map(page: &mut [u8]) {
    let size = page.len();
    match number(page, 0) {
        0x8000_0000_0000_0003 => {
            swap_all(page, 0, 64, 8);
            for at in (64..size).step_by(64) {
                swap(page, at, 8);
                swap(page, at + 8, 4);
            }
        }
        0x8000_0000_0000_0000 => swap_leaf(page),
        // The header of a larger map, or its table of pointers.
        _ => swap_all(page, 0, size, 8),
    }
}

fn swap_leaf(page: &mut [u8]) {
    let (size, chunks) = (page.len(), 48 + page.len() / 16);
    swap_all(page, 0, 24, 8);
    swap(page, 24, 4);
    swap_all(page, 28, 36, 2);
    swap_all(page, 48, chunks, 2);
    for at in (chunks..=size - 24).step_by(24) {
        match page[at] {
            252 => {
                swap_all(page, at + 2, at + 12, 2);
                swap(page, at + 12, 4);
                swap(page, at + 16, 8);
            }
            _ => swap(page, at + 22, 2),
        }
    }
}

/// The stream as a big-endian machine would have sent it.
fn swapped(mut records: Records) -> Vec<u8> {
    let (mut out, mut sums) = (Vec::new(), [0u64; 4]);
    let mut types = HashMap::new();
    for (header, payload) in &mut records {
        let (kind, object) = (header[0], number(header, 8));
        match kind {
            OBJECT => {
                types.insert(object, number(header, 16) as u32);
                let end = payload.len().min(ZNODE) / 8 * 8;
                swap_all(payload, 0, end, 8);
            }
            WRITE if types.get(&object).is_some_and(|kind| *kind != FILE) => swap_map(payload),
            _ => {}
        }
        swap_header(header);
        if kind == END {
            let coded: Vec<u8> = sums.iter().flat_map(|sum| sum.to_be_bytes()).collect();
            header[8..40].copy_from_slice(&coded);
        }
        assert_eq!(header.len(), HEADER);
        for word in header.as_chunks::<4>().0.iter().chain(payload.as_chunks::<4>().0) {
            let mut value = u64::from(u32::from_be_bytes(*word));
            for sum in &mut sums {
                *sum = sum.wrapping_add(value);
                value = *sum;
            }
        }
        out.extend_from_slice(header);
        out.extend_from_slice(payload);
    }
    out
}

#[test]
fn streams_of_a_big_endian_machine_bring_the_same_files() {
    let world = World::new(1);
    for (stream, snapshot) in [("zfsfuse-full-s1", "s1"), ("zfsfuse-incr-s1-s2", "s2")] {
        let big = swapped(records_of(&fixture(stream)));
        world.receive_zfs("tank/copy", &big).unwrap_or_else(|error| panic!("{stream}: {error}"));
        let listed = &manifest()["snapshots"][format!("zstream_t/a@{snapshot}")];
        compare(&world.snapshot_fs(&format!("tank/copy@{snapshot}")), stream, listed);
    }
    world.judge();
}

#[test]
fn an_increment_of_the_other_byte_order_applies() {
    let world = World::new(2);
    world.receive_zfs("tank/copy", &fixture("zfsfuse-full-s1")).unwrap();
    world.receive_zfs("tank/copy", &swapped(records_of(&fixture("zfsfuse-incr-s1-s2")))).unwrap();
    compare(&world.snapshot_fs("tank/copy@s2"), "mixed", &manifest()["snapshots"]["zstream_t/a@s2"]);
    world.judge();
}
