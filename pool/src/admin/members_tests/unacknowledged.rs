//! Power fails while the newest uberblock is written: only some devices have it, and these are away, fail, or return.

use super::{
    raidz::{names, raidz},
    *,
};
use crate::{admin::ClassedVdev, format::label::classes::VdevClass, vdev::uberblocks};

/// A pool of `of` devices whose newest state is on the first device alone: the devices, and that state.
fn failed(of: usize, parity: Option<u8>) -> (Vec<Disk>, Txg) {
    let made = names(of);
    let pool = match parity {
        None => mirror(&made),
        Some(parity) => raidz(parity, &made),
    };
    let newest = commit(&pool, 5);
    drop(pool);
    let lacking = made[1..].iter().map(|disk| lacking(disk, newest));
    (made[..1].iter().cloned().chain(lacking).collect(), newest)
}

const SHAPES: [(usize, Option<u8>); 4] = [(2, None), (3, None), (3, Some(1)), (4, Some(2))];

/// Its devices are complete: none is resilvered, and the one with the uberblock may be unreadable.
#[test]
fn whoever_lacks_the_newest_uberblock_alone_lacks_nothing() {
    for (of, parity) in SHAPES {
        let (disks, newest) = failed(of, parity);
        let end = disks[0].size() - DATA_START;
        disks[0].inject(Fault { range: DATA_START..end, times: u64::MAX, ..Fault::failing(Operation::Read) });
        let pool = opened(&disks.iter().collect::<Vec<_>>(), 2).unwrap();
        disks[0].heal();
        assert_eq!((shown(pool.engine()), states(&pool)), (newest, vec![State::Complete; of]));
        drop(pool);
        for disk in &disks {
            let label = labels::read_label(&**disk).unwrap().unwrap();
            assert_eq!(uberblocks::read_uberblocks(&**disk, label.pool).unwrap()[0].txg, newest, "all have it now");
        }
    }
}

#[test]
fn a_device_with_an_unacknowledged_state_returns_to_the_pool() {
    for ((of, parity), commits) in SHAPES.into_iter().flat_map(|shape| [0, 1, 2, 40].map(|commits| (shape, commits))) {
        for is_online in [false, true] {
            let what = format!("{of} devices, parity {parity:?}, {commits} commits, online: {is_online}");
            let (disks, unacknowledged) = failed(of, parity);
            let others: Vec<&Disk> = disks[1..].iter().collect();
            let mut pool = opened(&others, 2).unwrap();
            assert_eq!(shown(pool.engine()), unacknowledged.back(1), "{what}");
            let newest = commit(&pool, commits);
            if is_online {
                assert!(pool.put_online("a", &reopen(&disks[0])).unwrap(), "{what}");
            } else {
                drop(pool);
                // A read-only open changes nothing.
                let all: Vec<&Disk> = disks.iter().collect();
                assert_eq!(shown(opened_with(&all, &reading(None), 3).unwrap().engine()), newest, "{what}");
                pool = opened(&all, 4).unwrap();
            }
            assert_eq!(shown(pool.engine()), newest, "{what}");
            assert_eq!(shown(pool.committed_state().unwrap().engine()), newest, "{what}");
            assert_eq!(states(&pool)[0], State::Resilvering, "{what}");
            commit(&pool, 1);
            assert_eq!(shown(pool.committed_state().unwrap().engine()), pool.engine().committed(), "{what}");
            assert!(resilver(&pool), "{what}");
            let newest = commit(&pool, 1);
            assert_eq!(states(&pool), vec![State::Complete; of], "{what}");
            drop(pool);
            // The returned device is as good as the rest.
            let rest: Vec<&Disk> = if parity.is_some() { disks[..of - 1].iter().collect() } else { vec![&disks[0]] };
            assert_eq!(shown(opened_with(&rest, &reading(None), 5).unwrap().engine()), newest, "{what}");
        }
    }
}

#[test]
fn the_pool_survives_a_crash_while_erasing_such_a_state() {
    let (disks, _) = failed(2, None);
    let pool = opened(&[&disks[1]], 2).unwrap();
    let newest = commit(&pool, 1);
    drop(pool);
    let recorder = Recorder::new();
    let wrap = |disk: &Disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>;
    let devices = disks.iter().map(wrap).collect();
    let pool = open(devices, &writing(), Arc::new(SeededEnv::new(3))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    assert!(resilver(&pool));
    let last = commit(&pool, 1);
    drop(pool);
    for (cut, seed) in cuts(0..=recorder.len(), 3) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        survives(images, None, newest..=last, &format!("cut {cut}, seed {seed}"));
    }
}

/// A rewind reuses the state's txg, too.
#[test]
fn a_pool_rewinds_with_a_device_with_such_a_state() {
    let (disks, _) = failed(2, None);
    let pool = opened(&[&disks[1]], 2).unwrap();
    let newest = commit(&pool, 2);
    drop(pool);
    let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    rewind(&devices, newest.back(1), &writing(), &SeededEnv::new(9)).unwrap();
    let pool = opened(&[&disks[0], &disks[1]], 10).unwrap();
    assert_eq!((shown(pool.engine()), states(&pool)), (newest.back(1), vec![State::Resilvering, State::Complete]));
    assert!(resilver(&pool));
    let last = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&disks[0]), last);
}

