//! Damage is planted on the devices of a pool in use, and healed or named.

use std::sync::Arc;

use pool::{
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    format::{
        key::Key,
        label::{BODY_AT, DATA_START, label_offsets, uberblock_offset},
        pointer::BlockPointer,
    },
    space::OwnCursor,
    tree::{Event, Walker},
    units::{MIB, Txg},
    vdev::Counts,
};
use rustix::io::Errno;

use super::world::{World, noise};
use crate::{
    admin::{Assignment, Error, Progress, ScrubStatus, Target},
    catalogue::{DatasetRow, ScrubPosition, ScrubState, dataset_key},
    fs::{
        ROOT,
        key::{EXTENT, Ino},
    },
    lineage::{self, nodes},
    scrub::damage::Damage,
};

const SIZE: u64 = 128 * MIB;
/// Small, so that every scrub takes many steps.
const BUDGET: u64 = 64 << 10;

/// Nodes with their levels.
type Nodes = Vec<(u8, BlockPointer)>;
/// Blocks of items with their keys.
type Items = Vec<(Key, BlockPointer)>;

/// A pool and its devices.
struct Bench {
    world: World,
    disks: Vec<Arc<MemoryDevice>>,
}

impl Bench {
    /// A pool on so many devices; with two, nodes have two copies.
    fn new(devices: usize, seed: u64) -> Bench {
        let disks: Vec<_> = (0..devices).map(|n| Arc::new(MemoryDevice::new(format!("disk{n}"), SIZE))).collect();
        let world = World::over(disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect(), seed);
        Bench { world, disks }
    }

    fn set(&self, dataset: &str, property: &str, value: &str) {
        let given = [Assignment { property: property.into(), value: value.into() }];
        self.world.datasets.set(&[dataset.parse().unwrap()], &given).unwrap();
    }

    /// Spoils some bytes of a copy of a block.
    fn spoil(&self, pointer: &BlockPointer, copy: usize) {
        let storage = self.world.engine.storage();
        let (vdev, offset) = storage.space.resolve(pointer.addresses[copy], pointer.stored).unwrap();
        self.spoil_at(vdev.0 as usize, DATA_START + offset);
        self.world.engine.cache().clear();
    }

    fn spoil_at(&self, disk: usize, at: u64) {
        let mut bytes = [0; 16];
        self.disks[disk].read_at(at, &mut bytes).unwrap();
        self.disks[disk].write_at(at, &bytes.map(|byte| byte ^ 0x5a)).unwrap();
    }

    fn id(&self, name: &str) -> u64 {
        match self.world.datasets.resolve(&name.parse().unwrap()).unwrap() {
            Target::Dataset(id) | Target::Snapshot(id) => id,
            Target::Bookmark(..) => unreachable!("nobody asks for one"),
        }
    }

    fn ino(&self, dataset: &str, file: &str) -> Ino {
        self.world.fs(dataset).lookup(ROOT, file.as_bytes()).unwrap().ino
    }

    /// The blocks of a data set as it is committed: its nodes with their levels, and its items' blocks with their keys.
    fn blocks(&self, dataset: &str) -> (Nodes, Items) {
        let id = self.id(dataset);
        self.world.engine.commit().unwrap();
        let (row, root) = self.world.datasets.read(|tx| tx.row_and_block::<DatasetRow>(dataset_key(id))).unwrap();
        let mut walker = Walker::new(nodes::root(root.unwrap(), row.level), Key::MIN, Txg::ZERO);
        let (mut found, mut data) = (Vec::new(), Vec::new());
        while let Some(event) = walker.next(|place| self.world.engine.load_node(place)).unwrap() {
            let Event::Enter(place, node) = event else { continue };
            found.push((place.level, place.pointer));
            data.extend(nodes::items(&node).filter_map(|(leaf, item)| Some((item.key(), leaf.pointer(item)?))));
        }
        (found, data)
    }

    /// A block of a file's data.
    fn data(&self, dataset: &str, file: &str) -> BlockPointer {
        let ino = self.ino(dataset, file);
        let is_its = |(key, _): &&(Key, BlockPointer)| (key.object, key.kind) == (ino, EXTENT);
        self.blocks(dataset).1.iter().find(is_its).expect("the file has a block").1
    }

