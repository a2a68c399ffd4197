//! Data covered by `fsync` survives any crash at the cost of one write and one flush, and a crash during recovery too.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use pool::{
    admin::{ClassedVdev, NewVdev},
    device::{Device, Fate, MemoryDevice, Recorder},
    env::{Env, SeededEnv},
    format::label::classes::VdevClass,
    txg::Settings,
    units::MIB,
};

use super::world::{Files, World, noise, settings};
use crate::{
    admin::Assignment,
    fs::{Caller, Ino, ROOT, RenameFlags, SetAttr, SetQuota},
    property::OwnerKind,
};

const FILES: u64 = 5;

fn file(world: &World, index: u64) -> Ino {
    let name = format!("f{index}");
    let fs = world.fs("tank/a");
    fs.create(&Caller::default(), ROOT, name.as_bytes(), 0o644, false).unwrap().ino
}

/// One random operation on the files of `tank/a`. True if the operation, and all before, are durable.
fn act(world: &World, random: &SeededEnv) -> bool {
    let fs = world.fs("tank/a");
    let below = |bound: u64| random.random() % bound;
    let index = below(FILES);
    let (name, other) = (format!("f{index}"), format!("f{}", below(FILES)));
    match below(26) {
        20 => drop(world.fs("tank/b").unlink(ROOT, other.as_bytes())),
        // The other dataset's changes are logged in half of the cases.
        21 if below(2) == 0 => world.fs("tank/b").fsync(ROOT).unwrap(),
        21 | 22 => world.write("tank/b", &other, &noise(random.random(), [5_000, 50_000, 300_000][below(3) as usize])),
        23.. => {
            let from = ["tank/a", "tank/b"][below(2) as usize];
            let is_there = world.fs(from).lookup(ROOT, other.as_bytes()).is_ok();
            if is_there && (from == "tank/b" || name != other) {
                world.copy(from, &other, "tank/a", &name);
            }
        }
        0..=6 => {
            let ino = file(world, index);
            let len = [10, 700, 4096, 10_000, 50_000, 200_000][below(6) as usize];
            let at = below(3) * below(60_000);
            fs.write(ino, at, &noise(random.random(), len), false).unwrap();
        }
        7 | 8 => drop(fs.unlink(ROOT, name.as_bytes())),
        9 => drop(fs.rename(ROOT, name.as_bytes(), ROOT, other.as_bytes(), RenameFlags::default())),
        10 => {
            let size = below(80_000);
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            fs.setattr(&Caller::default(), file(world, index), &set).unwrap();
        }
        11 => {
            world.engine.commit().unwrap();
            return true;
        }
        12 if below(3) == 0 => {
            // The snapshot receives all uncommitted changes first, so the rollback right after loses nothing.
            world.snapshot("tank/a@s").unwrap();
            world.write("tank/a", "f0", b"to be lost");
            if below(2) == 0 {
                fs.fsync(ROOT).unwrap();
            }
            world.rollback("tank/a@s", false, false).unwrap();
            world.destroy("tank/a@s", false, false).unwrap();
            return true;
        }
        _ => {
            fs.fsync(ROOT).unwrap();
            return true;
        }
    }
    false
}

struct Run {
    recorder: Arc<Recorder>,
    /// The files after each step, and the number of recorded operations at that time.
    states: Vec<(usize, Files)>,
    /// The steps after which everything was durable, with the number of recorded operations.
    durable: Vec<(usize, usize)>,
}

fn run(seed: u64, steps: usize, classes: &[Option<VdevClass>]) -> Run {
    let recorder = Recorder::new();
    let vdev = |class: &Option<VdevClass>| {
        let device = Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB)));
        ClassedVdev { vdev: NewVdev::Disk(device), class: *class }
    };
    let world = World::of(&classes.iter().map(vdev).collect::<Vec<_>>(), seed);
    world.create("tank/a").unwrap();
    world.create("tank/b").unwrap();
    if seed.is_multiple_of(2) {
        world.fs("tank/a").set_quota(OwnerKind::User, 0, SetQuota::default()).unwrap();
    }
    world.write("tank/b", "f0", &noise(1, 300_000));
    // A snapshot keeps references that its dataset drops and takes again.
    (0..FILES).for_each(|index| world.copy("tank/b", "f0", "tank/a", &format!("f{index}")));
    world.snapshot("tank/a@kept").unwrap();
    world.engine.commit().unwrap();
    let random = SeededEnv::new(seed);
    let mut run = Run { states: vec![(recorder.len(), world.files("tank/a"))], durable: Vec::new(), recorder };
    run.durable.push((run.recorder.len(), 0));
    for step in 1..=steps {
        let durable = act(&world, &random);
        run.states.push((run.recorder.len(), world.files("tank/a")));
        if durable {
            run.durable.push((run.recorder.len(), step));
        }
    }
    assert!(world.engine.log_stats().frames > 0, "seed {seed}");
    run
}

