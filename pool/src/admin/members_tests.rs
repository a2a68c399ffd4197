//! Mirrors in a real pool on simulated devices: failure, return, resilver, attach, detach, split, and every crash.

use std::sync::Arc;

use super::{
    NewVdev, OpenOptions, Pool, SAFE_STATES, create_of, open, rewind,
    stamped::{Stamp, commit, reading, resized, settings, shown, stamp, writing},
    states as rewind_states,
};
use crate::{
    admin::CreateOptions,
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    error::{Error, Result},
    format::{
        key::Key,
        label::{DATA_START, Label},
        vdev_config::VdevTree,
    },
    space::{OwnCursor, Seen},
    tree::{Event, Miss, Root, Walker},
    txg::Engine,
    units::{MIB, Txg},
    vdev::{Health, State, labels, uberblocks::erase_uberblock},
};

mod columns;
mod copies;
mod erring;
mod going_back;
pub(super) mod leaving;
mod logs;
mod outdated;
pub(in crate::admin) mod raidz;
mod unacknowledged;

pub(super) type Disk = Arc<FaultDevice>;

pub(super) fn disk(name: &str) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, 64 * MIB))))
}

pub(super) fn disks(names: &str) -> Vec<Disk> {
    names.split(' ').map(disk).collect()
}

fn made(devices: Vec<Arc<dyn Device>>) -> Pool {
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&[NewVdev::Mirror(devices)], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    pool
}

/// A pool of one mirror.
pub(super) fn mirror(of: &[Disk]) -> Pool {
    made(of.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect())
}

fn opened_with(of: &[&Disk], options: &OpenOptions, seed: u64) -> Result<Pool> {
    let devices = of.iter().map(|disk| (*disk).clone() as Arc<dyn Device>).collect();
    let pool = open(devices, options, Arc::new(SeededEnv::new(seed)))?;
    if !options.read_only {
        pool.engine().set_client(Arc::new(Stamp));
    }
    Ok(pool)
}

pub(super) fn opened(of: &[&Disk], seed: u64) -> Result<Pool> {
    opened_with(of, &writing(), seed)
}

pub(super) fn states(pool: &Pool) -> Vec<State> {
    let vdevs = pool.engine().storage().vdevs.all();
    vdevs[0].as_group().map_or_else(Vec::new, |mirror| mirror.members().iter().map(|member| member.state()).collect())
}

/// Which members labels call behind.
fn behind(pool: &Pool) -> Vec<bool> {
    let label = pool.label();
    let VdevTree::Mirror(mirror) = &label.vdevs[0].tree else { return Vec::new() };
    mirror.members.iter().map(|member| member.behind.is_some()).collect()
}

/// Resilvers, and detaches replaced devices; returns whether there was anything to resilver.
pub(super) fn resilver(pool: &Pool) -> bool {
    let was_lacking = resilver_alone(pool);
    pool.finish_replacing().unwrap();
    was_lacking
}

/// Resilvers; returns whether there was anything to do.
fn resilver_alone(pool: &Pool) -> bool {
    let engine = pool.engine();
    let Some(resilvering) = engine.resilvering() else { return false };
    engine.commit_anyway().unwrap();
    {
        let still = engine.hold_still();
        assert_eq!(still.resilver_space(OwnCursor::default(), u64::MAX).next, None);
        let (root, level) = engine.catalogue().clean_root().unwrap();
        let root = Miss::root(&Root::stored(root, level)).unwrap();
        let mut walker = Walker::new(root, Key::MIN, resilvering.since);
        while let Some(event) = walker.next(|place| engine.load_node(place, Seen::HELD)).unwrap() {
            if let Event::Enter(place, _) = event {
                still.resilver(&[place.pointer]).remove(0).unwrap();
            }
        }
        still.resilver(&[stamp(engine).1]).remove(0).unwrap();
    }
    assert!(engine.hold_still().resilvered(&resilvering, Txg::ZERO).unwrap());
    true
}

/// The state that this device shows alone.
pub(super) fn alone(of: &Disk) -> Txg {
    shown(opened_with(&[of], &reading(None), 77).unwrap().engine())
}

/// A copy of the device's present content.
fn copied(of: &Disk) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(resized(&**of, 64 * MIB))))
}

