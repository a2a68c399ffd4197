//! A pool filled to the last block by many writers, and emptied again.

use std::thread;

use rustix::io::Errno;

use super::world::{World, noise};
use crate::{
    admin::Assignment,
    fs::{Caller, ROOT, SetAttr},
};

const WRITERS: [&str; 4] = ["tank/a", "tank/b", "tank/c", "tank/d"];
const KEPT: u64 = 12 << 20;

fn set(world: &World, dataset: &str, property: &str, value: u64) {
    let assignment = Assignment { property: property.into(), value: value.to_string() };
    world.datasets.set(&[dataset.parse().unwrap()], &[assignment]).unwrap();
}

/// Writes files until the space is used up; returns their number.
fn fill(world: &World, dataset: &str, seed: u64, size: usize) -> usize {
    for count in 0.. {
        let content = noise(seed + count * 8 + 1, size + (count as usize * 7919) % size);
        match world.try_write(dataset, &format!("f{count}"), &content) {
            Ok(()) => {}
            Err(refusal) => {
                assert_eq!(refusal, Errno::NOSPC, "{dataset}");
                return count as usize;
            }
        }
    }
    unreachable!("it fills")
}

#[test]
fn a_pool_filled_by_many_writers_is_emptied_in_every_way() {
    let world = World::new(61);
    WRITERS.iter().for_each(|dataset| drop(world.create(dataset).unwrap()));
    world.create("tank/kept").unwrap();
    world.create("tank/bounded").unwrap();
    set(&world, "tank/kept", "reservation", KEPT);
    set(&world, "tank/bounded", "quota", 4 << 20);
    assert_eq!(world.try_write("tank/bounded", "large", &noise(9, 5 << 20)), Err(Errno::DQUOT));
    for dataset in WRITERS {
        world.write(dataset, "old", &noise(3, 2 << 20));
    }
    let empty = world.number("tank", "available");
    world.snapshot("tank/c@old").unwrap();
    let counts: Vec<usize> = thread::scope(|scope| {
        let writer = |(seed, dataset): (u64, &'static str)| {
            let world = &world;
            scope.spawn(move || fill(world, dataset, seed, 30_000 << seed))
        };
        let writers: Vec<_> = (0..).zip(WRITERS).map(writer).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(counts.iter().all(|&count| count > 3), "{counts:?}");
    // Reserved space is available although other datasets have none left.
    world.write("tank/kept", "late", &noise(4, 10 << 20));
    assert_eq!(world.try_write("tank/a", "more", &noise(5, 1 << 20)), Err(Errno::NOSPC));
    world.judge();

    world.snapshot("tank/b@full").unwrap();
    (0..counts[0]).for_each(|count| world.remove("tank/a", &format!("f{count}")));
    let fs = world.fs("tank/b");
    for count in 0..counts[1] {
        let file = fs.lookup(ROOT, format!("f{count}").as_bytes()).unwrap();
        fs.setattr(&Caller::default(), file.ino, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    }
    drop(fs);
    world.rollback("tank/c@old", false, false).unwrap();
    world.destroy("tank/d", false, false).unwrap();
    world.destroy("tank/b@full", false, false).unwrap();
    world.destroy("tank/c@old", false, false).unwrap();
    world.work();
    world.settle();
    let after = world.number("tank", "available");
    assert!(after + (4 << 20) > empty, "{after} of {empty} bytes are back");
    assert!(fill(&world, "tank/a", 5, 1 << 20) > 10);
    world.judge();
}
