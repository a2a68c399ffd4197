//! A device fails in the middle of a commit, returns, and no accepted change is lost.

use std::{ops::RangeInclusive, thread, time::Duration};

use super::*;
use crate::{
    admin::Pool,
    device::{DeadlineDevice, Fault, FaultDevice, Operation},
    error::{Error, ErrorKind},
    vdev::{Health, Leaf},
};

const FOREVER: Duration = Duration::from_secs(3600);

/// A pool on a device with injected faults, with a committer, and with the memory below for later inspection.
struct World {
    disk: Arc<MemoryDevice>,
    device: Arc<FaultDevice>,
    slow: Arc<DeadlineDevice>,
    pool: Pool,
    head: Arc<Head>,
    committer: Option<Committer>,
}

impl World {
    fn new(waiting: bool) -> World {
        let disk = Arc::new(MemoryDevice::new("disk", 64 * MIB));
        let device = Arc::new(FaultDevice::new(disk.clone()));
        let slow = Arc::new(DeadlineDevice::new(device.clone(), FOREVER));
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = admin::create(vec![slow.clone()], &options, Arc::new(SeededEnv::new(1))).unwrap();
        let engine = pool.engine();
        engine.set_client(Arc::new(OneTree));
        engine.suspension().enable();
        engine.suspension().set_waiting(waiting);
        let head = engine.open_head(1, None);
        let committer = Some(Committer::spawn(engine.clone(), FOREVER));
        let world = World { disk, device, slow, pool, head, committer };
        world.fill(0..=9, 1);
        world.engine().commit().unwrap();
        world
    }

    fn engine(&self) -> &Arc<Engine> {
        self.pool.engine()
    }

    fn fill(&self, offsets: RangeInclusive<u64>, byte: u8) {
        offsets.for_each(|offset| put(&self.head, offset, byte, 3000 + offset as usize * 500));
    }

    /// Commits on a thread of its own. Returns once the pool is suspended or the commit has ended.
    fn commit(&self) -> thread::JoinHandle<Result<Txg>> {
        let engine = self.engine().clone();
        let commit = thread::spawn(move || engine.commit());
        while !self.engine().suspension().is_suspended() && !commit.is_finished() {
            thread::yield_now();
        }
        commit
    }

    fn clear(&self) -> Result<()> {
        self.pool.clear(&|_| Ok(self.slow.clone()))
    }

    fn with_leaf<T>(&self, look: impl FnOnce(&Leaf) -> T) -> T {
        let vdevs = self.engine().storage().vdevs.all();
        look(&vdevs[0].leaves()[0])
    }

    /// The records of the pool after reopening from the device's memory.
    fn reopened(&self) -> BTreeMap<u64, (u8, usize)> {
        let (engine, head) = open(Arc::new(self.disk.snapshot())).unwrap();
        let head = head.unwrap();
        assert_eq!(findings(&engine, Some(&head)), []);
        contents(&head)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.device.heal();
        self.engine().abandon();
        drop(self.committer.take());
    }
}

#[test]
fn a_new_feature_waits_for_a_failed_device() {
    const FEATURE: &str = "feature@test";
    for on in [Operation::Write, Operation::Flush] {
        let world = World::new(true);
        world.device.inject(Fault { skip: 1, ..Fault::failing(on) });
        let engine = world.engine().clone();
        let active = thread::spawn(move || engine.activate(FEATURE));
        while !world.engine().suspension().is_suspended() {
            assert!(!active.is_finished(), "it came back with {:?}", active.join());
            thread::yield_now();
        }
        assert!(!world.engine().is_active(FEATURE));
        assert_eq!(world.with_leaf(Leaf::health), Health::Faulted);
        world.device.heal();
        world.clear().unwrap();
        active.join().unwrap().unwrap();
        assert!(world.engine().is_active(FEATURE));
        assert_eq!(world.with_leaf(Leaf::health), Health::Online);
    }
}

#[test]
fn a_new_feature_is_refused_if_failmode_is_not_wait() {
    let world = World::new(false);
    world.device.inject(Fault::failing(Operation::Flush));
    let refused = world.engine().activate("feature@test").unwrap_err();
    assert!(matches!(refused, Error::Suspended(_)), "{refused}");
    world.device.heal();
    world.clear().unwrap();
    world.engine().activate("feature@test").unwrap();
}

