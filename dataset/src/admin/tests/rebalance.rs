//! Vdevs of a pool in use become equally full, without any loss.

use std::sync::Arc;

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool},
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    env::SeededEnv,
    space::{Balanced, SAFE_STATES},
    units::MIB,
};

use super::cuts::{recorded, wherever_power_fails};
use super::world::{World, name, noise, refusal, settings};
use crate::{
    admin::{Datasets, Progress},
    catalogue::MoveState,
    fs::ROOT,
    jobs::Job,
};

/// Small, so that every walk takes many steps.
const BUDGET: u64 = 2 << 20;
const LEN: usize = 1 << 20;
const FILES: u64 = 40;

fn disk(name: &str) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, 64 * MIB))
}

/// A RAID-Z with single parity.
fn raidz(devices: &[Arc<dyn Device>]) -> NewVdev {
    NewVdev::RaidZ { parity: 1, devices: devices.to_vec() }
}

/// A pool being rebalanced.
struct Bench {
    pool: Pool,
    world: World,
}

impl Bench {
    /// A pool with files on its first disk, and a second disk added.
    fn new(disks: [Arc<dyn Device>; 2], seed: u64) -> Bench {
        let [first, second] = disks.map(NewVdev::Disk);
        Bench::of(vec![first], vec![second], seed)
    }

