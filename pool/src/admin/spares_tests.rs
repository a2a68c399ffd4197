//! Spares step in for failed devices, and become available again, at every power failure.

use std::{sync::Arc, thread, time::Duration};

use super::{
    NewVdev, Pool, SpareChange, create_of,
    members_tests::{Disk, alone, disks, leaving::Healed, mirror, opened, reopen, resilver, states},
    stamped::{Stamp, commit, settings, shown},
};
use crate::{
    admin::CreateOptions,
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    error::Error,
    format::label::{KNOWN_FEATURES, SPARES},
    units::{MIB, Txg},
    vdev::{Health, State, labels},
};

pub(super) fn device(disk: &Disk) -> Arc<dyn Device> {
    disk.clone()
}

pub(super) fn sized(name: &str, size: u64) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, size))))
}

/// The paths of the spares, and which are in use.
pub(super) fn spares(pool: &Pool) -> Vec<(String, bool)> {
    pool.spares().iter().map(|spare| (spare.leaf.name().to_owned(), spare.used_in.is_some())).collect()
}

pub(super) fn listed(names: &[(&str, bool)]) -> Vec<(String, bool)> {
    names.iter().map(|(name, is_used)| ((*name).to_owned(), *is_used)).collect()
}

fn in_use(spare: &str, device: &str) -> Vec<SpareChange> {
    vec![SpareChange::InUse { spare: spare.into(), device: device.into() }]
}

fn available(spare: &str) -> Vec<SpareChange> {
    vec![SpareChange::Available { spare: spare.into() }]
}

/// A mirror of `a` and `b` with the spare `c`, in which `b` has failed.
pub(super) fn failed(disks: &[Disk]) -> Pool {
    let pool = mirror(&disks[..2]);
    pool.add_spares(&[device(&disks[2])]).unwrap();
    assert_eq!(pool.spare_step().unwrap(), []);
    disks[1].inject(Fault::failing(Operation::Write));
    commit(&pool, 2);
    pool
}

/// Like [`failed`], after `b` is back and complete, while `c` is still in use.
fn recovered(disks: &[Disk]) -> Pool {
    let pool = failed(disks);
    pool.spare_step().unwrap();
    assert!(resilver(&pool));
    disks[1].heal();
    assert!(pool.put_online("b", &reopen(&disks[1])).unwrap());
    assert_eq!(pool.spare_step().unwrap(), []);
    assert!(resilver(&pool));
    pool
}

#[test]
fn a_spare_in_use_suffices_when_the_others_are_lost() {
    let disks = disks("a b c");
    let pool = failed(&disks);
    assert_eq!(pool.spare_step().unwrap(), in_use("c", "b"));
    assert_eq!(pool.spare_step().unwrap(), []);
    assert_eq!(states(&pool), [State::Complete, State::Out, State::Resilvering]);
    assert_eq!(spares(&pool), listed(&[("c", true)]));
    assert!(resilver(&pool));
    assert_eq!(states(&pool), [State::Complete, State::Out, State::Complete]);
    let newest = commit(&pool, 3);
    assert_eq!(pool.spare_step().unwrap(), []);
    drop(pool);
    assert_eq!(alone(&disks[2]), newest);
    // After an import alone the spare is still in use, and still knows the device that it replaces.
    let pool = opened(&[&disks[2]], 5).unwrap();
    assert_eq!(spares(&pool), listed(&[("c", true)]));
    assert_eq!(pool.spare_step().unwrap(), []);
    assert_eq!(states(&pool), [State::Out, State::Out, State::Complete]);
}

