//! What is said to be lost with vdevs is what is lost with them, dataset by dataset: each loss is said, and then made.

use std::{collections::BTreeSet, sync::Arc};

use pool::{
    admin::{ClassedVdev, NewVdev},
    device::{Device, MemoryDevice},
    format::label::{DATA_START, classes::VdevClass},
    units::{MIB, VdevId},
};
use rustix::io::Errno;

use super::world::{World, name, noise};
use crate::{
    admin::{Assignment, Loss, Survivors},
    fs::{FileSystem, Ino, ROOT},
};

const SIZE: u64 = 96 * MIB;

/// Devices of a pool, those of each vdev together.
struct Rack(Vec<Vec<Arc<MemoryDevice>>>);

/// What cannot be read: files, by their numbers, and directories.
type Unreadable = BTreeSet<Ino>;

impl Rack {
    /// Devices for vdevs of so many.
    fn new(counts: &[usize]) -> Rack {
        let disk = |_| Arc::new(MemoryDevice::new("disk", SIZE));
        Rack(counts.iter().map(|count| (0..*count).map(disk).collect()).collect())
    }

    fn devices(&self, vdev: usize) -> Vec<Arc<dyn Device>> {
        self.0[vdev].iter().map(|disk| disk.clone() as Arc<dyn Device>).collect()
    }

    /// A copy of the pool as it is on these.
    fn copied(&self) -> (Rack, World) {
        let copy = |disks: &Vec<Arc<MemoryDevice>>| disks.iter().map(|disk| Arc::new(disk.snapshot())).collect();
        let rack = Rack(self.0.iter().map(copy).collect());
        let devices = (0..rack.0.len()).flat_map(|vdev| rack.devices(vdev)).collect();
        let world = World::open_all(devices, 1).expect("it was made");
        (rack, world)
    }

    /// All that lies there is lost; labels stay, for without them there would be no pool to look at.
    fn lose(&self, vdev: usize) {
        let noise = noise(5, 1 << 20);
        for disk in &self.0[vdev] {
            for at in (DATA_START..SIZE - MIB).step_by(1 << 20) {
                disk.write_at(at, &noise).unwrap();
            }
        }
    }
}

fn losses(world: &World, lost: &[usize]) -> Vec<Loss> {
    let is_left = |vdev: VdevId| !lost.contains(&(vdev.0 as usize));
    world.datasets.losses(&Survivors { is_left: &is_left, goes_on: &|| true }).unwrap()
}

fn is_readable(fs: &FileSystem, ino: Ino) -> Result<(), Errno> {
    let attributes = fs.getattr(ino)?;
    if ino == ROOT {
        return fs.readdir(ROOT, 0, &mut |_| true);
    }
    let mut content = Vec::new();
    while (content.len() as u64) < attributes.size {
        fs.read(ino, content.len() as u64, attributes.size as usize - content.len(), &mut content)?;
    }
    Ok(())
}

/// The files of a dataset or snapshot, and the directory.
fn inos(world: &World, of: &str) -> Unreadable {
    let read = |fs: &FileSystem| {
        let mut inos = BTreeSet::from([ROOT]);
        fs.readdir(ROOT, 0, &mut |entry| {
            inos.insert(entry.ino);
            true
        })
        .unwrap();
        inos
    };
    match of.parse() {
        Ok(snapshot) if of.contains('@') => read(&world.datasets.open_snapshot(&snapshot).unwrap().fs),
        _ => read(&world.fs(of)),
    }
}

/// Which of these cannot be read; all if the dataset or snapshot cannot be opened.
fn unreadable(world: &World, of: &str, inos: &Unreadable) -> Unreadable {
    world.engine.forget_read();
    let judge = |fs: &FileSystem| inos.iter().copied().filter(|ino| is_readable(fs, *ino).is_err()).collect();
    if of.contains('@') {
        let opened = world.datasets.open_snapshot(&of.parse().unwrap());
        return opened.map_or_else(|_| inos.clone(), |snapshot| judge(&snapshot.fs));
    }
    let opened = world.datasets.open_dataset(&name(of));
    opened.map_or_else(|_| inos.clone(), |dataset| judge(dataset.fs()))
}

/// What is said of each loss of these vdevs, and whether that is true: of lines, each a dataset and its snapshots.
fn check(rack: &Rack, lines: &[&[&str]], cases: &[&[usize]]) -> Vec<Vec<Loss>> {
    let mut all = Vec::new();
    for lost in cases {
        let (rack, world) = rack.copied();
        let members: Vec<Vec<_>> =
            lines.iter().map(|line| line.iter().map(|of| (*of, inos(&world, of))).collect()).collect();
        // That it was read is noted in it: nothing that was looked at moves after this.
        world.datasets.close_all().unwrap();
        drop(world);
        let world = World::open_all((0..rack.0.len()).flat_map(|vdev| rack.devices(vdev)).collect(), 2).unwrap();
        let said = losses(&world, lost);
        lost.iter().for_each(|vdev| rack.lose(*vdev));
        for line in &members {
            let loss = said.iter().find(|loss| loss.name == line[0].0).unwrap();
            let told = format!("without {lost:?}: {loss:?}");
            let gone: Vec<Unreadable> = line.iter().map(|(of, inos)| unreadable(&world, of, inos)).collect();
            let distinct: Unreadable = gone.iter().flatten().copied().collect();
            assert_eq!(distinct.is_empty(), loss.lost_files == 0, "{told}, and cannot be read: {gone:?}");
            assert_eq!(distinct.is_empty(), loss.lost_blocks == 0, "{told}, and cannot be read: {gone:?}");
            if line.len() == 1 {
                assert_eq!(line[0].1.len() as u64, loss.files, "{told}");
            }
            // What stands in a changed node is counted again with each snapshot.
            let counted = distinct.len()..=gone.iter().map(BTreeSet::len).sum();
            assert!(counted.contains(&(loss.lost_files as usize)), "{told}, and cannot be read: {gone:?}");
        }
        all.push(said);
    }
    all
}

