//! The choice of chunks to pack, and that packing ends.

use proptest::prelude::*;

use super::*;
use crate::{
    space::{
        Packs, SpaceIo,
        tests::{Memory, plain},
    },
    units::{ChunkId, KIB, MIB, Txg},
};

/// Regions of 256 sectors.
fn layout() -> Layout {
    Layout::new(4096, MIB)
}

const NONE: Limits = Limits { hosts: u32::MAX, free: u64::MAX };

/// A vdev with the allocated sectors of some regions, and so many empty regions.
fn shelf(used: &[u32], spare: u32) -> Shelf {
    let mut sparse: Vec<(u32, u32)> =
        (0..).zip(used.iter().copied()).filter(|(_, used)| is_sparse(*used, 256)).collect();
    sparse.sort_by_key(|(region, allocated)| (*allocated, *region));
    Shelf { vdev: VdevId(0), kind: (Ground::Normal, 1), capacity: 256, sparse, spare }
}

#[test]
fn the_sparsest_are_packed_together_if_a_region_is_left_over() {
    let chosen = |used: &[u32]| shelf(used, 9).choose(NONE).map(|choice| (choice.count, choice.hosts));
    assert_eq!(chosen(&[100, 100, 250]), Some((2, 1)));
    assert_eq!(chosen(&[128, 10, 128, 10]), Some((4, 2)));
    assert_eq!(chosen(&[128, 128]), None, "they may not fit into one");
    assert_eq!(chosen(&[128, 128, 128]), Some((3, 2)));
    assert_eq!(chosen(&[1]), None);
    assert_eq!(chosen(&[161, 161, 161, 161, 256]), None, "they are too full");
    assert_eq!(chosen(&[160; 8]), Some((8, 6)));
    assert_eq!(chosen(&[]), None);
    assert_eq!(chosen(&[20; 200]), Some((64, 6)), "some at a time");
}

#[test]
fn what_is_taken_away_meanwhile_is_bounded() {
    let shelf = shelf(&[64; 40], 9);
    let chosen = |hosts, free| shelf.choose(Limits { hosts, free }).map(|choice| (choice.count, choice.hosts));
    assert_eq!(chosen(1, u64::MAX), Some((3, 1)));
    assert_eq!(chosen(0, u64::MAX), None);
    assert_eq!(chosen(9, 10 * 192 + 3 * 256), Some((10, 3)));
    assert_eq!(chosen(9, 2 * 192 + 256), Some((2, 1)));
    assert_eq!(chosen(9, 192 + 256), None);
}

proptest! {
    /// From any start, choices end, each takes sparse chunks that fit into fewer, and at the end no two chunks remain
    /// that would surely fit into one. The model is a plain list of the chunks' allocated sectors.
    #[test]
    fn choices_come_to_an_end_and_each_is_a_gain(
        used in prop::collection::vec(0u32..=256, 0..200),
        spare in 0u32..20,
        limit in 1u64..40,
    ) {
        let mut model: Vec<u32> = used.iter().copied().filter(|used| *used > 0).collect();
        let (mut shelf, all, mut empty) = (shelf(&used, spare), u64::from(model.iter().sum::<u32>()), spare);
        let limits = |shelf: &Shelf| Limits { hosts: shelf.spare, free: limit * 256 };
        for _ in 0..used.len() {
            let Some(choice) = shelf.choose(limits(&shelf)) else { break };
            let chosen: Vec<u32> = shelf.sparse[..choice.count].iter().map(|(_, used)| *used).collect();
            prop_assert!(chosen.iter().all(|used| *used > 0 && *used <= 160));
            prop_assert!(choice.hosts < choice.count as u32 && choice.hosts <= empty);
            let mut rest: u32 = chosen.iter().sum();
            prop_assert!(rest <= choice.hosts * 256 * 7 / 8);
            for used in &chosen {
                let at = model.iter().position(|known| known == used);
                model.swap_remove(at.expect("it is there"));
            }
            let mut hosts = 0;
            while rest > 0 {
                model.push(rest.min(256));
                rest -= rest.min(256);
                hosts += 1;
            }
            prop_assert!(hosts <= choice.hosts);
            empty += choice.gain();
            shelf.pack(&choice);
            prop_assert_eq!((model.iter().map(|used| u64::from(*used)).sum::<u64>(), shelf.spare), (all, empty));
        }
        prop_assert!(shelf.choose(limits(&shelf)).is_none(), "it goes on and on");
        let mut left = shelf.sparse.iter().map(|(_, used)| *used);
        let (first, second) = (left.next(), left.next());
        if let (Some(first), Some(second)) = (first, second) && empty > 0 && limit > 2 {
            prop_assert!(first + second > 224, "{first} and {second}");
        }
    }
}

