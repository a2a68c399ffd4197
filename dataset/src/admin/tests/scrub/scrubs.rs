//! Scrubs find all damage, whatever happens to the pool meanwhile, and continue at their position.

use std::sync::Arc;

use pool::{
    device::Device,
    format::{
        key::Key,
        label::{BODY_AT, BODY_SIZE, DATA_START, LABEL_SIZE, LABELS, label_offsets, uberblock_offset},
    },
    space::OwnCursor,
    units::Txg,
    vdev::Counts,
};

use super::{BUDGET, Bench, SIZE};
use crate::{
    admin::{
        Progress,
        tests::world::{World, noise},
    },
    catalogue::{DatasetRow, ScrubPosition, ScrubState, dataset_key},
    error::Error,
    fs::ROOT,
    jobs::Job,
    scrub::pass::{self, Budget, Part},
};

#[test]
fn a_scrub_heals_every_structure_that_has_a_second_copy() {
    let bench = Bench::new(2, 6);
    bench.world.create("tank/a").unwrap();
    bench.set("tank/a", "copies", "2");
    bench.set("tank/a", "compression", "off");
    for n in 0..300 {
        bench.world.write("tank/a", &format!("a file with a name that takes some room {n}"), &noise(n + 1, 3000));
    }
    bench.world.snapshot("tank/a@one").unwrap();
    bench.world.write("tank/a", "large", &noise(7, 1 << 20));
    // Enough txgs for checkpoints and a log of some length.
    for n in 0..40 {
        bench.world.write("tank", &format!("{n}"), &noise(n + 1, 9000));
        bench.world.engine.commit().unwrap();
    }
    let planted = bench.spoil_everything();
    assert!(planted > 50, "{planted}");
    let space = {
        let storage = bench.world.engine.storage();
        let own = storage.space.own_blocks();
        let blocks = own.table.into_iter().chain(own.checkpoints).chain(own.log);
        for (n, block) in blocks.enumerate().filter(|(_, block)| block.places().len() > 1) {
            let place = block.places()[n % block.places().len()];
            bench.spoil_at(place.vdev.0 as usize, DATA_START + place.offset);
        }
        let all = storage.space.repair_own(&storage.vdevs, OwnCursor::default(), u64::MAX, false);
        assert!(!all.bad.is_empty());
        all.bad.len()
    };
    let committed = bench.world.engine.committed();
    let [l0, l1, l2, l3] = label_offsets(SIZE);
    for (disk, at) in [(0, l0 + BODY_AT + 40), (0, l2 + BODY_AT + 40), (1, l1 + BODY_AT + 40)] {
        bench.spoil_at(disk, at);
    }
    bench.spoil_at(0, uberblock_offset(l1, committed) + 40);
    bench.spoil_at(1, uberblock_offset(l3, committed) + 40);
    bench.clear();
    let status = bench.scrub();
    assert_eq!((status.state, status.errors), (ScrubState::Finished, 0));
    assert!(status.repaired > 5 * 4096, "{status:?}");
    assert!(status.examined > 4 << 20, "{status:?}");
    let found = bench.counts().checksum_errors;
    assert!(found >= (planted + space) as u64, "{found} of {planted} and {space}");
    bench.clear();
    bench.world.judge();
    let again = bench.scrub();
    assert_eq!((again.repaired, again.errors), (0, 0));
    assert_eq!(bench.counts(), Counts::default());
}

#[test]
fn a_scrub_writes_all_lost_labels_of_a_device_again() {
    let bench = Bench::new(2, 6);
    for at in label_offsets(SIZE) {
        bench.disks[1].write_at(at, &vec![0; LABEL_SIZE as usize]).unwrap();
    }
    let status = bench.scrub();
    assert_eq!((status.state, status.errors), (ScrubState::Finished, 0));
    assert!(status.repaired > (LABELS * BODY_SIZE) as u64, "{status:?}");
    assert!(bench.counts().checksum_errors > LABELS as u64);
    bench.clear();
    assert_eq!((bench.scrub().repaired, bench.counts()), (0, Counts::default()));
    bench.world.judge();
}

