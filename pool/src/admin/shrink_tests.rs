//! Shrinking devices, at every power failure.

use std::sync::Arc;

use super::{
    CreateOptions, NewVdev, Pool, SAFE_STATES, Wanted, create_of,
    members_tests::resilver as resilvered,
    open, rewind,
    stamped::{Stamp, commit, opened, reading, resized, settings, shown, stamped, writing, writing_pool},
    states,
};
use crate::{
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    error::{ErrorKind, Result},
    format::label::{BODY_AT, LABELS, label_offsets},
    inspect,
    space::{Class, Packs, Regions, Targets},
    txg::Vacating,
    units::{MIB, VdevId},
    vdev::{labels::read_label, uberblocks::read_uberblocks},
};

const SIZE: u64 = 128 * MIB;
/// Regions of 1 MiB to keep, and their size with labels.
const KEPT: u32 = 80;
const SMALL: u64 = 80 * MIB + 3 * MIB / 2;
const FIRST: VdevId = VdevId(0);

/// A pool on a device, with the memory behind the device.
fn pool() -> (Pool, Arc<MemoryDevice>, Arc<dyn Device>) {
    let memory = Arc::new(MemoryDevice::new("disk", SIZE));
    let (device, _) = stamped(memory.clone());
    (writing_pool(&device, 2), memory, device)
}

fn regions(pool: &Pool) -> u64 {
    pool.engine().space_totals().size / MIB
}

/// Empties the end of the first vdev: every commit rewrites the blocks there elsewhere.
fn vacate(pool: &Pool) {
    let regions = Regions::Range(FIRST, KEPT..u32::MAX);
    pool.engine().close(&regions);
    let step = || pool.engine().vacate(&regions, &Targets::Anywhere, Packs::Never).unwrap();
    assert!((0..20).any(|_| step() == Vacating::Vacated), "the end is not empty");
    pool.engine().outlast_states().unwrap();
}

fn shrunk(pool: &Pool) {
    vacate(pool);
    pool.shrink(FIRST, KEPT).unwrap();
}

/// Overwrites all free space.
fn fill(pool: &Pool) {
    let storage = pool.engine().storage();
    pool.engine().with_open_txg(|txg| {
        let take = || storage.space.allocate(txg, Class::Data, MIB as u32, 1, &storage.vdevs).ok();
        let taken: Vec<_> = std::iter::from_fn(take).map(|allocation| allocation.addresses[0]).collect();
        for address in taken {
            let (vdev, offset) = storage.space.resolve(address, MIB as u32).unwrap();
            storage.vdevs.get(vdev).unwrap().write(offset, &[0xee; MIB as usize]).unwrap();
            storage.space.free(txg, address, MIB as u32).unwrap();
        }
    });
    commit(pool, 5);
}

/// A copy of a device of physical size `there` and recorded end `size`, with the labels in `lost` damaged.
fn copied(memory: &MemoryDevice, there: u64, (size, lost): (u64, &[usize])) -> MemoryDevice {
    let image = memory.snapshot();
    lost.iter().for_each(|n| image.write_at(label_offsets(size)[*n], &vec![0xee; 256 << 10]).unwrap());
    resized(&image, there)
}

