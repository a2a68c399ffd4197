//! Devices are filled while everything else goes on, and what they then hold alone is read.

use std::sync::Arc;

use pool::{
    admin::{self, CreateOptions, NewVdev, Pool},
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation},
    env::SeededEnv,
    error::Error as PoolError,
    format::{key::Key, label::DATA_START, pointer::BlockPointer},
    tree::{Event, Walker},
    txg::Settings,
    units::{MIB, Txg},
    vdev::State,
};

use super::world::{World, name, noise};
use crate::{
    admin::{Datasets, Progress, ResilverState, Target},
    catalogue::{DatasetRow, dataset_key},
    fs::{ROOT, key::EXTENT},
    lineage::nodes,
};

/// Small, so that every walk takes many steps.
const BUDGET: u64 = 64 << 10;
const LEN: usize = 512 << 10;

type Disk = Arc<FaultDevice>;

fn disk(name: &str) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, 128 * MIB))))
}

/// A pool whose devices come and go.
struct Bench {
    pool: Pool,
    world: World,
}

impl Bench {
    /// A pool on these devices, as a mirror if there are several, with two data sets.
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

    /// Does so many steps of a resilver; `false` if it has come to its end before.
    fn steps(&self, count: usize) -> bool {
        (0..count).all(|_| self.world.datasets.resilver_step(BUDGET).unwrap() == Progress::Worked)
    }

    /// Does what a service does in the background until there is nothing to do.
    fn finish(&self) {
        for _ in 0..10_000 {
            self.world.work();
            if self.world.datasets.resilver_step(BUDGET).unwrap() == Progress::Idle {
                return self.pool.finish_replacing().unwrap();
            }
        }
        panic!("the resilver does not end");
    }

    fn state(&self, device: &str) -> State {
        let (vdev, leaf) = self.pool.find_device(device).unwrap();
        vdev.as_group().map_or(State::Complete, |mirror| mirror.member(leaf.guid()).unwrap().state())
    }

    /// Fills the new device, and goes on with it alone.
    fn go_on_with_the_new_one(&self) {
        self.finish();
        self.pool.detach("old").unwrap();
        self.world.engine.cache().clear();
        self.world.judge();
    }

    fn id(&self, dataset: &str) -> u64 {
        match self.world.datasets.resolve(&dataset.parse().unwrap()).unwrap() {
            Target::Dataset(id) | Target::Snapshot(id) => id,
            Target::Bookmark(..) => unreachable!("nobody asks for one"),
        }
    }

    /// The root of a data set's tree, and a block of a file in it.
    fn blocks(&self, dataset: &str, file: &str) -> (BlockPointer, BlockPointer) {
        let (id, ino) = (self.id(dataset), self.world.fs(dataset).lookup(ROOT, file.as_bytes()).unwrap().ino);
        self.world.engine.commit().unwrap();
        let (row, root) = self.world.datasets.read(|tx| tx.row_and_block::<DatasetRow>(dataset_key(id))).unwrap();
        let mut walker = Walker::new(nodes::root(root.unwrap(), row.level), Key::MIN, Txg::ZERO);
        while let Some(event) = walker.next(|place| self.world.engine.load_node(place)).unwrap() {
            let Event::Enter(_, node) = event else { continue };
            let mut items = nodes::items(&node).filter_map(|(leaf, item)| Some((item.key(), leaf.pointer(item)?)));
            if let Some((_, block)) = items.find(|(key, _)| (key.object, key.kind) == (ino, EXTENT)) {
                return (root.unwrap(), block);
            }
        }
        panic!("{file} has no block");
    }

    /// Where the first copy of a block lies on a device.
    fn place(&self, pointer: &BlockPointer) -> u64 {
        let storage = self.world.engine.storage();
        DATA_START + storage.space.resolve(pointer.addresses[0], pointer.stored).unwrap().1
    }
}

/// Runs `test` with a resilver that was so many steps on its way, for every number of steps that it takes.
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
fn what_was_landing_when_the_walk_began_is_copied_wherever_it_lands() {
    let there = World::new(2);
    there.create("tank/s").unwrap();
    there.write("tank/s", "first", &noise(2, LEN));
    there.snapshot("tank/s@1").unwrap();
    let all = there.send("tank/s@1", None, |_| ()).unwrap();
    there.write("tank/s", "second", &noise(3, LEN));
    there.write("tank/s", "third", &noise(4, LEN));
    there.snapshot("tank/s@2").unwrap();
    let more = there.send("tank/s@2", Some("tank/s@1"), |_| ()).unwrap();
    // What is told last but one is that all has come and was not put in its place yet.
    let mut told = Vec::new();
    let pilot = World::new(9);
    pilot.receive("tank/r", &all, false).unwrap();
    pilot.receive_telling("tank/r", &more, &mut |bytes| told.push(bytes)).unwrap();
    let landed = told[told.len() - 2];
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
        world.receive_telling("tank/r", &more, &mut progress).unwrap();
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
        // Back to a data set that comes before.
        world.datasets.promote(&name("tank/b")).unwrap();
        bench.go_on_with_the_new_one();
        assert!(world.files("tank/b@1")["file"] == content, "after {steps} steps");
        goes_on
    });
}

