//! Chunks change places in a space of simulated devices.

use std::{cell::RefCell, collections::BTreeSet};

use super::*;
use crate::{
    space::{
        Class, SAFE_STATES, SpaceIo, SpaceRoot, TrimCursor, TrimWhat, VdevShape,
        tests::{Memory, plain},
    },
    units::KIB,
};

const SECTOR: u32 = 512;
const REGION: u64 = 64 * KIB;
const GOES: VdevId = VdevId(1);
const ALL: Regions = Regions::Vdev(GOES);
const LEN: u32 = 3000;

fn stamp(number: u32) -> Vec<u8> {
    vec![number as u8; LEN.next_multiple_of(SECTOR) as usize]
}

#[test]
fn moved_chunks_are_used_once_the_table_says_so() {
    let vdevs = [plain(0, 64 * REGION), plain(GOES.0, 32 * REGION)];
    let memory = Memory::new(&vdevs);
    let space = Space::create(SECTOR, REGION, &vdevs);
    let mut txg = Txg(1);
    let mut commit = || {
        let root = space.sync(txg, &memory).unwrap();
        space.committed(txg);
        txg = txg.next();
        (root, txg)
    };
    let allocate = |txg| space.allocate(txg, Class::Data, LEN, 1, &memory).map(|allocated| allocated.addresses[0]);
    let blocks: Vec<Address> = (0..600).map(|_| allocate(Txg(1)).unwrap()).collect();
    for (number, address) in (0..).zip(&blocks) {
        let (vdev, offset) = space.resolve(*address, LEN).unwrap();
        memory.write(vdev, offset, &stamp(number)).unwrap();
    }
    commit();
    let on_it = |address: &Address| space.resolve(*address, LEN).unwrap().0 == GOES;
    let moving: BTreeSet<ChunkId> = blocks.iter().filter(|address| on_it(address)).map(|a| a.chunk).collect();
    assert!(!moving.is_empty() && !space.has_left(&ALL));
    space.close(&ALL);
    assert!((0..20).any(|_| {
        commit();
        space.has_left(&ALL)
    }));
    assert_eq!(space.moving_plan(&ALL, &Targets::Anywhere).needed as usize, moving.len());
    space.pair(&ALL, &Targets::Anywhere, Packs::Never).unwrap();
    for (number, address) in (0..).zip(&blocks).filter(|(_, address)| on_it(address)) {
        let (vdev, offset) = space.twin(*address, LEN).unwrap().unwrap();
        assert_eq!(vdev, VdevId(0));
        memory.write(vdev, offset, &stamp(number)).unwrap();
    }
    let twins = blocks.iter().filter_map(|address| space.twin(*address, LEN).unwrap());
    let copies: BTreeSet<u64> = twins.map(|(_, offset)| offset / REGION).collect();
    let trim = || {
        let discarded = RefCell::new(BTreeSet::new());
        let note = |vdev: VdevId, offset: u64, _: u64| {
            discarded.borrow_mut().insert((vdev, offset / REGION));
            Ok(())
        };
        for vdev in (0..4).map(VdevId) {
            space.trim(&memory, (TrimWhat::Vdev(vdev), TrimCursor::default()), (1, u64::MAX), &note).unwrap();
        }
        discarded.into_inner()
    };
    let is_needed = |(vdev, region): &(VdevId, u64)| *vdev == GOES || copies.contains(region);
    let discarded = trim();
    assert!(!discarded.is_empty() && !discarded.iter().any(is_needed), "copies, or what older states have");
    let (before, open) = commit();
    assert!(space.switch(open, &memory).unwrap());
    assert!(!trim().iter().any(is_needed), "what one of the two tables says");
    assert!(!blocks.iter().any(on_it) && space.is_switching());
    // The group before has no table with the new places; until one is committed nothing is allocated there.
    space.settle_moves(open.back(1));
    assert!(space.is_switching());
    let taken: Vec<Address> = std::iter::from_fn(|| allocate(open).ok()).collect();
    assert!(taken.len() > 100 && taken.iter().all(|address| !moving.contains(&address.chunk)));
    taken.iter().for_each(|address| space.free(open, *address, LEN).unwrap());
    let (after, open) = commit();
    assert!(!space.is_switching());
    let taken: Vec<Address> = std::iter::from_fn(|| allocate(open).ok()).collect();
    assert!(taken.iter().any(|address| moving.contains(&address.chunk)), "their free sectors are used again");
    assert_eq!(space.last_arrival(VdevId(0)), open.back(1));
    // Freed space is deferred there for a while; then the device is no longer needed.
    let mut last = (before.clone(), open);
    assert!((0..5).any(|_| {
        last = commit();
        space.is_vacated(&ALL)
    }));
    let (last, newest) = (last.0, last.1.back(1));
    let (moved, unmoved) = (open.back(1), open.back(2));
    let both = &vdevs[..];
    for (root, txg, vdevs, is_whole) in
        [(&after, moved, both, true), (&last, newest, &both[..1], true), (&before, unmoved, &both[..1], false)]
    {
        let found = Space::open(root, SECTOR, REGION, vdevs, txg, &memory);
        assert_eq!(found.is_ok(), is_whole, "{txg}");
        let Ok(found) = found else { continue };
        for (number, address) in (0..).zip(&blocks) {
            let (vdev, offset) = found.resolve(*address, LEN).unwrap();
            let mut bytes = stamp(255);
            memory.read(vdev, offset, &mut bytes, &|_| true).unwrap();
            assert!(bytes == stamp(number), "block {number}");
        }
        assert_eq!(found.highest_vdev(), Some(GOES));
    }
    space.forget_vdev(GOES);
    assert_eq!((space.totals().vdevs.len(), space.highest_vdev()), (1, Some(GOES)));
}

