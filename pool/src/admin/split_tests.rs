//! Splitting pools of mirrors on simulated devices, at every power failure.

use std::{sync::Arc, time::Duration};

use super::{
    NewVdev, OpenOptions, Pool, SAFE_STATES, create_of,
    members_tests::{leaving::Healed, resilver},
    open,
    stamped::{Stamp, commit, settings, shown, writing},
};
use crate::{
    admin::CreateOptions,
    device::{DeadlineDevice, Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder, cuts},
    env::SeededEnv,
    error::{Error, Result},
    format::label::{Label, PoolState},
    units::{Guid, MIB, Txg},
    vdev::{Sources, State, Vdev, labels, repair},
};

type Disk = Arc<FaultDevice>;

fn disk(name: &str) -> Disk {
    Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new(name, 64 * MIB))))
}

fn as_device(disk: &Disk) -> Arc<dyn Device> {
    disk.clone()
}

/// A pool of mirrors.
fn made(mirrors: &[&[Arc<dyn Device>]]) -> Pool {
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let vdevs: Vec<NewVdev> = mirrors.iter().map(|devices| NewVdev::Mirror(devices.to_vec())).collect();
    let pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 4);
    pool
}

fn opened_with(devices: Vec<Arc<dyn Device>>, options: &OpenOptions, seed: u64) -> Result<Pool> {
    let pool = open(devices, options, Arc::new(SeededEnv::new(seed)))?;
    pool.engine().set_client(Arc::new(Stamp));
    Ok(pool)
}

fn opened(of: &[&Disk], seed: u64) -> Result<Pool> {
    opened_with(of.iter().map(|disk| as_device(disk)).collect(), &writing(), seed)
}

fn label_of(device: &dyn Device) -> Label {
    labels::read_label(device).unwrap().unwrap()
}

fn paths(pool: &Pool, named: &[&str]) -> Result<Vec<String>> {
    let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
    Ok(pool.plan_split(&named)?.into_iter().map(|leaving| leaving.path).collect())
}

