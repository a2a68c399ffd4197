//! Devices of a pool in use are shrunk, without any loss.

use std::{sync::Arc, time::Duration};

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool, SAFE_STATES, ShrinkPlan, Wanted, rewind, states},
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    env::SeededEnv,
    format::label::{BACK_LABELS, SHRUNKEN_DEVICES},
    space::Balanced,
    units::{MIB, Txg, VdevId},
};

use super::cuts::{Disk, SIZE, devices, disks, recorded, wherever_power_fails};
use super::world::{World, name, noise, refusal, settings};
use crate::{
    admin::{Datasets, Progress},
    catalogue::MoveState,
    fs::ROOT,
    jobs::{Job, Resizing},
};

/// A small budget, so that every walk takes many steps.
const BUDGET: u64 = 2 << 20;
const LEN: usize = 1 << 20;
const FILES: std::ops::Range<u64> = 55..90;
/// The new size: 70 regions, and labels.
const SMALL: u64 = 70 * MIB + 3 * MIB / 2;
const FIRST: VdevId = VdevId(0);

/// A pool of one vdev with an empty front and a used end.
struct Bench {
    pool: Pool,
    world: World,
}

impl Bench {
    fn new(vdev: NewVdev, seed: u64) -> Bench {
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let devices = vdev.devices().to_vec();
        let pool = admin::create_of(&[vdev], &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let bench = Bench { pool, world: World { devices, engine, datasets } };
        ["tank/a", "tank/b"].into_iter().for_each(|name| drop(bench.world.create(name).unwrap()));
        for number in 0..FILES.end {
            bench.world.write("tank/b", &number.to_string(), &noise(number, LEN));
            if number % 10 == 0 {
                bench.world.engine.commit().unwrap();
            }
        }
        (0..FILES.start).for_each(|number| bench.world.remove("tank/b", &number.to_string()));
        bench.world.work();
        (0..=SAFE_STATES).for_each(|_| _ = bench.world.engine.commit_anyway().unwrap());
        assert!(bench.plan().moving.bytes > 10 * MIB, "{:?}", bench.plan());
        bench
    }

    fn of_disk(disk: &Disk, seed: u64) -> Bench {
        Bench::new(NewVdev::Disk(disk.clone()), seed)
    }

    /// Reopens the pool on the given devices.
    fn open(devices: Vec<Arc<dyn Device>>, state: Option<Txg>, seed: u64) -> Bench {
        let options = OpenOptions { settings: settings(), read_only: state.is_some(), state, ..OpenOptions::default() };
        let pool = admin::open(devices.clone(), &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::open(engine.clone(), name("tank")).unwrap();
        Bench { pool, world: World { devices, engine, datasets } }
    }

    fn plan(&self) -> ShrinkPlan {
        self.pool
            .plan_shrink(self.pool.engine().storage().vdevs.all()[0].leaves()[0].name(), Wanted::To(SMALL))
            .unwrap()
    }

    fn start(&self) {
        let plan = self.plan();
        assert!(plan.moving.fits() && plan.least < SMALL, "{plan:?}");
        self.world.datasets.resize().start(&plan, None).unwrap();
    }

    /// Makes the given number of steps; false if the resize ends before.
    fn steps(&self, count: usize) -> bool {
        (0..count).all(|_| match self.world.datasets.resize().advance(BUDGET).unwrap() {
            Resizing::Went(progress) => progress == Progress::Worked,
            Resizing::Shrinks(vdev, regions) => {
                self.pool.shrink(vdev, regions).unwrap();
                self.world.datasets.resize().has_shrunk().unwrap();
                false
            }
        })
    }

    /// Does all background work of a service.
    fn finish(&self) {
        for _ in 0..1000 {
            self.world.work();
            while self.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked {}
            if !self.steps(1) && !self.world.datasets.resize().is_under_way() {
                return;
            }
        }
        panic!("the resize does not end: {:?}", self.world.datasets.resize().status());
    }

    fn state(&self) -> MoveState {
        self.world.datasets.resize().status().unwrap().state
    }

    /// Asserts that all devices have the new end, and nothing is missing.
    fn judge(&self, what: &str) {
        assert_eq!(self.state(), MoveState::Finished, "{what}");
        assert!(self.world.devices.iter().all(|device| device.size() == SMALL), "{what}");
        assert_eq!(self.world.engine.space_totals().size, 70 * MIB, "{what}");
        self.judge_files(what);
    }

    fn judge_files(&self, what: &str) {
        self.world.engine.forget_read();
        self.world.judge();
        let files = self.world.files("tank/b");
        for number in FILES {
            assert!(files[&number.to_string()] == noise(number, LEN), "file {number}, {what}");
        }
    }
}

/// Runs `test` with a resize after 0, 3, 6, … steps, up to its end.
fn after_some_steps(mut test: impl FnMut(usize) -> bool) {
    let count = (0..1000).step_by(3).take_while(|&steps| test(steps)).count();
    assert!(count > 3, "it took {count} times three steps");
}

#[test]
fn everything_goes_on_while_the_end_of_a_disk_is_emptied() {
    let [disk] = disks(["a"]);
    let bench = Bench::of_disk(&disk, 1);
    let world = &bench.world;
    world.snapshot("tank/b@old").unwrap();
    bench.start();
    assert!(world.engine.is_active(SHRUNKEN_DEVICES));
    for refused in [
        refusal(world.datasets.rebalance().start(None).map(|_: Option<Balanced>| ())),
        refusal(world.datasets.removal().start(FIRST, "it", 0, None)),
        refusal(world.datasets.defragment().start(None).map(drop)),
        refusal(world.datasets.resize().start(&bench.plan(), None)),
    ] {
        assert!(refused.to_string().contains("use pool resize -s to stop it"), "{refused}");
    }
    let mut round = 100;
    while world.datasets.resize().is_under_way() {
        round += 1;
        world.write("tank/a", &format!("new{}", round % 4), &noise(round, 100_000));
        world.fs("tank/a").fsync(ROOT).unwrap();
        match round {
            102 => world.copy("tank/b", "81", "tank/a", "copy"),
            104 => world.clone("tank/b@old", "tank/c").unwrap(),
            106 => world.snapshot("tank/a@new").unwrap(),
            _ => {}
        }
        world.work();
        bench.steps(1);
        assert!(round < 1000);
    }
    bench.judge("at its end");
    assert!(world.files("tank/a")["copy"] == noise(81, LEN) && world.files("tank/c")["82"] == noise(82, LEN));
    drop(bench);
    let safe = states(&devices(std::slice::from_ref(&disk)), &OpenOptions::default()).unwrap();
    for state in &safe[..SAFE_STATES] {
        Bench::open(devices(std::slice::from_ref(&disk)), Some(state.txg), 2).judge_files("before");
    }
    let bench = Bench::open(devices(std::slice::from_ref(&disk)), None, 3);
    bench.judge("opened again");
    // The space given up is taken back, and filled.
    assert!(bench.pool.regain(FIRST).unwrap());
    assert_eq!(bench.pool.expand(None).unwrap(), 56 * MIB);
    (200..240).for_each(|number| bench.world.write("tank/a", &number.to_string(), &noise(number, LEN)));
    bench.world.engine.commit().unwrap();
    drop(bench);
    let bench = Bench::open(devices(std::slice::from_ref(&disk)), None, 4);
    bench.judge_files("regained");
    let files = bench.world.files("tank/a");
    assert!((200..240).all(|number| files[&number.to_string()] == noise(number, LEN)));
}

#[test]
fn a_resize_is_resumed_after_import_and_can_be_stopped() {
    let mut stopped = 0;
    after_some_steps(|steps| {
        let [disk] = disks(["a"]);
        let bench = Bench::of_disk(&disk, 2);
        bench.start();
        let goes_on = bench.steps(steps);
        drop(bench);
        let bench = Bench::open(devices(std::slice::from_ref(&disk)), None, 3);
        bench.world.write("tank/a", "new", &noise(9, LEN));
        bench.world.engine.commit().unwrap();
        if goes_on {
            bench.steps(2);
            match bench.world.datasets.resize().stop(&bench.pool) {
                Ok(()) => {
                    stopped += 1;
                    assert_eq!(bench.state(), MoveState::Canceled);
                    assert!(refusal(bench.world.datasets.resize().stop(&bench.pool)).to_string().contains("no resize"));
                    assert_eq!(bench.world.engine.space_totals().size, 126 * MIB);
                    bench.judge_files("given up");
                    bench.start();
                }
                Err(error) => {
                    assert!(error.to_string().contains("try again") || !bench.world.datasets.resize().is_under_way());
                }
            }
        }
        bench.finish();
        bench.judge(&format!("{steps} steps"));
        goes_on
    });
    assert!(stopped > 2, "{stopped}");
}

#[test]
fn one_that_is_paused_waits_and_is_no_part_of_the_pool_s_room() {
    let [disk] = disks(["a"]);
    let bench = Bench::of_disk(&disk, 4);
    bench.start();
    assert!(bench.steps(3));
    bench.world.datasets.resize().pause().unwrap();
    assert!(refusal(bench.world.datasets.resize().pause()).to_string().contains("already paused"));
    assert!(!bench.steps(1));
    drop(bench);
    let bench = Bench::open(devices(std::slice::from_ref(&disk)), None, 5);
    assert!(
        bench.world.datasets.resize().is_under_way() && bench.world.datasets.moving().is_paused() && !bench.steps(1)
    );
    assert!(bench.world.engine.space_totals().size < 110 * MIB, "what is closed and free is not the pool's");
    bench.world.datasets.resize().start(&bench.plan(), Some(1 << 30)).unwrap();
    assert_eq!(bench.world.datasets.moving().limit(), Some(1 << 30));
    bench.finish();
    bench.judge("after a pause");
}

#[test]
fn what_cannot_be_read_or_finds_no_room_stays() {
    let [disk] = disks(["a"]);
    let bench = Bench::of_disk(&disk, 6);
    bench.world.engine.forget_read();
    let data = 72 * MIB..126 * MIB;
    disk.inject(Fault { range: data, times: 100_000, ..Fault::failing(Operation::Read) });
    bench.start();
    bench.finish();
    assert_eq!(bench.state(), MoveState::Unreadable);
    disk.heal();
    bench.world.forgive();
    bench.judge_files("healed");
    (200..250).for_each(|number| bench.world.write("tank/a", &number.to_string(), &noise(number, LEN)));
    bench.world.engine.commit().unwrap();
    let plan = bench.plan();
    assert!(!plan.moving.fits() && plan.least > SMALL, "{plan:?}");
    bench.world.datasets.resize().start(&plan, None).unwrap();
    bench.finish();
    assert_eq!(bench.state(), MoveState::NoRoom);
    assert_eq!(bench.world.engine.space_totals().size, 126 * MIB);
    bench.judge_files("without room");
    // The least size reported is possible.
    let least = bench.pool.plan_shrink("a", Wanted::To(plan.least)).unwrap();
    assert!(least.moving.fits() && least.size == plan.least, "{least:?}");
    bench.world.datasets.resize().start(&least, None).unwrap();
    bench.finish();
    assert_eq!((bench.state(), disk.size()), (MoveState::Finished, plan.least));
    bench.judge_files("as small as it could be");
}

#[test]
fn a_device_gives_back_what_its_pool_does_not_use() {
    let [disk] = disks(["a"]);
    let bench = Bench::of_disk(&disk, 14);
    let larger: Disk = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("b", 200 * MIB))));
    bench.pool.attach("a", larger.clone(), true).unwrap();
    while bench.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked {}
    bench.pool.finish_replacing().unwrap();
    let plan = bench.pool.plan_shrink("b", Wanted::To(160 * MIB)).unwrap();
    assert_eq!((plan.now, plan.moving.bytes), (200 * MIB, 0));
    bench.world.datasets.resize().start(&plan, None).unwrap();
    bench.finish();
    assert_eq!((bench.state(), larger.size()), (MoveState::Finished, plan.size));
    assert_eq!(bench.world.engine.space_totals().size, 126 * MIB, "it uses what it did");
    bench.judge_files("smaller");
    drop(bench);
    let bench = Bench::open(devices(std::slice::from_ref(&larger)), None, 15);
    assert_eq!((larger.size(), bench.pool.growth()), (plan.size, u64::from(plan.regions) * MIB - 126 * MIB));
    bench.judge_files("opened again");
    assert!(bench.pool.regain(FIRST).unwrap());
    assert_eq!(bench.pool.expand(None).unwrap(), 198 * MIB - 126 * MIB);
    bench.judge_files("regained");
}

