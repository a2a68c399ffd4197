//! Quotas and reservations.

use std::sync::Arc;

use pool::space::Hold;
use rustix::io::Errno;

use super::world::{World, name, noise, refusal};
use crate::{
    admin::Assignment,
    error::Error,
    fs::{Caller, FallocateFlags, ROOT},
};

impl World {
    pub(super) fn set(&self, dataset: &str, property: &str, value: &str) -> Result<(), Error> {
        let assignment = Assignment { property: property.into(), value: value.into() };
        self.datasets.set(&[dataset.parse().unwrap()], &[assignment])
    }
}

#[test]
fn a_quota_bounds_what_lies_below() {
    let world = World::new(21);
    world.create("tank/a").unwrap();
    world.create("tank/a/b").unwrap();
    world.set("tank/a", "quota", "4M").unwrap();
    world.write("tank/a/b", "one", &noise(1, 3 << 20));
    assert_eq!(world.try_write("tank/a/b", "two", &noise(2, 3 << 20)), Err(Errno::DQUOT));
    assert!(world.number("tank/a", "used") <= 4 << 20);
    assert!(world.number("tank/a/b", "available") < 1 << 20);
    assert!(world.number("tank", "available") > 100 << 20);
    world.remove("tank/a/b", "one");
    world.write("tank/a/b", "two", &noise(2, 2 << 20));
    let refused = refusal(world.set("tank/a", "quota", "1M"));
    assert!(matches!(refused, Error::Limit { .. }));
    let said = refused.to_string();
    assert!(
        said.starts_with("cannot set quota of 'tank/a' to 1M: 2.") && said.ends_with("M are used or reserved"),
        "{said}"
    );
    world.set("tank/a", "quota", "none").unwrap();
    world.write("tank/a/b", "three", &noise(3, 6 << 20));
    world.judge();
}

#[test]
fn quotas_that_are_nearly_used_up_are_listed() {
    let world = World::new(29);
    ["tank/a", "tank/a/b", "tank/c"].iter().for_each(|dataset| drop(world.create(dataset).unwrap()));
    world.set("tank/a", "quota", "4M").unwrap();
    world.set("tank/a/b", "refquota", "8M").unwrap();
    world.write("tank/a/b", "one", &noise(1, 3 << 20));
    world.write("tank/c", "one", &noise(1, 3 << 20));
    world.engine.commit().unwrap();
    let near = |percent| {
        let near = world.datasets.near_quotas(percent).unwrap();
        near.into_iter()
            .map(|near| format!("{} {} {}", near.dataset, near.property, near.quota >> 20))
            .collect::<Vec<_>>()
    };
    assert_eq!(near(90), [""; 0]);
    assert_eq!(near(75), ["tank/a quota 4"]);
    world.write("tank/a/b", "two", &noise(1, 700 << 10));
    world.set("tank/a/b", "refquota", "3800K").unwrap();
    world.engine.commit().unwrap();
    assert_eq!(near(90), ["tank/a quota 4", "tank/a/b refquota 3"]);
    world.judge();
}

#[test]
fn a_quota_bounds_what_all_below_write_at_once() {
    let world = World::new(25);
    world.create("tank/a").unwrap();
    let below = ["tank/a/b", "tank/a/c", "tank/a/d"];
    below.iter().for_each(|dataset| drop(world.create(dataset).unwrap()));
    world.set("tank/a", "quota", "4M").unwrap();
    for dataset in below {
        world.write(dataset, "one", &noise(1, 1 << 20));
    }
    // No commit in between.
    for dataset in below {
        assert_eq!(world.try_write(dataset, "two", &noise(2, 3 << 20)), Err(Errno::DQUOT), "{dataset}");
        world.remove(dataset, "two");
    }
    assert!(world.number("tank/a", "used") <= 4 << 20);
    world.set("tank/a", "quota", "8M").unwrap();
    world.write("tank/a/c", "two", &noise(2, 3 << 20));
    assert_eq!(world.try_write("tank/a/d", "two", &noise(2, 3 << 20)), Err(Errno::DQUOT));
    world.set("tank/a", "quota", "none").unwrap();
    world.write("tank/a/d", "two", &noise(2, 3 << 20));
    world.judge();
}

