//! Each request by itself: effects and refusals.

use super::world::{World, name, noise, refusal};
use crate::{
    admin::{Assignment, CreateRequest, DestroyRequest, DestroySnapshotsRequest, DifferenceKind},
    error::{Error, Object},
    name::Name,
    property::Source,
};

fn assignment(property: &str, value: &str) -> Assignment {
    Assignment { property: property.into(), value: value.into() }
}

#[test]
fn a_new_pool_has_an_empty_root_data_set() {
    let mut world = World::new(1);
    assert_eq!(world.names(), ["tank"]);
    assert!(world.files("tank").is_empty());
    world.judge();
    world.reopen();
    assert_eq!(world.names(), ["tank"]);
    world.judge();
}

#[test]
fn data_sets_are_created_below_others() {
    let world = World::new(2);
    world.create("tank/a").unwrap();
    assert!(matches!(refusal(world.create("tank/a")), Error::Exists { .. }));
    assert!(matches!(refusal(world.create("tank/x/y")), Error::NotFound { what: Object::Parent, .. }));
    assert!(matches!(refusal(world.create("other/x")), Error::NotFound { .. }));
    let request = CreateRequest { name: name("tank/x/y/z"), parents: true, properties: Vec::new(), owner: (5, 6) };
    assert_eq!(world.datasets.create(request.clone()).unwrap(), [name("tank/x"), name("tank/x/y"), name("tank/x/y/z")]);
    assert!(world.datasets.create(request).unwrap().is_empty());
    let root = world.fs("tank/x/y/z").getattr(crate::fs::ROOT).unwrap();
    assert_eq!((root.uid, root.gid, root.mode), (5, 6, 0o755));
    assert_eq!(world.names(), ["tank", "tank/a", "tank/x", "tank/x/y", "tank/x/y/z"]);
    world.judge();
}

#[test]
fn a_failed_request_changes_nothing() {
    let world = World::new(3);
    let properties = vec![assignment("compression", "off"), assignment("recordsize", "77")];
    let request = CreateRequest { name: name("tank/a"), parents: false, properties, owner: (0, 0) };
    assert!(matches!(refusal(world.datasets.create(request)), Error::Property(_)));
    assert_eq!(world.names(), ["tank"]);
    world.judge();
}

#[test]
fn snapshots_keep_what_was_there() {
    let mut world = World::new(4);
    world.create("tank/a").unwrap();
    world.write("tank/a", "one", &noise(1, 100_000));
    world.snapshot("tank/a@first").unwrap();
    assert!(matches!(refusal(world.snapshot("tank/a@first")), Error::Exists { .. }));
    let then = world.files("tank/a");
    world.write("tank/a", "one", b"changed");
    world.write("tank/a", "two", &noise(2, 50_000));
    world.snapshot("tank/a@second").unwrap();
    world.remove("tank/a", "two");
    world.reopen();
    assert_eq!(world.files("tank/a@first"), then);
    assert_eq!(world.files("tank/a@second").len(), 2);
    assert_eq!(world.files("tank/a").len(), 1);
    assert!(world.number("tank/a@first", "used") > 90_000);
    assert!(world.number("tank/a", "usedbysnapshots") > 140_000);
    world.judge();
}

#[test]
fn recursive_snapshots_are_of_one_instant() {
    let world = World::new(5);
    for dataset in ["tank/a", "tank/a/b", "tank/c"] {
        world.create(dataset).unwrap();
        world.write(dataset, "file", dataset.as_bytes());
    }
    let taken = world.datasets.snapshot(vec!["tank@all".parse().unwrap()], true, Vec::new()).unwrap();
    assert_eq!(taken.len(), 4);
    let txgs: Vec<String> = taken.iter().map(|name| world.get(name.as_str(), "createtxg")).collect();
    assert!(txgs.iter().all(|txg| *txg == txgs[0]));
    assert_eq!(world.files("tank/a/b@all")["file"], b"tank/a/b");
    let set = "tank@all".parse().unwrap();
    let request = DestroySnapshotsRequest { set, recursive: true, dependents: false, defer: false };
    assert_eq!(world.datasets.destroy_snapshots(request, false).unwrap().names.len(), 4);
    world.work();
    world.judge();
}

