//! Pools on memory devices: adding devices with crashes, labels that cannot be written, labels that lie.

use std::sync::Arc;

use super::*;
use crate::{
    check::{self, Ledger},
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    error::{Error, ErrorKind, Result},
    format::{
        label::{DATA_START, Label, PoolState, RAIDZ},
        uberblock::{RING_SLOTS, slot},
        vdev_config::VdevTree,
    },
    size::format_apart,
    txg::Settings,
    units::{MIB, Txg, VdevId},
    vdev::{labels, uberblocks},
};

const SIZE: u64 = 64 * MIB;

fn settings() -> Settings {
    Settings { cache: 4 * MIB, dirty: 8 * MIB, workers: 0 }
}

fn disk(name: &str) -> MemoryDevice {
    MemoryDevice::new(name, SIZE)
}

fn made(devices: Vec<Arc<dyn Device>>) -> Pool {
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    create(devices, &options, Arc::new(SeededEnv::new(1))).unwrap()
}

fn opened(devices: &[Arc<MemoryDevice>]) -> Result<Pool> {
    let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
    let devices = devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect();
    open(devices, &options, Arc::new(SeededEnv::new(2)))
}

/// The sizes of the vdevs in regions of 1 MiB.
fn regions(pool: &Pool) -> Vec<u64> {
    pool.engine().space_totals().vdevs.iter().map(|vdev| vdev.size / MIB).collect()
}

fn ids(pool: &Pool) -> Vec<u32> {
    pool.label().vdevs.iter().map(|vdev| vdev.id.0).collect()
}

fn assert_clean(pool: &Pool) {
    let mut ledger = Ledger::default();
    check::enter_catalogue(pool.engine(), &mut ledger);
    assert_eq!(check::conclude(pool.engine(), &mut ledger).unwrap(), []);
}

/// Opens the pool, commits, and opens it again: the import's outcome must last.
fn opened_twice(devices: &[Arc<MemoryDevice>]) -> Pool {
    let pool = opened(devices).unwrap();
    pool.engine().commit_anyway().unwrap();
    let before = regions(&pool);
    drop(pool);
    let pool = opened(devices).unwrap();
    assert_eq!(regions(&pool), before);
    assert_clean(&pool);
    pool
}

/// Adds a device to a pool of two while everything is recorded.
fn recorded_addition(renamed: bool) -> Arc<Recorder> {
    let recorder = Recorder::new();
    let [a, b, new] = ["a", "b", "new"].map(|name| Arc::new(recorder.wrap(disk(name))));
    let pool = made(vec![a, b]);
    if renamed {
        pool.rename("pond").unwrap();
    }
    pool.add(vec![new]).unwrap();
    recorder
}

#[test]
fn a_crash_while_adding_leaves_the_pool_with_the_device_or_not() {
    for renamed in [false, true] {
        let recorder = recorded_addition(renamed);
        let mut outcomes = Vec::new();
        let created = (0..=recorder.len()).find(|&cut| {
            let images = recorder.images_at(cut, &mut || Fate::Dropped);
            images[2].resident() > 0 || opened(&images.into_iter().take(2).map(Arc::new).collect::<Vec<_>>()).is_ok()
        });
        for (cut, seed) in cuts(created.unwrap()..=recorder.len(), 3) {
            let mut images = recorder.images_at(cut, &mut Fate::seeded(seed));
            // A new device without a label yet is not taken for a device of the pool.
            if !matches!(labels::read_label(&images[2]), Ok(Some(_))) {
                images.pop();
            }
            let images: Vec<_> = images.into_iter().map(Arc::new).collect();
            let pool = opened_twice(&images);
            let added = pool.label().vdevs.len() == 3;
            assert_eq!(regions(&pool), vec![62; if added { 3 } else { 2 }], "cut {cut}, seed {seed}");
            outcomes.push((images.len(), added));
        }
        for outcome in [(2, false), (3, false), (3, true)] {
            assert!(outcomes.contains(&outcome), "{outcome:?} never came up");
        }
    }
}

/// A pool of one device with an unfinished addition of a second: labels name it, and it has no chunks. `change`
/// modifies the first device's label.
fn cut_off(change: impl FnOnce(&mut Label)) -> Vec<Arc<MemoryDevice>> {
    let [old, new] = ["old", "new"].map(|name| Arc::new(disk(name)));
    let pool = made(vec![old.clone()]);
    let addition = pool.begin_add(vec![NewVdev::Disk(new.clone())]).unwrap();
    let joined = labels::read_label(&*new).unwrap().unwrap();
    drop(addition);
    let mut label = Label { txg: Txg(5), ..labels::read_label(&*old).unwrap().unwrap() };
    label.vdevs = joined.vdevs;
    change(&mut label);
    labels::write_labels(&*old, &label).unwrap();
    vec![old, new]
}

fn set_size(label: &mut Label, bytes: u64) {
    let VdevTree::Leaf(leaf) = &mut label.vdevs[1].tree else { panic!("it is one device") };
    leaf.size = bytes;
}

