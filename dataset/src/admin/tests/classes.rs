//! Vdevs with a class: placement of blocks, devices touched by fsync, and the pool without its log.

use std::{collections::BTreeMap, sync::Arc};

use pool::{
    admin::{ClassedVdev, NewVdev, OpenOptions},
    device::{Device, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    error::Error,
    format::label::classes::VdevClass,
    units::{MIB, VdevId},
};

use super::world::{World, noise};
use crate::{
    admin::{Assignment, CreateRequest, Survivors},
    fs::{Caller, Ino, ROOT},
};

const SPECIAL: Option<VdevClass> = Some(VdevClass::Special);
const LOG: Option<VdevClass> = Some(VdevClass::Log);

fn memory() -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::new("disk", 64 * MIB))
}

fn disk(device: Arc<dyn Device>, class: Option<VdevClass>) -> ClassedVdev {
    ClassedVdev { vdev: NewVdev::Disk(device), class }
}

fn file(world: &World, name: &str) -> Ino {
    world.fs("tank/a").create(&Caller::default(), ROOT, name.as_bytes(), 0o644, false).unwrap().ino
}

fn set(world: &World, property: &str, value: &str) {
    let assignment = Assignment { property: property.into(), value: value.into() };
    world.datasets.set(&["tank/a".parse().unwrap()], &[assignment]).unwrap();
}

/// For the pool's metadata and for `tank/a`: the number of blocks, and the number lost with the given vdev.
fn lost_with(world: &World, lost: u32) -> [(u64, u64); 2] {
    world.engine.commit().unwrap();
    let is_left = |vdev: VdevId| vdev != VdevId(lost);
    let losses = world.datasets.losses(&Survivors { is_left: &is_left, goes_on: &|| true }).unwrap();
    ["<metadata>", "tank/a"].map(|name| {
        let loss = losses.iter().find(|loss| loss.name == name).unwrap();
        (loss.blocks, loss.lost_blocks)
    })
}

/// For each file of `tank/a`, the number of records on each of two vdevs.
fn records(world: &World) -> BTreeMap<String, [usize; 2]> {
    world.engine.commit().unwrap();
    let space = &world.engine.storage().space;
    let mut found: BTreeMap<Ino, [usize; 2]> = BTreeMap::new();
    for (key, pointer) in world.extents("tank/a") {
        let (vdev, _) = space.resolve(pointer.addresses[0], pointer.stored).unwrap();
        found.entry(key.object).or_default()[vdev.0 as usize] += 1;
    }
    let of = |file: &String| found[&world.fs("tank/a").lookup(ROOT, file.as_bytes()).unwrap().ino];
    world.files("tank/a").keys().map(|file| (file.clone(), of(file))).collect()
}

#[test]
fn metadata_and_small_records_go_to_special_vdevs() {
    let world = World::of(&[disk(memory(), None), disk(memory(), SPECIAL)], 1);
    world.create("tank/a").unwrap();
    set(&world, "compression", "off");
    let [(metadata, lost), (nodes, lost_nodes)] = lost_with(&world, 0);
    assert!(metadata > 0 && nodes > 0);
    assert_eq!((lost, lost_nodes), (0, 0), "nothing but files is on the other vdev");
    world.write("tank/a", "before", &noise(1, 4096));
    assert_eq!(lost_with(&world, 0)[1].1, 1, "no record is small by default");
    set(&world, "special_small_blocks", "4096");
    world.write("tank/a", "small", &noise(2, 4096));
    assert_eq!(lost_with(&world, 0)[1].1, 1, "what is as large as it says is small");
    world.write("tank/a", "large", &noise(3, 4097));
    assert_eq!(lost_with(&world, 0)[1].1, 2, "what is larger is not");
    // The stored size decides.
    set(&world, "compression", "lz4");
    world.write("tank/a", "compressed", &[7; 60_000]);
    assert_eq!(lost_with(&world, 0)[1].1, 2);
    let [(metadata, lost), (_, lost_nodes)] = lost_with(&world, 1);
    assert!(lost == metadata && lost_nodes > 0, "without the special vdev nothing can be found");
    world.judge();
}

