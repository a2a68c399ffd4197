//! A device with too many errors stays out of use until brought online, at every power failure.

use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{
    Pool, SpareChange,
    members_tests::{Disk, disk, disks, mirror, opened, reopen, resilver, states},
    stamped::commit,
};
use crate::{
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    format::label::out_of_use::OutOfUse,
    units::{MIB, Txg},
    vdev::{Health, State, labels},
};

fn in_use(spare: &str) -> SpareChange {
    SpareChange::InUse { spare: spare.into(), device: "b".into() }
}

fn available(spare: &str) -> SpareChange {
    SpareChange::Available { spare: spare.into() }
}

/// A mirror of `a` and `b`, in which the spare `c` is complete and `b` has too many errors. The next step faults `b`.
fn with_bad_one(disks: &[Disk]) -> Pool {
    let pool = mirror(&disks[..2]);
    pool.add_spares(&disks[2..].iter().map(|disk| disk.clone() as Arc<dyn Device>).collect::<Vec<_>>()).unwrap();
    let (vdev, leaf) = pool.find_device("b").unwrap();
    (0..10).for_each(|_| vdev.note_checksum_error(leaf.guid()));
    assert_eq!(pool.spare_step().unwrap(), [in_use("c")]);
    assert!(resilver(&pool));
    pool
}

/// Faults `b` by a step of the spares.
fn fault_b(pool: &Pool) {
    assert_eq!(pool.spare_step().unwrap(), [SpareChange::Faulted { device: "b".into() }]);
}

/// The health of `b`, and why it is not used.
fn condition(pool: &Pool) -> (Health, Option<String>) {
    let leaf = pool.find_device("b").unwrap().1;
    (leaf.health(), leaf.trouble())
}

fn faulted() -> (Health, Option<String>) {
    (Health::Faulted, Some("too many errors".to_owned()))
}

#[test]
fn a_device_with_too_many_errors_is_faulted_until_brought_back() {
    let disks = disks("a b c d");
    let all: Vec<&Disk> = disks.iter().collect();
    let pool = with_bad_one(&disks);
    fault_b(&pool);
    drop(pool);
    for seed in 5..7 {
        let pool = opened(&all, seed).unwrap();
        assert_eq!(states(&pool), [State::Complete, State::Out, State::Complete]);
        assert_eq!(condition(&pool), faulted());
        assert_eq!(pool.spare_step().unwrap(), []);
        commit(&pool, 1);
    }
    // The spare in its place may fail as well: another spare steps in.
    let pool = opened(&all, 7).unwrap();
    disks[2].vanish();
    commit(&pool, 1);
    assert_eq!(pool.spare_step().unwrap(), [available("c"), in_use("d")]);
    assert!(resilver(&pool));
    assert!(pool.put_online("b", &reopen(&disks[1])).unwrap());
    assert!(resilver(&pool));
    assert_eq!(pool.spare_step().unwrap(), [available("d")]);
    assert_eq!(condition(&pool), (Health::Online, None));
    assert!(pool.label().sections.out_of_use.is_empty());
    drop(pool);
    let pool = opened(&[all[0], all[1], all[3]], 8).unwrap();
    assert_eq!((states(&pool), condition(&pool).0), (vec![State::Complete; 2], Health::Online));
}

#[test]
fn a_returned_device_is_faulted_again_only_for_new_errors() {
    for is_cleared in [true, false] {
        let disks = disks("a b c");
        let pool = with_bad_one(&disks);
        fault_b(&pool);
        let (vdev, leaf) = pool.find_device("b").unwrap();
        if is_cleared {
            leaf.counters().clear_errors();
        }
        assert!(pool.put_online("b", &reopen(&disks[1])).unwrap());
        assert!(resilver(&pool));
        // The device is complete before its errors are counted again.
        assert_eq!(pool.spare_step().unwrap(), [available("c")], "cleared: {is_cleared}");
        assert_eq!(condition(&pool), (Health::Online, None));
        (0..10).for_each(|_| vdev.note_checksum_error(leaf.guid()));
        assert_eq!(pool.spare_step().unwrap(), [in_use("c")]);
    }
}

#[test]
fn offlining_or_detaching_a_faulted_device_ends_its_record() {
    let disks = disks("a b c");
    let pool = with_bad_one(&disks);
    fault_b(&pool);
    assert_eq!(pool.label().sections.out_of_use.len(), 1);
    pool.put_offline("b", false).unwrap();
    assert!(pool.label().sections.out_of_use.is_empty());
    drop(pool);
    let pool = opened(&disks.iter().collect::<Vec<_>>(), 5).unwrap();
    assert_eq!(condition(&pool), (Health::Offline, None));
    drop(pool);
    let disks = self::disks("a b c");
    let pool = with_bad_one(&disks);
    fault_b(&pool);
    pool.detach("b").unwrap();
    assert!(pool.label().sections.out_of_use.is_empty());
}

