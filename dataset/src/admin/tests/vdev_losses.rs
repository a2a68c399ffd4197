//! Predicted losses of vdevs equal the real losses, dataset by dataset: each loss is first predicted and then caused.

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

/// The devices of a pool, grouped by vdev.
struct Rack(Vec<Vec<Arc<MemoryDevice>>>);

/// The unreadable files and directories, by inode number.
type Unreadable = BTreeSet<Ino>;

impl Rack {
    /// Devices for vdevs with the given numbers of devices.
    fn new(counts: &[usize]) -> Rack {
        let disk = |_| Arc::new(MemoryDevice::new("disk", SIZE));
        Rack(counts.iter().map(|count| (0..*count).map(disk).collect()).collect())
    }

    fn devices(&self, vdev: usize) -> Vec<Arc<dyn Device>> {
        self.0[vdev].iter().map(|disk| disk.clone() as Arc<dyn Device>).collect()
    }

    /// A copy of the pool in its current state.
    fn copied(&self) -> (Rack, World) {
        let copy = |disks: &Vec<Arc<MemoryDevice>>| disks.iter().map(|disk| Arc::new(disk.snapshot())).collect();
        let rack = Rack(self.0.iter().map(copy).collect());
        let devices = (0..rack.0.len()).flat_map(|vdev| rack.devices(vdev)).collect();
        let world = World::open_all(devices, 1).expect("it was made");
        (rack, world)
    }

    /// Destroys the data of a vdev; labels stay, because without labels the pool could not be opened.
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

/// The inode numbers of the files of a dataset or snapshot, and of the root directory.
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

/// The unreadable ones among the given files; all if the dataset or snapshot cannot be opened.
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

/// Compares prediction and reality for each set of lost vdevs: `lines` are datasets with their snapshots. Returns the
/// predictions.
fn check(rack: &Rack, lines: &[&[&str]], cases: &[&[usize]]) -> Vec<Vec<Loss>> {
    let mut all = Vec::new();
    for lost in cases {
        let (rack, world) = rack.copied();
        let members: Vec<Vec<_>> =
            lines.iter().map(|line| line.iter().map(|of| (*of, inos(&world, of))).collect()).collect();
        // The reads have updated access times: closing stores them, and nothing changes afterwards.
        world.datasets.close_all().unwrap();
        drop(world);
        let world = World::open_all((0..rack.0.len()).flat_map(|vdev| rack.devices(vdev)).collect(), 2).unwrap();
        let said = losses(&world, lost);
        lost.iter().for_each(|vdev| rack.lose(*vdev));
        for line in &members {
            let loss = said.iter().find(|loss| loss.name == line[0].0).unwrap();
            let case = format!("without {lost:?}: {loss:?}");
            let gone: Vec<Unreadable> = line.iter().map(|(of, inos)| unreadable(&world, of, inos)).collect();
            let distinct: Unreadable = gone.iter().flatten().copied().collect();
            assert_eq!(distinct.is_empty(), loss.lost_files == 0, "{case}, and cannot be read: {gone:?}");
            assert_eq!(distinct.is_empty(), loss.lost_blocks == 0, "{case}, and cannot be read: {gone:?}");
            if line.len() == 1 {
                assert_eq!(line[0].1.len() as u64, loss.files, "{case}");
            }
            // A file in a changed node counts again in each snapshot.
            let counted = distinct.len()..=gone.iter().map(BTreeSet::len).sum();
            assert!(counted.contains(&(loss.lost_files as usize)), "{case}, and cannot be read: {gone:?}");
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

/// A pool of a mirror, a RAID-Z, a disk and optionally a special vdev, with a dataset for each kind of placement.
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
    // Enough files for several nodes.
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

/// The predicted number of lost files of a dataset, and the total.
fn files(said: &[Loss], name: &str) -> (u64, u64) {
    let loss = said.iter().find(|loss| loss.name == name).unwrap();
    (loss.lost_files, loss.files)
}

#[test]
fn what_is_said_to_be_lost_with_vdevs_is_lost_and_nothing_else() {
    let cases: [&[usize]; 7] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
    let said = check(&placed(false, 41), &LINES, &cases);
    // Metadata has two copies, so a lost vdev loses only the data on that vdev alone.
    for (name, vdev) in [("tank/mirror", 0), ("tank/raidz", 1), ("tank/disk", 2)] {
        for (lost, said) in said[..3].iter().enumerate() {
            assert_eq!(files(said, name).0, if lost == vdev { 20 } else { 0 }, "{name} without {lost}");
        }
    }
}

#[test]
fn losses_beside_a_special_vdev_and_with_it_are_as_predicted() {
    let cases: [&[usize]; 6] = [&[0], &[1], &[2], &[0, 1, 2], &[3], &[2, 3]];
    let said = check(&placed(true, 42), &LINES, &cases);
    assert_eq!(files(&said[3], "tank/small"), (20, 41), "the small ones lie on the special vdev");
    for Loss { lost_files, files, .. } in said[4].iter().filter(|loss| loss.name != "<metadata>") {
        assert_eq!(lost_files, files, "without its nodes nothing is found");
    }
}
