//! Whole pools on RAID-Z: no row is ever shared, however full the pool is.
//!
//! A watching vdev between pool and RAID-Z knows the rows of all states that an import may rewind to. It refuses a
//! write that does not begin at a row, a write to a row of such a state, and a second write to a row in a transaction
//! group. Only the rows of the intent log are overwritten, at most once a group.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    admin::NewVdev,
    format::vdev_config::{Mark, VdevTree},
    space::{Extent, SAFE_STATES},
    units::{Guid, VdevId},
    vdev::{Begun, Check, Clear, Examined, Found, Group, Health, Leaf, Sources, Suspension, Vdev},
};

/// A row: the region, and its index there.
type Row = (u64, u64);

/// A vdev, and the rows that must not be written.
struct Watched {
    inner: Arc<dyn Vdev>,
    engine: Weak<Engine>,
    row: u64,
    region: u64,
    rows: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// The rows of each of the last states.
    kept: VecDeque<BTreeSet<Row>>,
    /// The rows written since the last state.
    written: BTreeSet<Row>,
}

impl Watched {
    fn rows(&self, offset: u64, len: u64) -> impl Iterator<Item = Row> + use<> {
        let (region, at, row) = (offset / self.region, offset % self.region, self.row);
        assert!(at.is_multiple_of(row), "a write begins inside a row");
        assert!(at + len <= self.region / row * row, "a write goes beyond the rows of its region");
        (at / row..(at + len).div_ceil(row)).map(move |number| (region, number))
    }

    /// A commit is stable: its state is now kept.
    fn keep(&self, engine: &Engine) {
        let space = &engine.storage().space;
        let log = engine.log_area();
        let is_log = |extent: &Extent| {
            let end = |extent: &Extent| extent.sector + extent.sectors;
            log.is_some_and(|log| log.chunk == extent.chunk && log.sector < end(extent) && extent.sector < end(&log))
        };
        let mut kept = BTreeSet::new();
        for extent in space.allocated_extents(&engine.storage().vdevs).unwrap() {
            let sector = engine.sector();
            let of = |sector_at: u32, sectors: u32| {
                let address = crate::format::pointer::Address { chunk: extent.chunk, sector: sector_at };
                let (_, offset) = space.resolve(address, sectors * sector).unwrap();
                self.rows(offset, u64::from(sectors * sector)).collect::<Vec<_>>()
            };
            let address = crate::format::pointer::Address { chunk: extent.chunk, sector: extent.sector };
            if space.resolve(address, engine.sector()).unwrap().0 != self.inner.id() {
                continue;
            }
            let mut own: BTreeSet<Row> = of(extent.sector, extent.sectors).into_iter().collect();
            if is_log(&extent) {
                let log = log.unwrap();
                of(log.sector, log.sectors).iter().for_each(|row| assert!(own.remove(row), "the log is allocated"));
            }
            kept.extend(own);
        }
        let mut known = self.rows.lock();
        known.kept.push_back(kept);
        if known.kept.len() > SAFE_STATES {
            known.kept.pop_front();
        }
        known.written.clear();
    }
}

impl Vdev for Watched {
    fn write_shared(&self, offset: u64, bytes: Arc<Vec<u8>>) -> Result<()> {
        let mut known = self.rows.lock();
        for row in self.rows(offset, bytes.len() as u64) {
            assert!(!known.kept.iter().any(|state| state.contains(&row)), "{row:?} is some state's");
            assert!(known.written.insert(row), "{row:?} is written twice");
        }
        drop(known);
        self.inner.write_shared(offset, bytes)
    }

    fn id(&self) -> VdevId {
        self.inner.id()
    }

    fn guid(&self) -> Guid {
        self.inner.guid()
    }

    fn join(&self, _: &Arc<Suspension>) {}

    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn unit(&self) -> u32 {
        self.inner.unit()
    }

    fn read_checked(&self, offset: u64, buf: &mut [u8], is_good: Check<'_>) -> Result<Found> {
        self.inner.read_checked(offset, buf, is_good)
    }

    fn begin(self: Arc<Self>, offset: u64, len: usize, sources: Sources) -> Begun {
        self.inner.clone().begin(offset, len, sources)
    }

