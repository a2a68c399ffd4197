//! The sources of values, received values included; and properties computed from several snapshots.

use std::sync::Arc;

use pool::{
    device::{Device, MemoryDevice},
    units::MIB,
};

use super::{
    streams::change,
    world::{World, name, noise},
};
use crate::{
    admin::{ListRequest, SendRequest},
    fs::{Caller, FallocateFlags, ROOT},
    name::Name,
    property::{Property, Source, Valued},
};

const LIMITS: [&str; 4] = ["quota", "refquota", "reservation", "refreservation"];

impl World {
    /// The effective value, its source, and the received value.
    fn sourced(&self, of: &str, property: &str) -> (String, String, Option<String>) {
        let request = ListRequest { roots: vec![name(of).into()], ..ListRequest::default() };
        let listed = self.datasets.list(&request).unwrap().remove(0);
        let property = Property::of_dataset(property).unwrap();
        let valued = listed.value(&property).unwrap();
        (valued.value, valued.source.to_string(), listed.received(&property).map(str::to_owned))
    }

    fn inherit_received(&self, of: &str, property: &str) {
        self.datasets.inherit(&[name(of).into()], property, false, true).unwrap();
    }
}

fn says(value: u64, source: &str, received: Option<u64>) -> (String, String, Option<String>) {
    (value.to_string(), source.to_owned(), received.map(|value| value.to_string()))
}

/// The value of one limit: with a snapshot, reserved space counts several times against the quota.
fn of(property: &str, limit: u64) -> u64 {
    if property.ends_with("quota") { 3 * limit } else { limit }
}

/// A dataset with all limits derived from `limit`, as a stream with properties; and a second stream with other limits.
fn with_limits(here: &World, limits: [u64; 2]) -> [Vec<u8>; 2] {
    here.create("tank/home").unwrap();
    let mut from: Option<String> = None;
    limits.map(|limit| {
        LIMITS.iter().for_each(|property| here.set("tank/home", property, &of(property, limit).to_string()).unwrap());
        let snapshot = format!("tank/home@{limit}");
        here.snapshot(&snapshot).unwrap();
        let stream = here.send(&snapshot, from.as_deref(), |request: &mut SendRequest| request.properties = true);
        from = Some(snapshot);
        stream.unwrap()
    })
}

#[test]
fn a_constant_of_openzfs_is_set_in_vain() {
    let world = World::new(62);
    world.create("tank/home").unwrap();
    let says = |value: &str, source: &str| (value.to_owned(), source.to_owned(), None);
    world.set("tank/home", "encryption", "off").unwrap();
    world.set("tank/home", "snapshot_limit", "none").unwrap();
    world.inherit_received("tank/home", "dedup");
    assert_eq!(world.sourced("tank/home", "encryption"), says("off", "default"));
    assert_eq!(world.sourced("tank/home", "normalization"), says("none", "-"));
    assert!(world.set("tank/home", "dedup", "on").is_err());
    let listed = world.datasets.list(&ListRequest::default()).unwrap();
    let value = |property: &str| listed[0].value(&Property::of_dataset(property).unwrap());
    let nothing = Some(Valued { value: "-".into(), source: Source::None });
    assert_eq!((value("volsize"), value("keystatus")), (nothing.clone(), nothing));
}

const M: u64 = 1 << 20;
/// The unit of the limits, in bytes.
const UNIT: u64 = 100 << 10;

