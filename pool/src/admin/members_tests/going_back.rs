//! Mirrors that rewind: which members have all of the state, which stay behind, and how far each counts.

use super::*;

#[test]
fn going_back_after_a_power_failure_is_no_split() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    let newest = commit(&pool, 5);
    drop(pool);
    // Power failed while the last commit's uberblock was on one member only.
    let late = lacking(&disks[1], newest);
    let devices: Vec<Arc<dyn Device>> = vec![disks[0].clone(), late.clone()];
    for to in [newest.back(2), newest.back(1)] {
        let devices: Vec<Arc<dyn Device>> = devices.iter().map(|d| Arc::new(resized(&**d, 64 * MIB)) as _).collect();
        rewind(&devices, to, &writing(), &SeededEnv::new(9)).unwrap();
        let pool = open(devices.clone(), &writing(), Arc::new(SeededEnv::new(10))).unwrap();
        pool.engine().set_client(Arc::new(Stamp));
        assert_eq!((shown(pool.engine()), states(&pool)), (to, vec![State::Complete, State::Complete]));
        let newest = commit(&pool, 2);
        drop(pool);
        for device in devices {
            let pool = open(vec![device], &reading(None), Arc::new(SeededEnv::new(11))).unwrap();
            assert_eq!(shown(pool.engine()), newest);
        }
    }
}

#[test]
fn members_stay_together_after_a_crash_in_a_rewind() {
    let made_disks = disks("a b c");
    let pool = mirror(&made_disks);
    let newest = commit(&pool, 5);
    drop(pool);
    let recorder = Recorder::new();
    let wrap = |disk: &Disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>;
    let devices: Vec<Arc<dyn Device>> = made_disks.iter().map(wrap).collect();
    rewind(&devices, newest.back(2), &writing(), &SeededEnv::new(9)).unwrap();
    for (cut, seed) in cuts(0..=recorder.len(), 3) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        survives(images, None, newest.back(2)..=newest, &format!("cut {cut}, seed {seed}"));
    }
}

#[test]
fn continuing_alone_after_a_crash_in_a_rewind_is_a_split() {
    let made_disks = disks("a b");
    let pool = mirror(&made_disks);
    let newest = commit(&pool, 5);
    drop(pool);
    let late = copied(&made_disks[1]);
    let devices: Vec<Arc<dyn Device>> = vec![made_disks[0].clone(), made_disks[1].clone()];
    rewind(&devices, newest.back(2), &writing(), &SeededEnv::new(9)).unwrap();
    commit(&opened(&[&late], 5).unwrap(), 1);
    for order in [[&made_disks[0], &late], [&late, &made_disks[0]]] {
        let error = opened(&order, 6).err().unwrap();
        assert!(matches!(error, Error::Split { .. }), "{error}");
    }
}

#[test]
fn a_mirror_is_whole_after_a_crash_in_a_rewind() {
    let made_disks = disks("a b");
    let pool = mirror(&made_disks);
    let newest = commit(&pool, 5);
    drop(pool);
    let late = lacking(&made_disks[1], newest);
    let recorder = Recorder::new();
    let wrap = |disk: &Disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>;
    let devices = vec![wrap(&made_disks[0]), wrap(&late)];
    rewind(&devices, newest.back(2), &writing(), &SeededEnv::new(9)).unwrap();
    for (cut, seed) in cuts(0..=recorder.len(), 3) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        survives(images, None, newest.back(2)..=newest, &format!("cut {cut}, seed {seed}"));
    }
}

#[test]
fn a_crash_in_a_rewind_past_a_resilver_leaves_the_pool_whole() {
    let (disks, new) = (disks("a b"), disk("new"));
    let (pool, before) = resilvered_late(&disks, &new);
    let newest = commit(&pool, 1);
    drop(pool);
    let late = lacking(&new, newest);
    let recorder = Recorder::new();
    let wrap = |disk: &Disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>;
    let devices = [&disks[0], &late].map(wrap);
    rewind(&devices, before, &writing(), &SeededEnv::new(9)).unwrap();
    for (cut, seed) in cuts(0..=recorder.len(), 3) {
        let images = recorder.images_at(cut, &mut Fate::seeded(seed));
        survives(images, None, before..=newest, &format!("cut {cut}, seed {seed}"));
    }
}

