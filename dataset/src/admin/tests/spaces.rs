//! Names with spaces: the first such name activates the feature that older programs lack.

use pool::format::label::SPACES_IN_NAMES;

use super::{
    streams::{change, home},
    world::{World, name},
};
use crate::admin::SendRequest;

impl World {
    fn spaces(&self) -> &'static str {
        self.datasets.feature_state(SPACES_IN_NAMES).unwrap()
    }

    fn bookmark(&self, of: &str, to: &str) -> crate::error::Result<()> {
        self.datasets.bookmark(&of.parse().unwrap(), &to.parse().unwrap())
    }
}

#[test]
fn a_refused_request_makes_no_feature_active() {
    let world = World::new(1);
    for created in ["tank/a", "tank/b"] {
        world.create(created).unwrap();
    }
    world.snapshot("tank/a@s").unwrap();
    world.bookmark("tank/a@s", "tank/a#s").unwrap();
    world.create("tank/no parent/x y").unwrap_err();
    world.snapshot("tank/none@x y").unwrap_err();
    world.datasets.rename(&name("tank/none"), &name("tank/x y"), false, (0, 0)).unwrap_err();
    world.datasets.rename_snapshot(&"tank/a@none".parse().unwrap(), "x y", false).unwrap_err();
    let none = "tank/a@none".parse().unwrap();
    world.datasets.clone_snapshot(&none, &name("tank/x y"), false, Vec::new(), (0, 0)).unwrap_err();
    world.bookmark("tank/b@none", "tank/b#x y").unwrap_err();
    world.bookmark("tank/a@s", "tank/b#x y").unwrap_err();
    assert_eq!(world.spaces(), "enabled");
    world.bookmark("tank/a@s", "tank/a#x y").unwrap();
    assert_eq!(world.spaces(), "active");
    world.judge();
}

#[test]
fn every_kind_of_name_makes_the_feature_active() {
    type Make = fn(&World);
    let makes: [Make; 6] = [
        |world| world.create("tank/x y").map(drop).unwrap(),
        |world| world.snapshot("tank/a@x y").map(drop).unwrap(),
        |world| world.bookmark("tank/a@s", "tank/a#x y").unwrap(),
        |world| drop(world.datasets.rename(&name("tank/a"), &name("tank/x y"), false, (0, 0)).unwrap()),
        |world| world.datasets.rename_snapshot(&"tank/a@s".parse().unwrap(), "x y", false).unwrap(),
        |world| {
            let snapshot = "tank/a@s".parse().unwrap();
            world.datasets.clone_snapshot(&snapshot, &name("tank/x y"), false, Vec::new(), (0, 0)).unwrap();
        },
    ];
    for (seed, make) in makes.into_iter().enumerate() {
        let mut world = World::new(10 + seed as u64);
        world.create("tank/a").unwrap();
        world.snapshot("tank/a@s").unwrap();
        assert_eq!(world.spaces(), "enabled", "{seed}");
        make(&world);
        assert_eq!(world.spaces(), "active", "{seed}");
        world.reopen();
        assert_eq!(world.spaces(), "active", "{seed}");
        world.judge();
    }
}

#[test]
fn a_refused_stream_makes_no_feature_active() {
    let (here, there) = (home(2), World::new(3));
    change(&here, "tank/home", 1);
    here.snapshot("tank/home@b").unwrap();
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let step = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    there.receive("tank/my copy", &step, false).unwrap_err();
    there.receive("tank/no parent/copy", &full, false).unwrap_err();
    there.receive("tank/my copy", &full[..full.len() - 100], false).unwrap_err();
    assert_eq!(there.spaces(), "enabled");
    there.receive("tank/my copy", &full, false).unwrap();
    assert_eq!(there.spaces(), "active");
    there.judge();
}

#[test]
fn names_that_come_by_a_census_make_the_feature_active() {
    let (here, there) = (home(4), World::new(5));
    let all = |request: &mut SendRequest| request.replicate = true;
    there.receive("tank/copy", &here.send("tank/home@a", None, all).unwrap(), false).unwrap();
    here.datasets.rename_snapshot(&"tank/home@a".parse().unwrap(), "a b", false).unwrap();
    change(&here, "tank/home", 1);
    here.snapshot("tank/home@c").unwrap();
    let step = here.send("tank/home@c", Some("tank/home@a b"), all).unwrap();
    there.receive("tank/copy", &step[..step.len() / 2], true).unwrap_err();
    there.receive("tank/copy", &step, true).unwrap();
    assert_eq!(there.spaces(), "active");
    assert!(there.names().contains(&"tank/copy@a b".to_owned()));
    there.judge();
}
