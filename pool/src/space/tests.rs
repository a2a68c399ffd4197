//! The space layer against a plain model, through crashes.
//!
//! The model is the list of all blocks ever allocated, with the groups in which they were born and died. Every block's
//! content is stamped on a device in memory, so that anything overwritten too early shows when a state that refers to
//! it is checked. A crash is opening one of the last [`SAFE_STATES`] committed roots on the
//! devices as they are by then.
//!
//! The devices write several sectors together, each as many as its unit. They refuse what begins inside a unit, and what
//! is written to a unit that somebody has: so no two writes ever share one.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Mutex, RwLock};
use proptest::prelude::*;
use rand::{
    Rng, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};

use super::{chunk::Standing, packing::Packer, *};
use crate::{
    error::Error,
    format::{codec::Reader, label::classes::VdevClass, space::Place},
    units::KIB,
    vdev::Check,
};

const SECTOR: u32 = 512;
const REGION: u64 = 64 * KIB;

/// A device that writes sector by sector.
pub(super) fn plain(vdev: u32, size: u64) -> VdevShape {
    VdevShape { vdev: VdevId(vdev), first_region: 0, size, unit: 1, class: None }
}

/// Devices in memory.
pub(super) struct Memory(BTreeMap<VdevId, Rows>);

/// A device in memory that writes whole units.
struct Rows {
    bytes: Mutex<Vec<u8>>,
    /// In sectors.
    unit: u32,
    /// The units that were written, by region and number, since they were free.
    written: Mutex<BTreeSet<(u64, u64)>>,
}

impl Rows {
    fn new(shape: &VdevShape) -> Rows {
        let bytes = Mutex::new(vec![0; shape.size as usize]);
        Rows { bytes, unit: shape.unit, written: Mutex::default() }
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Vec<u8>> {
        self.bytes.lock()
    }

    /// The units of some bytes of one region, and where the last one ends.
    fn units(&self, offset: u64, len: u64) -> (Vec<(u64, u64)>, u64) {
        let unit = u64::from(self.unit * SECTOR);
        let (region, at) = (offset / REGION, offset % REGION);
        assert!(at.is_multiple_of(unit), "a write begins inside a unit");
        let end = (at + len).next_multiple_of(unit);
        assert!(end <= REGION || self.unit == 1, "a write goes beyond its region");
        ((at / unit..end / unit).map(|number| (region, number)).collect(), region * REGION + end)
    }
}

impl Memory {
    pub(super) fn new(vdevs: &[VdevShape]) -> Memory {
        Memory(vdevs.iter().map(|shape| (shape.vdev, Rows::new(shape))).collect())
    }

    /// Other devices with the same content, of units of one sector.
    pub(super) fn duplicate(&self) -> Memory {
        let copy = |rows: &Rows| Rows { bytes: Mutex::new(rows.lock().clone()), unit: 1, written: Mutex::default() };
        Memory(self.0.iter().map(|(vdev, rows)| (*vdev, copy(rows))).collect())
    }

    /// Says that some sectors are free, or with `written` that they are not.
    fn mark(&self, space: &Space, extent: &Extent, written: bool) {
        if space.layout.load().chunks[extent.chunk.0 as usize].is_packed() {
            // It has no place of its own.
            return;
        }
        let address = Address { chunk: extent.chunk, sector: extent.sector };
        let (vdev, offset) = space.resolve(address, extent.sectors * SECTOR).unwrap();
        let rows = &self.0[&vdev];
        let (units, end) = rows.units(offset, u64::from(extent.sectors * SECTOR));
        assert_eq!(end, offset + u64::from(extent.sectors * SECTOR), "part of a unit is freed");
        let mut known = rows.written.lock();
        for unit in units {
            if written {
                known.insert(unit)
            } else {
                known.remove(&unit)
            };
        }
    }
}

impl SpaceIo for Memory {
    fn read(&self, vdev: VdevId, offset: u64, buffer: &mut [u8], _: Check<'_>) -> Result<()> {
        let device = self.0[&vdev].lock();
        buffer.copy_from_slice(&device[offset as usize..offset as usize + buffer.len()]);
        Ok(())
    }