#[test]
fn rollback_brings_back_what_was_there() {
    let world = World::new(6);
    world.write("tank", "kept", &noise(1, 300_000));
    world.snapshot("tank@a").unwrap();
    let then = world.files("tank");
    world.remove("tank", "kept");
    world.write("tank", "new", &noise(2, 300_000));
    world.engine.commit().unwrap();
    let used = world.number("tank", "used");
    world.rollback("tank@a", false, false).unwrap();
    assert_eq!(world.files("tank"), then);
    assert!(world.datasets.freeing().unwrap() > 290_000);
    world.work();
    assert_eq!(world.datasets.freeing().unwrap(), 0);
    assert!(world.number("tank", "used") < used - 290_000);
    // The dataset stays usable.
    world.write("tank", "after", b"more");
    world.judge();
}

#[test]
fn rollback_past_later_snapshots_wants_a_flag() {
    let world = World::new(7);
    world.snapshot("tank@a").unwrap();
    world.write("tank", "x", b"x");
    world.snapshot("tank@b").unwrap();
    let source: Name = "tank@b".parse().unwrap();
    world.datasets.bookmark(&source, &"tank#b".parse().unwrap()).unwrap();
    world.clone("tank@b", "tank/clone").unwrap();
    let Error::NotNewest { later, .. } = refusal(world.rollback("tank@a", false, false)) else { panic!() };
    assert_eq!(later, ["tank@b", "tank#b"]);
    assert!(matches!(refusal(world.rollback("tank@a", true, false)), Error::HasClones { .. }));
    let done = world.rollback("tank@a", true, true).unwrap();
    assert_eq!(done.destroyed, ["tank/clone", "tank@b"]);
    assert_eq!(world.names(), ["tank", "tank@a"]);
    assert!(world.files("tank").is_empty());
    world.work();
    world.judge();
}

#[test]
fn clones_and_promotion() {
    let world = World::new(8);
    world.create("tank/a").unwrap();
    world.write("tank/a", "base", &noise(1, 200_000));
    world.snapshot("tank/a@1").unwrap();
    world.write("tank/a", "base", &noise(2, 200_000));
    world.snapshot("tank/a@2").unwrap();
    world.write("tank/a", "later", &noise(3, 100_000));
    world.clone("tank/a@2", "tank/b").unwrap();
    assert_eq!(world.get("tank/b", "origin"), "tank/a@2");
    assert_eq!(world.get("tank/a@2", "clones"), "tank/b");
    assert!(matches!(refusal(world.destroy("tank/a@2", false, false)), Error::HasClones { .. }));
    assert!(matches!(refusal(world.datasets.promote(&name("tank/a"))), Error::NotClone { .. }));
    world.write("tank/b", "own", &noise(4, 50_000));
    world.remove("tank/b", "base");
    world.judge();
    let moved = world.datasets.promote(&name("tank/b")).unwrap();
    assert_eq!(moved.iter().map(ToString::to_string).collect::<Vec<_>>(), ["tank/b@1", "tank/b@2"]);
    assert_eq!(world.get("tank/a", "origin"), "tank/b@2");
    assert_eq!(world.get("tank/b", "origin"), "-");
    world.judge();
    world.destroy("tank/a", false, false).unwrap();
    world.work();
    world.judge();
    assert_eq!(world.files("tank/b@1").len(), 1);
    world.destroy("tank/b", true, false).unwrap();
    world.work();
    world.judge();
    assert_eq!(world.names(), ["tank"]);
}