#[test]
fn a_shrunken_device_is_found_with_its_end() {
    let (pool, memory, device) = pool();
    let plan = pool.plan_shrink("disk", Wanted::To(SMALL - MIB / 2)).unwrap();
    assert_eq!((plan.vdev, plan.regions, plan.size, plan.now), (FIRST, KEPT, SMALL, SIZE), "whole regions are kept");
    assert_eq!(pool.plan_shrink("disk", Wanted::By(SIZE - SMALL + MIB / 2)).unwrap(), plan);
    assert_eq!(plan.least, 64 * MIB + MIB / 2, "nearly nothing is in it");
    assert_eq!(pool.shrink(FIRST, KEPT).unwrap_err().kind(), ErrorKind::Request, "it is not empty");
    shrunk(&pool);
    assert_eq!((regions(&pool), device.size(), pool.growth(), pool.remeasure().unwrap()), (80, SMALL, 0, false));
    let mut said = Vec::new();
    inspect::labels(&*device, &mut |item| {
        said.extend((item.what == "end").then_some(item.fields));
        Ok(())
    })
    .unwrap();
    let guid = pool.label().vdevs[0].tree.leaves().next().unwrap().guid;
    assert_eq!(said, vec![vec![("guid", guid.to_string()), ("at", SMALL.to_string())]; LABELS]);
    fill(&pool);
    let newest = commit(&pool, 1);
    drop(pool);
    // The device still has its full size, or was truncated, not necessarily right at its end.
    for there in [SIZE, SMALL + MIB, SMALL] {
        let image: Arc<dyn Device> = Arc::new(copied(&memory, there, (SMALL, &[])));
        let pool = writing_pool(&image, 3);
        assert_eq!((shown(pool.engine()), regions(&pool), pool.growth()), (newest, 80, 0), "{there}");
        assert_eq!(pool.label().sections.ends.len(), usize::from(there != SMALL), "what ends there needs no word");
        fill(&pool);
        commit(&pool, 2);
    }
    let cut: Arc<dyn Device> = Arc::new(resized(&*device, SMALL - MIB));
    assert_eq!(opened(&cut, &writing(), 4).err().unwrap().kind(), ErrorKind::Device);
}

#[test]
fn a_word_that_makes_no_sense_is_refused() {
    let (pool, memory, device) = pool();
    drop((memory, device));
    let refusal = |wanted| pool.plan_shrink("disk", wanted).unwrap_err().to_string();
    assert!(refusal(Wanted::To(SIZE + 1)).contains("pool online -e"));
    assert!(refusal(Wanted::To(u64::MAX)).contains("pool online -e"));
    assert!(refusal(Wanted::To(SIZE)).contains("whole regions"));
    assert!(refusal(Wanted::By(0)).contains("whole regions"));
    assert!(refusal(Wanted::By(u64::MAX)).contains("at least 64M needed"));
    assert!(refusal(Wanted::To(64 * MIB - 1)).contains("at least 64M needed"));
    assert!(pool.plan_shrink("nobody", Wanted::By(MIB)).is_err());
    let disks = ["a", "b", "c"].map(|name| Arc::new(MemoryDevice::new(name, SIZE)) as Arc<dyn Device>);
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let raidz = NewVdev::RaidZ { parity: 1, devices: disks.to_vec() };
    let pool = create_of(&[raidz], &options, Arc::new(SeededEnv::new(1))).unwrap();
    for name in ["a", "raidz1-0"] {
        let refused = pool.plan_shrink(name, Wanted::By(20 * MIB)).unwrap_err().to_string();
        assert!(refused.contains("add a smaller vdev instead, then remove raidz1-0"), "{refused}");
    }
}

#[test]
fn one_label_suffices_if_truncated_else_one_front_label() {
    let (pool, memory, device) = pool();
    shrunk(&pool);
    let newest = commit(&pool, 2);
    drop(pool);
    let label = read_label(&*device).unwrap().unwrap();
    for survivor in 0..LABELS {
        let lost: Vec<usize> = (0..LABELS).filter(|n| *n != survivor).collect();
        for there in [SMALL, SIZE] {
            let image = copied(&memory, there, (SMALL, &lost));
            let found = read_label(&image);
            if survivor >= 2 && there == SIZE {
                assert!(!matches!(found, Ok(Some(_))), "nothing of old is found at the former end");
                continue;
            }
            assert_eq!(found.unwrap().as_ref(), Some(&label), "label {survivor}");
            image.resize(SMALL);
            let found = read_uberblocks(&image, label.pool).unwrap();
            assert_eq!(found.first().map(|uberblock| uberblock.txg), Some(newest), "ring {survivor}");
        }
    }
}

