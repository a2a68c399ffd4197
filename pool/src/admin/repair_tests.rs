//! Devices in use lose labels and rings, are repaired, and then are the whole pool alone.

use std::{fs::File, ops::Range, sync::Arc};

use super::{
    CreateOptions, Pool, SAFE_STATES, create, create_of,
    members_tests::{
        Disk, alone, disk, disks, mirror, opened,
        raidz::{raidz, without},
        reopen, resilver, states,
    },
    stamped::{Stamp, commit, reading, settings, shown, writing},
    states as rewind_states,
};
use crate::{
    admin::{NewVdev, open},
    device::{Access, Device, Fate, Fault, FaultDevice, FileDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    error::{ErrorKind, Result},
    format::label::{BODY_AT, LABEL_SIZE, Label, RING_AT, RING_SIZE, label_offsets},
    units::{MIB, Txg},
    vdev::{Health, State, labels, repair::LabelsExamined, uberblocks::read_uberblocks},
};

const ALL: [usize; 4] = [0, 1, 2, 3];
const WHOLE: Range<u64> = 0..LABEL_SIZE;
const RING: Range<u64> = RING_AT..RING_AT + RING_SIZE as u64;

/// Overwrites a part of these labels of a device.
fn overwrite(device: &dyn Device, labels: &[usize], part: &Range<u64>, with: u8) {
    let bytes = vec![with; (part.end - part.start) as usize];
    for label in labels {
        device.write_at(label_offsets(device.size())[*label] + part.start, &bytes).unwrap();
    }
    device.flush().unwrap();
}

/// The part of a scrub that examines labels.
fn repair(pool: &Pool) -> LabelsExamined {
    let mut examined = pool.engine().hold_still().repair_labels();
    examined += pool.engine().repair_labels_apart();
    examined
}

/// Asserts that labels are bad, are repaired, and then are good.
fn assert_repaired(pool: &Pool, what: &str) {
    let first = repair(pool);
    assert!(first.bad > 0 && first.repaired > 0, "{what}: {first:?}");
    let second = repair(pool);
    assert_eq!((second.bad, second.repaired), (0, 0), "{what}");
}

fn checksum_errors(pool: &Pool, device: &str) -> u64 {
    pool.find_device(device).unwrap().1.counters().snapshot().checksum_errors
}

/// How many states to rewind to the device has by itself.
fn kept(device: &Disk) -> usize {
    rewind_states(&[device.clone() as Arc<dyn Device>], &writing()).unwrap().len()
}

fn label_of(device: &dyn Device) -> Label {
    labels::read_label(device).unwrap().expect("a label")
}

const LOSSES: [&[usize]; 7] = [&ALL, &[0, 1], &[2, 3], &[0, 2], &[1, 3], &[0], &[1, 2, 3]];

#[test]
fn a_mirror_device_gets_lost_labels_again_and_suffices_alone() {
    for (labels, with) in LOSSES.into_iter().flat_map(|labels| [(labels, 0), (labels, 0xa5)]) {
        for (part, commits) in [(WHOLE, 0), (WHOLE, 1), (BODY_AT..RING_AT, 0), (RING, 0), (RING, 2)] {
            let what = format!("{labels:?} {part:?} with {with}, {commits} commits");
            let disks = disks("a b");
            let pool = mirror(&disks);
            commit(&pool, 6);
            overwrite(&*disks[0], labels, &part, with);
            let newest = commit(&pool, commits);
            assert_repaired(&pool, &what);
            assert!(checksum_errors(&pool, "a") > 0 && checksum_errors(&pool, "b") == 0, "{what}");
            assert_eq!(states(&pool), [State::Complete; 2], "{what}");
            drop(pool);
            assert_eq!(alone(&disks[0]), newest, "{what}");
            assert!(kept(&disks[0]) >= SAFE_STATES, "{what}");
            assert_eq!(shown(opened(&[&disks[0]], 5).unwrap().engine()), newest, "{what}");
        }
    }
}

#[test]
fn raidz_devices_get_lost_labels_again_and_suffice() {
    for labels in LOSSES {
        let disks = disks("a b c d");
        let pool = raidz(2, &disks);
        overwrite(&*disks[0], labels, &WHOLE, 0);
        overwrite(&*disks[3], &ALL, &WHOLE, 0);
        let newest = commit(&pool, 1);
        assert_repaired(&pool, "raidz2");
        drop(pool);
        for missing in [[1, 2], [0, 1], [2, 3]] {
            let there = without(&disks, &missing).into_iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
            let pool = open(there, &reading(None), Arc::new(SeededEnv::new(5))).unwrap();
            assert_eq!(shown(pool.engine()), newest, "{labels:?} without {missing:?}");
        }
    }
}

/// A pool of single devices.
fn singles(of: &[Disk]) -> Pool {
    let devices = of.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create(devices, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 6);
    pool
}

#[test]
fn a_single_device_gets_all_lost_labels_and_rings_again() {
    for commits in [0, 1] {
        let disks = disks("a");
        let pool = singles(&disks);
        overwrite(&*disks[0], &ALL, &WHOLE, 0);
        let newest = commit(&pool, commits);
        assert_repaired(&pool, "single");
        drop(pool);
        assert_eq!((alone(&disks[0]), kept(&disks[0]) >= SAFE_STATES), (newest, true));
    }
}

#[test]
fn rings_found_at_the_import_can_be_restored() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    let newest = commit(&pool, 6);
    drop(pool);
    let pool = opened(&[&disks[0], &disks[1]], 4).unwrap();
    overwrite(&*disks[1], &ALL, &WHOLE, 0x5a);
    assert_repaired(&pool, "opened");
    drop(pool);
    assert_eq!((alone(&disks[1]), kept(&disks[1]) >= SAFE_STATES), (newest, true));
}

