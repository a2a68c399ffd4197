//! Golden pools on vdevs of every kind: with classes and a spare, with a cache device, during a rebalance, with packed
//! chunks, during an expansion, a defragmentation and a resize, with a RAID-Z of devices of different sizes, with spaces in
//! names, and with datasets received from OpenZFS.
//!
//! Each pool was left in the middle of its job, so that all bytes of the job are kept: a log vdev with frames, a paused
//! rebalance and a paused defragmentation, a started resize, maps of chunks of a removed vdev, rows of two widths. The
//! content is small: files of some records, blocks larger than a region (gangs), and a file of every kind.

use std::{cell::LazyCell, fs::File, path::Path, sync::Arc};

use dataset::{
    admin::{Datasets, Progress, ReceiveRequest},
    fs::ROOT,
    jobs::{Expanding, Job, Removing, Resizing},
};
use pool::{
    admin::{self, ClassedVdev, CreateOptions, NewVdev, OpenOptions, ShrinkPlan},
    device::{Device, MemoryDevice},
    env::SeededEnv,
    format::{
        label::{
            ALLOCATION_CLASSES, CACHE_DEVICES, DATA_START, DEFRAGMENT, DEVICE_REMOVAL, FILE_ATTRIBUTES, PACKED_CHUNKS,
            PROJECT_QUOTA, RAIDZ, RAIDZ_EXPANSION, RAIDZ_SIZES, REBALANCE, SHRUNKEN_DEVICES, SPACES_IN_NAMES, SPARES,
            ZFS_OBJECTS, classes::VdevClass, device_size,
        },
        vdev_config::VdevTree,
    },
    space::MovingPlan,
    units::VdevId,
    vdev::{Health, labels},
};

use super::{
    MOST, assert_listed, assert_same, check, committed, listing, pages,
    script::{self, create, every_kind, file, overwrite, set, snapshot, words},
    world::{DEVICE_SIZE, World, as_devices, name, settings},
};

/// The bytes that a step copies.
const STEP: u64 = 1 << 20;
/// More steps than any job here takes.
const STEPS: usize = 2000;

/// A kept pool.
struct Kept {
    /// The generation of the pool.
    generation: u32,
    name: &'static str,
    /// The number of its devices.
    devices: usize,
    /// The size in bytes of all devices but the last, which has [`DEVICE_SIZE`].
    size: u64,
    /// The devices of which any one may be missing.
    spared: &'static [usize],
    /// Features that its labels must name.
    features: &'static [&'static str],
    make: fn() -> Vec<Arc<MemoryDevice>>,
    /// Fails if the pool is not in the middle of its job.
    shows: fn(&World),
    /// Continues the job.
    go_on: fn(&World),
}