#[test]
fn what_was_given_up_is_taken_back_when_somebody_asks_for_it() {
    let (pool, memory, _) = pool();
    shrunk(&pool);
    commit(&pool, 1);
    assert_eq!((pool.growth(), pool.expand(None).unwrap()), (0, 0));
    assert!(pool.regain(FIRST).unwrap() && !pool.regain(FIRST).unwrap());
    assert_eq!((pool.growth(), pool.expand(Some(FIRST)).unwrap(), regions(&pool)), (46 * MIB, 46 * MIB, 126));
    fill(&pool);
    let newest = commit(&pool, 3);
    drop(pool);
    let image: Arc<dyn Device> = Arc::new(copied(&memory, SIZE, (SIZE, &[0, 1, 2])));
    let pool = writing_pool(&image, 3);
    assert_eq!((shown(pool.engine()), regions(&pool)), (newest, 126));
    // And shrink once more.
    shrunk(&pool);
    let newest = commit(&pool, 2);
    drop(pool);
    let pool = writing_pool(&image, 4);
    assert_eq!((shown(pool.engine()), regions(&pool)), (newest, 80));
}

#[test]
fn states_from_before_are_whole_in_what_is_left() {
    let (pool, memory, device) = pool();
    shrunk(&pool);
    drop(pool);
    let devices = std::slice::from_ref(&device);
    let safe = states(devices, &writing()).unwrap();
    assert!(safe.len() >= SAFE_STATES);
    for state in &safe[..SAFE_STATES] {
        let image: Arc<dyn Device> = Arc::new(copied(&memory, SMALL, (SMALL, &[])));
        let images = std::slice::from_ref(&image);
        assert_eq!(shown(opened(&image, &reading(Some(state.txg)), 3).unwrap().engine()), state.txg);
        rewind(images, state.txg, &writing(), &SeededEnv::new(4)).unwrap();
        let pool = writing_pool(&image, 5);
        assert_eq!((shown(pool.engine()), regions(&pool)), (state.txg, 80));
    }
}

#[test]
fn after_a_crash_the_pool_has_the_old_end_or_the_new() -> Result<()> {
    let recorder = Recorder::new();
    let (device, _) = stamped(Arc::new(recorder.wrap(MemoryDevice::new("disk", SIZE))));
    let pool = writing_pool(&device, 2);
    vacate(&pool);
    let begin = (recorder.len(), pool.engine().committed());
    pool.shrink(FIRST, KEPT)?;
    let (end, newest) = (recorder.len(), commit(&pool, 2));
    pool.regain(FIRST)?;
    let regained = recorder.len();
    pool.expand(None)?;
    let last = commit(&pool, 2);
    drop(pool);
    let mut sizes = [0; 3];
    for (cut, seed) in cuts(begin.0..=recorder.len(), 6) {
        let image: Arc<dyn Device> = Arc::new(recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0));
        let what = format!("cut {cut} of {begin:?}, {end}, {regained}, seed {seed}");
        assert!((begin.1..=last).contains(&shown(opened(&image, &reading(None), 6)?.engine())), "{what}");
        let pool = writing_pool(&image, 7);
        let ends_early = image.size() == SMALL;
        assert!(ends_early || image.size() == SIZE, "{what}: {}", image.size());
        assert_eq!(pool.label().sections.ends.len(), usize::from(ends_early), "{what}");
        assert!(regions(&pool) == 80 || !ends_early && regions(&pool) == 126, "{what}");
        assert!(cut < end || shown(pool.engine()) >= newest || cut < regained, "{what}");
        assert!(cut < end || cut >= regained || ends_early || cut > end, "{what}");
        sizes[if ends_early {
            0
        } else if cut < end {
            1
        } else {
            2
        }] += 1;
        // It can be shrunk again, everything is found then, and a truncated device needs no recorded end.
        if ends_early {
            pool.shrink(FIRST, KEPT)?;
        } else {
            shrunk(&pool);
        }
        let state = commit(&pool, 2);
        drop(pool);
        let image: Arc<dyn Device> = Arc::new(resized(&*image, SMALL));
        let pool = writing_pool(&image, 8);
        assert_eq!((shown(pool.engine()), regions(&pool)), (state, 80), "{what}");
    }
    assert!(sizes.iter().all(|count| *count > 0), "{sizes:?}");
    Ok(())
}

