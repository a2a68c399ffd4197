//! Requests while files are written.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use super::world::{World, noise};
use crate::{
    fs::{ROOT, SetQuota},
    property::OwnerKind,
};

#[test]
fn snapshots_and_rollbacks_while_files_are_written() {
    let world = World::new(41);
    for dataset in ["tank/a", "tank/b"] {
        world.create(dataset).unwrap();
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for (seed, dataset) in ["tank/a", "tank/b"].into_iter().enumerate() {
            let (world, stop) = (&world, &stop);
            scope.spawn(move || {
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let content = noise(round * 2 + seed as u64, 20_000 + (round as usize * 997) % 90_000);
                    // The rollback may remove the file between two steps of a write: the write fails.
                    let _ = world.try_write(dataset, &format!("file{}", round % 7), &content);
                    // Both datasets change meanwhile: the source may be overwritten, removed or rolled back.
                    let other = ["tank/a", "tank/b"][round as usize % 2];
                    let _ =
                        world.try_copy(other, &format!("file{}", round % 5), dataset, &format!("copy{}", round % 3));
                    let _ = world.fs(dataset).unlink(ROOT, format!("file{}", round % 11).as_bytes());
                }
            });
        }
        for round in 0..25 {
            let name = format!("tank@{round}");
            world.datasets.snapshot(vec![name.parse().unwrap()], true, Vec::new()).unwrap();
            if round % 3 == 2 {
                world.rollback(&format!("tank/a@{}", round - 1), true, false).unwrap();
            }
            // Later rollbacks go to states before and after the first quota.
            if round % 6 == 4 {
                world.fs("tank/a").set_quota(OwnerKind::User, 0, SetQuota::default()).unwrap();
            }
            if round % 4 == 3 {
                world.destroy(&format!("tank/b@{}", round - 2), false, false).unwrap();
                world.datasets.background_step().unwrap();
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    world.work();
    world.judge();
}

#[test]
fn requests_of_many_threads_share_commits() {
    let world = World::new(42);
    let before = world.engine.committed();
    thread::scope(|scope| {
        for index in 0..16 {
            let world = &world;
            scope.spawn(move || world.create(&format!("tank/d{index}")).unwrap());
        }
    });
    assert_eq!(world.names().len(), 17);
    assert!(world.engine.committed().0 - before.0 <= 16);
    world.judge();
}

#[test]
fn a_data_set_destroyed_under_a_writer_leaves_nothing() {
    let world = World::new(43);
    for round in 0..10 {
        world.create("tank/a").unwrap();
        let fs = world.fs("tank/a");
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let caller = crate::fs::Caller::default();
                for count in 0.. {
                    let content = noise(count * 2 + 1, 200_000);
                    let made = fs.create(&caller, crate::fs::ROOT, format!("f{count}").as_bytes(), 0o644, false);
                    let written = made.and_then(|made| fs.write(made.ino, 0, &content, false));
                    if written.is_err() || stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
            thread::sleep(std::time::Duration::from_millis(round * 3));
            world.destroy("tank/a", false, false).unwrap();
            stop.store(true, Ordering::Relaxed);
        });
        assert!(fs.create(&crate::fs::Caller::default(), crate::fs::ROOT, b"late", 0o644, false).is_err());
        world.work();
        world.judge();
    }
}