const REGION: u64 = 64 * KIB;
const SECTOR: u32 = 512;
const LEN: u32 = 4096;

/// A space with only every `keep`-th block left.
fn with_holes(
    memory: &Memory,
    vdevs: &[crate::space::VdevShape],
    keep: usize,
) -> (Space, Vec<crate::format::pointer::Address>) {
    let space = Space::create(SECTOR, REGION, vdevs);
    let allocate = |_| space.allocate(Txg(1), Class::Data, LEN, 1, memory).unwrap().addresses[0];
    let blocks: Vec<_> = (0..480).map(allocate).collect();
    space.sync(Txg(1), memory).unwrap();
    space.committed(Txg(1));
    let (kept, gone): (Vec<_>, Vec<_>) = (0..).zip(blocks).partition(|(number, _)| number % keep == 0);
    gone.into_iter().for_each(|(_, address)| space.free(Txg(2), address, LEN).unwrap());
    for txg in 2..8 {
        space.sync(Txg(txg), memory).unwrap();
        space.committed(Txg(txg));
    }
    (space, kept.into_iter().map(|(_, address)| address).collect())
}

#[test]
fn chunks_with_holes_are_found_and_packed_into_fewer() {
    let vdevs = [plain(0, 64 * REGION)];
    let memory = Memory::new(&vdevs);
    let (space, kept) = with_holes(&memory, &vdevs, 4);
    let available = space.free_for(Class::Data);
    let before = space.holes(available);
    // 30 chunks are a quarter full; the active one stays.
    assert!(before.chunks >= 29 && before.empty_then >= before.empty + 18, "{before:?}");
    let broken = space.fragmentation(None);
    assert!(broken > 30, "{broken}");
    assert_eq!(space.fragmentation(Some(VdevId(0))), broken);
    let mut txg = Txg(8);
    let mut rounds = 0;
    while let Some(batch) = space.next_holes(available) {
        rounds += 1;
        assert!(rounds < 30, "it goes on and on");
        space.close(&batch.regions);
        while !space.has_left(&batch.regions) {
            space.sync(txg, &memory).unwrap();
            space.committed(txg);
            txg = txg.next();
        }
        space.pair(&batch.regions, &batch.targets, Packs::Always).unwrap();
        for (number, address) in (0u8..).zip(&kept) {
            if let Some((vdev, offset)) = space.twin(*address, LEN).unwrap() {
                memory.write(vdev, offset, &vec![number; LEN as usize]).unwrap();
            }
        }
        let (sources, hosts) = space.packing();
        assert!(hosts < sources && hosts > 0, "{hosts} for {sources}");
        assert!(space.unplaced(&memory).unwrap().is_empty() && space.switch(txg, &memory).unwrap());
        for _ in 0..5 {
            space.sync(txg, &memory).unwrap();
            space.committed(txg);
            txg = txg.next();
        }
        assert!(space.reopen(&batch.regions));
    }
    assert!(rounds > 1);
    let after = space.holes(available);
    assert_eq!((after.reason, after.chunks), (Some(Dense::Enough), 0));
    assert!(after.empty >= before.empty_then, "{before:?} {after:?}");
    assert!(space.fragmentation(None) < broken / 2);
    let (packed, bytes) = space.packed();
    assert!(packed >= before.chunks as usize - 1 && bytes > 0, "{packed} {bytes}");
    // Freed packed blocks leave holes in their hosts, and the hosts are packed like other chunks.
    let gone = kept.iter().enumerate().filter(|(number, _)| number % 3 > 0).map(|(_, address)| *address);
    gone.for_each(|address| space.free(txg, address, LEN).unwrap());
    for _ in 0..6 {
        space.sync(txg, &memory).unwrap();
        space.committed(txg);
        txg = txg.next();
    }
    let again = space.holes(available);
    assert!(again.chunks > 2 && again.empty_then > again.empty, "{again:?}");
}

