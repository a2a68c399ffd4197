//! A resilver continues after export, crash and import; whatever happens in between, everything can then be read from
//! the new device alone.

use std::{collections::BTreeMap, sync::Arc};

use pool::{
    admin::{self, CreateOptions, NewVdev, OpenOptions, Pool, SpareChange},
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    env::{Nanos, SeededEnv},
    error::Error as PoolError,
    format::label::DATA_START,
    units::MIB,
    vdev::State,
};

use super::{
    cuts::{recorded, wherever_power_fails},
    world::{Files, World, name, noise, settings},
};
use crate::{
    admin::{Datasets, Progress},
    fs::ROOT,
    jobs::{ResilverState, ResilverStatus},
    underway::cursor::Shown,
};

/// A small budget, so that every walk takes many steps.
const BUDGET: u64 = 64 << 10;
const LEN: usize = 512 << 10;

type Disk = Arc<FaultDevice>;

fn disk(name: &str) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, 64 * MIB))))
}

/// A pool with a device to resilver.
struct Bench {
    pool: Pool,
    world: World,
}

impl Bench {
    /// A pool of the vdev with two datasets, and files in the second.
    fn new(vdev: NewVdev, seed: u64) -> Bench {
        Bench::of(&[vdev], seed)
    }

    /// A pool of several vdevs, likewise.
    fn of(vdevs: &[NewVdev], seed: u64) -> Bench {
        let devices = vdevs.iter().flat_map(|vdev| vdev.devices().to_vec()).collect();
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = admin::create_of(vdevs, &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let bench = Bench { pool, world: World { devices, engine, datasets } };
        ["tank/a", "tank/b"].into_iter().for_each(|name| drop(bench.world.create(name).unwrap()));
        bench.world.write("tank/b", "first", &noise(seed, LEN));
        bench.world.write("tank/b", "second", &noise(seed + 1, LEN));
        bench.world.engine.commit().unwrap();
        bench
    }

    /// A pool on one disk, with a second disk attached and to be resilvered.
    fn resilvering(old: &Disk, new: &Disk, seed: u64) -> Bench {
        let bench = Bench::new(NewVdev::Disk(old.clone()), seed);
        bench.pool.attach("old", new.clone(), false).unwrap();
        bench
    }

    fn try_open(devices: &[Arc<dyn Device>], seed: u64) -> Result<Bench, PoolError> {
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(devices.to_vec(), &options, Arc::new(SeededEnv::new(seed)))?;
        let engine = pool.engine().clone();
        let datasets = Datasets::open(engine.clone(), name("tank")).unwrap();
        Ok(Bench { pool, world: World { devices: devices.to_vec(), engine, datasets } })
    }

    fn open(disks: &[&Disk], seed: u64) -> Bench {
        let devices: Vec<Arc<dyn Device>> = disks.iter().map(|&disk| disk.clone() as Arc<dyn Device>).collect();
        Bench::try_open(&devices, seed).unwrap()
    }

    /// Exports the pool, as a service does.
    fn close(self) {
        self.world.datasets.resilver().save().unwrap();
        self.world.datasets.close_all().unwrap();
        self.pool.export().unwrap();
    }

    /// Makes the given number of steps; false if the resilver ends before.
    fn steps(&self, count: usize) -> bool {
        (0..count).all(|_| self.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked)
    }

    fn status(&self) -> Option<ResilverStatus> {
        self.world.datasets.resilver().status()
    }

    /// The bytes examined by a resilver of an earlier import; `None` without a resilver.
    fn resumed(&self) -> Option<u64> {
        self.status().map(|status| status.examined)
    }

    /// Does all background work of a service.
    fn finish(&self) {
        for _ in 0..10_000 {
            self.world.work();
            if self.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Idle {
                return self.pool.finish_replacing().unwrap();
            }
        }
        panic!("the resilver does not end");
    }

    fn all_files(&self) -> BTreeMap<String, Files> {
        let names = self.world.names().into_iter().filter(|name| name != "tank");
        names.map(|name| (name.clone(), self.world.files(&name))).collect()
    }

    /// Finishes the resilver, and compares all files without some devices.
    fn go_on_without(&self, devices: &[&str], what: &str) {
        let before = self.all_files();
        self.finish();
        devices.iter().for_each(|device| self.pool.detach(device).unwrap());
        self.world.engine.forget_read();
        self.world.judge();
        assert!(self.all_files() == before, "{what}");
    }
}

/// Runs `test` with a resilver after 0, 1, 2, … steps, up to its end.
fn after_any_number_of_steps(mut test: impl FnMut(usize) -> bool) {
    let count = (0..1000).take_while(|&steps| test(steps)).count();
    assert!(count > 10, "it took {count} steps");
}

#[test]
fn a_resilver_goes_on_where_it_was_when_the_pool_was_closed() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 1);
    bench.finish();
    let whole = bench.status().unwrap();
    assert_eq!((whole.state, whole.errors), (ResilverState::Finished, 0));
    let mut most = 0;
    after_any_number_of_steps(|steps| {
        let (old, new) = (disk("old"), disk("new"));
        let bench = Bench::resilvering(&old, &new, 1);
        let goes_on = bench.steps(steps);
        let before = bench.status();
        bench.close();
        let bench = Bench::open(&[&old, &new], 2);
        let before = before.filter(|status| status.state == ResilverState::Running);
        if let Some(before) = &before {
            let now = bench.status().unwrap();
            assert_eq!((now.state, now.start, now.total), (ResilverState::Running, before.start, before.total));
            // The blocks of the space maps are copied again, and counted once.
            let counts = (now.examined, now.copied);
            assert!(counts == (before.examined, before.copied) || steps < 4 && counts == (0, 0), "after {steps} steps");
            most = most.max(now.copied);
        }
        bench.go_on_without(&["old"], &format!("after {steps} steps"));
        if before.is_some() {
            let all = bench.status().unwrap();
            assert_eq!((all.state, all.errors), (ResilverState::Finished, 0));
            let twice = all.copied - whole.copied.min(all.copied);
            assert!(twice < 256 << 10, "after {steps} steps {} instead of {}", all.copied, whole.copied);
        }
        goes_on
    });
    assert!(most > whole.copied / 2, "much was copied before: {most} of {}", whole.copied);
}