#[test]
fn a_resize_ends_or_stops_when_a_smaller_device_was_attached() {
    let large = |name: &str, size| -> Disk { Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, size)))) };
    let is_resilvered = |bench: &Bench| {
        while bench.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked {}
        bench.pool.finish_replacing().unwrap();
    };
    for (is_mirror, is_given_up) in [(false, false), (true, false), (true, true)] {
        let [disk] = disks(["a"]);
        let bench = Bench::of_disk(&disk, 16);
        let (b, c) = (large("b", 200 * MIB), large("c", 140 * MIB));
        bench.pool.attach("a", b.clone(), true).unwrap();
        is_resilvered(&bench);
        let plan = bench.pool.plan_shrink("b", Wanted::To(160 * MIB)).unwrap();
        bench.world.datasets.resize().start(&plan, None).unwrap();
        bench.world.datasets.resize().pause().unwrap();
        bench.pool.attach("b", c.clone(), !is_mirror).unwrap();
        is_resilvered(&bench);
        if is_given_up {
            bench.world.datasets.resize().stop(&bench.pool).unwrap();
            assert_eq!((bench.state(), b.size(), c.size()), (MoveState::Canceled, 200 * MIB, 140 * MIB));
        } else {
            bench.world.datasets.resize().start(&plan, None).unwrap();
            bench.finish();
            let left = if is_mirror { plan.size } else { 200 * MIB };
            assert_eq!((bench.state(), b.size(), c.size()), (MoveState::Finished, left, 140 * MIB));
        }
        bench.judge_files("whole");
    }
}