#[test]
fn packing_without_room_changes_nothing() {
    let vdevs = [plain(0, 64 * REGION)];
    let memory = Memory::new(&vdevs);
    let (space, kept) = with_holes(&memory, &vdevs, 4);
    let batch = space.next_holes(space.free_for(Class::Data)).unwrap();
    space.close(&batch.regions);
    space.pair(&batch.regions, &batch.targets, Packs::Always).unwrap();
    let moves = kept.iter().filter(|address| space.twin(**address, LEN).unwrap().is_some()).count();
    assert!(moves > 8);
    let is_out = |bytes| matches!(space.allocate_own(Txg(8), bytes, 1, &memory), Err(crate::error::Error::OutOfSpace));
    while !is_out(LEN) {}
    while !is_out(SECTOR) {}
    assert!(matches!(space.switch(Txg(8), &memory), Err(crate::error::Error::OutOfSpace)));
    assert!(space.unpair() && space.reopen(&batch.regions));
    space.sync(Txg(8), &memory).unwrap();
    space.committed(Txg(8));
    kept.iter().for_each(|address| assert!(space.resolve(*address, LEN).is_ok()));
}

#[test]
fn what_somebody_allocates_in_or_metadata_is_in_stays() {
    let vdevs = [plain(0, 64 * REGION)];
    let memory = Memory::new(&vdevs);
    let space = Space::create(SECTOR, REGION, &vdevs);
    space.allocate(Txg(1), Class::Data, LEN, 1, &memory).unwrap();
    space.allocate(Txg(1), Class::Data, LEN, 2, &memory).unwrap();
    space.allocate(Txg(1), Class::Metadata, LEN, 3, &memory).unwrap();
    space.sync(Txg(1), &memory).unwrap();
    space.committed(Txg(1));
    let used = |space: &Space| space.layout.load().chunks.iter().filter(|chunk| chunk.allocated() > 0).count();
    assert!(used(&space) >= 5);
    let found = space.holes(u64::MAX);
    assert_eq!((found.chunks, found.reason), (0, Some(Dense::Enough)));
    assert_eq!(space.next_holes(u64::MAX), None);
    // No longer active, the chunks are packed like others, except for metadata.
    let layout = space.layout.load_full();
    let data = |id: &u32| layout.chunks[*id as usize].class_hint() == Some(Class::Data);
    (0..64).filter(data).for_each(|id| layout.chunks[ChunkId(id).0 as usize].deactivate());
    assert_eq!(space.holes(u64::MAX).chunks, 2);
    assert_eq!(space.holes(0).reason, Some(Dense::NoRoom));
}

#[test]
fn a_vdev_without_an_empty_chunk_borrows_one() {
    let with = |spare| Shelf { vdev: VdevId(spare), ..shelf(&[30; 8], spare) };
    let layout = layout();
    let (at, choice) = best(&[with(0), with(1)], 1, u64::MAX, &layout).unwrap();
    assert_eq!((at, choice.hosts), (1, 1), "the last one if they are alike");
    let other = Shelf { kind: (Ground::Special, 1), ..with(1) };
    assert!(best(&[with(0), Shelf { sparse: Vec::new(), ..with(1) }], 1, u64::MAX, &layout).is_some());
    assert_eq!(best(&[with(0), Shelf { sparse: Vec::new(), ..other }], 1, u64::MAX, &layout), None);
}