/// A copy of a device without the uberblock of a state: power failed after everything else was flushed.
fn lacking(disk: &Disk, state: Txg) -> Disk {
    let copy = copied(disk);
    erase_uberblock(&*copy, state).unwrap();
    copy
}

pub(super) fn reopen(disk: &Disk) -> impl Fn(&str) -> Result<Arc<dyn Device>> {
    let disk: Arc<dyn Device> = disk.clone();
    move |_| Ok(disk.clone())
}

#[test]
fn each_member_alone_is_the_whole_pool() {
    let disks = disks("a b c");
    let pool = mirror(&disks);
    let newest = commit(&pool, 5);
    drop(pool);
    assert!(disks.iter().all(|disk| alone(disk) == newest));
    let pool = opened(&[&disks[1]], 2).unwrap();
    assert_eq!(states(&pool), [State::Out, State::Complete, State::Out]);
    assert_eq!(behind(&pool), [true, false, true]);
}

#[test]
fn a_degraded_pool_resilvers_a_device_that_is_back() {
    for on in [Operation::Write, Operation::Flush] {
        let disks = disks("a b");
        let pool = mirror(&disks);
        disks[1].inject(Fault::failing(on));
        commit(&pool, 5);
        assert_eq!((states(&pool), behind(&pool)), (vec![State::Complete, State::Out], vec![false, true]));
        disks[1].lose_cache();
        disks[1].heal();
        assert!(pool.put_online("b", &reopen(&disks[1])).unwrap());
        assert!(!pool.put_online("b", &reopen(&disks[1])).unwrap());
        assert_eq!((states(&pool), behind(&pool)), (vec![State::Complete, State::Resilvering], vec![false, true]));
        commit(&pool, 3);
        assert!(resilver(&pool) && !resilver(&pool));
        assert_eq!((states(&pool), behind(&pool)), (vec![State::Complete; 2], vec![false; 2]));
        let newest = commit(&pool, 2);
        drop(pool);
        assert_eq!(disks.iter().map(alone).collect::<Vec<_>>(), [newest; 2]);
    }
}

#[test]
fn a_device_that_was_away_is_resilvered_at_the_next_import() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    disks[0].vanish();
    let newest = commit(&pool, 40);
    drop(pool);
    disks[0].heal();
    let pool = opened(&[&disks[0], &disks[1]], 3).unwrap();
    assert_eq!((shown(pool.engine()), states(&pool)), (newest, vec![State::Resilvering, State::Complete]));
    drop(pool);
    // An interrupted resilver starts again.
    let pool = opened(&[&disks[0], &disks[1]], 4).unwrap();
    commit(&pool, 2);
    assert!(resilver(&pool));
    let newest = commit(&pool, 2);
    drop(pool);
    assert_eq!(alone(&disks[0]), newest);
}

#[test]
fn without_a_complete_member_the_refusal_names_the_missing() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    disks[0].vanish();
    commit(&pool, 3);
    drop(pool);
    disks[0].heal();
    // Its own labels record no failure: alone it is the pool as it was.
    drop(opened_with(&[&disks[0]], &reading(None), 3).unwrap());
    let pool = opened(&[&disks[0], &disks[1]], 4).unwrap();
    assert_eq!(states(&pool), [State::Resilvering, State::Complete]);
    drop(pool);
    let error = opened(&[&disks[0]], 5).err().unwrap();
    assert_eq!(error.to_string(), "mirror-0 of pool tank has no complete device: b is missing");
    assert!(matches!(error, Error::Incomplete { .. }));
}

#[test]
fn devices_modified_separately_are_a_split_pool() {
    let disks = disks("a b");
    drop(mirror(&disks));
    commit(&opened(&[&disks[0]], 2).unwrap(), 4);
    commit(&opened(&[&disks[1]], 3).unwrap(), 7);
    for order in [[&disks[0], &disks[1]], [&disks[1], &disks[0]]] {
        let error = opened(&order, 4).err().unwrap();
        assert!(matches!(error, Error::Split { .. }), "{error}");
    }
    let pool = opened(&[&disks[0]], 5).unwrap();
    let error = pool.put_online("b", &reopen(&disks[1])).err().unwrap();
    assert!(matches!(error, Error::Split { .. }), "{error}");
    // To give up one side, the administrator detaches the device.
    pool.detach("b").unwrap();
    pool.attach("a", disks[1].clone(), false).unwrap();
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&disks[1]), newest);
}