/// The fault of the device.
#[derive(Clone, Copy, Debug)]
enum Trouble {
    Fails(Operation),
    Vanishes(Operation),
}

/// Whether the device loses its cache when struck, and whether another commit precedes the inspection.
const CASES: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// Strikes at the `skip`th operation of a commit; true if the commit has so many.
fn strike(trouble: Trouble, skip: u64, loses_cache: bool, commits_again: bool) -> bool {
    let case = format!("{trouble:?}, {skip}, {loses_cache}, {commits_again}");
    let world = World::new(true);
    world.fill(5..=14, 2);
    let begun = contents(&world.head);
    let (Trouble::Fails(on) | Trouble::Vanishes(on)) = trouble;
    world.device.inject(Fault { skip, ..Fault::failing(on) });
    let commit = world.commit();
    let struck = world.engine().suspension().is_suspended();
    if struck {
        if let Trouble::Vanishes(_) = trouble {
            world.device.vanish();
            assert_eq!(world.clear().map_err(|error| error.kind()), Err(ErrorKind::Device), "{case}");
        }
        // Changes in memory are still accepted, and belong to the next group.
        world.fill(20..=24, 3);
        world.device.heal();
        if loses_cache {
            world.device.lose_cache();
        }
        world.clear().unwrap_or_else(|error| panic!("{case}: {error}"));
    }
    world.device.heal();
    commit.join().unwrap().unwrap_or_else(|error| panic!("{case}: {error}"));
    let accepted = contents(&world.head);
    if commits_again {
        world.engine().commit().unwrap();
    }
    // The returned commit is on the device for good, its uberblock too.
    world.device.lose_cache();
    let found = world.reopened();
    assert!(found == accepted || !commits_again && found == begun, "{case}: {found:?}");
    struck
}

#[test]
fn a_failure_of_any_write_of_a_commit_loses_nothing() {
    for trouble in [Trouble::Fails(Operation::Write), Trouble::Vanishes(Operation::Write)] {
        for (loses_cache, commits_again) in CASES {
            let strikes = (0..).take_while(|&skip| strike(trouble, skip, loses_cache, commits_again)).count();
            assert!(strikes > 5, "{strikes} writes in a commit");
        }
    }
}

#[test]
fn a_failure_of_either_flush_of_a_commit_loses_nothing() {
    for trouble in [Trouble::Fails(Operation::Flush), Trouble::Vanishes(Operation::Flush)] {
        for (loses_cache, commits_again) in CASES {
            assert_eq!((0..).take_while(|&skip| strike(trouble, skip, loses_cache, commits_again)).count(), 2);
        }
    }
}

#[test]
fn a_read_that_a_commit_needs_waits_for_the_device() {
    let world = World::new(true);
    world.engine().forget_read();
    world.device.vanish();
    let reader = {
        let head = world.head.clone();
        thread::spawn(move || contents(&head))
    };
    while !world.engine().suspension().is_suspended() {
        thread::yield_now();
    }
    assert_eq!(world.with_leaf(Leaf::health), Health::Unavailable);
    world.device.heal();
    world.clear().unwrap();
    assert_eq!(reader.join().unwrap().len(), 10);
    assert_eq!(world.with_leaf(Leaf::health), Health::Online);
}

#[test]
fn without_waiting_callers_get_errors_and_memory_is_readable() {
    let world = World::new(false);
    let before = contents(&world.head);
    world.fill(5..=14, 2);
    let accepted = contents(&world.head);
    world.device.vanish();
    let suspended = |result: Result<()>| assert!(matches!(result, Err(Error::Suspended(_))), "{result:?}");
    suspended(world.commit().join().unwrap().map(drop));
    suspended(world.engine().commit().map(drop));
    suspended(world.head.admit(10));
    suspended(world.engine().writable());
    assert_eq!(contents(&world.head), accepted);
    assert!(accepted != before);
    assert!(world.with_leaf(|leaf| leaf.counters().snapshot().write_errors > 0));
    // A read that misses memory is an error and not a wait.
    world.engine().forget_read();
    let stored = world.head.read(|view| -> Result<_, Plain> { Ok(view.get(Key::new(7, 0, 1))?.unwrap()) }).unwrap();
    assert_eq!(world.head.bytes(&stored.block().unwrap(), Seen::HELD).unwrap_err().kind(), ErrorKind::Device);
    world.device.heal();
    world.clear().unwrap();
    world.engine().commit().unwrap();
    assert_eq!(world.reopened(), accepted);
    assert_eq!(world.with_leaf(|leaf| leaf.counters().snapshot().write_errors), 0);
}