    fn write(&self, vdev: VdevId, offset: u64, bytes: &[u8]) -> Result<()> {
        assert!(offset.is_multiple_of(u64::from(SECTOR)) && bytes.len().is_multiple_of(SECTOR as usize));
        let rows = &self.0[&vdev];
        let (units, end) = rows.units(offset, bytes.len() as u64);
        let mut written = rows.written.lock();
        assert!(rows.unit == 1 || units.into_iter().all(|unit| written.insert(unit)), "a unit is written again");
        let mut device = rows.lock();
        device[offset as usize..end as usize].fill(0);
        device[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// One copy of a block.
#[derive(Clone, Debug)]
struct Block {
    extent: Extent,
    bytes: u32,
    stamp: u64,
    born: Txg,
    died: Option<Txg>,
}

impl Block {
    fn lives_at(&self, txg: Txg) -> bool {
        self.born <= txg && self.died.is_none_or(|died| died > txg)
    }
}

struct Simulation {
    random: StdRng,
    vdevs: Vec<VdevShape>,
    memory: Memory,
    space: Space,
    blocks: Vec<Block>,
    /// Sectors that nobody else may get.
    taken: BTreeSet<(ChunkId, u32)>,
    /// The last [`SAFE_STATES`] commits.
    commits: VecDeque<(Txg, SpaceRoot)>,
    /// The group that will be synced next; the one after it takes changes already.
    txg: Txg,
    stamps: u64,
    /// Chunks are packed now and then.
    packs: bool,
    packed: u32,
}

impl Simulation {
    fn new(seed: u64, units: &[u32]) -> Simulation {
        let shape = |(id, &unit): (u32, &u32)| {
            // What a pool of large units has is larger as well: so many devices of the smallest size make one, and what is kept
            // for the space layer has room for as many units as there.
            let regions = (12 + 4 * u64::from(id)) * u64::from(unit);
            VdevShape { unit, ..plain(id, regions * REGION + 1000) }
        };
        Simulation::of(seed, (0..).zip(units).map(shape).collect())
    }

    fn of(seed: u64, vdevs: Vec<VdevShape>) -> Simulation {
        Simulation {
            random: StdRng::seed_from_u64(seed),
            memory: Memory::new(&vdevs),
            space: Space::create(SECTOR, REGION, &vdevs),
            vdevs,
            blocks: Vec::new(),
            taken: BTreeSet::new(),
            commits: VecDeque::new(),
            txg: Txg(1),
            stamps: 0,
            packs: false,
            packed: 0,
        }
    }

    /// One whose chunks are packed now and then.
    fn packing(seed: u64, units: &[u32]) -> Simulation {
        Simulation { packs: true, ..Simulation::new(seed, units) }
    }

    /// Packs some chunks in which nobody allocates and none of the space layer's own blocks is.
    fn pack(&mut self) {
        let layout = self.space.layout.load_full();
        let own: BTreeSet<ChunkId> = self.space.own_extents().unwrap().into_iter().map(|extent| extent.chunk).collect();
        let is_source = |chunk: &&Arc<chunk::Chunk>| {
            chunk.standing() == Standing::Open
                && !chunk.active_hint()
                && chunk.allocated() > 0
                && !own.contains(&chunk.id)
        };
        let mut all: Vec<ChunkId> = layout.chunks.iter().filter(is_source).map(|chunk| chunk.id).collect();
        all.shuffle(&mut self.random);
        all.truncate(self.random.random_range(1..4));
        let close = |id: &ChunkId| {
            let chunk = &layout.chunks[id.0 as usize];
            let vdev = layout.vdevs.iter().find(|vdev| vdev.id == chunk.vdev()).unwrap();
            chunk.set_standing(Standing::Closed, layout.counted(vdev, Standing::Closed));
        };
        all.iter().for_each(close);
        if !self.try_pack(&all, &layout) {
            all.iter().for_each(|id| layout.let_stand(&layout.chunks[id.0 as usize]));
        }
    }

    fn try_pack(&mut self, all: &[ChunkId], layout: &layout::Layout) -> bool {
        let packer = Packer::new(all.iter().copied().collect(), Targets::Anywhere, Packs::IfNeeded);
        let left_out = self.random.random_bool(0.1);
        if !self.copy_to_hosts(&packer, layout, left_out) {
            self.give_up(&packer, layout);
            return false;
        }
        // Of what has been copied some is freed.
        (0..self.random.random_range(0..3)).for_each(|_| self.free(self.txg));
        let packed = self.space.pack(&packer, &mut self.space.stored.lock(), self.txg, &self.memory);
        match packed {
            Ok(true) => {
                self.mark_hosts(&packer);
                // One that has become empty stays where it is.
                let kept = all.iter().map(|id| &layout.chunks[id.0 as usize]).filter(|chunk| !chunk.is_packed());
                let kept = kept.inspect(|chunk| layout.let_stand(chunk)).count();
                self.packed += (all.len() - kept) as u32;
                return true;
            }
            Ok(false) => assert!(left_out, "all was copied"),
            Err(Error::OutOfSpace) => {}
            Err(error) => panic!("{error}"),
        }
        self.give_up(&packer, layout);
        false
    }

    /// Copies what is in the chunks that are emptied, or with `left_out` not all of it. False if there is no room.
    fn copy_to_hosts(&mut self, packer: &Packer, layout: &layout::Layout, mut left_out: bool) -> bool {
        let mut live: Vec<Block> = self.blocks.iter().filter(|block| block.died.is_none()).cloned().collect();
        live.shuffle(&mut self.random);
        for block in live {
            let address = Address { chunk: block.extent.chunk, sector: block.extent.sector };
            let (chunk, span) = layout.locate(address, block.bytes).unwrap();
            let (host, _) = layout.seat(chunk, span).unwrap();
            if !packer.empties(host.id) || std::mem::take(&mut left_out) {
                continue;
            }
            let (to, sector) = match packer.place(layout, chunk, span) {
                Ok(found) => found,
                Err(Error::OutOfSpace) => return false,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(packer.place(layout, chunk, span).unwrap().1, sector);
            let part = Span::new(span.start, span.len + chunk.unit);
            assert!(packer.place(layout, chunk, part).is_err(), "a part of it has a place");
            let place = layout.place(&to, sector);
            let content = block.stamp.to_le_bytes().repeat(SECTOR as usize / 8 * block.bytes.div_ceil(SECTOR) as usize);
            self.memory.write(place.vdev, place.offset, &content).unwrap();
        }
        true
    }

    /// Of what was copied to hosts some was not needed in the end: that is free.
    fn mark_hosts(&self, packer: &Packer) {
        let layout = self.space.layout.load();
        let disk = Disk { layout: &layout, io: &self.memory };
        for chunk in packer.hosts().iter().map(|id| &layout.chunks[id.0 as usize]) {
            let (vdev, region) = chunk.seat();
            self.memory.0[&vdev].written.lock().retain(|unit| unit.0 != u64::from(region));
            let live = chunk.live(&disk).unwrap();
            live.into_iter().for_each(|span| self.memory.mark(&self.space, &extent(chunk.id, span), true));
        }
    }

    fn give_up(&mut self, packer: &Packer, layout: &layout::Layout) {
        let hosts = packer.hosts();
        packer.give_up(layout);
        for id in hosts {
            let (vdev, region) = layout.chunks[id.0 as usize].seat();
            self.memory.0[&vdev].written.lock().retain(|unit| unit.0 != u64::from(region));
        }
    }

    fn step(&mut self, pressure: u32) {
        if self.packs && self.random.random_bool(0.3) {
            self.pack();
            let live = self.blocks.iter().filter(|block| block.died.is_none());
            live.for_each(|block| self.check_content(&self.space, block));
        }
        for _ in 0..self.random.random_range(0..60) {
            let txg = if self.random.random_bool(0.3) { self.txg.next() } else { self.txg };
            match self.random.random_range(0..100) {
                choice if choice < pressure => self.allocate(txg),
                _ => self.free(txg),
            }
        }
        self.sync();
        self.check();
        if self.random.random_bool(0.15) {
            self.crash();
            self.check();
        }
    }

    fn allocate(&mut self, txg: Txg) {
        let class = if self.random.random_bool(0.3) { Class::Metadata } else { Class::Data };
        let copies = self.random.random_range(1..=3);
        let count = if self.random.random_bool(0.2) { self.random.random_range(2..8) } else { 1 };
        let each: Vec<u32> = (0..count).map(|_| self.random.random_range(1..9000)).collect();
        let allocated = match count {
            1 => self.space.allocate(txg, class, each[0], copies, &self.memory).map(|one| vec![one]),
            _ => self.space.allocate_run(txg, class, &each, copies, &self.memory),
        };
        match allocated {
            Ok(allocated) => {
                for (allocation, bytes) in allocated.into_iter().zip(each) {
                    assert_eq!(allocation.copies, copies);
                    allocation.addresses().iter().for_each(|&address| self.born(txg, address, bytes));
                }
            }
            Err(Error::OutOfSpace) => assert!(self.space.largest_piece(class) <= u32::MAX / 2),
            Err(error) => panic!("{error}"),
        }
    }

    fn born(&mut self, txg: Txg, address: Address, bytes: u32) {
        let (vdev, offset) = self.space.resolve(address, bytes).unwrap();
        let unit = self.memory.0[&vdev].unit;
        let sectors_of = bytes.div_ceil(SECTOR);
        let extent =
            Extent { chunk: address.chunk, sector: address.sector, sectors: sectors_of.next_multiple_of(unit) };
        for sector in sectors(extent) {
            assert!(self.taken.insert(sector), "{sector:?} is allocated twice");
        }
        self.stamps += 1;
        let content = self.stamps.to_le_bytes().repeat(SECTOR as usize / 8 * sectors_of as usize);
        self.memory.write(vdev, offset, &content).unwrap();
        self.blocks.push(Block { extent, bytes, stamp: self.stamps, born: txg, died: None });
    }

    fn free(&mut self, txg: Txg) {
        let live: Vec<usize> =
            (0..self.blocks.len()).filter(|&i| self.blocks[i].died.is_none() && self.blocks[i].born <= txg).collect();
        let Some(&index) = live.choose(&mut self.random) else { return };
        let Block { extent: Extent { chunk, sector, .. }, bytes, .. } = self.blocks[index];
        self.space.free(txg, Address { chunk, sector }, bytes).unwrap();
        self.blocks[index].died = Some(txg);
    }

    fn sync(&mut self) {
        let root = match self.space.sync(self.txg, &self.memory) {
            Ok(root) => root,
            Err(error) => panic!("{error} with {:?}", self.space.totals()),
        };
        self.check_state(&self.space);
        let mut coded = Vec::new();
        root.encode(&mut coded);
        assert_eq!(SpaceRoot::decode(&mut Reader::new(&coded)).unwrap(), root);
        let released = self.space.committed(self.txg);
        released.iter().for_each(|extent| self.memory.mark(&self.space, extent, false));
        let released: BTreeSet<_> = released.into_iter().flat_map(sectors).collect();
        self.commits.push_back((self.txg, root));
        if self.commits.len() > SAFE_STATES {
            self.commits.pop_front();
        }
        let oldest = self.commits[0].0;
        if self.commits.len() == SAFE_STATES {
            for block in self.blocks.extract_if(.., |block| block.died.is_some_and(|died| died <= oldest)) {
                for sector in sectors(block.extent) {
                    assert!(released.contains(&sector) || !self.taken.contains(&sector), "{sector:?} is not released");
                    self.taken.remove(&sector);
                }
            }
        }
        assert!(released.iter().all(|sector| !self.taken.contains(sector)), "released what is in use");
        self.txg = self.txg.next();
    }

    /// The newest committed state, of the running space.
    fn check(&self) {
        let totals = self.space.totals();
        assert_eq!(totals.size, totals.allocated + totals.deferred + totals.free);
        self.check_state(&self.space);
        let (txg, root) = self.commits.back().unwrap();
        let opened = self.open(*txg, root);
        let own: BTreeSet<_> = opened.own_extents().unwrap().into_iter().collect();
        assert_eq!(own, self.space.own_extents().unwrap().into_iter().collect());
        assert_eq!(
            opened.allocated_extents(&self.memory).unwrap(),
            self.space.allocated_extents(&self.memory).unwrap()
        );
        assert!(self.space.stored.lock().log.len() < 80, "the log is not bounded");
    }

    /// What the last synced group says is allocated is what lives and what the space layer needs itself.
    fn check_state(&self, space: &Space) {
        let txg = space.stored.lock().txg;
        let mut expected: BTreeSet<_> = space.own_extents().unwrap().into_iter().flat_map(sectors).collect();
        let mut hosted = 0;
        for block in self.blocks.iter().filter(|block| block.lives_at(txg)) {
            expected.extend(sectors(block.extent));
            self.check_content(space, block);
            hosted += self.expect_hosted(space, block, &mut expected);
        }
        let Hosted { hosts, lost } = space.hosted_extents(&self.memory).unwrap();
        let told: u64 = hosts.iter().map(|extent| u64::from(extent.sectors)).sum();
        assert_eq!((told, lost), (hosted, Vec::new()));
        let found: BTreeSet<_> = space.allocated_extents(&self.memory).unwrap().into_iter().flat_map(sectors).collect();
        assert_eq!(found, expected, "at {txg}");
    }

    /// Adds what a block of a packed chunk takes in its host, by where it is found, and returns how many sectors that are.
    fn expect_hosted(&self, space: &Space, block: &Block, expected: &mut BTreeSet<(ChunkId, u32)>) -> u64 {
        let layout = space.layout.load();
        if !layout.chunks[block.extent.chunk.0 as usize].is_packed() {
            return 0;
        }
        let address = Address { chunk: block.extent.chunk, sector: block.extent.sector };
        let (vdev, offset) = space.resolve(address, block.bytes).unwrap();
        let Address { chunk, sector } = layout.address(Place { vdev, offset }).unwrap();
        let sectors_of = block.extent.sectors.next_multiple_of(self.memory.0[&vdev].unit);
        for sector in sectors(Extent { chunk, sector, sectors: sectors_of }) {
            assert!(expected.insert(sector), "two blocks are at {sector:?}");
        }
        sectors_of.into()
    }

    fn check_content(&self, space: &Space, block: &Block) {
        let Extent { chunk, sector, .. } = block.extent;
        let (vdev, offset) = space.resolve(Address { chunk, sector }, block.bytes).unwrap();
        let mut content = vec![0; block.bytes.next_multiple_of(SECTOR) as usize];
        self.memory.read(vdev, offset, &mut content, &|_| true).unwrap();
        assert!(content.chunks(8).all(|word| word == block.stamp.to_le_bytes()), "{block:?} is overwritten");
    }

    fn open(&self, txg: Txg, root: &SpaceRoot) -> Space {
        Space::open(root, SECTOR, REGION, &self.vdevs, txg, &self.memory).unwrap()
    }

    /// Goes back to one of the last commits; the transaction groups go on above all that were used.
    fn crash(&mut self) {
        let back = self.random.random_range(1..=self.commits.len());
        self.commits.truncate(back);
        let (txg, root) = self.commits.back().cloned().unwrap();
        self.space = self.open(txg, &root);
        self.blocks.retain(|block| block.born <= txg);
        for block in &mut self.blocks {
            block.died = block.died.filter(|&died| died <= txg);
        }
        self.taken = self.blocks.iter().flat_map(|block| sectors(block.extent)).collect();
        self.memory.0.values().for_each(|rows| rows.written.lock().clear());
        let kept = self.space.allocated_extents(&self.memory).unwrap();
        kept.iter().for_each(|extent| self.memory.mark(&self.space, extent, true));
        let expected: u64 = root.allocated * u64::from(SECTOR);
        assert_eq!(self.space.totals().allocated, expected);
        self.txg = Txg(self.txg.0 + self.random.random_range(2..5));
    }
}

fn sectors(extent: Extent) -> impl Iterator<Item = (ChunkId, u32)> {
    (extent.sector..extent.sector + extent.sectors).map(move |sector| (extent.chunk, sector))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn keeps_every_promise_through_crashes(seed: u64, vdevs in 1usize..4, pressure in 45u32..80) {
        let mut simulation = Simulation::new(seed, &vec![1; vdevs]);
        for _ in 0..60 {
            simulation.step(pressure);
        }
    }

    #[test]
    fn keeps_them_where_sectors_are_written_together(
        seed: u64,
        units in prop::collection::vec(1u32..8, 1..4),
        pressure in 45u32..80,
    ) {
        let mut simulation = Simulation::new(seed, &units);
        for _ in 0..60 {
            simulation.step(pressure);
        }
    }
}

#[test]
fn what_shortens_the_log_leaves_room_for_the_log() {
    // Pools that are full up to the last resort when the log is long: all that is freed then waits for older states.
    for seed in [174, 419, 489] {
        let mut simulation = Simulation::new(seed, &[7]);
        let (mut were_tight, mut longest) = (0, 0);
        for _ in 0..60 {
            simulation.step(79);
            let (totals, log) = (simulation.space.totals(), simulation.space.stored.lock().log.len());
            were_tight += u32::from(totals.free < totals.last_resort / 2);
            longest = longest.max(log);
        }
        assert!(were_tight > 0 && longest > 16, "{seed} does not show it: {were_tight}, {longest}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]
    #[test]
    fn keeps_them_where_devices_are_for_something(
        seed: u64,
        classes in prop::collection::vec(0u8..3, 0..3),
        pressure in 45u32..80,
    ) {
        let shape = |(id, code): (u32, u8)| VdevShape { class: VdevClass::from_code(code), ..plain(id, 12 * REGION) };
        let mut simulation = Simulation::of(seed, (0..).zip([0].into_iter().chain(classes)).map(shape).collect());
        for _ in 0..60 {
            simulation.step(pressure);
        }
    }
}

/// Lives of a pool whose chunks are packed, on devices that write so many sectors together: returns how many were.
fn packed_in(units: &[u32], seeds: std::ops::Range<u64>) -> u32 {
    let life = |seed| {
        let mut simulation = Simulation::packing(seed, units);
        (0..60).for_each(|step| simulation.step(if step < 20 { 60 } else { 48 }));
        simulation.packed
    };
    seeds.map(life).sum()
}

#[test]
fn chunks_are_packed_through_crashes() {
    let alike = packed_in(&[1, 1], 0..5);
    let unlike = packed_in(&[1, 3], 0..5) + packed_in(&[4, 2], 0..3);
    assert!(alike > 5 && unlike > 5, "{alike} and {unlike} chunks were packed");
}

fn one_device(regions: u64) -> (Space, Memory) {
    one_device_in(regions, 1)
}

/// One device that writes so many sectors together.
fn one_device_in(regions: u64, unit: u32) -> (Space, Memory) {
    let vdevs = [VdevShape { unit, ..plain(0, regions * REGION) }];
    (Space::create(SECTOR, REGION, &vdevs), Memory::new(&vdevs))
}

#[test]
fn a_full_pool_refuses_data_but_can_be_emptied() {
    [1, 3, 7].into_iter().for_each(fill_and_empty);
}

/// Tells that a group is committed, and the devices what is free again.
fn committed(space: &Space, txg: Txg, memory: &Memory) {
    space.committed(txg).iter().for_each(|extent| memory.mark(space, extent, false));
}

fn fill_and_empty(unit: u32) {
    let (space, memory) = one_device_in(64, unit);
    let mut txg = Txg(1);
    let mut data = VecDeque::new();
    loop {
        match space.allocate(txg, Class::Data, 4096, 1, &memory) {
            Ok(allocation) => data.push_back(allocation.addresses[0]),
            Err(Error::OutOfSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    let least = 4096 / SECTOR * SECTOR.next_multiple_of(unit * SECTOR);
    assert!((space.slop()..space.slop() + u64::from(least)).contains(&space.totals().free));
    assert!(unit > 1 || space.totals().free_for(Class::Data) == 0 && space.largest_piece(Class::Data) == 0);
    assert!(space.largest_piece(Class::Data) < 4096);
    let whole = REGION as u32 / SECTOR / unit * unit * SECTOR;
    assert!(space.largest_piece(Class::Metadata) >= whole);
    // Four groups of it have to find room in a quarter of a very small pool.
    let churned = 8192 / unit.next_power_of_two();
    while !data.is_empty() {
        for address in data.drain(..data.len().min(10)) {
            space.free(txg, address, 4096).unwrap();
            let churn = space.allocate(txg, Class::Metadata, churned, 2, &memory).unwrap();
            churn.addresses().iter().for_each(|&address| space.free(txg, address, churned).unwrap());
        }
        space.sync(txg, &memory).unwrap();
        committed(&space, txg, &memory);
        txg = txg.next();
    }
    for _ in 0..SAFE_STATES {
        space.sync(txg, &memory).unwrap();
        committed(&space, txg, &memory);
        txg = txg.next();
    }
    assert!(space.totals().allocated < 20 * REGION * u64::from(unit.isqrt()));
    space.allocate(txg, Class::Data, 4096, 1, &memory).unwrap();
}

#[test]
fn metadata_uses_all_but_the_last_resort() {
    [1, 3, 7].into_iter().for_each(use_all_but_the_last_resort);
}

fn use_all_but_the_last_resort(unit: u32) {
    let (space, memory) = one_device_in(16, unit);
    assert_eq!(space.totals().last_resort, REGION);
    for _ in 0..space.totals().free_for(Class::Metadata) / u64::from(unit * SECTOR) {
        space.allocate(Txg(1), Class::Metadata, 1, 1, &memory).unwrap();
    }
    assert!(matches!(space.allocate(Txg(1), Class::Metadata, 1, 1, &memory), Err(Error::OutOfSpace)));
    assert_eq!(space.largest_piece(Class::Metadata), 0);
    space.sync(Txg(1), &memory).unwrap();
}

/// Allocates blocks of one sector for metadata until there is no room.
fn fill_with_sectors(space: &Space, txg: Txg, memory: &Memory) -> Vec<Address> {
    std::iter::from_fn(|| match space.allocate(txg, Class::Metadata, 1, 1, memory) {
        Ok(allocation) => Some(allocation.addresses[0]),
        Err(Error::OutOfSpace) => None,
        Err(error) => panic!("{error}"),
    })
    .collect()
}

#[test]
fn groups_are_stored_where_no_two_sectors_in_a_row_are_free() {
    [1, 3].into_iter().for_each(break_up);
}

fn break_up(unit: u32) {
    let vdevs = [VdevShape { unit, ..plain(0, 64 * REGION) }];
    let (space, memory) = one_device_in(64, unit);
    let mut txg = Txg(1);
    let sync = |space: &Space, txg: &mut Txg| {
        let root =
            space.sync(*txg, &memory).unwrap_or_else(|error| panic!("{error} in {txg} with {:?}", space.totals()));
        let opened = Space::open(&root, SECTOR, REGION, &vdevs, *txg, &memory).unwrap();
        assert_eq!(opened.allocated_extents(&memory).unwrap(), space.allocated_extents(&memory).unwrap());
        committed(space, *txg, &memory);
        *txg = txg.next();
    };
    let mut blocks = Vec::new();
    for round in 0..60 {
        blocks.extend(fill_with_sectors(&space, txg, &memory));
        // Now and then every second one goes, and what is between them stays: more and more in every chunk, until the
        // space layer's own has been broken up as well.
        if round % 4 == 0 {
            let (gone, stay): (Vec<_>, Vec<_>) =
                blocks.into_iter().partition(|address| (address.sector / unit).is_multiple_of(2));
            gone.into_iter().for_each(|address| space.free(txg, address, SECTOR).unwrap());
            blocks = stay;
        }
        sync(&space, &mut txg);
    }
    let whole = space.layout.load().chunks.iter().filter(|chunk| chunk.largest_hint() > unit).count();
    assert_eq!(whole, 0, "chunks have room for more than the least block");
    assert!(space.stored.lock().log.len() > 40, "the log was shortened");

    blocks.into_iter().for_each(|address| space.free(txg, address, SECTOR).unwrap());
    for _ in 0..80 {
        sync(&space, &mut txg);
    }
    assert!(space.stored.lock().log.len() < 40, "the log was not shortened");
    let largest = REGION as u32 / SECTOR / unit * unit * SECTOR;
    assert!(space.allocate(txg, Class::Data, largest, 1, &memory).is_ok());
}

/// A device that counts what is written.
struct Counting<'a>(&'a Memory, AtomicU64);

impl SpaceIo for Counting<'_> {
    fn read(&self, vdev: VdevId, offset: u64, buffer: &mut [u8], is_good: Check<'_>) -> Result<()> {
        self.0.read(vdev, offset, buffer, is_good)
    }

    fn write(&self, vdev: VdevId, offset: u64, bytes: &[u8]) -> Result<()> {
        self.1.fetch_add(1, Relaxed);
        self.0.write(vdev, offset, bytes)
    }
}

#[test]
fn shortening_the_log_takes_no_more_writes_than_the_log() {
    let (space, memory) = one_device(64);
    let mut lengths = Vec::new();
    for txg in (1..60).map(Txg) {
        space.allocate(txg, Class::Data, SECTOR, 1, &memory).unwrap();
        let counting = Counting(&memory, AtomicU64::new(0));
        space.sync(txg, &counting).unwrap();
        space.committed(txg);
        lengths.push(space.stored.lock().log.len());
        assert_eq!(counting.1.into_inner(), 3, "writes for {txg}: one a copy");
    }
    assert!(lengths.windows(2).any(|pair| pair[1] < pair[0]), "the log was never shortened");
}

#[test]
fn a_failed_allocation_leaves_no_trace() {
    let (space, memory) = one_device(16);
    let piece = REGION as u32;
    for _ in 0..14 {
        space.allocate(Txg(1), Class::Metadata, piece, 1, &memory).unwrap();
    }
    let before = space.totals();
    assert!(space.allocate(Txg(1), Class::Metadata, piece / 4 * 3, 2, &memory).is_err());
    assert!(space.allocate_run(Txg(1), Class::Metadata, &[piece / 2 + 1; 2], 1, &memory).is_err());
    assert_eq!(space.totals(), before);
    space.allocate(Txg(1), Class::Metadata, piece, 1, &memory).unwrap();
}

#[test]
fn copies_go_to_different_devices_or_at_least_chunks() {
    let vdevs = [plain(0, 16 * REGION), plain(1, 16 * REGION)];
    let (space, memory) = (Space::create(SECTOR, REGION, &vdevs), Memory::new(&vdevs));
    for _ in 0..500 {
        let block = space.allocate(Txg(1), Class::Metadata, 700, 3, &memory).unwrap();
        let chunks: BTreeSet<_> = block.addresses().iter().map(|address| address.chunk).collect();
        let places = block.addresses().iter().map(|&address| space.resolve(address, 700).unwrap().0);
        assert_eq!((chunks.len(), places.collect::<BTreeSet<_>>().len()), (3, 2));
    }
}

#[test]
fn a_run_is_contiguous_and_so_are_blocks_in_a_row() {
    let (space, memory) = one_device(64);
    let run = space.allocate_run(Txg(1), Class::Data, &[512, 513, 1024], 1, &memory).unwrap();
    let sectors: Vec<u32> = run.iter().map(|block| block.addresses[0].sector).collect();
    assert_eq!(sectors, [sectors[0], sectors[0] + 1, sectors[0] + 3]);
    let next = space.allocate(Txg(1), Class::Data, 1, 1, &memory).unwrap();
    assert_eq!(next.addresses[0].sector, sectors[2] + 2);
}

#[test]
fn freeing_what_is_free_is_damage() {
    let (space, memory) = one_device(16);
    let address = space.allocate(Txg(1), Class::Data, 4096, 1, &memory).unwrap().addresses[0];
    space.free(Txg(1), address, 4096).unwrap();
    assert!(matches!(space.free(Txg(2), address, 512), Err(Error::Damaged { .. })));
    assert!(space.free(Txg(1), Address { chunk: ChunkId(3), sector: 0 }, 512).is_err());
    assert!(space.free(Txg(1), Address { chunk: ChunkId(99), sector: 0 }, 512).is_err());
    assert!(space.free(Txg(1), Address { chunk: ChunkId(0), sector: u32::MAX }, 512).is_err());
}

#[test]
fn part_of_a_unit_is_nothing_that_was_allocated() {
    let (space, memory) = one_device_in(16, 3);
    let address = space.allocate(Txg(1), Class::Data, 4096, 1, &memory).unwrap().addresses[0];
    let within = Address { sector: address.sector + 1, ..address };
    assert!(matches!(space.free(Txg(1), within, 512), Err(Error::Damaged { .. })));
    assert!(matches!(space.claim(Txg(1), within, 512, &memory), Err(Error::Damaged { .. })));
    assert!(matches!(space.resolve(within, 512), Err(Error::Damaged { .. })));
    // Eight sectors take three units, of which the last one has one more.
    assert_eq!((space.totals().allocated, space.extent(address, 4096).sectors), (9 * 512, 9));
    space.free(Txg(1), address, 4096).unwrap();
    assert_eq!(space.totals().allocated, 0);
}

#[test]
fn copies_and_runs_are_rounded_up_where_they_lie() {
    let vdevs = [VdevShape { unit: 5, ..plain(0, 16 * REGION) }, VdevShape { unit: 1, ..plain(1, 16 * REGION) }];
    let (space, memory) = (Space::create(SECTOR, REGION, &vdevs), Memory::new(&vdevs));
    let run = space.allocate_run(Txg(1), Class::Metadata, &[512, 3000, 2560], 2, &memory).unwrap();
    let steps = |copy: usize| {
        let places = run.iter().map(|block| space.resolve(block.addresses[copy], 512).unwrap());
        let (vdevs, at): (Vec<_>, Vec<_>) = places.unzip();
        assert!(vdevs.iter().all(|vdev| *vdev == vdevs[0]));
        (vdevs[0].0, at.windows(2).map(|pair| (pair[1] - pair[0]) / 512).collect::<Vec<_>>())
    };
    let mut steps = [steps(0), steps(1)];
    steps.sort_unstable();
    assert_eq!(steps, [(0, vec![5, 10]), (1, vec![1, 6])]);
    let allocated: Vec<u64> = space.totals().vdevs.iter().map(|vdev| vdev.allocated / 512).collect();
    assert_eq!(allocated, [20, 12]);
    for (block, bytes) in run.iter().zip([512, 3000, 2560]) {
        block.addresses().iter().for_each(|&address| space.free(Txg(1), address, bytes).unwrap());
    }
    assert_eq!(space.totals().allocated, 0);
}

#[test]
fn what_does_not_fit_the_unit_of_a_device_is_damage() {
    let (space, memory) = one_device_in(16, 3);
    let vdevs = |unit| [VdevShape { unit, ..plain(0, 16 * REGION) }];
    space.allocate(Txg(1), Class::Data, 5000, 2, &memory).unwrap();
    let root = space.sync(Txg(1), &memory).unwrap();
    let open = |root: &SpaceRoot, unit| Space::open(root, SECTOR, REGION, &vdevs(unit), Txg(1), &memory);
    let opened = open(&root, 3).unwrap();
    assert_eq!(opened.allocated_extents(&memory).unwrap(), space.allocated_extents(&memory).unwrap());
    for unit in [0, 1, 2, 33, 129] {
        assert!(matches!(open(&root, unit), Err(Error::Damaged { .. })), "{unit} sectors at a time");
    }
    let shifted = |change: &dyn Fn(&mut PhysicalPointer)| {
        let mut bad = root.clone();
        change(&mut bad.table);
        open(&bad, 3).err().unwrap().to_string()
    };
    let past =
        |by: u64| move |table: &mut PhysicalPointer| table.places.iter_mut().for_each(|place| place.offset += by);
    assert!(shifted(&past(512)).contains("outside"), "it begins inside a unit");
    let last = |table: &mut PhysicalPointer| table.places.iter_mut().for_each(|place| place.offset = REGION - 1024);
    assert!(shifted(&last).contains("outside"), "it is no whole unit of a region");
}

/// The bytes of a space log whose only block says that these sectors were allocated.
fn stored_log(space: &Space, memory: &Memory, root: &SpaceRoot, allocated: Span) -> SpaceRoot {
    let chunk = space.layout.load().chunks.len() as u32 - 1;
    let changes = crate::format::space::log::ChunkChanges {
        chunk: ChunkId(chunk),
        allocated: vec![allocated],
        freed: Vec::new(),
    };
    let piece = crate::format::space::log::encode_changes(&[changes]);
    let block = crate::format::space::log::LogBlock { txg: Txg(1), part: 0, previous: None, piece };
    let mut bytes = block.encode();
    let mut root = root.clone();
    root.log_head.len = bytes.len() as u32;
    root.log_head.checksum = *blake3::hash(&bytes).as_bytes();
    root.allocated = allocated.len.into();
    bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
    for place in root.log_head.places() {
        let mut device = memory.0[&place.vdev].lock();
        device[place.offset as usize..place.offset as usize + bytes.len()].copy_from_slice(&bytes);
    }
    root
}

#[test]
fn a_log_that_speaks_of_parts_of_units_is_damage() {
    let (space, memory) = one_device_in(16, 3);
    let vdevs = [VdevShape { unit: 3, ..plain(0, 16 * REGION) }];
    let root = space.sync(Txg(1), &memory).unwrap();
    let open = |allocated| {
        let root = stored_log(&space, &memory, &root, allocated);
        Space::open(&root, SECTOR, REGION, &vdevs, Txg(1), &memory)
    };
    assert_eq!(open(Span::new(0, 9)).unwrap().totals().allocated, 9 * 512);
    // A region has 128 sectors, and a chunk the first 126 of them.
    for (start, len) in [(1, 3), (0, 4), (126, 3), (3, 124)] {
        assert!(matches!(open(Span::new(start, len)), Err(Error::Damaged { .. })), "{start}+{len}");
    }
}

#[test]
fn an_intent_log_block_is_claimed_once() {
    let (space, memory) = one_device(16);
    let address = Address { chunk: ChunkId(4), sector: 17 };
    space.claim(Txg(1), address, 4096, &memory).unwrap();
    assert!(space.claim(Txg(1), Address { sector: 20, ..address }, 512, &memory).is_err());
    space.free(Txg(1), address, 4096).unwrap();
    let root = space.sync(Txg(1), &memory).unwrap();
    Space::open(&root, SECTOR, REGION, &[plain(0, 16 * REGION)], Txg(1), &memory).unwrap();
}

#[test]
fn an_added_device_is_used_and_found_again() {
    let vdevs = [plain(0, 16 * REGION), plain(5, 80 * REGION)];
    let (space, memory) = (Space::create(SECTOR, REGION, &vdevs[..1]), Memory::new(&vdevs));
    space.sync(Txg(1), &memory).unwrap();
    space.committed(Txg(1));
    space.add_vdev(vdevs[1]);
    let block = space.allocate(Txg(2), Class::Data, 4096, 2, &memory).unwrap();
    assert!(block.addresses().iter().any(|address| address.chunk.0 >= 16));
    let root = space.sync(Txg(2), &memory).unwrap();
    let opened = Space::open(&root, SECTOR, REGION, &vdevs, Txg(2), &memory).unwrap();
    assert_eq!(opened.totals().size, 96 * REGION);
    assert_eq!(opened.totals().vdevs, space.totals().vdevs);
    assert!(Space::open(&root, SECTOR, REGION, &vdevs[..1], Txg(2), &memory).is_err());
}

#[test]
fn threads_never_share_a_sector() {
    let vdevs = [plain(0, 64 * REGION), plain(1, 64 * REGION)];
    let (space, memory) = (Space::create(SECTOR, REGION, &vdevs), Memory::new(&vdevs));
    let work = |thread: u32| {
        let mut extents = Vec::new();
        for round in 0..1000u32 {
            let class = if (round + thread).is_multiple_of(3) { Class::Metadata } else { Class::Data };
            let bytes = 1 + (round * 977 + thread * 31) % 3000;
            let block = space.allocate(Txg(1 + u64::from(round % 2)), class, bytes, 1, &memory).unwrap();
            let Address { chunk, sector } = block.addresses[0];
            extents.push(Extent { chunk, sector, sectors: bytes.div_ceil(SECTOR) });
        }
        extents
    };
    let extents: Vec<Extent> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut seen = BTreeSet::new();
    assert!(extents.into_iter().flat_map(sectors).all(|sector| seen.insert(sector)));
    assert_eq!(space.totals().allocated, seen.len() as u64 * u64::from(SECTOR));
}

#[test]
fn a_damaged_copy_is_survived_and_three_are_reported() {
    let (space, memory) = one_device(16);
    let vdevs = [plain(0, 16 * REGION)];
    let root = space.sync(Txg(1), &memory).unwrap();
    let open = || Space::open(&root, SECTOR, REGION, &vdevs, Txg(1), &memory);
    for (copy, place) in root.table.places().iter().enumerate() {
        assert!(open().is_ok(), "with {copy} copies damaged");
        memory.0[&place.vdev].lock()[place.offset as usize] ^= 1;
    }
    assert!(matches!(open(), Err(Error::Damaged { .. })));
}

#[test]
fn a_root_that_points_anywhere_is_refused() {
    let (space, memory) = one_device(16);
    let vdevs = [plain(0, 16 * REGION)];
    let root = space.sync(Txg(1), &memory).unwrap();
    let refused = |change: &dyn Fn(&mut SpaceRoot)| {
        let mut bad = root.clone();
        change(&mut bad);
        assert!(matches!(Space::open(&bad, SECTOR, REGION, &vdevs, Txg(1), &memory), Err(Error::Damaged { .. })));
    };
    refused(&|root| root.table.places.iter_mut().for_each(|place| place.offset = u64::MAX - 5));
    refused(&|root| root.table.places.iter_mut().for_each(|place| place.vdev = VdevId(9)));
    refused(&|root| root.table = root.log_head);
    refused(&|root| root.log_head = root.table);
    refused(&|root| root.log_tail = Txg(0));
    refused(&|root| root.log_tail = Txg(2));
    refused(&|root| root.allocated += 1);
    refused(&|root| root.next_chunk += 1);
    assert!(Space::open(&root, SECTOR, REGION, &vdevs, Txg(2), &memory).is_err());
    let open_as = |shape| Space::open(&root, SECTOR, REGION, &[shape], Txg(1), &memory);
    assert!(open_as(plain(0, 15 * REGION)).is_ok(), "the last chunk is empty, and gone with the end of the device");
    assert!(open_as(VdevShape { unit: 2, ..plain(0, 15 * REGION) }).is_err());
    assert!(open_as(plain(0, 0)).is_err(), "its own blocks lie there");
}

/// Stops the threads, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[test]
fn a_group_is_stored_while_the_next_one_goes_on() {
    let vdevs = [plain(0, 128 * REGION), plain(1, 128 * REGION)];
    let (space, memory) = (Space::create(SECTOR, REGION, &vdevs), Memory::new(&vdevs));
    // A thread reads the open group's number and changes something under the shared lock; to close it takes all.
    let open = RwLock::new(Txg(1));
    let stop = AtomicBool::new(false);
    let work = &|seed: u64| {
        let (mut random, mut live) = (StdRng::seed_from_u64(seed), Vec::new());
        while !stop.load(Relaxed) {
            let txg = open.read();
            if live.len() > 200 {
                let (address, bytes) = live.swap_remove(random.random_range(0..live.len()));
                space.free(*txg, address, bytes).unwrap();
            } else {
                let bytes = random.random_range(1..5000);
                match space.allocate(*txg, Class::Data, bytes, 1, &memory) {
                    Ok(block) => live.push((block.addresses[0], bytes)),
                    Err(error) => assert!(matches!(error, Error::OutOfSpace)),
                }
            }
        }
        live
    };
    let close = || {
        let mut open = open.write();
        let closed = *open;
        *open = closed.next();
        closed
    };
    let commit = |txg: Txg| {
        let root = space.sync(txg, &memory).unwrap();
        let opened = Space::open(&root, SECTOR, REGION, &vdevs, txg, &memory).unwrap();
        let extents = opened.allocated_extents(&memory).unwrap();
        assert_eq!(extents, space.allocated_extents(&memory).unwrap());
        space.committed(txg);
        extents
    };
    let live: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|seed| scope.spawn(move || work(seed))).collect();
        let stop = Stop(&stop);
        (0..60).for_each(|_| drop(commit(close())));
        drop(stop);
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let found: BTreeSet<_> = commit(close()).into_iter().flat_map(sectors).collect();
    let mut expected: BTreeSet<_> = space.own_extents().unwrap().into_iter().flat_map(sectors).collect();
    for (Address { chunk, sector }, bytes) in live {
        expected.extend(sectors(Extent { chunk, sector, sectors: bytes.div_ceil(SECTOR) }));
    }
    assert_eq!(found, expected);
}
