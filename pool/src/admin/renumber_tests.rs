//! Changing the GUID of pools, at every power failure.

use std::sync::Arc;

use super::{
    NewVdev, Pool, create_of,
    members_tests::{Disk, disks, mirror, opened, resilver, states},
    open,
    stamped::{Stamp, commit, settings, shown, writing},
};
use crate::{
    admin::CreateOptions,
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    error::Error,
    units::{Guid, MIB, Txg},
    vdev::{State, labels, repair},
};

const NEW: Guid = Guid(0xcafe);

fn number(device: &dyn Device) -> Guid {
    labels::read_label(device).unwrap().unwrap().pool
}

#[test]
fn a_pool_changes_its_guid_and_a_copy_keeps_the_old_one() {
    let disks = disks("a b c");
    let pool = mirror(&disks[..2]);
    pool.add_spares(&[disks[2].clone()]).unwrap();
    let old = pool.label().pool;
    pool.renumber(NEW).unwrap();
    assert_eq!((pool.label().pool, pool.engine().guid()), (NEW, NEW));
    assert!(disks.iter().all(|disk| number(&**disk) == NEW));
    // Uberblocks with the old GUID are no damage.
    let examined = repair::repair_uberblocks(&*disks[0], NEW, &[], false).unwrap();
    assert_eq!((examined.bad, examined.repaired), (0, 0));
    let newest = commit(&pool, 3);
    drop(pool);
    let pool = opened(&[&disks[0], &disks[1], &disks[2]], 3).unwrap();
    assert_eq!((pool.label().pool, shown(pool.engine())), (NEW, newest));
    assert_eq!(states(&pool), [State::Complete; 2]);
    pool.renumber(old).unwrap();
    let newest = commit(&pool, 40);
    assert_eq!((pool.label().pool, shown(pool.engine())), (old, newest));
}

#[test]
fn who_would_not_be_known_again_keeps_the_number_as_it_is() {
    let disks = disks("a b c");
    let pool = mirror(&disks[..2]);
    let old = pool.label().pool;
    pool.put_offline("b", false).unwrap();
    assert!(matches!(pool.renumber(NEW), Err(Error::Request(problem)) if problem.starts_with("b is missing")));
    pool.detach("b").unwrap();
    pool.attach("a", disks[2].clone(), false).unwrap();
    assert!(matches!(pool.renumber(NEW), Err(Error::Request(_))));
    assert_eq!(pool.engine().guid(), old);
    assert!(resilver(&pool));
    pool.renumber(NEW).unwrap();
}

#[test]
fn unwritable_labels_leave_the_old_guid_or_the_new_one() {
    let mut outcomes = [false; 2];
    for skip in 0..24 {
        let disks = disks("a");
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = create_of(&[NewVdev::Disk(disks[0].clone())], &options, Arc::new(SeededEnv::new(1))).unwrap();
        pool.engine().set_client(Arc::new(Stamp));
        let before = commit(&pool, 4);
        disks[0].inject(Fault { skip, ..Fault::failing(Operation::Write) });
        let renumbered = pool.renumber(NEW);
        disks[0].heal();
        drop(pool);
        let pool = opened(&[&disks[0]], 2).unwrap();
        let is_new = pool.label().pool == NEW;
        assert!(is_new || renumbered.is_err(), "{skip}");
        assert!(shown(pool.engine()) >= before, "{skip}");
        let newest = commit(&pool, 2);
        assert_eq!(shown(pool.engine()), newest, "{skip}");
        outcomes[usize::from(is_new)] = true;
    }
    assert_eq!(outcomes, [true; 2]);
}

#[test]
fn after_a_crash_the_pool_has_one_guid_and_all_its_devices() {
    let recorder = Recorder::new();
    let wrap = |name| Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB))) as Arc<dyn Device>;
    let devices: Vec<Arc<dyn Device>> = ["a", "b", "c", "d"].map(wrap).into();
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let vdevs = [NewVdev::Mirror(devices[..2].to_vec()), NewVdev::Disk(devices[2].clone())];
    let pool: Pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    pool.add_spares(&devices[3..]).unwrap();
    let first = commit(&pool, 4);
    let (begin, old) = (recorder.len(), pool.label().pool);
    pool.renumber(NEW).unwrap();
    let end = recorder.len();
    let last: Txg = commit(&pool, 1);
    drop(pool);
    let mut mixed = 0;
    for (cut, seed) in cuts(begin..=recorder.len(), 4) {
        let what = format!("cut {cut}, seed {seed}");
        let images = recorder.images_at(cut, &mut Fate::seeded(seed)).into_iter();
        let images: Vec<Disk> = images.map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
        let is_new = images.iter().any(|disk| number(&**disk) == NEW);
        mixed += usize::from(is_new && images.iter().any(|disk| number(&**disk) == old));
        for order in [[0, 1, 2, 3], [3, 2, 1, 0]] {
            let there = order.map(|at| images[at].clone() as Arc<dyn Device>).to_vec();
            let pool = open(there, &writing(), Arc::new(SeededEnv::new(7))).unwrap_or_else(|e| panic!("{what}: {e}"));
            pool.engine().set_client(Arc::new(Stamp));
            let state = shown(pool.engine());
            assert!((first..=last).contains(&state) || order[0] == 3, "{what}: {state}");
            assert_eq!(pool.label().pool, if is_new { NEW } else { old }, "{what}");
            assert!(is_new || cut < end, "{what}");
            // A device without the newest uberblock is resilvered.
            assert!(!states(&pool).contains(&State::Out), "{what}");
            assert_eq!(pool.spares().len(), 1, "{what}");
            commit(&pool, 1);
            drop(pool);
            assert!(images.iter().all(|disk| number(&**disk) == if is_new { NEW } else { old }), "{what}");
        }
    }
    assert!(mixed > 0);
}