#[test]
fn an_unfinished_addition_gets_the_chunks_its_label_allows() {
    assert_eq!(regions(&opened_twice(&cut_off(|_| {}))), [62, 62]);
    assert_eq!(regions(&opened_twice(&cut_off(|label| set_size(label, 10 * MIB + 7)))), [62, 10]);
    let too_large = opened(&cut_off(|label| set_size(label, u64::MAX))).err().unwrap();
    assert!(matches!(too_large, Error::Shrunk { .. }), "{too_large}");
    for less_than_a_region in [0, 1, MIB - 1] {
        assert_eq!(regions(&opened_twice(&cut_off(|label| set_size(label, less_than_a_region)))), [62, 0]);
    }
}

#[test]
fn a_device_that_was_cut_short_is_refused_by_name_and_untouched() {
    let device = Arc::new(disk("disk"));
    drop(made(vec![device.clone()]));
    for (less, refused) in [(MIB / 4, true), (20 * MIB, true), (1, true), (0, false)] {
        let short = Arc::new(stamped::resized(&*device, SIZE - less));
        let before = labels::read_label(&*short).unwrap();
        let error = opened(std::slice::from_ref(&short)).err();
        assert_eq!(error.is_some(), refused, "{less} bytes less");
        let Some(error) = error else { continue };
        let (found, named) = format_apart(SIZE - less, SIZE);
        let text = format!("disk has {found}, but its label says {named}");
        assert_eq!((error.to_string(), error.kind()), (text, ErrorKind::Device));
        assert_eq!(labels::read_label(&*short).unwrap(), before);
        // Restored to its full size the device works again, except for the content behind the cut.
        opened(&[Arc::new(stamped::resized(&*short, SIZE))]).unwrap();
    }
}

#[test]
fn labels_that_could_not_be_written_are_not_believed() {
    let [a, b, new] = ["a", "b", "new"].map(|name| Arc::new(disk(name)));
    let faulty = Arc::new(FaultDevice::new(b.clone()));
    let pool = made(vec![a.clone(), faulty.clone()]);
    faulty.inject(Fault::failing(Operation::Write));
    assert_eq!(pool.rename("pond").unwrap_err().kind(), ErrorKind::Device);
    assert_eq!(pool.name(), "tank");
    assert_eq!(pool.add(vec![new.clone()]).unwrap_err().kind(), ErrorKind::Device);
    assert_eq!((pool.label().vdevs.len(), regions(&pool).len()), (2, 2));
    // The first device got a label with the new device, and then a label without.
    assert_eq!(labels::read_label(&*a).unwrap().unwrap().vdevs.len(), 2);
    faulty.heal();
    pool.add(vec![new.clone()]).unwrap();
    pool.export().unwrap();
    let [on_a, on_new] = [&a, &new].map(|device| labels::read_label(&**device).unwrap().unwrap());
    assert_eq!((on_a.txg, on_a.vdevs), (on_new.txg, on_new.vdevs));
    assert_eq!(regions(&opened_twice(&[a, b, new])), [62; 3]);
}

#[test]
fn devices_that_are_added_at_once_get_numbers_of_their_own() {
    let devices: Vec<_> = (0..6).map(|n| Arc::new(disk(&format!("disk{n}")))).collect();
    let pool = made(vec![devices[0].clone()]);
    std::thread::scope(|scope| {
        for device in &devices[1..] {
            scope.spawn(|| pool.add(vec![device.clone()]).unwrap());
        }
    });
    assert_eq!(ids(&pool), [0, 1, 2, 3, 4, 5]);
    drop(pool);
    assert_eq!(regions(&opened_twice(&devices)), [62; 6]);
}

#[test]
fn numbers_of_devices_that_have_run_out_are_an_error() {
    let last = |label: &mut Label| label.vdevs[1].id = VdevId(u32::MAX);
    let pool = opened(&cut_off(last)).unwrap();
    assert_eq!(pool.add(vec![Arc::new(disk("one more"))]).unwrap_err().kind(), ErrorKind::Request);
}

#[test]
fn a_pool_that_is_read_only_can_be_destroyed_and_nothing_else() {
    let device = Arc::new(disk("disk"));
    drop(made(vec![device.clone()]));
    let before = labels::read_label(&*device).unwrap();
    let options = OpenOptions { settings: settings(), read_only: true, ..OpenOptions::default() };
    let pool = open(vec![device.clone()], &options, Arc::new(SeededEnv::new(2))).unwrap();
    assert_eq!(pool.rename("pond").unwrap_err().kind(), ErrorKind::Request);
    assert_eq!(pool.add(vec![Arc::new(disk("new"))]).unwrap_err().kind(), ErrorKind::Request);
    pool.export().unwrap();
    assert_eq!(labels::read_label(&*device).unwrap(), before);
    pool.destroy().unwrap();
    assert_eq!(labels::read_label(&*device).unwrap().unwrap().state, PoolState::Destroyed);
}

