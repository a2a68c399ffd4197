//! Vdevs are removed from a pool in use, without any loss.

use std::sync::Arc;

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool, SAFE_STATES, rewind, states},
    device::{Device, Fault, MemoryDevice, Operation, Recorder},
    env::SeededEnv,
    format::{
        label::DATA_START,
        pointer::{Address, BlockPointer},
    },
    space::{Packs, Regions, Targets},
    units::{MIB, Txg, VdevId},
    vdev::labels,
};

use super::cuts::{Disk, devices, disks, recorded, wherever_power_fails};
use super::world::{World, name, noise, refusal, settings};
use crate::{
    admin::{Datasets, Progress},
    catalogue::MoveState,
    fs::ROOT,
    jobs::{Job, Removing, moving::Emptying},
};

/// A small budget, so that every walk takes many steps.
const BUDGET: u64 = 256 << 10;
const LEN: usize = 512 << 10;
const GOES: VdevId = VdevId(1);

/// A pool with a vdev to remove.
struct Bench {
    pool: Pool,
    world: World,
}

impl Bench {
    /// A pool on the given vdevs, with two datasets and files on all vdevs.
    fn new(vdevs: &[NewVdev], seed: u64) -> Bench {
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = admin::create_of(vdevs, &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let devices = vdevs.iter().flat_map(NewVdev::devices).cloned().collect();
        let bench = Bench { pool, world: World { devices, engine, datasets } };
        ["tank/a", "tank/b"].into_iter().for_each(|name| drop(bench.world.create(name).unwrap()));
        for number in 0..8 {
            bench.world.write("tank/b", &number.to_string(), &noise(number, LEN));
        }
        bench.world.engine.commit().unwrap();
        assert!(
            bench.world.engine.storage().space.moving_plan(&Regions::Vdev(GOES), &Targets::Anywhere).bytes
                > 2 * LEN as u64
        );
        bench
    }

    fn of_disks(disks: &[Disk], seed: u64) -> Bench {
        Bench::new(&devices(disks).into_iter().map(NewVdev::Disk).collect::<Vec<_>>(), seed)
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
        let plan = self.pool.plan_removal(GOES).unwrap();
        assert!(plan.fits());
        self.world.datasets.removal().start(GOES, "it", plan.bytes, None).unwrap();
    }

    /// Makes the given number of steps; false if the removal ends before.
    fn steps(&self, count: usize) -> bool {
        (0..count).all(|_| match self.world.datasets.removal().advance(BUDGET).unwrap() {
            Removing::Went(progress) => progress == Progress::Worked,
            Removing::Leaves(vdev) => {
                self.pool.remove_vdev(vdev).unwrap();
                self.world.datasets.removal().has_left().unwrap();
                false
            }
        })
    }

    /// Does all background work of a service.
    fn finish(&self) {
        for _ in 0..1000 {
            self.world.work();
            while self.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked {}
            if !self.steps(1) && !self.world.datasets.removal().is_under_way() {
                return;
            }
        }
        panic!("the removal does not end: {:?}", self.world.datasets.removal().status());
    }

    fn state(&self) -> MoveState {
        self.world.datasets.removal().status().unwrap().state
    }

    /// Asserts that the vdev is gone and nothing is missing.
    fn judge(&self) {
        assert_eq!(self.state(), MoveState::Finished);
        assert_eq!(self.pool.label().vdevs.iter().map(|vdev| vdev.id).collect::<Vec<_>>(), [VdevId(0)]);
        self.world.engine.forget_read();
        self.world.judge();
    }

    fn judge_files(&self, what: &str) {
        let files = self.world.files("tank/b");
        for number in 0..8 {
            assert!(files[&number.to_string()] == noise(number, LEN), "file {number}, {what}");
        }
    }

    /// The offsets on the removed vdev of the root of a dataset's tree, if there, and of the first block of a file.
    fn blocks(&self) -> (Option<u64>, u64) {
        let storage = self.world.engine.storage();
        let on_it = |pointer: &BlockPointer| {
            let (vdev, at) = storage.space.resolve(pointer.addresses[0], pointer.stored).unwrap();
            (vdev == GOES).then_some(DATA_START + at)
        };
        let root = self.world.blocks("tank/b").0[0].1;
        let block = self.world.extents("tank/b").iter().find_map(|(_, pointer)| on_it(pointer));
        (on_it(&root), block.expect("no block is there"))
    }
}

/// Runs `test` with a removal after 0, 1, 2, … steps, up to its end.
fn after_any_number_of_steps(mut test: impl FnMut(usize) -> bool) {
    let count = (0..1000).take_while(|&steps| test(steps)).count();
    assert!(count > 10, "it took {count} steps");
}

#[test]
fn everything_goes_on_while_a_disk_leaves() {
    let disks = disks(["a", "b"]);
    everything_goes_on(Bench::of_disks(&disks, 1), &disks[..1], &disks[1..]);
}

#[test]
fn a_vdev_leaves_for_one_of_another_shape() {
    let there = disks(["a", "b", "c", "d"]);
    let raidz = |disks: &[Disk]| NewVdev::RaidZ { parity: 1, devices: devices(disks) };
    let vdevs = [NewVdev::Disk(there[0].clone()), raidz(&there[1..])];
    everything_goes_on(Bench::new(&vdevs, 10), &there[..1], &there[1..]);
    let there = disks(["a", "b", "c", "d"]);
    let vdevs = [raidz(&there[..3]), NewVdev::Disk(there[3].clone())];
    everything_goes_on(Bench::new(&vdevs, 11), &there[..3], &there[3..]);
    let there = disks(["a", "b", "c", "d", "e", "f", "g"]);
    let vdevs = [raidz(&there[..3]), raidz(&there[3..])];
    everything_goes_on(Bench::new(&vdevs, 12), &there[..3], &there[3..]);
}

/// Removes a vdev while files are written, copied and removed; `stay` and `go` are the disks.
fn everything_goes_on(bench: Bench, stay: &[Disk], go: &[Disk]) {
    let world = &bench.world;
    world.snapshot("tank/b@old").unwrap();
    bench.start();
    let mut round = 100;
    while world.datasets.removal().is_under_way() {
        round += 1;
        world.write("tank/a", &format!("new{round}"), &noise(round, 100_000));
        world.fs("tank/a").fsync(ROOT).unwrap();
        match round {
            102 => world.remove("tank/b", "0"),
            103 => world.copy("tank/b", "1", "tank/a", "copy"),
            104 => world.clone("tank/b@old", "tank/c").unwrap(),
            105 => world.remove("tank/b", "1"),
            106 => world.snapshot("tank/a@new").unwrap(),
            _ => {}
        }
        world.work();
        bench.steps(1);
    }
    bench.judge();
    assert!(go.iter().all(|disk| labels::read_label(&**disk).unwrap().is_none()), "the disk is nobody's");
    let files = world.files("tank/a");
    assert!((101..=round).all(|number| files[&format!("new{number}")] == noise(number, 100_000)));
    assert!(files["copy"] == noise(1, LEN) && world.files("tank/c")["0"] == noise(0, LEN));
    drop(bench);
    let again = Bench::open(devices(stay), 2);
    assert!(again.world.files("tank/b@old")["1"] == noise(1, LEN));
    again.judge();
    // Moved blocks are freed in their new place.
    ["2", "3", "4", "5", "6", "7"].into_iter().for_each(|name| again.world.remove("tank/b", name));
    again.world.destroy("tank/b@old", false, true).unwrap();
    again.world.work();
    again.judge();
}

#[test]
fn a_removal_goes_on_when_the_pool_is_opened_again() {
    after_any_number_of_steps(|steps| {
        let disks = disks(["a", "b"]);
        let bench = Bench::of_disks(&disks, 2);
        bench.start();
        let goes_on = bench.steps(steps);
        drop(bench);
        let there: Vec<_> =
            disks.iter().filter(|disk| labels::read_label(&***disk).unwrap().is_some()).cloned().collect();
        let bench = Bench::open(devices(&there), 3);
        bench.world.write("tank/a", "new", &noise(9, LEN));
        bench.finish();
        bench.judge();
        bench.judge_files(&format!("{steps} steps"));
        goes_on
    });
}

#[test]
fn a_removal_copies_nothing_twice_after_an_import() {
    let disks = disks(["a", "b"]);
    let mut bench = Bench::of_disks(&disks, 17);
    let left = |bench: &Bench| bench.pool.plan_removal(GOES).unwrap().bytes;
    (0..20).for_each(|number| bench.world.write("tank/a", &number.to_string(), &noise(number, LEN)));
    bench.world.engine.commit().unwrap();
    let all = left(&bench);
    let region = bench.pool.plan_removal(GOES).unwrap().region;
    assert!(all > 5 * region, "{all}");
    bench.start();
    // The pool is reopened after a half, and after three quarters.
    for part in [2, 4] {
        while left(&bench) > all / part {
            assert!(bench.steps(1));
        }
        let before = left(&bench);
        drop(bench);
        bench = Bench::open(devices(&disks), 18);
        // A part in progress, or without a committed table of its new places, is moved again.
        assert!(left(&bench) <= before + region, "{} after {before} of {all}", left(&bench));
        let copied = bench.world.datasets.removal().status().unwrap().copied;
        assert!(copied > region && bench.world.datasets.moving().copied() == 0, "{copied} of {all}");
    }
    bench.finish();
    bench.judge();
    bench.judge_files("at its end");
    let copied = bench.world.datasets.removal().status().unwrap().copied;
    assert!(copied < 2 * all, "{copied} of {all}");
}

#[test]
fn what_has_moved_when_a_removal_is_given_up_stays_there() {
    let bench = Bench::of_disks(&disks(["a", "b"]), 19);
    let left = || bench.pool.plan_removal(GOES).unwrap().bytes;
    let all = left();
    bench.start();
    while left() > all / 2 {
        assert!(bench.steps(1));
    }
    bench.world.datasets.removal().stop(&bench.pool).unwrap();
    assert_eq!(bench.state(), MoveState::Canceled);
    assert!((1..=all / 2).contains(&left()), "{} of {all}", left());
    bench.world.judge();
    bench.judge_files("given up");
    bench.start();
    bench.finish();
    bench.judge();
    bench.judge_files("at its end");
}

#[test]
fn what_is_shared_to_where_the_walk_has_been_is_copied() {
    after_any_number_of_steps(|steps| {
        let bench = Bench::of_disks(&disks(["a", "b"]), 3);
        bench.start();
        let goes_on = bench.steps(steps);
        for number in 0..8u64 {
            let file = number.to_string();
            bench.world.copy("tank/b", &file, "tank/a", &file);
            bench.world.write("tank/b", &file, b"");
        }
        bench.world.engine.commit().unwrap();
        bench.finish();
        bench.judge();
        let files = bench.world.files("tank/a");
        assert!((0..8).all(|number| files[&number.to_string()] == noise(number, LEN)), "after {steps} steps");
        goes_on
    });
}

#[test]
fn what_is_shared_and_cannot_be_read_then_is_copied_once_more() {
    after_any_number_of_steps(|steps| {
        let disks = disks(["a", "b"]);
        let bench = Bench::of_disks(&disks, 3);
        let (_, block) = bench.blocks();
        bench.start();
        let goes_on = bench.steps(steps);
        for number in 0..8u64 {
            let file = number.to_string();
            bench.world.copy("tank/b", &file, "tank/a", &file);
            bench.world.write("tank/b", &file, b"");
        }
        bench.world.engine.forget_read();
        disks[1].inject(Fault { range: block..block + 1, ..Fault::failing(Operation::Read) });
        bench.world.engine.commit().unwrap();
        disks[1].heal();
        bench.finish();
        bench.judge();
        let files = bench.world.files("tank/a");
        assert!((0..8).all(|number| files[&number.to_string()] == noise(number, LEN)), "after {steps} steps");
        goes_on
    });
}

#[test]
fn a_removal_can_be_given_up_until_everything_has_moved() {
    let (mut stopped, mut refused) = (0, 0);
    after_any_number_of_steps(|steps| {
        let bench = Bench::of_disks(&disks(["a", "b"]), 4);
        bench.start();
        let goes_on = bench.steps(steps);
        if goes_on {
            match bench.world.datasets.removal().stop(&bench.pool) {
                Ok(()) => {
                    stopped += 1;
                    assert_eq!(bench.state(), MoveState::Canceled);
                    assert!(
                        refusal(bench.world.datasets.removal().stop(&bench.pool)).to_string().contains("no removal")
                    );
                    bench.world.write("tank/a", "new", &noise(9, LEN));
                    bench.world.judge();
                    bench.judge_files("given up");
                    bench.start();
                }
                Err(error) => {
                    refused += 1;
                    assert!(error.to_string().contains("already been moved"), "{error}");
                }
            }
        }
        bench.finish();
        bench.judge();
        bench.judge_files(&format!("{steps} steps"));
        goes_on
    });
    assert!(stopped > 5 && refused > 0, "{stopped} {refused}");
}

#[test]
fn what_has_no_good_copy_is_noted_and_the_rest_leaves() {
    let disks = disks(["a", "b"]);
    let bench = Bench::of_disks(&disks, 5);
    let (_, block) = bench.blocks();
    disks[1].write_at(block + 100, &[0xee; 8]).unwrap();
    bench.world.engine.forget_read();
    bench.start();
    bench.finish();
    let status = bench.world.datasets.removal().status().unwrap();
    assert_eq!((status.state, status.errors), (MoveState::Finished, 1));
    assert_eq!(bench.world.datasets.damage().unwrap().len(), 1);
    assert!(labels::read_label(&*disks[1]).unwrap().is_none());
}

#[test]
fn what_cannot_be_read_keeps_the_vdev_from_leaving() {
    let disks = disks(["a", "b"]);
    let bench = Bench::of_disks(&disks, 6);
    let (_, block) = bench.blocks();
    bench.world.engine.forget_read();
    disks[1].inject(Fault { range: block..block + 1, times: 1000, ..Fault::failing(Operation::Read) });
    bench.start();
    bench.finish();
    assert_eq!(bench.state(), MoveState::Unreadable);
    disks[1].heal();
    bench.world.forgive();
    bench.world.judge();
    bench.judge_files("healed");
    bench.start();
    bench.finish();
    bench.judge();
    bench.judge_files("at the second time");
}

#[test]
fn a_device_that_was_away_gets_what_has_moved_to_its_mirror() {
    for steps in 0..12 {
        let disks = disks(["a", "b", "c", "d"]);
        let mirrors = [NewVdev::Mirror(devices(&disks[..2])), NewVdev::Mirror(devices(&disks[2..]))];
        let bench = Bench::new(&mirrors, 7);
        bench.world.engine.commit_anyway().unwrap();
        bench.start();
        bench.steps(steps);
        bench.pool.put_offline("b", false).unwrap();
        if steps % 2 == 0 {
            bench.finish();
        } else {
            bench.steps(steps);
        }
        let found: Arc<dyn Device> = disks[1].clone();
        bench.pool.put_online("b", &move |_| Ok(found.clone())).unwrap();
        bench.finish();
        bench.judge();
        // Only the content of the device is left.
        bench.pool.detach("a").unwrap();
        bench.judge();
        bench.judge_files(&format!("after {steps} steps"));
    }
}

#[test]
fn a_disk_replaced_during_a_removal_has_what_was_copied_before() {
    after_any_number_of_steps(|steps| {
        let disks = disks(["stays", "goes", "new"]);
        let bench = Bench::of_disks(&disks[..2], 8);
        bench.start();
        let is_under_way = bench.steps(steps);
        // The disk becomes a mirror for a while, and a disk again.
        bench.pool.attach("stays", disks[2].clone(), true).unwrap();
        while bench.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked {}
        bench.pool.finish_replacing().unwrap();
        assert_eq!(bench.pool.label().vdevs[0].tree.members().count(), 0, "it is a disk again");
        bench.finish();
        bench.judge();
        bench.judge_files(&format!("after {steps} steps"));
        is_under_way
    });
}

#[test]
fn wherever_power_fails_every_file_is_there() {
    let recorder = Recorder::new();
    let devices = recorded(&recorder, &[128, 160]);
    let bench = Bench::new(&devices.into_iter().map(NewVdev::Disk).collect::<Vec<_>>(), 8);
    let log = bench.world.engine.log_area().unwrap();
    let log = bench.world.engine.storage().space.resolve(Address { chunk: log.chunk, sector: log.sector }, 1).unwrap();
    assert_eq!(log.0, GOES, "the intent log has to leave, too");
    power_fails_anywhere(&recorder, bench, 60);
}

#[test]
fn wherever_power_fails_what_is_packed_is_there() {
    let recorder = Recorder::new();
    let devices = recorded(&recorder, &[128, 128, 128, 128]);
    let vdevs = [NewVdev::RaidZ { parity: 1, devices: devices[..3].to_vec() }, NewVdev::Disk(devices[3].clone())];
    power_fails_anywhere(&recorder, Bench::new(&vdevs, 13), 20);
}

/// Cuts the power at about the given number of places of a removal.
fn power_fails_anywhere(recorder: &Arc<Recorder>, bench: Bench, places: usize) {
    bench.world.fs("tank/a").fsync(ROOT).unwrap();
    let begin = recorder.len();
    bench.start();
    // The content covered by each fsync, and the position in the recording.
    let mut promised = Vec::new();
    while bench.world.datasets.removal().is_under_way() {
        let number = promised.len() as u64;
        bench.world.write("tank/a", &number.to_string(), &noise(100 + number, 5000));
        bench.world.fs("tank/a").fsync(ROOT).unwrap();
        promised.push(recorder.len());
        bench.steps(1);
    }
    assert!(bench.world.engine.log_stats().frames > 5, "fsyncs are more than commits");
    drop(bench);
    wherever_power_fails(recorder, begin..recorder.len(), places, &promised, |cut, what, images| {
        let there = images.iter().filter(|image| labels::read_label(&***image).unwrap().is_some());
        let bench = Bench::open(there.cloned().collect(), 9);
        bench.world.judge();
        bench.judge_files(what);
        let files = bench.world.files("tank/a");
        for (number, _) in (0..).zip(&promised).filter(|(_, from)| **from <= cut) {
            assert!(files.get(&number.to_string()) == Some(&noise(100 + number, 5000)), "fsync {number}, {what}");
        }
        if bench.world.datasets.removal().status().is_some() {
            bench.finish();
            bench.judge();
            bench.judge_files(what);
        }
    });
}

#[test]
fn a_removal_for_which_there_is_no_room_any_more_is_given_up() {
    let disks = disks(["a", "b"]);
    let bench = Bench::of_disks(&disks, 12);
    bench.world.create("tank/b/more").unwrap();
    bench.start();
    // The remaining space is taken.
    let taken = bench.world.fill("tank/a", LEN);
    bench.finish();
    assert_eq!(bench.state(), MoveState::NoRoom);
    bench.world.judge();
    bench.judge_files("given up");
    // The vdev is usable as before.
    let more = bench.world.fill("tank/b/more", LEN);
    assert!(more > 20, "{taken} {more}");
    (0..taken).for_each(|number| bench.world.remove("tank/a", &number.to_string()));
    (0..more).for_each(|number| bench.world.remove("tank/b/more", &number.to_string()));
    bench.world.work();
    bench.world.settle();
    bench.start();
    bench.finish();
    bench.judge();
    bench.judge_files("with room again");
}

/// For each safe txg: the txg, and the pool rewound to its state, on copies of the disks.
fn gone_back(disks: &[Arc<MemoryDevice>]) -> Vec<(Txg, Bench)> {
    let copies = || -> Vec<Arc<dyn Device>> {
        let copies = disks.iter().map(|disk| Arc::new(disk.snapshot()) as Arc<dyn Device>);
        copies.filter(|disk| matches!(labels::read_label(&**disk), Ok(Some(_)))).collect()
    };
    let back = |txg| {
        let images = copies();
        rewind(&images, txg, &OpenOptions::default(), &SeededEnv::new(20)).unwrap();
        (txg, Bench::open(images, 21))
    };
    let states = states(&copies(), &OpenOptions::default()).unwrap();
    states.iter().take(SAFE_STATES).map(|state| back(state.txg)).collect()
}

#[test]
fn a_rewound_pool_resumes_restarts_or_has_finished_its_removal() {
    let disks = ["a", "b"].map(|name| Arc::new(MemoryDevice::new(name, 64 * MIB)));
    let vdevs = disks.each_ref().map(|disk| NewVdev::Disk(disk.clone()));
    let bench = Bench::new(&vdevs, 15);
    let outlast = |bench: &Bench| (0..=SAFE_STATES).for_each(|_| _ = bench.world.engine.commit_anyway().unwrap());
    outlast(&bench);
    // The number of states without a removal yet, with a removal, and with a removal although the disk has left.
    let mut outcomes = [0; 3];
    let mut judge = || {
        for (txg, bench) in gone_back(&disks) {
            let is_there = bench.pool.label().vdevs.len() == 2;
            bench.judge_files(&format!("{txg}"));
            outcomes[match (bench.world.datasets.removal().is_under_way(), is_there) {
                (false, true) => {
                    // The disk is usable as before, until removed again.
                    outlast(&bench);
                    bench.start();
                    0
                }
                (true, true) => 1,
                (true, false) => 2,
                (false, false) => continue,
            }] += 1;
            bench.finish();
            bench.judge();
            bench.judge_files(&format!("{txg}, at its end"));
        }
    };
    bench.start();
    judge();
    while bench.steps(3) {
        judge();
    }
    assert_eq!(bench.state(), MoveState::Finished);
    judge();
    assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
}

#[test]
fn what_the_space_layer_never_leaves_is_given_up_after_a_while() {
    let disks = disks(["a", "b"]);
    let bench = Bench::of_disks(&disks, 16);
    let datasets = &bench.world.datasets;
    let mut work = datasets.moving().work();
    // The vdev is not closed, so each commit allocates blocks there.
    let regions = (&Regions::Vdev(GOES), &Targets::Anywhere);
    let mut step = || datasets.moving().empty_step(&mut work, regions, Packs::Never, BUDGET).unwrap();
    let count = (0..5000).take_while(|_| matches!(step(), Emptying::Worked { copied: 0, .. })).count();
    assert!((100..5000).contains(&count), "{count}");
    assert!(matches!(step(), Emptying::NoRoom));
    drop(work);
    bench.world.judge();
    bench.judge_files("given up");
}
