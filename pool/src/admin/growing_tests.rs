//! Devices that grow while their pool is open, at every power failure.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    CreateOptions, NewVdev, Pool,
    columns_tests::widen,
    create_of,
    members_tests::resilver,
    stamped::{Stamp, commit, opened, reading, resized, settings, shown, stamped, writing_pool},
};
use crate::{
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    error::{ErrorKind, Result},
    format::{
        label::{LABEL_SIZE, LABELS, RAIDZ_SIZES, label_offsets, uberblock_offset},
        vdev_config::{MAX_ZONES, RAIDZ_COLUMNS, VdevTree},
    },
    units::{Guid, MIB, VdevId},
    vdev::{labels::read_label, uberblocks::read_uberblocks},
};

const SIZE: u64 = 64 * MIB;
const GROWN: u64 = SIZE + 20 * MIB;

/// A device that at first shows only its front part.
struct Late {
    inner: Arc<dyn Device>,
    there: AtomicU64,
    size: AtomicU64,
}

impl Late {
    fn new(inner: Arc<dyn Device>) -> Arc<Late> {
        Arc::new(Late { inner, there: AtomicU64::new(SIZE), size: AtomicU64::new(SIZE) })
    }

    fn named(name: &str) -> Arc<Late> {
        Late::new(Arc::new(MemoryDevice::new(name, GROWN)))
    }

    fn grow(&self) {
        self.there.store(GROWN, Ordering::Relaxed);
    }
}

impl Device for Late {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    fn measure(&self) -> io::Result<u64> {
        Ok(self.there.load(Ordering::Relaxed))
    }

