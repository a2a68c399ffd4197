//! Blocks with several references: copies without space of their own, and the end of either copy.

use std::sync::Arc;

use pool::{
    device::{Device, Fate, MemoryDevice, Recorder},
    format::label::BLOCK_CLONING,
    units::MIB,
    vdev::labels,
};
use rustix::io::Errno;

use super::world::{World, noise};
use crate::{
    admin::Assignment,
    fs::{Caller, ROOT},
    lineage::check::FindingKind,
};

const SIZE: usize = 1 << 20;

/// Two datasets, a file of one megabyte in the first, and its content.
fn world(seed: u64) -> (World, Vec<u8>) {
    let world = World::new(seed);
    world.create("tank/a").unwrap();
    world.create("tank/b").unwrap();
    let content = noise(seed, SIZE);
    world.write("tank/a", "file", &content);
    (world, content)
}

fn allocated(world: &World) -> u64 {
    world.settle();
    world.engine.space_totals().allocated
}

#[test]
fn a_copy_takes_no_space_and_is_charged() {
    for (to, committed) in [("tank/a", true), ("tank/b", true), ("tank/a", false), ("tank/b", false)] {
        let (world, content) = world(1);
        if committed {
            world.engine.commit().unwrap();
        }
        world.copy("tank/a", "file", to, "copy");
        world.judge();
        let (blocks, saved) = world.sharing();
        assert_eq!((blocks, saved), (8, SIZE as u64), "{to}, {committed}");
        let before = allocated(&world);
        assert!(before < (SIZE + SIZE / 2) as u64 + (1 << 20), "{before} bytes are allocated");
        let charged = world.number(to, "referenced");
        assert!(charged >= SIZE as u64 * if to == "tank/a" { 2 } else { 1 }, "{charged}");
        assert!(world.number("tank", "used") >= 2 * SIZE as u64);
        world.remove("tank/a", "file");
        world.judge();
        assert_eq!(world.sharing(), (0, 0));
        assert_eq!(world.files(to)["copy"], content);
        assert!(allocated(&world) >= SIZE as u64);
        world.remove(to, "copy");
        world.judge();
        assert!(allocated(&world) < before - SIZE as u64 / 2);
    }
}

#[test]
fn a_block_below_the_targets_policy_is_copied() {
    let (world, content) = world(21);
    world.engine.commit().unwrap();
    for (property, value, there) in [("copies", "2", "1"), ("checksum", "on", "off")] {
        world.set("tank/b", property, value).unwrap();
        world.set("tank/a", property, there).unwrap();
        world.write("tank/a", property, &content);
        world.copy("tank/a", property, "tank/b", property);
        world.judge();
        assert_eq!(world.sharing(), (0, 0), "{property}");
        assert_eq!(world.files("tank/b")[property], content);
        // In the other direction the target's policy asks for more.
        world.copy("tank/b", property, "tank/a", "back");
        world.judge();
        assert_eq!(world.sharing().0, 8, "{property}");
        world.remove("tank/a", "back");
        world.set("tank/b", property, there).unwrap();
    }
}

#[test]
fn both_sides_change_without_the_other() {
    let (world, content) = world(2);
    world.engine.commit().unwrap();
    world.copy("tank/a", "file", "tank/b", "copy");
    let overwrite = |dataset: &str, file: &str, at: usize| {
        let fs = world.fs(dataset);
        let ino = fs.lookup(ROOT, file.as_bytes()).unwrap().ino;
        fs.write(ino, at as u64, &noise(9, 50_000), false).unwrap();
        let mut expected = content.clone();
        expected[at..at + 50_000].copy_from_slice(&noise(9, 50_000));
        expected
    };
    let source = overwrite("tank/a", "file", 100_000);
    world.judge();
    let copy = overwrite("tank/b", "copy", 700_000);
    world.judge();
    assert!(world.files("tank/a")["file"] == source && world.files("tank/b")["copy"] == copy);
}

#[test]
fn what_is_taken_and_given_up_in_one_group_leaves_nothing() {
    let (world, content) = world(3);
    world.copy("tank/a", "file", "tank/b", "one");
    world.copy("tank/b", "one", "tank/b", "two");
    world.remove("tank/b", "one");
    world.remove("tank/a", "file");
    world.copy("tank/b", "two", "tank/a", "file");
    world.remove("tank/b", "two");
    world.judge();
    assert_eq!((world.sharing(), &world.files("tank/a")["file"]), ((0, 0), &content));
}