/// Labels still call the device behind, and it is judged again when it is back.
#[test]
fn a_pool_rewinds_without_a_device_that_keeps_such_a_state() {
    for (of, parity) in SHAPES {
        let (disks, _) = failed(of, parity);
        let pool = opened(&disks[1..].iter().collect::<Vec<_>>(), 2).unwrap();
        let newest = commit(&pool, 2);
        drop(pool);
        disks[0].inject(Fault::failing(Operation::Write));
        let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
        rewind(&devices, newest.back(1), &writing(), &SeededEnv::new(9)).unwrap();
        disks[0].heal();
        let pool = opened(&disks.iter().collect::<Vec<_>>(), 10).unwrap();
        assert_eq!((shown(pool.engine()), states(&pool)[0]), (newest.back(1), State::Resilvering));
        assert!(resilver(&pool));
        commit(&pool, 1);
        assert_eq!(states(&pool), vec![State::Complete; of]);
    }
}

/// A log mirror of `c` and `d`, of which `c` alone has the newest state, and then `d` is lost.
#[test]
fn a_lost_log_device_that_keeps_such_a_state_is_no_obstacle() {
    for goes_back in [false, true] {
        let made = disks("a b c d");
        let mirror = |of: &[Disk]| NewVdev::Mirror(of.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect());
        let vdevs = [
            ClassedVdev::from(mirror(&made[..2])),
            ClassedVdev { vdev: mirror(&made[2..]), class: Some(VdevClass::Log) },
        ];
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
        pool.engine().set_client(Arc::new(Stamp));
        let newest = commit(&pool, 5);
        drop(pool);
        let [a, b, d] = [0, 1, 3].map(|at| lacking(&made[at], newest));
        let c = &made[2];
        let pool = opened(&[&a, &b, &d], 2).unwrap();
        let newest = commit(&pool, 2);
        drop(pool);
        c.inject(Fault::failing(Operation::Write));
        let without_log = OpenOptions { without_log: true, ..writing() };
        let devices: Vec<Arc<dyn Device>> = [&a, &b, c].map(|disk| disk.clone() as Arc<dyn Device>).into();
        if goes_back {
            rewind(&devices, newest.back(1), &without_log, &SeededEnv::new(9)).unwrap();
        }
        let pool = opened_with(&[&a, &b, c], &without_log, 10).unwrap();
        assert_eq!(shown(pool.engine()), if goes_back { newest.back(1) } else { newest });
        assert!(pool.engine().storage().vdevs.all()[1].is_lost());
        commit(&pool, 1);
    }
}

/// Two halves used separately are distinguished from that, however little was done.
#[test]
fn one_acknowledged_state_more_is_a_split() {
    let is_split = |of: [&Disk; 2], what: &str| {
        for order in [of, [of[1], of[0]]] {
            let error = opened(&order, 9).err().unwrap_or_else(|| panic!("{what}"));
            assert!(matches!(error, Error::Split { .. }), "{what}: {error}");
        }
    };
    // Each was imported alone, and committed once.
    let disks = disks("a b");
    drop(mirror(&disks));
    commit(&opened(&[&disks[0]], 2).unwrap(), 1);
    commit(&opened(&[&disks[1]], 3).unwrap(), 1);
    is_split([&disks[0], &disks[1]], "both alone");
    // One failed while the pool was in use, which continued with a commit; then the failed one was used.
    let disks = self::disks("a b");
    let pool = mirror(&disks);
    disks[1].inject(Fault { times: u64::MAX, ..Fault::failing(Operation::Write) });
    commit(&pool, 1);
    drop(pool);
    disks[1].heal();
    let last = commit(&opened(&[&disks[1]], 3).unwrap(), 1);
    assert!(last.0 > 0);
    is_split([&disks[0], &disks[1]], "one had failed");
    // Two more states: the first of them was acknowledged.
    let (disks, newest) = failed(2, None);
    let late = lacking(&disks[1], newest.back(1));
    commit(&opened(&[&late], 4).unwrap(), 1);
    is_split([&disks[0], &late], "two states");
}

/// Both halves of the pool continued without the log vdev, so the log vdev cannot hold the state of either half. One
/// half made a single commit when it continued; the new log of this half has the later synchronous writes.
#[test]
fn a_commit_without_the_log_counts_as_acknowledged() {
    let disks = disks("a b log");
    let device = |disk: &Disk| disk.clone() as Arc<dyn Device>;
    let vdevs = [
        ClassedVdev::from(NewVdev::Mirror(disks[..2].iter().map(device).collect())),
        ClassedVdev { vdev: NewVdev::Disk(device(&disks[2])), class: Some(VdevClass::Log) },
    ];
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    drop(pool);
    let without_log = OpenOptions { without_log: true, ..writing() };
    commit(&opened_with(&[&disks[0]], &without_log, 2).unwrap(), 3);
    drop(opened_with(&[&disks[1]], &without_log, 3).unwrap());
    for there in [&disks[..], &disks[..2]] {
        let error = opened(&there.iter().collect::<Vec<_>>(), 9).err().expect("both have acknowledged a state");
        assert!(matches!(error, Error::Split { .. }), "{error}");
    }
}