#[test]
fn it_goes_on_from_the_newest_commit_after_a_crash() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 3);
    assert!(bench.steps(8));
    bench.world.write("tank/a", "other", &noise(9, LEN));
    bench.world.engine.commit().unwrap();
    let noted = bench.resumed();
    assert!(bench.steps(2));
    drop(bench);
    let bench = Bench::open(&[&old, &new], 4);
    assert!(bench.resumed() == noted && noted > Some(0));
    bench.go_on_without(&["old"], "after a crash");
}

#[test]
fn a_resilver_cut_by_a_power_failure_completes_the_device() {
    for seed in 0..3 {
        let recorder = Recorder::new();
        let disks = recorded(&recorder, &[64, 64]);
        let bench = Bench::new(NewVdev::Disk(disks[0].clone()), 5 + seed);
        let world = &bench.world;
        world.snapshot("tank/b@1").unwrap();
        world.clone("tank/b@1", "tank/c").unwrap();
        bench.pool.attach("a", disks[1].clone(), false).unwrap();
        let begin = recorder.len();
        let mut promised = Vec::new();
        for step in 0..24 {
            bench.steps(1);
            let number = format!("{step}");
            match (step + seed) % 8 {
                0 => world.write("tank/a", &number, &noise(step, 96 << 10)),
                1 => drop(world.try_copy("tank/b", "second", "tank/a", "copy").unwrap()),
                2 => world.snapshot(&format!("tank/a@{number}")).unwrap(),
                3 => world.write("tank/b", "second", &noise(step, 64 << 10)),
                4 => {
                    world.write("tank/a", "synced", &noise(step, 200 << 10));
                    world.fs("tank/a").fsync(ROOT).unwrap();
                    promised.push(recorder.len());
                }
                5 if step < 8 => drop(world.datasets.promote(&name("tank/c")).unwrap()),
                6 => world.datasets.resilver().save().unwrap(),
                _ => drop(world.engine.commit().unwrap()),
            }
        }
        let resumed = std::cell::Cell::new((0, 0));
        wherever_power_fails(&recorder, begin..recorder.len(), 40, &promised, |cut, place, images| {
            let Ok(bench) = Bench::try_open(&images, 100 + cut as u64) else { panic!("{place}: it does not open") };
            resumed.set((resumed.get().0 + u32::from(bench.resumed() > Some(0)), resumed.get().1 + 1));
            bench.go_on_without(&["a"], place);
        });
        let (went_on, imports) = resumed.get();
        assert!(3 * went_on > imports, "many imports went on where it was: {went_on} of {imports}");
    }
}