#[test]
fn what_is_refused_again_costs_no_commits() {
    let world = World::new(26);
    world.create("tank/a").unwrap();
    world.set("tank/a", "quota", "4M").unwrap();
    world.write("tank/a", "file", &noise(1, 3 << 20));
    let fs = world.fs("tank/a");
    let file = fs.lookup(ROOT, b"file").unwrap().ino;
    let (before, more) = (world.engine.committed(), noise(2, 2 << 20));
    for _ in 0..50 {
        assert_eq!(fs.write(file, 3 << 20, &more, false).err(), Some(Errno::DQUOT));
    }
    let commits = world.engine.committed().0 - before.0;
    assert!((2..8).contains(&commits), "{commits} commits");
    world.judge();
}

#[test]
fn a_refquota_does_not_count_snapshots() {
    let world = World::new(22);
    world.create("tank/a").unwrap();
    world.set("tank/a", "refquota", "4M").unwrap();
    for round in 0..3 {
        world.write("tank/a", "file", &noise(round, 3 << 20));
        world.snapshot(&format!("tank/a@{round}")).unwrap();
        world.remove("tank/a", "file");
    }
    assert!(world.number("tank/a", "used") > 9 << 20);
    assert_eq!(world.try_write("tank/a", "large", &noise(9, 5 << 20)), Err(Errno::DQUOT));
    world.judge();
}

#[test]
fn reservations_are_taken_from_the_others() {
    let world = World::new(23);
    world.create("tank/a").unwrap();
    world.create("tank/b").unwrap();
    let before = world.number("tank/b", "available");
    world.set("tank/a", "reservation", "50M").unwrap();
    world.set("tank/a", "refreservation", "20M").unwrap();
    let after = world.number("tank/b", "available");
    assert!(before - after > 49 << 20, "{before} {after}");
    assert!(world.number("tank/a", "available") > after + (49 << 20));
    assert!(world.number("tank", "used") > 50 << 20);
    assert_eq!(world.number("tank/a", "usedbyrefreservation"), (20 << 20) - world.number("tank/a", "referenced"));
    let refused = refusal(world.set("tank/b", "reservation", "1T"));
    assert!(matches!(refused, Error::Limit { .. }));
    let said = refused.to_string();
    assert!(said.contains("reservation of 'tank/b' to 1T: at most ") && said.ends_with("M can be reserved"), "{said}");
    world.write("tank/a", "file", &noise(1, 5 << 20));
    world.judge();
    world.destroy("tank/a", true, false).unwrap();
    world.work();
    world.judge();
    assert!(world.number("tank/b", "available") > after + (40 << 20));
}

/// Writes files until the space is used up.
fn fill(world: &World, dataset: &str) -> usize {
    let is_written = |count: &usize| world.try_write(dataset, &format!("f{count}"), &noise(3, 1 << 20)).is_ok();
    (0..1000).take_while(is_written).count()
}

fn clear(world: &World, dataset: &str, count: usize) {
    (0..count).for_each(|file| world.remove(dataset, &format!("f{file}")));
    // A refused write may have left a partial file.
    let _ = world.fs(dataset).unlink(ROOT, format!("f{count}").as_bytes());
}

#[test]
fn what_was_deleted_makes_room_at_once_beside_a_reservation() {
    let world = World::new(27);
    world.create("tank/a").unwrap();
    world.create("tank/b").unwrap();
    world.set("tank/b", "reservation", "1M").unwrap();
    for round in 0..3 {
        let count = fill(&world, "tank/a");
        assert!(count > 200, "round {round}: {count} files");
        world.engine.commit().unwrap();
        clear(&world, "tank/a", count);
    }
    world.judge();
}

#[test]
fn what_was_deleted_can_be_reserved_at_once() {
    let world = World::new(28);
    world.create("tank/a").unwrap();
    world.create("tank/b").unwrap();
    let count = fill(&world, "tank/a");
    clear(&world, "tank/a", count);
    world.set("tank/b", "reservation", "150M").unwrap();
    world.judge();
}