#[test]
fn a_range_of_snapshots_is_destroyed_as_announced() {
    let world = World::new(9);
    for index in 0..6 {
        world.write("tank", "file", &noise(index, 60_000));
        world.snapshot(&format!("tank@{index}")).unwrap();
    }
    world.write("tank", "file", &noise(9, 60_000));
    let announced = world.destroy_or_not("tank@1%3,5", false, false, true).unwrap();
    assert_eq!(announced.names, ["tank@1", "tank@2", "tank@3", "tank@5"]);
    assert_eq!(world.names().len(), 7);
    assert!(announced.reclaimed > 4 * 60_000);
    let done = world.destroy("tank@1%3,5", false, false).unwrap();
    assert_eq!(done, announced);
    assert_eq!(world.names(), ["tank", "tank@0", "tank@4"]);
    assert!(matches!(refusal(world.destroy("tank@7", false, false)), Error::NotFound { .. }));
    world.work();
    world.judge();
}

#[test]
fn holds_keep_snapshots() {
    let world = World::new(10);
    world.snapshot("tank@a").unwrap();
    let snapshots = ["tank@a".parse().unwrap()];
    world.datasets.hold("mine", &snapshots, false).unwrap();
    assert!(matches!(refusal(world.datasets.hold("mine", &snapshots, false)), Error::Exists { .. }));
    assert!(matches!(refusal(world.destroy("tank@a", false, false)), Error::Held { .. }));
    let holds = world.datasets.holds(&snapshots, false).unwrap();
    assert_eq!((holds.len(), holds[0].tag.as_str()), (1, "mine"));
    let set = "tank@a".parse().unwrap();
    let request = DestroySnapshotsRequest { set, recursive: false, dependents: false, defer: true };
    assert_eq!(world.datasets.destroy_snapshots(request, false).unwrap().deferred, ["tank@a"]);
    assert_eq!(world.get("tank@a", "defer_destroy"), "on");
    assert_eq!(world.get("tank@a", "userrefs"), "1");
    assert!(matches!(refusal(world.datasets.release("other", &snapshots, false)), Error::NotFound { .. }));
    world.datasets.release("mine", &snapshots, false).unwrap();
    assert_eq!(world.names(), ["tank"]);
    world.work();
    world.judge();
}

#[test]
fn destroying_wants_flags_for_what_hangs_on_it() {
    let world = World::new(11);
    world.create("tank/a").unwrap();
    world.create("tank/a/b").unwrap();
    world.snapshot("tank/a/b@s").unwrap();
    world.clone("tank/a/b@s", "tank/c").unwrap();
    world.snapshot("tank/c@t").unwrap();
    assert!(matches!(refusal(world.destroy("tank", false, false)), Error::IsRoot { .. }));
    assert!(matches!(refusal(world.destroy("tank/a", false, false)), Error::HasChildren { .. }));
    assert!(matches!(refusal(world.destroy("tank/c", false, false)), Error::HasSnapshots { .. }));
    assert!(matches!(refusal(world.destroy("tank/a", true, false)), Error::HasClones { .. }));
    let done = world.destroy("tank/a", true, true).unwrap();
    assert_eq!(done.names, ["tank/c@t", "tank/c", "tank/a/b@s", "tank/a/b", "tank/a"]);
    world.work();
    world.judge();
    assert_eq!(world.names(), ["tank"]);
}

#[test]
fn all_but_the_root_is_destroyed_with_it() {
    let world = World::new(19);
    world.write("tank", "stays", b"in the root");
    ["tank/a", "tank/a/b"].iter().for_each(|name| drop(world.create(name).unwrap()));
    ["tank@s", "tank/a/b@s"].iter().for_each(|name| world.snapshot(name).unwrap());
    world.clone("tank@s", "tank/c").unwrap();
    world.clone("tank/a/b@s", "tank/d").unwrap();
    let own: [crate::name::SnapshotName; 1] = ["tank@s".parse().unwrap()];
    world.datasets.hold("keep", &own, false).unwrap();
    let before = world.names();
    assert!(matches!(refusal(world.destroy("tank", true, false)), Error::Held { .. }));
    assert_eq!(world.names(), before);
    world.datasets.release("keep", &own, false).unwrap();
    let done = world.destroy("tank", true, false).unwrap();
    assert_eq!(done.names.last().map(String::as_str), Some("tank@s"));
    assert_eq!(world.names(), ["tank"]);
    assert_eq!(world.files("tank")["stays"], b"in the root");
    world.work();
    world.judge();
}