#[test]
fn a_device_joins_a_single_one_and_leaves_again() {
    let (a, b, c) = (disk("a"), disk("b"), disk("c"));
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&[NewVdev::Disk(a.clone())], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 4);
    let small = Arc::new(MemoryDevice::new("small", 63 * MIB));
    assert!(matches!(pool.attach("a", small, false), Err(Error::Request(_))));
    pool.attach("a", b.clone(), false).unwrap();
    assert_eq!(states(&pool), [State::Complete, State::Resilvering]);
    assert!(matches!(pool.detach("a"), Err(Error::Request(_))), "only it holds everything");
    commit(&pool, 2);
    assert!(resilver(&pool));
    pool.attach("b", c.clone(), false).unwrap();
    assert!(resilver(&pool));
    assert_eq!(states(&pool), [State::Complete; 3]);
    pool.detach("a").unwrap();
    assert_eq!(labels::read_label(&*a).unwrap(), None, "it is nobody's");
    pool.detach("b").unwrap();
    assert!(matches!(pool.label().vdevs[0].tree, VdevTree::Leaf(_)));
    assert!(matches!(pool.detach("c"), Err(Error::Request(_))));
    let newest = commit(&pool, 2);
    drop(pool);
    assert_eq!(alone(&c), newest);
}

#[test]
fn a_device_is_replaced_also_when_it_is_away() {
    for is_away in [false, true] {
        let (disks, new) = (disks("a b"), disk("new"));
        let pool = mirror(&disks);
        if is_away {
            disks[1].vanish();
            commit(&pool, 1);
        }
        pool.attach("b", new.clone(), true).unwrap();
        assert!(matches!(pool.attach("b", disk("other"), true), Err(Error::Request(_))));
        commit(&pool, 2);
        drop(pool);
        disks[1].heal();
        // The replacement survives an interruption.
        let pool = opened(&[&disks[0], &disks[1], &new], 4).unwrap();
        assert!(resilver(&pool));
        assert_eq!(states(&pool), [State::Complete; 2]);
        let newest = commit(&pool, 2);
        drop(pool);
        assert_eq!((alone(&disks[0]), alone(&new)), (newest, newest));
    }
}

#[test]
fn a_device_away_at_an_import_is_resilvered_from_its_last_state() {
    for is_first in [true, false] {
        let disks = disks("a b");
        let pool = mirror(&disks);
        commit(&pool, 20);
        drop(pool);
        if !is_first {
            let pool = opened(&[&disks[0], &disks[1]], 2).unwrap();
            commit(&pool, 20);
        }
        let newest = shown(opened_with(&[&disks[0], &disks[1]], &reading(None), 3).unwrap().engine());
        let pool = opened(&[&disks[0]], 3).unwrap();
        commit(&pool, 3);
        drop(pool);
        let pool = opened(&[&disks[0], &disks[1]], 4).unwrap();
        assert_eq!(
            (states(&pool)[1], pool.engine().resilvering().unwrap().since),
            (State::Resilvering, newest.back(1))
        );
        assert!(resilver(&pool));
        let newest = commit(&pool, 2);
        drop(pool);
        assert_eq!(alone(&disks[1]), newest);
    }
}

#[test]
fn who_is_offline_stays_so_until_the_operator_says_otherwise() {
    for temporary in [false, true] {
        let disks = disks("a b");
        let pool = mirror(&disks);
        pool.put_offline("a", temporary).unwrap();
        let health = |pool: &Pool| pool.find_device("a").unwrap().1.health();
        assert_eq!((states(&pool)[0], health(&pool)), (State::Out, Health::Offline));
        assert!(matches!(pool.put_offline("b", false), Err(Error::Request(_))));
        commit(&pool, 3);
        drop(pool);
        let pool = opened(&[&disks[0], &disks[1]], 3).unwrap();
        assert_eq!(states(&pool)[0], if temporary { State::Resilvering } else { State::Out });
        if !temporary {
            assert_eq!(health(&pool), Health::Offline);
            assert!(pool.put_online("a", &reopen(&disks[0])).unwrap());
        }
        assert!(resilver(&pool));
        let newest = commit(&pool, 1);
        drop(pool);
        assert_eq!(alone(&disks[0]), newest);
    }
}