#[test]
fn a_spare_is_given_back_when_the_device_is_back() {
    let disks = disks("a b c");
    let pool = recovered(&disks);
    assert_eq!(pool.spare_step().unwrap(), available("c"));
    assert_eq!((states(&pool), spares(&pool)), (vec![State::Complete; 2], listed(&[("c", false)])));
    let newest = commit(&pool, 2);
    // It can step in again.
    disks[0].inject(Fault::failing(Operation::Flush));
    commit(&pool, 1);
    assert_eq!(pool.spare_step().unwrap(), in_use("c", "a"));
    assert!(resilver(&pool));
    let last = commit(&pool, 1);
    assert!(last > newest);
    drop(pool);
    assert_eq!(alone(&disks[2]), last);
}

#[test]
fn detaching_keeps_the_spare_or_makes_it_available() {
    let disks = disks("a b c d");
    let pool = failed(&disks);
    pool.add_spares(&[device(&disks[3])]).unwrap();
    pool.spare_step().unwrap();
    assert!(resilver(&pool));
    pool.detach("b").unwrap();
    assert_eq!((states(&pool), spares(&pool)), (vec![State::Complete; 2], listed(&[("d", false)])));
    disks[2].inject(Fault::failing(Operation::Write));
    commit(&pool, 1);
    assert_eq!(pool.spare_step().unwrap(), in_use("d", "c"));
    pool.detach("d").unwrap();
    assert_eq!(spares(&pool), listed(&[("d", false)]));
    let newest = commit(&pool, 1);
    assert_eq!(shown(pool.engine()), newest);
}

#[test]
fn no_spare_is_used_for_an_offline_device_or_a_suspended_pool() {
    for temporary in [false, true] {
        let disks = disks("a b c");
        let pool = mirror(&disks[..2]);
        pool.add_spares(&[device(&disks[2])]).unwrap();
        pool.put_offline("b", temporary).unwrap();
        commit(&pool, 1);
        assert_eq!(pool.spare_step().unwrap(), []);
    }
    let disks = disks("a b c");
    let pool = failed(&disks);
    let suspension = pool.engine().suspension();
    suspension.enable();
    suspension.suspend(suspension.era(), &Error::Request("a cable was pulled".into()));
    assert_eq!(pool.spare_step().unwrap(), []);
    suspension.abandon();
}

#[test]
fn the_smallest_spare_that_fits_and_answers_is_used() {
    let disks = disks("a b");
    let (small, fit, large) = (sized("small", 40 * MIB), sized("fit", 64 * MIB), sized("large", 90 * MIB));
    let pool = mirror(&disks);
    pool.add_spares(&[device(&large), device(&small), device(&fit)]).unwrap();
    disks[1].inject(Fault::failing(Operation::Write));
    commit(&pool, 1);
    fit.vanish();
    assert_eq!(pool.spare_step().unwrap(), in_use("large", "b"));
    let health: Vec<Health> = pool.spares().iter().map(|spare| spare.leaf.health()).collect();
    assert_eq!(health, [Health::Online, Health::Online, Health::Unavailable]);
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&large), newest);
}

/// Runs a step of the spares while `change`, a label change, waits for a hanging device; then runs `then`, and waits
/// for all.
fn step_while(pool: &Pool, of: &Disk, change: impl FnOnce() + Send, then: impl FnOnce() + Send) -> Vec<SpareChange> {
    let _healed = Healed(of.clone());
    of.inject(Fault::hanging(Operation::Write));
    thread::scope(|scope| {
        let get_there = || thread::sleep(Duration::from_millis(100));
        scope.spawn(change);
        get_there();
        let step = scope.spawn(|| pool.spare_step());
        get_there();
        scope.spawn(then);
        get_there();
        of.heal();
        step.join().unwrap().unwrap()
    })
}

#[test]
fn a_spare_that_leaves_while_it_is_chosen_is_not_used() {
    let disks = disks("a b c d");
    let pool = failed(&disks);
    assert_eq!(step_while(&pool, &disks[0], || assert!(pool.remove_spare("c").unwrap()), || ()), []);
    assert_eq!((states(&pool), spares(&pool)), (vec![State::Complete, State::Out], listed(&[])));
    assert_eq!(labels::read_label(&*disks[2]).unwrap(), None);
    pool.add_spares(&[device(&disks[3])]).unwrap();
    assert_eq!(pool.spare_step().unwrap(), in_use("d", "b"));
}

