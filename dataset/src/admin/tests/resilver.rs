//! Devices are resilvered in a pool in use; then everything is read from the new device alone.

use std::sync::Arc;

use pool::{
    admin::{self, CreateOptions, NewVdev, Pool},
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation},
    env::SeededEnv,
    error::Error as PoolError,
    format::{label::DATA_START, pointer::BlockPointer},
    txg::Settings,
    units::MIB,
    vdev::State,
};

use super::world::{World, name, noise};
use crate::{
    admin::{Datasets, Progress},
    jobs::{Job, LOST, ResilverState},
};

/// A small budget, so that every walk takes many steps.
const BUDGET: u64 = 64 << 10;
const LEN: usize = 512 << 10;

type Disk = Arc<FaultDevice>;

fn disk(name: &str) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, 128 * MIB))))
}

/// A pool with devices that are added and removed.
struct Bench {
    pool: Pool,
    world: World,
}

impl Bench {
    /// A pool on the given devices, a mirror if several, with two datasets.
    fn new(disks: &[Disk], seed: u64) -> Bench {
        let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
        let settings = Settings { cache: 16 * MIB, dirty: 32 * MIB, workers: 0 };
        let options = CreateOptions { settings, ..CreateOptions::new("tank") };
        let vdev = match &devices[..] {
            [device] => NewVdev::Disk(device.clone()),
            _ => NewVdev::Mirror(devices.clone()),
        };
        let pool = admin::create_of(&[vdev], &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let bench = Bench { pool, world: World { devices, engine, datasets } };
        ["tank/a", "tank/b"].into_iter().for_each(|name| drop(bench.world.create(name).unwrap()));
        bench
    }

    /// Makes the given number of steps; false if the resilver ends before.
    fn steps(&self, count: usize) -> bool {
        (0..count).all(|_| self.world.datasets.resilver().advance(BUDGET).unwrap() == Progress::Worked)
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

    fn state(&self, device: &str) -> State {
        let (vdev, leaf) = self.pool.find_device(device).unwrap();
        vdev.as_group().map_or(State::Complete, |mirror| mirror.member(leaf.guid()).unwrap().state())
    }

    /// Resilvers the new device, and continues without the old one.
    fn go_on_with_the_new_one(&self) {
        self.finish();
        self.pool.detach("old").unwrap();
        self.world.engine.forget_read();
        self.world.judge();
    }

    /// The root of a dataset's tree, and a block of a file.
    fn blocks(&self, dataset: &str, file: &str) -> (BlockPointer, BlockPointer) {
        self.world.engine.commit().unwrap();
        (self.world.blocks(dataset).0[0].1, self.world.extent(dataset, file))
    }

    /// The offset of a block's first copy on a device.
    fn place(&self, pointer: &BlockPointer) -> u64 {
        let storage = self.world.engine.storage();
        DATA_START + storage.space.resolve(pointer.addresses[0], pointer.stored).unwrap().1
    }
}

/// Runs `test` with a resilver after 0, 1, 2, … steps, up to its end.
fn after_any_number_of_steps(mut test: impl FnMut(usize) -> bool) {
    let count = (0..1000).take_while(|&steps| test(steps)).count();
    assert!(count > 10, "it took {count} steps");
}

#[test]
fn what_is_shared_to_where_the_walk_has_been_is_copied() {
    let content = noise(1, LEN);
    after_any_number_of_steps(|steps| {
        let bench = Bench::new(&[disk("old")], 1);
        bench.world.write("tank/b", "file", &content);
        bench.world.engine.commit().unwrap();
        bench.pool.attach("old", disk("new"), false).unwrap();
        let goes_on = bench.steps(steps);
        bench.world.copy("tank/b", "file", "tank/a", "copy");
        bench.world.write("tank/b", "file", b"");
        bench.world.engine.commit().unwrap();
        bench.go_on_with_the_new_one();
        assert!(bench.world.files("tank/a")["copy"] == content, "after {steps} steps");
        goes_on
    });
}

#[test]
fn a_shared_block_unreadable_once_is_copied_by_the_next_walk() {
    let content = noise(1, LEN);
    after_any_number_of_steps(|steps| {
        let old = disk("old");
        let bench = Bench::new(std::slice::from_ref(&old), 1);
        bench.world.write("tank/b", "file", &content);
        let (_, block) = bench.blocks("tank/b", "file");
        bench.pool.attach("old", disk("new"), false).unwrap();
        let goes_on = bench.steps(steps);
        bench.world.copy("tank/b", "file", "tank/a", "copy");
        bench.world.write("tank/b", "file", b"");
        bench.world.engine.forget_read();
        let at = bench.place(&block);
        old.inject(Fault { range: at..at + 1, ..Fault::failing(Operation::Read) });
        bench.world.engine.commit().unwrap();
        old.heal();
        bench.go_on_with_the_new_one();
        assert!(bench.world.files("tank/a")["copy"] == content, "after {steps} steps");
        goes_on
    });
}

#[test]
fn a_receive_under_way_when_the_walk_began_is_copied() {
    let there = World::new(2);
    there.create("tank/s").unwrap();
    there.write("tank/s", "first", &noise(2, LEN));
    there.snapshot("tank/s@1").unwrap();
    let all = there.send("tank/s@1", None, |_| ()).unwrap();
    there.write("tank/s", "second", &noise(3, LEN));
    there.write("tank/s", "third", &noise(4, LEN));
    there.snapshot("tank/s@2").unwrap();
    let more = there.send("tank/s@2", Some("tank/s@1"), |_| ()).unwrap();
    // At the second to last call everything has been read but is not visible yet.
    let mut reported = Vec::new();
    let pilot = World::new(9);
    pilot.receive("tank/r", &all, false).unwrap();
    pilot.receive_reporting("tank/r", &more, &mut |bytes| reported.push(bytes)).unwrap();
    let landed = reported[reported.len() - 2];
    after_any_number_of_steps(|steps| {
        let bench = Bench::new(&[disk("old")], 3);
        let Bench { pool, world } = &bench;
        world.receive("tank/r", &all, false).unwrap();
        let (mut has_begun, mut goes_on) = (false, false);
        let mut progress = |bytes: u64| {
            if bytes >= landed && !has_begun {
                has_begun = true;
                world.engine.commit().unwrap();
                pool.attach("old", disk("new"), false).unwrap();
                goes_on = bench.steps(steps);
            }
        };
        world.receive_reporting("tank/r", &more, &mut progress).unwrap();
        assert!(has_begun);
        bench.go_on_with_the_new_one();
        for file in ["first", "second", "third"] {
            assert!(world.files("tank/r")[file] == there.files("tank/s")[file], "{file} after {steps} steps");
        }
        goes_on
    });
}

#[test]
fn what_a_promotion_moves_is_copied() {
    let content = noise(5, LEN);
    after_any_number_of_steps(|steps| {
        let bench = Bench::new(&[disk("old")], 4);
        let world = &bench.world;
        world.write("tank/b", "file", &content);
        world.snapshot("tank/b@1").unwrap();
        world.clone("tank/b@1", "tank/c").unwrap();
        world.datasets.promote(&name("tank/c")).unwrap();
        ["tank/b", "tank/c"].into_iter().for_each(|dataset| world.write(dataset, "file", b""));
        bench.pool.attach("old", disk("new"), false).unwrap();
        let goes_on = bench.steps(steps);
        // Back to an earlier dataset.
        world.datasets.promote(&name("tank/b")).unwrap();
        bench.go_on_with_the_new_one();
        assert!(world.files("tank/b@1")["file"] == content, "after {steps} steps");
        goes_on
    });
}

#[test]
fn writes_lost_by_a_device_in_a_suspension_are_copied_again() {
    let content = noise(6, LEN);
    after_any_number_of_steps(|steps| {
        let bench = Bench::new(&[disk("old")], 5);
        let engine = &bench.world.engine;
        bench.world.write("tank/b", "file", &content);
        engine.commit().unwrap();
        engine.suspension().enable();
        let new = disk("new");
        bench.pool.attach("old", new.clone(), false).unwrap();
        let goes_on = bench.steps(steps);
        engine.suspension().suspend(engine.suspension().era(), &PoolError::Request("a cable was pulled".into()));
        new.lose_cache();
        bench.pool.clear(&|_| unreachable!("they are there")).unwrap();
        bench.go_on_with_the_new_one();
        assert!(bench.world.files("tank/b")["file"] == content, "after {steps} steps");
        goes_on
    });
}

#[test]
fn without_a_good_copy_no_device_becomes_complete() {
    let disks = [disk("a"), disk("b")];
    let bench = Bench::new(&disks, 6);
    let content = noise(7, LEN);
    bench.world.write("tank/b", "file", &content);
    let (_, block) = bench.blocks("tank/b", "file");
    bench.pool.put_offline("b", false).unwrap();
    disks[0].write_at(bench.place(&block) + 100, &[0xee; 8]).unwrap();
    bench.world.engine.forget_read();
    bench.pool.attach("b", disk("c"), true).unwrap();
    bench.finish();
    let status = bench.world.datasets.resilver().status().unwrap();
    assert_eq!((status.state, status.errors), (ResilverState::Finished, 1));
    assert_eq!((bench.state("c"), bench.state("b")), (State::Resilvering, State::Out));
    assert!(!bench.world.datasets.resilver().is_under_way(), "a scrub has its turn");
    assert_eq!(bench.world.datasets.damage().unwrap().len(), 1);
    assert!(bench.world.datasets.resilver().is_stuck());
    // Retrying without any change is useless and harmless.
    assert!(!bench.steps(1), "nobody has asked for it");
    bench.world.datasets.resilver().try_again();
    assert!(!bench.world.datasets.resilver().is_stuck(), "that is not known before it was tried");
    assert!(bench.steps(1));
    bench.finish();
    assert_eq!(bench.state("c"), State::Resilvering);
    // The result says nothing about another device until the resilver was tried.
    bench.pool.detach("c").unwrap();
    bench.pool.attach("b", disk("c"), true).unwrap();
    assert!(!bench.world.datasets.resilver().is_stuck());
    bench.finish();
    assert!(bench.world.datasets.resilver().is_stuck());
    // The other device had the block all the time.
    let found: Arc<dyn Device> = disks[1].clone();
    bench.pool.put_online("b", &move |_| Ok(found.clone())).unwrap();
    bench.finish();
    assert_eq!(bench.state("c"), State::Complete);
    assert!(bench.pool.find_device("b").is_err(), "it has left");
    bench.pool.detach("a").unwrap();
    bench.world.engine.forget_read();
    assert!(bench.world.files("tank/b")["file"] == content);
    bench.world.judge();
}

#[test]
fn a_resilver_begins_again_when_it_is_asked_to() {
    let bench = Bench::new(&[disk("old")], 8);
    let content = noise(9, LEN);
    bench.world.write("tank/b", "file", &content);
    bench.world.datasets.resilver().restart();
    assert!(!bench.steps(1), "nothing lacks anything");
    bench.pool.attach("old", disk("new"), false).unwrap();
    assert!(bench.steps(6));
    let examined = || bench.world.datasets.resilver().status().unwrap().examined;
    assert!(examined() > 0);
    bench.world.datasets.resilver().restart();
    assert!(bench.steps(1));
    assert_eq!(examined(), 0);
    bench.go_on_with_the_new_one();
    assert!(bench.world.files("tank/b")["file"] == content);
}

#[test]
fn below_an_unreadable_node_nothing_counts_as_copied() {
    let old = disk("old");
    let bench = Bench::new(std::slice::from_ref(&old), 7);
    let content = noise(8, LEN);
    bench.world.write("tank/b", "file", &content);
    let (root, _) = bench.blocks("tank/b", "file");
    bench.pool.attach("old", disk("new"), false).unwrap();
    assert!(bench.steps(1));
    bench.world.engine.forget_read();
    let at = bench.place(&root);
    old.inject(Fault { range: at..at + 1, times: 1, ..Fault::failing(Operation::Read) });
    bench.finish();
    let status = bench.world.datasets.resilver().status().unwrap();
    assert_eq!((status.state, status.errors), (ResilverState::Finished, 1));
    assert_eq!(bench.state("new"), State::Resilvering);
    // Accepting the loss does not accept the unread subtree.
    let new = bench.pool.find_device("new").unwrap().1.guid();
    let refusal = bench.world.datasets.resilver().accept_losses(&[new]).unwrap_err().to_string();
    assert!(refusal.contains("restarts"), "{refusal}");
    bench.go_on_with_the_new_one();
    assert!(bench.world.files("tank/b")["file"] == content);
}

#[test]
fn a_block_unreadable_for_once_survives_an_accepted_loss() {
    let old = disk("old");
    let bench = Bench::new(std::slice::from_ref(&old), 7);
    let content = noise(8, LEN);
    bench.world.write("tank/b", "file", &content);
    let (_, block) = bench.blocks("tank/b", "file");
    bench.pool.attach("old", disk("new"), false).unwrap();
    bench.world.engine.forget_read();
    let at = bench.place(&block);
    // The read fails together with its neighbours, and alone.
    old.inject(Fault { range: at..at + 1, times: 2, ..Fault::failing(Operation::Read) });
    bench.finish();
    assert_eq!(bench.world.datasets.resilver().status().unwrap().errors, 1);
    let new = bench.pool.find_device("new").unwrap().1.guid();
    bench.world.datasets.resilver().accept_losses(&[new]).unwrap();
    bench.pool.detach("old").unwrap();
    bench.world.engine.forget_read();
    bench.world.judge();
    assert!(bench.world.files("tank/b")["file"] == content);
}

#[test]
fn without_all_of_the_space_maps_nobody_becomes_complete() {
    let old = disk("old");
    let bench = Bench::new(std::slice::from_ref(&old), 10);
    let content = noise(10, LEN);
    bench.world.write("tank/b", "file", &content);
    bench.world.engine.commit().unwrap();
    bench.pool.attach("old", disk("new"), false).unwrap();
    assert!(bench.steps(1));
    // The blocks of the space maps come first.
    let end = old.size() - DATA_START;
    old.inject(Fault { range: DATA_START..end, ..Fault::failing(Operation::Read) });
    assert!(bench.steps(1));
    old.heal();
    bench.finish();
    let status = bench.world.datasets.resilver().status().unwrap();
    assert!(status.state == ResilverState::Finished && status.errors > 0, "{status:?}");
    assert_eq!(bench.state("new"), State::Resilvering);
    assert!(bench.world.datasets.resilver().is_stuck());
    let new = bench.pool.find_device("new").unwrap().1.guid();
    let refused = bench.world.datasets.resilver().accept_losses(&[new]).unwrap_err().to_string();
    assert!(refused.contains("blocks of the space maps have no good copy"), "{refused}");
    assert_eq!(bench.state("new"), State::Resilvering);
    bench.world.datasets.resilver().try_again();
    bench.go_on_with_the_new_one();
    assert!(bench.world.files("tank/b")["file"] == content);
}

#[test]
fn a_loss_is_not_accepted_of_more_than_is_known_one_by_one() {
    let old = disk("old");
    let bench = Bench::new(std::slice::from_ref(&old), 12);
    let files: Vec<String> = (0..=LOST).map(|number| format!("file{number}")).collect();
    for (file, seed) in files.iter().zip(0..) {
        bench.world.write("tank/b", file, &noise(seed, 5000));
    }
    for file in &files {
        let (_, block) = bench.blocks("tank/b", file);
        old.write_at(bench.place(&block) + 100, &[0xee; 8]).unwrap();
    }
    bench.world.engine.forget_read();
    bench.pool.attach("old", disk("new"), false).unwrap();
    bench.finish();
    let errors = || bench.world.datasets.resilver().status().unwrap().errors;
    assert_eq!(errors(), LOST as u64 + 1);
    let new = bench.pool.find_device("new").unwrap().1.guid();
    let refused = bench.world.datasets.resilver().accept_losses(&[new]).unwrap_err().to_string();
    assert!(refused.contains(&format!("more than {LOST} blocks have no good copy")), "{refused}");
    assert_eq!(bench.state("new"), State::Resilvering);
    // With one block less, all lost blocks are listed individually.
    bench.world.remove("tank/b", &files[0]);
    bench.world.work();
    bench.world.datasets.resilver().try_again();
    bench.finish();
    assert_eq!(errors(), LOST as u64);
    bench.world.datasets.resilver().accept_losses(&[new]).unwrap();
    assert_eq!(bench.state("new"), State::Complete);
}

#[test]
fn a_loss_is_not_accepted_of_a_device_that_fails_meanwhile() {
    let old = disk("old");
    let bench = Bench::new(std::slice::from_ref(&old), 11);
    bench.world.write("tank/b", "file", &noise(11, LEN));
    let (_, block) = bench.blocks("tank/b", "file");
    old.write_at(bench.place(&block) + 100, &[0xee; 8]).unwrap();
    bench.world.engine.forget_read();
    let (new, other) = (disk("new"), disk("other"));
    bench.pool.attach("old", new.clone(), false).unwrap();
    bench.pool.attach("old", other, false).unwrap();
    let guid = |name: &str| bench.pool.find_device(name).unwrap().1.guid();
    let accept = || bench.world.datasets.resilver().accept_losses(&[guid("new"), guid("other")]);
    let none = "no resilver has finished";
    assert!(accept().unwrap_err().to_string().contains(none));
    bench.finish();
    assert!(bench.world.datasets.resilver().is_stuck());
    // A flush precedes the mark as complete.
    new.inject(Fault { times: 1, ..Fault::failing(Operation::Flush) });
    let refused = accept().unwrap_err().to_string();
    assert!(refused.contains("devices were added or lost meanwhile; try again"), "{refused}");
    assert_eq!((bench.state("new"), bench.state("other")), (State::Out, State::Resilvering));
    // The remaining device is resilvered again before its loss can be accepted.
    assert!(accept().unwrap_err().to_string().contains(none));
    bench.finish();
    bench.world.datasets.resilver().accept_losses(&[guid("other")]).unwrap();
    assert_eq!(bench.state("other"), State::Complete);
}