    fn read(&self, dataset: &str, file: &str) -> Result<Vec<u8>, Errno> {
        let fs = self.world.fs(dataset);
        let mut content = Vec::new();
        fs.read(self.ino(dataset, file), 0, 1 << 20, &mut content)?;
        Ok(content)
    }

    fn mend(&self) {
        while self.world.datasets.mend_step().unwrap() == Progress::Worked {}
    }

    fn scrub(&self) -> ScrubStatus {
        self.world.datasets.start_scrub().unwrap();
        self.finish()
    }

    fn finish(&self) -> ScrubStatus {
        while self.world.datasets.scrub_step(BUDGET).unwrap() == Progress::Worked {}
        self.status()
    }

    fn status(&self) -> ScrubStatus {
        self.world.datasets.scrub_status().unwrap().expect("there was a scrub")
    }

    /// The errors of all devices.
    fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for vdev in self.world.engine.storage().vdevs.all() {
            for counts in vdev.leaves().iter().map(|leaf| leaf.counters().snapshot()) {
                sum.read_errors += counts.read_errors;
                sum.write_errors += counts.write_errors;
                sum.checksum_errors += counts.checksum_errors;
            }
        }
        sum
    }

    fn clear(&self) {
        for vdev in self.world.engine.storage().vdevs.all() {
            vdev.leaves().iter().for_each(|leaf| leaf.counters().clear_errors());
        }
    }

    /// Spoils one copy of everything that has more than one, another each time. Returns how many.
    fn spoil_everything(&self) -> usize {
        self.world.engine.commit().unwrap();
        let report = lineage::check::check(&self.world.engine).unwrap();
        let mut blocks: Vec<BlockPointer> = report.blocks.into_values().collect();
        let (root, level) = self.world.engine.catalogue().clean_root().unwrap();
        let mut walker = Walker::new(nodes::root(root, level), Key::MIN, Txg::ZERO);
        while let Some(event) = walker.next(|place| self.world.engine.load_node(place)).unwrap() {
            if let Event::Enter(place, _) = event {
                blocks.push(place.pointer);
            }
        }
        blocks.sort_by_key(|block| (block.addresses[0].chunk, block.addresses[0].sector));
        blocks.retain(|block| block.copies > 1);
        for (n, block) in blocks.iter().enumerate() {
            self.spoil(block, n % usize::from(block.copies));
        }
        blocks.len()
    }
}

#[test]
fn what_a_reader_finds_bad_is_healed_from_its_copy() {
    let bench = Bench::new(1, 1);
    bench.world.create("tank/a").unwrap();
    bench.set("tank/a", "copies", "2");
    bench.world.write("tank/a", "file", &noise(1, 50_000));
    let block = bench.data("tank/a", "file");
    assert_eq!(block.copies, 2);
    bench.spoil(&block, 0);
    assert_eq!(bench.read("tank/a", "file").unwrap(), noise(1, 50_000));
    assert_eq!(bench.counts().checksum_errors, 1);
    bench.mend();
    assert!(bench.world.engine.storage().examine(&block).is_whole());
    assert_eq!(bench.counts().checksum_errors, 1);
    bench.clear();
    bench.world.engine.cache().clear();
    bench.read("tank/a", "file").unwrap();
    assert_eq!(bench.counts(), Counts::default());
    assert_eq!(bench.world.datasets.damage().unwrap(), []);
}

#[test]
fn a_node_that_a_reader_finds_bad_is_healed_where_nodes_have_two_copies() {
    let bench = Bench::new(2, 2);
    for n in 0..400 {
        bench.world.write("tank", &format!("a file with a name that takes some room {n}"), b"");
    }
    let (found, _) = bench.blocks("tank");
    let interior = found.iter().find(|(level, _)| *level > 0).expect("the tree has an interior node").1;
    let leaf = found.iter().find(|(level, _)| *level == 0).unwrap().1;
    for node in [&interior, &leaf] {
        assert_eq!(node.copies, 2);
        bench.spoil(node, 0);
    }
    assert_eq!(bench.world.files("tank").len(), 400);
    bench.mend();
    for node in [&interior, &leaf] {
        assert!(bench.world.engine.storage().examine(node).is_whole());
    }
    bench.world.judge();
}