#[test]
fn an_fsync_touches_the_log_device_alone() {
    let (slow, fast, other) = (Recorder::new(), Recorder::new(), Recorder::new());
    let on = |recorder: &Arc<Recorder>| Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB)));
    let world = World::of(&[disk(on(&slow), None), disk(on(&fast), LOG), disk(on(&other), None)], 3);
    world.create("tank/a").unwrap();
    let (ino, fs) = (file(&world, "f"), world.fs("tank/a"));
    world.engine.commit().unwrap();
    let count = || [slow.len(), fast.len(), other.len()];
    for round in 0..20 {
        fs.write(ino, round * 4096, &noise(round, 4096), false).unwrap();
        let before = count();
        fs.fsync(ino).unwrap();
        let after = count();
        assert_eq!([0, 1, 2].map(|at| after[at] - before[at]), [0, 2, 0], "round {round}");
    }
    // A record too large for the log is stored in its final place, and flushed there.
    fs.write(ino, 1 << 20, &noise(99, 100_000), false).unwrap();
    let before = count();
    fs.fsync(ino).unwrap();
    let after = count();
    let [slow, fast, other] = [0, 1, 2].map(|at| after[at] - before[at]);
    assert_eq!(fast, 2);
    assert!((slow, other) == (2, 0) || (slow, other) == (0, 2), "a write and a flush: {slow} {other}");
    assert_eq!(world.engine.log_stats().commits, 0);
}

#[test]
fn an_fsync_does_not_flush_unrelated_failing_disks() {
    let slow = Arc::new(FaultDevice::new(memory()));
    let world = World::of(&[disk(slow.clone(), None), disk(memory(), LOG)], 3);
    world.create("tank/a").unwrap();
    let (ino, fs) = (file(&world, "f"), world.fs("tank/a"));
    world.engine.commit().unwrap();
    slow.inject(Fault::failing(Operation::Flush));
    fs.write(ino, 0, b"promised", false).unwrap();
    fs.fsync(ino).unwrap();
    assert_eq!(world.engine.log_stats().commits, 0);
}

#[test]
fn without_its_log_the_pool_is_what_the_last_commit_left() {
    let [data, log] = [memory(), memory()];
    let world = World::of(&[disk(data.clone(), None), disk(log.clone(), LOG)], 5);
    world.create("tank/a").unwrap();
    world.write("tank/a", "committed", b"stays");
    world.engine.commit().unwrap();
    let committed = world.files("tank/a");
    world.write("tank/a", "promised", b"is in the log alone");
    world.fs("tank/a").fsync(ROOT).unwrap();
    let all = world.files("tank/a");
    // Power fails.
    let [data, log] = [data, log].map(|device| Arc::new(device.snapshot()));
    drop(world);
    let open = |devices: &[&Arc<MemoryDevice>], without_log| {
        let devices = devices.iter().map(|device| (*device).clone() as Arc<dyn Device>).collect();
        let options = OpenOptions { without_log, ..OpenOptions::default() };
        World::open_as(devices, &options, 6).map(|world| world.expect("it was made"))
    };
    let whole = [&data, &log].map(|device| Arc::new(device.snapshot()));
    assert_eq!(open(&[&whole[0], &whole[1]], false).unwrap().files("tank/a"), all);
    let refused = open(&[&data], false).err().expect("the log may hold something");
    assert!(matches!(refused, Error::LostLog { .. }), "{refused}");
    let world = open(&[&data], true).unwrap();
    assert_eq!(world.files("tank/a"), committed);
    world.write("tank/a", "later", b"is promised again");
    world.fs("tank/a").fsync(ROOT).unwrap();
    let all = world.files("tank/a");
    // Power fails again. The log is on another device by now, so the missing device needs no confirmation.
    drop(world);
    let data = Arc::new(data.snapshot());
    let world = open(&[&data], false).unwrap();
    assert_eq!(world.files("tank/a"), all);
    world.judge();
    drop(world);
    // The device is back, with an obsolete log.
    let mut world = open(&[&data, &log], false).unwrap();
    assert_eq!(world.files("tank/a"), all);
    world.engine.commit_anyway().unwrap();
    let area = world.engine.log_area().unwrap();
    let address = pool::format::pointer::Address { chunk: area.chunk, sector: area.sector };
    assert_eq!(world.engine.storage().space.resolve(address, 4096).unwrap().0, VdevId(1));
    world.reopen();
    assert_eq!(world.files("tank/a"), all);
    world.judge();
}