    fn examine(&self, offset: u64, len: usize, is_good: Check<'_>) -> Examined {
        self.inner.examine(offset, len, is_good)
    }

    fn repair(&self, source: Guid, offset: u64, good: &Arc<Vec<u8>>) -> Result<()> {
        self.inner.repair(source, offset, good)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn clear(&self, offset: u64, len: u64, how: Clear) -> Result<()> {
        self.inner.clear(offset, len, how)
    }

    fn note_checksum_error(&self, source: Guid) {
        self.inner.note_checksum_error(source);
    }

    fn leaves(&self) -> Vec<Arc<Leaf>> {
        self.inner.leaves()
    }

    fn labelled(&self) -> Vec<Arc<Leaf>> {
        self.inner.labelled()
    }

    fn committing(&self) -> Vec<Arc<Leaf>> {
        self.inner.committing()
    }

    fn degrade(&self, device: Guid, health: Health) -> bool {
        self.inner.degrade(device, health)
    }

    fn describe(&self, tree: &mut VdevTree) {
        self.inner.describe(tree);
    }

    fn news(&self) -> Option<u64> {
        self.inner.news()
    }

    fn recorded(&self, news: u64) {
        self.inner.recorded(news);
    }

    fn expect(&self, mark: Mark) {
        self.inner.expect(mark);
    }

    fn committed(&self) {
        self.inner.committed();
        self.engine.upgrade().iter().for_each(|engine| self.keep(engine));
    }

    fn as_group(&self) -> Option<&Group> {
        self.inner.as_group()
    }
}

/// A pool on a watched RAID-Z, with or without another disk.
struct World {
    devices: Vec<Arc<dyn Device>>,
    engine: Arc<Engine>,
    head: Arc<Head>,
    watched: Arc<Watched>,
}

impl World {
    fn new(parity: u8, devices: usize) -> World {
        World::beside(parity, devices, 0)
    }

    fn beside(parity: u8, members: usize, disks: usize) -> World {
        let disk = |at: usize| Arc::new(MemoryDevice::new(format!("disk{at}"), 64 * MIB)) as Arc<dyn Device>;
        let devices: Vec<_> = (0..members + disks).map(disk).collect();
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let raidz = NewVdev::RaidZ { parity, devices: devices[..members].to_vec() };
        let disks = devices[members..].iter().cloned().map(NewVdev::Disk);
        let vdevs: Vec<_> = [raidz].into_iter().chain(disks).collect();
        let pool = admin::create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
        let engine = pool.engine().clone();
        engine.set_client(Arc::new(OneTree));
        let head = engine.open_head(1, None);
        let world = World { watched: watch(&engine), devices, engine, head };
        world.watched.keep(&world.engine);
        world
    }

    fn commit(&self) {
        self.engine.commit_anyway().unwrap();
    }

    fn reopened(self) -> World {
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        drop((self.engine, self.head));
        let pool = admin::open(self.devices.clone(), &options, Arc::new(SeededEnv::new(1))).unwrap();
        let engine = pool.engine().clone();
        engine.set_client(Arc::new(OneTree));
        let root = engine.catalogue().read(|view| -> Result<_, Plain> {
            Ok(view.get(TREE)?.map(|entry| (entry.block().unwrap().pointer().unwrap(), entry.body()[0])))
        });
        let head = engine.open_head(1, root.unwrap());
        let world = World { watched: watch(&engine), devices: self.devices, engine, head };
        world.watched.keep(&world.engine);
        world
    }

    fn check(&self) {
        assert_eq!(findings(&self.engine, Some(&self.head)), []);
    }