#[test]
fn a_block_that_was_freed_meanwhile_is_not_written() {
    let bench = Bench::new(1, 3);
    bench.set("tank", "copies", "2");
    bench.world.write("tank", "file", &noise(1, 50_000));
    let block = bench.data("tank", "file");
    bench.spoil(&block, 0);
    bench.read("tank", "file").unwrap();
    bench.world.remove("tank", "file");
    // Long enough for its place to be anybody's.
    for n in 0..5 {
        bench.world.write("tank", &format!("other{n}"), &noise(n + 2, 50_000));
        bench.world.engine.commit().unwrap();
    }
    bench.mend();
    assert!(!bench.world.engine.storage().examine(&block).is_whole());
    bench.world.judge();
}

#[test]
fn a_file_without_a_good_copy_is_named_until_it_is_gone() {
    let bench = Bench::new(1, 4);
    bench.world.create("tank/a").unwrap();
    bench.world.write("tank/a", "good", &noise(1, 50_000));
    bench.world.write("tank/a", "lost", &noise(2, 50_000));
    bench.world.snapshot("tank/a@before").unwrap();
    bench.world.clone("tank/a@before", "tank/b").unwrap();
    bench.world.write("tank/a", "young", &noise(3, 50_000));
    let ino = bench.ino("tank/a", "lost");
    bench.spoil(&bench.data("tank/a", "lost"), 0);
    assert_eq!(bench.read("tank/a", "lost"), Err(Errno::IO));
    assert_eq!(bench.read("tank/a", "good").unwrap(), noise(1, 50_000));
    bench.mend();
    let mut ids = ["tank/a", "tank/a@before", "tank/b"].map(|name| bench.id(name));
    ids.sort_unstable();
    let lost = ids.map(|tree| Damage { tree, first: ino, last: ino });
    assert_eq!(bench.world.datasets.damage().unwrap(), lost);
    let status = bench.scrub();
    assert_eq!((status.state, status.errors, status.repaired), (ScrubState::Finished, 1, 0));
    assert_eq!(bench.world.datasets.damage().unwrap(), lost);
    let mut bench = bench;
    bench.world.reopen();
    assert_eq!(bench.world.datasets.damage().unwrap(), lost);
    bench.world.remove("tank/a", "lost");
    bench.world.destroy("tank/a@before", false, true).unwrap();
    assert_eq!(bench.scrub().errors, 0);
    assert_eq!(bench.world.datasets.damage().unwrap(), []);
}

#[test]
fn a_lost_node_names_the_objects_that_were_in_it() {
    let bench = Bench::new(1, 5);
    for n in 0..400 {
        bench.world.write("tank", &format!("a file with a name that takes some room {n}"), b"content");
    }
    let (found, _) = bench.blocks("tank");
    let leaf = found.iter().rfind(|(level, _)| *level == 0).unwrap().1;
    bench.spoil(&leaf, 0);
    let status = bench.scrub();
    assert_eq!(status.errors, 1);
    let damage = bench.world.datasets.damage().unwrap();
    let [Damage { tree, first, last }] = damage[..] else { panic!("{damage:?}") };
    assert_eq!(tree, bench.id("tank"));
    for n in 0..400 {
        let name = format!("a file with a name that takes some room {n}");
        let ino = bench.world.fs("tank").lookup(ROOT, name.as_bytes());
        match ino {
            Ok(entry) => assert!(!(first + 1..last).contains(&entry.ino), "{name} is named and can be read"),
            Err(errno) => assert_eq!(errno, Errno::IO),
        }
    }
}