#[test]
fn a_mirror_waits_until_all_of_its_devices_are_there() {
    let disks = disks(["a", "b"]);
    let bench = Bench::new(NewVdev::Mirror(devices(&disks)), 7);
    bench.start();
    assert!(bench.steps(2));
    bench.pool.put_offline("b", false).unwrap();
    assert!(bench.pool.plan_shrink("a", Wanted::To(SMALL)).unwrap_err().to_string().contains("must be complete"));
    let datasets = &bench.world.datasets;
    assert!((0..300).any(|_| !bench.steps(1) && datasets.resize().obstacle().is_some()));
    assert!(datasets.resize().is_under_way() && disks[0].size() == SIZE * MIB);
    assert_eq!(datasets.resize().obstacle().unwrap(), "it is waiting for b, which is missing or incomplete");
    let committed = bench.world.engine.committed();
    (0..10).for_each(|_| assert!(!bench.steps(1)));
    assert_eq!(bench.world.engine.committed(), committed, "who waits commits nothing");
    let found: Arc<dyn Device> = disks[1].clone();
    bench.pool.put_online("b", &move |_| Ok(found.clone())).unwrap();
    bench.finish();
    bench.judge("both are back");
    // Only the content of the device is left.
    bench.pool.detach("a").unwrap();
    drop(bench);
    let bench = Bench::open(devices(&disks[1..]), None, 8);
    bench.judge("the one that was away");
}

