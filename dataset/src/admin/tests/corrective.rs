//! Corrective receives: a stream repairs the damaged blocks of its snapshot, and nothing else changes.

use std::sync::Arc;

use pool::{
    admin::NewVdev,
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    format::{label::DATA_START, pointer::BlockPointer},
    units::MIB,
};

use super::{
    cuts::wherever_power_fails,
    raidz::rows,
    streams::request,
    world::{World, noise, refusal},
};
use crate::{
    admin::{Assignment, Corrected, Progress, ReceiveRequest},
    error::{Error, Result},
    jobs::Scope,
    zfs::tests::fixture,
};

impl World {
    fn correct(&self, target: &str, stream: &[u8], dry_run: bool) -> Result<Corrected> {
        let reader = crate::error::Reader::default();
        self.datasets.correct(&request(target), dry_run, &mut &stream[..], 0, reader, &mut |_| {})
    }

    /// Overwrites the beginning of every copy of a block of a pool on single devices.
    fn wreck(&self, pointer: &BlockPointer) {
        let storage = self.engine.storage();
        for &address in pointer.addresses() {
            let (vdev, offset) = storage.space.resolve(address, pointer.stored).unwrap();
            self.devices[vdev.0 as usize].write_at(DATA_START + offset, &[0xee; 64]).unwrap();
        }
        self.engine.forget_read();
    }

    fn wreck_files(&self, dataset: &str, files: &[&str]) {
        self.engine.commit().unwrap();
        files.iter().for_each(|file| self.wreck(&self.extent(dataset, file)));
    }

    /// Scrubs, and returns the number of lost blocks.
    fn scrub_all(&self) -> u64 {
        let scrub = self.datasets.scrub();
        scrub.start().unwrap();
        while scrub.advance(1 << 20).unwrap() == Progress::Worked {}
        scrub.status().unwrap().unwrap().errors
    }

    /// Examines the list of damage again, as the service does after a repair.
    fn examine_damage(&self) {
        let mut examination = self.datasets.begin_examination(&Scope::Damage).unwrap();
        while self.datasets.examination_step(&mut examination, 1 << 20).unwrap() == Progress::Worked {}
    }
}

/// A pool on the device with some files in `tank/home@a`, some more in `tank/home@b`, and a clone.
fn furnished(device: Arc<dyn Device>, seed: u64) -> World {
    let world = World::on(device, seed);
    world.create("tank/home").unwrap();
    for file in 0..12 {
        world.write("tank/home", &format!("file{file}"), &noise(file + 1, 9000 + file as usize * 700));
    }
    world.snapshot("tank/home@a").unwrap();
    world.write("tank/home", "later", &noise(77, 50_000));
    world.snapshot("tank/home@b").unwrap();
    world.clone("tank/home@a", "tank/clone").unwrap();
    world
}

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new("disk", 128 * MIB))
}

#[test]
fn a_full_stream_repairs_every_tree_with_the_blocks() {
    let world = furnished(memory(), 701);
    let stream = world.send("tank/home@a", None, |_| {}).unwrap();
    let before = [world.files("tank/home"), world.files("tank/home@a"), world.files("tank/clone")];
    world.wreck_files("tank/home", &["file3", "file7"]);
    assert_eq!(world.scrub_all(), 2);
    assert!(world.datasets.damage().unwrap().len() >= 6, "each of the trees");
    let planned = world.correct("tank/home", &stream, true).unwrap();
    assert_eq!((planned.blocks, planned.files), (2, 2));
    assert_eq!(world.scrub_all(), 2, "a dry run writes nothing");
    let names = world.names();
    let done = world.correct("tank/home", &stream, false).unwrap();
    assert_eq!(done, planned);
    assert_eq!((done.other_form, done.hidden, done.failed, done.skipped), (0, 0, 0, 0));
    world.examine_damage();
    assert_eq!(world.datasets.damage().unwrap(), []);
    world.engine.forget_read();
    assert!([world.files("tank/home"), world.files("tank/home@a"), world.files("tank/clone")] == before);
    assert_eq!((world.names(), world.scrub_all()), (names, 0));
    assert_eq!(world.correct("tank/home", &stream, false).unwrap().blocks, 0);
    world.judge_damaged();
}

#[test]
fn an_increment_repairs_the_blocks_that_it_has() {
    let world = furnished(memory(), 702);
    let increment = world.send("tank/home@b", Some("tank/home@a"), |_| {}).unwrap();
    world.wreck_files("tank/home", &["file1", "later"]);
    let done = world.correct("tank/home@b", &increment, false).unwrap();
    assert_eq!((done.blocks, done.files), (1, 1));
    assert_eq!(world.scrub_all(), 1);
    let full = world.send("tank/clone@none", None, |_| {});
    assert!(full.is_err(), "the clone has no snapshot");
}