#[test]
fn a_scrub_heals_every_structure_that_has_a_second_copy() {
    let bench = Bench::new(2, 6);
    bench.world.create("tank/a").unwrap();
    bench.set("tank/a", "copies", "2");
    bench.set("tank/a", "compression", "off");
    for n in 0..300 {
        bench.world.write("tank/a", &format!("a file with a name that takes some room {n}"), &noise(n + 1, 3000));
    }
    bench.world.snapshot("tank/a@one").unwrap();
    bench.world.write("tank/a", "large", &noise(7, 1 << 20));
    // Enough groups for checkpoints and a log of some length.
    for n in 0..40 {
        bench.world.write("tank", &format!("{n}"), &noise(n + 1, 9000));
        bench.world.engine.commit().unwrap();
    }
    let planted = bench.spoil_everything();
    assert!(planted > 50, "{planted}");
    let space = {
        let storage = bench.world.engine.storage();
        let own = storage.space.own_blocks();
        let blocks = own.table.into_iter().chain(own.checkpoints).chain(own.log);
        for (n, block) in blocks.enumerate().filter(|(_, block)| block.places().len() > 1) {
            let place = block.places()[n % block.places().len()];
            bench.spoil_at(place.vdev.0 as usize, DATA_START + place.offset);
        }
        let all = storage.space.mend_own(&storage.vdevs, OwnCursor::default(), u64::MAX, false);
        assert!(!all.bad.is_empty());
        all.bad.len()
    };
    let committed = bench.world.engine.committed();
    let [l0, l1, l2, l3] = label_offsets(SIZE);
    for (disk, at) in [(0, l0 + BODY_AT + 40), (0, l2 + BODY_AT + 40), (1, l1 + BODY_AT + 40)] {
        bench.spoil_at(disk, at);
    }
    bench.spoil_at(0, uberblock_offset(l1, committed) + 40);
    bench.spoil_at(1, uberblock_offset(l3, committed) + 40);
    bench.clear();
    let status = bench.scrub();
    assert_eq!((status.state, status.errors), (ScrubState::Finished, 0));
    assert!(status.repaired > 5 * 4096, "{status:?}");
    assert!(status.examined > 4 << 20, "{status:?}");
    let found = bench.counts().checksum_errors;
    assert!(found >= (planted + space) as u64, "{found} of {planted} and {space}");
    bench.clear();
    bench.world.judge();
    let again = bench.scrub();
    assert_eq!((again.repaired, again.errors), (0, 0));
    assert_eq!(bench.counts(), Counts::default());
}

#[test]
fn a_scrub_finds_everything_while_the_pool_changes() {
    for seed in 1..=12 {
        let bench = Bench::new(2, seed);
        bench.world.create("tank/a").unwrap();
        bench.world.create("tank/z").unwrap();
        for name in ["tank/a", "tank/z"] {
            bench.set(name, "copies", "2");
            for n in 0..40 {
                bench.world.write(name, &format!("file{n}"), &noise(n + 1, 9000));
            }
            bench.world.snapshot(&format!("{name}@0")).unwrap();
            for n in 0..10 {
                bench.world.remove(name, &format!("file{n}"));
                bench.world.write(name, &format!("file{n}"), &noise(n + 99, 9000));
            }
        }
        bench.world.clone("tank/a@0", "tank/b").unwrap();
        bench.world.work();
        bench.spoil_everything();
        bench.world.datasets.start_scrub().unwrap();
        let mut random = noise(seed, 4000).into_iter();
        let mut next = || usize::from(random.next().expect("there is enough for all steps"));
        let mut step = 0;
        while bench.world.datasets.scrub_step(BUDGET).unwrap() == Progress::Worked {
            step += 1;
            assert!(step < 2000, "seed {seed}: the scrub does not end");
            if step > 120 {
                // Promotions that go on for ever would send it back for ever.
                continue;
            }
            let name = ["tank/a", "tank/b", "tank/z"][next() % 3];
            // Requests that are refused, because there is nothing to destroy or to promote, are part of it.
            match next() % 7 {
                0 => bench.world.snapshot(&format!("{name}@{step}")).unwrap(),
                1 => bench.world.write(name, &format!("new{step}"), &noise(step, 20_000)),
                2 => drop(bench.world.fs(name).unlink(ROOT, format!("file{}", next() % 40).as_bytes())),
                3 => drop(bench.world.destroy(&format!("{name}@0"), false, false)),
                4 => drop(bench.world.destroy(&format!("{name}@{}", next() as u64 % (step + 1)), false, false)),
                5 => drop(bench.world.datasets.promote(&name.parse().unwrap())),
                _ => drop(bench.world.rollback(&format!("{name}@0"), true, false)),
            }
            bench.world.engine.commit_anyway().unwrap();
        }
        assert!(step > 20, "seed {seed}: {step} steps");
        assert_eq!(bench.status().errors, 0, "seed {seed}");
        bench.world.work();
        bench.world.judge();
    }
}

