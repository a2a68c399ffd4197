//! The space layer against a plain model, through crashes.
//!
//! The model is the list of all blocks ever allocated, with the groups in which they were born and died. Every block's
//! content is stamped on a device in memory, so that anything overwritten too early shows when a state that refers to
//! it is checked. A crash is opening one of the last [`SAFE_STATES`] committed roots on the
//! devices as they are by then.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Mutex, RwLock};
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::*;
use crate::{error::Error, format::codec::Reader, vdev::Check};

const SECTOR: u32 = 512;
const REGION: u64 = 64 * KIB;

/// Devices in memory.
pub(super) struct Memory(BTreeMap<VdevId, Mutex<Vec<u8>>>);

impl Memory {
    pub(super) fn new(vdevs: &[(VdevId, u64)]) -> Memory {
        Memory(vdevs.iter().map(|&(id, size)| (id, Mutex::new(vec![0; size as usize]))).collect())
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
        self.0[&vdev].lock()[offset as usize..offset as usize + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// One copy of a block.
#[derive(Clone, Debug)]
struct Block {
    extent: Extent,
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
    vdevs: Vec<(VdevId, u64)>,
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
}

impl Simulation {
    fn new(seed: u64, vdevs: u32) -> Simulation {
        let vdevs: Vec<_> = (0..vdevs).map(|id| (VdevId(id), (12 + 4 * u64::from(id)) * REGION + 1000)).collect();
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
        }
    }

    fn step(&mut self, pressure: u32) {
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
        let extent = Extent { chunk: address.chunk, sector: address.sector, sectors: bytes.div_ceil(SECTOR) };
        for sector in sectors(extent) {
            assert!(self.taken.insert(sector), "{sector:?} is allocated twice");
        }
        self.stamps += 1;
        let (vdev, offset) = self.space.resolve(address, bytes).unwrap();
        let content = self.stamps.to_le_bytes().repeat(SECTOR as usize / 8 * extent.sectors as usize);
        self.memory.write(vdev, offset, &content).unwrap();
        self.blocks.push(Block { extent, stamp: self.stamps, born: txg, died: None });
    }

    fn free(&mut self, txg: Txg) {
        let live: Vec<usize> =
            (0..self.blocks.len()).filter(|&i| self.blocks[i].died.is_none() && self.blocks[i].born <= txg).collect();
        let Some(&index) = live.choose(&mut self.random) else { return };
        let Extent { chunk, sector, sectors } = self.blocks[index].extent;
        self.space.free(txg, Address { chunk, sector }, sectors * SECTOR).unwrap();
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
        let released: BTreeSet<_> = self.space.committed(self.txg).into_iter().flat_map(sectors).collect();
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
        for block in self.blocks.iter().filter(|block| block.lives_at(txg)) {
            expected.extend(sectors(block.extent));
            self.check_content(space, block);
        }
        let found: BTreeSet<_> = space.allocated_extents(&self.memory).unwrap().into_iter().flat_map(sectors).collect();
        assert_eq!(found, expected, "at {txg}");
    }

    fn check_content(&self, space: &Space, block: &Block) {
        let Extent { chunk, sector, sectors } = block.extent;
        let (vdev, offset) = space.resolve(Address { chunk, sector }, sectors * SECTOR).unwrap();
        let mut content = vec![0; (sectors * SECTOR) as usize];
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
    fn keeps_every_promise_through_crashes(seed: u64, vdevs in 1u32..4, pressure in 45u32..80) {
        let mut simulation = Simulation::new(seed, vdevs);
        for _ in 0..60 {
            simulation.step(pressure);
        }
    }
}

fn one_device(regions: u64) -> (Space, Memory) {
    let vdevs = [(VdevId(0), regions * REGION)];
    (Space::create(SECTOR, REGION, &vdevs), Memory::new(&vdevs))
}

#[test]
fn a_full_pool_refuses_data_but_can_be_emptied() {
    let (space, memory) = one_device(64);
    let mut txg = Txg(1);
    let mut data = VecDeque::new();
    loop {
        match space.allocate(txg, Class::Data, 4096, 1, &memory) {
            Ok(allocation) => data.push_back(allocation.addresses[0]),
            Err(Error::OutOfSpace) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(space.totals().free, space.slop());
    assert_eq!(space.totals().free_for(Class::Data), 0);
    assert_eq!(space.largest_piece(Class::Data), 0);
    assert!(space.largest_piece(Class::Metadata) >= REGION as u32);
    while !data.is_empty() {
        for address in data.drain(..data.len().min(10)) {
            space.free(txg, address, 4096).unwrap();
            let churn = space.allocate(txg, Class::Metadata, 8192, 2, &memory).unwrap();
            churn.addresses().iter().for_each(|&address| space.free(txg, address, 8192).unwrap());
        }
        space.sync(txg, &memory).unwrap();
        space.committed(txg);
        txg = txg.next();
    }
    for _ in 0..SAFE_STATES {
        space.sync(txg, &memory).unwrap();
        space.committed(txg);
        txg = txg.next();
    }
    assert!(space.totals().allocated < 20 * REGION);
    space.allocate(txg, Class::Data, 4096, 1, &memory).unwrap();
}

#[test]
fn metadata_uses_all_but_the_last_resort() {
    let (space, memory) = one_device(16);
    assert_eq!(space.totals().last_resort, REGION);
    for _ in 0..space.totals().free_for(Class::Metadata) / u64::from(SECTOR) {
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
    let vdevs = [(VdevId(0), 64 * REGION)];
    let (space, memory) = one_device(64);
    let mut txg = Txg(1);
    let sync = |space: &Space, txg: &mut Txg| {
        let root =
            space.sync(*txg, &memory).unwrap_or_else(|error| panic!("{error} in {txg} with {:?}", space.totals()));
        let opened = Space::open(&root, SECTOR, REGION, &vdevs, *txg, &memory).unwrap();
        assert_eq!(opened.allocated_extents(&memory).unwrap(), space.allocated_extents(&memory).unwrap());
        space.committed(*txg);
        *txg = txg.next();
    };
    let mut blocks = Vec::new();
    for round in 0..60 {
        blocks.extend(fill_with_sectors(&space, txg, &memory));
        // Now and then every second one goes, and what is between them stays: more and more in every chunk, until the
        // space layer's own has been broken up as well.
        if round % 4 == 0 {
            let (gone, stay): (Vec<_>, Vec<_>) = blocks.into_iter().partition(|address| address.sector % 2 == 0);
            gone.into_iter().for_each(|address| space.free(txg, address, SECTOR).unwrap());
            blocks = stay;
        }
        sync(&space, &mut txg);
    }
    let whole = space.layout.load().chunks.iter().filter(|chunk| chunk.largest_hint() > 1).count();
    assert_eq!(whole, 0, "chunks have room for more than a sector");
    assert!(space.stored.lock().log.len() > 40, "the log was shortened");

    blocks.into_iter().for_each(|address| space.free(txg, address, SECTOR).unwrap());
    for _ in 0..80 {
        sync(&space, &mut txg);
    }
    assert!(space.stored.lock().log.len() < 40, "the log was not shortened");
    assert!(space.allocate(txg, Class::Data, REGION as u32, 1, &memory).is_ok());
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
    let vdevs = [(VdevId(0), 16 * REGION), (VdevId(1), 16 * REGION)];
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
fn an_intent_log_block_is_claimed_once() {
    let (space, memory) = one_device(16);
    let address = Address { chunk: ChunkId(4), sector: 17 };
    space.claim(Txg(1), address, 4096, &memory).unwrap();
    assert!(space.claim(Txg(1), Address { sector: 20, ..address }, 512, &memory).is_err());
    space.free(Txg(1), address, 4096).unwrap();
    let root = space.sync(Txg(1), &memory).unwrap();
    Space::open(&root, SECTOR, REGION, &[(VdevId(0), 16 * REGION)], Txg(1), &memory).unwrap();
}

#[test]
fn an_added_device_is_used_and_found_again() {
    let vdevs = [(VdevId(0), 16 * REGION), (VdevId(5), 80 * REGION)];
    let (space, memory) = (Space::create(SECTOR, REGION, &vdevs[..1]), Memory::new(&vdevs));
    space.sync(Txg(1), &memory).unwrap();
    space.committed(Txg(1));
    space.add_vdev(VdevId(5), 80 * REGION);
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
    let vdevs = [(VdevId(0), 64 * REGION), (VdevId(1), 64 * REGION)];
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
    let vdevs = [(VdevId(0), 16 * REGION)];
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
    let vdevs = [(VdevId(0), 16 * REGION)];
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
    assert!(Space::open(&root, SECTOR, REGION, &[(VdevId(0), 15 * REGION)], Txg(1), &memory).is_err());
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
    let vdevs = [(VdevId(0), 128 * REGION), (VdevId(1), 128 * REGION)];
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