#[test]
fn a_new_device_is_given_no_state_it_never_had() {
    let disks = disks("a b");
    let pool = singles(&disks[..1]);
    pool.add(vec![disks[1].clone()]).unwrap();
    let newest = commit(&pool, 1);
    let guid = pool.engine().guid();
    let before = read_uberblocks(&*disks[1], guid).unwrap();
    assert!(before.len() < SAFE_STATES);
    assert_eq!(repair(&pool).bad, 0);
    overwrite(&*disks[1], &ALL, &WHOLE, 0);
    assert_repaired(&pool, "joined");
    assert_eq!(read_uberblocks(&*disks[1], guid).unwrap(), before);
    drop(pool);
    assert_eq!(shown(opened(&[&disks[0], &disks[1]], 5).unwrap().engine()), newest);
}

#[test]
fn an_older_copy_of_a_device_gets_the_current_labels_and_states() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    commit(&pool, 2);
    let areas = label_offsets(disks[0].size());
    let old: Vec<Vec<u8>> = areas.map(|at| read(&*disks[0], at, LABEL_SIZE)).into();
    pool.rename("pond").unwrap();
    let newest = commit(&pool, 40);
    areas.iter().zip(&old).for_each(|(at, bytes)| disks[0].write_at(*at, bytes).unwrap());
    assert_repaired(&pool, "older");
    drop(pool);
    assert_eq!((alone(&disks[0]), label_of(&*disks[0]).pool_name), (newest, "pond".to_owned()));
}

fn read(device: &dyn Device, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    device.read_at(at, &mut bytes).unwrap();
    bytes
}

/// Gives a device the labels and rings of another pool.
fn taken(device: &Disk) -> Label {
    let other = disk("other");
    drop(mirror(&[other.clone(), disk("another")]));
    for at in label_offsets(device.size()) {
        device.write_at(at, &read(&*other, at, LABEL_SIZE)).unwrap();
    }
    label_of(&**device)
}

#[test]
fn a_device_of_another_pool_is_faulted_and_not_written_to() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    let foreign = taken(&disks[1]);
    let before = read(&*disks[1], 0, disks[1].size());
    assert_eq!(repair(&pool).repaired, 0);
    assert_eq!(states(&pool), [State::Complete, State::Out]);
    let leaf = pool.find_device("b").unwrap().1;
    let trouble = leaf.trouble().unwrap();
    assert!(trouble.contains("belongs to another pool or host") && trouble.contains("pool replace"), "{trouble}");
    assert_eq!((leaf.health(), repair(&pool).bad), (Health::Unavailable, 0));
    let newest = commit(&pool, 2);
    assert!(read(&*disks[1], 0, disks[1].size()) == before, "nothing is written to it");
    assert!(pool.put_online("b", &reopen(&disks[1])).is_err());
    drop(pool);
    assert_eq!((alone(&disks[0]), label_of(&*disks[1])), (newest, foreign));
}