#[test]
fn a_device_resilvered_later_does_not_go_back() {
    let (disks, new) = (disks("a b"), disk("new"));
    let pool = mirror(&disks);
    pool.attach("a", new.clone(), false).unwrap();
    let before = pool.engine().committed();
    assert!(resilver(&pool));
    drop(pool);
    let devices: Vec<Arc<dyn Device>> = vec![disks[0].clone(), disks[1].clone(), new.clone()];
    rewind(&devices, before, &writing(), &SeededEnv::new(9)).unwrap();
    let pool = opened(&[&disks[0], &disks[1], &new], 10).unwrap();
    assert_eq!(states(&pool), [State::Complete, State::Complete, State::Resilvering]);
    assert_eq!(
        pool.engine().resilvering().unwrap().since,
        Txg::ZERO,
        "its content belongs to a state discarded by a rewind"
    );
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&new), newest);
}

/// A mirror of three whose last device, `new`, was resilvered after the returned state, and lacks blocks freed since.
fn resilvered_late(disks: &[Disk], new: &Disk) -> (Pool, Txg) {
    let pool = mirror(disks);
    pool.attach("a", new.clone(), false).unwrap();
    let before = pool.engine().committed();
    assert!(resilver(&pool));
    (pool, before)
}

fn go_back(of: &[&Disk], to: Txg) -> Result<Txg> {
    let devices: Vec<Arc<dyn Device>> = of.iter().map(|disk| (*disk).clone() as Arc<dyn Device>).collect();
    rewind(&devices, to, &writing(), &SeededEnv::new(9))
}

#[test]
fn a_late_device_that_missed_a_commit_is_resilvered_anew() {
    let (disks, new) = (disks("a b"), disk("new"));
    let (pool, before) = resilvered_late(&disks, &new);
    let newest = commit(&pool, 1);
    drop(pool);
    let late = lacking(&new, newest);
    let all = [&disks[0], &disks[1], &late];
    assert_eq!(states(&opened_with(&all, &reading(None), 3).unwrap())[2], State::Complete);
    go_back(&all, before).unwrap();
    let pool = opened(&all, 10).unwrap();
    assert_eq!((shown(pool.engine()), states(&pool)[2]), (before, State::Resilvering));
    assert_eq!(
        pool.engine().resilvering().unwrap().since,
        Txg::ZERO,
        "its content belongs to a state discarded by a rewind"
    );
    assert!(resilver(&pool));
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(alone(&late), newest);
}

#[test]
fn a_late_device_offline_or_away_is_resilvered_anew_on_return() {
    for is_away in [false, true] {
        let (disks, new) = (disks("a b"), disk("new"));
        let (pool, before) = resilvered_late(&disks, &new);
        pool.put_offline("new", false).unwrap();
        commit(&pool, 1);
        drop(pool);
        let all = [&disks[0], &disks[1], &new];
        go_back(&all[..if is_away { 2 } else { 3 }], before).unwrap();
        let pool = opened(&all, 10).unwrap();
        assert_eq!(states(&pool)[2], State::Out);
        assert!(pool.put_online("new", &reopen(&new)).unwrap());
        assert_eq!(
            pool.engine().resilvering().unwrap().since,
            Txg::ZERO,
            "its content belongs to a state discarded by a rewind"
        );
        assert!(resilver(&pool));
        let newest = commit(&pool, 1);
        drop(pool);
        assert_eq!(alone(&new), newest);
    }
}

#[test]
fn a_late_absent_device_is_not_assumed_to_have_anything() {
    let (disks, new) = (disks("a b"), disk("new"));
    drop(mirror(&disks));
    let (pool, before) = {
        let pool = opened(&[&disks[0], &disks[1]], 2).unwrap();
        pool.attach("a", new.clone(), false).unwrap();
        let before = commit(&pool, 2);
        assert!(resilver(&pool));
        (pool, before)
    };
    drop(pool);
    // The device was complete when last seen.
    go_back(&[&disks[0], &disks[1]], before).unwrap();
    let pool = opened(&[&disks[0], &disks[1], &new], 10).unwrap();
    assert_eq!(pool.engine().resilvering().unwrap().since, Txg::ZERO);
}

#[test]
fn a_late_device_that_missed_its_next_import_is_recognized() {
    let (disks, new) = (disks("a b"), disk("new"));
    let (pool, before) = resilvered_late(&disks, &new);
    drop(pool);
    let all = [&disks[0], &disks[1], &new];
    let pool = opened(&all, 2).unwrap();
    // It is expected to get an uberblock of this import, and does not.
    new.inject(Fault::failing(Operation::Flush));
    commit(&pool, 1);
    pool.put_offline("new", false).unwrap();
    drop(pool);
    new.lose_cache();
    new.heal();
    go_back(&all, before).unwrap();
    let pool = opened(&all, 10).unwrap();
    assert!(pool.put_online("new", &reopen(&new)).unwrap());
    assert_eq!(pool.engine().resilvering().unwrap().since, Txg::ZERO);
}

