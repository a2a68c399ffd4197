//! A pool with mostly empty chunks gets whole regions back, without any loss.

use std::sync::Arc;

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool},
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    env::SeededEnv,
    space::{Class, Dense, Fragmentation, SAFE_STATES},
    units::{MIB, Txg},
};

use super::cuts::{recorded, wherever_power_fails};
use super::world::{World, name, noise, refusal, settings};
use crate::{
    admin::{Datasets, Progress},
    catalogue::MoveState,
    fs::ROOT,
    jobs::Job,
};

/// A small budget, so that every walk takes many steps.
const BUDGET: u64 = 1 << 20;
const LEN: usize = 100_000;
const FILES: u64 = 400;
/// One of this number of files stays.
const KEPT: u64 = 4;

fn disk(name: &str) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, 64 * MIB))
}

/// A pool being defragmented.
struct Bench {
    pool: Pool,
    world: World,
}

impl Bench {
    /// A pool without files.
    fn bare(vdev: NewVdev, seed: u64) -> Bench {
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = admin::create_of(&[vdev], &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let bench = Bench { pool, world: World { devices: Vec::new(), engine, datasets } };
        ["tank/a", "tank/b"].into_iter().for_each(|name| drop(bench.world.create(name).unwrap()));
        bench
    }

    /// A pool with many files, most of them removed.
    fn new(vdev: NewVdev, seed: u64) -> Bench {
        let bench = Bench::bare(vdev, seed);
        let world = &bench.world;
        assert_eq!(world.datasets.defragment().start(None).unwrap(), Some(Dense::Enough));
        for number in 0..FILES {
            world.write("tank/b", &number.to_string(), &noise(number, LEN));
            if number % 20 == 19 {
                world.engine.commit().unwrap();
            }
        }
        (0..FILES).filter(|number| number % KEPT > 0).for_each(|number| world.remove("tank/b", &number.to_string()));
        world.settle();
        bench
    }

    fn of_disk(disk: &Arc<dyn Device>, seed: u64) -> Bench {
        Bench::new(NewVdev::Disk(disk.clone()), seed)
    }

    /// Reopens the pool on the given devices.
    fn open(devices: Vec<Arc<dyn Device>>, seed: u64) -> Bench {
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(devices.clone(), &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::open(engine.clone(), name("tank")).unwrap();
        Bench { pool, world: World { devices, engine, datasets } }
    }

    fn start(&self) {
        assert_eq!(self.world.datasets.defragment().start(None).unwrap(), None);
    }

    /// Makes the given number of steps; false if the job ends before.
    fn steps(&self, count: usize) -> bool {
        (0..count).all(|_| self.world.datasets.defragment().advance(BUDGET).unwrap() == Progress::Worked)
    }

    /// Does all background work of a service.
    fn finish(&self) {
        for _ in 0..2000 {
            self.world.work();
            if !self.steps(1) && !self.world.datasets.defragment().is_under_way() {
                return;
            }
        }
        panic!("it does not end: {:?}", self.world.datasets.defragment().status());
    }

    fn state(&self) -> MoveState {
        self.world.datasets.defragment().status().unwrap().state
    }

    fn holes(&self) -> Fragmentation {
        self.world.settle();
        self.world.datasets.defragment().plan()
    }

    /// Asserts that the job has finished, no further region can be emptied, and no file has changed.
    fn judge(&self, what: &str) {
        assert_eq!(self.state(), MoveState::Finished, "{what}");
        let holes = self.holes();
        assert_eq!((holes.reason, holes.chunks), (Some(Dense::Enough), 0), "{what}");
        self.judge_files(what);
        self.judge_totals(what);
    }

    /// Asserts that no space stays reserved.
    fn judge_totals(&self, what: &str) {
        (0..=SAFE_STATES).for_each(|_| _ = self.world.engine.commit_anyway().unwrap());
        let totals = self.world.engine.space_totals();
        assert_eq!((totals.size, totals.allocated + totals.deferred + totals.free), (62 * MIB, 62 * MIB), "{what}");
    }

    fn judge_files(&self, what: &str) {
        self.world.engine.forget_read();
        self.world.judge();
        let files = self.world.files("tank/b");
        for number in (0..FILES).step_by(KEPT as usize) {
            assert!(files[&number.to_string()] == noise(number, LEN), "file {number}, {what}");
        }
    }

    /// The number of gang blocks in a dataset.
    fn gangs(&self, dataset: &str) -> usize {
        self.world.extents(dataset).iter().filter(|(_, pointer)| pointer.gang).count()
    }

    /// The codes of the check's findings.
    fn findings(&self) -> Vec<String> {
        self.world.all_findings().iter().map(|finding| format!("{:?}", finding.code)).collect()
    }
}

#[test]
fn a_pool_in_use_gets_whole_regions_back_from_its_holes() {
    let disk = disk("a");
    let bench = Bench::of_disk(&disk, 1);
    let world = &bench.world;
    let before = bench.holes();
    assert!(before.chunks > 20 && before.empty_then > before.empty + 10, "{before:?}");
    world.snapshot("tank/b@old").unwrap();
    bench.start();
    assert!(refusal(world.datasets.defragment().start(None).map(drop)).to_string().contains("in progress"));
    let mut round = 1000;
    while world.datasets.defragment().is_under_way() {
        round += 1;
        world.write("tank/a", &format!("new{}", round % 4), &noise(round, LEN));
        world.fs("tank/a").fsync(ROOT).unwrap();
        match round {
            1002 => world.copy("tank/b", "4", "tank/a", "copy"),
            1004 => world.clone("tank/b@old", "tank/c").unwrap(),
            1005 => world.remove("tank/c", "8"),
            1006 => world.snapshot("tank/a@new").unwrap(),
            _ => {}
        }
        world.work();
        bench.steps(1);
        assert!(round < 3000);
    }
    assert!(round > 1010, "{round}");
    assert!(world.files("tank/a")["copy"] == noise(4, LEN) && world.files("tank/c")["0"] == noise(0, LEN));
    let after = bench.holes();
    assert!(after.empty >= before.empty + 10, "{before:?} {after:?}");
    let status = world.datasets.defragment().status().unwrap();
    assert!(status.emptied >= status.wanted * 3 / 4 && status.taken * 2 <= status.emptied, "{status:?}");
    assert!(status.copied > 0 && status.errors == 0, "{status:?}");
    bench.judge("in use");
    drop(bench);
    let bench = Bench::open(vec![disk], 2);
    // Chunks that earlier jobs allocated in are no longer in use for allocation, so the job may choose these now.
    assert_eq!(bench.state(), MoveState::Finished);
    bench.judge_files("opened again");
    bench.judge_totals("opened again");
    // Packed blocks can be freed in their new place, and packed again.
    let world = &bench.world;
    ["tank/b@old", "tank/a@new"].into_iter().for_each(|snapshot| drop(world.destroy(snapshot, false, true).unwrap()));
    (0..FILES).filter(|number| number % KEPT == 0 && number % 16 > 0).for_each(|number| {
        world.remove("tank/b", &number.to_string());
    });
    world.work();
    let again = bench.holes();
    assert!(again.empty_then > again.empty, "{again:?}");
    bench.start();
    bench.finish();
    assert_eq!(bench.state(), MoveState::Finished);
    assert!(bench.holes().empty >= again.empty_then - 1, "{again:?} {:?}", bench.holes());
    world.engine.forget_read();
    world.judge();
    let files = world.files("tank/b");
    assert!((0..FILES).step_by(16).all(|number| files[&number.to_string()] == noise(number, LEN)));
    assert!(world.engine.storage().space.packed().1 > 0);
    // A map is deleted with its last block.
    world.files("tank/a").keys().for_each(|file| world.remove("tank/a", file));
    files.keys().for_each(|file| world.remove("tank/b", file));
    world.work();
    world.settle();
    world.judge();
    (0..4).for_each(|_| _ = world.engine.commit_anyway().unwrap());
    assert_eq!(world.engine.storage().space.packed(), (0, 0));
}

#[test]
fn what_shares_blocks_or_is_in_pieces_is_packed_too() {
    let disk = disk("a");
    let bench = Bench::bare(NewVdev::Disk(disk.clone()), 3);
    let world = &bench.world;
    let mut count = 0u64;
    while world.try_write("tank/b", &count.to_string(), &noise(count, 16 << 10)).is_ok() {
        count += 1;
        if count.is_multiple_of(100) {
            world.engine.commit().unwrap();
        }
    }
    assert!(count > 1000, "{count}");
    (0..count).filter(|number| number % 2 > 0).for_each(|number| world.remove("tank/b", &number.to_string()));
    world.settle();
    // No whole region is left, and no hole is as large as a record.
    (0..8).for_each(|number| world.write("tank/a", &format!("gang{number}"), &noise(5000 + number, 8 * LEN)));
    world.engine.commit().unwrap();
    assert!(bench.gangs("tank/a") > 8, "{}", bench.gangs("tank/a"));
    world.copy("tank/a", "gang0", "tank/b", "shared");
    world.snapshot("tank/a@old").unwrap();
    world.clone("tank/a@old", "tank/c").unwrap();
    (0..count).filter(|number| number % 16 > 0 && number % 2 == 0).for_each(|number| {
        world.remove("tank/b", &number.to_string());
    });
    world.remove("tank/a", "gang1");
    let before = bench.holes();
    assert!(before.empty_then > before.empty + 8, "{before:?}");
    bench.start();
    bench.finish();
    assert_eq!(bench.state(), MoveState::Finished);
    let judge = |bench: &Bench| {
        bench.world.engine.forget_read();
        bench.world.judge();
        assert!(bench.world.files("tank/b")["shared"] == noise(5000, 8 * LEN));
        let (now, then) = (bench.world.files("tank/a"), bench.world.files("tank/c"));
        assert!((2..8).all(|number| now[&format!("gang{number}")] == noise(5000 + number, 8 * LEN)));
        assert!((0..8).all(|number| then[&format!("gang{number}")] == noise(5000 + number, 8 * LEN)));
        let files = bench.world.files("tank/b");
        assert!((0..count).step_by(16).all(|number| files[&number.to_string()] == noise(number, 16 << 10)));
    };
    judge(&bench);
    let after = bench.holes();
    assert!(after.empty >= before.empty_then - 1, "{before:?} {after:?}");
    drop(bench);
    judge(&Bench::open(vec![disk], 4));
}

#[test]
fn rows_of_a_raidz_are_packed_into_rows() {
    let disks = ["a", "b", "c"].map(|name| Arc::new(MemoryDevice::new(name, 64 * MIB)) as Arc<dyn Device>);
    let bench = Bench::new(NewVdev::RaidZ { parity: 1, devices: disks.to_vec() }, 5);
    let before = bench.holes();
    assert!(before.empty_then > before.empty + 3, "{before:?}");
    bench.start();
    bench.finish();
    assert_eq!(bench.state(), MoveState::Finished);
    let after = bench.holes();
    assert!(after.empty >= before.empty_then - 1, "{before:?} {after:?}");
    bench.judge_files("packed");
    drop(bench);
    Bench::open(disks.to_vec(), 6).judge_files("opened again");
}

#[test]
fn it_goes_on_when_the_pool_is_opened_again() {
    let count = (0..1000).take_while(|&steps| {
        let disk = disk("a");
        let bench = Bench::of_disk(&disk, 7);
        bench.start();
        let goes_on = bench.steps(steps * 5);
        drop(bench);
        let bench = Bench::open(vec![disk], 8);
        assert_eq!(bench.world.datasets.defragment().is_under_way(), goes_on);
        bench.world.write("tank/a", "new", &noise(9, LEN));
        bench.finish();
        bench.judge(&format!("{steps} times 5 steps"));
        goes_on
    });
    assert!(count.count() > 5);
}

#[test]
fn it_can_be_paused_and_given_up_at_any_time() {
    let disk = disk("a");
    let mut bench = Bench::of_disk(&disk, 9);
    assert!(refusal(bench.world.datasets.defragment().pause()).to_string().contains("no defragmentation"));
    assert!(refusal(bench.world.datasets.defragment().stop(&bench.pool)).to_string().contains("no defragmentation"));
    bench.start();
    let mut rounds = 0;
    for steps in 1.. {
        if !bench.steps(steps) {
            break;
        }
        let datasets = bench.world.datasets.clone();
        assert!(refusal(datasets.rebalance().start(None)).to_string().contains("pool defragment -s"));
        datasets.defragment().pause().unwrap();
        assert!(refusal(datasets.defragment().pause()).to_string().contains("already paused"));
        assert!(!bench.steps(1) && datasets.defragment().is_under_way());
        let status = datasets.defragment().status().unwrap();
        if steps % 2 == 0 {
            drop((bench, datasets));
            bench = Bench::open(vec![disk.clone()], 10 + steps as u64);
            assert!(bench.world.datasets.moving().is_paused() && !bench.steps(1));
            assert_eq!(bench.world.datasets.defragment().status().unwrap(), status);
        }
        let datasets = bench.world.datasets.clone();
        let totals = bench.world.engine.space_totals();
        assert_eq!(totals.size, totals.allocated + totals.deferred + totals.free);
        assert_eq!(datasets.defragment().start(Some(7)).unwrap(), None);
        assert_eq!((datasets.moving().is_paused(), datasets.moving().limit()), (false, Some(7)));
        if steps % 3 == 0 {
            bench.steps(steps);
            if datasets.defragment().is_under_way() {
                datasets.defragment().stop(&bench.pool).unwrap();
                assert_eq!(bench.state(), MoveState::Canceled);
            }
            bench.judge_files("given up");
            assert!(!bench.steps(1));
            match datasets.defragment().start(None).unwrap() {
                None => assert_eq!(datasets.moving().limit(), None, "another one has no limit"),
                Some(reason) => {
                    assert_eq!(reason, Dense::Enough);
                    break;
                }
            }
        }
        rounds = steps;
    }
    assert!(rounds > 3, "{rounds}");
    bench.judge_files("at the end");
    bench.judge_totals("at the end");
    assert_eq!(bench.holes().reason, Some(Dense::Enough));
}

#[test]
fn what_cannot_be_read_stays_where_it_is() {
    let disk = Arc::new(FaultDevice::new(disk("a")));
    let bench = Bench::new(NewVdev::Disk(disk.clone()), 11);
    bench.world.engine.forget_read();
    bench.start();
    assert!(bench.steps(4));
    disk.inject(Fault { range: 8 * MIB..60 * MIB, times: 100_000, ..Fault::failing(Operation::Read) });
    bench.finish();
    assert_eq!(bench.state(), MoveState::Unreadable);
    disk.heal();
    bench.world.forgive();
    bench.judge_files("healed");
    bench.start();
    bench.finish();
    bench.judge("at the second time");
}

#[test]
fn a_defragmentation_without_room_ends_and_leaves_all_as_before() {
    let disk = disk("a");
    let bench = Bench::of_disk(&disk, 16);
    bench.start();
    assert!(bench.steps(1));
    // Chunks are chosen, and then all target space is taken.
    let engine = &bench.world.engine;
    let storage = engine.storage();
    let take = |txg| storage.space.allocate(txg, Class::Metadata, MIB as u32, 1, &storage.vdevs).ok();
    let taken: Vec<_> = engine.with_open_txg(|txg| std::iter::from_fn(|| take(txg)).collect());
    assert!(taken.len() > 5, "{}", taken.len());
    bench.finish();
    assert_eq!(bench.state(), MoveState::NoRoom);
    let give_back = |at: &pool::space::Allocation| {
        engine.with_open_txg(|txg| storage.space.free(txg, at.addresses[0], MIB as u32)).unwrap();
    };
    taken.iter().for_each(give_back);
    bench.judge_files("given up");
    bench.judge_totals("given up");
    bench.start();
    bench.finish();
    bench.judge("with room again");
}

#[test]
fn what_is_allocated_and_nobody_s_moves_as_it_is() {
    let disk = disk("a");
    let bench = Bench::of_disk(&disk, 12);
    let (engine, before) = (&bench.world.engine, bench.holes());
    // Some blocks are in chunks to be packed, by far the sparsest.
    let storage = engine.storage();
    let leak =
        |_| engine.with_open_txg(|txg| storage.space.allocate(txg, Class::Data, 4096, 1, &storage.vdevs)).unwrap();
    let lost: Vec<_> = (0..40).map(leak).collect();
    let is_packed = |space: &pool::space::Space, at: &pool::space::Allocation| {
        let there = space.resolve(at.addresses[0], 4096).unwrap();
        space.arrived(at.addresses[0]) > Txg::ZERO && there.1 > 0
    };
    engine.commit_anyway().unwrap();
    bench.world.engine.forget_read();
    drop(bench);
    // Allocating in a chunk prevents its packing.
    let bench = Bench::open(vec![disk], 13);
    let leaks = |bench: &Bench| {
        let found = bench.findings();
        assert!(!found.is_empty() && found.iter().all(|code| code == "Leaked"), "{found:?}");
        found.len()
    };
    leaks(&bench);
    bench.start();
    bench.finish();
    assert_eq!(bench.state(), MoveState::Finished);
    assert!(bench.holes().empty + 1 >= before.empty_then, "{before:?}");
    leaks(&bench);
    let space = &bench.world.engine.storage().space;
    assert!(lost.iter().any(|at| is_packed(space, at)), "none of them was packed");
    let files = bench.world.files("tank/b");
    assert!((0..FILES).step_by(KEPT as usize).all(|number| files[&number.to_string()] == noise(number, LEN)));
}

#[test]
fn wherever_power_fails_every_file_is_there_and_it_goes_on() {
    let recorder = Recorder::new();
    let disks = recorded(&recorder, &[64]);
    let bench = Bench::of_disk(&disks[0], 14);
    let before = bench.holes();
    bench.world.snapshot("tank/b@old").unwrap();
    bench.world.fs("tank/a").fsync(ROOT).unwrap();
    let begin = recorder.len();
    bench.start();
    // The content covered by each fsync, and the position in the recording.
    let mut promised = Vec::new();
    while bench.world.datasets.defragment().is_under_way() {
        let number = promised.len() as u64;
        bench.world.write("tank/a", &number.to_string(), &noise(1000 + number, 5000));
        bench.world.fs("tank/a").fsync(ROOT).unwrap();
        promised.push(recorder.len());
        bench.steps(2);
    }
    assert!(bench.holes().empty >= before.empty_then - 2);
    drop(bench);
    wherever_power_fails(&recorder, begin..recorder.len(), 80, &promised, |cut, what, images| {
        let bench = Bench::open(images, 15);
        bench.judge_files(what);
        let files = bench.world.files("tank/a");
        for (number, _) in (0..).zip(&promised).filter(|(_, from)| **from <= cut) {
            assert!(files.get(&number.to_string()) == Some(&noise(1000 + number, 5000)), "fsync {number}, {what}");
        }
        // Free space is reused at once, so space still needed must not be free.
        (0..60).for_each(|number| bench.world.write("tank/a", &format!("more{number}"), &noise(2000 + number, LEN)));
        bench.world.engine.commit().unwrap();
        bench.judge_files(what);
        (0..60).for_each(|number| bench.world.remove("tank/a", &format!("more{number}")));
        if bench.world.datasets.defragment().is_under_way() {
            bench.finish();
            bench.judge(what);
        }
    });
}
