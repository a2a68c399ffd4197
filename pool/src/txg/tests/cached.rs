//! A pool with a cache device: cached blocks cost the disks no further requests, and reads return the right bytes
//! whatever happens to the cache device.

use std::{iter, sync::atomic::AtomicBool, sync::atomic::Ordering, thread};

use super::*;
use crate::{
    admin::{NewVdev, Pool, rewind, states},
    device::{Fault, FaultDevice, Operation},
    format::pointer::BlockPointer,
    space::Seen,
    vdev::{Counts, Health},
};

const RECORDS: u64 = 60;
const RECORD: usize = 64 << 10;

struct World {
    disk: Arc<dyn Device>,
    cache: Arc<FaultDevice>,
    pool: Pool,
    head: Arc<Head>,
}

fn fault(name: &str) -> Arc<FaultDevice> {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, 80 * MIB))))
}

fn device(fault: &Arc<FaultDevice>) -> Arc<dyn Device> {
    fault.clone()
}

impl World {
    /// A pool of records and an empty cache device.
    fn new() -> World {
        let (disk, cache): (Arc<dyn Device>, _) = (Arc::new(MemoryDevice::new("disk", 128 * MIB)), fault("cache"));
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = admin::create(vec![disk.clone()], &options, Arc::new(SeededEnv::new(1))).unwrap();
        pool.engine().set_client(Arc::new(OneTree));
        let head = pool.engine().open_head(1, None);
        (0..RECORDS).for_each(|index| put_noise(&head, index * RECORD as u64, RECORD).unwrap());
        pool.engine().commit().unwrap();
        pool.add_caches(&[device(&cache)]).unwrap();
        pool.engine().secondary().finish();
        World { disk, cache, pool, head }
    }

    /// The same with all blocks on the cache device.
    fn warm() -> World {
        let world = World::new();
        // The nodes are there since they were written.
        world.forget();
        world.read_all();
        world.pool.engine().secondary().finish();
        world.forget();
        world
    }

    /// Closes the pool and opens it again on these devices.
    fn reopened(self, devices: Vec<Arc<dyn Device>>) -> World {
        let World { disk, cache, pool, head } = self;
        pool.engine().secondary().finish();
        drop((pool, head));
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(devices, &options, Arc::new(SeededEnv::new(9))).unwrap();
        pool.engine().set_client(Arc::new(OneTree));
        let root = pool.engine().catalogue().read(|view| -> Result<_, Plain> {
            Ok(view.get(TREE)?.map(|entry| (entry.block().unwrap().pointer().unwrap(), entry.body()[0])))
        });
        let head = pool.engine().open_head(1, root.unwrap());
        pool.engine().secondary().finish();
        World { disk, cache, pool, head }
    }

    /// Drops the cache in memory.
    fn forget(&self) {
        self.pool.engine().forget_read();
    }

    fn items(&self) -> Vec<(Key, Block)> {
        let entries = self.head.read(|view| -> Result<Vec<_>, Plain> {
            let entries: Result<Vec<_>, _> = view.range(Key::MIN..Key::MAX).collect();
            Ok(entries?)
        });
        entries.unwrap().iter().map(|entry| (entry.key(), entry.block().unwrap())).collect()
    }

    /// Reads everything; each record must be right.
    fn read_all(&self) {
        let items = self.items();
        assert_eq!(items.len() as u64, RECORDS);
        for (key, block) in items {
            assert!(*self.head.bytes_at(key, &block, Seen::HELD).unwrap() == noise(key.offset, RECORD), "{key:?}");
        }
    }

    fn disk_reads(&self) -> u64 {
        self.pool.engine().storage().vdevs.all()[0].leaves()[0].counters().snapshot().reads
    }

    fn cache_counts(&self) -> Counts {
        self.pool.caches()[0].counters().snapshot()
    }
}

#[test]
fn what_was_read_once_costs_the_disks_no_further_request() {
    let world = World::warm();
    let (disk, cache) = (world.disk_reads(), world.cache_counts().reads);
    world.read_all();
    assert_eq!(world.disk_reads(), disk);
    assert!(world.cache_counts().reads >= cache + RECORDS, "the records and their tree");
    // By one request for many blocks as well.
    world.forget();
    let blocks: Vec<Block> = world.items().into_iter().map(|(_, block)| block).collect();
    world.head.bring(blocks.iter(), iter::empty(), Seen::HELD);
    world.read_all();
    assert_eq!((world.disk_reads(), world.cache_counts().checksum_errors), (disk, 0));
}

#[test]
fn what_is_brought_in_runs_goes_there_too() {
    let world = World::new();
    world.forget();
    let blocks: Vec<Block> = world.items().into_iter().map(|(_, block)| block).collect();
    let disk = world.disk_reads();
    world.head.bring(blocks.iter(), iter::empty(), Seen::HELD);
    world.read_all();
    assert!(world.disk_reads() - disk < RECORDS / 4, "they came in runs");
    world.pool.engine().secondary().finish();
    world.forget();
    let disk = world.disk_reads();
    world.read_all();
    assert_eq!(world.disk_reads(), disk);
}