#[test]
fn no_spare_is_used_for_a_device_replaced_meanwhile() {
    let disks = disks("a b c new");
    let pool = failed(&disks);
    let replace = || pool.attach("b", device(&disks[3]), true).unwrap();
    assert_eq!(step_while(&pool, &disks[0], replace, || ()), []);
    assert_eq!(spares(&pool), listed(&[("c", false)]));
    drop(pool);
    let pool = opened(&[&disks[0], &disks[2], &disks[3]], 5).unwrap();
    assert!(resilver(&pool));
    assert_eq!(states(&pool), [State::Complete; 2]);
    assert_eq!(pool.spare_step().unwrap(), []);
    let disks = self::disks("a b c");
    let pool = failed(&disks);
    let rename = || pool.rename("other").unwrap();
    assert_eq!(step_while(&pool, &disks[0], rename, || pool.put_offline("b", false).unwrap()), []);
    assert_eq!(spares(&pool), listed(&[("c", false)]));
}

#[test]
fn a_device_with_too_many_errors_serves_until_the_spare_can() {
    let disks = disks("a b c");
    let pool = mirror(&disks[..2]);
    pool.add_spares(&[device(&disks[2])]).unwrap();
    let (vdev, leaf) = pool.find_device("b").unwrap();
    (0..9).for_each(|_| vdev.note_checksum_error(leaf.guid()));
    assert_eq!(pool.spare_step().unwrap(), []);
    vdev.note_checksum_error(leaf.guid());
    assert_eq!(pool.spare_step().unwrap(), in_use("c", "b"));
    assert_eq!(states(&pool), [State::Complete, State::Complete, State::Resilvering]);
    assert_eq!(pool.spare_step().unwrap(), []);
    assert!(resilver(&pool));
    assert_eq!(pool.spare_step().unwrap(), [SpareChange::Faulted { device: "b".into() }]);
    assert_eq!(states(&pool), [State::Complete, State::Out, State::Complete]);
    assert_eq!(leaf.trouble().unwrap(), "too many errors");
    assert_eq!(pool.spare_step().unwrap(), []);
}

#[test]
fn wrong_blocks_that_come_slowly_or_are_forgotten_call_no_spare() {
    let disks = disks("a b c");
    let pool = mirror(&disks[..2]);
    pool.add_spares(&[device(&disks[2])]).unwrap();
    let (vdev, leaf) = pool.find_device("b").unwrap();
    let after = |seconds: u64, wrong: u32| {
        pool.engine().env().sleep(Duration::from_secs(seconds));
        (0..wrong).for_each(|_| vdev.note_checksum_error(leaf.guid()));
        pool.spare_step().unwrap()
    };
    // Nine within ten minutes, repeatedly.
    assert_eq!(after(0, 9), []);
    assert_eq!(after(600, 0), []);
    assert_eq!(after(300, 9), []);
    assert_eq!(after(300, 0), []);
    assert_eq!(after(1, 9), []);
    // Clearing starts a new count, also when the count was below the limit.
    leaf.counters().clear_errors();
    assert_eq!(after(1, 0), []);
    assert_eq!(after(1, 9), []);
    assert_eq!(after(597, 1), in_use("c", "b"));
}

#[test]
fn a_spare_that_cannot_be_written_leaves_all_the_same() {
    let disks = disks("a b c");
    let pool = mirror(&disks[..2]);
    pool.add_spares(&[device(&disks[2])]).unwrap();
    disks[2].inject(Fault::failing(Operation::Write));
    assert!(pool.remove_spare("c").unwrap());
    assert_eq!(spares(&pool), []);
    disks[2].heal();
    let own = labels::read_label(&*disks[2]).unwrap().expect("its label is still there");
    assert!(own.is_spare(own.device) && !pool.label().is_spare(own.device));
    let newest = commit(&pool, 1);
    drop(pool);
    let pool = opened(&[&disks[0], &disks[1]], 5).unwrap();
    assert_eq!((shown(pool.engine()), spares(&pool)), (newest, listed(&[])));
    // It can be added again.
    pool.add_spares(&[device(&disks[2])]).unwrap();
    assert_eq!(spares(&pool), listed(&[("c", false)]));
}