#[test]
fn a_device_away_during_a_rewind_keeps_its_progress() {
    let disks = disks("a b");
    let pool = mirror(&disks);
    let had = pool.engine().committed();
    pool.put_offline("b", true).unwrap();
    let newest = commit(&pool, 3);
    drop(pool);
    go_back(&[&disks[0], &disks[1]], newest.back(1)).unwrap();
    let pool = opened(&[&disks[0], &disks[1]], 10).unwrap();
    assert_eq!(pool.engine().resilvering().unwrap().since, had);
}

/// A pool of these mirrors.
fn mirrors(of: &[&[Disk]]) -> Pool {
    let vdev = |disks: &&[Disk]| NewVdev::Mirror(disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect());
    let vdevs: Vec<NewVdev> = of.iter().map(vdev).collect();
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    pool
}

#[test]
fn what_no_device_of_a_mirror_has_had_is_not_gone_back_to() {
    let (first, second, new) = (disks("a b"), disks("c d"), disk("new"));
    let pool = mirrors(&[&first, &second]);
    pool.attach("c", new.clone(), false).unwrap();
    let before = pool.engine().committed();
    assert!(resilver(&pool));
    let since = pool.engine().committed();
    let newest = commit(&pool, 1);
    drop(pool);
    let there = [&first[0], &first[1], &new];
    let labels = || there.map(|disk| labels::read_label(&**disk).unwrap().unwrap().txg);
    let labels_before = labels();
    let error = go_back(&there, before).unwrap_err();
    assert!(matches!(error, Error::Request(_)));
    let expected =
        format!("pool tank cannot rewind to transaction group {before}: no device of mirror-1 has the complete state");
    assert_eq!((error.to_string(), labels()), (expected, labels_before));
    assert_eq!(shown(opened_with(&there, &reading(None), 3).unwrap().engine()), newest);
    go_back(&there, since).unwrap();
    assert_eq!(shown(opened(&there, 10).unwrap().engine()), since);
}

#[test]
fn a_state_that_only_a_stale_device_has_cannot_be_rewound_to() {
    let (disks, new) = (disks("a b"), disk("new"));
    let (pool, before) = resilvered_late(&disks, &new);
    pool.put_offline("a", true).unwrap();
    commit(&pool, 1);
    drop(pool);
    let error = go_back(&[&disks[0], &new], before).unwrap_err();
    assert!(error.to_string().ends_with("no device of mirror-0 has the complete state"), "{error}");
}

#[test]
fn a_device_that_cannot_be_read_any_more_stays_behind() {
    let mut stayed = 0;
    for skip in 0..24 {
        let disks = disks("a b");
        let pool = mirror(&disks);
        let newest = commit(&pool, 2);
        drop(pool);
        disks[1].inject(Fault { skip, ..Fault::failing(Operation::Read) });
        let gone_back = go_back(&[&disks[0], &disks[1]], newest.back(1));
        disks[1].heal();
        match gone_back {
            Err(error) => assert!(error.to_string().contains("read a label"), "{skip}: {error}"),
            Ok(_) => {
                let pool = opened(&[&disks[0], &disks[1]], 10).unwrap();
                assert_eq!(shown(pool.engine()), newest.back(1));
                stayed += usize::from(resilver(&pool));
                let newest = commit(&pool, 1);
                assert_eq!(states(&pool), [State::Complete; 2]);
                drop(pool);
                assert_eq!(alone(&disks[1]), newest);
            }
        }
    }
    assert!(stayed > 1);
}

#[test]
fn a_mirror_that_was_added_later_goes_back_along() {
    let (first, second) = (disks("a b"), disks("c d"));
    let pool = mirror(&first);
    let before = pool.engine().committed();
    let added = second.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    pool.begin_add(vec![NewVdev::Mirror(added)]).unwrap().finish().unwrap();
    drop(pool);
    let all = [&first[0], &first[1], &second[0], &second[1]];
    go_back(&all, before).unwrap();
    let pool = opened(&all, 10).unwrap();
    assert_eq!((shown(pool.engine()), pool.engine().resilvering()), (before, None));
}