#[test]
fn a_device_that_missed_a_commit_restarts_its_resilver() {
    after_any_number_of_steps(|steps| {
        let (old, new) = (disk("old"), disk("new"));
        let bench = Bench::resilvering(&old, &new, 11);
        let goes_on = bench.steps(steps);
        bench.close();
        let alone = Bench::open(&[&old], 12);
        alone.world.write("tank/a", "missed", &noise(13, LEN));
        alone.close();
        let bench = Bench::open(&[&old, &new], 14);
        assert_eq!(bench.resumed(), None);
        bench.go_on_without(&["old"], &format!("after {steps} steps"));
        goes_on
    });
}

#[test]
fn a_device_failing_in_the_noting_flush_restarts_its_resilver() {
    for steps in [4, 8, 12] {
        let (old, new) = (disk("old"), disk("new"));
        let bench = Bench::resilvering(&old, &new, 15);
        assert!(bench.steps(steps));
        bench.world.write("tank/a", "lost", &noise(16, LEN));
        new.inject(Fault { times: 1, ..Fault::failing(Operation::Flush) });
        bench.world.engine.commit().unwrap();
        drop(bench);
        new.lose_cache();
        new.heal();
        let bench = Bench::open(&[&old, &new], 17);
        assert_eq!(bench.resumed(), None, "after {steps} steps");
        bench.go_on_without(&["old"], &format!("after {steps} steps"));
    }
}

#[test]
fn what_an_fsync_promised_without_the_device_is_gone_over() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 18);
    bench.world.write("tank/a", "begun", b"");
    assert!(bench.steps(8));
    bench.world.engine.commit_anyway().unwrap();
    let noted = bench.resumed();
    new.vanish();
    bench.world.write("tank/a", "promised", &noise(19, LEN));
    bench.world.fs("tank/a").fsync(ROOT).unwrap();
    let committed = bench.world.engine.committed();
    drop(bench);
    new.heal();
    let bench = Bench::open(&[&old, &new], 20);
    assert!(bench.world.engine.found().has_log && bench.world.engine.found().txg == committed, "it was not committed");
    assert!(bench.resumed() == noted && noted > Some(0));
    assert!(bench.world.files("tank/a")["promised"] == noise(19, LEN));
    bench.go_on_without(&["old"], "what only the log knew");
}

#[test]
fn a_returned_device_is_resilvered_from_the_beginning() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 21);
    assert!(bench.steps(8));
    bench.world.engine.commit_anyway().unwrap();
    bench.pool.put_offline("new", false).unwrap();
    bench.world.write("tank/a", "missed", &noise(22, LEN));
    bench.world.engine.commit().unwrap();
    let found: Arc<dyn Device> = new.clone();
    bench.pool.put_online("new", &move |_| Ok(found.clone())).unwrap();
    bench.world.write("tank/a", "more", &noise(23, LEN));
    bench.world.engine.commit().unwrap();
    drop(bench);
    let bench = Bench::open(&[&old, &new], 24);
    assert_eq!(bench.resumed(), None);
    bench.go_on_without(&["old"], "a device that came back");
}

