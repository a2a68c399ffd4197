//! Power fails at any write: the recovered state is the state after some request, with no data lost and no space
//! leaked.

use std::sync::Arc;

use pool::{
    device::{Fate, MemoryDevice, Recorder},
    units::MIB,
};

use super::world::{Files, World, name, noise};

/// All names, with their files.
fn state(world: &World) -> Vec<(String, Files)> {
    world.names().into_iter().map(|name| (name.clone(), world.files(&name))).collect()
}

/// Makes a step, with one commit each.
fn act(world: &World, step: u64) {
    match step {
        0 => drop(world.create("tank/a").unwrap()),
        1 => {
            for index in 0..8 {
                world.write("tank/a", &format!("file{index}"), &noise(index + 1, 40_000));
            }
        }
        2 => world.snapshot("tank/a@1").unwrap(),
        3 => {
            (0..8).for_each(|index| world.write("tank/a", &format!("file{index}"), &noise(index + 50, 30_000)));
            // Shares blocks with a file in the snapshot; the dataset drops the file later.
            world.engine.commit().unwrap();
            world.copy("tank/a", "file3", "tank/a", "copy");
        }
        4 => world.snapshot("tank/a@2").unwrap(),
        5 => world.clone("tank/a@1", "tank/b").unwrap(),
        6 => {
            world.write("tank/b", "own", &noise(99, 30_000));
            world.remove("tank/a", "file3");
            world.copy("tank/a", "file5", "tank/b", "of a");
            world.copy("tank/a", "copy", "tank/b", "of a copy");
        }
        7 => drop(world.datasets.promote(&name("tank/b")).unwrap()),
        8 => drop(world.rollback("tank/a@2", false, false).unwrap()),
        9 => drop(world.destroy("tank/a@2", false, false).unwrap()),
        10 => drop(world.datasets.background_step_of(5).unwrap()),
        11 => drop(world.destroy("tank/a", true, false).unwrap()),
        12 => drop(world.datasets.background_step_of(5).unwrap()),
        13 => drop(world.rollback("tank/b@1", false, false).unwrap()),
        _ => world.work(),
    }
    world.engine.commit().unwrap();
}

#[test]
fn every_cut_leaves_a_state_between_two_requests() {
    let recorder = Recorder::new();
    let world = World::on(Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB))), 31);
    let mut states = vec![(recorder.len(), state(&world))];
    let first = recorder.len();
    for step in 0..15 {
        act(&world, step);
        states.push((recorder.len(), state(&world)));
    }
    // Every third cut keeps the test short; the offset makes the cuts fall differently around each commit.
    for cut in (first..=recorder.len()).step_by(3) {
        let mut fate = Fate::seeded(cut as u64);
        let image = recorder.images_at(cut, &mut fate).remove(0);
        let world = World::open(Arc::new(image), cut as u64).expect("the pool was made before");
        let found = state(&world);
        let done = states.iter().rposition(|(end, _)| *end <= cut).unwrap();
        // A step may commit more than once: between its commits the files are the old or the new ones.
        let next = states.get(done + 1).map(|(_, state)| state);
        let fits = found == states[done].1 || Some(&found) == next || names(&found) == names(&states[done].1);
        assert!(fits, "cut {cut}: state {done} or the next");
        world.judge();
        world.work();
        world.judge();
    }
}

fn names(state: &[(String, Files)]) -> Vec<&str> {
    state.iter().map(|(name, _)| name.as_str()).collect()
}

/// The number of device operations of each request, on a dataset with the given number of files.
fn costs(files: u64) -> Vec<usize> {
    let recorder = Recorder::new();
    let world = World::on(Arc::new(recorder.wrap(MemoryDevice::new("disk", 256 * MIB))), 33);
    world.create("tank/a").unwrap();
    for index in 0..files {
        world.write("tank/a", &format!("file{index}"), &noise(index + 1, 2000));
    }
    world.snapshot("tank/a@0").unwrap();
    for index in 0..files {
        world.write("tank/a", &format!("file{index}"), b"changed");
    }
    world.engine.commit().unwrap();
    let count = |request: &dyn Fn()| {
        let before = recorder.len();
        request();
        recorder.len() - before
    };
    vec![
        count(&|| world.snapshot("tank/a@1").unwrap()),
        count(&|| world.clone("tank/a@1", "tank/b").unwrap()),
        count(&|| drop(world.rollback("tank/a@1", false, false).unwrap())),
        count(&|| drop(world.rollback("tank/a@0", true, true).unwrap())),
        count(&|| drop(world.destroy("tank/a", true, false).unwrap())),
    ]
}

#[test]
fn what_requests_write_does_not_grow_with_what_is_stored() {
    let (few, many) = (costs(10), costs(2000));
    for (few, many) in few.iter().zip(&many) {
        assert!(many.abs_diff(*few) <= 4, "{few} operations for 10 files, {many} for 2000");
    }
}
