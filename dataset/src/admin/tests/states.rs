//! Rewind: the trees of the last states of a pool are complete, however much was overwritten since.

use std::{collections::VecDeque, sync::Arc};

use pool::{
    admin::{self, OpenOptions, SAFE_STATES},
    device::MemoryDevice,
    env::SeededEnv,
    units::{MIB, Txg},
};
use rustix::io::Errno;

use super::world::{Files, World, name, noise};
use crate::{admin::Datasets, fs::ROOT};

/// The bytes overwritten in each txg.
const PART: usize = 2 << 20;

/// The pool at the end of `txg`.
fn at(world: &World, txg: Txg) -> World {
    let options = OpenOptions { read_only: true, state: Some(txg), ..OpenOptions::default() };
    let pool = admin::open(world.devices.clone(), &options, Arc::new(SeededEnv::new(1))).unwrap();
    let engine = pool.engine().clone();
    let datasets = Datasets::open(engine.clone(), name("tank")).unwrap();
    World { devices: world.devices.clone(), engine, datasets }
}

/// Fills the remaining space with a file, except the space needed while one part is overwritten in each txg.
fn fill(world: &World) {
    let turning = (SAFE_STATES as u64 + 2) * PART as u64;
    let mut number = 0;
    while world.engine.available() > turning {
        world.write("tank", &format!("filler{number}"), &noise(number, MIB as usize));
        world.engine.commit().unwrap();
        number += 1;
    }
}

#[test]
fn the_last_states_are_whole_however_much_was_overwritten() {
    assert_eq!(SAFE_STATES, 4, "going back three groups is promised");
    let world = World::on(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 41);
    world.write("tank", "file", &noise(1, 3 * PART));
    fill(&world);
    let fs = world.fs("tank");
    let file = fs.lookup(ROOT, b"file").unwrap().ino;
    let mut states: VecDeque<(Txg, Files)> = VecDeque::new();
    for round in 0..30u64 {
        let begin = round % 3 * PART as u64;
        for (part, bytes) in (0..).zip(noise(100 + round, PART).chunks(64 << 10)) {
            let written = fs.write(file, begin + (part << 16), bytes, false);
            assert!(written.is_ok() || written.err() == Some(Errno::NOSPC), "round {round}");
        }
        let txg = world.engine.commit().unwrap();
        states.push_back((txg, world.files("tank")));
        states.drain(..states.len().saturating_sub(SAFE_STATES));
        // The open txg allocates as much of the freed space as possible.
        if round % 6 != 5 {
            continue;
        }
        for (part, bytes) in (0..).zip(noise(200 + round, PART).chunks(64 << 10)) {
            fs.write(file, part << 16, bytes, false).unwrap();
        }
        for (txg, files) in &states {
            let then = at(&world, *txg);
            then.judge();
            assert!(then.files("tank") == *files, "transaction group {txg}");
        }
    }
}