#[test]
fn a_paused_scrub_stays_so_over_export_and_goes_on_where_it_was() {
    let mut bench = Bench::new(1, 7);
    bench.world.write("tank", "large", &noise(1, 1 << 20));
    let refused = |result: crate::admin::Result<()>| matches!(result, Err(Error::Scrub { .. }));
    assert!(refused(bench.world.datasets.pause_scrub()));
    assert!(refused(bench.world.datasets.stop_scrub()));
    bench.world.datasets.start_scrub().unwrap();
    assert!(refused(bench.world.datasets.start_scrub()));
    for _ in 0..8 {
        bench.world.datasets.scrub_step(BUDGET).unwrap();
    }
    bench.world.datasets.pause_scrub().unwrap();
    let paused = bench.status();
    assert_eq!((paused.state, paused.examined > 0), (ScrubState::Paused, true));
    assert_eq!(bench.world.datasets.scrub_step(BUDGET).unwrap(), Progress::Idle);
    bench.world.reopen();
    assert_eq!(bench.status(), paused);
    bench.world.datasets.start_scrub().unwrap();
    assert_eq!((bench.status().examined, bench.status().start), (paused.examined, paused.start));
    let whole = bench.finish();
    assert_eq!(whole.state, ScrubState::Finished);
    let again = bench.scrub();
    assert!(again.start >= whole.end);
    // The catalogue has become no smaller.
    assert!(again.examined + (64 << 10) >= whole.examined, "{again:?} {whole:?}");
    bench.world.datasets.start_scrub().unwrap();
    bench.world.datasets.stop_scrub().unwrap();
    assert_eq!(bench.status().state, ScrubState::Stopped);
    bench.world.reopen();
    assert_eq!(bench.status().state, ScrubState::Stopped);
}

#[test]
fn a_crash_costs_a_scrub_what_came_after_it_was_saved() {
    let bench = Bench::new(1, 8);
    bench.set("tank", "copies", "2");
    bench.world.write("tank", "large", &noise(1, 1 << 20));
    bench.spoil_everything();
    bench.world.datasets.start_scrub().unwrap();
    for _ in 0..8 {
        bench.world.datasets.scrub_step(BUDGET).unwrap();
    }
    bench.world.datasets.save_scrub().unwrap();
    let saved = bench.status();
    for _ in 0..4 {
        bench.world.datasets.scrub_step(BUDGET).unwrap();
    }
    assert!(bench.status().examined > saved.examined);
    let disks: Vec<_> = bench.disks.iter().map(|disk| Arc::new(disk.snapshot())).collect();
    let world = World::open_all(disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect(), 9).unwrap();
    let after = Bench { world, disks };
    assert_eq!(after.status(), saved);
    let done = after.finish();
    assert_eq!((done.state, done.errors), (ScrubState::Finished, 0));
    after.world.judge();
}

#[test]
fn a_crash_while_mending_costs_nothing() {
    let bench = Bench::new(1, 10);
    bench.set("tank", "copies", "2");
    bench.set("tank", "compression", "off");
    for n in 0..12 {
        bench.world.write("tank", &format!("file{n}"), &noise(n + 1, 9000));
    }
    bench.spoil_everything();
    let wanted = bench.world.files("tank");
    bench.world.datasets.close_all().unwrap();
    let recorder = Recorder::new();
    let device: Arc<dyn Device> = Arc::new(recorder.wrap(bench.disks[0].snapshot()));
    let world = World::open(device, 11).unwrap();
    let first = recorder.len();
    world.datasets.start_scrub().unwrap();
    while world.datasets.scrub_step(BUDGET).unwrap() == Progress::Worked {}
    assert!(recorder.len() > first + 12);
    for cut in (first..=recorder.len()).step_by(2) {
        let image = Arc::new(recorder.images_at(cut, &mut Fate::seeded(cut as u64)).remove(0));
        let disks = vec![image.clone()];
        let after = Bench { world: World::open(image, cut as u64).unwrap(), disks };
        assert_eq!(after.world.files("tank"), wanted, "cut {cut}");
        // It runs already, unless the cut was before it began. What was saved of it lies before what can be torn.
        let _ = after.world.datasets.start_scrub();
        assert_eq!(after.finish().errors, 0, "cut {cut}");
        after.world.judge();
    }
}