#[test]
fn a_device_with_a_file_system_is_faulted_and_not_written_to() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    overwrite(&*disks[1], &ALL, &WHOLE, 0);
    disks[1].write_at(0, b"XFSB").unwrap();
    assert_eq!(repair(&pool).repaired, 0);
    let leaf = pool.find_device("b").unwrap().1;
    assert!(leaf.trouble().unwrap().contains("XFS"), "{:?}", leaf.trouble());
    assert_eq!(labels::read_label(&*disks[1]).unwrap(), None);
    // As long as the device has good labels of the pool, it belongs to the pool.
    let disks = self::disks("a b");
    let pool = mirror(&disks);
    overwrite(&*disks[1], &[0, 1], &WHOLE, 0);
    disks[1].write_at(0, b"XFSB").unwrap();
    assert_repaired(&pool, "half");
}

#[test]
fn a_pool_is_suspended_if_a_needed_device_belongs_elsewhere() {
    let disks = disks("a b");
    let pool = singles(&disks);
    pool.engine().suspension().enable();
    let label = label_of(&*disks[1]);
    let own: Vec<Vec<u8>> = label_offsets(disks[1].size()).map(|at| read(&*disks[1], at, LABEL_SIZE)).into();
    let foreign = taken(&disks[1]);
    assert_eq!(repair(&pool).repaired, 0);
    assert!(pool.engine().suspension().reason().unwrap().contains("belongs to another pool or host"));
    assert_eq!((label_of(&*disks[1]), checksum_errors(&pool, "b") > 0), (foreign, true));
    assert!(pool.clear(&reopen(&disks[1])).is_err());
    label_offsets(disks[1].size()).iter().zip(&own).for_each(|(at, bytes)| disks[1].write_at(*at, bytes).unwrap());
    pool.clear(&reopen(&disks[1])).unwrap();
    assert_eq!((repair(&pool).bad, label_of(&*disks[1])), (0, label));
    let leaf = pool.find_device("b").unwrap().1;
    assert_eq!((leaf.health(), leaf.trouble()), (Health::Online, None));
}

#[test]
fn a_device_that_refuses_all_its_labels_is_faulted() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    overwrite(&*disks[1], &ALL, &WHOLE, 0);
    disks[1].inject(Fault::failing(Operation::Write));
    assert_eq!(repair(&pool).repaired, 0);
    assert_eq!(states(&pool), [State::Complete, State::Out]);
}

#[test]
fn a_crash_in_label_repair_leaves_the_newest_state_or_no_device() {
    for labels in [&ALL[..], &[0, 1], &[1, 3]] {
        let recorder = Recorder::new();
        let wrapped = Arc::new(recorder.wrap(MemoryDevice::new("a", 64 * MIB)));
        let disk: Disk = Arc::new(FaultDevice::new(wrapped));
        let pool = singles(std::slice::from_ref(&disk));
        overwrite(&*disk, labels, &WHOLE, 0);
        let (lost, newest) = (recorder.len(), pool.engine().committed());
        assert_repaired(&pool, "recorded");
        drop(pool);
        let mut found = 0;
        for (cut, seed) in cuts(lost..=recorder.len(), 4) {
            let image = recorder.images_at(cut, &mut Fate::seeded(seed)).remove(0);
            let is_found = matches!(labels::read_label(&image), Ok(Some(_)));
            assert!(is_found || labels.len() == 4 && cut < recorder.len(), "{labels:?}, cut {cut}");
            if is_found {
                let pool = open(vec![Arc::new(image)], &reading(None), Arc::new(SeededEnv::new(3)));
                assert_eq!(shown(pool.unwrap().engine()), newest, "{labels:?}, cut {cut}, seed {seed}");
                found += 1;
            }
        }
        assert!(found > 0);
    }
}