#[test]
fn a_destroyed_pool_can_be_read_and_forced_back() {
    let device = Arc::new(disk("disk"));
    made(vec![device.clone()]).destroy().unwrap();
    let destroyed = labels::read_label(&*device).unwrap();
    let open = |read_only, force| {
        let options = OpenOptions { settings: settings(), read_only, force, ..OpenOptions::default() };
        open(vec![device.clone()], &options, Arc::new(SeededEnv::new(2)))
    };
    let refused = open(false, false).err().unwrap();
    assert!(refused.to_string().ends_with("was destroyed; -f brings it back"), "{refused}");
    drop(open(true, false).unwrap());
    assert_eq!(labels::read_label(&*device).unwrap(), destroyed);
    drop(open(false, true).unwrap());
    assert_eq!(labels::read_label(&*device).unwrap().unwrap().state, PoolState::Active);
    open(false, false).unwrap().export().unwrap();
}

#[test]
fn the_first_commit_of_an_import_spares_the_newest_uberblock() {
    let device = Arc::new(disk("disk"));
    drop(made(vec![device.clone()]));
    for _ in 0..RING_SLOTS + 1 {
        let pool = opened(std::slice::from_ref(&device)).unwrap();
        let newest = uberblocks::read_uberblocks(&*device, pool.label().pool).unwrap().remove(0).txg;
        let first = pool.engine().with_open_txg(|txg| txg);
        assert_ne!(slot(first), slot(newest), "{first} after {newest}");
        assert_eq!(pool.label().txg, first);
    }
}

#[test]
fn a_pool_that_claims_to_have_run_out_of_groups_is_damaged() {
    let device = Arc::new(disk("disk"));
    drop(made(vec![device.clone()]));
    let label = labels::read_label(&*device).unwrap().unwrap();
    labels::write_labels(&*device, &Label { txg: Txg(Txg::LIMIT.0 - 1), ..label }).unwrap();
    assert_eq!(opened(&[device]).err().unwrap().kind(), ErrorKind::Damage);
}

#[test]
fn nothing_is_written_to_a_pool_whose_catalogue_cannot_be_read() {
    let device = Arc::new(disk("disk"));
    let pool = made(vec![device.clone()]);
    let catalogue = uberblocks::read_uberblocks(&*device, pool.label().pool).unwrap().remove(0).catalogue;
    for &address in catalogue.addresses() {
        let (_, offset) = pool.engine().storage().space.resolve(address, catalogue.stored).unwrap();
        device.write_at(DATA_START + offset, &[0xee; 64]).unwrap();
    }
    drop(pool);
    let before = labels::read_label(&*device).unwrap();
    let error = opened(std::slice::from_ref(&device)).err().unwrap();
    assert!(matches!(error, Error::Unreadable { .. }), "{error}");
    assert_eq!(labels::read_label(&*device).unwrap(), before);
}

fn raidz(parity: u8, devices: usize) -> NewVdev {
    let disk = |at: usize| Arc::new(disk(&format!("raidz{at}"))) as Arc<dyn Device>;
    NewVdev::RaidZ { parity, devices: (0..devices).map(disk).collect() }
}

#[test]
fn a_raidz_that_is_added_is_named_together_with_its_feature() {
    let old = Arc::new(disk("old"));
    let pool = made(vec![old.clone()]);
    let named = || labels::read_label(&*old).unwrap().unwrap().features.contains_key(RAIDZ);
    assert!(!named());
    let vdev = raidz(2, 4);
    pool.begin_add(vec![vdev.clone()]).unwrap().finish().unwrap();
    assert!(named());
    assert_eq!((regions(&pool), pool.engine().storage().space.unit()), (vec![62, 125], 2));
    assert_clean(&pool);
    pool.export().unwrap();
    drop(pool);
    let devices = [old.clone() as Arc<dyn Device>].into_iter().chain(vdev.devices().iter().cloned()).collect();
    let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
    let pool = open(devices, &options, Arc::new(SeededEnv::new(2))).unwrap();
    assert_eq!(regions(&pool), [62, 125]);
    assert_clean(&pool);
}

#[test]
fn a_raidz_too_wide_for_the_regions_of_a_pool_is_refused() {
    let options = CreateOptions { settings: settings(), ashift: 16, ..CreateOptions::new("tank") };
    let pool = create(vec![Arc::new(disk("old"))], &options, Arc::new(SeededEnv::new(1))).unwrap();
    // A region has 16 sectors.
    pool.begin_add(vec![raidz(1, 5)]).unwrap();
    let refused = pool.begin_add(vec![raidz(1, 6)]).err().unwrap();
    assert!(refused.to_string().contains("too small for a raidz"), "{refused}");
    assert!(pool.begin_add(vec![raidz(1, 1)]).is_err());
    // A pool created on such a vdev has larger regions.
    let wide = create_of(&[raidz(1, 32)], &options, Arc::new(SeededEnv::new(1))).unwrap();
    assert_eq!((wide.label().region_size, wide.engine().storage().space.unit()), (16 * MIB, 31));
    assert_clean(&wide);
}