#[test]
fn the_next_import_finds_a_warm_cache_and_walks_read_the_disks() {
    let world = World::warm();
    let devices = vec![world.disk.clone(), world.cache.clone() as Arc<dyn Device>];
    let world = world.reopened(devices);
    let disk = world.disk_reads();
    world.read_all();
    assert_eq!(world.disk_reads(), disk);
    world.forget();
    let cache = world.cache_counts().reads;
    assert_eq!(findings(world.pool.engine(), Some(&world.head)), []);
    assert_eq!(world.cache_counts().reads, cache);
    assert!(world.disk_reads() > disk);
}

#[test]
fn a_missing_dead_or_short_cache_device_is_skipped_and_returns() {
    let world = World::warm();
    let disk = world.disk.clone();
    let world = world.reopened(vec![disk.clone()]);
    assert_eq!(world.pool.caches()[0].health(), Health::Unavailable);
    world.read_all();
    let cache = world.cache.clone();
    let reopen = |_: &str| -> Result<Arc<dyn Device>> { Ok(cache.clone()) };
    assert!(world.pool.put_online("cache", &reopen).unwrap());
    assert!(!world.pool.put_online("cache", &reopen).unwrap(), "it is in use");
    world.pool.engine().secondary().finish();
    world.forget();
    let before = world.disk_reads();
    world.read_all();
    assert_eq!(world.disk_reads(), before, "it has what it had");
    // A shorter device than before is not the former cache device.
    let devices = vec![disk, Arc::new(MemoryDevice::new("cache", 64 * MIB)) as Arc<dyn Device>];
    let mut page = vec![0; MIB as usize];
    for at in (0..64 * MIB).step_by(page.len()) {
        world.cache.read_at(at, &mut page).unwrap();
        devices[1].write_at(at, &page).unwrap();
    }
    let short = devices[1].clone();
    let world = world.reopened(devices);
    assert_eq!(world.pool.caches()[0].health(), Health::Unavailable);
    world.read_all();
    let refused = world.pool.put_online("cache", &|_| Ok(short.clone())).unwrap_err();
    assert!(matches!(refused, Error::Shrunk { .. }), "{refused}");
    let other: Arc<dyn Device> = Arc::new(MemoryDevice::new("cache", 80 * MIB));
    assert!(matches!(world.pool.put_online("cache", &|_| Ok(other.clone())), Err(Error::Request(_))));
}

#[test]
fn a_cache_device_that_fails_during_reads_costs_only_reads() {
    let world = World::warm();
    world.cache.inject(Fault::corrupting(crate::format::label::DATA_START..u64::MAX));
    world.read_all();
    let errors = world.cache_counts().checksum_errors;
    assert!(errors >= RECORDS, "{errors}");
    assert_eq!(world.pool.caches()[0].health(), Health::Online);
    let world = World::warm();
    world.cache.inject(Fault { skip: RECORDS / 2, ..Fault::failing(Operation::Read) });
    world.read_all();
    assert_eq!(world.pool.caches()[0].health(), Health::Faulted);
    put_noise(&world.head, 0, RECORD).unwrap();
    world.pool.engine().commit().unwrap();
    // A failed write of its label does not stop the pool either.
    let world = World::warm();
    world.cache.inject(Fault::failing(Operation::Write));
    world.pool.rename("lake").unwrap();
    assert_eq!(world.pool.caches()[0].health(), Health::Faulted);
    world.read_all();
}

#[test]
fn a_cache_device_is_removed_and_put_offline_while_it_is_read() {
    let world = World::warm();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                world.forget();
                world.read_all();
            }
        });
        for _ in 0..5 {
            world.pool.put_offline("cache", true).unwrap();
            assert_eq!(world.pool.caches()[0].health(), Health::Offline);
            assert!(world.pool.put_online("cache", &|_| Ok(world.cache.clone())).unwrap());
            world.pool.engine().secondary().finish();
        }
        assert!(world.pool.remove_cache("cache").unwrap());
        assert!(!world.pool.remove_cache("cache").unwrap());
        assert_eq!(crate::vdev::labels::read_label(&*world.cache).unwrap(), None);
        world.pool.add_caches(&[device(&world.cache)]).unwrap();
        thread::sleep(Duration::from_millis(20));
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert_eq!(world.cache_counts().checksum_errors, 0, "what was taken away from under a reader is no error of it");
    let disk = world.disk.clone();
    let cache: Arc<dyn Device> = world.cache.clone();
    let world = world.reopened(vec![disk, cache]);
    assert_eq!((world.pool.caches().len(), world.pool.caches()[0].health()), (1, Health::Online));
    world.read_all();
}

