//! RAID-Z of devices with different sizes, filled to the end, so that the rows behind the smallest device have files,
//! too.

use std::{collections::BTreeSet, sync::Arc};

use pool::{
    admin::{self, OpenOptions},
    device::{Device, FaultDevice, MemoryDevice, Recorder},
    env::SeededEnv,
    format::{
        key::Key,
        label::{Compatibility, DATA_START, LABEL_SIZE, RAIDZ_SIZES, device_size},
        pointer::BlockPointer,
        vdev_config::{RaidZConfig, VdevTree, Zone},
    },
    size::format_apart,
    units::{MIB, VdevId},
};

use super::{
    cuts::wherever_power_fails,
    raidz::{BUDGET, Disk, Life, disk_of, expand, lived},
    world::{Files, World, name, noise, settings},
};
use crate::{
    admin::{Datasets, Progress},
    fs::ROOT,
    jobs::Expanding,
};

/// The sizes in the order of the devices, the parity, and the number of columns of each zone.
const SHAPES: [(&[u64], u8, &[u8]); 2] = [(&[64, 96, 80, 96], 1, &[4, 3, 2]), (&[96, 64, 96, 80], 2, &[4, 3])];

fn sizes(of: &[u64]) -> Vec<u64> {
    of.iter().map(|size| size * MIB).collect()
}

fn config(life: &Life) -> RaidZConfig {
    match life.pool.label().vdevs.remove(0).tree {
        VdevTree::RaidZ(raidz) => raidz,
        other => panic!("{other:?}"),
    }
}

/// Writes files until the space is used up.
fn fill(life: &mut Life) {
    loop {
        let (file, content) = (format!("full{:03}", life.files.len()), noise(life.files.len() as u64, 2 << 20));
        if life.world.try_write("tank/a", &file, &content).is_err() {
            break;
        }
        life.world.engine.commit().unwrap();
        life.files.insert(file, content);
    }
    // The partial last file.
    life.world.remove("tank/a", &format!("full{:03}", life.files.len()));
    life.world.engine.commit().unwrap();
}

/// The number of nonzero bytes in a zone's regions, on the device of the zone's last column.
fn held(life: &Life, zone: &Zone) -> usize {
    let disk = &life.disks[of_column(life, usize::from(zone.columns) - 1)];
    let mut bytes = vec![0; len_of(life, zone)];
    disk.read_at(DATA_START + (zone.first_row << 12), &mut bytes).unwrap();
    bytes.iter().filter(|byte| **byte != 0).count()
}

/// The bytes of a zone on each device, in a pool with 4 KiB sectors.
fn len_of(life: &Life, zone: &Zone) -> usize {
    let sectors = life.pool.label().region_size >> 12;
    let rows = u64::from(zone.regions) * sectors.div_ceil(u64::from(zone.columns - config(life).parity));
    (rows << 12) as usize
}

/// The files of the pool without the given devices, opened read-only; `None` if the pool cannot be opened.
fn files_without(life: &Life, gone: &BTreeSet<usize>) -> Option<Files> {
    let there = life.disks.iter().enumerate().filter(|(at, _)| !gone.contains(at));
    let devices: Vec<Arc<dyn Device>> = there.map(|(_, disk)| disk.clone() as Arc<dyn Device>).collect();
    let options = OpenOptions { read_only: true, settings: settings(), ..OpenOptions::default() };
    let pool = admin::open(devices.clone(), &options, Arc::new(SeededEnv::new(7))).ok()?;
    let datasets = Datasets::open(pool.engine().clone(), name("tank")).unwrap();
    let world = World { devices, engine: pool.engine().clone(), datasets };
    Some(world.files("tank/a"))
}

/// All sets of `count` disks.
fn sets(of: usize, count: u32) -> impl Iterator<Item = BTreeSet<usize>> {
    let some = (0..1u32 << of).filter(move |set| set.count_ones() == count);
    some.map(move |set| (0..of).filter(|at| set & 1 << at != 0).collect())
}