#[test]
fn holds_and_renames_find_snapshots_that_only_children_have() {
    let world = World::new(20);
    ["tank/a", "tank/a/b"].iter().for_each(|name| drop(world.create(name).unwrap()));
    world.snapshot("tank/a/b@s").unwrap();
    let top: [crate::name::SnapshotName; 1] = ["tank/a@s".parse().unwrap()];
    assert!(matches!(refusal(world.datasets.hold("keep", &top, false)), Error::NotFound { .. }));
    world.datasets.hold("keep", &top, true).unwrap();
    assert_eq!(world.datasets.holds(&top, true).unwrap().len(), 1);
    world.datasets.release("keep", &top, true).unwrap();
    world.datasets.rename_snapshot(&top[0], "t", true).unwrap();
    assert!(world.names().contains(&"tank/a/b@t".to_owned()));
    for missing in [world.datasets.hold("keep", &top, true), world.datasets.rename_snapshot(&top[0], "t", true)] {
        assert!(matches!(refusal(missing), Error::NotFound { .. }));
    }
    world.judge();
}

#[test]
fn a_data_set_below_its_own_clone_can_be_destroyed() {
    let world = World::new(17);
    world.create("tank/a").unwrap();
    world.write("tank/a", "file", &noise(1, 100_000));
    world.snapshot("tank/a@s").unwrap();
    world.clone("tank/a@s", "tank/b").unwrap();
    world.datasets.rename(&name("tank/a"), &name("tank/b/a"), false, (0, 0)).unwrap();
    world.judge();
    let done = world.destroy("tank/b", true, false).unwrap();
    assert_eq!(done.names, ["tank/b", "tank/b/a@s", "tank/b/a"]);
    assert_eq!(world.names(), ["tank"]);
    world.work();
    world.judge();
}

#[test]
fn the_root_is_not_destroyed_as_a_clone() {
    let world = World::new(18);
    world.snapshot("tank@s").unwrap();
    world.clone("tank@s", "tank/a").unwrap();
    world.datasets.promote(&name("tank/a")).unwrap();
    assert!(matches!(refusal(world.destroy("tank/a", true, true)), Error::IsRoot { .. }));
    world.judge();
}

#[test]
fn renaming_moves_what_is_below() {
    let world = World::new(12);
    world.create("tank/a").unwrap();
    world.create("tank/a/b").unwrap();
    world.create("tank/x").unwrap();
    world.write("tank/a/b", "file", &noise(1, 100_000));
    world.snapshot("tank/a/b@s").unwrap();
    let rename = |from: &str, to: &str| world.datasets.rename(&name(from), &name(to), false, (0, 0));
    assert!(matches!(refusal(rename("tank/a", "tank/x")), Error::Exists { .. }));
    assert!(matches!(refusal(rename("tank/a", "tank/a/b/c")), Error::Misplaced { .. }));
    assert!(matches!(refusal(rename("tank", "tunk")), Error::IsRoot { .. }));
    let before = world.number("tank/a", "used");
    let renamed = rename("tank/a", "tank/x/y").unwrap();
    assert_eq!(renamed.datasets.len(), 2);
    assert_eq!(world.names(), ["tank", "tank/x", "tank/x/y", "tank/x/y/b", "tank/x/y/b@s"]);
    assert!(world.number("tank/x", "used") > before);
    world.datasets.rename_snapshot(&"tank/x/y/b@s".parse().unwrap(), "t", false).unwrap();
    assert_eq!(world.files("tank/x/y/b@t").len(), 1);
    world.judge();
}