#[test]
fn neighbouring_leaves_are_read_by_few_requests_and_once_each() {
    let bench = Bench::new(1, 5);
    bench.world.create("tank/a").unwrap();
    for n in 0..5000 {
        bench.world.write("tank/a", &format!("a file with a name that takes some room {n}"), b"");
    }
    let leaves = bench.blocks("tank/a").0.iter().filter(|(level, _)| *level == 0).count() as u64;
    assert!(leaves > 20, "{leaves}");
    let part = whole(&bench, "tank/a");
    let engine = &bench.world.engine;
    let reads = || engine.storage().vdevs.all()[0].leaves()[0].counters().snapshot().reads;
    let asked = |capacity| {
        engine.cache().set_capacity(capacity);
        engine.forget_read();
        let before = reads();
        let found = pass::collect(engine, &part, Budget::freely(u64::MAX), |_| true);
        assert_eq!((found.next, found.unread), (Some(Key::MAX), vec![]));
        assert!(found.suspects.len() as u64 > leaves);
        reads() - before
    };
    let plenty = asked(64 << 20);
    assert!(plenty < leaves / 2, "{plenty} requests for {leaves} leaves");
    let none = asked(0);
    assert!(none < leaves + leaves / 2, "{none} requests for {leaves} leaves that no cache keeps");
}

/// All of a dataset's tree as committed now, looked up now.
fn whole(bench: &Bench, dataset: &str) -> Part {
    let id = bench.id(dataset);
    let (row, root) = bench.world.datasets.read(|tx| tx.row_and_block::<DatasetRow>(dataset_key(id))).unwrap();
    Part {
        tree: id,
        root: root.unwrap(),
        level: row.level,
        seen: bench.world.engine.pin().seen(),
        after: Txg::ZERO,
        since: Txg::ZERO,
        limit: Txg::LIMIT,
        from: Key::MIN,
        to: Key::MAX,
    }
}

#[test]
fn a_step_whose_token_is_too_old_passes_over_nothing() {
    let bench = Bench::new(1, 9);
    bench.world.create("tank/a").unwrap();
    for n in 0..2000 {
        bench.world.write("tank/a", &format!("a file with a name that takes some room {n}"), b"");
    }
    bench.world.engine.commit().unwrap();
    let part = whole(&bench, "tank/a");
    // The tree stays as it is; only the token grows old.
    for n in 0..8 {
        bench.world.write("tank", "other", &noise(n + 1, 9000));
        bench.world.engine.commit().unwrap();
    }
    let engine = &bench.world.engine;
    engine.cache().set_capacity(0);
    engine.forget_read();
    let old = pass::collect(engine, &part, Budget::freely(u64::MAX), |_| true);
    assert_eq!((old.next, old.unread), (Some(Key::MIN), vec![]));
    let anew = pass::collect(engine, &whole(&bench, "tank/a"), Budget::freely(u64::MAX), |_| true);
    assert_eq!((anew.next, anew.unread), (Some(Key::MAX), vec![]));
    assert!(anew.suspects.len() > 10);
}

#[test]
fn a_scrub_finds_everything_while_the_pool_changes() {
    for seed in 1..=12 {
        let bench = Bench::new(2, seed);
        bench.world.create("tank/a").unwrap();
        bench.world.create("tank/z").unwrap();
        for name in ["tank/a", "tank/z"] {
            bench.set(name, "copies", "2");
            for n in 0..40 {
                bench.world.write(name, &format!("file{n}"), &noise(n + 1, 9000));
            }
            bench.world.snapshot(&format!("{name}@0")).unwrap();
            for n in 0..10 {
                bench.world.remove(name, &format!("file{n}"));
                bench.world.write(name, &format!("file{n}"), &noise(n + 99, 9000));
            }
        }
        bench.world.clone("tank/a@0", "tank/b").unwrap();
        bench.world.work();
        bench.spoil_everything();
        bench.world.datasets.scrub().start().unwrap();
        let mut random = noise(seed, 4000).into_iter();
        let mut next = || usize::from(random.next().expect("there is enough for all steps"));
        let mut step = 0;
        while bench.world.datasets.scrub().advance(BUDGET).unwrap() == Progress::Worked {
            step += 1;
            assert!(step < 2000, "seed {seed}: the scrub does not end");
            if step > 120 {
                // Endless promotions would restart the scrub endlessly.
                continue;
            }
            let name = ["tank/a", "tank/b", "tank/z"][next() % 3];
            // Refused requests, with nothing to destroy or to promote, are part of the test.
            match next() % 7 {
                0 => bench.world.snapshot(&format!("{name}@{step}")).unwrap(),
                1 => bench.world.write(name, &format!("new{step}"), &noise(step, 20_000)),
                2 => drop(bench.world.fs(name).unlink(ROOT, format!("file{}", next() % 40).as_bytes())),
                3 => drop(bench.world.destroy(&format!("{name}@0"), false, false)),
                4 => drop(bench.world.destroy(&format!("{name}@{}", next() as u64 % (step + 1)), false, false)),
                5 => drop(bench.world.datasets.promote(&name.parse().unwrap())),
                _ => drop(bench.world.rollback(&format!("{name}@0"), true, false)),
            }
            bench.world.engine.commit_anyway().unwrap();
        }
        assert!(step > 20, "seed {seed}: {step} steps");
        assert_eq!(bench.status().errors, 0, "seed {seed}");
        bench.world.work();
        bench.world.judge_damaged();
    }
}