fn set(world: &World, dataset: &str, property: &str, value: &str) {
    let given = [Assignment { property: property.into(), value: value.into() }];
    world.datasets.set(&[dataset.parse().unwrap()], &given).unwrap();
}

fn fill(world: &World, dataset: &str, seed: u64) {
    for n in 0..20 {
        world.write(dataset, &format!("a file with a name that takes some room {n}"), &noise(seed + n, 60_000));
    }
}

const LINES: [&[&str]; 9] = [
    &["tank/mirror"],
    &["tank/raidz"],
    &["tank/disk"],
    &["tank/twice"],
    &["tank/both"],
    &["tank/small"],
    &["tank/a", "tank/a@then"],
    &["tank/clone"],
    &["tank/many"],
];

/// A mirror, a RAID-Z and a disk, and perhaps a special vdev, with datasets that are placed in all the ways there are.
fn placed(special: bool, seed: u64) -> Rack {
    let rack = Rack::new(&[2, 3, 1, 1][..3 + usize::from(special)]);
    let data = |vdev| ClassedVdev { vdev, class: None };
    let mut vdevs = vec![
        data(NewVdev::Mirror(rack.devices(0))),
        data(NewVdev::RaidZ { parity: 1, devices: rack.devices(1) }),
        data(NewVdev::Disk(rack.devices(2)[0].clone())),
    ];
    if special {
        vdevs.push(ClassedVdev { vdev: NewVdev::Disk(rack.devices(3)[0].clone()), class: Some(VdevClass::Special) });
    }
    let world = World::of(&vdevs, seed);
    for line in LINES.iter().filter(|line| line[0] != "tank/clone") {
        world.create(line[0]).unwrap();
    }
    set(&world, "tank/mirror", "vdevs", "mirror-0");
    set(&world, "tank/raidz", "vdevs", "raidz1-1");
    set(&world, "tank/disk", "vdevs", "disk-2");
    set(&world, "tank/twice", "copies", "2");
    set(&world, "tank/both", "vdevs", "mirror-0,disk-2");
    set(&world, "tank/both", "copies", "2");
    if special {
        set(&world, "tank/small", "special_small_blocks", "16384");
    }
    for (n, line) in LINES[..7].iter().enumerate() {
        fill(&world, line[0], n as u64 * 100 + 1);
    }
    // Of so many files the nodes are several.
    for n in 0..1500 {
        world.write("tank/many", &format!("a file with a name that takes some room {n}"), b"content");
    }
    (0..20).for_each(|n: u64| world.write("tank/small", &format!("small {n}"), &noise(n + 1, 9000)));
    world.engine.commit().unwrap();
    world.snapshot("tank/a@then").unwrap();
    world.clone("tank/a@then", "tank/clone").unwrap();
    world.write("tank/clone", "new", &noise(98, 400_000));
    world.remove("tank/a", "a file with a name that takes some room 0");
    world.write("tank/a", "new", &noise(99, 400_000));
    world.engine.commit().unwrap();
    world.datasets.close_all().unwrap();
    rack
}

/// How many of a dataset's files are said to be lost, and how many there are.
fn files(said: &[Loss], name: &str) -> (u64, u64) {
    let loss = said.iter().find(|loss| loss.name == name).unwrap();
    (loss.lost_files, loss.files)
}

#[test]
fn what_is_said_to_be_lost_with_vdevs_is_lost_and_nothing_else() {
    let cases: [&[usize]; 7] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
    let said = check(&placed(false, 41), &LINES, &cases);
    // Metadata has two copies, and so nothing is lost with one vdev but what lies there alone.
    for (name, vdev) in [("tank/mirror", 0), ("tank/raidz", 1), ("tank/disk", 2)] {
        for (lost, said) in said[..3].iter().enumerate() {
            assert_eq!(files(said, name).0, if lost == vdev { 20 } else { 0 }, "{name} without {lost}");
        }
    }
}

#[test]
fn what_is_said_to_be_lost_beside_a_special_vdev_is_lost_and_with_it_everything() {
    let cases: [&[usize]; 6] = [&[0], &[1], &[2], &[0, 1, 2], &[3], &[2, 3]];
    let said = check(&placed(true, 42), &LINES, &cases);
    assert_eq!(files(&said[3], "tank/small"), (20, 41), "the small ones lie on the special vdev");
    for Loss { lost_files, files, .. } in said[4].iter().filter(|loss| loss.name != "<metadata>") {
        assert_eq!(lost_files, files, "without its nodes nothing is found");
    }
}