#[test]
fn properties_are_inherited() {
    let world = World::new(13);
    world.create("tank/a").unwrap();
    world.create("tank/a/b").unwrap();
    let targets = |text: &str| [text.parse::<Name>().unwrap()];
    let source = |of: &str, property: &str| world.datasets.get(&of.parse().unwrap(), property).unwrap().unwrap().source;
    assert_eq!(source("tank/a/b", "compression"), Source::Default);
    world.datasets.set(&targets("tank/a"), &[assignment("compress", "zstd-7"), assignment("me:note", "hi")]).unwrap();
    assert_eq!(world.get("tank/a/b", "compression"), "zstd-7");
    assert_eq!(source("tank/a/b", "compression"), Source::Inherited("tank/a".into()));
    assert_eq!(source("tank/a", "compression"), Source::Local);
    assert_eq!(world.get("tank/a/b", "me:note"), "hi");
    assert_eq!(world.get("tank/a/b", "mountpoint"), "/tank/a/b");
    world.datasets.set(&targets("tank/a"), &[assignment("mountpoint", "/srv")]).unwrap();
    assert_eq!(world.get("tank/a/b", "mountpoint"), "/srv/b");
    world.datasets.set(&targets("tank/a/b"), &[assignment("compression", "off")]).unwrap();
    world.datasets.inherit(&targets("tank/a"), "compression", true, false).unwrap();
    assert_eq!(source("tank/a/b", "compression"), Source::Default);
    assert!(matches!(
        refusal(world.datasets.inherit(&targets("tank/a"), "quota", false, false)),
        Error::NotInheritable { .. }
    ));
    world.snapshot("tank/a@s").unwrap();
    assert_eq!(world.get("tank/a@s", "me:note"), "hi");
    assert!(matches!(
        refusal(world.datasets.set(&targets("tank/a@s"), &[assignment("compression", "on")])),
        Error::NotApplicable { .. }
    ));
    world.datasets.set(&targets("tank/a@s"), &[assignment("me:note", "there")]).unwrap();
    assert_eq!(world.get("tank/a@s", "me:note"), "there");
}

#[test]
fn differences_are_shown_as_signs() {
    let world = World::new(14);
    world.write("tank", "same", b"same");
    world.write("tank", "gone", b"gone");
    world.write("tank", "changed", b"before");
    world.write("tank", "old-name", b"content");
    world.snapshot("tank@a").unwrap();
    world.remove("tank", "gone");
    world.write("tank", "changed", b"after");
    world.write("tank", "new", b"new");
    let root = crate::fs::ROOT;
    world.fs("tank").rename(root, b"old-name", root, b"new-name", Default::default()).unwrap();
    let mut lines = Vec::new();
    let mut line = |found: crate::admin::Difference| {
        let path = String::from_utf8(found.path).unwrap();
        let new = found.new_path.map(|path| String::from_utf8(path).unwrap()).unwrap_or_default();
        lines.push(format!("{} {path} {new}", found.kind.sign()));
        assert_eq!(found.kind == DifferenceKind::Renamed, !new.is_empty());
        Ok(())
    };
    world.datasets.diff(&"tank@a".parse().unwrap(), &"tank".parse().unwrap(), &mut line).unwrap();
    lines.sort();
    assert_eq!(lines, ["+ /new ", "- /gone ", "M / ", "M /changed ", "R /old-name /new-name"]);
    world.snapshot("tank@b").unwrap();
    let backwards = world.datasets.diff(&"tank@b".parse().unwrap(), &"tank@a".parse().unwrap(), |_| Ok(()));
    assert!(matches!(refusal(backwards), Error::Unrelated { .. }));
}

#[test]
fn history_is_kept() {
    let mut world = World::new(15);
    world.datasets.record("fs create tank/a", "ann", "host").unwrap();
    world.datasets.record(&"x".repeat(10_000), "ann", "host").unwrap();
    world.engine.commit().unwrap();
    world.reopen();
    let history = world.datasets.history().unwrap();
    assert_eq!(history.len(), 2);
    assert_eq!((history[0].command.as_str(), history[0].user.as_str()), ("fs create tank/a", "ann"));
    assert_eq!(history[1].command.len(), 4096);
}

