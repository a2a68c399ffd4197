//! Grants: bounds, and requests of users other than the pool's owner.

use std::collections::BTreeSet;

use super::{
    streams::home,
    world::{World, name, refusal},
};
use crate::{
    admin::{Assignment, Caller, DestroyRequest, Grantee, Judgement, Naming, Reach, ReceiveRequest},
    error::{Error, Result},
};

const LOCAL: Reach = Reach { local: true, descendent: false };
const BOTH: Reach = Reach { local: true, descendent: true };

fn names(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_set_with_an_impossible_name_is_refused() {
    let world = World::new(1);
    let root = name("tank");
    for set in [format!("@{}", "a".repeat(20_000)), "user 5".into(), "everyone".into(), "@".into(), "@a b".into()] {
        let to = [Grantee::Set(set)];
        assert!(matches!(refusal(world.datasets.allow(&root, &to, &names(&["send"]), BOTH)), Error::BadSet));
        assert!(matches!(refusal(world.datasets.unallow(&root, &to, &names(&[]), BOTH, false)), Error::BadSet));
    }
    assert!(world.datasets.allowances(&root).unwrap().is_empty());
    world.judge();
}

#[test]
fn the_grants_of_a_dataset_are_bounded() {
    let world = World::new(2);
    let root = name("tank");
    let users = |from: u32, to: u32| (from..to).map(Grantee::User).collect::<Vec<_>>();
    world.datasets.allow(&root, &users(0, 1000), &names(&["send"]), BOTH).unwrap();
    let refused = refusal(world.datasets.allow(&root, &users(1000, 1001), &names(&["send"]), BOTH));
    assert!(matches!(refused, Error::TooManyGrants { most: 1000 }));
    // A present grantee gets further permissions, and a grant taken back leaves room.
    world.datasets.allow(&root, &users(7, 8), &names(&["hold"]), BOTH).unwrap();
    world.datasets.unallow(&root, &users(0, 1), &names(&[]), BOTH, false).unwrap();
    world.datasets.allow(&root, &users(1000, 1001), &names(&["send"]), BOTH).unwrap();
    world.judge();
}

fn ann() -> Caller {
    Caller { user: 7, group: 7, groups: BTreeSet::new() }
}

fn allow(world: &World, permissions: &[&str], dataset: &str) {
    world.datasets.allow(&name(dataset), &[Grantee::User(7)], &names(permissions), BOTH).unwrap();
}

fn unallow(world: &World, permissions: &[&str], dataset: &str) {
    world.datasets.unallow(&name(dataset), &[Grantee::User(7)], &names(permissions), BOTH, false).unwrap();
}

/// Makes a request for the user, with a judgement that only the transactions make.
fn as_ann<T>(work: impl FnOnce() -> T) -> T {
    Judgement::by_transactions(ann()).during(work)
}

#[track_caller]
fn denied<T: std::fmt::Debug>(result: Result<T>, permission: &str, dataset: &str) {
    let refused = refusal(result);
    let is_it = matches!(&refused, Error::NotAllowed { name, permission: p } if name == dataset && p == permission);
    assert!(is_it, "{refused:?}");
}

#[test]
fn everything_destroyed_along_is_judged() {
    let world = World::new(3);
    world.create("tank/a").unwrap();
    world.snapshot("tank/a@old").unwrap();
    world.snapshot("tank/a@new").unwrap();
    world.clone("tank/a@new", "tank/clone").unwrap();
    allow(&world, &["destroy", "mount", "rollback"], "tank/a");
    let names = world.names();
    as_ann(|| {
        denied(world.destroy("tank/a", false, true), "destroy,mount", "tank/clone");
        denied(world.destroy("tank/a@new", false, true), "destroy,mount", "tank/clone");
        denied(world.rollback("tank/a@old", false, true), "destroy,mount", "tank/clone");
        // Also before anything is unmounted for the destroy.
        let request = DestroyRequest { name: name("tank/a"), recursive: false, dependents: true };
        denied(world.datasets.doomed(request), "destroy,mount", "tank/clone");
    });
    assert_eq!(world.names(), names);
    allow(&world, &["destroy", "mount"], "tank/clone");
    as_ann(|| world.rollback("tank/a@old", false, true)).unwrap();
    world.judge();
}

#[test]
fn a_stream_is_judged_when_it_begins_and_when_it_lands() {
    let world = home(4);
    let full = world.send("tank/home@a", None, |_| {}).unwrap();
    let all = ["receive", "mount", "create"];
    as_ann(|| denied(world.receive("tank/copy", &full, false), "create,mount,receive", "tank"));
    allow(&world, &all, "tank");
    let before = world.names();
    let mut meanwhile = |_| unallow(&world, &["receive"], "tank");
    as_ann(|| denied(world.receive_reporting("tank/copy", &full, &mut meanwhile), "create,mount,receive", "tank"));
    assert_eq!(world.names(), before);
    allow(&world, &all, "tank");
    as_ann(|| world.receive("tank/copy", &full, false)).unwrap();
    // Of a package with parents, each parent is judged.
    unallow(&world, &all, "tank");
    world.datasets.allow(&name("tank/copy"), &[Grantee::User(7)], &names(&all), LOCAL).unwrap();
    let deep = |request: &mut ReceiveRequest| request.naming = Naming::WithoutPool;
    world.create("tank/home/one").unwrap();
    world.snapshot("tank/home/one@a").unwrap();
    let one = world.send("tank/home/one@a", None, |_| {}).unwrap();
    as_ann(|| denied(world.receive_with("tank/copy/new", &one, deep), "create,mount", "tank/copy/new"));
    assert!(!world.names().iter().any(|name| name.starts_with("tank/copy/")), "no parent is left");
    world.judge();
}

#[test]
fn properties_given_to_a_receive_are_judged() {
    let world = home(5);
    let full = world.send("tank/home@a", None, |request| request.properties = true).unwrap();
    allow(&world, &["receive", "mount", "create"], "tank");
    let exec = || Assignment { property: "exec".into(), value: "off".into() };
    let set = |request: &mut ReceiveRequest| request.properties = vec![exec()];
    let leave = |request: &mut ReceiveRequest| request.exclude = vec!["exec".into()];
    as_ann(|| {
        denied(world.receive_with("tank/copy", &full, set), "exec", "tank/copy");
        denied(world.receive_with("tank/copy", &full, leave), "exec", "tank/copy");
    });
    allow(&world, &["exec"], "tank");
    as_ann(|| world.receive_with("tank/copy", &full, set)).unwrap();
    assert_eq!(world.get("tank/copy", "exec"), "off");
    world.judge();
}