const KEPT: [Kept; 10] = [
    Kept {
        generation: 4,
        name: "classes",
        devices: 4,
        size: DEVICE_SIZE,
        // The spare.
        spared: &[3],
        features: &[ALLOCATION_CLASSES, SPARES],
        make: with_classes,
        shows: |world| {
            let label = world.pool.label();
            let classes = [(VdevId(1), VdevClass::Special), (VdevId(2), VdevClass::Log)];
            assert_eq!(label.sections.classes, classes.into());
            assert_eq!(label.sections.spares.len(), 1);
        },
        go_on: |_| {},
    },
    Kept {
        generation: 4,
        name: "cached",
        devices: 2,
        size: DEVICE_SIZE,
        // The cache device.
        spared: &[1],
        features: &[CACHE_DEVICES],
        make: cached,
        shows: |world| {
            world.engine().secondary().finish();
            let cache = world.pool.caches().remove(0);
            let holds = world.engine().secondary().held(cache.guid()) > 0;
            assert_eq!(holds, cache.health() == Health::Online, "what was read is there");
        },
        go_on: |_| {},
    },
    Kept {
        generation: 4,
        name: "rebalance",
        devices: 2,
        size: DEVICE_SIZE,
        spared: &[],
        features: &[DEVICE_REMOVAL, REBALANCE],
        make: rebalanced,
        shows: |world| {
            assert!(world.datasets.rebalance().is_under_way() && world.datasets.moving().is_paused());
            assert!(world.datasets.rebalance().status().unwrap().copied > 0);
        },
        go_on: |world| {
            assert_eq!(world.datasets.rebalance().start(None).unwrap(), None);
            rebalance(world, |world| !world.datasets.rebalance().is_under_way());
        },
    },
    Kept {
        generation: 4,
        name: "packed",
        devices: 3,
        size: DEVICE_SIZE,
        spared: &[0, 1, 2],
        features: &[DEVICE_REMOVAL, PACKED_CHUNKS, RAIDZ],
        make: packed,
        shows: |world| assert_eq!(world.pool.label().vdevs.len(), 1),
        go_on: |_| {},
    },
    Kept {
        generation: 4,
        name: "expanded",
        devices: 4,
        size: DEVICE_SIZE,
        spared: &[0, 1, 2, 3],
        features: &[DEVICE_REMOVAL, PACKED_CHUNKS, RAIDZ, RAIDZ_EXPANSION],
        make: expanded,
        shows: |world| {
            let label = world.pool.label();
            let VdevTree::RaidZ(raidz) = &label.vdevs[0].tree else { panic!("it is a raidz") };
            assert_eq!(raidz.zones.iter().map(|zone| zone.columns).collect::<Vec<_>>(), [4, 3]);
        },
        go_on: |world| {
            for _ in 0..STEPS {
                if !expansion_step(world) {
                    return;
                }
            }
            panic!("the expansion does not come to rest");
        },
    },
    Kept {
        generation: 5,
        name: "defragmented",
        devices: 1,
        size: DEVICE_SIZE,
        spared: &[],
        features: &[DEFRAGMENT, DEVICE_REMOVAL, PACKED_CHUNKS, REBALANCE],
        make: defragmented,
        shows: |world| {
            assert!(world.datasets.defragment().is_under_way() && world.datasets.moving().is_paused());
            assert!(world.datasets.defragment().status().unwrap().emptied > 0);
            assert!(world.engine().storage().space.packed().0 > 0);
        },
        go_on: |world| {
            assert_eq!(world.datasets.defragment().start(None).unwrap(), None);
            defragment(world, |world| !world.datasets.defragment().is_under_way());
        },
    },
    Kept {
        generation: 6,
        name: "resized",
        devices: 2,
        size: DEVICE_SIZE,
        spared: &[],
        features: &[DEVICE_REMOVAL, REBALANCE, SHRUNKEN_DEVICES],
        make: resized,
        shows: |world| {
            assert!(world.datasets.resize().is_under_way() && world.datasets.moving().limit() == Some(1 << 30));
            let ends: Vec<u64> = world.pool.label().sections.ends.into_values().collect();
            assert_eq!(ends, [device_size(u64::from(KEPT_REGIONS) << 20)]);
            assert_eq!(world.pool.growth(), 0);
        },
        go_on: |world| {
            world.datasets.resize().start(&shrink(VdevId(1)), Some(1 << 40)).unwrap();
            resize(world);
            assert_eq!(world.pool.label().sections.ends.len(), 2);
            assert!(world.pool.regain(VdevId(0)).unwrap() && world.pool.expand(None).unwrap() > 0);
        },
    },
    Kept {
        generation: 7,
        name: "sizes",
        devices: 3,
        size: LARGE,
        spared: &[0, 1, 2],
        features: &[RAIDZ, RAIDZ_EXPANSION, RAIDZ_SIZES],
        make: of_different_sizes,
        shows: |world| {
            let label = world.pool.label();
            let VdevTree::RaidZ(raidz) = &label.vdevs[0].tree else { panic!("it is a raidz") };
            assert!(raidz.is_unequal());
            assert_eq!(raidz.zones.iter().map(|zone| zone.columns).collect::<Vec<_>>(), [3, 2]);
        },
        go_on: |_| {},
    },
    Kept {
        generation: 8,
        name: "spaces",
        devices: 1,
        size: DEVICE_SIZE,
        spared: &[],
        features: &[SPACES_IN_NAMES],
        make: with_spaces,
        shows: |world| {
            let bookmark = "tank/my files#before lunch".parse().unwrap();
            assert!(world.datasets.resolve(&bookmark).is_ok());
        },
        go_on: |world| {
            let name = "tank/my files@before lunch".parse().unwrap();
            world.datasets.rename_snapshot(&name, "after lunch", false).unwrap();
        },
    },
    Kept {
        generation: 9,
        name: "zfs",
        devices: 1,
        size: DEVICE_SIZE,
        spared: &[],
        features: &[FILE_ATTRIBUTES, PROJECT_QUOTA, ZFS_OBJECTS],
        make: from_openzfs,
        shows: |world| {
            let names = ["tank/top@r3", "tank/top/child@r3", "tank/top/clone@r3", "tank/long@s1"];
            names.iter().for_each(|name| assert!(world.datasets.resolve(&name.parse().unwrap()).is_ok()));
        },
        // The increment finds the objects of its base.
        go_on: |world| receive_zfs(world, "clone-incr", "tank/top/other"),
    },
];