#[test]
fn a_line_of_the_history_comes_with_the_next_commit() {
    let world = World::new(63);
    world.datasets.record("fs create tank/a", "ann", "host").unwrap();
    assert_eq!(world.datasets.history().unwrap(), []);
    world.create("tank/a").unwrap();
    let history = world.datasets.history().unwrap();
    // The effect of the request is recorded too, without a user.
    let recorded: Vec<_> = history.iter().map(|event| (event.command.as_str(), event.user.as_str())).collect();
    assert_eq!(recorded, [("fs create tank/a", "ann"), ("create tank/a", "")]);
    world.judge();
}

#[test]
fn each_request_flushes_the_device_twice_and_its_line_never() {
    let world = World::new(64);
    world.create("tank/a").unwrap();
    world.write("tank/a", "file", &noise(64, 100_000));
    let flushes = || {
        let vdevs = world.engine.storage().vdevs.all();
        vdevs.iter().flat_map(|vdev| vdev.leaves()).map(|leaf| leaf.counters().snapshot().flushes).sum::<u64>()
    };
    let destruction = |of: &str| DestroyRequest { name: name(of), recursive: false, dependents: false };
    let cost = |request: &dyn Fn()| {
        let before = flushes();
        request();
        world.datasets.record("fs", "ann", "host").unwrap();
        flushes() - before
    };
    assert_eq!(cost(&|| world.snapshot("tank/a@s").unwrap()), 2);
    assert_eq!(cost(&|| world.clone("tank/a@s", "tank/b").unwrap()), 2);
    assert_eq!(cost(&|| drop(world.files("tank/b"))), 0, "what a mount opens needs no commit");
    assert_eq!(cost(&|| assert_eq!(world.datasets.doomed(destruction("tank/b")).unwrap(), ["tank/b"])), 0);
    assert_eq!(cost(&|| drop(world.datasets.destroy(destruction("tank/b"), false).unwrap())), 2);
    world.judge();
}

#[test]
fn background_work_survives_being_cut() {
    let mut world = World::new(16);
    world.create("tank/a").unwrap();
    for index in 0..40 {
        world.write("tank/a", &format!("file{index}"), &noise(index, 150_000));
    }
    world.snapshot("tank/a@s").unwrap();
    for index in 0..40 {
        world.write("tank/a", &format!("file{index}"), &noise(index + 100, 150_000));
    }
    world.destroy("tank/a", true, false).unwrap();
    assert!(world.datasets.freeing().unwrap() > 40 * 300_000);
    world.judge();
    world.reopen();
    world.judge();
    world.datasets.background_step().unwrap();
    world.reopen();
    world.judge();
    world.work();
    assert_eq!(world.datasets.freeing().unwrap(), 0);
    world.judge();
}

#[test]
fn a_request_takes_one_snapshot_of_a_data_set() {
    let world = World::new(61);
    world.create("tank/a").unwrap();
    let take = |names: &[&str], recursive| {
        let names = names.iter().map(|name| name.parse().unwrap()).collect();
        world.datasets.snapshot(names, recursive, Vec::new())
    };
    assert!(matches!(refusal(take(&["tank/a@x", "tank/a@y"], false)), Error::SnapshotTwice { .. }));
    assert!(matches!(refusal(take(&["tank@x", "tank/a@y"], true)), Error::SnapshotTwice { .. }));
    assert_eq!(world.names(), ["tank", "tank/a"]);
    assert_eq!(take(&["tank/a@x", "tank@y"], false).unwrap().len(), 2);
    world.judge();
}

#[test]
fn a_request_that_never_gets_its_group_ends() {
    let world = World::new(62);
    let asked = world.datasets.run(|_| -> crate::error::Result<()> { Err(Error::NextGroup) });
    assert!(matches!(refusal(asked), Error::NextGroup));
}

#[test]
fn a_tag_has_no_control_character() {
    let world = World::new(12);
    world.create("tank/a").unwrap();
    world.snapshot("tank/a@0").unwrap();
    let snapshots = ["tank/a@0".parse().unwrap()];
    for tag in ["", "\u{1b}[2J", "a\nb", "\u{9b}x"] {
        refusal(world.datasets.hold(tag, &snapshots, false));
    }
    world.datasets.hold("für später", &snapshots, false).unwrap();
    world.judge();
}