#[test]
fn old_blocks_in_young_places_are_no_intruders() {
    let (world, content) = world(4);
    world.snapshot("tank/a@1").unwrap();
    world.snapshot("tank/b@1").unwrap();
    // Blocks older than the snapshots of both datasets, in no snapshot of the one, and under another key in the other.
    world.copy("tank/a", "file", "tank/b", "copy");
    world.copy("tank/a", "file", "tank/a", "copy");
    world.judge();
    world.snapshot("tank/b@2").unwrap();
    world.remove("tank/b", "copy");
    world.remove("tank/a", "copy");
    world.remove("tank/a", "file");
    world.judge();
    assert_eq!(world.files("tank/b@2")["copy"], content);
    world.destroy("tank/a@1", false, false).unwrap();
    world.judge();
    world.work();
    world.judge();
    assert_eq!(world.files("tank/b@2")["copy"], content);
    let before = allocated(&world);
    world.destroy("tank/b@2", false, false).unwrap();
    world.work();
    world.judge();
    assert_eq!(world.sharing(), (0, 0));
    assert!(allocated(&world) < before - SIZE as u64 / 2);
}

#[test]
fn going_back_and_destroying_gives_up_what_was_taken() {
    let (world, content) = world(5);
    world.snapshot("tank/b@1").unwrap();
    world.copy("tank/a", "file", "tank/b", "one");
    world.copy("tank/a", "file", "tank/b", "two");
    world.judge();
    assert_eq!(world.sharing(), (8, 2 * SIZE as u64));
    world.rollback("tank/b@1", false, false).unwrap();
    world.judge();
    world.work();
    world.judge();
    assert_eq!(world.sharing(), (0, 0));
    world.copy("tank/a", "file", "tank/b", "three");
    world.destroy("tank/a", true, false).unwrap();
    world.judge();
    world.work();
    world.judge();
    assert_eq!(world.files("tank/b")["three"], content);
    assert_eq!(world.sharing(), (0, 0));
}

#[test]
fn clones_inherit_references() {
    let (world, content) = world(6);
    world.engine.commit().unwrap();
    world.copy("tank/a", "file", "tank/b", "copy");
    world.snapshot("tank/b@1").unwrap();
    world.clone("tank/b@1", "tank/c").unwrap();
    world.judge();
    assert_eq!(world.sharing(), (8, SIZE as u64));
    world.copy("tank/c", "copy", "tank/c", "again");
    world.remove("tank/c", "copy");
    world.judge();
    world.datasets.promote(&"tank/c".parse().unwrap()).unwrap();
    world.judge();
    world.destroy("tank/b", true, false).unwrap();
    world.remove("tank/a", "file");
    world.work();
    world.judge();
    assert_eq!(world.files("tank/c")["again"], content);
    assert_eq!(world.sharing(), (8, SIZE as u64), "the snapshot's copy and the other one");
}

#[test]
fn many_records_of_a_file_may_share_one_block() {
    let (world, content) = world(7);
    world.engine.commit().unwrap();
    let record = 128 << 10;
    for index in 8..20 {
        assert_eq!(world.copy_range(("tank/a", "file", 0), ("tank/a", "file", index * record), record), record);
    }
    // Distances beyond a record are no obstacle if the parts are near each other in the file.
    world.write("tank/b", "near", &[]);
    let half = record / 2;
    world.copy_range(("tank/a", "file", half), ("tank/b", "near", half), half);
    world.copy_range(("tank/a", "file", half), ("tank/b", "near", record), half);
    world.judge();
    let mut file = content.clone();
    (8..20).for_each(|_| file.extend_from_slice(&content[..record as usize]));
    assert!(world.files("tank/a")["file"] == file);
    let (first, part) = (record as usize, half as usize);
    let near = [&vec![0; part], &content[part..first], &content[part..first]].concat();
    assert!(world.files("tank/b")["near"] == near);
    world.snapshot("tank/a@1").unwrap();
    world.destroy("tank/a", true, false).unwrap();
    // The file is larger than one step of background work.
    world.work();
    world.judge();
    world.destroy("tank/b", false, false).unwrap();
    world.work();
    world.judge();
    assert_eq!(world.sharing(), (0, 0));
}