#[test]
fn after_a_crash_a_faulted_device_is_in_use_or_has_a_reason() {
    let recorder = Recorder::new();
    let recorded = |name| Arc::new(FaultDevice::new(Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB)))));
    let disks = ["a", "b", "c"].map(recorded);
    let pool = with_bad_one(&disks);
    commit(&pool, 1);
    let begin = recorder.len();
    fault_b(&pool);
    let is_out = recorder.len();
    commit(&pool, 1);
    let is_wanted_back = recorder.len();
    assert!(pool.put_online("b", &reopen(&disks[1])).unwrap());
    let is_back = recorder.len();
    drop(pool);
    for (cut, seed) in cuts(begin..=is_back, 3) {
        let what = format!("cut {cut}, seed {seed}");
        let images = recorder.images_at(cut, &mut Fate::seeded(seed)).into_iter();
        let images: Vec<Disk> = images.map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
        assert!(images.iter().all(|disk| matches!(labels::read_label(&**disk), Ok(Some(_)))), "{what}");
        let pool = opened(&images.iter().collect::<Vec<_>>(), 7).unwrap_or_else(|error| panic!("{what}: {error}"));
        let is_used = states(&pool)[1] != State::Out;
        if is_used {
            assert_eq!(condition(&pool), (Health::Online, None), "{what}");
        } else {
            assert_eq!(condition(&pool), faulted(), "{what}");
        }
        assert!(!is_used || !(is_out..=is_wanted_back).contains(&cut), "{what}: it is in use again");
        assert!(is_used || cut < is_back, "{what}: it was taken back");
        commit(&pool, 1);
    }
}

/// A pool on a mirror of `a` and `b`, and its cache device, `cache`.
fn with_cache() -> (Arc<Pool>, Vec<Disk>, Disk) {
    let (disks, cache) = (disks("a b"), disk("cache"));
    let pool = mirror(&disks);
    pool.add_caches(&[cache.clone() as Arc<dyn Device>]).unwrap();
    (Arc::new(pool), disks, cache)
}

/// Runs `work` while a device hangs; returns whether the work completes in the meantime.
fn comes_back(hanging: &Disk, work: impl FnOnce() + Send) -> bool {
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            work();
            let _ = sender.send(());
        });
        let is_back = receiver.recv_timeout(Duration::from_secs(10)).is_ok();
        hanging.heal();
        is_back
    })
}

#[test]
fn a_cache_device_that_hangs_while_labelled_holds_no_commit() {
    let (pool, disks, cache) = with_cache();
    cache.inject(Fault::hanging(Operation::Write));
    std::thread::scope(|scope| {
        let renaming = scope.spawn(|| pool.rename("other"));
        while pool.name() != "other" {
            std::thread::yield_now();
        }
        disks[1].vanish();
        // Labels must call the failed device behind.
        assert!(comes_back(&cache, || assert!(commit(&pool, 1) > Txg::ZERO)), "the commit waits for the cache device");
        renaming.join().unwrap().unwrap();
    });
    assert_eq!(states(&pool), [State::Complete, State::Out]);
    let label = labels::read_label(&*cache).unwrap().unwrap();
    assert_eq!((&*label.pool_name, pool.find_cache("cache").unwrap().health()), ("other", Health::Online));
}

#[test]
fn a_hanging_cache_device_is_offlined_at_once_and_stays_so() {
    let (pool, disks, cache) = with_cache();
    cache.inject(Fault::hanging(Operation::Write));
    assert!(comes_back(&cache, || pool.put_offline("cache", false).unwrap()), "it waits for what is to go");
    drop(pool);
    let pool = opened(&[&disks[0], &disks[1], &cache], 5).unwrap();
    assert_eq!(pool.find_cache("cache").unwrap().health(), Health::Offline);
}

#[test]
fn an_unknown_reason_is_kept_and_the_device_is_offline() {
    let (pool, disks, cache) = with_cache();
    pool.put_offline("b", false).unwrap();
    let guids = [pool.find_device("b").unwrap().1.guid(), pool.find_cache("cache").unwrap().guid()];
    pool.relabel(|label| label.sections.out_of_use.extend(guids.map(|guid| (guid, OutOfUse::Other(200))))).unwrap();
    drop(pool);
    let pool = opened(&[&disks[0], &disks[1], &cache], 5).unwrap();
    assert_eq!(condition(&pool), (Health::Offline, None));
    assert_eq!(pool.find_cache("cache").unwrap().health(), Health::Offline);
    assert_eq!(pool.label().sections.out_of_use, guids.map(|guid| (guid, OutOfUse::Other(200))).into());
}

#[test]
fn a_needed_device_with_too_many_errors_is_not_recorded() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    disks[0].vanish();
    commit(&pool, 1);
    let (vdev, leaf) = pool.find_device("b").unwrap();
    assert!(!pool.fault_for_errors(vdev.as_group().unwrap(), &leaf).unwrap());
    assert_eq!((states(&pool)[1], condition(&pool)), (State::Complete, (Health::Online, None)));
    assert!(pool.label().sections.out_of_use.is_empty());
}