fn refusal(pool: &Pool, named: &[&str]) -> String {
    match paths(pool, named) {
        Err(error @ (Error::Request(_) | Error::NoDevice { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_pools_come_of_one_and_each_goes_on() {
    let disks: Vec<Disk> = ["a", "b", "c", "d"].map(disk).into();
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| as_device(&disks[at]));
    let pool = made(&[&[a, b], &[c, d]]);
    assert_eq!(paths(&pool, &[]).unwrap(), ["b", "d"]);
    assert_eq!(paths(&pool, &["c"]).unwrap(), ["b", "c"]);
    let before = pool.engine().committed();
    let new = pool.split("other", &pool.plan_split(&[]).unwrap()).unwrap();
    assert_eq!((new.pool_name.as_str(), new.state), ("other", PoolState::Exported));
    assert_ne!(new.pool, pool.label().pool);
    let old = commit(&pool, 5);
    let kept: Vec<String> =
        pool.label().vdevs.iter().flat_map(|vdev| vdev.tree.leaves()).map(|leaf| leaf.path.clone()).collect();
    assert_eq!(kept, ["a", "c"]);
    let other = opened(&[&disks[3], &disks[1]], 2).unwrap();
    assert_eq!((other.name(), other.label().pool), ("other".to_owned(), new.pool));
    assert_eq!(shown(other.engine()), before);
    let later = commit(&other, 40);
    assert_eq!((shown(other.engine()), shown(pool.engine())), (later, old));
    drop((pool, other));
    assert_eq!(shown(opened(&[&disks[0], &disks[2]], 3).unwrap().engine()), old);
    assert_eq!(shown(opened(&[&disks[1], &disks[3]], 4).unwrap().engine()), later);
    // Uberblocks of the old pool are no damage to the new one.
    let examined = repair::repair_uberblocks(&*disks[1], new.pool, &[], false).unwrap();
    assert_eq!((examined.bad, examined.repaired), (0, 0));
    // Devices of the two pools cannot be mixed.
    assert!(matches!(opened(&[&disks[0], &disks[3]], 5), Err(Error::Request(_))));
}

#[test]
fn what_cannot_be_split_is_refused_in_words() {
    let disks: Vec<Disk> = ["a", "b", "c"].map(disk).into();
    let [a, b, c] = [0, 1, 2].map(|at| as_device(&disks[at]));
    let pool = made(&[&[a, b]]);
    assert_eq!(refusal(&pool, &["a", "b"]), "b and a belong to the same mirror; name one device for each mirror");
    assert_eq!(refusal(&pool, &["x"]), "no such device in pool: x");
    pool.attach("a", c, false).unwrap();
    assert_eq!(refusal(&pool, &[]), "mirror-0 is being resilvered; wait until the resilver finishes");
    pool.detach("c").unwrap();
    pool.put_offline("b", false).unwrap();
    assert_eq!(refusal(&pool, &[]), "mirror-0 has only one complete device");
    assert_eq!(refusal(&pool, &["b"]), "b lacks data of mirror-0");
    pool.add(vec![as_device(&disk("e"))]).unwrap();
    pool.detach("b").unwrap();
    assert!(refusal(&pool, &[]).ends_with("is not a mirror: only a pool of mirrors can be split"));
}

#[test]
fn a_device_that_fails_while_it_leaves_leaves_the_pool_whole() {
    for skip in 0..14 {
        let disks: Vec<Disk> = ["a", "b"].map(disk).into();
        let pool = made(&[&[as_device(&disks[0]), as_device(&disks[1])]]);
        let plan = pool.plan_split(&[]).unwrap();
        commit(&pool, 4);
        disks[1].inject(Fault { skip, ..Fault::failing(Operation::Write) });
        let split = pool.split("other", &plan);
        let newest = commit(&pool, 2);
        assert_eq!(shown(pool.engine()), newest, "{skip}");
        disks[1].heal();
        if split.is_err() && pool.find_device("b").is_ok() {
            pool.detach("b").unwrap();
        }
        // Whatever its labels say now, it can be attached again.
        pool.attach("a", as_device(&disks[1]), false).unwrap();
        drop(pool);
        assert_eq!(shown(opened(&[&disks[0]], 3).unwrap().engine()), newest, "{skip}");
    }
}

#[test]
fn nobody_leaves_before_all_that_devices_were_asked_is_answered() {
    const FOREVER: Duration = Duration::from_secs(3600);
    let disks: Vec<Disk> = ["a", "b", "c", "d"].map(disk).into();
    let slow = Arc::new(DeadlineDevice::new(disks[1].clone(), FOREVER));
    let [a, c, d] = [0, 2, 3].map(|at| as_device(&disks[at]));
    let pool = made(&[&[a, slow.clone()], &[c, d]]);
    commit(&pool, SAFE_STATES);
    let plan = pool.plan_split(&[]).unwrap();
    // A bulk read is abandoned and served by another member: the device counts as good as before.
    let vdev = pool.find_device("b").unwrap().0;
    disks[1].inject(Fault::hanging(Operation::Read));
    slow.set_deadline(Duration::from_millis(50));
    let _healed = Healed(disks[1].clone());
    assert!(vdev.begin(0, 512, Sources::All)(&|_| true).is_none());
    slow.set_deadline(FOREVER);
    assert_eq!(slow.outstanding(), 1);
    let refused = pool.split("other", &plan).unwrap_err().to_string();
    assert!(refused.contains("still has unanswered requests"), "{refused}");
    // All are in the pool as before, and are resilvered.
    let states = || {
        let vdevs = pool.engine().storage().vdevs.all();
        let of = |vdev: &Arc<dyn Vdev>| vdev.as_group().unwrap().members()[1].state();
        vdevs.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(states(), [State::Resilvering; 2]);
    assert!(disks.iter().skip(2).all(|disk| label_of(&**disk).pool == pool.label().pool));
    disks[1].heal();
    while slow.outstanding() > 0 {
        std::thread::yield_now();
    }
    assert!(label_of(&*disks[1]).pool == pool.label().pool);
    assert!(resilver(&pool));
    assert_eq!(states(), [State::Complete; 2]);
    let before = commit(&pool, 1);
    pool.split("other", &plan).unwrap();
    let other = opened(&[&disks[1], &disks[3]], 2).unwrap();
    assert!(shown(other.engine()) >= before);
}

/// The images that belong to the pool with this GUID.
fn of_pool(images: &[Arc<dyn Device>], pool: Guid) -> Vec<Arc<dyn Device>> {
    let is_of = |device: &&Arc<dyn Device>| label_of(&***device).pool == pool;
    images.iter().filter(is_of).cloned().collect()
}

#[test]
fn after_a_crash_the_old_pool_is_whole_the_new_whole_or_free() {
    let recorder = Recorder::new();
    let wrap = |name| Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB))) as Arc<dyn Device>;
    let (a, b, c, d) = (wrap("a"), wrap("b"), wrap("c"), wrap("d"));
    let pool = made(&[&[a, b], &[c, d]]);
    let plan = pool.plan_split(&[]).unwrap();
    let old = pool.label().pool;
    let (begin, first) = (recorder.len(), pool.engine().committed());
    let new = pool.split("other", &plan).unwrap().pool;
    let end = recorder.len();
    let base = pool.engine().committed();
    let last = commit(&pool, 1);
    drop(pool);
    let (mut free, mut whole, mut brought_back) = (0, 0, 0);
    for (cut, seed) in cuts(begin..=recorder.len(), 4) {
        let what = format!("cut {cut}, seed {seed}");
        let images = || -> Vec<Arc<dyn Device>> {
            let images = recorder.images_at(cut, &mut Fate::seeded(seed)).into_iter();
            images.map(|image| Arc::new(image) as Arc<dyn Device>).collect()
        };
        let copies = images();
        let images = images();
        let (staying, leaving) = (of_pool(&images, old), of_pool(&images, new));
        assert_eq!(staying.len() + leaving.len(), 4, "{what}: each is of one of them");
        let pool = opened_with(staying, &writing(), 7).unwrap_or_else(|error| panic!("{what}: {error}"));
        let state = shown(pool.engine());
        assert!((first..=last).contains(&state), "{what}: {state}");
        commit(&pool, 2);
        let is_whole = leaving.iter().any(|device| label_of(&**device).state == PoolState::Exported);
        assert!(is_whole || cut < end, "{what}: it is done");
        if is_whole {
            whole += 1;
            let other = opened_with(leaving.clone(), &writing(), 8).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(shown(other.engine()), base, "{what}");
            let later = commit(&other, 2);
            assert_eq!(shown(other.engine()), later, "{what}");
        } else {
            // They are free, and opening them is refused with an explanation.
            free += leaving.len();
            assert!(leaving.is_empty() || opened_with(leaving.clone(), &writing(), 8).is_err(), "{what}");
            // With force they open only as the new pool.
            let on_purpose = OpenOptions { force: true, ..writing() };
            if let Ok(other) = opened_with(of_pool(&copies, new), &on_purpose, 8) {
                brought_back += 1;
                assert_eq!(shown(other.engine()), base, "{what}");
            }
            let known = |device: &&Arc<dyn Device>| pool.find_device(device.name()).is_ok();
            let gone: Vec<_> = leaving.iter().filter(|device| !known(device)).cloned().collect();
            for device in gone {
                let beside = if device.name() == "b" { "a" } else { "c" };
                pool.attach(beside, device, false).unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            for (name, spare) in [("b", "e"), ("d", "f")] {
                if let Ok((vdev, leaf)) = pool.find_device(name)
                    && vdev.as_group().is_some_and(|g| g.member(leaf.guid()).unwrap().state() == State::Out)
                {
                    pool.attach(name, Arc::new(MemoryDevice::new(spare, 64 * MIB)), true).unwrap();
                }
            }
        }
        let newest: Txg = commit(&pool, 1);
        assert_eq!(shown(pool.engine()), newest, "{what}");
    }
    assert!(free > 0 && whole > 0 && brought_back > 0, "{free} {whole} {brought_back}");
}