/// True if refusing these devices alone is right: they are behind by the newest label, or a device is complete by the
/// newest label and not yet by its own.
fn is_not_enough(all: &[Disk], there: &[&Disk]) -> bool {
    let newest = |disks: &[&Disk]| -> Option<Label> {
        disks.iter().filter_map(|disk| labels::read_label(&***disk).unwrap()).max_by_key(|label| label.txg)
    };
    let is_complete = |label: &Label| {
        let VdevTree::Mirror(mirror) = &label.vdevs[0].tree else { return true };
        let is_there = |path: &str| there.iter().any(|disk| disk.name() == path);
        mirror.members.iter().any(|member| member.behind.is_none() && is_there(&member.leaf.path))
    };
    let (whole, own) = (newest(&all.iter().collect::<Vec<_>>()).unwrap(), newest(there));
    own.is_none_or(|own| !is_complete(&own) && (!is_complete(&whole) || own.txg < whole.txg))
}

/// Opens the images of a crash, with all devices or some, and requires a whole, lasting state within `span`.
fn survives(images: Vec<MemoryDevice>, missing: Option<usize>, span: std::ops::RangeInclusive<Txg>, what: &str) {
    let images: Vec<Disk> = images.into_iter().map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
    let belongs = |disk: &&Disk| matches!(labels::read_label(&***disk), Ok(Some(_)));
    let there = |(at, _): &(usize, &Disk)| Some(*at) != missing;
    let there: Vec<&Disk> = images.iter().enumerate().filter(there).map(|(_, disk)| disk).filter(belongs).collect();
    let pool = match opened(&there, 7) {
        Ok(pool) => pool,
        Err(Error::Incomplete { .. }) if missing.is_some() => return assert!(is_not_enough(&images, &there), "{what}"),
        Err(error) => panic!("{what}: {error}"),
    };
    let state = shown(pool.engine());
    assert!(span.contains(&state), "{what}: {state}");
    resilver(&pool);
    let newest = commit(&pool, 2);
    assert_eq!(shown(pool.engine()), newest, "{what}");
    let complete: Vec<bool> = states(&pool).iter().map(|state| *state == State::Complete).collect();
    let names: Vec<String> = pool.label().vdevs[0].tree.leaves().map(|leaf| leaf.path.clone()).collect();
    drop(pool);
    for (name, _) in names.iter().zip(complete).filter(|(_, is_complete)| *is_complete) {
        let disk = images.iter().find(|disk| disk.name() == *name).unwrap();
        assert_eq!(alone(disk), newest, "{what}: {name} alone");
    }
}

#[test]
fn nothing_is_lost_by_a_crash_in_a_failure_or_resilver() {
    let recorder = Recorder::new();
    let faulty = Arc::new(FaultDevice::new(Arc::new(recorder.wrap(MemoryDevice::new("b", 64 * MIB)))));
    let whole: Arc<dyn Device> = Arc::new(recorder.wrap(MemoryDevice::new("a", 64 * MIB)));
    let pool = made(vec![faulty.clone(), whole]);
    let mut known = vec![(recorder.len(), pool.engine().committed())];
    let mut note = |pool: &Pool| {
        commit(pool, 1);
        known.push((recorder.len(), pool.engine().committed()));
    };
    note(&pool);
    faulty.inject(Fault { skip: 3, ..Fault::failing(Operation::Write) });
    (0..3).for_each(|_| note(&pool));
    faulty.heal();
    let device: Arc<dyn Device> = faulty.clone();
    assert!(pool.put_online("b", &move |_| Ok(device.clone())).unwrap());
    note(&pool);
    assert!(resilver(&pool));
    note(&pool);
    let last = pool.engine().committed();
    drop(pool);
    let begin = known[0].0;
    for (cut, seed) in cuts(begin..=recorder.len(), 3) {
        let promised = known.iter().rev().find(|(at, _)| *at <= cut).unwrap().1;
        for missing in [None, Some(0), Some(1)] {
            let images = recorder.images_at(cut, &mut Fate::seeded(seed));
            // A device alone may show the state of its last use.
            let span = if missing.is_none() { promised..=last } else { Txg::ZERO..=last };
            survives(images, missing, span, &format!("cut {cut}, seed {seed}, without {missing:?}"));
        }
    }
}