#[test]
fn what_was_deleted_can_be_preallocated_at_once() {
    let world = World::new(29);
    let count = fill(&world, "tank");
    clear(&world, "tank", count);
    let fs = world.fs("tank");
    let file = fs.create(&Caller::default(), ROOT, b"file", 0o644, false).unwrap().ino;
    fs.fallocate(file, FallocateFlags::default(), 0, 150 << 20).unwrap();
    assert_eq!(fs.fallocate(file, FallocateFlags::default(), 0, 1 << 30), Err(Errno::NOSPC));
    world.judge();
}

/// A pool with 60 MiB freed but kept by a hold, and 150 MiB reserved for `tank/b`: `tank/a` has less than 40 MiB
/// available, and could have more than 90.
fn held_back(seed: u64) -> (World, Arc<Hold>) {
    let world = World::new(seed);
    world.create("tank/a").unwrap();
    world.create("tank/b").unwrap();
    world.set("tank/b", "reservation", "150M").unwrap();
    (0..60).for_each(|count| world.write("tank/a", &format!("f{count}"), &noise(3, 1 << 20)));
    let committed = world.engine.commit().unwrap();
    let hold = world.engine.storage().space.hold(committed);
    clear(&world, "tank/a", 60);
    world.settle();
    assert!(world.engine.is_at_rest() && !hold.is_lost());
    assert!(world.engine.available() < 190 << 20);
    (world, hold)
}

#[test]
fn a_hold_is_given_up_for_who_writes() {
    let (world, hold) = held_back(31);
    world.write("tank/a", "file", &noise(2, 60 << 20));
    assert!(hold.is_lost());
    world.judge();
}

#[test]
fn a_hold_is_given_up_for_what_is_reserved() {
    let (world, hold) = held_back(32);
    world.set("tank/a", "reservation", "80M").unwrap();
    assert!(hold.is_lost());
    world.judge();
}

#[test]
fn a_hold_is_given_up_for_what_is_preallocated() {
    let (world, hold) = held_back(33);
    let fs = world.fs("tank/a");
    let file = fs.create(&Caller::default(), ROOT, b"file", 0o644, false).unwrap().ino;
    fs.fallocate(file, FallocateFlags::default(), 0, 80 << 20).unwrap();
    assert!(hold.is_lost());
    world.judge();
}

#[test]
fn a_hopeless_write_costs_no_commit_and_leaves_holds_alone() {
    let (world, hold) = held_back(34);
    let fs = world.fs("tank/a");
    let file = fs.create(&Caller::default(), ROOT, b"file", 0o644, false).unwrap().ino;
    let commits = |refused: &dyn Fn()| {
        let before = world.engine.committed();
        refused();
        world.engine.committed().0 - before.0
    };
    let allocate = |len| assert_eq!(fs.fallocate(file, FallocateFlags::default(), 0, len), Err(Errno::NOSPC));
    let set = |property, value| assert!(matches!(refusal(world.set("tank/b", property, value)), Error::Limit { .. }));
    assert_eq!(commits(&|| allocate(1 << 30)), 0);
    // The space freed by the open txg is known after its commit.
    assert!(commits(&|| allocate(200 << 20)) <= 1);
    assert_eq!(commits(&|| allocate(200 << 20)), 0);
    assert_eq!(commits(&|| set("quota", "1M")), 0);
    assert_eq!(commits(&|| set("reservation", "1T")), 0);
    assert!(!hold.is_lost());
    world.judge();
}

#[test]
fn a_quota_refuses_preallocation() {
    let world = World::new(35);
    world.set("tank", "quota", "4M").unwrap();
    let fs = world.fs("tank");
    let file = fs.create(&Caller::default(), ROOT, b"file", 0o644, false).unwrap().ino;
    assert_eq!(fs.fallocate(file, FallocateFlags::default(), 0, 8 << 20), Err(Errno::DQUOT));
}

#[test]
fn moving_a_data_set_respects_quotas() {
    let world = World::new(24);
    world.create("tank/a").unwrap();
    world.create("tank/small").unwrap();
    world.write("tank/a", "file", &noise(1, 3 << 20));
    world.set("tank/small", "quota", "2M").unwrap();
    let moved = world.datasets.rename(&name("tank/a"), &name("tank/small/a"), false, (0, 0));
    assert!(matches!(refusal(moved), Error::Quota { .. }));
    assert_eq!(world.names(), ["tank", "tank/a", "tank/small"]);
    world.judge();
}