#[test]
fn a_state_whose_uberblock_a_mirror_lacks_can_be_rewound_to() {
    let (first, second) = (disks("a b"), disks("c d"));
    let pool = mirrors(&[&first, &second]);
    commit(&pool, 1);
    let late = [copied(&second[0]), copied(&second[1])];
    // Before the uberblock was written, everything it refers to was flushed.
    let newest = commit(&pool, 1);
    drop(pool);
    for (late, disk) in late.iter().zip(&second) {
        let mut data = vec![0; (60 * MIB) as usize];
        disk.read_at(DATA_START, &mut data).unwrap();
        late.write_at(DATA_START, &data).unwrap();
    }
    let all = [&first[0], &first[1], &late[0], &late[1]];
    for further in [0, 1, 2] {
        let pool = opened(&all, 20 + further).unwrap();
        assert_eq!(pool.engine().resilvering(), None);
        commit(&pool, further as usize);
        drop(pool);
        go_back(&all, newest).unwrap();
        let pool = opened_with(&all, &reading(None), 30).unwrap();
        assert_eq!((shown(pool.engine()), pool.engine().resilvering()), (newest, None));
    }
}

/// Every so many second power failures one is tried, offset by the first.
const EVERY: usize = 7;

/// Opens the images of a power failure at `cut` during a rewind, and those of a second failure while the pool is opened
/// and used.
fn survives_twice(images: Vec<MemoryDevice>, span: &std::ops::RangeInclusive<Txg>, cut: usize, what: &str) {
    let recorder = Recorder::new();
    let images: Vec<Disk> =
        images.into_iter().map(|i| Arc::new(FaultDevice::new(Arc::new(recorder.wrap(i))))).collect();
    let all: Vec<&Disk> = images.iter().collect();
    let pool = opened(&all, 7).unwrap_or_else(|error| panic!("{what}: {error}"));
    let state = shown(pool.engine());
    assert!(span.contains(&state), "{what}: {state}");
    let newest = commit(&pool, 1);
    drop(pool);
    for again in (cut % EVERY..=recorder.len()).step_by(EVERY) {
        let images = recorder.images_at(again, &mut Fate::seeded(again as u64));
        let images: Vec<Disk> = images.into_iter().map(|i| Arc::new(FaultDevice::new(Arc::new(i)))).collect();
        let what = format!("{what}, and then {again}");
        let pool = opened(&images.iter().collect::<Vec<_>>(), 8).unwrap_or_else(|error| panic!("{what}: {error}"));
        let found = shown(pool.engine());
        assert!(found == state || (state..=newest).contains(&found), "{what}: {found}");
        resilver(&pool);
        let newest = commit(&pool, 2);
        assert_eq!(shown(pool.engine()), newest, "{what}");
    }
}

#[test]
fn mirrors_are_whole_after_two_crashes_in_a_rewind() {
    for count in [1, 2] {
        let made: Vec<Vec<Disk>> = ["a b", "c d"][..count].iter().map(|names| disks(names)).collect();
        let pool = mirrors(&made.iter().map(|disks| &disks[..]).collect::<Vec<_>>());
        let newest = commit(&pool, 5);
        drop(pool);
        let recorder = Recorder::new();
        let wrap = |disk: &Disk| Arc::new(recorder.wrap(resized(&**disk, 64 * MIB))) as Arc<dyn Device>;
        let devices: Vec<Arc<dyn Device>> = made.iter().flatten().map(wrap).collect();
        rewind(&devices, newest.back(2), &writing(), &SeededEnv::new(9)).unwrap();
        for (cut, seed) in cuts(0..=recorder.len(), 2) {
            let images = recorder.images_at(cut, &mut Fate::seeded(seed));
            survives_twice(
                images,
                &(newest.back(2)..=newest),
                cut,
                &format!("{count} mirrors, cut {cut}, seed {seed}"),
            );
        }
    }
}

#[test]
fn a_device_used_alone_does_not_join_a_rewind() {
    let of = disks("a b");
    let pool = mirror(&of);
    let newest = commit(&pool, 4);
    drop(pool);
    // One device rewinds without the other, which continues alone from the newest state.
    let alone = copied(&of[1]);
    go_back(&[&of[0]], newest.back(2)).unwrap();
    for commits in [1, 3, 40] {
        let other = copied(&alone);
        commit(&opened(&[&other], 20).unwrap(), commits);
        assert!(matches!(opened(&[&of[0], &other], 21), Err(Error::Split { .. })), "{commits}");
        let first = copied(&of[0]);
        commit(&opened(&[&first], 22).unwrap(), commits);
        assert!(matches!(opened(&[&first, &other], 23), Err(Error::Split { .. })), "{commits}");
    }
}