/// The size in bytes of a RAID-Z's devices but the smallest.
const LARGE: u64 = 2 * DEVICE_SIZE;

/// The number of regions that remain of a shrunk disk.
const KEPT_REGIONS: u32 = 40;

fn disks(names: &[&str]) -> Vec<Arc<MemoryDevice>> {
    names.iter().map(|name| Arc::new(MemoryDevice::new(*name, DEVICE_SIZE))).collect()
}

fn device(disk: &Arc<MemoryDevice>) -> Arc<dyn Device> {
    disk.clone()
}

fn classed(disk: &Arc<MemoryDevice>, class: Option<VdevClass>) -> ClassedVdev {
    ClassedVdev { vdev: NewVdev::Disk(device(disk)), class }
}

/// A pool on these vdevs, with files on all regular vdevs: `count` files of half a megabyte, and others.
fn furnished<V: Clone + Into<ClassedVdev>>(vdevs: &[V], count: u64) -> World {
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = admin::create_of(vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    let datasets = Datasets::create_root(pool.engine().clone(), name("tank"), (0, 0)).unwrap();
    let world = World { pool: Arc::new(pool), datasets };
    // Reading files must change nothing.
    set(&world, "tank", &[("atime", "off")]);
    create(&world, "tank/home", &[("compression", "off")]);
    create(&world, "tank/gangs", &[("compression", "off"), ("recordsize", "4194304")]);
    create(&world, "tank/kinds", &[("compression", "zstd")]);
    (0..count).for_each(|seed| overwrite(&world.fs("tank/home"), &seed.to_string(), 0, &words(seed, 512 << 10)));
    overwrite(&world.fs("tank/gangs"), "larger than a region", 0, &words(1000, 3 << 20));
    every_kind(&world.fs("tank/kinds"), 20_000);
    world.engine().commit().unwrap();
    snapshot(&world, "tank@one", true);
    overwrite(&world.fs("tank/home"), "0", 100_000, &words(1001, 200_000));
    world.fs("tank/home").unlink(ROOT, b"1").unwrap();
    world.engine().commit().unwrap();
    world
}

fn exported(world: &World, images: Vec<Arc<MemoryDevice>>) -> Vec<Arc<MemoryDevice>> {
    world.datasets.close_all().unwrap();
    world.pool.export().unwrap();
    images
}

/// A disk, a special vdev, a log vdev, and a spare. Power fails while the log holds frames.
fn with_classes() -> Vec<Arc<MemoryDevice>> {
    let images = disks(&["disk", "special", "log", "spare"]);
    let classes = [None, Some(VdevClass::Special), Some(VdevClass::Log)];
    let vdevs: Vec<_> = images.iter().zip(classes).map(|(disk, class)| classed(disk, class)).collect();
    let world = furnished(&vdevs, 6);
    world.pool.add_spares(&[device(&images[3])]).unwrap();
    create(&world, "tank/small", &[("special_small_blocks", "16384"), ("compression", "off")]);
    overwrite(&world.fs("tank/small"), "on the special vdev", 0, &words(1002, 10_000));
    overwrite(&world.fs("tank/small"), "not there", 0, &words(1003, 40_000));
    world.engine().commit().unwrap();
    let fs = world.fs("tank/small");
    let logged = file(&fs, ROOT, b"only in the log", &words(1004, 20_000));
    fs.fsync(logged).unwrap();
    images
}

/// A disk, and a cache device with some of its blocks.
fn cached() -> Vec<Arc<MemoryDevice>> {
    let images = disks(&["disk", "cache"]);
    let world = furnished(&[classed(&images[0], None)], 6);
    world.pool.add_caches(&[device(&images[1])]).unwrap();
    world.engine().secondary().finish();
    world.engine().forget_read();
    let fs = world.fs("tank/home");
    let file = fs.lookup(ROOT, b"2").unwrap().ino;
    let mut content = Vec::new();
    fs.read(file, 0, 512 << 10, &mut content).unwrap();
    assert!(content == words(2, 512 << 10));
    world.engine().secondary().finish();
    exported(&world, images)
}

/// A disk that was nearly full, a second disk, and a paused rebalance that has moved some data.
fn rebalanced() -> Vec<Arc<MemoryDevice>> {
    let images = disks(&["first", "second"]);
    let world = furnished(&[classed(&images[0], None)], 44);
    world.pool.add(vec![device(&images[1])]).unwrap();
    world.engine().commit_anyway().unwrap();
    assert_eq!(world.datasets.rebalance().start(None).unwrap(), None);
    rebalance(&world, |world| world.datasets.rebalance().status().unwrap().copied > 0);
    world.datasets.rebalance().pause().unwrap();
    exported(&world, images)
}

/// Rebalances until `is_enough`.
fn rebalance(world: &World, is_enough: impl Fn(&World) -> bool) {
    for _ in 0..STEPS {
        if is_enough(world) {
            return;
        }
        world.clean_up().unwrap();
        world.datasets.rebalance().advance(STEP).unwrap();
    }
    panic!("the rebalance does not get there: {:?}", world.datasets.rebalance().status());
}

/// A disk with most data deleted, and a paused defragmentation that has packed some chunks.
fn defragmented() -> Vec<Arc<MemoryDevice>> {
    let images = disks(&["disk"]);
    let world = furnished(&[classed(&images[0], None)], 6);
    create(&world, "tank/holes", &[("compression", "off")]);
    for number in 0..100 {
        overwrite(&world.fs("tank/holes"), &number.to_string(), 0, &words(2000 + number, 128 << 10));
        if number % 10 == 9 {
            world.engine().commit().unwrap();
        }
    }
    for number in (0..100).filter(|number| number % 4 > 0) {
        world.fs("tank/holes").unlink(ROOT, number.to_string().as_bytes()).unwrap();
    }
    (0..6).for_each(|_| _ = world.engine().commit_anyway().unwrap());
    assert_eq!(world.datasets.defragment().start(Some(1 << 30)).unwrap(), None);
    defragment(&world, |world| world.datasets.defragment().status().unwrap().emptied > 0);
    world.datasets.defragment().pause().unwrap();
    exported(&world, images)
}

/// Names with spaces, for everything with a name in the catalogue.
fn with_spaces() -> Vec<Arc<MemoryDevice>> {
    let images = disks(&["disk"]);
    let world = furnished(&[classed(&images[0], None)], 8);
    create(&world, "tank/my files", &[]);
    overwrite(&world.fs("tank/my files"), "a file", 0, &words(3000, 10_000));
    snapshot(&world, "tank/my files@before lunch", false);
    let (of, bookmark) = ("tank/my files@before lunch".parse().unwrap(), "tank/my files#before lunch".parse().unwrap());
    world.datasets.bookmark(&of, &bookmark).unwrap();
    exported(&world, images)
}

/// A hierarchy with a clone, and a name of 700 bytes.
fn from_openzfs() -> Vec<Arc<MemoryDevice>> {
    let images = disks(&["disk"]);
    let world = furnished(&[classed(&images[0], None)], 8);
    receive_zfs(&world, "repl-R-full", "tank/top");
    receive_zfs(&world, "longname-full", "tank/long");
    exported(&world, images)
}

/// Receives a stream of OpenZFS from the fixtures, by its name.
fn receive_zfs(world: &World, stream: &str, target: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/zfs").join(format!("{stream}.zst"));
    let stream = zstd::stream::decode_all(File::open(path).unwrap()).unwrap();
    let request = ReceiveRequest::plain(target.parse().unwrap());
    world.datasets.receive(request, &mut &stream[..], 0, &mut |_| {}).1.unwrap();
}

/// Defragments until `is_enough`.
fn defragment(world: &World, is_enough: impl Fn(&World) -> bool) {
    for _ in 0..STEPS {
        if is_enough(world) {
            return;
        }
        world.clean_up().unwrap();
        world.datasets.defragment().advance(STEP).unwrap();
    }
    panic!("the defragmentation does not get there: {:?}", world.datasets.defragment().status());
}

/// Two disks, one already shrunk, the other about to be.
fn resized() -> Vec<Arc<MemoryDevice>> {
    let images = disks(&["shorter", "long"]);
    let world = furnished(&[classed(&images[0], None), classed(&images[1], None)], 6);
    world.datasets.resize().start(&shrink(VdevId(0)), None).unwrap();
    resize(&world);
    world.datasets.resize().start(&shrink(VdevId(1)), Some(1 << 30)).unwrap();
    exported(&world, images)
}

/// The plan to shrink a disk.
fn shrink(vdev: VdevId) -> ShrinkPlan {
    let size = device_size(u64::from(KEPT_REGIONS) << 20);
    let (name, moving) = (vdev.to_string(), MovingPlan::default());
    ShrinkPlan { vdev, name, now: DEVICE_SIZE, asked: size, size, regions: KEPT_REGIONS, moving, least: size }
}

/// Resizes until the job is done.
fn resize(world: &World) {
    for _ in 0..STEPS {
        match world.datasets.resize().advance(STEP).unwrap() {
            Resizing::Went(_) => {}
            Resizing::Shrinks(vdev, regions) => {
                world.pool.shrink(vdev, regions).unwrap();
                return world.datasets.resize().has_shrunk().unwrap();
            }
        }
    }
    panic!("the resize does not get there: {:?}", world.datasets.resize().status());
}

/// A RAID-Z, after the removal of a disk vdev.
fn left_by_a_disk() -> (World, Vec<Arc<MemoryDevice>>) {
    let mut images = disks(&["a", "b", "c", "leaves"]);
    let columns = images[..3].iter().map(device).collect();
    let vdevs = [NewVdev::RaidZ { parity: 1, devices: columns }, NewVdev::Disk(device(&images[3]))];
    let world = furnished(&vdevs, 16);
    let total = world.pool.plan_removal(VdevId(1)).unwrap().bytes;
    assert!(total > STEP, "there is something to pack");
    world.datasets.removal().start(VdevId(1), "leaves", total, None).unwrap();
    for _ in 0..STEPS {
        if !world.datasets.removal().is_under_way() {
            images.truncate(3);
            return (world, images);
        }
        world.clean_up().unwrap();
        if let Removing::Leaves(vdev) = world.datasets.removal().advance(STEP).unwrap() {
            world.pool.remove_vdev(vdev).unwrap();
            world.datasets.removal().has_left().unwrap();
        }
    }
    panic!("the removal does not end: {:?}", world.datasets.removal().status());
}

fn packed() -> Vec<Arc<MemoryDevice>> {
    let (world, images) = left_by_a_disk();
    exported(&world, images)
}

/// The same, with one more column, which the first rows already use.
fn expanded() -> Vec<Arc<MemoryDevice>> {
    let (world, mut images) = left_by_a_disk();
    images.extend(disks(&["d"]));
    world.pool.attach_column("raidz1-0", device(&images[3])).unwrap();
    let is_narrow = |world: &World| {
        let narrow = world.pool.widening().expect("some rows are narrow").narrow;
        narrow.first_row == 0
    };
    for _ in 0..STEPS {
        if !is_narrow(&world) {
            overwrite(&world.fs("tank/home"), "since then", 0, &words(1005, 1 << 20));
            world.engine().commit().unwrap();
            return exported(&world, images);
        }
        expansion_step(&world);
    }
    panic!("no rows become wide: {:?}", world.datasets.expansion().status());
}

/// A RAID-Z with a device smaller than the others, and files behind its end.
fn of_different_sizes() -> Vec<Arc<MemoryDevice>> {
    let large = ["large", "as large"].map(|name| Arc::new(MemoryDevice::new(name, LARGE)));
    let images: Vec<_> = large.into_iter().chain(disks(&["small"])).collect();
    let columns = images.iter().map(device).collect();
    let world = furnished(&[NewVdev::RaidZ { parity: 1, devices: columns }], 6);
    let zone = match &world.pool.label().vdevs[0].tree {
        VdevTree::RaidZ(raidz) => raidz.zones[1],
        other => panic!("{other:?}"),
    };
    let behind = || {
        let mut rows = vec![0; DEVICE_SIZE as usize / 2];
        images[1].read_at(DATA_START + (zone.first_row << world.pool.label().ashift), &mut rows).unwrap();
        rows.iter().filter(|byte| **byte != 0).count()
    };
    // The rows before its end are filled with compressible data, which is deleted later.
    create(&world, "tank/filler", &[("compression", "off")]);
    let mut count = 0;
    while behind() < 2 << 20 {
        assert!(count < 100, "nothing is ever behind its end");
        overwrite(&world.fs("tank/filler"), &count.to_string(), 0, &vec![1; 2 << 20]);
        world.engine().commit().unwrap();
        count += 1;
    }
    let before = behind();
    overwrite(&world.fs("tank/home"), "behind its end", 0, &words(1007, 1 << 20));
    world.engine().commit().unwrap();
    assert!(behind() > before + (1 << 19));
    (0..count).for_each(|number| world.fs("tank/filler").unlink(ROOT, number.to_string().as_bytes()).unwrap());
    world.clean_up().unwrap();
    world.engine().commit().unwrap();
    exported(&world, images)
}

/// The service's part in an expansion: `false` if nothing can be done now.
fn expansion_step(world: &World) -> bool {
    world.clean_up().unwrap();
    let Some(widening) = world.pool.widening() else { return false };
    match world.datasets.expansion().advance(widening.vdev, &widening.narrow, STEP).unwrap() {
        Expanding::Went(progress) => progress == Progress::Worked,
        Expanding::Widens(vdev, count) => {
            world.pool.widen(vdev, count).unwrap();
            world.datasets.expansion().has_widened();
            true
        }
    }
}

impl Kept {
    /// The devices of the committed pool, except those `gone`.
    fn devices(&self, gone: &[usize]) -> Vec<Arc<MemoryDevice>> {
        let made: LazyCell<Vec<Arc<MemoryDevice>>, _> = LazyCell::new(self.make);
        let there = (0..self.devices).filter(|at| !gone.contains(at));
        let device = |at: usize| {
            let file = format!("{}-{}-{at}.pages.zst", self.generation, self.name);
            let pack = || {
                let image: &Arc<MemoryDevice> = &made[at];
                pages::pack(image)
            };
            let packed = committed(&file, pack);
            let size = if at + 1 == self.devices { DEVICE_SIZE } else { self.size };
            assert!(packed.len() < MOST, "{file}: {} bytes", packed.len());
            Arc::new(pages::unpack(&packed, &format!("disk{at}"), size))
        };
        there.map(device).collect()
    }

    fn listing(&self) -> String {
        format!("{}-{}.txt", self.generation, self.name)
    }
}

#[test]
fn pools_on_every_kind_of_vdev_keep_their_content() {
    for kept in &KEPT {
        let gone = kept.spared.iter().map(|at| vec![*at]);
        for gone in [vec![]].into_iter().chain(gone) {
            let world = World::import(as_devices(&kept.devices(&gone)), 2).unwrap();
            (kept.shows)(&world);
            assert_listed(&kept.listing(), &listing::of_pool(&world));
            check(&world);
        }
    }
}

#[test]
fn labels_of_old_name_what_the_pools_use() {
    for kept in &KEPT {
        for device in kept.devices(&[]) {
            let label = labels::read_label(&*device).unwrap().expect("a label");
            let named: Vec<_> = label.features.keys().map(String::as_str).collect();
            assert_eq!(named, kept.features, "{}", kept.name);
        }
    }
}

#[test]
fn a_log_vdev_is_replayed_and_can_be_missing() {
    let kept = &KEPT[0];
    let world = World::import(as_devices(&kept.devices(&[])), 2).unwrap();
    assert!(listing::of_pool(&world).contains(script::ONLY_LOGGED));
    let devices = || kept.devices(&[2]).into_iter().map(|disk| disk as Arc<dyn Device>).collect();
    let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
    assert!(admin::open(devices(), &options, Arc::new(SeededEnv::new(2))).is_err());
    let options = OpenOptions { without_log: true, ..options };
    let pool = admin::open(devices(), &options, Arc::new(SeededEnv::new(2))).unwrap();
    let datasets = Datasets::open(pool.engine().clone(), name("tank")).unwrap();
    let world = World { pool: Arc::new(pool), datasets };
    let seen = listing::of_pool(&world);
    assert!(seen.contains("/not there/") && !seen.contains(script::ONLY_LOGGED));
    check(&world);
}

#[test]
fn what_was_under_way_goes_on() {
    for kept in &KEPT {
        let images = kept.devices(&[]);
        let world = World::import(as_devices(&images), 3).unwrap();
        (kept.go_on)(&world);
        overwrite(&world.fs("tank/home"), "later", 0, &words(1006, 300_000));
        world.clean_up().unwrap();
        check(&world);
        let seen = listing::of_pool(&world);
        world.datasets.close_all().unwrap();
        world.pool.export().unwrap();
        let world = World::import(as_devices(&images), 4).unwrap();
        assert_same("after another import", &listing::of_pool(&world), &seen);
        check(&world);
    }
}