#[test]
fn unaligned_copies_share_what_they_can() {
    let (world, content) = world(8);
    world.engine.commit().unwrap();
    world.write("tank/b", "copy", &noise(5, 3000));
    assert_eq!(world.copy_range(("tank/a", "file", 1000), ("tank/b", "copy", 1000), 900_000), 900_000);
    world.judge();
    let mut expected = noise(5, 1000);
    expected.extend_from_slice(&content[1000..901_000]);
    assert!(world.files("tank/b")["copy"] == expected);
    assert!(world.sharing().0 >= 5, "{:?}", world.sharing());
    // A second part of the same block, under the existing reference.
    let before = world.sharing();
    world.copy_range(("tank/a", "file", 131_072), ("tank/b", "copy", 131_072), 131_072);
    world.judge();
    assert_eq!(world.sharing(), before);
}

#[test]
fn quotas_charge_each_reference() {
    let (world, _) = world(9);
    world.engine.commit().unwrap();
    let set = |property: &str, value: &str| {
        let assignment = Assignment { property: property.into(), value: value.into() };
        world.datasets.set(&["tank/b".parse().unwrap()], &[assignment]).unwrap();
    };
    set("refquota", "1500K");
    world.copy("tank/a", "file", "tank/b", "one");
    world.engine.commit().unwrap();
    let (fs, other) = (world.fs("tank/b"), world.fs("tank/a"));
    let ino = fs.create(&Caller::default(), ROOT, b"two", 0o644, true).unwrap().ino;
    let source = other.lookup(ROOT, b"file").unwrap().ino;
    assert_eq!(fs.copy_range_from(&other, source, 0, ino, 0, SIZE as u64), Err(Errno::DQUOT));
    world.judge();
}

#[test]
fn the_feature_is_named_by_the_labels_before_it_is_used() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new("disk", 64 * MIB));
    let world = World::on(device.clone(), 10);
    let named = || labels::read_label(&*device).unwrap().unwrap().features.contains_key(BLOCK_CLONING);
    world.write("tank", "file", &noise(1, 300_000));
    world.engine.commit().unwrap();
    assert_eq!((world.datasets.feature_state(BLOCK_CLONING).unwrap(), named()), ("enabled", false));
    world.copy("tank", "file", "tank", "copy");
    assert_eq!((world.datasets.feature_state(BLOCK_CLONING).unwrap(), named()), ("active", true));
    world.judge();
    let mut world = world;
    world.reopen();
    assert_eq!(world.datasets.feature_state(BLOCK_CLONING).unwrap(), "active");
}

#[test]
fn a_pool_without_the_feature_copies() {
    let (world, content) = world(11);
    let disable = |tx: &mut crate::catalogue::Transaction<'_>| {
        let (pool, kind) = (crate::catalogue::POOL, crate::catalogue::kind::PROPERTY);
        tx.delete_range(crate::catalogue::keys(pool, kind))
    };
    world.datasets.run(disable).unwrap();
    world.datasets.close_all().unwrap();
    world.copy("tank/a", "file", "tank/b", "copy");
    world.judge();
    assert_eq!((world.datasets.feature_state(BLOCK_CLONING).unwrap(), world.sharing()), ("disabled", (0, 0)));
    assert_eq!(world.files("tank/b")["copy"], content);
    world.datasets.set_pool_property("feature@block_cloning", "enabled").unwrap();
    world.copy("tank/a", "file", "tank/b", "copy");
    world.judge();
    assert_eq!(world.sharing().0, 8);
    assert!(world.findings().iter().all(|finding| finding.kind != FindingKind::References));
}

