//! Requests of users other than the pool's owner.

use std::collections::BTreeSet;

use dataset::{
    admin::{Caller, Grantee, Reach},
    name::Name,
};

use super::*;

fn stranger() -> Caller {
    Caller { user: 12_345, group: 12_345, groups: BTreeSet::new() }
}

fn judged(world: &World, request: impl Into<Request>) -> Result<(), Failure> {
    world.pool.as_ref().unwrap().permit(&request.into(), &stranger())
}

fn allow(world: &World, permission: &str, reach: Reach) {
    let request = DatasetRequest::Allow {
        name: "tank/a".parse().unwrap(),
        to: vec![Grantee::User(stranger().user)],
        permissions: vec![permission.into()],
        reach,
    };
    world.ask(request).unwrap();
}

#[test]
fn a_request_about_nothing_is_refused() {
    let world = World::new();
    let name: Name = "tank".parse().unwrap();
    for request in [
        DatasetRequest::Set { name, assignments: Vec::new(), no_mount: true },
        DatasetRequest::Snapshot { names: Vec::new(), recursive: false, assignments: Vec::new() },
        DatasetRequest::Hold { names: Vec::new(), tag: "x".into(), recursive: false },
        DatasetRequest::Release { names: Vec::new(), tag: "x".into(), recursive: true },
    ] {
        let refused = judged(&world, request.clone()).expect_err(&format!("{request:?}"));
        assert!(refused.to_string().contains("permission denied"), "{refused}");
    }
}

#[test]
fn a_recursive_request_is_judged_where_it_begins_and_below() {
    let world = World::new();
    world.create("tank/a");
    world.create("tank/a/b");
    // The same dataset, and one within, are listed once.
    let names = ["tank/a@x", "tank/a@y", "tank/a/b@z"].map(|name| name.parse().unwrap()).to_vec();
    let request = DatasetRequest::Snapshot { names, recursive: true, assignments: Vec::new() };
    judged(&world, request.clone()).unwrap_err();
    allow(&world, "snapshot", Reach { local: true, descendent: false });
    assert!(judged(&world, request.clone()).is_err());
    allow(&world, "snapshot", Reach { local: false, descendent: true });
    judged(&world, request).unwrap();
}