#[test]
fn a_spare_that_fails_itself_makes_room_for_another() {
    let disks = disks("a b c d");
    let pool = failed(&disks);
    pool.add_spares(&[device(&disks[3])]).unwrap();
    pool.spare_step().unwrap();
    disks[2].vanish();
    commit(&pool, 1);
    assert_eq!(pool.spare_step().unwrap(), [available("c"), in_use("d", "b")].concat());
    assert_eq!(spares(&pool), listed(&[("c", false), ("d", true)]));
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&disks[3]), newest);
}

#[test]
fn a_spare_stays_if_the_last_other_device_fails_meanwhile() {
    let disks = disks("a b c");
    let pool = recovered(&disks);
    disks[0].vanish();
    commit(&pool, 1);
    assert_eq!(states(&pool), [State::Out, State::Complete, State::Complete]);
    // The failure is not known yet, and shows in the commits before the spare leaves.
    disks[1].inject(Fault::failing(Operation::Write));
    assert_eq!(pool.spare_step().unwrap(), []);
    assert_eq!(states(&pool), [State::Out, State::Out, State::Complete]);
    assert_eq!(spares(&pool), listed(&[("c", true)]));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&disks[2]), newest);
}

#[test]
fn a_spare_of_a_raidz_makes_up_for_a_second_loss() {
    let disks = disks("a b c s");
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let devices = disks[..3].iter().map(device).collect();
    let raidz = NewVdev::RaidZ { parity: 1, devices };
    let pool = create_of(&[raidz], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    pool.add_spares(&[device(&disks[3])]).unwrap();
    disks[1].inject(Fault::failing(Operation::Write));
    commit(&pool, 2);
    assert_eq!(pool.spare_step().unwrap(), in_use("s", "b"));
    assert!(resilver(&pool));
    let newest = commit(&pool, 2);
    drop(pool);
    assert_eq!(shown(opened(&[&disks[0], &disks[3]], 4).unwrap().engine()), newest);
}

#[test]
fn a_spare_of_an_uneven_raidz_has_the_rows_of_its_column() {
    for (fails, used, other) in [("large", "big", "little"), ("small", "little", "big")] {
        let sizes = [("large", 96), ("second", 96), ("third", 80), ("small", 64)];
        let disks: Vec<Disk> = sizes.iter().map(|(name, size)| sized(name, size * MIB)).collect();
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let raidz = NewVdev::RaidZ { parity: 1, devices: disks.iter().map(device).collect() };
        let pool = create_of(&[raidz], &options, Arc::new(SeededEnv::new(1))).unwrap();
        pool.engine().set_client(Arc::new(Stamp));
        commit(&pool, 3);
        // The smallest sufficient spare is chosen; the small one suffices only where rows end early.
        let (little, big) = (sized("little", 64 * MIB), sized("big", 96 * MIB));
        pool.add_spares(&[device(&little), device(&big)]).unwrap();
        let failed = disks.iter().find(|disk| disk.name() == fails).unwrap();
        failed.inject(Fault::failing(Operation::Write));
        commit(&pool, 2);
        assert_eq!(pool.spare_step().unwrap(), in_use(used, fails));
        assert!(spares(&pool).contains(&(other.to_owned(), false)), "{other} stands by");
        assert!(resilver(&pool));
        let newest = commit(&pool, 2);
        drop(pool);
        // It makes up for a second missing device.
        let spare = if used == "big" { &big } else { &little };
        let there: Vec<&Disk> =
            disks.iter().filter(|disk| ![fails, "second"].contains(&disk.name())).chain([spare]).collect();
        assert_eq!(shown(opened(&there, 4).unwrap().engine()), newest);
    }
}

#[test]
fn spares_are_labelled_known_again_and_removed() {
    let disks = disks("a b c d");
    let pool = mirror(&disks[..2]);
    assert!(!pool.label().features.contains_key(SPARES) && KNOWN_FEATURES.contains(&SPARES));
    pool.add_spares(&[device(&disks[2]), device(&disks[3])]).unwrap();
    pool.rename("other").unwrap();
    let own = labels::read_label(&*disks[2]).unwrap().unwrap();
    assert_eq!((own.pool, own.pool_name.as_str()), (pool.label().pool, "other"));
    drop(pool);
    let pool = opened(&[&disks[0], &disks[1], &disks[3]], 2).unwrap();
    let health: Vec<Health> = pool.spares().iter().map(|spare| spare.leaf.health()).collect();
    assert_eq!(health, [Health::Unavailable, Health::Online]);
    assert!(pool.remove_spare("c").unwrap() && !pool.remove_spare("c").unwrap());
    disks[1].inject(Fault::failing(Operation::Write));
    commit(&pool, 1);
    pool.spare_step().unwrap();
    assert!(matches!(pool.remove_spare("d"), Err(Error::Request(_))));
    disks[1].heal();
    pool.put_online("b", &reopen(&disks[1])).unwrap();
    assert!(resilver(&pool));
    pool.spare_step().unwrap();
    assert!(pool.remove_spare("d").unwrap());
    assert_eq!(labels::read_label(&*disks[3]).unwrap(), None);
    assert_eq!(spares(&pool), []);
}

#[test]
fn nothing_is_lost_by_a_crash_while_a_spare_comes_or_goes() {
    let recorder = Recorder::new();
    let recorded = |name| Arc::new(FaultDevice::new(Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB)))));
    let (a, b, c) = (recorded("a"), recorded("b"), recorded("c"));
    let pool = mirror(&[a, b.clone()]);
    let mut known = vec![(recorder.len(), pool.engine().committed())];
    let mut note = |pool: &Pool| {
        commit(pool, 1);
        known.push((recorder.len(), pool.engine().committed()));
    };
    note(&pool);
    pool.add_spares(&[device(&c)]).unwrap();
    b.inject(Fault::failing(Operation::Write));
    note(&pool);
    assert_eq!(pool.spare_step().unwrap(), in_use("c", "b"));
    note(&pool);
    assert!(resilver(&pool));
    note(&pool);
    b.heal();
    let back: Disk = b.clone();
    assert!(pool.put_online("b", &reopen(&back)).unwrap());
    assert!(resilver(&pool));
    assert_eq!(pool.spare_step().unwrap(), available("c"));
    note(&pool);
    let last = pool.engine().committed();
    drop(pool);
    let begin = known[0].0;
    for (cut, seed) in cuts(begin..=recorder.len(), 2) {
        let what = format!("cut {cut}, seed {seed}");
        let promised: Txg = known.iter().rev().find(|(at, _)| *at <= cut).unwrap().1;
        let images = recorder.images_at(cut, &mut Fate::seeded(seed)).into_iter();
        let images: Vec<Disk> = images.map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
        let there: Vec<&Disk> =
            images.iter().filter(|disk| matches!(labels::read_label(&***disk), Ok(Some(_)))).collect();
        let pool = opened(&there, 7).unwrap_or_else(|error| panic!("{what}: {error}"));
        let state = shown(pool.engine());
        assert!((promised..=last).contains(&state), "{what}: {state}");
        // All due steps are done, and come to an end.
        let is_idle = (0..9).any(|_| !resilver(&pool) && pool.spare_step().unwrap().is_empty());
        assert!(is_idle, "{what}: {:?}", states(&pool));
        assert!(states(&pool).iter().filter(|state| **state == State::Complete).count() >= 2, "{what}");
        let newest = commit(&pool, 2);
        let names: Vec<String> = {
            let vdevs = pool.engine().storage().vdevs.all();
            vdevs[0].committing().iter().map(|leaf| leaf.name().to_owned()).collect()
        };
        drop(pool);
        for name in names {
            let disk = images.iter().find(|disk| disk.name() == name).unwrap();
            assert_eq!(alone(disk), newest, "{what}: {name} alone");
        }
    }
}

