//! Before a write is refused, space due to be freed is freed; such space counts as available.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use pool::{device::MemoryDevice, env::SystemEnv, units::MIB};
use rustix::io::Errno;

use super::world::{World, noise, settings};
use crate::fs::ROOT;

/// More than half of the pool: two such files do not fit.
const LARGE: usize = 140 << 20;

fn large(seed: u64) -> Vec<u8> {
    noise(seed, LARGE)
}

#[test]
fn a_removed_file_makes_room_for_the_next() {
    let world = World::new(71);
    for round in 0..6 {
        world.write("tank", "file", &large(round));
        // The file is too large to be freed with its name, and no background thread runs.
        world.remove("tank", "file");
    }
    world.judge();
}

#[test]
fn a_destroyed_dataset_makes_room_for_the_next() {
    let world = World::new(72);
    for round in 0..4 {
        world.create("tank/a").unwrap();
        world.write("tank/a", "file", &large(round));
        world.destroy("tank/a", true, false).unwrap();
    }
    world.write("tank", "file", &large(9));
    world.judge();
}

#[test]
fn a_destroyed_snapshot_makes_room_for_a_stream() {
    let (world, source) = (World::new(73), World::new(74));
    source.write("tank", "file", &large(1));
    source.snapshot("tank@s").unwrap();
    let stream = source.send("tank@s", None, |_| {}).unwrap();
    world.write("tank", "file", &large(2));
    world.snapshot("tank@old").unwrap();
    world.remove("tank", "file");
    world.destroy("tank@old", false, false).unwrap();
    world.receive("tank/copy", &stream, false).unwrap();
    world.judge();
}

#[test]
fn a_write_waits_until_the_kernel_forgets_a_file() {
    let disk = Arc::new(MemoryDevice::new("disk", 256 * MIB));
    let world = World::with_env(vec![disk], settings(), Arc::new(SystemEnv));
    world.write("tank", "file", &large(1));
    let fs = world.fs("tank");
    let ino = fs.lookup(ROOT, b"file").unwrap().ino;
    fs.retain(ino);
    world.remove("tank", "file");
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(100));
            if fs.release(ino, 1) {
                fs.free_unused();
            }
        });
        world.write("tank", "next", &large(2));
    });
    // A file held open by a program delays a write only briefly.
    fs.retain(fs.lookup(ROOT, b"next").unwrap().ino);
    world.remove("tank", "next");
    let begun = Instant::now();
    assert_eq!(world.try_write("tank", "more", &large(3)), Err(Errno::NOSPC));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[test]
fn what_is_due_counts_as_available() {
    let world = World::new(76);
    let slack = 4 * MIB;
    let empty = world.number("tank", "available");
    world.create("tank/a").unwrap();
    world.write("tank/a", "file", &noise(1, 20 << 20));
    world.write("tank", "small", &noise(2, 30 << 20));
    world.engine.commit().unwrap();
    let free = |world: &World| world.fs("tank").statfs().unwrap().available * 4096;
    assert!(free(&world) + (49 << 20) < empty, "{} of {empty}", free(&world));
    // Freed in the open txg, to be freed in the background, and freed already.
    world.remove("tank", "small");
    while world.datasets.reap_files() {}
    assert!(free(&world) + (21 << 20) > empty, "{} of {empty}", free(&world));
    world.destroy("tank/a", true, false).unwrap();
    assert!(free(&world) + slack > empty, "{} of {empty}", free(&world));
    world.work();
    assert!(free(&world) + slack > empty, "{} of {empty}", free(&world));
    assert_eq!(free(&world) >> 20, world.number("tank", "available") >> 20);
    world.settle();
    assert!(free(&world) <= empty + slack, "{} of {empty}", free(&world));
}

#[test]
fn what_a_snapshot_keeps_is_not_due() {
    let world = World::new(77);
    world.write("tank", "file", &noise(1, 30 << 20));
    world.snapshot("tank@s").unwrap();
    let before = world.fs("tank").statfs().unwrap().available * 4096;
    world.remove("tank", "file");
    while world.datasets.reap_files() {}
    let after = world.fs("tank").statfs().unwrap().available * 4096;
    assert!(after < before + MIB, "{before} {after}");
}