/// A space with blocks of known content, and its committed states.
struct Lab {
    shapes: Vec<VdevShape>,
    memory: Memory,
    space: Space,
    blocks: Vec<Address>,
    /// Oldest first.
    states: Vec<(Txg, SpaceRoot)>,
}

impl Lab {
    fn new(shapes: &[VdevShape]) -> Lab {
        let (memory, space) = (Memory::new(shapes), Space::create(SECTOR, REGION, shapes));
        let allocate = |_| space.allocate(Txg(1), Class::Data, LEN, 1, &memory).unwrap().addresses[0];
        let blocks: Vec<Address> = (0..600).map(allocate).collect();
        let mut lab = Lab { shapes: shapes.to_vec(), memory, space, blocks, states: Vec::new() };
        for (number, address) in (0..).zip(&lab.blocks) {
            let (vdev, offset) = lab.space.resolve(*address, LEN).unwrap();
            lab.memory.write(vdev, offset, &stamp(number)).unwrap();
        }
        lab.commit();
        lab
    }

    fn open_txg(&self) -> Txg {
        self.states.last().map_or(Txg(1), |(txg, _)| txg.next())
    }

    fn commit(&mut self) {
        self.commit_as(self.open_txg());
    }

    fn commit_as(&mut self, txg: Txg) {
        self.states.push((txg, self.space.sync(txg, &self.memory).unwrap()));
        self.space.committed(txg);
    }

    /// Empties regions up to the change of places.
    fn move_off(&mut self, regions: &Regions, to: &Targets) {
        self.space.close(regions);
        assert!((0..30).any(|_| {
            self.commit();
            self.space.has_left(regions)
        }));
        self.space.pair(regions, to, Packs::Never).unwrap();
        for (number, address) in (0..).zip(&self.blocks) {
            if let Some((vdev, offset)) = self.space.twin(*address, LEN).unwrap() {
                self.memory.write(vdev, offset, &stamp(number)).unwrap();
            }
        }
        assert!(self.space.switch(self.open_txg(), &self.memory).unwrap());
    }

    /// The space as imported after a power failure.
    fn imported(&self) -> Lab {
        let (txg, root) = self.states.last().unwrap();
        let memory = self.memory.duplicate();
        let space = Space::open(root, SECTOR, REGION, &self.shapes, *txg, &memory).unwrap();
        let (blocks, states) = (self.blocks.clone(), self.states.clone());
        Lab { shapes: self.shapes.clone(), memory, space, blocks, states }
    }

    /// Allocates all space available to data, overwrites it and frees it. Returns the places.
    fn scribble(&self) -> BTreeSet<(VdevId, u32)> {
        let txg = self.open_txg();
        let allocate = || self.space.allocate(txg, Class::Data, LEN, 1, &self.memory).ok();
        let taken: Vec<Address> = std::iter::from_fn(allocate).map(|allocated| allocated.addresses[0]).collect();
        let places = taken.iter().map(|address| self.space.resolve(*address, LEN).unwrap());
        let places: BTreeSet<(VdevId, u64)> = places.collect();
        for (vdev, offset) in &places {
            self.memory.write(*vdev, *offset, &stamp(255)).unwrap();
        }
        taken.iter().for_each(|address| self.space.free(txg, *address, LEN).unwrap());
        places.into_iter().map(|(vdev, offset)| (vdev, (offset / REGION) as u32)).collect()
    }