#[test]
fn a_resize_does_not_report_waiting_for_a_device_that_is_back() {
    let disks = disks(["a", "b"]);
    let bench = Bench::new(NewVdev::Mirror(devices(&disks)), 17);
    bench.start();
    bench.pool.put_offline("b", false).unwrap();
    let datasets = &bench.world.datasets;
    assert!((0..300).any(|_| !bench.steps(1) && datasets.resize().obstacle().is_some()));
    datasets.resize().pause().unwrap();
    let found: Arc<dyn Device> = disks[1].clone();
    bench.pool.put_online("b", &move |_| Ok(found.clone())).unwrap();
    while datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked {}
    datasets.resize().start(&bench.plan(), None).unwrap();
    assert_eq!(datasets.resize().obstacle(), None);
    bench.finish();
    bench.judge("both are back");
}

#[test]
fn a_waiting_resize_can_be_stopped_and_its_space_is_used_again() {
    let disks = disks(["a", "b"]);
    let bench = Bench::new(NewVdev::Mirror(devices(&disks)), 11);
    bench.start();
    bench.pool.put_offline("b", false).unwrap();
    let datasets = &bench.world.datasets;
    assert!((0..300).any(|_| !bench.steps(1) && datasets.resize().obstacle().is_some()));
    datasets.resize().pause().unwrap();
    datasets.resize().stop(&bench.pool).unwrap();
    assert_eq!((bench.state(), datasets.resize().obstacle()), (MoveState::Canceled, None));
    // Older states have content in the regions emptied last.
    (0..=SAFE_STATES).for_each(|_| _ = bench.world.engine.commit_anyway().unwrap());
    assert_eq!(bench.world.engine.space_totals().size, 126 * MIB);
    (200..240).for_each(|number| bench.world.write("tank/a", &number.to_string(), &noise(number, LEN)));
    bench.world.engine.commit().unwrap();
    bench.judge_files("given up");
    drop(bench);
    let bench = Bench::open(devices(&disks), None, 12);
    let files = bench.world.files("tank/a");
    assert!((200..240).all(|number| files[&number.to_string()] == noise(number, LEN)));
    bench.judge_files("opened again");
}