#[test]
fn what_a_device_lost_while_the_pool_was_suspended_is_copied_again() {
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
fn without_a_good_copy_nobody_becomes_complete_and_nothing_is_given_up() {
    let disks = [disk("a"), disk("b")];
    let bench = Bench::new(&disks, 6);
    let content = noise(7, LEN);
    bench.world.write("tank/b", "file", &content);
    let (_, block) = bench.blocks("tank/b", "file");
    bench.pool.put_offline("b", false).unwrap();
    disks[0].write_at(bench.place(&block) + 100, &[0xee; 8]).unwrap();
    bench.world.engine.cache().clear();
    bench.pool.attach("b", disk("c"), true).unwrap();
    bench.finish();
    let status = bench.world.datasets.resilver_status().unwrap();
    assert_eq!((status.state, status.errors), (ResilverState::Finished, 1));
    assert_eq!((bench.state("c"), bench.state("b")), (State::Filling, State::Out));
    assert!(!bench.world.datasets.is_resilvering(), "a scrub has its turn");
    assert_eq!(bench.world.datasets.damage().unwrap().len(), 1);
    assert!(bench.world.datasets.is_resilver_stuck());
    // To try again without anything new is of no use, and does no harm.
    assert!(!bench.steps(1), "nobody has asked for it");
    bench.world.datasets.try_resilver_again();
    assert!(bench.steps(1));
    bench.finish();
    assert_eq!(bench.state("c"), State::Filling);
    // What was found says nothing of another device until that was tried.
    bench.pool.detach("c").unwrap();
    bench.pool.attach("b", disk("c"), true).unwrap();
    assert!(!bench.world.datasets.is_resilver_stuck());
    bench.finish();
    assert!(bench.world.datasets.is_resilver_stuck());
    // The other device had it all the time.
    let found: Arc<dyn Device> = disks[1].clone();
    bench.pool.put_online("b", &move |_| Ok(found.clone())).unwrap();
    bench.finish();
    assert_eq!(bench.state("c"), State::Complete);
    assert!(bench.pool.find_device("b").is_err(), "it has left");
    bench.pool.detach("a").unwrap();
    bench.world.engine.cache().clear();
    assert!(bench.world.files("tank/b")["file"] == content);
    bench.world.judge();
}

#[test]
fn a_resilver_begins_again_when_it_is_asked_to() {
    let bench = Bench::new(&[disk("old")], 8);
    let content = noise(9, LEN);
    bench.world.write("tank/b", "file", &content);
    bench.world.datasets.restart_resilver();
    assert!(!bench.steps(1), "nothing lacks anything");
    bench.pool.attach("old", disk("new"), false).unwrap();
    assert!(bench.steps(6));
    let examined = || bench.world.datasets.resilver_status().unwrap().examined;
    assert!(examined() > 0);
    bench.world.datasets.restart_resilver();
    assert!(bench.steps(1));
    assert_eq!(examined(), 0);
    bench.go_on_with_the_new_one();
    assert!(bench.world.files("tank/b")["file"] == content);
}

#[test]
fn below_a_node_that_cannot_be_read_for_once_nothing_counts_as_copied() {
    let old = disk("old");
    let bench = Bench::new(std::slice::from_ref(&old), 7);
    let content = noise(8, LEN);
    bench.world.write("tank/b", "file", &content);
    let (root, _) = bench.blocks("tank/b", "file");
    bench.pool.attach("old", disk("new"), false).unwrap();
    assert!(bench.steps(1));
    bench.world.engine.cache().clear();
    let at = bench.place(&root);
    old.inject(Fault { range: at..at + 1, times: 1, ..Fault::failing(Operation::Read) });
    bench.finish();
    let status = bench.world.datasets.resilver_status().unwrap();
    assert_eq!((status.state, status.errors), (ResilverState::Finished, 1));
    assert_eq!(bench.state("new"), State::Filling);
    // Whoever would do without the old one does not do without what is below.
    let new = bench.pool.find_device("new").unwrap().1.guid();
    let refusal = bench.world.datasets.accept_losses(&[new]).unwrap_err().to_string();
    assert!(refusal.contains("begins again"), "{refusal}");
    bench.go_on_with_the_new_one();
    assert!(bench.world.files("tank/b")["file"] == content);
}

#[test]
fn what_could_not_be_read_for_once_is_there_when_the_loss_is_accepted() {
    let old = disk("old");
    let bench = Bench::new(std::slice::from_ref(&old), 7);
    let content = noise(8, LEN);
    bench.world.write("tank/b", "file", &content);
    let (_, block) = bench.blocks("tank/b", "file");
    bench.pool.attach("old", disk("new"), false).unwrap();
    bench.world.engine.cache().clear();
    let at = bench.place(&block);
    // Together with its neighbours, and alone.
    old.inject(Fault { range: at..at + 1, times: 2, ..Fault::failing(Operation::Read) });
    bench.finish();
    assert_eq!(bench.world.datasets.resilver_status().unwrap().errors, 1);
    let new = bench.pool.find_device("new").unwrap().1.guid();
    bench.world.datasets.accept_losses(&[new]).unwrap();
    bench.pool.detach("old").unwrap();
    bench.world.engine.cache().clear();
    bench.world.judge();
    assert!(bench.world.files("tank/b")["file"] == content);
}