    /// Adds records of `len` bytes from `from` on until there is no room.
    fn fill(&self, from: u64, len: usize) -> u64 {
        (from..).find(|&offset| put_noise(&self.head, offset, len).is_err()).unwrap()
    }
}

fn watch(engine: &Arc<Engine>) -> Arc<Watched> {
    let vdevs = &engine.storage().vdevs;
    let inner = vdevs.get(VdevId(0)).unwrap();
    let row = u64::from(inner.unit() * engine.sector());
    let region = engine.storage().space.region();
    let watched = Arc::new(Watched { inner, engine: Arc::downgrade(engine), row, region, rows: Mutex::default() });
    vdevs.add(watched.clone());
    watched
}

#[test]
fn no_row_is_written_while_anybody_has_it() {
    for (parity, devices, disks, seed) in [(1, 2, 0, 1), (1, 3, 0, 2), (2, 5, 0, 3), (3, 10, 0, 4), (1, 5, 2, 5)] {
        let mut world = World::beside(parity, devices, disks);
        let mut random = StdRng::seed_from_u64(seed);
        let mut live = BTreeSet::new();
        let mut frames = 0;
        for round in 0..12 {
            world.head.keep_log();
            for step in 0..40 {
                let offset = random.random_range(0..400);
                if live.remove(&offset) {
                    delete(&world.head, offset);
                }
                if random.random_bool(0.7) {
                    put_noise(&world.head, offset, random.random_range(1..150_000)).unwrap();
                    live.insert(offset);
                }
                if step % 5 == 0 {
                    world.head.make_durable().unwrap();
                }
            }
            frames += world.engine.log_stats().frames;
            world.commit();
            world.check();
            if round % 5 == 4 {
                world = world.reopened();
                world.check();
            }
        }
        assert!(frames > 20, "{frames} frames were written to the log");
    }
}

/// Every record needs one sector and takes a row of several. Admitted data is committed, the rest refused, and
/// everything can be deleted again.
#[test]
fn a_pool_full_of_one_sector_rows_can_be_emptied() {
    let world = World::new(1, 7);
    let row = u64::from(world.watched.unit()) * 4096;
    let end = world.fill(0, 4096);
    world.commit();
    world.check();
    let totals = world.engine.space_totals();
    assert!(end * row > totals.size / 4 * 3, "{end} records of {row} bytes in {totals:?}");
    let world = world.reopened();
    world.check();
    for offset in 0..end {
        delete(&world.head, offset);
        if offset % 500 == 0 {
            world.commit();
        }
    }
    (0..5).for_each(|_| world.commit());
    world.check();
    let totals = world.engine.space_totals();
    assert!(totals.allocated < totals.size / 20, "{totals:?}");
}

/// Every second row becomes free, and records are stored there row by row.
#[test]
fn records_are_stored_in_lonely_rows() {
    let world = World::new(2, 5);
    let row = u64::from(world.watched.unit()) as usize * 4096;
    let small = world.fill(0, row);
    world.commit();
    (0..small).step_by(2).for_each(|offset| delete(&world.head, offset));
    (0..5).for_each(|_| world.commit());
    let large = small..small + 300;
    for offset in large.clone() {
        put_noise(&world.head, offset, 128 << 10).unwrap();
    }
    world.commit();
    let pieces = |offset: u64| {
        let entry = world.head.read(|view| -> Result<_, Plain> { Ok(view.get(Key::new(7, 0, offset))?.unwrap()) });
        let pointer = entry.unwrap().block().unwrap().pointer().unwrap();
        world.engine.forget_read();
        assert_eq!(*world.engine.read_block(&pointer, Seen::HELD).unwrap(), noise(offset, 128 << 10));
        world.engine.storage().extents(&pointer).unwrap().len()
    };
    assert!(large.clone().filter(|&offset| pieces(offset) > 5).count() > 10);
    world.check();
    large.for_each(|offset| delete(&world.head, offset));
    world.commit();
    world.check();
}

/// A megabyte may become 256 records of a row each. It is admitted only if all of them have room.
#[test]
fn much_is_let_in_only_where_it_fits_in_the_smallest_records() {
    let world = World::new(1, 7);
    let has_room = || {
        // Dirty data takes less than the space set aside for it.
        (0..5).take_while(|_| world.engine.available() <= 5 * MIB).for_each(|_| world.commit());
        world.engine.available() > 5 * MIB
    };
    for offset in (0..).take_while(|_| has_room()) {
        put_noise(&world.head, offset, 96 << 10).unwrap();
    }
    assert!(world.engine.available() > 2 * MIB);
    assert!(matches!(world.head.admit(MIB), Err(Error::OutOfSpace)));
    let cut = (0..20).map(|_| world.head.admit(MIB / 20)).collect::<Result<Vec<_>>>();
    assert!(cut.is_ok(), "what is brought in pieces has room");
}