#[test]
fn a_file_comes_back_from_a_snapshot_without_taking_space() {
    let (world, content) = world(12);
    world.snapshot("tank/a@1").unwrap();
    world.remove("tank/a", "file");
    let open = world.datasets.open_snapshot(&"tank/a@1".parse().unwrap()).unwrap();
    let fs = world.fs("tank/b");
    let source = open.fs.lookup(ROOT, b"file").unwrap().ino;
    let copy = |name: &str| {
        let ino = fs.create(&Caller::default(), ROOT, name.as_bytes(), 0o644, true).unwrap().ino;
        fs.copy_range_from(&open.fs, source, 0, ino, 0, SIZE as u64)
    };
    assert_eq!(copy("one"), Ok(SIZE as u64));
    world.judge();
    assert_eq!((world.sharing().0, &world.files("tank/b")["one"]), (8, &content));
    // The blocks may be reused soon, so a reader with the file still open gets an error.
    world.destroy("tank/a@1", false, false).unwrap();
    assert_eq!(copy("two"), Err(Errno::STALE));
    world.judge();
    world.work();
    world.judge();
    assert_eq!(world.sharing(), (0, 0));
    let files = world.files("tank/b");
    assert!(files["one"] == content && files["two"].is_empty());
}

/// Copies, followed by a crash: logged copies come back, with their references.
fn crash_after(act: impl Fn(&World)) -> World {
    crash_between(|_| (), act)
}

/// As [`crash_after`], with committed preparations.
fn crash_between(prepare: impl Fn(&World), act: impl Fn(&World)) -> World {
    let recorder = Recorder::new();
    let world = World::on(Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB))), 13);
    world.create("tank/a").unwrap();
    world.create("tank/b").unwrap();
    world.create("tank/c").unwrap();
    world.write("tank/a", "old", &noise(1, 300_000));
    // The log exists from the next txg on.
    world.engine.commit().unwrap();
    prepare(&world);
    world.write("tank/a", "older", b"x");
    world.engine.commit().unwrap();
    let (committed, frames) = (world.engine.committed(), world.engine.log_stats().frames);
    act(&world);
    assert_eq!(world.engine.committed(), committed, "the log alone keeps it");
    assert!(world.engine.log_stats().frames > frames);
    let image = recorder.images_at(recorder.len(), &mut || Fate::Kept).remove(0);
    let world = World::open(Arc::new(image), 99).expect("the pool was made before");
    world.judge();
    world
}

#[test]
fn the_log_takes_references_to_what_is_committed() {
    let world = crash_after(|world| {
        world.copy("tank/a", "old", "tank/b", "copy");
        world.fs("tank/b").fsync(ROOT).unwrap();
    });
    assert_eq!((world.sharing().0, &world.files("tank/b")["copy"]), (3, &noise(1, 300_000)));
    // Also if the former owner's drop was logged.
    let world = crash_after(|world| {
        world.copy("tank/a", "old", "tank/b", "copy");
        world.fs("tank/b").fsync(ROOT).unwrap();
        world.remove("tank/a", "old");
        world.fs("tank/a").fsync(ROOT).unwrap();
    });
    assert_eq!((world.sharing().0, &world.files("tank/b")["copy"]), (0, &noise(1, 300_000)));
}

#[test]
fn the_log_distinguishes_a_reference_from_its_predecessor() {
    // Copied again into a dataset whose snapshot, or a clone's origin, still has the earlier copy.
    let copy = |world: &World, to: &str| world.copy("tank/a", "old", to, "copy");
    let snapshot = |world: &World| {
        copy(world, "tank/b");
        world.snapshot("tank/b@s").unwrap();
    };
    let clone = |world: &World| {
        snapshot(world);
        world.clone("tank/b@s", "tank/d").unwrap();
    };
    for (prepare, again) in [(&snapshot as &dyn Fn(&World), "tank/b"), (&clone, "tank/d")] {
        let world = crash_between(prepare, |world| {
            copy(world, again);
            world.fs(again).fsync(ROOT).unwrap();
        });
        world.remove(again, "copy");
        world.remove("tank/a", "old");
        world.judge();
        assert!(world.files("tank/b@s")["copy"] == noise(1, 300_000), "{again}");
    }
}

