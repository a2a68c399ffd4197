//! Vdevs all of whose devices are older copies of the ones last used.

use super::{
    logs::{with_log, without_log},
    *,
};

/// A pool of the vdev `a` and a vdev of the rest: a disk, a mirror or a RAID-Z.
fn made_of(disks: &[Disk], parity: u8) -> Pool {
    let device = |disk: &Disk| disk.clone() as Arc<dyn Device>;
    let others: Vec<Arc<dyn Device>> = disks[1..].iter().map(device).collect();
    let other = match (&others[..], parity) {
        ([alone], _) => NewVdev::Disk(alone.clone()),
        (_, 0) => NewVdev::Mirror(others),
        _ => NewVdev::RaidZ { parity, devices: others },
    };
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let vdevs = [NewVdev::Disk(device(&disks[0])), other];
    let pool = create_of(&vdevs, &options, Arc::new(SeededEnv::new(1))).unwrap();
    pool.engine().set_client(Arc::new(Stamp));
    commit(&pool, 3);
    pool
}

fn all(disks: &[Disk]) -> Vec<&Disk> {
    disks.iter().collect()
}

#[test]
fn a_vdev_of_older_copies_is_refused_but_readable() {
    for (names, parity) in [("a b", 0), ("a b c", 0), ("a b c d", 1)] {
        let disks = disks(names);
        drop(made_of(&disks, parity));
        let copies: Vec<Disk> = disks[1..].iter().map(copied).collect();
        let mixed: Vec<&Disk> = disks[..1].iter().chain(&copies).collect();
        // Nothing was committed since, so they have everything.
        drop(opened(&all(&disks), 2).unwrap());
        drop(opened_with(&mixed, &reading(None), 3).unwrap());
        let newest = commit(&opened(&all(&disks), 4).unwrap(), 2);
        let error = opened(&mixed, 5).err().unwrap_or_else(|| panic!("{names}"));
        assert!(matches!(&error, Error::OlderCopy { device, .. } if device == "b"), "{error}");
        assert_eq!(opened_with(&mixed, &reading(None), 6).unwrap().engine().committed(), newest);
        // In a mirror one original is enough.
        if let [_, _, c] = &disks[..] {
            let pool = opened(&[&disks[0], &copies[0], c], 7).unwrap();
            assert_eq!(shown(pool.engine()), newest);
            assert!(resilver(&pool));
        }
        assert!(shown(opened(&all(&disks), 8).unwrap().engine()) >= newest);
    }
}

#[test]
fn a_log_of_older_copies_is_left_unread_on_request() {
    for names in ["a log", "a c d"] {
        let disks = disks(names);
        drop(with_log(&disks));
        let copies: Vec<Disk> = disks[1..].iter().map(copied).collect();
        let mixed: Vec<&Disk> = disks[..1].iter().chain(&copies).collect();
        let newest = commit(&opened(&all(&disks), 2).unwrap(), 1);
        let error = opened(&mixed, 3).err().unwrap();
        assert!(matches!(error, Error::LostLog { .. }), "{error}");
        assert!(error.to_string().contains("outdated cop"), "{error}");
        let pool = opened_with(&mixed, &without_log(), 4).unwrap();
        assert_eq!(shown(pool.engine()), newest);
        drop(pool);
        // The log was labelled, so no confirmation is needed.
        let pool = opened(&mixed, 5).unwrap();
        assert_eq!(shown(pool.engine()), newest);
        commit(&pool, 1);
    }
}

#[test]
fn a_log_that_was_gone_on_without_comes_back_however_old_it_is() {
    let disks = disks("a log");
    drop(with_log(&disks));
    for seed in 2..4 {
        commit(&opened_with(&[&disks[0]], &without_log(), seed).unwrap(), 40);
    }
    let pool = opened(&all(&disks), 5).unwrap();
    let newest = commit(&pool, 1);
    drop(pool);
    assert_eq!(shown(opened(&all(&disks), 6).unwrap().engine()), newest);
}

#[test]
fn going_back_again_and_again_makes_no_device_an_older_copy() {
    let disks = disks("a b");
    drop(made_of(&disks, 0));
    let newest = commit(&opened(&all(&disks), 2).unwrap(), 3);
    let devices: Vec<Arc<dyn Device>> = disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect();
    let to = newest.back(1);
    let mut repeating = rewind(&devices, to, &writing(), &SeededEnv::new(3)).unwrap();
    for seed in 4..6 {
        repeating = rewind(&devices, repeating, &writing(), &SeededEnv::new(seed)).unwrap();
    }
    for seed in 6..8 {
        let pool = opened(&all(&disks), seed).unwrap();
        assert_eq!(shown(pool.engine()), to);
        drop(pool);
    }
    // Also to a state of the import before.
    let kept = rewind_states(&devices, &writing()).unwrap();
    assert!(kept.iter().any(|state| state.txg == to));
    let pool = opened(&all(&disks), 9).unwrap();
    let newest = commit(&pool, 1);
    drop(pool);
    let before = rewind_states(&devices, &writing()).unwrap()[1].txg;
    rewind(&devices, before, &writing(), &SeededEnv::new(10)).unwrap();
    let pool = opened(&all(&disks), 11).unwrap();
    assert!(shown(pool.engine()) < newest);
    commit(&pool, 1);
    drop(pool);
    drop(opened(&all(&disks), 12).unwrap());
}

/// An import labels all devices before it commits, so a power failure in between makes no device an older copy.
#[test]
fn the_pool_opens_after_a_crash_while_imports_label_and_commit() {
    let recorder = Recorder::new();
    let disks: Vec<Disk> = ["a", "b", "c"]
        .map(|name| Arc::new(FaultDevice::new(Arc::new(recorder.wrap(MemoryDevice::new(name, 64 * MIB))))))
        .to_vec();
    drop(made_of(&disks, 0));
    let begin = recorder.len();
    for seed in 2..5 {
        commit(&opened(&all(&disks), seed).unwrap(), 1);
    }
    for cut in begin..=recorder.len() {
        let images = recorder.images_at(cut, &mut Fate::seeded(cut as u64)).into_iter();
        let images: Vec<Disk> = images.map(|image| Arc::new(FaultDevice::new(Arc::new(image)))).collect();
        let pool = opened(&all(&images), 7).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        commit(&pool, 1);
    }
}