#[test]
fn a_cache_lost_in_a_suspension_restarts_the_resilver() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 25);
    let suspension = bench.world.engine.suspension();
    suspension.enable();
    assert!(bench.steps(8));
    suspension.suspend(suspension.era(), &PoolError::Request("a cable was pulled".into()));
    new.lose_cache();
    bench.pool.clear(&|_| unreachable!("they are there")).unwrap();
    bench.world.engine.commit_anyway().unwrap();
    drop(bench);
    let bench = Bench::open(&[&old, &new], 26);
    assert_eq!(bench.resumed(), None);
    bench.go_on_without(&["old"], "a device that lost its cache");
}

#[test]
fn chunks_moved_behind_the_walk_are_copied_after_a_crash() {
    after_any_number_of_steps(|steps| {
        let (old, new) = (disk("old"), disk("new"));
        let bench = Bench::new(NewVdev::Disk(old.clone()), 27);
        let world = &bench.world;
        world.snapshot("tank/b@1").unwrap();
        world.clone("tank/b@1", "tank/c").unwrap();
        world.datasets.promote(&name("tank/c")).unwrap();
        world.write("tank/b", "first", b"");
        world.write("tank/c", "first", b"");
        bench.pool.attach("old", new.clone(), false).unwrap();
        let goes_on = bench.steps(steps);
        let runs = bench.status().is_some_and(|status| status.state == ResilverState::Running);
        // Back to an earlier dataset, and to a new reference as well.
        world.datasets.promote(&name("tank/b")).unwrap();
        world.copy("tank/c", "second", "tank/a", "copy");
        world.engine.commit().unwrap();
        drop(bench);
        let bench = Bench::open(&[&old, &new], 28);
        assert_eq!(bench.resumed().is_some(), runs, "after {steps} steps");
        bench.go_on_without(&["old"], &format!("after {steps} steps"));
        goes_on
    });
}

#[test]
fn another_device_that_joins_begins_a_walk_for_both() {
    let (old, new, third) = (disk("old"), disk("new"), disk("third"));
    let bench = Bench::resilvering(&old, &new, 29);
    assert!(bench.steps(8));
    bench.world.engine.commit_anyway().unwrap();
    bench.pool.attach("old", third.clone(), false).unwrap();
    bench.world.write("tank/a", "both", &noise(30, LEN));
    bench.world.engine.commit().unwrap();
    drop(bench);
    let bench = Bench::open(&[&old, &new, &third], 31);
    assert_eq!(bench.resumed(), None);
    assert!(bench.steps(8));
    bench.close();
    // With one of the devices only, the resilver restarts.
    let bench = Bench::open(&[&old, &third], 32);
    assert_eq!(bench.resumed(), None);
    drop(bench);
    let bench = Bench::open(&[&old, &new, &third], 33);
    bench.go_on_without(&["old", "new"], "the third one alone");
}