#[test]
fn every_device_of_a_mirror_and_of_a_raidz_is_repaired() {
    let disk = |n: usize| -> Arc<dyn Device> { Arc::new(MemoryDevice::new(format!("disk{n}"), 128 * MIB)) };
    let disks = || -> Vec<Arc<dyn Device>> { (0..4).map(disk).collect() };
    for vdev in [NewVdev::Mirror(disks()), NewVdev::RaidZ { devices: disks(), parity: 1 }] {
        let world = World::of(&[vdev.into()], 703);
        world.create("tank/home").unwrap();
        world.write("tank/home", "file", &noise(5, 60_000));
        world.snapshot("tank/home@a").unwrap();
        let stream = world.send("tank/home@a", None, |_| {}).unwrap();
        let before = world.files("tank/home");
        let pointer = world.extent("tank/home", "file");
        let is_raidz = world.engine.storage().vdevs.all()[0].as_raidz().is_some();
        let (_, offset) = world.engine.storage().space.resolve(pointer.addresses[0], pointer.stored).unwrap();
        let place = DATA_START + if is_raidz { rows(&world, &pointer).place() } else { offset };
        // A part of the block on every device.
        for device in &world.devices {
            device.write_at(place + 10, &[0xee; 64]).unwrap();
        }
        world.engine.forget_read();
        assert_eq!(world.scrub_all(), 1);
        assert_eq!(world.correct("tank/home", &stream, false).unwrap().blocks, 1);
        world.engine.forget_read();
        assert!(world.files("tank/home") == before);
        assert_eq!(world.scrub_all(), 0);
        world.judge_damaged();
    }
}

#[test]
fn another_snapshot_and_other_content_repair_nothing() {
    let world = furnished(memory(), 704);
    let other = furnished(memory(), 705);
    let foreign = other.send("tank/home@a", None, |_| {}).unwrap();
    let stream = world.send("tank/home@b", None, |_| {}).unwrap();
    world.wreck_files("tank/home", &["file2"]);
    let refused = refusal(world.correct("tank/home", &foreign, false)).to_string();
    assert!(refused.contains("needs the snapshot of the stream, tank/home@a with the GUID"), "{refused}");
    let refused = refusal(world.correct("tank/home@a", &stream, false));
    assert!(matches!(refused, Error::NotReceived { .. }), "{refused}");
    refusal(world.correct("tank/missing", &stream, false));
    // A cut stream has repaired what came before the cut, or nothing.
    for len in [0, 40, stream.len() / 2, stream.len() - 1] {
        refusal(world.correct("tank/home", &stream[..len], false));
    }
    world.judge_damaged();
}

#[test]
fn damaged_metadata_is_reported_and_stays() {
    let world = furnished(memory(), 706);
    let stream = world.send("tank/home@b", None, |_| {}).unwrap();
    world.engine.commit().unwrap();
    let (nodes, _) = world.blocks("tank/home");
    let leaf = nodes.iter().find(|(level, _)| *level == 0).unwrap().1;
    world.wreck(&leaf);
    let done = world.correct("tank/home", &stream, false).unwrap();
    assert_eq!((done.blocks, done.hidden > 0), (0, true), "{done:?}");
}

