//! Limits of the number of file systems and snapshots, and user properties of the pool.

use super::world::{World, name, refusal};
use crate::error::{Error, Result};

fn is_full<T>(done: Result<T>) -> bool {
    match done {
        Ok(_) => false,
        Err(Error::Count { .. }) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_number_of_file_systems_is_limited() {
    let world = World::new(91);
    world.create("tank/a").unwrap();
    world.create("tank/b").unwrap();
    assert_eq!(world.number("tank/a", "filesystem_count"), u64::MAX, "not counted without a limit");
    world.set("tank/a", "filesystem_limit", "2").unwrap();
    world.create("tank/a/x").unwrap();
    world.create("tank/a/x/y").unwrap();
    let refused = refusal(world.create("tank/a/z"));
    assert_eq!(refused.to_string(), "the filesystem_limit of 'tank/a' is reached: 2");
    world.create("tank/b/z").unwrap();
    world.snapshot("tank/b@s").unwrap();
    let rename = |from: &str, to: &str| world.datasets.rename(&name(from), &name(to), false, (0, 0));
    assert!(is_full(world.clone("tank/b@s", "tank/a/c")) && is_full(rename("tank/b/z", "tank/a/z")));
    rename("tank/a/x/y", "tank/a/y").unwrap();
    assert_eq!(world.number("tank/a", "filesystem_count"), 2);
    assert_eq!(world.number("tank/a/x", "filesystem_count"), 0);
    assert_eq!(world.number("tank/b", "filesystem_count"), u64::MAX);
    world.destroy("tank/a/y", false, false).unwrap();
    rename("tank/b/z", "tank/a/z").unwrap();
    world.set("tank/a", "filesystem_limit", "none").unwrap();
    world.create("tank/a/c").unwrap();
    world.judge();
}

#[test]
fn the_number_of_snapshots_is_limited_here_and_above() {
    let world = World::new(92);
    world.create("tank/a").unwrap();
    world.create("tank/a/x").unwrap();
    world.set("tank/a", "snapshot_limit", "2").unwrap();
    world.set("tank/a/x", "snapshot_limit", "9").unwrap();
    world.snapshot("tank/a@1").unwrap();
    world.snapshot("tank/a/x@1").unwrap();
    assert!(is_full(world.snapshot("tank/a/x@2")) && is_full(world.snapshot("tank/a@2")));
    assert_eq!((world.number("tank/a", "snapshot_count"), world.number("tank/a/x", "snapshot_count")), (2, 1));
    world.snapshot("tank@2").unwrap();
    world.set("tank/a", "snapshot_limit", "0").unwrap();
    assert_eq!(world.number("tank/a", "snapshot_limit"), 0, "zero is a limit");
    world.destroy("tank/a@1", false, false).unwrap();
    assert!(is_full(world.snapshot("tank/a@3")));
    world.create("tank/a/y").unwrap();
    world.judge();
}

#[test]
fn a_stream_is_received_within_the_limits() {
    let (here, there) = (World::new(93), World::new(94));
    here.create("tank/a").unwrap();
    here.snapshot("tank/a@1").unwrap();
    let stream = here.send("tank/a@1", None, |_: &mut _| ()).unwrap();
    there.create("tank/b").unwrap();
    there.set("tank/b", "filesystem_limit", "1").unwrap();
    there.receive("tank/b/one", &stream, false).unwrap();
    let refused = refusal(there.receive("tank/b/two", &stream, false));
    assert!(matches!(refused, Error::Count { .. }), "{refused}");
    assert_eq!(there.number("tank/b", "filesystem_count"), 1);
    there.judge();
}

#[test]
fn the_pool_has_user_properties() {
    let mut world = World::new(95);
    world.datasets.set_pool_property("me:note", "attic").unwrap();
    world.set("tank", "filesystem_limit", "9").unwrap();
    world.reopen();
    let known = || world.datasets.pool_user_properties().unwrap().into_iter().collect::<Vec<_>>();
    assert_eq!(known(), [("me:note".to_owned(), "attic".to_owned())]);
    world.datasets.set_pool_property("me:note", "").unwrap();
    assert_eq!(known(), []);
    world.judge();
}