    /// Checks that every block of the states kept for a rewind is at its place.
    fn judge(&self, what: &str) {
        for (txg, root) in self.states.iter().rev().take(SAFE_STATES) {
            let found = Space::open(root, SECTOR, REGION, &self.shapes, *txg, &self.memory);
            let found = found.unwrap_or_else(|error| panic!("{what}, state {txg}: {error}"));
            for (number, address) in (0..).zip(&self.blocks) {
                let (vdev, offset) = found.resolve(*address, LEN).unwrap();
                let mut bytes = stamp(255);
                self.memory.read(vdev, offset, &mut bytes, &|_| true).unwrap();
                assert!(bytes == stamp(number), "{what}: block {number} in state {txg}");
            }
        }
    }

    fn allocated_in(&self, regions: &Regions) -> u32 {
        self.space.moving_plan(regions, &Targets::Anywhere).needed
    }
}

/// Empties regions and takes them back, and uses all free space at every commit, in the running space and in a freshly
/// imported copy. Returns after how many commits the first region was written to again.
fn used_again_after(shapes: &[VdevShape], regions: &Regions, to: &Targets) -> usize {
    let mut lab = Lab::new(shapes);
    let size = lab.space.totals().size;
    assert!(lab.allocated_in(regions) > 3);
    lab.move_off(regions, to);
    assert!(!lab.space.reopen(regions), "no table says yet where the chunks are");
    lab.judge("changed, and not committed");
    lab.imported().judge("power has failed before the commit");
    let mut used = None;
    for commits in 1..8 {
        lab.commit();
        assert_eq!(lab.allocated_in(regions), 0);
        assert!(lab.space.reopen(regions));
        let totals = lab.space.totals();
        assert_eq!(totals.size, totals.allocated + totals.deferred + totals.free, "after {commits}");
        let other = lab.imported();
        let is_there = |(vdev, region): &(VdevId, u32)| regions.contains(*vdev, *region);
        let (here, there) = (lab.scribble().iter().any(is_there), other.scribble().iter().any(is_there));
        assert_eq!(here, there, "an import changes nothing about it, after {commits}");
        lab.judge(&format!("after {commits}"));
        other.judge(&format!("opened after {commits}"));
        if here {
            used = used.or(Some(commits));
            assert_eq!(totals.size, size);
            break;
        }
    }
    used.expect("the regions are used again")
}

#[test]
fn regions_are_reused_when_no_safe_state_refers_to_them() {
    let (one, other) = (plain(0, 96 * REGION), plain(1, 96 * REGION));
    assert_eq!(used_again_after(&[one], &Regions::Range(VdevId(0), 0..10), &Targets::Anywhere), SAFE_STATES);
    let these = Regions::These([(GOES, 0), (GOES, 1), (GOES, 3), (VdevId(0), 2), (VdevId(0), 5)].into());
    assert_eq!(used_again_after(&[one, other], &these, &Targets::Vdevs([VdevId(0)].into())), SAFE_STATES);
}

#[test]
fn closed_regions_stay_closed_when_what_lies_there_has_rested() {
    let mut lab = Lab::new(&[plain(0, 96 * REGION)]);
    let regions = Regions::Range(VdevId(0), 0..20);
    lab.move_off(&regions, &Targets::Anywhere);
    (0..=SAFE_STATES).for_each(|_| lab.commit());
    assert!(lab.space.is_vacated(&regions));
    let totals = lab.space.totals();
    assert_eq!(totals.size, 76 * REGION);
    assert_eq!(totals.size, totals.allocated + totals.deferred + totals.free);
    assert!(!lab.scribble().iter().any(|(vdev, region)| regions.contains(*vdev, *region)));
    lab.judge("closed");
}

#[test]
fn chunks_rest_from_the_commit_on_that_stores_their_places() {
    let mut lab = Lab::new(&[plain(0, 96 * REGION)]);
    let regions = Regions::Range(VdevId(0), 0..10);
    lab.move_off(&regions, &Targets::Anywhere);
    // The next table belongs to a later group.
    let late = lab.open_txg().next();
    lab.commit_as(late);
    assert!(lab.space.reopen(&regions));
    let arrived: BTreeSet<Txg> = lab.blocks.iter().map(|address| lab.space.arrived(*address)).collect();
    assert_eq!(arrived, [Txg::ZERO, late].into());
}