#[test]
fn the_pool_is_whole_after_a_crash_in_a_replacement() {
    let recorder = Recorder::new();
    let wrap = |name| Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB))) as Arc<dyn Device>;
    let (a, b, new) = (wrap("a"), wrap("b"), wrap("new"));
    let pool = made(vec![a, b]);
    let (begin, first) = (recorder.len(), pool.engine().committed());
    pool.attach("b", new, true).unwrap();
    assert!(resilver(&pool));
    let last = commit(&pool, 1);
    drop(pool);
    for (cut, seed) in cuts(begin..=recorder.len(), 3) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        survives(images, None, first..=last, &format!("cut {cut}, seed {seed}"));
    }
}

#[test]
fn rot_on_one_device_is_read_from_the_other_and_repaired() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    let newest = commit(&pool, 3);
    drop(pool);
    let len = 64 * MIB - 2 * MIB;
    disks[0].write_at(DATA_START, &vec![0xee; len as usize]).unwrap();
    disks[0].flush().unwrap();
    let pool = opened(&[&disks[0], &disks[1]], 3).unwrap();
    let engine: &Arc<Engine> = pool.engine();
    let (state, pointer) = stamp(engine);
    assert_eq!(state, newest);
    assert!(engine.storage().read_block(&pointer, Seen::HELD).is_ok());
    let errors: Vec<u64> = engine.storage().vdevs.all()[0]
        .leaves()
        .iter()
        .map(|leaf| leaf.counters().snapshot().checksum_errors)
        .collect();
    assert!(errors[0] > 0 && errors[1] == 0, "{errors:?}");
    let still = engine.hold_still();
    let space = still.repair_space(OwnCursor::default(), u64::MAX);
    assert!(space.repaired > 0 && space.lost == 0, "{space:?}");
    let again = still.repair_space(OwnCursor::default(), u64::MAX);
    assert!(again.bad.is_empty(), "{again:?}");
}

#[test]
fn a_device_leaves_only_if_another_has_all_states_to_rewind_to() {
    let (old, new) = (disk("old"), disk("new"));
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&[NewVdev::Disk(old.clone())], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 6);
    pool.attach("old", new.clone(), true).unwrap();
    assert!(resilver(&pool));
    assert!(matches!(pool.label().vdevs[0].tree, VdevTree::Leaf(_)));
    drop(pool);
    let device: Arc<dyn Device> = new.clone();
    let kept = rewind_states(std::slice::from_ref(&device), &writing()).unwrap();
    assert!(kept.len() >= SAFE_STATES, "{kept:?}");
    for state in kept.iter().take(SAFE_STATES) {
        assert_eq!(shown(opened_with(&[&new], &reading(Some(state.txg)), 3).unwrap().engine()), state.txg);
    }
}

#[test]
fn an_import_knows_since_when_a_device_has_everything() {
    let (old, new) = (disk("old"), disk("new"));
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&[NewVdev::Disk(old.clone())], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 6);
    pool.attach("old", new.clone(), false).unwrap();
    assert!(resilver(&pool));
    assert_eq!(states(&pool), [State::Complete; 2]);
    drop(pool);
    let pool = opened(&[&old, &new], 2).unwrap();
    pool.detach("old").unwrap();
    drop(pool);
    let device: Arc<dyn Device> = new.clone();
    let kept = rewind_states(std::slice::from_ref(&device), &writing()).unwrap();
    assert!(kept.len() >= SAFE_STATES, "{kept:?}");
    for state in kept.iter().take(SAFE_STATES) {
        assert_eq!(shown(opened_with(&[&new], &reading(Some(state.txg)), 3).unwrap().engine()), state.txg);
    }
}