/// The disk of a column.
fn of_column(life: &Life, column: usize) -> usize {
    let path = &config(life).members[column].member.leaf.path;
    life.disks.iter().position(|disk| disk.name() == path).unwrap()
}

/// Fails if files differ after the loss of the given devices.
fn holds_without(life: &Life, gone: &BTreeSet<usize>) {
    assert!(files_without(life, gone).is_some_and(|files| files == life.files), "without {gone:?}");
}

fn scrub(life: &Life) {
    life.world.datasets.scrub().start().unwrap();
    while life.world.datasets.scrub().advance(BUDGET).unwrap() == Progress::Worked {}
}

/// Replaces a device.
fn replace(life: &mut Life, at: usize, new: &Disk) {
    life.pool.attach(life.disks[at].name(), new.clone(), true).unwrap();
    life.disks[at] = new.clone();
    life.finish();
    life.world.devices = life.disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
}

#[test]
fn space_behind_the_smallest_device_is_used_with_full_parity() {
    for (of, parity, columns) in SHAPES {
        let mut life = Life::of(&sizes(of), parity, 40);
        let zones = config(&life).zones;
        assert_eq!(zones.iter().map(|zone| zone.columns).collect::<Vec<_>>(), columns);
        assert_eq!(life.pool.label().features.get(RAIDZ_SIZES), Some(&Compatibility::None));
        fill(&mut life);
        for zone in &zones {
            let (held, all) = (held(&life, zone), len_of(&life, zone));
            // Some chunks anywhere are kept empty for metadata.
            assert!(held * 3 > all, "{zone:?} has files: {held} of {all}");
        }
        life.judge();
        sets(of.len(), parity.into()).for_each(|gone| holds_without(&life, &gone));
        sets(of.len(), u32::from(parity) + 1)
            .for_each(|gone| assert!(files_without(&life, &gone).is_none(), "{gone:?}"));
    }
}

#[test]
fn rot_behind_the_smallest_device_is_found_and_repaired() {
    for (of, parity, _) in SHAPES {
        let mut life = Life::of(&sizes(of), parity, 41);
        fill(&mut life);
        let config = config(&life);
        for zone in &config.zones[1..] {
            // The last columns of the zone, as many as the parity covers.
            for column in usize::from(zone.columns - parity)..usize::from(zone.columns) {
                let disk = &life.disks[of_column(&life, column)];
                disk.write_at(DATA_START + (zone.first_row << 12), &noise(9, len_of(&life, zone))).unwrap();
            }
            life.world.engine.forget_read();
            life.verify();
            scrub(&life);
            assert_eq!(life.world.datasets.damage().unwrap().len(), 0, "everything was repaired");
            let group = life.world.engine.storage().vdevs.all();
            let errors = || group[0].leaves().into_iter().map(|leaf| leaf.counters().snapshot().checksum_errors);
            assert!(
                errors().filter(|errors| *errors > 0).count() >= usize::from(parity),
                "{:?}",
                errors().collect::<Vec<_>>()
            );
            // The repaired devices suffice without the ones that were intact.
            holds_without(&life, &(0..usize::from(parity)).map(|column| of_column(&life, column)).collect());
        }
    }
}

#[test]
fn a_replacement_needs_the_rows_of_its_column() {
    for (of, parity, _) in SHAPES {
        let mut life = Life::of(&sizes(of), parity, 42);
        fill(&mut life);
        let (before, region) = (config(&life), life.pool.label().region_size);
        let last = before.members.len() as u32 - 1;
        for column in [0, last] {
            let (path, at) = (&before.members[column as usize].member.leaf.path, of_column(&life, column as usize));
            let needed = device_size(before.needed_of(column, 4096, region));
            let small = disk_of(50, needed - LABEL_SIZE);
            let refused = life.pool.attach(path, small, true).unwrap_err().to_string();
            let (size, least) = format_apart(needed - LABEL_SIZE, needed);
            let expected = format!("disk50 is too small: {size}, at least {least} needed");
            assert_eq!(refused, expected);
            replace(&mut life, at, &disk_of(60 + column as usize, needed));
            assert_eq!(config(&life).zones, before.zones);
        }
        life.judge();
        // The copied device suffices without the others.
        for gone in sets(of.len(), parity.into()).filter(|gone| !gone.contains(&of_column(&life, 0))) {
            holds_without(&life, &gone);
        }
        life.reopen();
        life.judge();
    }
}

