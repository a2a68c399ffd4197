//! The space layer on devices in memory; and against a plain model, through crashes: [`simulation`].
//!
//! The devices write several sectors together, each as many as its unit. They refuse a write that begins inside a unit,
//! and a write to a unit in use: so no two writes ever share a unit.

mod simulation;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Mutex, RwLock};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    error::{Error, Result},
    format::{pointer::Address, space::PhysicalPointer},
    units::{ChunkId, KIB, Txg, VdevId},
    vdev::Check,
};

const SECTOR: u32 = 512;
const REGION: u64 = 64 * KIB;

/// A device with units of one sector.
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
    /// The units in use, by region and number: written since they were last free.
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

    /// The units of some bytes of one region, and the end of the last unit.
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

    /// Other devices with the same content, with units of one sector.
    pub(super) fn duplicate(&self) -> Memory {
        let copy = |rows: &Rows| Rows { bytes: Mutex::new(rows.lock().clone()), unit: 1, written: Mutex::default() };
        Memory(self.0.iter().map(|(vdev, rows)| (*vdev, copy(rows))).collect())
    }

    /// Marks sectors as free, or with `written` as in use.
    fn mark(&self, space: &Space, extent: &Extent, written: bool) {
        if space.layout.load().chunks[extent.chunk.0 as usize].is_packed() {
            // A packed chunk has no place of its own.
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

fn sectors(extent: Extent) -> impl Iterator<Item = (ChunkId, u32)> {
    (extent.sector..extent.sector + extent.sectors).map(move |sector| (extent.chunk, sector))
}

fn one_device(regions: u64) -> (Space, Memory) {
    one_device_in(regions, 1)
}

/// One device with this unit.
fn one_device_in(regions: u64, unit: u32) -> (Space, Memory) {
    let vdevs = [VdevShape { unit, ..plain(0, regions * REGION) }];
    (Space::create(SECTOR, REGION, &vdevs), Memory::new(&vdevs))
}

#[test]
fn a_full_pool_refuses_data_but_can_be_emptied() {
    [1, 3, 7].into_iter().for_each(fill_and_empty);
}

/// Commits a group, and marks the released space on the devices.
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
    // Four groups of churn must find room in a quarter of a very small pool.
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
        // Now and then every second block is freed, more and more in every chunk, until the space layer's own free
        // space is broken up as well.
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

/// A device that counts written bytes.
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
    // Eight sectors take three units of three sectors.
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

/// A space root whose log has a single block with the allocation of `allocated`.
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
    // A thread reads the open group's number and makes a change under the shared lock; closing a group takes the lock
    // exclusively.
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