    /// A pool with files on its first vdevs, and other vdevs added.
    fn of(first: Vec<NewVdev>, others: Vec<NewVdev>, seed: u64) -> Bench {
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = admin::create_of(&first, &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let bench = Bench { pool, world: World { devices: Vec::new(), engine, datasets } };
        ["tank/a", "tank/b"].into_iter().for_each(|name| drop(bench.world.create(name).unwrap()));
        (0..FILES).for_each(|number| bench.world.write("tank/b", &number.to_string(), &noise(number, LEN)));
        bench.world.engine.commit().unwrap();
        let reason = if first.len() == 1 { Balanced::NoPeers } else { Balanced::Level };
        assert_eq!(bench.world.datasets.rebalance().start(None).unwrap(), Some(reason));
        bench.pool.begin_add(others).unwrap().finish().unwrap();
        bench.world.engine.commit_anyway().unwrap();
        bench
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
        assert_eq!(self.world.datasets.rebalance().start(None).unwrap(), None);
    }

    /// Makes the given number of steps; false if the job ends before.
    fn steps(&self, count: usize) -> bool {
        (0..count).all(|_| self.world.datasets.rebalance().advance(BUDGET).unwrap() == Progress::Worked)
    }

    /// Does all background work of a service.
    fn finish(&self) {
        for _ in 0..1000 {
            self.world.work();
            if !self.steps(1) && !self.world.datasets.rebalance().is_under_way() {
                return;
            }
        }
        panic!("the rebalance does not end: {:?}", self.world.datasets.rebalance().status());
    }

    fn state(&self) -> MoveState {
        self.world.datasets.rebalance().status().unwrap().state
    }

    /// The fill of the vdevs, in percent.
    fn fill(&self) -> Vec<u64> {
        let totals = self.world.engine.space_totals();
        totals.vdevs.iter().map(|vdev| vdev.allocated * 100 / vdev.size).collect()
    }

    /// Asserts that both vdevs are about equally full, and no file has changed.
    fn judge(&self, what: &str) {
        assert_eq!(self.state(), MoveState::Finished, "{what}");
        let fill = self.fill();
        let (least, most) = (fill.iter().min().unwrap(), fill.iter().max().unwrap());
        assert!(most - least <= 3, "{what}: {fill:?}");
        self.judge_files(what);
        // No space stays reserved.
        (0..=SAFE_STATES).for_each(|_| _ = self.world.engine.commit_anyway().unwrap());
        let (totals, label) = (self.world.engine.space_totals(), self.pool.label());
        let size: u64 = label.vdevs.iter().map(|vdev| vdev.tree.size(1 << label.ashift, MIB) / MIB * MIB).sum();
        assert!(totals.size <= size && totals.size > size * 99 / 100, "{what}: {totals:?} of {size}");
        assert_eq!(totals.allocated + totals.deferred + totals.free, totals.size, "{what}");
    }

    fn judge_files(&self, what: &str) {
        self.world.engine.forget_read();
        self.world.judge();
        let files = self.world.files("tank/b");
        for number in 0..FILES {
            assert!(files[&number.to_string()] == noise(number, LEN), "file {number}, {what}");
        }
    }
}

#[test]
fn the_pool_is_used_while_chunks_move_to_an_added_vdev() {
    let disks = [disk("a"), disk("b")];
    let bench = Bench::new(disks.clone(), 1);
    let world = &bench.world;
    let before = bench.fill();
    assert!(before[0] > 60 && before[1] < 5, "{before:?}");
    world.snapshot("tank/b@old").unwrap();
    bench.start();
    assert!(refusal(world.datasets.rebalance().start(None).map(drop)).to_string().contains("in progress"));
    let mut round = 100;
    while world.datasets.rebalance().is_under_way() {
        round += 1;
        world.write("tank/a", &format!("new{}", round % 4), &noise(round, 100_000));
        world.fs("tank/a").fsync(ROOT).unwrap();
        match round {
            102 => world.copy("tank/b", "1", "tank/a", "copy"),
            104 => world.clone("tank/b@old", "tank/c").unwrap(),
            106 => world.snapshot("tank/a@new").unwrap(),
            _ => {}
        }
        world.work();
        bench.steps(1);
        assert!(round < 1000);
    }
    assert!(world.files("tank/a")["copy"] == noise(1, LEN) && world.files("tank/c")["0"] == noise(0, LEN));
    assert_eq!(world.datasets.rebalance().start(None).unwrap(), Some(Balanced::Level));
    bench.judge("in use");
    let status = world.datasets.rebalance().status().unwrap();
    assert!(status.copied >= status.total * 3 / 4 && status.errors == 0, "{status:?}");
    drop(bench);
    Bench::open(disks.to_vec(), 2).judge("opened again");
}

#[test]
fn a_rebalance_goes_on_when_the_pool_is_opened_again() {
    let count = (0..1000).take_while(|&steps| {
        let disks = [disk("a"), disk("b")];
        let bench = Bench::new(disks.clone(), 2);
        bench.start();
        let goes_on = bench.steps(steps * 3);
        drop(bench);
        let bench = Bench::open(disks.to_vec(), 3);
        assert_eq!(bench.world.datasets.rebalance().is_under_way(), goes_on);
        bench.world.write("tank/a", "new", &noise(9, LEN));
        bench.finish();
        bench.judge(&format!("{steps} times 3 steps"));
        goes_on
    });
    assert!(count.count() > 5);
}

#[test]
fn a_rebalance_can_be_paused_and_given_up_at_any_time() {
    let disks = [disk("a"), disk("b")];
    let mut bench = Bench::new(disks.clone(), 4);
    let datasets = bench.world.datasets.clone();
    assert!(refusal(datasets.rebalance().pause()).to_string().contains("no rebalance"));
    assert!(refusal(datasets.rebalance().stop(&bench.pool)).to_string().contains("no rebalance"));
    drop(datasets);
    bench.start();
    let mut rounds = 0;
    for steps in 1.. {
        if !bench.steps(steps) {
            break;
        }
        let datasets = &bench.world.datasets;
        datasets.rebalance().pause().unwrap();
        assert!(refusal(datasets.rebalance().pause()).to_string().contains("already paused"));
        assert!(!bench.steps(1) && datasets.rebalance().is_under_way());
        let copied = datasets.rebalance().status().unwrap().copied;
        if steps % 2 == 0 {
            drop(bench);
            bench = Bench::open(disks.to_vec(), 5 + steps as u64);
            assert!(bench.world.datasets.moving().is_paused() && !bench.steps(1));
            assert_eq!(bench.world.datasets.rebalance().status().unwrap().copied, copied);
        }
        let totals = bench.world.engine.space_totals();
        assert_eq!(totals.size, totals.allocated + totals.deferred + totals.free);
        assert_eq!(bench.world.datasets.rebalance().start(Some(7)).unwrap(), None);
        assert_eq!(
            (bench.world.datasets.moving().is_paused(), bench.world.datasets.moving().limit()),
            (false, Some(7))
        );
        if steps % 3 == 0 {
            bench.steps(steps);
            bench.world.datasets.rebalance().stop(&bench.pool).unwrap();
            assert_eq!(bench.state(), MoveState::Canceled);
            bench.judge_files("given up");
            assert!(!bench.steps(1));
            match bench.world.datasets.rebalance().start(None).unwrap() {
                None => assert_eq!(bench.world.datasets.moving().limit(), None, "another one has no limit"),
                Some(reason) => {
                    assert_eq!(reason, Balanced::Level);
                    break;
                }
            }
        }
        rounds = steps;
    }
    assert!(rounds > 5, "{rounds}");
    bench.judge_files("at the end");
    assert!(bench.fill()[0].abs_diff(bench.fill()[1]) <= 3);
}

#[test]
fn what_cannot_be_read_stays_where_it_is() {
    let disks = ["a", "b"].map(|name| Arc::new(FaultDevice::new(disk(name))));
    let bench = Bench::new(disks.clone().map(|disk| disk as Arc<dyn Device>), 6);
    bench.world.engine.forget_read();
    bench.start();
    assert!(bench.steps(4));
    disks[0].inject(Fault { range: 8 * MIB..60 * MIB, times: 100_000, ..Fault::failing(Operation::Read) });
    bench.finish();
    assert_eq!(bench.state(), MoveState::Unreadable);
    disks[0].heal();
    bench.world.forgive();
    bench.judge_files("healed");
    bench.start();
    bench.finish();
    bench.judge("at the second time");
}

#[test]
fn a_rebalance_for_which_there_is_no_room_any_more_ends() {
    let disks = [disk("a"), disk("b")];
    let bench = Bench::new(disks, 7);
    bench.start();
    // The first chunks are chosen, and then their target space is taken.
    assert!(bench.steps(1));
    let taken = bench.world.fill("tank/a", LEN);
    bench.finish();
    assert_eq!(bench.state(), MoveState::NoRoom);
    bench.judge_files("at its end");
    (0..taken).for_each(|number| bench.world.remove("tank/a", &number.to_string()));
    bench.world.work();
    bench.world.settle();
    bench.start();
    bench.finish();
    bench.judge("with room again");
}

#[test]
fn a_power_failure_in_a_rebalance_costs_no_file() {
    let recorder = Recorder::new();
    let disks = recorded(&recorder, &[64, 64]);
    let bench = Bench::new([disks[0].clone(), disks[1].clone()], 8);
    bench.world.fs("tank/a").fsync(ROOT).unwrap();
    let begin = recorder.len();
    bench.start();
    // The content covered by each fsync, and the position in the recording.
    let mut promised = Vec::new();
    while bench.world.datasets.rebalance().is_under_way() {
        let number = promised.len() as u64;
        bench.world.write("tank/a", &number.to_string(), &noise(100 + number, 5000));
        bench.world.fs("tank/a").fsync(ROOT).unwrap();
        promised.push(recorder.len());
        bench.steps(1);
    }
    drop(bench);
    wherever_power_fails(&recorder, begin..recorder.len(), 40, &promised, |cut, what, images| {
        let bench = Bench::open(images, 9);
        bench.judge_files(what);
        let files = bench.world.files("tank/a");
        for (number, _) in (0..).zip(&promised).filter(|(_, from)| **from <= cut) {
            assert!(files.get(&number.to_string()) == Some(&noise(100 + number, 5000)), "fsync {number}, {what}");
        }
        // Free space is reused at once, so space still needed must not be free.
        (0..20).for_each(|number| bench.world.write("tank/a", &format!("more{number}"), &noise(200 + number, LEN)));
        bench.world.engine.commit().unwrap();
        bench.judge_files(what);
        if bench.world.datasets.rebalance().status().is_some() {
            bench.finish();
            bench.judge(what);
        }
    });
}

#[test]
fn vdevs_whose_rows_differ_in_width_become_equally_full_too() {
    let disks: Vec<Arc<dyn Device>> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"].map(disk).to_vec();
    let mirror = |devices: &[Arc<dyn Device>]| NewVdev::Mirror(devices.to_vec());
    let shapes = [
        (vec![raidz(&disks[..3])], vec![raidz(&disks[3..7])], 7),
        (vec![raidz(&disks[..3]), raidz(&disks[3..6])], vec![raidz(&disks[6..])], 10),
        (vec![NewVdev::Disk(disks[0].clone())], vec![raidz(&disks[1..4])], 4),
        (vec![raidz(&disks[..4])], vec![mirror(&disks[4..6]), NewVdev::Disk(disks[6].clone())], 7),
    ];
    for (seed, (first, others, count)) in (20..).zip(shapes) {
        let what = format!("shape {seed}");
        let bench = Bench::of(first, others, seed);
        bench.world.snapshot("tank/b@old").unwrap();
        let before = bench.fill();
        bench.start();
        let mut round = 0;
        while bench.world.datasets.rebalance().is_under_way() {
            round += 1;
            bench.world.write("tank/a", &format!("new{}", round % 4), &noise(round, 100_000));
            bench.world.work();
            bench.steps(1);
            assert!(round < 2000, "{what}");
        }
        assert_ne!(bench.fill(), before);
        bench.judge(&what);
        let status = bench.world.datasets.rebalance().status().unwrap();
        assert!(status.copied <= status.total * 2 && status.errors == 0, "{what}: {status:?}");
        assert_eq!(bench.world.datasets.rebalance().start(None).unwrap(), Some(Balanced::Level), "{what}");
        drop(bench);
        Bench::open(disks[..count].to_vec(), seed + 10).judge(&what);
    }
}

#[test]
fn a_rebalance_between_different_rows_is_resumed_after_import() {
    let disks: Vec<Arc<dyn Device>> = ["a", "b", "c", "d"].map(disk).to_vec();
    let mut bench = Bench::of(vec![NewVdev::Disk(disks[0].clone())], vec![raidz(&disks[1..])], 40);
    bench.start();
    for steps in 1.. {
        if !bench.steps(steps) {
            break;
        }
        if steps % 2 == 0 {
            bench.world.datasets.rebalance().pause().unwrap();
            assert!(!bench.steps(1));
            bench.world.datasets.rebalance().start(None).unwrap();
        }
        drop(bench);
        bench = Bench::open(disks.clone(), 40 + steps as u64);
        bench.judge_files(&format!("opened after {steps} steps"));
    }
    bench.finish();
    bench.judge("at the end");
}

#[test]
fn a_power_failure_while_chunks_are_packed_costs_no_file() {
    let recorder = Recorder::new();
    let disks = recorded(&recorder, &[64, 64, 64, 64]);
    let bench = Bench::of(vec![NewVdev::Disk(disks[0].clone())], vec![raidz(&disks[1..])], 50);
    let begin = recorder.len();
    bench.start();
    bench.finish();
    drop(bench);
    wherever_power_fails(&recorder, begin..recorder.len(), 12, &[], |_, what, images| {
        let bench = Bench::open(images, 51);
        bench.judge_files(what);
        // Free space is reused at once, so space still needed must not be free.
        (0..10).for_each(|number| bench.world.write("tank/a", &format!("more{number}"), &noise(200 + number, LEN)));
        bench.world.engine.commit().unwrap();
        bench.judge_files(what);
        if bench.world.datasets.rebalance().status().is_some() {
            bench.finish();
            bench.judge(what);
        }
    });
}
