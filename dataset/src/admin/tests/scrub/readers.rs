//! Bad copies met by readers are repaired from good copies, if the block is still in use.

use std::sync::Arc;

use pool::{
    device::{Device, Fate, Fault, FaultDevice, MemoryDevice, Operation, Recorder},
    format::label::DATA_START,
    vdev::Counts,
};

use super::{BUDGET, Bench, SIZE};
use crate::{
    admin::{
        Progress,
        tests::world::{World, noise},
    },
    catalogue::ScrubState,
};

#[test]
fn what_a_reader_finds_bad_is_healed_from_its_copy() {
    let bench = Bench::new(1, 1);
    bench.world.create("tank/a").unwrap();
    bench.set("tank/a", "copies", "2");
    bench.world.write("tank/a", "file", &noise(1, 50_000));
    let block = bench.data("tank/a", "file");
    assert_eq!(block.copies, 2);
    bench.spoil(&block, 0);
    assert_eq!(bench.read("tank/a", "file").unwrap(), noise(1, 50_000));
    assert_eq!(bench.counts().checksum_errors, 1);
    bench.repair();
    assert!(bench.world.engine.storage().examine(&block).is_whole());
    assert_eq!(bench.counts().checksum_errors, 1);
    bench.clear();
    bench.world.engine.forget_read();
    bench.read("tank/a", "file").unwrap();
    assert_eq!(bench.counts(), Counts::default());
    assert_eq!(bench.world.datasets.damage().unwrap(), []);
}

#[test]
fn a_bad_node_found_by_a_reader_is_repaired_from_its_copy() {
    let bench = Bench::new(2, 2);
    for n in 0..400 {
        bench.world.write("tank", &format!("a file with a name that takes some room {n}"), b"");
    }
    let (found, _) = bench.blocks("tank");
    let interior = found.iter().find(|(level, _)| *level > 0).expect("the tree has an interior node").1;
    let leaf = found.iter().find(|(level, _)| *level == 0).unwrap().1;
    for node in [&interior, &leaf] {
        assert_eq!(node.copies, 2);
        bench.spoil(node, 0);
    }
    assert_eq!(bench.world.files("tank").len(), 400);
    bench.repair();
    for node in [&interior, &leaf] {
        assert!(bench.world.engine.storage().examine(node).is_whole());
    }
    bench.world.judge_damaged();
}

#[test]
fn a_block_that_was_freed_meanwhile_is_not_written() {
    let bench = Bench::new(1, 3);
    bench.set("tank", "copies", "2");
    bench.world.write("tank", "file", &noise(1, 50_000));
    let block = bench.data("tank", "file");
    bench.spoil(&block, 0);
    bench.read("tank", "file").unwrap();
    bench.world.remove("tank", "file");
    // Enough txgs for the space to be reused.
    for n in 0..5 {
        bench.world.write("tank", &format!("other{n}"), &noise(n + 2, 50_000));
        bench.world.engine.commit().unwrap();
    }
    bench.repair();
    assert!(!bench.world.engine.storage().examine(&block).is_whole());
    bench.world.judge_damaged();
}

#[test]
fn a_crash_during_a_repair_costs_nothing() {
    let bench = Bench::new(1, 10);
    bench.set("tank", "copies", "2");
    bench.set("tank", "compression", "off");
    for n in 0..12 {
        bench.world.write("tank", &format!("file{n}"), &noise(n + 1, 9000));
    }
    bench.spoil_everything();
    let wanted = bench.world.files("tank");
    bench.world.datasets.close_all().unwrap();
    let recorder = Recorder::new();
    let device: Arc<dyn Device> = Arc::new(recorder.wrap(bench.disks[0].snapshot()));
    let world = World::open(device, 11).unwrap();
    let first = recorder.len();
    world.datasets.scrub().start().unwrap();
    while world.datasets.scrub().advance(BUDGET).unwrap() == Progress::Worked {}
    assert!(recorder.len() > first + 12);
    for cut in (first..=recorder.len()).step_by(2) {
        let image = Arc::new(recorder.images_at(cut, &mut Fate::seeded(cut as u64)).remove(0));
        let disks = vec![image.clone()];
        let after = Bench { world: World::open(image, cut as u64).unwrap(), disks };
        assert_eq!(after.world.files("tank"), wanted, "cut {cut}");
        // The scrub runs already, unless the cut was before its start. Its saved position is before any torn write.
        let _ = after.world.datasets.scrub().start();
        assert_eq!(after.finish().errors, 0, "cut {cut}");
        after.world.judge_damaged();
    }
}

#[test]
fn a_device_that_refuses_the_copy_costs_redundancy_only() {
    let faulty = Arc::new(FaultDevice::new(Arc::new(MemoryDevice::new("faulty", SIZE))));
    let bench = Bench { world: World::on(faulty.clone(), 13), disks: Vec::new() };
    bench.set("tank", "copies", "2");
    bench.world.write("tank", "file", &noise(1, 50_000));
    let block = bench.data("tank", "file");
    let storage = bench.world.engine.storage();
    let at = DATA_START + storage.space.resolve(block.addresses[0], block.stored).unwrap().1;
    let failing = Fault { range: at..at + 16, ..Fault::failing(Operation::Read) };
    for (fault, is_checksum) in [(Fault::corrupting(at..at + 16), true), (failing, false)] {
        faulty.heal();
        faulty.inject(fault);
        bench.clear();
        let status = bench.scrub();
        assert_eq!((status.state, status.repaired, status.errors), (ScrubState::Finished, 0, 0));
        let Counts { read_errors, checksum_errors, .. } = bench.counts();
        assert_eq!((checksum_errors > 0, read_errors > 0), (is_checksum, !is_checksum));
        bench.world.engine.forget_read();
        assert_eq!(bench.read("tank", "file").unwrap(), noise(1, 50_000));
    }
    assert_eq!(bench.world.datasets.damage().unwrap(), []);
    faulty.heal();
    assert_eq!(bench.scrub().repaired, 0);
    bench.world.judge_damaged();
}