#[test]
fn a_paused_scrub_stays_so_over_export_and_goes_on_where_it_was() {
    let mut bench = Bench::new(1, 7);
    bench.world.write("tank", "large", &noise(1, 1 << 20));
    let refused = |result: crate::error::Result<()>| matches!(result, Err(Error::Scrub { .. }));
    assert!(refused(bench.world.datasets.scrub().pause()));
    assert!(refused(bench.world.datasets.scrub().give_up()));
    bench.world.datasets.scrub().start().unwrap();
    assert!(refused(bench.world.datasets.scrub().start()));
    for _ in 0..8 {
        bench.world.datasets.scrub().advance(BUDGET).unwrap();
    }
    bench.world.datasets.scrub().pause().unwrap();
    let paused = bench.status();
    assert_eq!((paused.state, paused.examined > 0), (ScrubState::Paused, true));
    assert_eq!(bench.world.datasets.scrub().advance(BUDGET).unwrap(), Progress::Idle);
    bench.world.reopen();
    assert_eq!(bench.status(), paused);
    bench.world.datasets.scrub().start().unwrap();
    assert_eq!((bench.status().examined, bench.status().start), (paused.examined, paused.start));
    let whole = bench.finish();
    assert_eq!(whole.state, ScrubState::Finished);
    let again = bench.scrub();
    assert!(again.start >= whole.end);
    // The catalogue has not become smaller.
    assert!(again.examined + (64 << 10) >= whole.examined, "{again:?} {whole:?}");
    bench.world.datasets.scrub().start().unwrap();
    bench.world.datasets.scrub().give_up().unwrap();
    assert_eq!(bench.status().state, ScrubState::Stopped);
    bench.world.reopen();
    assert_eq!(bench.status().state, ScrubState::Stopped);
}

#[test]
fn a_crash_costs_a_scrub_what_came_after_it_was_saved() {
    let bench = Bench::new(1, 8);
    bench.set("tank", "copies", "2");
    bench.world.write("tank", "large", &noise(1, 1 << 20));
    bench.spoil_everything();
    bench.world.datasets.scrub().start().unwrap();
    for _ in 0..8 {
        bench.world.datasets.scrub().advance(BUDGET).unwrap();
    }
    bench.world.datasets.scrub().save().unwrap();
    let saved = bench.status();
    for _ in 0..4 {
        bench.world.datasets.scrub().advance(BUDGET).unwrap();
    }
    assert!(bench.status().examined > saved.examined);
    let disks: Vec<_> = bench.disks.iter().map(|disk| Arc::new(disk.snapshot())).collect();
    let world = World::open_all(disks.iter().map(|disk| disk.clone() as Arc<dyn Device>).collect(), 9).unwrap();
    let after = Bench { world, disks };
    assert_eq!(after.status(), saved);
    let done = after.finish();
    assert_eq!((done.state, done.errors), (ScrubState::Finished, 0));
    after.world.judge_damaged();
}

#[test]
fn a_snapshot_destroyed_during_a_scrub_hides_no_block() {
    let bench = Bench::new(1, 14);
    bench.world.create("tank/a").unwrap();
    bench.set("tank/a", "copies", "2");
    for n in 0..60 {
        bench.world.write("tank/a", &format!("file{n}"), &noise(n + 1, 9000));
    }
    bench.world.snapshot("tank/a@1").unwrap();
    // If the first snapshot is destroyed after its examination, the second has blocks of its own.
    (0..5).for_each(|n| bench.world.write("tank/a", &format!("file{n}"), &noise(n + 99, 9000)));
    bench.world.snapshot("tank/a@2").unwrap();
    bench.spoil_everything();
    let (first, passed) = (bench.id("tank/a@1"), bench.ino("tank/a", "file5"));
    bench.world.datasets.scrub().start().unwrap();
    let is_in_the_midst = || match bench.status().position {
        ScrubPosition::Datasets { member, cursor, .. } => member == first && cursor.0 > passed,
        _ => false,
    };
    while !is_in_the_midst() {
        assert_eq!(bench.world.datasets.scrub().advance(BUDGET).unwrap(), Progress::Worked);
    }
    bench.world.destroy("tank/a@1", false, false).unwrap();
    assert_eq!(bench.finish().errors, 0);
    bench.world.work();
    bench.world.judge_damaged();
}