fn check(run: &Run, cut: usize, world: &World, line: &str) {
    let found = world.files("tank/a");
    let promised = run.durable.iter().rfind(|(end, _)| *end <= cut).expect("the dataset is durable").1;
    let begun = run.states.iter().rposition(|(end, _)| *end <= cut).unwrap() + 1;
    let possible = &run.states[promised..=begun.min(run.states.len() - 1)];
    // During a rollback the discarded state is possible.
    let passing = found.get("f0").is_some_and(|content| content == b"to be lost");
    let fits = passing || possible.iter().any(|(_, files)| *files == found);
    assert!(fits, "{line}: not a state between {promised} and {begun}");
    world.judge();
}

/// The pool on the given devices, whose operations are recorded again.
fn came_up(images: Vec<MemoryDevice>, recorder: &Arc<Recorder>, seed: u64) -> World {
    let devices = images.into_iter().map(|image| Arc::new(recorder.wrap(image)) as Arc<dyn Device>).collect();
    World::open_all(devices, seed).expect("the pool was made before")
}

#[test]
fn every_cut_keeps_what_fsync_promised() {
    cut_everywhere(0..4, &[None]);
}

#[test]
fn so_does_every_cut_with_the_log_on_a_device_of_its_own() {
    cut_everywhere(0..2, &[None, Some(VdevClass::Log)]);
    cut_everywhere(2..3, &[None, Some(VdevClass::Special), Some(VdevClass::Log)]);
}

fn cut_everywhere(seeds: std::ops::Range<u64>, classes: &[Option<VdevClass>]) {
    for seed in seeds {
        let run = run(seed, 60, classes);
        let first = run.states[0].0;
        for cut in first..=run.recorder.len() {
            let mut fate = Fate::seeded(seed ^ cut as u64);
            let again = Recorder::new();
            let world = came_up(run.recorder.images_at(cut, &mut fate), &again, cut as u64);
            check(&run, cut, &world, &format!("seed {seed}, cut {cut}"));
            // Power fails during recovery, too.
            if cut % 7 == 0 {
                for second in 0..again.len() {
                    let world = came_up(again.images_at(second, &mut fate), &Recorder::new(), second as u64);
                    check(&run, cut, &world, &format!("seed {seed}, cut {cut}, then {second}"));
                }
            }
        }
    }
}

#[test]
fn what_many_threads_were_promised_is_there() {
    const THREADS: u64 = 4;
    let recorder = Recorder::new();
    let world = World::with_workers(Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB))), 7, 2);
    world.create("tank/a").unwrap();
    let files: Vec<Ino> = (0..THREADS).map(|index| file(&world, index)).collect();
    world.engine.commit().unwrap();
    let promised: Vec<AtomicU64> = files.iter().map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    let fs = world.fs("tank/a");
    let write = |thread: usize| {
        for count in 1.. {
            if stop.load(Relaxed) {
                return;
            }
            // The content is the number of the write; every tenth write is too large for the log.
            let len = if count % 10 == 0 { 60_000 } else { 100 };
            fs.write(files[thread], 0, &u64::to_le_bytes(count).repeat(len / 8), false).unwrap();
            fs.fsync(files[thread]).unwrap();
            promised[thread].store(count, Release);
        }
    };
    let crashes: Vec<(Vec<u64>, usize)> = std::thread::scope(|scope| {
        (0..files.len()).for_each(|thread| drop(scope.spawn(move || write(thread))));
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                world.engine.commit().unwrap();
                std::thread::yield_now();
            }
        });
        let crashes = (0..40).map(|_| {
            // Waits until three more fsyncs have returned.
            let before: u64 = promised.iter().map(|count| count.load(Acquire)).sum();
            while promised.iter().map(|count| count.load(Acquire)).sum::<u64>() < before + 3 {
                std::thread::yield_now();
            }
            let counts = promised.iter().map(|count| count.load(Acquire)).collect();
            (counts, recorder.len())
        });
        let crashes = crashes.collect();
        stop.store(true, Relaxed);
        crashes
    });
    for (counts, cut) in crashes {
        let image = recorder.images_at(cut, &mut Fate::seeded(cut as u64)).remove(0);
        let world = World::open(Arc::new(image), cut as u64).expect("the pool was made before");
        let found = world.files("tank/a");
        for (index, count) in counts.into_iter().enumerate() {
            let content = found[&format!("f{index}")].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            assert!(content >= count, "cut {cut}: file {index} has {content}, promised was {count}");
        }
        world.judge();
    }
}