#[test]
fn data_goes_to_the_preferred_vdevs_and_a_preference_can_change() {
    let world = World::of(&[disk(memory(), None), disk(memory(), None), disk(memory(), SPECIAL)], 1);
    let named = |value: &str| Assignment { property: "vdevs".into(), value: value.into() };
    world.create("tank/a").unwrap();
    set(&world, "compression", "off");
    let target = "tank/a".parse().unwrap();
    let shown = || world.datasets.get(&target, "vdevs").unwrap().unwrap().value;
    assert_eq!(shown(), "any");
    for value in ["disk-7", "mirror-1", "disk-1,nowhere"] {
        let error = world.datasets.set(std::slice::from_ref(&target), &[named(value)]).unwrap_err().to_string();
        assert!(error.contains("the pool has no vdev"), "{error}");
    }
    let number = world.engine.storage().vdevs.get(VdevId(1)).unwrap().guid().to_string();
    let mut records = [0; 3];
    for (value, kept, vdev) in [(&*number, "disk-1", 1), ("special", "special", 2), ("disk-0", "disk-0", 0)] {
        set(&world, "vdevs", value);
        assert_eq!(shown(), kept);
        let before = lost_with(&world, vdev)[1].1;
        world.write("tank/a", value, &noise(9, 2 * MIB as usize));
        let all = lost_with(&world, vdev)[1].1 - before;
        assert!(all >= 16, "{all} of 16 records are on vdev {vdev}");
        records[vdev as usize] = all;
    }
    // Children inherit the property, and a new dataset may have a value of its own.
    let request = |name: &str, properties| {
        let name = name.parse().unwrap();
        CreateRequest { name, parents: false, properties, owner: (0, 0) }
    };
    world.datasets.create(request("tank/a/b", Vec::new())).unwrap();
    world.datasets.create(request("tank/c", vec![named("special,disk-1")])).unwrap();
    let of = |name: &str| world.datasets.get(&name.parse().unwrap(), "vdevs").unwrap().unwrap().value;
    assert_eq!((of("tank/a/b"), of("tank/c")), ("disk-0".to_owned(), "special,disk-1".to_owned()));
    assert!(world.datasets.create(request("tank/d", vec![named("disk-3")])).is_err());
}

#[test]
fn with_round_robin_each_file_lies_on_one_vdev_and_else_on_all() {
    let mut world = World::of(&[disk(memory(), None), disk(memory(), None)], 1);
    world.create("tank/a").unwrap();
    set(&world, "compression", "off");
    let write = |world: &World, kind: &str| {
        for number in 0..4 {
            world.write("tank/a", &format!("{kind}{number}"), &noise(number, 3 * MIB as usize));
        }
    };
    write(&world, "first");
    set(&world, "alloc", "roundrobin");
    write(&world, "whole");
    // An open dataset obeys the property, and so does a dataset opened later.
    world.reopen();
    write(&world, "later");
    set(&world, "alloc", "striped");
    write(&world, "striped");
    let records = records(&world);
    let mut whole = [0; 2];
    for (file, counts) in &records {
        assert_eq!(counts.iter().sum::<usize>(), 24, "{file}");
        match file.starts_with("first") || file.starts_with("striped") {
            true => assert!(counts.iter().all(|count| *count >= 4), "{file} lies on both vdevs: {records:?}"),
            false => {
                assert!(counts.contains(&0), "{file} lies on one vdev: {records:?}");
                whole[usize::from(counts[1] > 0)] += 1;
            }
        }
    }
    assert_eq!(whole, [4; 2], "in turn: {records:?}");
    world.judge();
}