#[test]
fn limits_that_were_received_are_said_to_be() {
    let (here, there) = (World::new(60), World::new(61));
    let [first, second] = with_limits(&here, [6 * UNIT, 5 * UNIT]);
    there.receive("tank/copy", &first, false).unwrap();
    for property in LIMITS {
        assert_eq!(
            there.sourced("tank/copy", property),
            says(of(property, 6 * UNIT), "received", Some(of(property, 6 * UNIT))),
            "{property}"
        );
    }
    there.set("tank/copy", "quota", &(70 * UNIT).to_string()).unwrap();
    there.set("tank/copy", "refreservation", "none").unwrap();
    assert_eq!(there.sourced("tank/copy", "quota"), says(70 * UNIT, "local", Some(18 * UNIT)));
    assert_eq!(there.sourced("tank/copy", "refreservation"), says(0, "local", Some(6 * UNIT)));
    there.receive("tank/copy", &second, false).unwrap();
    assert_eq!(
        there.sourced("tank/copy", "quota"),
        says(70 * UNIT, "local", Some(15 * UNIT)),
        "what was set here counts"
    );
    assert_eq!(there.sourced("tank/copy", "refreservation"), says(0, "local", Some(5 * UNIT)));
    assert_eq!(there.sourced("tank/copy", "refquota"), says(15 * UNIT, "received", Some(15 * UNIT)));
    for property in ["quota", "refreservation"] {
        there.inherit_received("tank/copy", property);
        assert_eq!(
            there.sourced("tank/copy", property),
            says(of(property, 5 * UNIT), "received", Some(of(property, 5 * UNIT)))
        );
    }
    assert!(there.number("tank", "used") >= 5 * UNIT, "the reservation is kept");
    there.judge();
}

#[test]
fn a_limit_that_was_set_here_stays_and_comes_back() {
    let (here, there) = (World::new(62), World::new(63));
    let [first, second] = with_limits(&here, [6 * UNIT, 5 * UNIT]);
    there.receive_with("tank/copy", &first, |request| request.exclude = LIMITS.map(str::to_owned).into()).unwrap();
    assert_eq!(there.sourced("tank/copy", "quota"), says(0, "default", None));
    there.set("tank/copy", "quota", &(80 * UNIT).to_string()).unwrap();
    there.receive("tank/copy", &second, false).unwrap();
    assert_eq!(there.sourced("tank/copy", "quota"), says(80 * UNIT, "local", Some(15 * UNIT)));
    there.inherit_received("tank/copy", "quota");
    assert_eq!(there.sourced("tank/copy", "quota"), says(15 * UNIT, "received", Some(15 * UNIT)));
    // Without a received value there is no limit.
    there.set("tank", "refquota", "50M").unwrap();
    there.inherit_received("tank", "refquota");
    assert_eq!(there.sourced("tank", "refquota"), says(0, "default", None));
}

#[test]
fn a_local_value_hides_the_received_one_which_is_still_shown() {
    let (here, there) = (World::new(64), World::new(65));
    here.create("tank/home").unwrap();
    here.set("tank/home", "compression", "zstd-3").unwrap();
    here.snapshot("tank/home@a").unwrap();
    let stream = here.send("tank/home@a", None, |request| request.properties = true).unwrap();
    there.receive("tank/copy", &stream, false).unwrap();
    let is = |value: &str, source: &str| (value.to_owned(), source.to_owned(), Some("zstd-3".to_owned()));
    assert_eq!(there.sourced("tank/copy", "compression"), is("zstd-3", "received"));
    there.set("tank/copy", "compression", "off").unwrap();
    assert_eq!(there.sourced("tank/copy", "compression"), is("off", "local"));
    there.datasets.inherit(&[name("tank/copy").into()], "compression", false, false).unwrap();
    assert_eq!(there.sourced("tank/copy", "compression"), is("on", "default"));
    there.inherit_received("tank/copy", "compression");
    assert_eq!(there.sourced("tank/copy", "compression"), is("zstd-3", "received"));
}

