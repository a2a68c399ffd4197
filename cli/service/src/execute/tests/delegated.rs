//! Requests of users other than the pool's owner.

use std::{collections::BTreeSet, io};

use dataset::{
    admin::{Caller, Grantee, Reach},
    name::Name,
    property::OwnerKind,
};
use protocol::Assignment;

use super::*;
use crate::execute::delegated::judgement;

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
        DatasetRequest::Set { name, assignments: Vec::new(), no_mount: true, dry_run: false },
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

/// Makes a request for the stranger, who has been permitted it and has meanwhile lost the permission.
fn late(world: &World, request: impl Into<Request>) -> Result<Response, Failure> {
    let request = request.into();
    let stream = request.traits().needs_stream.then(|| io::pipe().unwrap().1.into());
    judgement(&request, stranger()).during(|| world.ask_with(request.clone(), stream))
}

/// Requests with the permissions that they need on `tank/a`. After each, the next is possible.
fn requests() -> Vec<(&'static str, Request)> {
    let name = || Name::Dataset("tank/a".parse().unwrap());
    let snapshot = |name: &str| vec![name.parse().unwrap()];
    let assign = |name: &str, value: &str| vec![Assignment { name: name.into(), value: value.into() }];
    let send = SendSpec::full("tank/a@new".parse().unwrap());
    vec![
        (
            "create,mount",
            DatasetRequest::Create {
                name: "tank/a/new".parse().unwrap(),
                parents: false,
                assignments: Vec::new(),
                no_mount: true,
                dry_run: false,
            }
            .into(),
        ),
        (
            "snapshot",
            DatasetRequest::Snapshot { names: snapshot("tank/a@new"), recursive: true, assignments: Vec::new() }.into(),
        ),
        (
            "clone,create,mount",
            DatasetRequest::Clone {
                from: "tank/a@new".parse().unwrap(),
                to: "tank/a/clone".parse().unwrap(),
                parents: false,
                assignments: Vec::new(),
                no_mount: true,
            }
            .into(),
        ),
        ("hold", DatasetRequest::Hold { tag: "x".into(), names: snapshot("tank/a@new"), recursive: true }.into()),
        ("hold", DatasetRequest::Holds { names: snapshot("tank/a@new"), recursive: true }.into()),
        ("release", DatasetRequest::Release { tag: "x".into(), names: snapshot("tank/a@new"), recursive: true }.into()),
        (
            "bookmark",
            DatasetRequest::Bookmark { from: "tank/a@new".parse().unwrap(), to: "tank/a#new".parse().unwrap() }.into(),
        ),
        ("destroy", DatasetRequest::DestroyBookmark { name: "tank/a#new".parse().unwrap(), dry_run: false }.into()),
        (
            "compression",
            DatasetRequest::Set {
                name: name(),
                assignments: assign("compression", "off"),
                no_mount: true,
                dry_run: false,
            }
            .into(),
        ),
        (
            "userquota",
            DatasetRequest::Set {
                name: name(),
                assignments: assign("userquota@0", "1000000"),
                no_mount: true,
                dry_run: false,
            }
            .into(),
        ),
        (
            "compression",
            DatasetRequest::Inherit {
                name: name(),
                property: "compression".into(),
                recursive: true,
                received: false,
                dry_run: false,
            }
            .into(),
        ),
        ("userused,userquota", DatasetRequest::Accounts { name: name(), kind: OwnerKind::User }.into()),
        ("diff", StreamRequest::Diff { from: "tank/a@new".parse().unwrap(), to: name() }.into()),
        ("send", StreamRequest::Send { what: send.clone(), dry_run: true }.into()),
        ("send", StreamRequest::Send { what: send, dry_run: false }.into()),
        ("promote,mount", DatasetRequest::Promote { name: "tank/a/clone".parse().unwrap() }.into()),
        (
            "rollback",
            DatasetRequest::Rollback {
                to: "tank/a/clone@new".parse().unwrap(),
                destroy_newer: false,
                destroy_clones: false,
                force: false,
                dry_run: false,
            }
            .into(),
        ),
        (
            "rename,create,mount",
            DatasetRequest::Rename {
                from: "tank/a/clone@new".parse().unwrap(),
                to: "tank/a/clone@newer".parse().unwrap(),
                parents: false,
                recursive: true,
                no_mount: true,
                force: false,
                dry_run: false,
            }
            .into(),
        ),
        (
            "rename,create,mount",
            DatasetRequest::Rename {
                from: "tank/a/new".parse().unwrap(),
                to: "tank/a/newer".parse().unwrap(),
                parents: false,
                recursive: false,
                no_mount: true,
                force: false,
                dry_run: false,
            }
            .into(),
        ),
        (
            "destroy,mount",
            DatasetRequest::Destroy {
                name: "tank/a/newer".parse().unwrap(),
                recursive: true,
                dependents: false,
                force: false,
                wait: false,
                dry_run: false,
            }
            .into(),
        ),
        (
            "allow,send",
            DatasetRequest::Allow {
                name: "tank/a".parse().unwrap(),
                to: vec![Grantee::Everyone],
                permissions: vec!["send".into()],
                reach: Reach { local: true, descendent: true },
            }
            .into(),
        ),
        (
            "allow",
            DatasetRequest::Unallow {
                name: "tank/a".parse().unwrap(),
                from: vec![Grantee::User(stranger().user)],
                permissions: Vec::new(),
                reach: Reach { local: true, descendent: true },
                recursive: true,
            }
            .into(),
        ),
    ]
}

/// Between the judgement of a request and its transaction, another request may rename a dataset, or take a permission
/// back.
#[test]
fn every_request_is_judged_in_its_transaction() {
    let world = World::new();
    world.create("tank/a");
    let grantee = vec![Grantee::User(stranger().user)];
    let reach = Reach { local: true, descendent: true };
    for (permissions, request) in requests() {
        let (name, to) = ("tank/a".parse().unwrap(), grantee.clone());
        let permissions: Vec<String> = permissions.split(',').map(str::to_owned).collect();
        world.ask(DatasetRequest::Allow { name, to, permissions: permissions.clone(), reach }).unwrap();
        judged(&world, request.clone()).unwrap();
        let (name, from) = ("tank/a".parse().unwrap(), grantee.clone());
        world.ask(DatasetRequest::Unallow { name, from, permissions: Vec::new(), reach, recursive: false }).unwrap();
        let refused = late(&world, request.clone()).expect_err(&format!("{request:?}"));
        assert!(refused.to_string().contains("permission denied"), "{request:?}: {refused}");
        assert!(refused.hint.unwrap().contains("fs allow 12345 "), "{request:?}");
        // With the permissions the same request succeeds, so the table tries what it says.
        let (name, to) = ("tank/a".parse().unwrap(), grantee.clone());
        world.ask(DatasetRequest::Allow { name, to, permissions, reach }).unwrap();
        let stream = request.traits().needs_stream.then(|| tempfile::tempfile().unwrap().into());
        let done = judgement(&request, stranger()).during(|| world.ask_with(request.clone(), stream));
        done.unwrap_or_else(|failure| panic!("{request:?}: {failure}"));
        let (name, from) = ("tank/a".parse().unwrap(), grantee.clone());
        world.ask(DatasetRequest::Unallow { name, from, permissions: Vec::new(), reach, recursive: false }).unwrap();
    }
}