#[test]
fn unwritable_labels_leave_the_device_as_it_was_for_a_retry() {
    let memory = Arc::new(MemoryDevice::new("disk", SIZE));
    let faulty = Arc::new(FaultDevice::new(memory.clone()));
    let (device, _) = stamped(faulty.clone());
    let pool = writing_pool(&device, 2);
    vacate(&pool);
    let [l0, l1, ..] = label_offsets(SIZE);
    let new_end = SMALL - MIB / 2..SMALL;
    for range in [new_end, l0..l1 + MIB / 4] {
        faulty.inject(Fault { range, ..Fault::failing(Operation::Write) });
        assert_eq!(pool.shrink(FIRST, KEPT).unwrap_err().kind(), ErrorKind::Device);
        assert_eq!((device.size(), regions(&pool)), (SIZE, 126 - 46));
        faulty.heal();
        let newest = commit(&pool, 2);
        let image: Arc<dyn Device> = Arc::new(memory.snapshot());
        assert_eq!(shown(opened(&image, &reading(None), 3).unwrap().engine()), newest);
    }
    pool.shrink(FIRST, KEPT).unwrap();
    let newest = commit(&pool, 2);
    drop(pool);
    let pool = writing_pool(&device, 3);
    assert_eq!((shown(pool.engine()), regions(&pool)), (newest, 80));
}

/// A mirror whose end is empty, on recorded devices.
fn mirror(recorder: &Arc<Recorder>) -> (Pool, Vec<Arc<dyn Device>>) {
    let disk = |name: &str| Arc::new(recorder.wrap(MemoryDevice::new(name, SIZE))) as Arc<dyn Device>;
    let devices = vec![disk("a"), disk("b")];
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let vdev = NewVdev::Mirror(devices.clone());
    let pool = create_of(&[vdev], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 8);
    (pool, devices)
}

fn opened_mirror(images: &[Arc<dyn Device>], seed: u64) -> Result<Pool> {
    let pool = open(images.to_vec(), &writing(), Arc::new(SeededEnv::new(seed)))?;
    pool.engine().set_client(Arc::new(Stamp));
    Ok(pool)
}

#[test]
fn wherever_power_fails_all_devices_of_a_mirror_end_alike() -> Result<()> {
    let recorder = Recorder::new();
    let (pool, _) = mirror(&recorder);
    vacate(&pool);
    let begin = recorder.len();
    pool.shrink(FIRST, KEPT)?;
    let end = recorder.len();
    commit(&pool, 2);
    pool.regain(FIRST)?;
    pool.expand(None)?;
    commit(&pool, 2);
    drop(pool);
    let mut sizes = [false; 2];
    for (cut, seed) in cuts(begin..=recorder.len(), 3) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        // One device is away at the first import, and returns at the second.
        let images: Vec<Arc<dyn Device>> = images.into_iter().map(|image| Arc::new(image) as Arc<dyn Device>).collect();
        let what = format!("cut {cut} of {begin}, {end}, seed {seed}");
        let pool = opened_mirror(&images[..1], 7)?;
        commit(&pool, 1);
        let ends_early = images[0].size() == SMALL;
        assert!(pool.shrink(FIRST, KEPT).is_err(), "{what}: a device is away");
        drop(pool);
        let pool = opened_mirror(&images, 8)?;
        assert_eq!(images[0].size(), images[1].size(), "{what}");
        assert_eq!(images[1].size() == SMALL, ends_early, "{what}");
        sizes[usize::from(ends_early)] = true;
        assert_eq!(regions(&pool) == 80, ends_early || regions(&pool) == 80, "{what}");
        shown(pool.engine());
    }
    assert_eq!(sizes, [true; 2]);
    Ok(())
}