#[test]
fn a_bad_sector_is_an_error_and_suspends_nothing() {
    let world = World::new(true);
    world.engine().forget_read();
    let data = crate::format::label::DATA_START..world.disk.size() - (1 << 20);
    world.device.inject(Fault { range: data, ..Fault::failing(Operation::Read) });
    let read = world.head.read(|view| -> Result<_, Plain> { Ok(view.get(Key::new(7, 0, 1))?.is_some()) });
    assert_eq!(read.map_err(|error| Error::from(error).kind()), Err(ErrorKind::Device));
    assert!(!world.engine().suspension().is_suspended());
}

#[test]
fn a_hung_device_is_given_up_and_returns_when_it_answers() {
    let world = World::new(true);
    world.fill(5..=14, 2);
    let accepted = contents(&world.head);
    // The first write hangs, and none is requested after it: so nothing here depends on the speed of other writes.
    world.device.inject(Fault::hanging(Operation::Write));
    world.slow.set_deadline(Duration::from_millis(50));
    let commit = world.commit();
    world.slow.set_deadline(FOREVER);
    assert!(world.engine().suspension().is_suspended());
    assert_eq!(world.with_leaf(Leaf::health), Health::Faulted);
    let refused = world.clear().unwrap_err();
    assert!(refused.to_string().contains("still has unanswered requests"), "{refused}");
    world.device.heal();
    while world.slow.outstanding() > 0 {
        thread::yield_now();
    }
    world.clear().unwrap();
    commit.join().unwrap().unwrap();
    assert_eq!(world.reopened(), accepted);
}

#[test]
fn only_the_device_that_was_there_is_taken_back() {
    let world = World::new(true);
    let old = world.disk.snapshot();
    world.fill(5..=14, 2);
    world.engine().commit().unwrap();
    let current = Arc::new(world.disk.snapshot());
    world.fill(12..=17, 3);
    let accepted = contents(&world.head);
    world.device.vanish();
    let commit = world.commit();
    let refused = |device: MemoryDevice, why: &str| {
        let device: Arc<dyn Device> = Arc::new(device);
        let error = world.pool.clear(&|_| Ok(device.clone())).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        assert!(world.engine().suspension().is_suspended());
    };
    refused(old, "is older than the last write to it");
    refused(MemoryDevice::new("blank", 64 * MIB), "holds no Cenote pool");
    let other = Arc::new(MemoryDevice::new("other", 64 * MIB));
    create(other.clone(), 2);
    refused(other.snapshot(), "is a different device");
    let elsewhere = Arc::new(current.snapshot());
    drop(open(elsewhere.clone()).unwrap());
    refused(elsewhere.snapshot(), "was imported by another host");
    world.pool.clear(&|_| Ok(current.clone())).unwrap();
    commit.join().unwrap().unwrap();
    let (_engine, head) = open(Arc::new(current.snapshot())).unwrap();
    assert_eq!(contents(&head.unwrap()), accepted);
}

#[test]
fn giving_up_ends_all_waiting_and_leaves_the_last_commit() {
    let world = World::new(true);
    let committed = contents(&world.head);
    world.fill(5..=14, 2);
    world.device.inject(Fault::failing(Operation::Write));
    let commit = world.commit();
    world.engine().abandon();
    assert!(commit.join().unwrap().is_err());
    assert!(world.engine().writable().is_err());
    assert!(world.engine().commit().is_err());
    assert_eq!(world.reopened(), committed);
}

#[test]
fn an_uberblock_that_one_of_two_devices_misses_is_counted() {
    let disks = ["a", "b"].map(|name| Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, 64 * MIB)))));
    let devices = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = admin::create(devices, &options, Arc::new(SeededEnv::new(1))).unwrap();
    let size = disks[0].size();
    for range in [0..crate::format::label::DATA_START, size - crate::format::label::DATA_START..size] {
        disks[1].inject(Fault { range, ..Fault::failing(Operation::Write) });
    }
    pool.engine().commit_anyway().unwrap();
    let vdevs = pool.engine().storage().vdevs.all();
    let errors: Vec<u64> = vdevs.iter().map(|vdev| vdev.leaves()[0].counters().snapshot().write_errors).collect();
    assert_eq!(errors, [0, 1]);
}