/// A spare keeps its GUID and lacks everything, wherever used.
#[test]
fn a_spare_in_another_place_than_noted_restarts_its_resilver() {
    let disks @ [a, b, c, d, spare] = &["a", "b", "c", "d", "spare"].map(disk);
    let mirror = |one: &Disk, other: &Disk| NewVdev::Mirror(vec![one.clone(), other.clone()]);
    let bench = Bench::of(&[mirror(a, b), mirror(c, d)], 41);
    bench.pool.add_spares(&[spare.clone() as Arc<dyn Device>]).unwrap();
    assert_eq!(bench.pool.spare_step().unwrap(), []);
    let in_use = |device: &str| SpareChange::InUse { spare: "spare".into(), device: device.into() };
    let has_errors = |device: &str| {
        let (vdev, leaf) = bench.pool.find_device(device).unwrap();
        (0..10).for_each(|_| vdev.note_checksum_error(leaf.guid()));
    };
    has_errors("b");
    assert_eq!(bench.pool.spare_step().unwrap(), [in_use("b")]);
    assert!(bench.steps(12));
    let noted = bench.world.engine.commit_anyway().unwrap();
    assert!(bench.resumed() > Some(0));
    bench.pool.clear(&|_| unreachable!("they are there")).unwrap();
    // Cleared errors do not count, so the spare is returned.
    has_errors("d");
    let available = SpareChange::Available { spare: "spare".into() };
    assert_eq!(bench.pool.spare_step().unwrap(), [available, in_use("d")]);
    drop(bench);
    let bench = Bench::open(&disks.each_ref(), 42);
    assert_eq!(bench.world.engine.found().txg, noted, "nothing was committed meanwhile");
    assert_eq!(bench.resumed(), None);
    bench.go_on_without(&["c", "d"], "what was resilvered elsewhere");
}

#[test]
fn a_pool_that_goes_back_goes_on_from_what_that_state_notes() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 34);
    assert!(bench.steps(6));
    let state = bench.world.engine.commit_anyway().unwrap();
    let noted = bench.resumed();
    let before = bench.all_files();
    assert!(bench.steps(4));
    bench.world.write("tank/b", "first", &noise(35, LEN));
    bench.world.engine.commit().unwrap();
    bench.world.datasets.close_all().unwrap();
    drop(bench);
    let devices: Vec<Arc<dyn Device>> = vec![old.clone(), new.clone()];
    admin::rewind(&devices, state, &OpenOptions::default(), &SeededEnv::new(36)).unwrap();
    let bench = Bench::open(&[&old, &new], 37);
    assert!(bench.resumed() == noted && bench.all_files() == before);
    bench.go_on_without(&["old"], "a state before");
}

#[test]
fn what_cannot_be_copied_is_looked_for_again_after_an_import() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 38);
    assert!(bench.steps(8));
    // The read fails together with its neighbours, and alone.
    old.inject(Fault { range: DATA_START..64 * MIB, times: 2, ..Fault::failing(Operation::Read) });
    while bench.status().unwrap().errors == 0 {
        assert!(bench.steps(1));
    }
    bench.world.engine.commit_anyway().unwrap();
    drop(bench);
    old.heal();
    let bench = Bench::open(&[&old, &new], 39);
    assert_eq!(bench.resumed(), None);
    bench.go_on_without(&["old"], "what could not be read");
}

#[test]
fn a_pool_opens_whose_resilver_cannot_be_gone_on_with() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 43);
    // Enough rows for nodes of their own.
    (0..200).for_each(|number| drop(bench.world.create(&format!("tank/{number}")).unwrap()));
    assert!(bench.steps(8));
    bench.world.engine.commit_anyway().unwrap();
    drop(bench);
    let devices: Vec<Arc<dyn Device>> = vec![old.clone(), new.clone()];
    let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
    let pool = admin::open(devices.clone(), &options, Arc::new(SeededEnv::new(44))).unwrap();
    let engine = pool.engine().clone();
    engine.forget_read();
    // Incomplete devices are read last.
    let fault = || Fault { range: DATA_START..64 * MIB, ..Fault::failing(Operation::Read) };
    [&old, &new].iter().for_each(|disk| disk.inject(fault()));
    let datasets = Datasets::open(engine.clone(), name("tank")).unwrap();
    [&old, &new].iter().for_each(|disk| disk.heal());
    let bench = Bench { pool, world: World { devices, engine, datasets } };
    bench.world.forgive();
    assert_eq!(bench.resumed(), None);
    bench.go_on_without(&["old"], "one that begins again");
}