#[test]
fn what_stands_at_the_former_end_wins_nothing() {
    let (pool, memory, _) = pool();
    vacate(&pool);
    commit(&pool, 2);
    // The content of the former end, with the labels as if never erased.
    let former = memory.snapshot();
    pool.shrink(FIRST, KEPT).unwrap();
    let newest = commit(&pool, 2);
    drop(pool);
    let image = memory.snapshot();
    for at in &label_offsets(SIZE)[2..] {
        let mut body = vec![0; 256 << 10];
        former.read_at(*at, &mut body).unwrap();
        assert!(body[BODY_AT as usize..].iter().any(|byte| *byte != 0));
        image.write_at(*at, &body).unwrap();
    }
    let image: Arc<dyn Device> = Arc::new(image);
    let pool = writing_pool(&image, 3);
    assert_eq!((shown(pool.engine()), regions(&pool)), (newest, 80));
}

#[test]
fn a_former_end_that_cannot_be_erased_does_not_stop_a_shrink() {
    let memory = Arc::new(MemoryDevice::new("disk", SIZE));
    let faulty = Arc::new(FaultDevice::new(memory.clone()));
    let (device, _) = stamped(faulty.clone());
    let pool = writing_pool(&device, 2);
    vacate(&pool);
    faulty.inject(Fault { range: SIZE - MIB..SIZE, times: u64::MAX, ..Fault::failing(Operation::Write) });
    pool.shrink(FIRST, KEPT).unwrap();
    let newest = commit(&pool, 2);
    assert_eq!((regions(&pool), device.size()), (80, SMALL));
    drop(pool);
    let pool = writing_pool(&device, 3);
    assert_eq!((shown(pool.engine()), regions(&pool), pool.label().sections.ends.len()), (newest, 80, 1));
}

#[test]
fn what_no_plan_says_is_refused() {
    let devices = ["a", "b", "c"].map(|name| Arc::new(MemoryDevice::new(name, SIZE)) as Arc<dyn Device>);
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let raidz = NewVdev::RaidZ { parity: 1, devices: devices.to_vec() };
    let pool = create_of(&[raidz], &options, Arc::new(SeededEnv::new(1))).unwrap();
    assert_eq!(pool.shrink(FIRST, KEPT).unwrap_err().kind(), ErrorKind::Request);
}

#[test]
fn a_device_that_is_smaller_than_it_was_to_be_stays_as_it_is() {
    let (pool, _, device) = pool();
    for kept in [127, u32::MAX] {
        pool.shrink(FIRST, kept).unwrap();
        assert_eq!((device.size(), regions(&pool)), (SIZE, 126));
    }
}

#[test]
fn a_device_ends_behind_what_its_vdev_uses_of_it() {
    let (pool, _, small) = pool();
    drop(pool);
    let memory = Arc::new(resized(&*small, SIZE + 40 * MIB));
    let device: Arc<dyn Device> = memory.clone();
    let pool = writing_pool(&device, 3);
    // Any number of times.
    for _ in 0..2 {
        pool.shrink(FIRST, 140).unwrap();
        assert_eq!((memory.size(), regions(&pool), pool.growth()), (140 * MIB + 3 * MIB / 2, 126, 14 * MIB));
    }
    let last = commit(&pool, 2);
    drop(pool);
    let pool = writing_pool(&device, 4);
    assert_eq!((shown(pool.engine()), regions(&pool), memory.size()), (last, 126, 140 * MIB + 3 * MIB / 2));
}

#[test]
fn a_device_with_a_spare_in_use_is_not_shrunk() {
    let disk = |name: &str| Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, SIZE))));
    let (disks, spare) = ([disk("a"), disk("b")], disk("spare"));
    let devices = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&[NewVdev::Mirror(devices)], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    pool.add_spares(&[spare]).unwrap();
    disks[1].inject(Fault { times: u64::MAX, ..Fault::failing(Operation::Write) });
    commit(&pool, 2);
    pool.spare_step().unwrap();
    assert!(resilvered(&pool));
    disks[1].heal();
    assert!(pool.put_online("b", &|_| Ok(disks[1].clone() as Arc<dyn Device>)).unwrap());
    assert!(resilvered(&pool));
    vacate(&pool);
    let error = pool.shrink(FIRST, KEPT).unwrap_err();
    assert!(error.to_string().contains("the spare spare is in use"), "{error}");
}