#[test]
fn blocks_that_no_stream_repairs_are_counted_by_reason() {
    // A block in pieces: no hole is as large as a record.
    let world = World::on(memory(), 710);
    world.create("tank/full").unwrap();
    world.create("tank/home").unwrap();
    let mut count = 0;
    while world.try_write("tank/full", &count.to_string(), &noise(count, 16 << 10)).is_ok() {
        count += 1;
        if count.is_multiple_of(100) {
            world.engine.commit().unwrap();
        }
    }
    (0..count).filter(|number| number % 2 > 0).for_each(|number| world.remove("tank/full", &number.to_string()));
    world.settle();
    let mut files = (0..48).map(|number| (format!("{number}"), noise(5000 + number, 1 << 20)));
    while !world.extents("tank/home").iter().any(|(_, pointer)| pointer.gang) {
        let (name, content) = files.next().expect("the regions without holes are full by now");
        world.write("tank/home", &name, &content);
        world.engine.commit().unwrap();
    }
    world.snapshot("tank/home@a").unwrap();
    let stream = world.send("tank/home@a", None, |_| {}).unwrap();
    world.engine.commit().unwrap();
    let all = world.extents("tank/home");
    let (_, gang) = all.iter().find(|(_, pointer)| pointer.gang).expect("a block in pieces");
    let (vdev, offset) = world.engine.storage().space.resolve(gang.addresses[0], 512).unwrap();
    world.devices[vdev.0 as usize].write_at(DATA_START + offset, &[0xee; 64]).unwrap();
    world.engine.forget_read();
    for dry_run in [true, false] {
        let done = world.correct("tank/home", &stream, dry_run).unwrap();
        assert_eq!((done.blocks, done.in_pieces, done.other_form, done.unchecked), (0, 1, 0, 0), "{done:?}");
    }
    // A block without a checksum, which the device cannot read.
    let device = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("disk", 128 * MIB))));
    let world = World::on(device.clone(), 711);
    world.create("tank/home").unwrap();
    world.set("tank/home", "checksum", "off").unwrap();
    world.write("tank/home", "file", &noise(5, 60_000));
    world.snapshot("tank/home@a").unwrap();
    let stream = world.send("tank/home@a", None, |_| {}).unwrap();
    world.engine.commit().unwrap();
    let pointer = world.extent("tank/home", "file");
    let (_, offset) = world.engine.storage().space.resolve(pointer.addresses[0], pointer.stored).unwrap();
    let at = DATA_START + offset;
    device.inject(Fault { range: at..at + 1, times: 1000, ..Fault::failing(Operation::Read) });
    world.engine.forget_read();
    let done = world.correct("tank/home", &stream, false).unwrap();
    assert_eq!((done.blocks, done.in_pieces, done.other_form, done.unchecked), (0, 0, 0, 1), "{done:?}");
}

#[test]
fn power_may_fail_at_every_write_of_a_repair() {
    let recorder = Recorder::new();
    let device = Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB)));
    let world = furnished(device, 707);
    let stream = world.send("tank/home@b", None, |_| {}).unwrap();
    let before = [world.files("tank/home"), world.files("tank/home@a"), world.files("tank/clone")];
    let damaged: Vec<String> = (0..12).map(|file| format!("file{file}")).collect();
    world.wreck_files("tank/home", &damaged.iter().map(String::as_str).collect::<Vec<_>>());
    world.scrub_all();
    world.engine.commit().unwrap();
    let start = recorder.len();
    assert_eq!(world.correct("tank/home", &stream, false).unwrap().blocks, 12);
    world.examine_damage();
    world.engine.commit().unwrap();
    wherever_power_fails(&recorder, start..recorder.len(), 60, &[], |cut, place, images| {
        let world = World::open_all(images, cut as u64).unwrap();
        assert!(world.scrub_all() <= 12, "{place}: no more than before");
        world.correct("tank/home", &stream, false).unwrap();
        world.examine_damage();
        world.engine.forget_read();
        let now = [world.files("tank/home"), world.files("tank/home@a"), world.files("tank/clone")];
        assert!(now == before, "{place}");
        assert_eq!((world.scrub_all(), world.datasets.damage().unwrap()), (0, vec![]), "{place}");
        world.judge_damaged();
    });
}

#[test]
fn a_dry_run_counts_a_block_that_a_good_copy_repairs() {
    // A stream of ZFS gets the stored form of its receiver, so one snapshot has blocks of two forms.
    let received = |compression: &str, seed| {
        let disks = ["one", "two"].map(|disk| Arc::new(MemoryDevice::new(disk, 128 * MIB)) as Arc<dyn Device>);
        let world = World::of(&[NewVdev::Mirror(disks.to_vec()).into()], seed);
        let set = Assignment { property: "compression".into(), value: compression.into() };
        let change = |request: &mut ReceiveRequest| request.properties = vec![set];
        world.receive_with("tank/copy", &fixture("std-full-s1"), change).unwrap();
        world
    };
    let (plain, packed) = (received("off", 708), received("lz4", 709));
    let stream = packed.send("tank/copy@s1", None, |_| {}).unwrap();
    plain.engine.commit().unwrap();
    let pointer = plain.extent("tank/copy", "guide-too");
    let (_, offset) = plain.engine.storage().space.resolve(pointer.addresses[0], pointer.stored).unwrap();
    plain.devices[0].write_at(DATA_START + offset, &[0xee; 64]).unwrap();
    plain.engine.forget_read();
    let planned = plain.correct("tank/copy", &stream, true).unwrap();
    assert_eq!((planned.blocks, planned.other_form), (1, 0));
    assert_eq!(plain.correct("tank/copy", &stream, false).unwrap(), planned);
    plain.forgive();
    plain.judge();
}