#[test]
fn a_raidz_of_different_sizes_is_expanded_up_to_its_largest() {
    let mut life = Life::of(&sizes(&[64, 96, 80, 96]), 1, 43);
    let before = config(&life);
    for number in 0..40 {
        let (file, content) = (format!("file{number:03}"), noise(number, 2 << 20));
        life.world.write("tank/a", &file, &content);
        life.world.engine.commit().unwrap();
        life.files.insert(file, content);
    }
    let new = disk_of(4, 80 * MIB);
    life.disks.push(new.clone());
    life.world.devices.push(new.clone());
    life.pool.attach_column("raidz1-0", new).unwrap();
    life.world.engine.commit_anyway().unwrap();
    expand(&life);
    assert!(life.pool.widening().is_none(), "{:?}", life.world.datasets.expansion().status());
    let after = config(&life);
    assert_eq!(after.zones.iter().map(|zone| zone.columns).collect::<Vec<_>>(), [5, 3, 2]);
    assert_eq!(after.zones[1..], before.zones[1..]);
    life.judge();
    sets(5, 1).for_each(|gone| holds_without(&life, &gone));
}

#[test]
fn rows_become_wider_where_a_device_that_was_replaced_reaches() {
    let mut life = Life::of(&sizes(&[64, 96, 96]), 1, 44);
    let before = config(&life);
    assert_eq!(before.zones.iter().map(|zone| zone.columns).collect::<Vec<_>>(), [3, 2]);
    for number in 0..40 {
        let (file, content) = (format!("file{number:03}"), noise(number, 2 << 20));
        life.world.write("tank/a", &file, &content);
        life.world.engine.commit().unwrap();
        life.files.insert(file, content);
    }
    replace(&mut life, 0, &disk_of(9, 96 * MIB));
    assert_eq!(config(&life).zones, before.zones, "nobody has asked for more");
    let size = life.world.engine.space_totals().size;
    let grown = life.pool.growth();
    assert_eq!((grown > 0, life.pool.expand(None).unwrap()), (true, grown));
    assert_eq!((life.pool.growth(), life.world.engine.space_totals().size), (0, size), "rows are narrow yet");
    let smaller = life.pool.attach(life.disks[0].name(), disk_of(10, 80 * MIB), true).unwrap_err();
    assert!(smaller.to_string().contains("too small"), "rows are to become as wide as begun: {smaller}");
    life.reopen();
    expand(&life);
    assert!(life.pool.widening().is_none(), "{:?}", life.world.datasets.expansion().status());
    assert_eq!(config(&life).zones.iter().map(|zone| zone.columns).collect::<Vec<_>>(), [3, 3]);
    assert_eq!(life.world.engine.space_totals().size, size + grown);
    fill(&mut life);
    life.judge();
    sets(3, 1).for_each(|gone| holds_without(&life, &gone));
}

/// A device of the given size with the content of `disk`.
fn resized(disk: &Disk, size: u64) -> MemoryDevice {
    let copy = MemoryDevice::new(disk.name(), size);
    let mut part = vec![0; 1 << 20];
    for offset in (0..disk.size()).step_by(part.len()) {
        disk.read_at(offset, &mut part).unwrap();
        if part.iter().any(|byte| *byte != 0) {
            copy.write_at(offset, &part).unwrap();
        }
    }
    copy
}