#[test]
fn one_that_lacks_something_and_went_on_alone_is_a_split() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    commit(&pool, 2);
    let away = copied(&disks[1]);
    disks[1].vanish();
    // The label is written, but no commit: the state of the absent device is an ancestor of this one.
    pool.engine().storage().vdevs.all()[0].degrade(pool.find_device("b").unwrap().1.guid(), Health::Unavailable);
    pool.engine().storage().vdevs.flush().unwrap();
    for name in ["once", "twice", "again", "more"] {
        pool.rename(name).unwrap();
    }
    drop(pool);
    commit(&opened(&[&away], 5).unwrap(), 1);
    for order in [[&disks[0], &away], [&away, &disks[0]]] {
        let label = |disk: &Disk| labels::read_label(&**disk).unwrap().unwrap().txg;
        assert!(label(&disks[0]) > label(&away), "the label that counts calls the other one behind");
        let error = opened(&order, 6).err().unwrap();
        assert!(matches!(error, Error::Split { .. }), "{error}");
    }
}

#[test]
fn a_device_that_was_away_through_many_imports_is_known_again() {
    // The last uberblock that the device may have, and the one it has, are of an import that the rings no longer hold.
    for is_first_commit in [false, true] {
        let disks = disks("a b");
        drop(mirror(&disks));
        let pool = opened(&[&disks[0], &disks[1]], 2).unwrap();
        if !is_first_commit {
            commit(&pool, 1);
        }
        let away = copied(&disks[1]);
        // The flush before the uberblock fails: the device was expected to get the uberblock, and does not.
        disks[1].inject(Fault::failing(Operation::Flush));
        commit(&pool, 1);
        assert_eq!(states(&pool), [State::Complete, State::Out]);
        drop(pool);
        for seed in 3..6 {
            commit(&opened(&[&disks[0]], seed).unwrap(), 40);
        }
        let pool = opened(&[&disks[0], &away], 7).unwrap();
        assert_eq!(states(&pool), [State::Complete, State::Resilvering]);
        assert!(resilver(&pool));
        let newest = commit(&pool, 1);
        drop(pool);
        assert_eq!(alone(&away), newest);
    }
}

#[test]
fn a_shrunken_device_is_faulted_with_an_explanation() {
    let disks = disks("a b");
    drop(mirror(&disks));
    let cut: Disk = Arc::new(FaultDevice::new(Arc::new(resized(&*disks[1], 63 * MIB))));
    let pool = opened(&[&disks[0], &cut], 2).unwrap();
    assert_eq!(states(&pool), [State::Complete, State::Out]);
    let trouble = pool.find_device("b").unwrap().1.trouble().unwrap();
    assert!(trouble.contains("but its label says 64M"), "{trouble}");
}

#[test]
fn a_suspended_pool_is_cleared_without_a_redundant_device() {
    let disks = disks("a b c");
    let pool = mirror(&disks);
    let (new, suspension) = (disk("new"), pool.engine().suspension());
    suspension.enable();
    pool.attach("a", new.clone(), false).unwrap();
    suspension.suspend(suspension.era(), &Error::Request("a cable was pulled".into()));
    disks[2].vanish();
    new.vanish();
    let gone = |name: &str| Err(Error::Request(format!("{name} is away")));
    pool.clear(&gone).unwrap();
    assert!(!suspension.is_suspended());
    assert_eq!(states(&pool), [State::Complete, State::Complete, State::Out, State::Out]);
    commit(&pool, 2);
    assert_eq!(behind(&pool), [false, false, true, true]);
    // The pool stays suspended if no device is left.
    suspension.suspend(suspension.era(), &Error::Request("a cable was pulled".into()));
    disks.iter().for_each(|disk| disk.vanish());
    assert!(pool.clear(&gone).is_err());
    assert!(suspension.is_suspended());
    assert_eq!(states(&pool), [State::Complete, State::Complete, State::Out, State::Out]);
    suspension.abandon();
}

#[test]
fn a_replacement_is_not_replaced_itself() {
    let (disks, new) = (disks("a b"), disk("new"));
    let pool = mirror(&disks);
    pool.attach("b", new, true).unwrap();
    assert!(matches!(pool.attach("new", disk("other"), true), Err(Error::Request(_))));
    pool.attach("new", disk("third"), false).unwrap();
    assert!(resilver(&pool));
    assert_eq!(states(&pool), [State::Complete; 3]);
}