#[test]
fn a_crash_in_ring_repair_leaves_the_newest_state_or_none() {
    let recorder = Recorder::new();
    let disk: Disk = Arc::new(FaultDevice::new(Arc::new(recorder.wrap(MemoryDevice::new("a", 64 * MIB)))));
    let pool = singles(std::slice::from_ref(&disk));
    overwrite(&*disk, &ALL, &RING, 0);
    let (lost, newest) = (recorder.len(), pool.engine().committed());
    assert_repaired(&pool, "recorded");
    drop(pool);
    let mut outcomes = [0; 2];
    for (cut, seed) in cuts(lost..=recorder.len(), 8) {
        // Equal seeds would lose the same copies of the newest state at each cut.
        let fates = &mut Fate::seeded(seed * 1000 + cut as u64);
        let image: Arc<dyn Device> = Arc::new(recorder.images_at(cut, fates).remove(0));
        let pool = open(vec![image], &reading(None), Arc::new(SeededEnv::new(3)));
        outcomes[usize::from(pool.is_ok())] += 1;
        match pool {
            Ok(pool) => assert_eq!(shown(pool.engine()), newest, "cut {cut}, seed {seed}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Damage, "cut {cut}, seed {seed}"),
        }
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}");
}

#[test]
fn spares_and_cache_devices_get_labels_again_or_are_faulted() {
    let disks = disks("a b c d e");
    let pool = mirror(&disks[..2]);
    pool.add_spares(&[disks[2].clone(), disks[3].clone()]).unwrap();
    pool.add_caches(&[disks[4].clone() as Arc<dyn Device>]).unwrap();
    assert_eq!(repair(&pool).bad, 0);
    for at in [2, 4] {
        overwrite(&*disks[at], &ALL, &WHOLE, 0);
        assert_repaired(&pool, disks[at].name());
        assert_eq!(label_of(&*disks[at]).pool, pool.engine().guid());
    }
    let foreign = [3, 4].map(|at| taken(&disks[at]));
    assert_eq!(repair(&pool).repaired, 0);
    assert_eq!([3, 4].map(|at| label_of(&*disks[at])), foreign);
    assert_ne!(pool.find_cache("e").unwrap().health(), Health::Online);
    let health: Vec<Health> = pool.spares().iter().map(|spare| spare.leaf.health()).collect();
    assert_eq!(health, [Health::Online, Health::Unavailable]);
}

/// A mirror of two image files of 64 MiB.
fn images(folder: &tempfile::TempDir) -> (Pool, [std::path::PathBuf; 2]) {
    let paths = ["a", "b"].map(|name| folder.path().join(name));
    let devices = paths.each_ref().map(|path| Arc::new(FileDevice::create(path, 64 * MIB).unwrap()) as Arc<dyn Device>);
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&[NewVdev::Mirror(devices.into())], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 5);
    (pool, paths)
}

#[test]
fn a_truncated_image_is_lengthened_resilvered_and_relabelled() {
    for (len, commits) in [(0, 0), (0, 2), (64 * MIB - 36_864, 0), (63 * MIB, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let (pool, paths) = images(&folder);
        File::options().write(true).open(&paths[0]).unwrap().set_len(len).unwrap();
        commit(&pool, commits);
        assert!(repair(&pool).bad > 0, "cut to {len}");
        assert_eq!(paths[0].metadata().unwrap().len(), 64 * MIB);
        // The lost content is not taken for zeros.
        assert_eq!(states(&pool), [State::Resilvering, State::Complete]);
        assert_eq!(pool.engine().resilvering().unwrap().since, Txg::ZERO);
        assert!(resilver(&pool));
        // The rings get the states that the device has by now.
        repair(&pool);
        assert_eq!(repair(&pool).bad, 0, "cut to {len}");
        let newest = pool.engine().committed();
        drop(pool);
        let open_again =
            |path| FileDevice::open(path, Access::ReadWrite).map(|device| Arc::new(device) as Arc<dyn Device>);
        let devices = paths.iter().map(|path| open_again(path)).collect::<Result<Vec<_>>>().unwrap();
        let pool = open(devices, &writing(), Arc::new(SeededEnv::new(3))).unwrap();
        assert_eq!((states(&pool), pool.engine().committed()), (vec![State::Complete; 2], newest));
    }
}

#[test]
fn a_truncated_device_is_faulted_with_an_explanation() {
    let disks = ["a", "b"].map(|name| Arc::new(MemoryDevice::new(name, 64 * MIB)));
    let devices = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&[NewVdev::Mirror(devices)], &options, Arc::new(SeededEnv::new(1))).unwrap();
    disks[1].make(32 * MIB);
    assert_eq!(repair(&pool).repaired, 0);
    assert_eq!(states(&pool), [State::Complete, State::Out]);
    let leaf = pool.find_device("b").unwrap().1;
    let trouble = leaf.trouble().unwrap();
    assert!(trouble.contains("b has 32M"), "{trouble}");
    assert_eq!(pool.engine().commit_anyway().unwrap().max(Txg(1)), pool.engine().committed());
}