#[test]
fn a_power_failure_while_a_raidz_grows_costs_no_file() {
    let mut life = Life::of(&sizes(&[96, 96, 64]), 1, 45);
    fill(&mut life);
    // Keeps only files with blocks behind the smallest device.
    let behind = u64::from(config(&life).zones[1].first_region) * life.pool.label().region_size;
    let storage = life.world.engine.storage();
    let is_behind =
        |(_, pointer): &&(Key, BlockPointer)| storage.space.resolve(pointer.addresses[0], 4096).unwrap().1 >= behind;
    let left: BTreeSet<u64> =
        life.world.extents("tank/a").iter().filter(is_behind).map(|(key, _)| key.object).collect();
    let fs = life.world.fs("tank/a");
    let (kept, gone): (Files, Files) = std::mem::take(&mut life.files)
        .into_iter()
        .partition(|(file, _)| left.contains(&fs.lookup(ROOT, file.as_bytes()).unwrap().ino));
    gone.keys().for_each(|file| life.world.remove("tank/a", file));
    drop(fs);
    assert!((2..40).contains(&kept.len()), "{}", kept.len());
    life.files = kept;
    life.world.work();
    life.world.settle();
    life.world.datasets.close_all().unwrap();
    let recorder = Recorder::new();
    let grown = life.disks.iter().zip(sizes(&[112, 112, 80]));
    let grown = grown.map(|(disk, size)| Arc::new(FaultDevice::new(Arc::new(recorder.wrap(resized(disk, size))))));
    let (grown, files): (Vec<Disk>, Files) = (grown.collect(), life.files.clone());
    drop(life);
    let life = Life::opened(grown, 1, files.clone(), 46);
    let begin = recorder.len();
    assert!(life.pool.expand(None).unwrap() > 0);
    let expanded = recorder.len();
    // The content covered by each fsync, and the position in the recording.
    let mut promised = Vec::new();
    while let Some(widening) = life.pool.widening() {
        let number = promised.len() as u64;
        life.world.write("tank/b", &number.to_string(), &noise(1000 + number, 5000));
        life.world.fs("tank/b").fsync(ROOT).unwrap();
        promised.push(recorder.len());
        assert!(promised.len() < 200, "{:?}", life.world.datasets.expansion().status());
        for _ in 0..4 {
            let datasets = &life.world.datasets;
            if let Expanding::Widens(vdev, count) =
                datasets.expansion().advance(widening.vdev, &widening.narrow, BUDGET).unwrap()
            {
                life.pool.widen(vdev, count).unwrap();
                datasets.expansion().has_widened();
                break;
            }
        }
    }
    let after = config(&life);
    assert_eq!(after.zones.iter().map(|zone| zone.columns).collect::<Vec<_>>(), [3, 3, 2]);
    drop(life);
    let places: Vec<usize> = (begin..expanded).step_by(3).chain(promised.iter().copied()).collect();
    wherever_power_fails(&recorder, begin..recorder.len(), 30, &places, |cut, what, images| {
        let disks: Vec<Disk> = images.into_iter().map(|image| Arc::new(FaultDevice::new(image))).collect();
        let life = Life::opened(disks, 1, files.clone(), 47);
        // Regions in the labels have chunks, even if no state includes these yet.
        let regions: u64 = config(&life).zones.iter().map(|zone| u64::from(zone.regions)).sum();
        assert_eq!(life.world.engine.storage().space.chunks_of(VdevId(0)) as u64, regions, "{what}");
        life.judge();
        let found = life.world.files("tank/b");
        for (number, _) in (0..).zip(&promised).filter(|(_, from)| **from <= cut) {
            assert!(found.get(&number.to_string()) == Some(&noise(1000 + number, 5000)), "fsync {number}, {what}");
        }
        // The interrupted expansion continues.
        life.pool.expand(None).unwrap();
        expand(&life);
        assert_eq!(config(&life).zones.len(), after.zones.len(), "{what}");
        life.world.write("tank/b", "more", &noise(2000, 400_000));
        life.judge();
        holds_without(&life, &BTreeSet::from([cut % 3]));
    });
}

#[test]
fn different_sizes_keep_files_whatever_befalls_the_devices() {
    (50..52).for_each(|seed| lived(Life::of(&sizes(&[64, 96, 80, 96]), 1, seed)));
    (52..54).for_each(|seed| lived(Life::of(&sizes(&[96, 64, 96, 80]), 2, seed)));
}