#[test]
fn damage_has_the_names_of_today() {
    let bench = Bench::new(1, 12);
    bench.world.create("tank/a").unwrap();
    for n in 0..400 {
        bench.world.write("tank", &format!("a file with a name that takes some room {n}"), b"content");
    }
    bench.world.write("tank/a", "first name", &noise(1, 50_000));
    bench.world.write("tank/a", "gone", &noise(2, 50_000));
    let ino = bench.ino("tank/a", "gone");
    for file in ["first name", "gone"] {
        bench.spoil(&bench.data("tank/a", file), 0);
    }
    let (found, _) = bench.blocks("tank");
    bench.spoil(&found.iter().rfind(|(level, _)| *level == 0).unwrap().1, 0);
    bench.scrub();
    bench.world.fs("tank/a").rename(ROOT, b"first name", ROOT, b"second name", Default::default()).unwrap();
    bench.world.remove("tank/a", "gone");
    bench.world.engine.commit().unwrap();
    let names = bench.world.datasets.damaged_names().unwrap();
    let (in_a, others): (Vec<String>, Vec<String>) = names.into_iter().partition(|name| name.starts_with("tank/a:"));
    assert_eq!(in_a, ["tank/a:/second name".to_owned(), format!("tank/a:<{ino:#x}>")]);
    assert!(others.len() > 10 && others.iter().all(|name| name.starts_with("tank:/a file with")), "{others:?}");
    let id = bench.id("tank/a");
    bench.world.destroy("tank/a", false, false).unwrap();
    let names = bench.world.datasets.damaged_names().unwrap();
    assert!(names.contains(&format!("<{id:#x}>:<{ino:#x}>")), "{names:?}");
}

#[test]
fn a_device_that_does_not_take_the_copy_costs_redundancy_and_no_data() {
    let faulty = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("faulty", SIZE))));
    let bench = Bench { world: World::on(faulty.clone(), 13), disks: Vec::new() };
    bench.set("tank", "copies", "2");
    bench.world.write("tank", "file", &noise(1, 50_000));
    let block = bench.data("tank", "file");
    let storage = bench.world.engine.storage();
    let at = DATA_START + storage.space.resolve(block.addresses[0], block.stored).unwrap().1;
    let failing = Fault { range: at..at + 16, ..Fault::failing(Operation::Read) };
    for (fault, is_checksum) in [(Fault::corrupting(at..at + 16), true), (failing, false)] {
        faulty.heal();
        faulty.inject(fault);
        bench.clear();
        let status = bench.scrub();
        assert_eq!((status.state, status.repaired, status.errors), (ScrubState::Finished, 0, 0));
        let Counts { read_errors, checksum_errors, .. } = bench.counts();
        assert_eq!((checksum_errors > 0, read_errors > 0), (is_checksum, !is_checksum));
        bench.world.engine.cache().clear();
        assert_eq!(bench.read("tank", "file").unwrap(), noise(1, 50_000));
    }
    assert_eq!(bench.world.datasets.damage().unwrap(), []);
    faulty.heal();
    assert_eq!(bench.scrub().repaired, 0);
    bench.world.judge();
}

#[test]
fn a_snapshot_that_goes_while_it_is_examined_leaves_nothing_unexamined() {
    let bench = Bench::new(1, 14);
    bench.world.create("tank/a").unwrap();
    bench.set("tank/a", "copies", "2");
    for n in 0..60 {
        bench.world.write("tank/a", &format!("file{n}"), &noise(n + 1, 9000));
    }
    bench.world.snapshot("tank/a@1").unwrap();
    // Where the first snapshot has been examined already when it goes, the second has blocks of its own.
    (0..5).for_each(|n| bench.world.write("tank/a", &format!("file{n}"), &noise(n + 99, 9000)));
    bench.world.snapshot("tank/a@2").unwrap();
    bench.spoil_everything();
    let (first, passed) = (bench.id("tank/a@1"), bench.ino("tank/a", "file5"));
    bench.world.datasets.start_scrub().unwrap();
    let is_in_the_midst = || match bench.status().position {
        ScrubPosition::Datasets { member, cursor, .. } => member == first && cursor.0 > passed,
        _ => false,
    };
    while !is_in_the_midst() {
        assert_eq!(bench.world.datasets.scrub_step(BUDGET).unwrap(), Progress::Worked);
    }
    bench.world.destroy("tank/a@1", false, false).unwrap();
    assert_eq!(bench.finish().errors, 0);
    bench.world.work();
    bench.world.judge();
}