#[test]
fn whatever_is_noted_of_a_resilver_is_counted_on() {
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 45);
    assert!(bench.steps(8));
    let most = Shown { start: Nanos::MIN, total: u64::MAX, examined: u64::MAX, copied: u64::MAX };
    bench.world.datasets.cursor().lock().as_mut().unwrap().shown = most;
    bench.world.engine.commit_anyway().unwrap();
    drop(bench);
    let bench = Bench::open(&[&old, &new], 46);
    assert_eq!(bench.resumed(), Some(u64::MAX));
    assert!(bench.steps(3));
    let status = bench.status().unwrap();
    assert_eq!((status.start, status.examined, status.copied), (Nanos::MIN, u64::MAX, u64::MAX));
    assert_eq!((status.seconds(Nanos::MAX), status.rate(Nanos::MAX)), (Nanos::MAX as u64 / 1_000_000_000, 0));
    bench.go_on_without(&["old"], "numbers at their ends");
}

#[test]
fn the_rate_is_that_of_this_import() {
    const SECOND: Nanos = 1_000_000_000;
    let (old, new) = (disk("old"), disk("new"));
    let bench = Bench::resilvering(&old, &new, 47);
    assert!(bench.steps(8));
    let status = bench.status().unwrap();
    assert_eq!((status.resumed, status.rate(status.start + 2 * SECOND)), (None, status.examined / 2));
    bench.close();
    let bench = Bench::open(&[&old, &new], 48);
    let resumed = bench.status().unwrap().resumed.unwrap();
    assert_eq!((Some(resumed.examined), bench.status().unwrap().rate(resumed.at)), (bench.resumed(), 0));
    assert!(bench.steps(4));
    let status = bench.status().unwrap();
    let since = status.examined - resumed.examined;
    assert!(since > 0);
    assert_eq!(status.rate(resumed.at + 2 * SECOND), since / 2);
}

#[test]
fn a_raidz_whose_disk_is_replaced_goes_on_after_any_crash() {
    let recorder = Recorder::new();
    let disks = recorded(&recorder, &[64; 4]);
    let bench = Bench::new(NewVdev::RaidZ { parity: 1, devices: disks[..3].to_vec() }, 40);
    bench.pool.attach("b", disks[3].clone(), true).unwrap();
    let begin = recorder.len();
    for step in 0..16 {
        bench.steps(1);
        bench.world.write("tank/a", &format!("{}", step % 3), &noise(step, 64 << 10));
        match step % 4 {
            0 => bench.world.fs("tank/a").fsync(ROOT).unwrap(),
            _ => drop(bench.world.engine.commit().unwrap()),
        }
    }
    let resumed = std::cell::Cell::new((0, 0));
    wherever_power_fails(&recorder, begin..recorder.len(), 40, &[], |cut, place, images| {
        let bench = Bench::try_open(&images, 50 + cut as u64).unwrap();
        resumed.set((resumed.get().0 + u32::from(bench.resumed() > Some(0)), resumed.get().1 + 1));
        let before = bench.all_files();
        bench.finish();
        assert!(bench.pool.find_device("b").is_err(), "{place}: it has left");
        // Another device is lost now, so the resilvered device is needed for everything.
        bench.close();
        let left = [images[0].clone(), images[3].clone()];
        let bench = Bench::try_open(&left, 60).unwrap();
        let there = |name: &str| {
            let (vdev, leaf) = bench.pool.find_device(name).unwrap();
            vdev.as_group().unwrap().member(leaf.guid()).unwrap().state()
        };
        assert_eq!((there("d"), there("c")), (State::Complete, State::Out), "{place}");
        assert!(bench.all_files() == before, "{place}");
    });
    let (went_on, imports) = resumed.get();
    assert!(3 * went_on > imports, "many imports went on where it was: {went_on} of {imports}");
}