#[test]
fn the_log_takes_references_to_what_was_never_committed() {
    let content = noise(2, 256 << 10);
    let lived = |who: &[&str]| {
        let who: Vec<String> = who.iter().map(|name| (*name).to_owned()).collect();
        crash_after(move |world| {
            world.write("tank/b", "new", &noise(2, 256 << 10));
            world.copy("tank/b", "new", "tank/a", "copy");
            world.copy("tank/a", "copy", "tank/c", "copy");
            who.iter().for_each(|name| world.fs(name).fsync(ROOT).unwrap());
        })
    };
    // Only one of the sharing datasets may have logged, the writer or a copier.
    for (who, blocks) in [
        (&["tank/a"][..], 0),
        (&["tank/b"], 0),
        (&["tank/a", "tank/c"], 2),
        (&["tank/c", "tank/b"], 2),
        (&["tank/b", "tank/a", "tank/c"], 2),
    ] {
        let world = lived(who);
        assert_eq!(world.sharing().0, blocks, "{who:?}");
        for name in who {
            let file = if *name == "tank/b" { "new" } else { "copy" };
            assert!(world.files(name)[file] == content, "{who:?}: {name}");
        }
    }
    // Taken, dropped and taken again before the crash.
    let world = crash_after(|world| {
        world.write("tank/b", "new", &noise(2, 256 << 10));
        for _ in 0..3 {
            world.copy("tank/b", "new", "tank/a", "copy");
            world.fs("tank/a").fsync(ROOT).unwrap();
            world.remove("tank/a", "copy");
            world.fs("tank/a").fsync(ROOT).unwrap();
            world.fs("tank/b").fsync(ROOT).unwrap();
        }
        world.copy("tank/b", "new", "tank/a", "copy");
        world.copy("tank/a", "copy", "tank/a", "second");
        world.fs("tank/a").fsync(ROOT).unwrap();
    });
    assert_eq!(world.sharing(), (2, 512 << 10));
    let files = world.files("tank/a");
    assert!(files["copy"] == content && files["second"] == content);
}

#[test]
fn streams_bring_each_reference_as_a_block_of_its_own() {
    let (here, there) = (world(14).0, World::new(15));
    let record = 128 << 10;
    // Near each other and in one block, but in two records.
    here.write("tank/a", "near", &noise(3, record as usize));
    here.engine.commit().unwrap();
    let half = record / 2;
    here.copy_range(("tank/a", "near", half), ("tank/a", "near", record), half);
    here.snapshot("tank/a@1").unwrap();
    let full = here.send("tank/a@1", None, |_| ()).unwrap();
    there.receive("tank/r", &full, false).unwrap();
    there.judge();
    assert!(there.files("tank/r") == here.files("tank/a@1"));
    // Shares the base's blocks, also within the same file.
    here.copy("tank/a", "file", "tank/a", "copy");
    here.copy_range(("tank/a", "file", 0), ("tank/a", "file", 6 * record), record);
    here.snapshot("tank/a@2").unwrap();
    let more = here.send("tank/a@2", Some("tank/a@1"), |_| ()).unwrap();
    there.receive("tank/r", &more, false).unwrap();
    there.judge();
    assert!(there.files("tank/r") == here.files("tank/a@2"));
    // In the opposite direction, onto trees with shared references on both sides.
    there.copy("tank/r", "file", "tank/r", "third");
    there.copy_range(("tank/r", "near", half), ("tank/r", "near", 3 * record - half), half);
    there.copy_range(("tank/r", "near", half), ("tank/r", "near", 3 * record), half);
    there.remove("tank/r", "copy");
    there.snapshot("tank/r@3").unwrap();
    let back = there.send("tank/r@3", Some("tank/r@2"), |_| ()).unwrap();
    here.receive("tank/a", &back, false).unwrap();
    here.judge();
    assert!(here.files("tank/a") == there.files("tank/r@3"));
    // References dropped at the sender are dropped here, one by one.
    let fs = here.fs("tank/a");
    let near = fs.lookup(ROOT, b"near").unwrap().ino;
    fs.write(near, 3 * record - half, &noise(8, half as usize), false).unwrap();
    fs.write(near, half + 5000, b"in the middle", false).unwrap();
    here.remove("tank/a", "third");
    here.snapshot("tank/a@4").unwrap();
    let last = here.send("tank/a@4", Some("tank/a@3"), |_| ()).unwrap();
    there.receive("tank/r", &last, false).unwrap();
    there.judge();
    assert!(there.files("tank/r") == here.files("tank/a@4"));
    for (world, name) in [(&here, "tank/a"), (&there, "tank/r")] {
        world.destroy(name, true, false).unwrap();
        world.work();
        world.judge();
        assert_eq!(world.sharing(), (0, 0));
    }
}
