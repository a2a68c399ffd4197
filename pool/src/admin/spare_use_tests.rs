//! Manual use of spares, and replacing devices with a spare, at every power failure.

use std::sync::Arc;

use super::{
    NewVdev, Pool, create_of,
    members_tests::{Disk, alone, disks, mirror, opened, reopen, resilver, states},
    spares_tests::{device, failed, listed, sized, spares},
    stamped::{Stamp, commit, settings, shown},
};
use crate::{
    admin::CreateOptions,
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    units::{MIB, Txg},
    vdev::{State, labels},
};

/// The paths of the devices of the first vdev, by the labels.
fn paths(pool: &Pool) -> Vec<String> {
    pool.label().vdevs[0].tree.leaves().map(|leaf| leaf.path.clone()).collect()
}

#[test]
fn a_spare_put_in_use_by_hand_stays_until_it_is_detached() {
    let disks = disks("a b c d");
    let pool = mirror(&disks[..2]);
    let small = sized("small", 40 * MIB);
    pool.add_spares(&[device(&disks[2]), device(&disks[3]), device(&small)]).unwrap();
    assert!(!pool.use_spare("b", "nobody").unwrap());
    assert!(pool.use_spare("b", "small").unwrap_err().to_string().contains("small is too small"));
    assert!(pool.use_spare("b", "c").unwrap());
    assert_eq!(pool.use_spare("a", "c").unwrap_err().to_string(), "the spare c is already in use");
    assert!(pool.use_spare("b", "d").is_err(), "one stands in for it already");
    assert_eq!(pool.spare_step().unwrap(), []);
    assert!(resilver(&pool));
    assert_eq!((pool.spare_step().unwrap(), states(&pool)), (vec![], vec![State::Complete; 3]));
    let newest = commit(&pool, 2);
    assert_eq!(alone(&disks[2]), newest);
    pool.detach("c").unwrap();
    assert_eq!(spares(&pool), listed(&[("c", false), ("d", false), ("small", false)]));
    // The next time it steps in on its own, not by request.
    disks[1].inject(Fault::failing(Operation::Write));
    commit(&pool, 1);
    assert_eq!(pool.spare_step().unwrap().len(), 1);
    assert!(resilver(&pool));
    disks[1].heal();
    assert!(pool.put_online("b", &reopen(&disks[1])).unwrap());
    assert!(resilver(&pool));
    assert_eq!((pool.spare_step().unwrap().len(), paths(&pool)), (1, vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn replacing_a_device_with_a_spare_frees_the_spare() {
    let disks = disks("a b c new");
    let pool = failed(&disks);
    pool.spare_step().unwrap();
    assert!(resilver(&pool));
    let small = sized("small", 40 * MIB);
    assert!(pool.attach("b", device(&small), true).is_err());
    assert_eq!(paths(&pool), ["a", "b", "c"], "what is refused changes nothing");
    pool.attach("b", device(&disks[3]), true).unwrap();
    assert_eq!(states(&pool), [State::Complete, State::Complete, State::Resilvering]);
    assert_eq!((pool.spare_step().unwrap(), spares(&pool)), (vec![], listed(&[("c", true)])));
    assert!(resilver(&pool));
    assert_eq!((pool.spare_step().unwrap(), spares(&pool)), (vec![], listed(&[("c", false)])));
    assert_eq!(paths(&pool), ["a", "new"]);
    let newest = commit(&pool, 2);
    drop(pool);
    assert_eq!(alone(&disks[3]), newest);
}

#[test]
fn a_useless_spare_is_returned_before_a_replacement() {
    let disks = disks("a b c new");
    let pool = failed(&disks);
    pool.spare_step().unwrap();
    pool.attach("b", device(&disks[3]), true).unwrap();
    assert_eq!((states(&pool).len(), spares(&pool)), (3, listed(&[("c", false)])));
    assert!(resilver(&pool));
    assert_eq!((pool.spare_step().unwrap(), paths(&pool)), (vec![], vec!["a".to_owned(), "new".to_owned()]));
    // This time the device is complete beside the spare.
    let last = sized("last", 64 * MIB);
    pool.use_spare("new", "c").unwrap();
    assert!(resilver(&pool));
    pool.attach("new", device(&last), true).unwrap();
    assert_eq!(spares(&pool), listed(&[("c", false)]));
    assert!(resilver(&pool));
    assert_eq!(paths(&pool), ["a", "last"]);
}

#[test]
fn the_same_holds_in_a_raidz_and_refusals_name_the_device() {
    let disks = disks("a b c s new");
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let raidz = NewVdev::RaidZ { parity: 1, devices: disks[..3].iter().map(device).collect() };
    let pool = create_of(&[raidz], &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    pool.add_spares(&[device(&disks[3])]).unwrap();
    disks[1].inject(Fault::failing(Operation::Write));
    commit(&pool, 2);
    pool.spare_step().unwrap();
    assert!(resilver(&pool));
    let refused = pool.detach("s").unwrap_err().to_string();
    assert_eq!(refused, "no other device of raidz1-0 has all data of s: replace b instead");
    pool.attach("b", device(&disks[4]), true).unwrap();
    assert_eq!(paths(&pool), ["a", "s", "new", "c"]);
    assert!(resilver(&pool));
    assert_eq!((pool.spare_step().unwrap(), spares(&pool)), (vec![], listed(&[("s", false)])));
    let newest = commit(&pool, 2);
    drop(pool);
    assert_eq!(shown(opened(&[&disks[0], &disks[4]], 4).unwrap().engine()), newest);
}

#[test]
fn nothing_is_lost_by_a_crash_while_replacing_past_a_spare() {
    let recorder = Recorder::new();
    let recorded = |name| Arc::new(FaultDevice::new(Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB)))));
    let disks: Vec<Disk> = ["a", "b", "c", "new"].map(recorded).to_vec();
    let pool = failed(&disks);
    pool.spare_step().unwrap();
    assert!(resilver(&pool));
    let promised = commit(&pool, 4);
    let begin = recorder.len();
    pool.attach("b", device(&disks[3]), true).unwrap();
    assert!(resilver(&pool));
    assert_eq!((pool.spare_step().unwrap(), paths(&pool)), (vec![], vec!["a".to_owned(), "new".to_owned()]));
    let last = commit(&pool, 1);
    drop(pool);
    for (cut, seed) in cuts(begin..=recorder.len(), 2) {
        let what = format!("cut {cut}, seed {seed}");
        let images = recorder.images_at(cut, &mut Fate::seeded(seed)).into_iter();
        let images: Vec<Disk> = images.map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
        // The failed device is gone.
        let is_there = |disk: &&Disk| disk.name() != "b" && matches!(labels::read_label(&***disk), Ok(Some(_)));
        let pool = opened(&images.iter().filter(is_there).collect::<Vec<_>>(), 7);
        let pool = pool.unwrap_or_else(|error| panic!("{what}: {error}"));
        let state: Txg = shown(pool.engine());
        assert!((promised..=last).contains(&state), "{what}: {state}");
        let is_idle = (0..9).any(|_| !resilver(&pool) && pool.spare_step().unwrap().is_empty());
        assert!(is_idle, "{what}: {:?}", states(&pool));
        assert!(states(&pool).iter().filter(|state| **state == State::Complete).count() >= 2, "{what}");
        let (newest, there) = (commit(&pool, 2), paths(&pool));
        assert!(there == ["a", "b", "c"] || there == ["a", "new"], "{what}: {there:?}");
        drop(pool);
        let other = images.iter().find(|disk| disk.name() == there[there.len() - 1]).unwrap();
        assert_eq!(alone(other), newest, "{what}: {} alone", other.name());
    }
}
