//! A plain model beside the space layer, through crashes.
//!
//! The model is the list of all blocks ever allocated, with the groups of their births and deaths. Every block's
//! content is stamped on a device in memory, so a block overwritten too early shows when a state with it is checked. A
//! crash opens one of the last [`SAFE_STATES`] committed roots on the devices' present content.
//!
//! Blocks are copied to an archive, if there is one, and the model knows the group in which each second place was
//! entered: every later state has it, with the block's stamp, as long as the block lives.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use proptest::prelude::*;
use rand::{
    Rng, SeedableRng,
    rngs::StdRng,
    seq::{IndexedRandom, SliceRandom},
};

mod archive;

use super::{Memory, REGION, SECTOR, plain, sectors};
use crate::{
    error::Error,
    format::{codec::Reader, label::classes::VdevClass, pointer::Address, space::Place},
    space::{chunk::Standing, io::Disk, packing::packer::Packer, places::extent, *},
    units::{ChunkId, Txg, VdevId},
};

/// One copy of a block.
#[derive(Clone, Debug)]
struct Block {
    extent: Extent,
    bytes: u32,
    stamp: u64,
    born: Txg,
    died: Option<Txg>,
    /// The group that entered its second place.
    entered: Option<Txg>,
}

impl Block {
    fn address(&self) -> Address {
        Address { chunk: self.extent.chunk, sector: self.extent.sector }
    }

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
    /// Sectors in use.
    taken: BTreeSet<(ChunkId, u32)>,
    /// The last [`SAFE_STATES`] commits.
    commits: VecDeque<(Txg, SpaceRoot)>,
    /// The next group to be synced; the group after it takes changes already.
    txg: Txg,
    stamps: u64,
    /// Chunks are packed now and then.
    packs: bool,
    packed: u32,
    archived: archive::Archived,
}

impl Simulation {
    fn new(seed: u64, units: &[u32]) -> Simulation {
        let shape = |(id, &unit): (u32, &u32)| {
            // A pool of large units is larger as well: as many of the smallest devices, and the space layer's last
            // resort holds as many units.
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
            archived: archive::Archived::default(),
        }
    }

    /// A simulation in which chunks are packed now and then.
    fn packing(seed: u64, units: &[u32]) -> Simulation {
        Simulation { packs: true, ..Simulation::new(seed, units) }
    }

    /// Packs some chunks that are not active and hold none of the space layer's own blocks.
    fn pack(&mut self) {
        let layout = self.space.layout.load_full();
        let own: BTreeSet<ChunkId> = self.space.own_extents().unwrap().into_iter().map(|extent| extent.chunk).collect();
        let is_source = |chunk: &&Arc<chunk::Chunk>| {
            chunk.standing() == Standing::Open
                && !chunk.active_hint()
                && chunk.allocated() > 0
                && !layout.is_on_archive(chunk)
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
        // Some of the copied blocks are freed.
        (0..self.random.random_range(0..3)).for_each(|_| self.free(self.txg));
        let packed = self.space.pack(&packer, &mut self.space.stored.lock(), self.txg, &self.memory);
        match packed {
            Ok(true) => {
                self.mark_hosts(&packer);
                // An emptied chunk keeps its region.
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

    /// Copies the blocks of the chunks being emptied, with `left_out` not all of them. False if there is no room.
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
            self.memory.write(place.vdev, place.offset, &content_of(block.stamp, block.bytes)).unwrap();
        }
        true
    }

    /// Marks copies that were not needed in the end as free.
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
        self.archive();
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
        self.memory.write(vdev, offset, &content_of(self.stamps, bytes)).unwrap();
        self.blocks.push(Block { extent, bytes, stamp: self.stamps, born: txg, died: None, entered: None });
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

    /// Checks that the last synced group accounts exactly for the live blocks and the space layer's own.
    fn check_state(&self, space: &Space) {
        let txg = space.stored.lock().txg;
        let mut expected: BTreeSet<_> = space.own_extents().unwrap().into_iter().flat_map(sectors).collect();
        let mut hosted = 0;
        for block in self.blocks.iter().filter(|block| block.lives_at(txg)) {
            expected.extend(sectors(block.extent));
            self.check_content(space, block);
            hosted += self.expect_hosted(space, block, &mut expected);
            hosted += self.expect_second(space, block, &mut expected);
        }
        let Hosted { hosts, lost } = space.hosted_extents(&self.memory).unwrap();
        let counted: u64 = hosts.iter().map(|extent| u64::from(extent.sectors)).sum();
        assert_eq!((counted, lost), (hosted, Vec::new()));
        let found: BTreeSet<_> = space.allocated_extents(&self.memory).unwrap().into_iter().flat_map(sectors).collect();
        assert_eq!(found, expected, "at {txg}");
    }

    /// Adds the host's sectors of a block in a packed chunk, and returns their number.
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
        self.check_stamp(space.resolve(block.address(), block.bytes).unwrap(), block);
    }

    fn check_stamp(&self, (vdev, offset): (VdevId, u64), block: &Block) {
        let mut content = vec![0; block.bytes.next_multiple_of(SECTOR) as usize];
        self.memory.read(vdev, offset, &mut content, &|_| true).unwrap();
        assert!(content.chunks(8).all(|word| word == block.stamp.to_le_bytes()), "{block:?} is overwritten");
    }

    fn open(&self, txg: Txg, root: &SpaceRoot) -> Space {
        Space::open(root, SECTOR, REGION, &self.vdevs, txg, &self.memory).unwrap()
    }

    /// Rewinds to one of the last commits; the transaction groups continue above all numbers used.
    fn crash(&mut self) {
        let back = self.random.random_range(1..=self.commits.len());
        self.commits.truncate(back);
        let (txg, root) = self.commits.back().cloned().unwrap();
        self.space = self.open(txg, &root);
        self.blocks.retain(|block| block.born <= txg);
        for block in &mut self.blocks {
            block.died = block.died.filter(|&died| died <= txg);
            block.entered = block.entered.filter(|&entered| entered <= txg);
        }
        self.archived.lose(&self.space);
        self.taken = self.blocks.iter().flat_map(|block| sectors(block.extent)).collect();
        self.memory.0.values().for_each(|rows| rows.written.lock().clear());
        let kept = self.space.allocated_extents(&self.memory).unwrap();
        kept.iter().for_each(|extent| self.memory.mark(&self.space, extent, true));
        let expected: u64 = root.allocated * u64::from(SECTOR);
        let totals = self.space.totals();
        assert_eq!(totals.vdevs.iter().map(|vdev| vdev.allocated).sum::<u64>(), expected);
        self.txg = Txg(self.txg.0 + self.random.random_range(2..5));
    }
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
    // Pools full up to the last resort while the log is long: all freed space then waits for older states.
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

/// The sectors of a block with this stamp.
fn content_of(stamp: u64, bytes: u32) -> Vec<u8> {
    stamp.to_le_bytes().repeat(SECTOR as usize / 8 * bytes.div_ceil(SECTOR) as usize)
}

/// Runs a pool with packed chunks, on devices with these units: returns the number of packed chunks.
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
