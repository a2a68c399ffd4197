//! Expanding a RAID-Z in a real pool on simulated devices, at every power failure, with any device lost.

use std::sync::Arc;

use super::{
    NewVdev, Pool,
    members_tests::resilver,
    removal_tests::{copy_all, made, opened, opened_with, shown},
    stamped::{commit, reading, writing},
    states,
};
use crate::{
    device::{Device, Fate, MemoryDevice, Recorder},
    format::vdev_config::{RaidZConfig, VdevTree},
    space::{Packs, Regions, SAFE_STATES, Targets},
    txg::Vacating,
    units::{MIB, Txg, VdevId},
    vdev::labels,
};

const RAIDZ: VdevId = VdevId(0);

fn disk(name: &str) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(name, 64 * MIB))
}

fn raidz(parity: u8, devices: &[Arc<dyn Device>]) -> Pool {
    made(&[NewVdev::RaidZ { parity, devices: devices.to_vec() }])
}

fn config(pool: &Pool) -> RaidZConfig {
    match pool.label().vdevs.remove(0).tree {
        VdevTree::RaidZ(raidz) => raidz,
        other => panic!("{other:?}"),
    }
}

/// Widens rows, at most `most` regions at a time; `false` if there is no room for one, or nothing to do.
pub(super) fn widen(pool: &Pool, most: u32) -> bool {
    let engine = pool.engine();
    let Some(widening) = pool.widening() else { return false };
    let first = widening.narrow.first_region;
    let regions = |count: u32| Regions::Range(RAIDZ, first..first + count);
    let fits = |count: &u32| engine.storage().space.moving_plan(&regions(*count), &Targets::Anywhere).fits_whole();
    let Some(count) = (1..=widening.narrow.regions.min(most)).rev().find(fits) else { return false };
    let regions = regions(count);
    engine.close(&regions);
    for _ in 0..200 {
        match engine.vacate(&regions, &Targets::Anywhere, Packs::Never).unwrap() {
            Vacating::Working => {}
            Vacating::Copying => copy_all(engine),
            Vacating::Vacated => {
                engine.outlast_states().unwrap();
                pool.widen(RAIDZ, count).unwrap();
                return true;
            }
            Vacating::Waiting => panic!("nobody holds a state"),
        }
    }
    panic!("{regions:?} are never empty");
}

fn expand(pool: &Pool, most: u32) -> usize {
    (0..200).take_while(|_| widen(pool, most)).count()
}

/// The devices except the `missing` ones.
fn without(devices: &[Arc<dyn Device>], missing: &[usize]) -> Vec<Arc<dyn Device>> {
    devices.iter().enumerate().filter(|(at, _)| !missing.contains(at)).map(|(_, device)| device.clone()).collect()
}

fn sets(count: usize, most: usize) -> Vec<Vec<usize>> {
    let some = (0..1u32 << count).filter(|set| set.count_ones() as usize <= most);
    some.map(|set| (0..count).filter(|at| set & 1 << at != 0).collect()).collect()
}

#[test]
fn what_was_in_narrow_rows_is_whole_and_the_pool_is_larger() {
    for (count, parity) in [(3, 1), (4, 2)] {
        let mut devices: Vec<Arc<dyn Device>> = ["a", "b", "c", "d"][..count].iter().map(|name| disk(name)).collect();
        let pool = raidz(parity, &devices);
        let before = pool.engine().space_totals().size;
        devices.push(disk("new"));
        pool.attach_column(&format!("raidz{parity}-0"), devices[count].clone()).unwrap();
        assert!(expand(&pool, 50) > 1);
        let narrow = pool.widening().expect("blocks that stay cannot be in rows of another width").narrow;
        let newest = commit(&pool, 3);
        let after = pool.engine().space_totals().size;
        assert!(narrow.regions < 20 && after * 10 > before * 13, "{narrow:?}, {before} and {after}");
        assert_eq!(shown(pool.engine()), newest);
        let config = config(&pool);
        assert_eq!((config.zones.len(), config.widest()), (2, count + 1));
        drop(pool);
        for missing in sets(count + 1, usize::from(parity) + 1) {
            let what = format!("without {missing:?} of {count} and one");
            match opened_with(&without(&devices, &missing), &reading(None), 7) {
                Ok(pool) => {
                    assert!(missing.len() <= usize::from(parity), "{what}");
                    assert_eq!(shown(pool.engine()), newest, "{what}");
                }
                Err(error) => assert!(missing.len() > usize::from(parity), "{what}: {error}"),
            }
        }
        let pool = opened(&devices, 8);
        assert!(
            pool.engine().space_totals().size == after && pool.widening().is_some_and(|after| after.narrow == narrow)
        );
        assert_eq!(shown(pool.engine()), newest);
    }
}