#[test]
fn a_spare_whose_return_was_cut_off_is_used_again() {
    let disks = disks("a b c");
    let pool = failed(&disks);
    pool.spare_step().unwrap();
    assert!(resilver(&pool));
    commit(&pool, 1);
    disks[1].heal();
    pool.put_online("b", &reopen(&disks[1])).unwrap();
    assert!(resilver(&pool));
    // Its own label is not rewritten.
    disks[2].inject(Fault::failing(Operation::Write));
    pool.spare_step().unwrap();
    disks[2].heal();
    drop(pool);
    for seed in 3..6 {
        commit(&opened(&[&disks[0], &disks[1]], seed).unwrap(), 40);
    }
    let pool = opened(&[&disks[0], &disks[1], &disks[2]], 7).unwrap();
    disks[1].inject(Fault::failing(Operation::Write));
    commit(&pool, 1);
    assert_eq!(pool.spare_step().unwrap(), in_use("c", "b"));
    drop(pool);
    let pool = opened(&[&disks[0], &disks[2]], 8).unwrap();
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&disks[2]), newest);
}

#[test]
fn an_empty_device_in_a_failed_ones_place_replaces_it() {
    let disks = disks("a b c");
    let pool = failed(&disks);
    assert_eq!(pool.spare_step().unwrap(), in_use("c", "b"));
    assert!(resilver(&pool));
    let step = |wanted: bool, found: &Disk| pool.autoreplace_step(&|| wanted, &reopen(found)).unwrap();
    let (small, other, empty) = (sized("b", 40 * MIB), sized("b", 64 * MIB), sized("b", 80 * MIB));
    other.write_at(0, b"XFSB").unwrap();
    assert_eq!(step(true, &empty), [""; 0], "a spare stands in for it");
    pool.detach("c").unwrap();
    assert_eq!((step(true, &small), step(true, &other), step(false, &empty)), (vec![], vec![], vec![]));
    assert_eq!(step(true, &empty), ["b"]);
    assert_eq!(step(true, &empty), [""; 0]);
    assert!(resilver(&pool));
    assert_eq!(pool.spare_step().unwrap(), []);
    let newest = commit(&pool, 1);
    assert_eq!(states(&pool), [State::Complete; 2]);
    drop(pool);
    assert_eq!(alone(&empty), newest);
}

#[test]
fn vdevs_and_spares_are_added_together_or_not_at_all() {
    let disks = disks("a b c d");
    let pool = mirror(&disks[..2]);
    let small: Arc<dyn Device> = Arc::new(crate::device::MemoryDevice::new("small", 1 << 20));
    let vdev = || vec![NewVdev::Disk(device(&disks[2]))];
    for (vdevs, spare) in [(vdev(), small.clone()), (vec![NewVdev::Disk(small.clone())], device(&disks[3]))] {
        assert!(pool.begin_add_with(vdevs, &[spare]).is_err());
        assert_eq!((pool.label().vdevs.len(), pool.spares().len()), (1, 0));
    }
    pool.begin_add_with(vdev(), &[device(&disks[3])]).unwrap().finish().unwrap();
    assert_eq!((pool.label().vdevs.len(), pool.spares().len()), (2, 1));
    let newest = commit(&pool, 2);
    drop(pool);
    let pool = opened(&[&disks[0], &disks[1], &disks[2], &disks[3]], 5).unwrap();
    assert_eq!((pool.label().vdevs.len(), pool.spares().len(), shown(pool.engine())), (2, 1, newest));
}