#[test]
fn what_was_written_since_a_snapshot_is_exact() {
    let world = World::new(66);
    world.create("tank/home").unwrap();
    for (round, snapshot) in ["a", "b", "c"].into_iter().enumerate() {
        change(&world, "tank/home", round as u64);
        world.snapshot(&format!("tank/home@{snapshot}")).unwrap();
    }
    world.clone("tank/home@b", "tank/clone").unwrap();
    change(&world, "tank/clone", 5);
    change(&world, "tank/home", 3);
    world.engine.commit().unwrap();
    let since = |of: &str, since: &str| {
        let of: Name = of.parse().unwrap();
        world.datasets.get(&of, &format!("written@{since}")).unwrap().map(|valued| valued.value.parse::<u64>().unwrap())
    };
    assert_eq!(since("tank/home", "c"), Some(world.number("tank/home", "written")));
    assert_eq!(since("tank/home@c", "b"), Some(world.number("tank/home@c", "written")));
    let (home, third) = (since("tank/home", "a"), since("tank/home@c", "a"));
    let clone = since("tank/clone", "tank/home@a");
    assert_eq!(since("tank/clone", "tank/home@b"), Some(world.number("tank/clone", "written")));
    assert!(clone > since("tank/clone", "tank/home@b"));
    // Not later snapshots, nor another dataset's, nor the snapshot itself, nor missing ones.
    let no =
        [("tank/home@a", "a"), ("tank/home@a", "c"), ("tank/clone", "tank/home@c"), ("tank/home", "x"), ("tank", "a")];
    for (of, snapshot) in no {
        assert_eq!(since(of, snapshot), None, "{of} {snapshot}");
    }
    // A list, which answers for all of them at once, agrees.
    let asked = ["a", "b", "c", "x", "tank/home@a", "tank/clone@a"].map(str::to_owned);
    let all = ListRequest { depth: None, ..ListRequest::default() };
    for listed in world.datasets.list_since(&all, &asked).unwrap() {
        let of = listed.name.to_string();
        for base in &asked {
            assert_eq!(listed.written_since.get(base).copied(), since(&of, base), "{of} {base}");
        }
    }
    // Without snapshots in between, the value equals `written`.
    world.destroy("tank/clone", false, false).unwrap();
    world.destroy("tank/home@b", false, false).unwrap();
    assert_eq!(third, Some(world.number("tank/home@c", "written")));
    world.destroy("tank/home@c", false, false).unwrap();
    assert_eq!(home, Some(world.number("tank/home", "written")));
}

#[test]
fn allocating_sets_no_space_aside() {
    let world = World::new(67);
    world.create("tank/home").unwrap();
    world.engine.commit().unwrap();
    let before = world.number("tank/home", "available");
    let fs = world.fs("tank/home");
    let ino = fs.create(&Caller::default(), ROOT, b"file", 0o644, true).unwrap().ino;
    fs.fallocate(ino, FallocateFlags::default(), 0, 8 * M).unwrap();
    world.engine.commit().unwrap();
    assert_eq!(fs.getattr(ino).unwrap().size, 8 * M);
    assert!(before - world.number("tank/home", "available") < M, "the space is still anybody's");
    // Another dataset reserves the remaining space, and none is left for the file.
    let rest = world.number("tank/home", "available") - M;
    world.create("tank/other").unwrap();
    world.set("tank/other", "reservation", &rest.to_string()).unwrap();
    let write =
        (0..8 * M).step_by(128 << 10).try_for_each(|at| fs.write(ino, at, &noise(at, 128 << 10), false).map(drop));
    assert_eq!(write, Err(crate::fs::Errno::NOSPC));
}

#[test]
fn redundant_metadata_chooses_the_nodes_with_two_copies() {
    let disk = || Arc::new(MemoryDevice::new("disk", 128 * MIB)) as Arc<dyn Device>;
    let world = World::over(vec![disk(), disk()], 41);
    world.create("tank/a").unwrap();
    type IsTwice = fn(u8, u8) -> bool;
    let cases: [(&str, IsTwice); 4] = [
        ("none", |_, _| false),
        ("some", |level, top| level == top),
        ("most", |level, _| level > 0),
        ("all", |_, _| true),
    ];
    for (value, is_redundant) in cases {
        world.set("tank/a", "redundant_metadata", value).unwrap();
        for file in 0..600u64 {
            world.write("tank/a", &format!("file{file:04}"), &noise(file, 300));
        }
        world.engine.commit().unwrap();
        let (nodes, _) = world.blocks("tank/a");
        let top = nodes[0].0;
        assert!(top > 0, "a tree of several levels");
        // Nodes that were not written again keep their copies.
        let birth = nodes[0].1.birth;
        for (level, pointer) in nodes.iter().filter(|(_, pointer)| pointer.birth == birth) {
            assert_eq!(pointer.copies, if is_redundant(*level, top) { 2 } else { 1 }, "{value}, level {level}");
        }
    }
    world.judge();
}