    fn resize(&self, size: u64) {
        self.size.store(size, Ordering::Relaxed);
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        assert!(offset + buf.len() as u64 <= self.size());
        self.inner.read_at(offset, buf)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        assert!(offset + bytes.len() as u64 <= self.size());
        self.inner.write_at(offset, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }
}

fn regions(pool: &Pool) -> u64 {
    pool.engine().space_totals().size / MIB
}

fn made(vdev: NewVdev) -> Pool {
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&[vdev], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    pool
}

fn all(devices: &[Arc<Late>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
}

#[test]
fn growth_is_used_without_reopening_the_pool() {
    let late = Late::named("disk");
    let (device, _) = stamped(late.clone());
    let pool = writing_pool(&device, 2);
    assert_eq!((pool.remeasure().unwrap(), pool.growth()), (false, 0));
    late.grow();
    assert_eq!(pool.growth(), 0, "nobody has looked");
    assert_eq!((pool.remeasure().unwrap(), pool.growth(), regions(&pool)), (true, 20 * MIB, 62));
    assert_eq!((pool.expand(Some(VdevId(1))).unwrap(), pool.expand(Some(VdevId(0))).unwrap()), (0, 20 * MIB));
    assert_eq!((pool.remeasure().unwrap(), pool.growth(), regions(&pool)), (false, 0, 82));
    let newest = commit(&pool, 3);
    drop(pool);
    let again = writing_pool(&device, 3);
    assert_eq!((shown(again.engine()), regions(&again)), (newest, 82));
}

#[test]
fn back_labels_are_at_the_end_and_equal_the_front_labels() {
    let late = Late::named("disk");
    let (device, _) = stamped(late.clone());
    let pool = writing_pool(&device, 2);
    let newest = commit(&pool, 2);
    late.grow();
    pool.remeasure().unwrap();
    let label = read_label(&*device).unwrap().unwrap();
    for survivor in 0..LABELS {
        let image = resized(&*late.inner, GROWN);
        for (_, at) in label_offsets(GROWN).into_iter().enumerate().filter(|(n, _)| *n != survivor) {
            image.write_at(at, &vec![0xee; 256 << 10]).unwrap();
        }
        assert_eq!(read_label(&image).unwrap().as_ref(), Some(&label), "label {survivor}");
        let found = read_uberblocks(&image, Guid(label.pool.0)).unwrap();
        assert_eq!(found.first().map(|uberblock| uberblock.txg), Some(newest), "ring {survivor}");
    }
}

#[test]
fn a_mirror_and_a_raidz_grow_with_their_smallest_device() {
    let devices = ["a", "b", "c"].map(Late::named);
    let vdevs: [(NewVdev, u64, u64); 2] =
        [(NewVdev::Mirror(all(&devices)), 62, 82), (NewVdev::RaidZ { parity: 1, devices: all(&devices) }, 125, 165)];
    for (vdev, before, after) in vdevs {
        devices.iter().for_each(|device| {
            device.there.store(SIZE, Ordering::Relaxed);
            device.resize(SIZE);
        });
        let pool = made(vdev);
        assert_eq!(regions(&pool), before);
        devices[..2].iter().for_each(|device| device.grow());
        assert_eq!((pool.remeasure().unwrap(), pool.growth(), pool.expand(None).unwrap()), (true, 0, 0));
        assert!(!pool.remeasure().unwrap(), "that is known by now");
        devices[2].grow();
        assert!(pool.remeasure().unwrap());
        assert_eq!((pool.growth(), pool.expand(None).unwrap()), ((after - before) * MIB, (after - before) * MIB));
        let newest = commit(&pool, 3);
        drop(pool);
        let pool = super::open(all(&devices), &super::stamped::writing(), Arc::new(SeededEnv::new(5))).unwrap();
        assert_eq!((shown(pool.engine()), regions(&pool)), (newest, after));
    }
}

/// A RAID-Z whose first two of three devices have grown, and the pool's regions before.
fn grown_apart(recorder: Option<&Arc<Recorder>>) -> (Vec<Arc<Late>>, Pool, u64) {
    let devices = ["a", "b", "c"].map(|name| match recorder {
        Some(recorder) => Late::new(Arc::new(recorder.wrap(MemoryDevice::new(name, GROWN)))),
        None => Late::named(name),
    });
    devices.iter().for_each(|device| device.resize(SIZE));
    let pool = made(NewVdev::RaidZ { parity: 1, devices: all(&devices) });
    let before = regions(&pool);
    devices[..2].iter().for_each(|device| device.grow());
    assert!(pool.remeasure().unwrap());
    (devices.to_vec(), pool, before)
}

#[test]
fn a_raidz_uses_growth_of_its_first_devices_on_request() {
    let (devices, pool, before) = grown_apart(None);
    assert_eq!((pool.growth(), pool.expand(None).unwrap(), regions(&pool)), (0, 0, before), "nobody has asked");
    assert!(!pool.label().features.contains_key(RAIDZ_SIZES));
    // Two columns with single parity: 20 MiB in whole regions.
    let more = pool.expand(Some(VdevId(0))).unwrap();
    assert_eq!((more, regions(&pool)), (20 * MIB, before + 20));
    assert_eq!(pool.expand(Some(VdevId(0))).unwrap(), 0);
    assert!(pool.label().features.contains_key(RAIDZ_SIZES) && pool.widening().is_none());
    let newest = commit(&pool, 3);
    drop(pool);
    let open = |devices: &[Arc<Late>], options: &super::OpenOptions| {
        super::open(all(devices), options, Arc::new(SeededEnv::new(5))).unwrap()
    };
    for gone in 0..3 {
        let mut there = devices.clone();
        there.remove(gone);
        assert_eq!(shown(open(&there, &reading(None)).engine()), newest, "without device {gone}");
    }
    // The last device grows too, and its rows widen.
    let pool = open(&devices, &super::stamped::writing());
    devices[2].grow();
    assert!(pool.remeasure().unwrap());
    assert!(pool.expand(None).unwrap() > 0);
    while widen(&pool, 40) {}
    assert!(pool.widening().is_none() && regions(&pool) >= before + 39, "{} of {before}", regions(&pool));
}

#[test]
fn growth_behind_a_smaller_column_stays_unused() {
    let devices = ["a", "b", "c"].map(Late::named);
    let pool = made(NewVdev::RaidZ { parity: 1, devices: all(&devices) });
    let before = regions(&pool);
    devices[1..].iter().for_each(|device| device.grow());
    assert!(pool.remeasure().unwrap());
    assert_eq!((pool.expand(Some(VdevId(0))).unwrap(), regions(&pool)), (0, before));
    devices[0].grow();
    assert!(pool.remeasure().unwrap());
    assert_eq!(pool.expand(Some(VdevId(0))).unwrap(), 40 * MIB);
    assert!(!pool.label().features.contains_key(RAIDZ_SIZES), "all give equally much");
}

#[test]
fn a_crash_in_partial_growth_leaves_the_old_or_the_new_raidz() {
    let recorder = Recorder::new();
    let (_, pool, before) = grown_apart(Some(&recorder));
    let newest = commit(&pool, 1);
    let begin = recorder.len();
    pool.expand(Some(VdevId(0))).unwrap();
    let expanded = recorder.len();
    let last = commit(&pool, 2);
    drop(pool);
    let mut outcomes = [false; 2];
    for (cut, seed) in cuts(begin..=recorder.len(), 2) {
        let mut images = recorder.images_at(cut, &mut Fate::seeded(seed));
        images[2] = resized(&images[2], SIZE);
        let images: Vec<Arc<dyn Device>> = images.into_iter().map(|image| Arc::new(image) as Arc<dyn Device>).collect();
        let open = || {
            let env = Arc::new(SeededEnv::new(7));
            let pool = super::open(images.clone(), &super::stamped::writing(), env).unwrap();
            pool.engine().set_client(Arc::new(Stamp));
            pool
        };
        let pool = open();
        let state = shown(pool.engine());
        assert!((newest..=last).contains(&state), "cut {cut}, seed {seed}: {state}");
        let is_larger = regions(&pool) == before + 20;
        assert!(is_larger || regions(&pool) == before && cut < expanded, "cut {cut}, seed {seed}");
        outcomes[usize::from(is_larger)] = true;
        pool.expand(Some(VdevId(0))).unwrap();
        let state = commit(&pool, 1);
        drop(pool);
        let again = open();
        assert_eq!((shown(again.engine()), regions(&again)), (state, before + 20), "cut {cut}, seed {seed}");
    }
    assert_eq!(outcomes, [true; 2]);
}

/// A device of `size` MiB that at first shows `there` of them.
fn late(name: &str, (there, size): (u64, u64)) -> Arc<Late> {
    let late = Late::new(Arc::new(MemoryDevice::new(name, size * MIB)));
    late.there.store(there * MIB, Ordering::Relaxed);
    late.resize(there * MIB);
    late
}

#[test]
fn rows_can_widen_once_a_replaced_smaller_device_has_left() {
    let large = ["a", "b", "c"].map(|name| late(name, (128, 192)));
    let devices: Vec<Arc<Late>> = large.iter().cloned().chain([late("d", (64, 64))]).collect();
    let pool = made(NewVdev::RaidZ { parity: 1, devices: all(&devices) });
    pool.attach("d", late("new", (128, 128)), true).unwrap();
    large.iter().for_each(|device| device.there.store(192 * MIB, Ordering::Relaxed));
    assert!(pool.remeasure().unwrap());
    assert!(pool.expand(None).unwrap() > 0);
    // The small device is still a member, so no row can have another column.
    assert!(pool.widening().is_none());
    assert!(resilver(&pool));
    assert!(pool.find_device("d").is_err(), "it has left");
    let widening = pool.widening().expect("rows are narrow up to where the new one reaches");
    assert_eq!((widening.columns, widening.narrow.columns), (4, 3));
    let newest = commit(&pool, 1);
    assert_eq!(shown(pool.engine()), newest);
}

#[test]
fn a_raidz_stays_as_it_is_when_labels_have_no_room_for_zones() {
    let devices = [("a", 80), ("b", 80), ("c", 64)].map(|(name, size)| late(name, (size, 512)));
    let pool = made(NewVdev::RaidZ { parity: 1, devices: all(&devices) });
    let zones = |pool: &Pool| match pool.label().vdevs.remove(0).tree {
        VdevTree::RaidZ(raidz) => raidz.zones.len(),
        other => panic!("{other:?}"),
    };
    // The first two devices stay ahead; rows widen as far as the third reaches, and each round adds a zone behind.
    let mut rounds = (64..400).step_by(4).map(|size| {
        devices.iter().zip([20, 20, 4]).for_each(|(device, ahead)| {
            device.there.store((size + ahead) * MIB, Ordering::Relaxed);
        });
        assert!(pool.remeasure().unwrap());
        let expanded = pool.expand(Some(VdevId(0)));
        while widen(&pool, 40) {}
        assert!(pool.widening().is_none(), "{:?}", pool.widening());
        expanded
    });
    let refused = rounds.find_map(Result::err).unwrap();
    let reason = "the labels cannot describe further growth of raidz1-0, so added space stays unused; to use it, add another vdev (pool add), then remove raidz1-0 (pool remove)";
    assert_eq!((refused.kind(), refused.to_string()), (ErrorKind::Request, reason.to_owned()));
    assert_eq!((pool.outgrown(), pool.growth()), (vec![(VdevId(0), reason.to_owned())], 0));
    assert!((MAX_ZONES - RAIDZ_COLUMNS - 2..=MAX_ZONES - RAIDZ_COLUMNS).contains(&zones(&pool)), "{}", zones(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    let pool = super::open(all(&devices), &super::stamped::writing(), Arc::new(SeededEnv::new(5))).unwrap();
    assert_eq!((shown(pool.engine()), pool.outgrown().len()), (newest, 1));
    assert!(pool.expand(None).is_err());
}

#[test]
fn a_device_whose_new_end_cannot_be_written_ends_where_it_did() {
    let late = Late::named("disk");
    let faulty = Arc::new(FaultDevice::new(late.clone()));
    let (device, _) = stamped(faulty.clone());
    let pool = writing_pool(&device, 2);
    late.grow();
    faulty.inject(Fault { range: SIZE..GROWN, ..Fault::failing(Operation::Write) });
    assert_eq!(pool.remeasure().unwrap_err().kind(), ErrorKind::Device);
    assert_eq!((device.size(), pool.growth()), (SIZE, 0));
    let newest = commit(&pool, 2);
    faulty.heal();
    assert!(pool.remeasure().unwrap());
    assert_eq!(pool.expand(None).unwrap(), 20 * MIB);
    drop(pool);
    assert!(shown(writing_pool(&device, 3).engine()) >= newest);
}

#[test]
fn the_pool_is_whole_after_a_crash_while_a_device_grows() -> Result<()> {
    let recorder = Recorder::new();
    let late = Late::new(Arc::new(recorder.wrap(MemoryDevice::new("disk", GROWN))));
    let (device, newest) = stamped(late.clone());
    let pool = writing_pool(&device, 2);
    commit(&pool, 1);
    late.grow();
    let begin = recorder.len();
    pool.remeasure()?;
    let measured = recorder.len();
    pool.expand(None)?;
    let expanded = recorder.len();
    let last = commit(&pool, 2);
    drop(pool);
    let mut outcomes = [false; 2];
    for (cut, seed) in cuts(begin..=recorder.len(), 6) {
        let image: Arc<dyn Device> = Arc::new(recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0));
        let what = format!("cut {cut} of {begin}, {measured}, {expanded}, seed {seed}");
        assert!((newest..=last).contains(&shown(opened(&image, &reading(None), 6)?.engine())), "{what}");
        let pool = writing_pool(&image, 7);
        let is_larger = regions(&pool) == 82;
        assert!(is_larger || regions(&pool) == 62 && cut < expanded, "{what}");
        assert!(!is_larger || cut > measured, "{what}");
        outcomes[usize::from(is_larger)] = true;
        pool.expand(None)?;
        let state = commit(&pool, 1);
        drop(pool);
        let again = writing_pool(&image, 8);
        assert_eq!((shown(again.engine()), regions(&again)), (state, 82), "{what}");
    }
    assert_eq!(outcomes, [true; 2]);
    Ok(())
}

#[test]
fn what_is_at_the_back_moves_though_the_front_was_overwritten() {
    let late = Late::named("disk");
    let (device, _) = stamped(late.clone());
    let pool = writing_pool(&device, 2);
    let newest = commit(&pool, 3);
    late.inner.write_at(0, &vec![0xee; 512 << 10]).unwrap();
    late.grow();
    assert!(pool.remeasure().unwrap());
    // No commit has rewritten the uberblocks.
    drop(pool);
    let again = writing_pool(&device, 3);
    assert_eq!((shown(again.engine()), again.growth()), (newest, 20 * MIB));
}

#[test]
fn a_commit_with_failed_copies_is_found_on_a_grown_device() {
    let late = Late::named("disk");
    let faulty = Arc::new(FaultDevice::new(late.clone()));
    let (device, _) = stamped(faulty.clone());
    let pool = writing_pool(&device, 2);
    commit(&pool, 1);
    // The front copies fail once, and are written again.
    faulty.inject(Fault { range: 0..2 * LABEL_SIZE, times: 2, ..Fault::failing(Operation::Write) });
    let newest = commit(&pool, 1);
    late.grow();
    drop(pool);
    let image: Arc<dyn Device> = Arc::new(resized(&*late.inner, GROWN));
    let pool = writing_pool(&image, 3);
    assert_eq!((shown(pool.engine()), pool.growth()), (newest, 20 * MIB));
}

#[test]
fn a_commit_found_only_at_the_end_survives_growth() {
    let late = Late::named("disk");
    let (device, _) = stamped(late.clone());
    let pool = writing_pool(&device, 2);
    let newest = commit(&pool, 1);
    drop(pool);
    // Power failed while the uberblock was written.
    let [l0, l1, l2, _] = label_offsets(SIZE);
    [l0, l1, l2]
        .into_iter()
        .for_each(|label| late.inner.write_at(uberblock_offset(label, newest), &[0; 4096]).unwrap());
    let pool = writing_pool(&device, 3);
    assert_eq!((shown(pool.engine()), pool.engine().committed()), (newest, newest));
    drop(pool);
    let image: Arc<dyn Device> = Arc::new(resized(&*late.inner, GROWN));
    assert_eq!(shown(writing_pool(&image, 4).engine()), newest);
}

#[test]
fn unmovable_labels_keep_no_other_device_from_growing() {
    let (late, other) = (Late::named("a"), Late::named("b"));
    let faulty = Arc::new(FaultDevice::new(late.clone()));
    let vdevs = [NewVdev::Disk(faulty.clone()), NewVdev::Disk(other.clone())];
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    [&late, &other].into_iter().for_each(|device| device.grow());
    faulty.inject(Fault { range: SIZE..GROWN, ..Fault::failing(Operation::Write) });
    assert_eq!(pool.remeasure().unwrap_err().kind(), ErrorKind::Device);
    assert_eq!(pool.growth(), 20 * MIB);
    faulty.heal();
    assert!(pool.remeasure().unwrap());
    assert_eq!((pool.growth(), pool.expand(None).unwrap(), regions(&pool)), (40 * MIB, 40 * MIB, 164));
}