#[test]
fn a_resize_retries_devices_that_do_not_shrink_after_a_while() {
    let [disk] = disks(["a"]);
    let bench = Bench::of_disk(&disk, 13);
    bench.start();
    let datasets = &bench.world.datasets;
    let new_end = Fault { range: SMALL - BACK_LABELS..SMALL, ..Fault::failing(Operation::Write) };
    let shrinks = || match (0..300).find_map(|_| match datasets.resize().advance(BUDGET).unwrap() {
        Resizing::Shrinks(vdev, regions) => Some((vdev, regions)),
        Resizing::Went(_) => None,
    }) {
        Some((vdev, regions)) => bench.pool.shrink(vdev, regions),
        None => panic!("it does not come to its end"),
    };
    disk.inject(new_end);
    let error = shrinks().unwrap_err();
    datasets.resize().failed(&error);
    assert_eq!(datasets.resize().obstacle(), Some(format!("it is retried every minute: {error}")));
    let committed = bench.world.engine.committed();
    (0..10).for_each(|_| assert!(!bench.steps(1)));
    assert_eq!(bench.world.engine.committed(), committed, "it rests");
    bench.world.engine.env().sleep(Duration::from_secs(60));
    let error = shrinks().unwrap_err();
    datasets.resize().failed(&error);
    disk.heal();
    datasets.resize().stop(&bench.pool).unwrap();
    assert_eq!((bench.world.engine.space_totals().size, disk.size()), (126 * MIB, SIZE * MIB));
    (200..240).for_each(|number| bench.world.write("tank/a", &number.to_string(), &noise(number, LEN)));
    bench.world.engine.commit().unwrap();
    (200..240).for_each(|number| bench.world.remove("tank/a", &number.to_string()));
    bench.world.work();
    (0..=SAFE_STATES).for_each(|_| _ = bench.world.engine.commit_anyway().unwrap());
    // Only the vdev's own devices learn the new end.
    bench.start();
    shrinks().unwrap();
    assert!(refusal(datasets.resize().stop(&bench.pool)).to_string().contains("already end there"));
    assert!(refusal(datasets.resize().pause()).to_string().contains("already end there"));
    datasets.resize().has_shrunk().unwrap();
    bench.judge("healed");
}

#[test]
fn wherever_power_fails_every_file_is_there() {
    let recorder = Recorder::new();
    let devices = recorded(&recorder, &[SIZE, SIZE]);
    let bench = Bench::new(NewVdev::Mirror(devices), 9);
    bench.world.fs("tank/a").fsync(ROOT).unwrap();
    let begin = recorder.len();
    bench.start();
    // The content covered by each fsync, and the position in the recording.
    let mut promised = Vec::new();
    while bench.world.datasets.resize().is_under_way() {
        let number = promised.len() as u64;
        bench.world.write("tank/a", &number.to_string(), &noise(100 + number, 5000));
        bench.world.fs("tank/a").fsync(ROOT).unwrap();
        promised.push(recorder.len());
        bench.steps(1);
    }
    drop(bench);
    let last: Vec<usize> = promised.iter().copied().step_by(4).collect();
    wherever_power_fails(&recorder, begin..recorder.len(), 20, &last, |cut, what, images| {
        let bench = Bench::open(images, None, 10);
        bench.judge_files(what);
        let files = bench.world.files("tank/a");
        for (number, _) in (0..).zip(&promised).filter(|(_, from)| **from <= cut) {
            assert!(files.get(&number.to_string()) == Some(&noise(100 + number, 5000)), "fsync {number}, {what}");
        }
        if bench.world.datasets.resize().status().is_some() {
            bench.finish();
            bench.judge(what);
        }
    });
}

#[test]
fn a_rewound_pool_resumes_restarts_or_has_finished_its_resize() {
    let disk = Arc::new(MemoryDevice::new("disk", SIZE * MIB));
    let bench = Bench::new(NewVdev::Disk(disk.clone()), 15);
    // The number of states without a resize yet, with a resize, and with a resize although the disk is small.
    let mut outcomes = [0; 3];
    let mut judge = || {
        for state in &states(&[disk.clone() as Arc<dyn Device>], &OpenOptions::default()).unwrap()[..SAFE_STATES] {
            let image: Arc<dyn Device> = Arc::new(disk.snapshot());
            let images = vec![image];
            rewind(&images, state.txg, &OpenOptions::default(), &SeededEnv::new(20)).unwrap();
            let bench = Bench::open(images, None, 21);
            let is_large = bench.world.devices[0].size() > SMALL;
            let what = format!("{}", state.txg);
            bench.judge_files(&what);
            outcomes[match (bench.world.datasets.resize().is_under_way(), is_large) {
                (false, true) => {
                    (0..=SAFE_STATES).for_each(|_| _ = bench.world.engine.commit_anyway().unwrap());
                    bench.start();
                    0
                }
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => continue,
            }] += 1;
            bench.finish();
            bench.judge(&what);
        }
    };
    bench.start();
    judge();
    while bench.steps(6) {
        judge();
    }
    assert_eq!(bench.state(), MoveState::Finished);
    judge();
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}