#[test]
fn an_fsync_is_one_write_and_one_flush() {
    let recorder = Recorder::new();
    let world = World::on(Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB))), 3);
    world.create("tank/a").unwrap();
    let (ino, fs) = (file(&world, 0), world.fs("tank/a"));
    world.engine.commit().unwrap();
    for round in 0..20 {
        fs.write(ino, round * 4096, &noise(round, 4096), false).unwrap();
        let before = recorder.len();
        fs.fsync(ino).unwrap();
        assert_eq!(recorder.len() - before, 2, "round {round}");
        fs.fsync(ino).unwrap();
        assert_eq!(recorder.len() - before, 2, "nothing has changed");
    }
    let stats = world.engine.log_stats();
    // Each frame contains the new bytes and the items, not the growing record.
    assert_eq!((stats.frames, stats.commits), (20, 0));
    assert!(stats.bytes <= 20 * 8192, "{stats:?}");
}

#[test]
fn a_log_that_is_full_or_not_there_yet_is_a_commit() {
    let world = World::on(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 3);
    world.create("tank/a").unwrap();
    let fs = world.fs("tank/a");
    let ino = file(&world, 0);
    for round in 0..200 {
        fs.write(ino, round * 16384, &noise(round, 16384), false).unwrap();
        fs.fsync(ino).unwrap();
    }
    let stats = world.engine.log_stats();
    assert!(stats.frames > 150 && stats.commits > 0, "{stats:?}");
    world.judge();
}

#[test]
fn more_than_a_frame_holds_is_a_commit() {
    let device = Arc::new(MemoryDevice::new("disk", 64 * MIB));
    let world = World::with_settings(vec![device], 3, Settings { dirty: 64 * MIB, ..settings() });
    world.create("tank/a").unwrap();
    let fs = world.fs("tank/a");
    let names = |round: &str, count: u64| {
        for index in 0..count {
            fs.create(&Caller::default(), ROOT, format!("{round}{index}").as_bytes(), 0o644, true).unwrap();
        }
    };
    fs.fsync(file(&world, 0)).unwrap();
    // The first round has more than two items per file; in the second, too many items to stay unnoticed.
    for (round, count) in [("a", 11_000), ("b", 5_100)] {
        let (before, committed) = (world.engine.log_stats(), world.engine.committed());
        names(round, count);
        fs.fsync(ROOT).unwrap();
        let after = world.engine.log_stats();
        assert_eq!((after.frames, after.commits), (before.frames, before.commits + 1), "{round}");
        assert!(world.engine.committed() > committed);
    }
    let before = world.engine.log_stats();
    fs.write(file(&world, 0), 0, b"x", false).unwrap();
    fs.fsync(ROOT).unwrap();
    let after = world.engine.log_stats();
    assert_eq!((after.frames, after.commits), (before.frames + 1, before.commits));
    world.judge();
}

#[test]
fn sync_disabled_and_always_are_what_they_say() {
    let world = World::on(Arc::new(MemoryDevice::new("disk", 64 * MIB)), 3);
    world.create("tank/a").unwrap();
    let set = |value: &str| {
        let name = "tank/a".parse().unwrap();
        let assignment = Assignment { property: "sync".into(), value: value.into() };
        world.datasets.set(&[name], &[assignment]).unwrap();
    };
    let fs = world.fs("tank/a");
    set("disabled");
    let before = world.engine.log_stats();
    fs.write(file(&world, 0), 0, b"x", false).unwrap();
    fs.fsync(ROOT).unwrap();
    assert_eq!(world.engine.log_stats(), before);
    set("always");
    let before = world.engine.log_stats().frames;
    fs.write(file(&world, 0), 0, b"y", false).unwrap();
    assert!(world.engine.log_stats().frames > before);
}