#[test]
fn a_commit_that_loses_a_device_ignores_a_hung_cache_device() {
    let (twins, cache) = ([fault("one"), fault("other")], fault("cache"));
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let mirror = NewVdev::Mirror(twins.iter().map(device).collect());
    let pool = admin::create_of(&[mirror], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(OneTree));
    pool.add_caches(&[device(&cache)]).unwrap();
    pool.engine().secondary().finish();
    let head = pool.engine().open_head(1, None);
    put_noise(&head, 0, RECORD).unwrap();
    cache.inject(Fault::hanging(Operation::Write));
    twins[1].inject(Fault::failing(Operation::Write));
    let (say, said) = crossbeam_channel::bounded(1);
    thread::scope(|scope| {
        scope.spawn(|| say.send(pool.engine().commit().is_ok()));
        let committed = said.recv_timeout(Duration::from_secs(120));
        cache.heal();
        assert_eq!(committed, Ok(true));
    });
    let health: Vec<_> = pool.engine().storage().vdevs.all()[0].leaves().iter().map(|leaf| leaf.health()).collect();
    assert_eq!(health, [Health::Online, Health::Faulted], "and its labels say so");
}

#[test]
fn closing_a_pool_does_not_wait_for_a_scan_of_cache_devices() {
    let world = World::warm();
    world.pool.engine().secondary().close();
    let World { disk, cache, pool, head } = world;
    drop((pool, head));
    let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
    let pool = admin::open(vec![disk, device(&cache)], &options, Arc::new(SeededEnv::new(9))).unwrap();
    let reads = || pool.caches()[0].counters().snapshot().reads;
    let before = reads();
    pool.engine().secondary().close();
    assert_eq!(reads(), before);
    pool.engine().secondary().finish();
    assert!(reads() > before, "there was something to find out");
}

#[test]
fn after_going_back_nothing_is_read_that_was_given_up() {
    let mut world = World::warm();
    for round in 0..4 {
        let old = world.pool.engine().committed();
        // Commits that a rewind gives up, with blocks on the cache device.
        for index in 0..10 {
            put(&world.head, index * RECORD as u64, 1, RECORD);
        }
        world.pool.engine().commit().unwrap();
        world.forget();
        let given_up: Vec<BlockPointer> = world.items().iter().filter_map(|(_, block)| block.pointer()).collect();
        for (key, block) in world.items() {
            world.head.bytes_at(key, &block, Seen::HELD).unwrap();
        }
        world.pool.engine().secondary().finish();
        let given_up: Vec<_> = given_up.into_iter().filter(|pointer| pointer.birth > old).collect();
        assert!(given_up.len() == 10 && given_up.iter().all(|pointer| world.pool.engine().secondary().has(pointer)));
        let World { disk, cache, pool, head } = world;
        drop((pool, head));
        let devices = vec![disk, cache.clone() as Arc<dyn Device>];
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        assert!(states(&devices, &options).unwrap().iter().any(|state| state.txg == old));
        rewind(&devices, old, &options, &SeededEnv::new(20 + round)).unwrap();
        let pool = admin::open(devices.clone(), &options, Arc::new(SeededEnv::new(30 + round))).unwrap();
        pool.engine().set_client(Arc::new(OneTree));
        pool.engine().secondary().finish();
        assert!(given_up.iter().all(|pointer| !pool.engine().secondary().has(pointer)));
        let root = pool.engine().catalogue().read(|view| -> Result<_, Plain> {
            Ok(view.get(TREE)?.map(|entry| (entry.block().unwrap().pointer().unwrap(), entry.body()[0])))
        });
        let head = pool.engine().open_head(1, root.unwrap());
        world = World { disk: devices[0].clone(), cache, pool, head };
        world.read_all();
        assert_eq!(world.cache_counts().checksum_errors, 0);
    }
}

#[test]
fn what_is_not_committed_does_not_go_there() {
    let world = World::new();
    let record = world.head.record(Txg(u64::MAX >> 2), POLICY, noise(77, RECORD));
    drop(record);
    let committed = world.pool.engine().committed();
    let pointer = world.items()[0].1.pointer().unwrap();
    world.forget();
    // As if the block had been stored before its group was committed.
    let early = BlockPointer { birth: committed.next(), ..pointer };
    let block = Block::Stored(early);
    assert!(*world.head.bytes_at(world.items()[0].0, &block, Seen::HELD).unwrap() == noise(0, RECORD));
    world.pool.engine().secondary().finish();
    assert!(!world.pool.engine().secondary().has(&early));
}

#[test]
fn what_a_tree_keeps_out_of_the_caches_is_not_there() {
    let reads = |memory: Caching, devices: Caching| {
        let world = World::new();
        world.forget();
        world.head.set_caching(memory, devices);
        world.read_all();
        world.pool.engine().secondary().finish();
        let pointer = world.items()[0].1.pointer().unwrap();
        let is_in_memory = world.pool.engine().cache().data(&pointer).is_some();
        let nodes = world.pool.engine().secondary().held(world.pool.caches()[0].guid()) > 0;
        (is_in_memory, world.pool.engine().secondary().has(&pointer), nodes)
    };
    assert_eq!(reads(Caching::All, Caching::All), (true, true, true));
    assert_eq!(reads(Caching::All, Caching::Metadata), (true, false, true));
    assert_eq!(reads(Caching::All, Caching::None), (true, false, false));
    assert_eq!(reads(Caching::Metadata, Caching::All), (false, true, true));
    assert_eq!(reads(Caching::None, Caching::None), (false, false, false));
}