#[test]
fn once_rows_are_wide_the_new_device_counts_as_any() {
    let devices = ["a", "b", "c", "new"].map(disk);
    let pool = raidz(1, &devices[..3]);
    pool.attach_column("raidz1-0", devices[3].clone()).unwrap();
    // With narrow rows only, the new device is not needed.
    pool.put_offline("new", true).unwrap();
    pool.put_offline("a", true).unwrap();
    assert!(pool.put_offline("b", true).is_err());
    let newest = commit(&pool, 2);
    drop(pool);
    let pool = opened(&devices, 2);
    commit(&pool, 1);
    assert!(pool.put_offline("new", false).is_ok() && pool.put_offline("a", false).is_ok());
    assert!(shown(pool.engine()) > newest);
    drop(pool);
    let devices = ["a", "b", "c", "new"].map(disk);
    let pool = raidz(1, &devices[..3]);
    pool.attach_column("raidz1-0", devices[3].clone()).unwrap();
    assert!(widen(&pool, 40));
    for (one, other) in [("new", "a"), ("b", "new")] {
        pool.put_offline(one, true).unwrap();
        let refused = pool.put_offline(other, true).unwrap_err().to_string();
        assert_eq!(refused, format!("raidz1-0 needs 3 complete devices, including {other}"));
        let newest = commit(&pool, 2);
        assert_eq!(shown(pool.engine()), newest);
        let device = devices.iter().find(|device| device.name() == one).unwrap().clone();
        assert!(pool.put_online(one, &move |_| Ok(device.clone())).unwrap());
        resilver(&pool);
        commit(&pool, 1);
    }
    // Rows are not widened while too few devices are complete.
    let devices = ["a", "b", "c", "new"].map(disk);
    let pool = raidz(1, &devices[..3]);
    pool.attach_column("raidz1-0", devices[3].clone()).unwrap();
    pool.put_offline("new", true).unwrap();
    pool.put_offline("a", true).unwrap();
    let engine = pool.engine();
    let first = pool.widening().unwrap().narrow.first_region;
    let front = Regions::Range(RAIDZ, first..first + 2);
    engine.close(&front);
    loop {
        match engine.vacate(&front, &Targets::Anywhere, Packs::Never).unwrap() {
            Vacating::Copying => copy_all(engine),
            Vacating::Vacated => break,
            _ => {}
        }
    }
    let refused = pool.widen(RAIDZ, 2).unwrap_err().to_string();
    assert_eq!(refused, "raidz1-0 needs 3 complete devices for wider rows");
}

#[test]
fn states_in_given_up_rows_are_refused_and_kept_ones_are_whole() {
    let mut devices = vec![disk("a"), disk("b"), disk("c")];
    let pool = raidz(1, &devices);
    let before = pool.engine().committed();
    devices.push(disk("new"));
    pool.attach_column("raidz1-0", devices[3].clone()).unwrap();
    assert!(widen(&pool, 40));
    drop(pool);
    let there = states(&devices, &writing()).unwrap();
    for state in there.iter().take(SAFE_STATES) {
        assert_eq!(shown(opened_with(&devices, &reading(Some(state.txg)), 3).unwrap().engine()), state.txg);
    }
    let refused = opened_with(&devices, &reading(Some(before)), 3).err().unwrap().to_string();
    assert!(refused.contains(&format!("transaction group {before} of pool tank cannot be read")), "{refused}");
}

#[test]
fn a_crash_in_widening_leaves_the_pool_whole_without_any_device() {
    let recorder = Recorder::new();
    let wrap = |name: &str| Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB))) as Arc<dyn Device>;
    let devices = ["a", "b", "c", "new"].map(wrap);
    let pool = raidz(1, &devices[..3]);
    let first = pool.engine().committed();
    let begin = recorder.len();
    pool.attach_column("raidz1-0", devices[3].clone()).unwrap();
    let rounds = (0..2).filter(|_| widen(&pool, 40)).count();
    assert_eq!(rounds, 2);
    let last = commit(&pool, 2);
    drop(pool);
    let mut outcomes = [0; 4];
    let cuts: Vec<usize> = (begin..=recorder.len()).collect();
    let stride = cuts.len().div_ceil(MOST_CUTS);
    for (cut, seed) in cuts.into_iter().skip(SKIP % stride).step_by(stride).zip(0..) {
        let images: Vec<Arc<dyn Device>> =
            recorder.images_at(cut, &mut Fate::seeded(seed)).into_iter().map(|image| Arc::new(image) as _).collect();
        for missing in [vec![], vec![cut % 4]] {
            let what = format!("cut {cut}, seed {seed}, without {missing:?}");
            let there: Vec<Arc<dyn Device>> = without(&images, &missing)
                .into_iter()
                .filter(|image| matches!(labels::read_label(&**image), Ok(Some(_))))
                .collect();
            for state in states(&there, &writing()).unwrap().into_iter().take(SAFE_STATES) {
                let state = state.txg;
                let found =
                    opened_with(&there, &reading(Some(state)), 5).unwrap_or_else(|e| panic!("{what}, {state}: {e}"));
                assert_eq!(shown(found.engine()), state, "{what}");
            }
            let found = opened_with(&there, &reading(None), 6).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!((first..=last).contains(&shown(found.engine())), "{what}");
        }
        // The expansion resumes.
        let there: Vec<Arc<dyn Device>> =
            images.iter().filter(|image| matches!(labels::read_label(&***image), Ok(Some(_)))).cloned().collect();
        let pool = opened(&there, 7);
        let state: Txg = shown(pool.engine());
        assert!((first..=last).contains(&state), "cut {cut}, seed {seed}");
        let zones = config(&pool).zones;
        outcomes[zones.len().min(2)
            + usize::from(zones.first().is_some_and(|zone| zone.regions > 80 && zone.columns == 4))] += 1;
        if !zones.is_empty() {
            commit(&pool, 1);
            assert!(widen(&pool, 40), "cut {cut}, seed {seed}");
        }
        let state = commit(&pool, 1);
        assert_eq!(shown(pool.engine()), state, "cut {cut}, seed {seed}");
        drop(pool);
        let left = without(&images, &[cut % 3]);
        let left: Vec<_> =
            left.into_iter().filter(|image| matches!(labels::read_label(&**image), Ok(Some(_)))).collect();
        assert_eq!(shown(opened_with(&left, &reading(None), 8).unwrap().engine()), state, "cut {cut}, seed {seed}");
    }
    assert!(outcomes[1..].iter().all(|count| *count > 0), "{outcomes:?}");
}

/// At most so many cuts are tried.
const MOST_CUTS: usize = 150;
/// How many cuts to skip first.
const SKIP: usize = 0;
