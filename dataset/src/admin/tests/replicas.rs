//! Receiving with `-F`, and replications that follow destroys and renames at the sender.

use super::{
    streams::{change, request},
    world::{World, name, refusal},
};
use crate::{
    admin::{Arrived, ArrivedSnapshot, Naming, ReceiveRequest, SendRequest},
    error::{Error, Result},
};

/// A tree of datasets in one pool, and its copy in another.
struct Pair {
    here: World,
    there: World,
}

impl Pair {
    /// `tank/a` with the children `x`, `y` and `z`, replicated as `tank/b` with the snapshot `1`.
    fn new(seed: u64) -> Pair {
        let pair = Pair { here: World::new(seed), there: World::new(seed + 100) };
        for name in ["tank/a", "tank/a/x", "tank/a/y", "tank/a/z"] {
            pair.here.create(name).unwrap();
            change(&pair.here, name, name.len() as u64);
        }
        pair.snapshot("1");
        let all = pair.package("1", None);
        pair.there.receive("tank/b", &all, false).unwrap();
        pair
    }

    fn snapshot(&self, name: &str) {
        self.here.datasets.snapshot(vec![format!("tank/a@{name}").parse().unwrap()], true, Vec::new()).unwrap();
    }

    fn package(&self, to: &str, from: Option<&str>) -> Vec<u8> {
        let from = from.map(|from| format!("tank/a@{from}"));
        let all = |request: &mut SendRequest| request.replicate = true;
        self.here.send(&format!("tank/a@{to}"), from.as_deref(), all).unwrap()
    }

    /// The changes of `tank/a/x` alone, as a replication.
    fn lonely(&self, to: &str, from: &str) -> Vec<u8> {
        let from = format!("tank/a/x@{from}");
        self.here.send(&format!("tank/a/x@{to}"), Some(&from), |request| request.replicate = true).unwrap()
    }

    /// Sends all changes since `from` as `to`, and receives the package.
    fn follow(&self, from: &str, to: &str, force: bool) -> Result<Arrived> {
        self.snapshot(to);
        self.there.receive("tank/b", &self.package(to, Some(from)), force)
    }

    fn rename(&self, from: &str, to: &str) {
        self.here.datasets.rename(&name(from), &name(to), false, (0, 0)).unwrap();
    }

    /// Asserts that the copy has the same names and files, and passes the check.
    fn assert_same(&self) {
        let named = |world: &World, top: &str| -> Vec<String> {
            let names = world.names().into_iter().filter(|name| name.starts_with(top));
            names.map(|name| name.replacen(top, "tank/_", 1)).collect()
        };
        assert_eq!(named(&self.there, "tank/b"), named(&self.here, "tank/a"));
        for name in named(&self.here, "tank/a") {
            let (here, there) = (name.replacen('_', "a", 1), name.replacen('_', "b", 1));
            assert_eq!(self.there.files(&there), self.here.files(&here), "{name}");
        }
        self.there.work();
        self.there.judge();
    }
}

fn not_received<T: std::fmt::Debug>(result: Result<T>, what: &[&str]) {
    let error = refusal(result);
    let said = error.to_string();
    assert!(matches!(error, Error::NotReceived { .. }), "{said}");
    what.iter().for_each(|what| assert!(said.contains(what), "{said}"));
}

#[test]
fn force_goes_back_to_the_base_and_destroys_what_is_later() {
    let (here, there) = (World::new(40), World::new(41));
    here.create("tank/home").unwrap();
    change(&here, "tank/home", 0);
    here.snapshot("tank/home@a").unwrap();
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    change(&here, "tank/home", 1);
    here.snapshot("tank/home@b").unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    there.receive("tank/copy", &full, false).unwrap();
    for own in ["own1", "own2", "b"] {
        there.write("tank/copy", own, b"my own");
        there.snapshot(&format!("tank/copy@{own}")).unwrap();
    }
    there.write("tank/copy", "mine", b"not in any snapshot");
    not_received(there.receive("tank/copy", &more, false), &["@b"]);
    let own: crate::name::SnapshotName = "tank/copy@own1".parse().unwrap();
    there.datasets.hold("keep", std::slice::from_ref(&own), false).unwrap();
    not_received(there.receive("tank/copy", &more, true), &["tank/copy@own1", "keep"]);
    there.datasets.release("keep", &[own], false).unwrap();
    there.clone("tank/copy@own2", "tank/clone").unwrap();
    not_received(there.receive("tank/copy", &more, true), &["tank/copy@own2", "tank/clone"]);
    assert_eq!(there.files("tank/copy")["mine"], b"not in any snapshot");
    there.destroy("tank/clone", false, false).unwrap();
    let arrived = there.receive("tank/copy", &more, true).unwrap();
    assert_eq!(arrived.destroyed, ["tank/copy@own1", "tank/copy@own2", "tank/copy@b"]);
    assert_eq!(there.names(), ["tank", "tank/copy", "tank/copy@a", "tank/copy@b"]);
    assert_eq!(there.files("tank/copy"), here.files("tank/home@b"));
    assert_eq!(there.files("tank/copy@a"), here.files("tank/home@a"));
    there.work();
    there.judge();
}

#[test]
fn what_takes_the_name_of_what_departs_stays() {
    let pair = Pair::new(60);
    pair.here.destroy("tank/a/y", true, false).unwrap();
    pair.snapshot("2");
    let package = pair.package("2", Some("1"));
    let there = &pair.there;
    let request = ReceiveRequest { force: true, ..request("tank/b") };
    let mut leaving = |names: &[String]| {
        assert!(names.contains(&"tank/b/y".to_owned()), "{names:?}");
        there.datasets.rename(&name("tank/b/y"), &name("tank/y"), false, (0, 0)).unwrap();
        there.create("tank/b/y").unwrap();
        there.write("tank/b/y", "mine", b"another dataset");
        Ok(())
    };
    let (_, received) = there.datasets.receive_beside(request, &mut &package[..], 0, &mut |_| {}, &mut leaving);
    not_received(received, &["changed during the receive"]);
    assert_eq!(there.files("tank/b/y")["mine"], b"another dataset");
    assert!(there.names().contains(&"tank/y".to_owned()));
    there.work();
    there.judge();
}

#[test]
fn a_forced_replication_destroys_what_the_sender_does_not_have() {
    let pair = Pair::new(42);
    pair.snapshot("2");
    pair.there.receive("tank/b", &pair.package("2", Some("1")), false).unwrap();
    // Destroyed at the sender: a snapshot, and a dataset whose name now belongs to another dataset.
    pair.here.destroy("tank/a/x@1", false, false).unwrap();
    pair.here.destroy("tank/a/y", true, false).unwrap();
    pair.here.create("tank/a/y").unwrap();
    pair.here.datasets.rename_snapshot(&"tank/a/z@1".parse().unwrap(), "first", false).unwrap();
    // Never at the sender.
    pair.there.create("tank/b/own").unwrap();
    pair.there.create("tank/b/own/below").unwrap();
    pair.there.snapshot("tank/b/z@mine").unwrap();
    let own: crate::name::SnapshotName = "tank/b/z@mine".parse().unwrap();
    pair.there.datasets.hold("keep", std::slice::from_ref(&own), false).unwrap();
    not_received(pair.follow("2", "3", true), &["tank/b/z@mine", "keep"]);
    assert!(pair.there.names().contains(&"tank/b/own/below".to_owned()), "nothing was destroyed");
    pair.there.datasets.release("keep", &[own], false).unwrap();
    let mut notified = Vec::new();
    let request = ReceiveRequest { force: true, ..ReceiveRequest::plain("tank/b".parse().unwrap()) };
    let package = pair.package("3", Some("2"));
    let mut leaving = |names: &[String]| {
        notified.extend_from_slice(names);
        Ok(())
    };
    let (arrived, done) = pair.there.datasets.receive_beside(request, &mut &package[..], 0, &mut |_| {}, &mut leaving);
    done.unwrap();
    for gone in ["tank/b/x@1", "tank/b/y", "tank/b/own", "tank/b/own/below", "tank/b/z@mine"] {
        assert!(arrived.destroyed.iter().any(|name| name == gone), "{gone}: {:?}", arrived.destroyed);
        assert!(notified.iter().any(|name| name == gone), "{gone}: {notified:?}");
    }
    pair.assert_same();
}

#[test]
fn without_force_nothing_is_destroyed() {
    let pair = Pair::new(43);
    pair.here.destroy("tank/a/x", true, false).unwrap();
    pair.there.create("tank/b/own").unwrap();
    pair.follow("1", "2", false).unwrap();
    let names = pair.there.names();
    for stays in ["tank/b/x@1", "tank/b/own", "tank/b/y@2"] {
        assert!(names.iter().any(|name| name == stays), "{stays}");
    }
    pair.there.judge();
}

#[test]
fn data_sets_that_were_renamed_are_followed() {
    for force in [false, true] {
        let pair = Pair::new(44);
        change(&pair.here, "tank/a/x", 3);
        pair.rename("tank/a/x", "tank/a/new");
        pair.follow("1", "2", force).unwrap();
        pair.assert_same();
        // Two datasets swap names, and one moves below a dataset new to the receiver.
        pair.rename("tank/a/y", "tank/a/tmp");
        pair.rename("tank/a/z", "tank/a/y");
        pair.rename("tank/a/tmp", "tank/a/z");
        pair.here.create("tank/a/above").unwrap();
        pair.rename("tank/a/new", "tank/a/above/new");
        pair.follow("2", "3", force).unwrap();
        pair.assert_same();
        // The former parent is now the child.
        pair.rename("tank/a/above/new", "tank/a/new");
        pair.rename("tank/a/above", "tank/a/new/above");
        pair.follow("3", "4", force).unwrap();
        pair.assert_same();
    }
}

#[test]
fn what_took_the_name_of_one_that_was_renamed_comes_beside_it() {
    for (round, force) in [false, true].into_iter().enumerate() {
        // Streams are sorted by name: the new dataset comes before or after the renamed one.
        for renamed in ["tank/a/z2", "tank/a/b"] {
            let pair = Pair::new(48 + round as u64);
            pair.here.create("tank/a/x/below").unwrap();
            pair.follow("1", "2", false).unwrap();
            pair.rename("tank/a/x", renamed);
            pair.here.create("tank/a/x").unwrap();
            change(&pair.here, "tank/a/x", 5);
            pair.follow("2", "3", force).unwrap();
            pair.assert_same();
        }
    }
}

#[test]
fn a_destroyed_datasets_name_goes_to_a_renamed_one_or_a_clone() {
    let pair = Pair::new(52);
    pair.here.create("tank/a/x/below").unwrap();
    change(&pair.here, "tank/a/x/below", 1);
    pair.follow("1", "2", false).unwrap();
    pair.rename("tank/a/x/below", "tank/a/below");
    pair.here.destroy("tank/a/x", true, false).unwrap();
    pair.rename("tank/a/y", "tank/a/x");
    pair.here.destroy("tank/a/z", true, false).unwrap();
    pair.here.clone("tank/a/x@1", "tank/a/z").unwrap();
    pair.follow("2", "3", true).unwrap();
    pair.assert_same();
}

#[test]
fn a_package_that_is_refused_at_once_destroys_nothing() {
    let pair = Pair::new(53);
    pair.snapshot("2");
    let old = pair.package("2", Some("1"));
    pair.there.receive("tank/b", &old, false).unwrap();
    pair.follow("2", "3", false).unwrap();
    let before = pair.there.names();
    // When received again, later snapshots are newer than its whole census.
    not_received(pair.there.receive("tank/b", &old, true), &["tank/b", "@3"]);
    not_received(pair.rehearse(&old, |_| ()), &["tank/b", "@3"]);
    assert_eq!(pair.there.names(), before);
    // Alone, the package would bring nothing.
    let alone = pair.lonely("2", "1");
    not_received(pair.there.receive("tank/b/x", &alone, true), &["tank/b/x"]);
    assert_eq!(pair.there.names(), before);
    // The base no longer exists here.
    pair.snapshot("4");
    pair.snapshot("5");
    pair.there.snapshot("tank/b/x@mine").unwrap();
    let before = pair.there.names();
    not_received(pair.there.receive("tank/b", &pair.package("5", Some("4")), true), &["tank/b@5"]);
    assert_eq!(pair.there.names(), before);
    pair.there.judge();
}

#[test]
fn a_dataset_without_common_snapshots_is_refused_and_stays() {
    let pair = Pair::new(54);
    pair.snapshot("2");
    pair.snapshot("3");
    pair.there.receive("tank/b", &pair.package("2", Some("1")), false).unwrap();
    for gone in ["tank/a/x@1", "tank/a/x@2"] {
        pair.here.destroy(gone, false, false).unwrap();
    }
    let top = pair.here.send("tank/a@3", Some("tank/a@2"), |_| ()).unwrap();
    pair.there.receive("tank/b", &top, false).unwrap();
    pair.snapshot("4");
    not_received(pair.there.receive("tank/b", &pair.package("4", Some("3")), true), &["tank/b/x@4"]);
    for stays in ["tank/b/x@1", "tank/b/x@2"] {
        assert!(pair.there.names().iter().any(|name| name == stays), "{stays}");
    }
    pair.there.judge();
}

#[test]
fn children_of_destroyed_datasets_and_promoted_clones_stay() {
    let pair = Pair::new(45);
    pair.here.create("tank/a/x/below").unwrap();
    change(&pair.here, "tank/a/x/below", 1);
    pair.here.clone("tank/a/z@1", "tank/a/clone").unwrap();
    pair.follow("1", "2", true).unwrap();
    pair.assert_same();
    pair.rename("tank/a/x/below", "tank/a/below");
    pair.here.destroy("tank/a/x", true, false).unwrap();
    pair.here.datasets.promote(&name("tank/a/clone")).unwrap();
    pair.here.destroy("tank/a/z", true, false).unwrap();
    pair.follow("2", "3", true).unwrap();
    pair.assert_same();
}

#[test]
fn a_data_set_that_is_no_copy_is_left_alone() {
    let pair = Pair::new(46);
    pair.there.create("tank/c").unwrap();
    pair.there.create("tank/c/own").unwrap();
    pair.there.snapshot("tank/c@own").unwrap();
    pair.snapshot("2");
    not_received(pair.there.receive("tank/c", &pair.package("2", Some("1")), true), &["tank/c@2"]);
    assert!(pair.there.names().contains(&"tank/c/own".to_owned()));
}

#[test]
fn a_census_does_not_count_as_the_first_stream() {
    let (pair, other) = (Pair::new(55), World::new(56));
    other.receive("tank/b", &pair.package("1", None), false).unwrap();
    pair.snapshot("2");
    let short = pair.package("2", Some("1"));
    (0..9).for_each(|number| pair.here.snapshot(&format!("tank/a/y@later-{number}")).unwrap());
    let long = pair.package("2", Some("1"));
    assert!(long.len() > short.len());
    let (first, same) = (pair.there.receive("tank/b", &short, false), other.receive("tank/b", &long, false));
    let bytes = |arrived: Arrived| -> Vec<u64> { arrived.snapshots.iter().map(|snapshot| snapshot.bytes).collect() };
    assert_eq!(bytes(first.unwrap()), bytes(same.unwrap()));
}

impl Pair {
    fn rehearse(&self, stream: &[u8], change: impl FnOnce(&mut ReceiveRequest)) -> Result<Vec<String>> {
        let mut request = ReceiveRequest { force: true, ..ReceiveRequest::plain("tank/b".parse().unwrap()) };
        change(&mut request);
        let before = self.there.names();
        let planned = self.there.datasets.plan_receive(&request, &mut &stream[..], 0, &mut |_| {})?;
        assert_eq!(self.there.names(), before);
        let line = |planned: ArrivedSnapshot| {
            let kind = if planned.incremental { "more" } else { "full" };
            format!("{kind} {} {}", planned.sent, planned.name)
        };
        Ok(planned.snapshots.into_iter().map(line).collect())
    }
}

#[test]
fn a_dry_run_says_what_would_arrive() {
    let pair = Pair::new(47);
    pair.rename("tank/a/x", "tank/a/new");
    pair.here.destroy("tank/a/z", true, false).unwrap();
    pair.here.create("tank/a/young").unwrap();
    pair.snapshot("2");
    let package = pair.package("2", Some("1"));
    let lines = pair.rehearse(&package, |_| ()).unwrap();
    let expected = ["more tank/a@2 tank/b@2", "more tank/a/new@2 tank/b/new@2", "more tank/a/y@2 tank/b/y@2"];
    assert_eq!(lines, [&expected[..], &["full tank/a/young@2 tank/b/young@2"]].concat());
    let arrived = pair.there.receive("tank/b", &package, true).unwrap();
    assert_eq!(arrived.snapshots.len(), lines.len());
    let full = pair.package("2", None);
    let lines = pair.rehearse(&full, |request| request.target = "tank/c".parse().unwrap()).unwrap();
    assert_eq!(lines[..3], ["full tank/a@1 tank/c@1", "more tank/a@2 tank/c@2", "full tank/a/new@1 tank/c/new@1"]);
    let below = |naming| {
        move |request: &mut ReceiveRequest| {
            (request.target, request.naming) = ("tank/b".parse().unwrap(), naming);
        }
    };
    let lines = pair.rehearse(&full, below(Naming::WithoutPool)).unwrap();
    assert_eq!(lines[0], "full tank/a@1 tank/b/a@1");
    let one = pair.here.send("tank/a/new@2", None, |_| ()).unwrap();
    not_received(pair.rehearse(&one, below(Naming::LastPart)), &["already has this snapshot"]);
    assert_eq!(pair.rehearse(&one, below(Naming::WithoutPool)).unwrap(), ["full tank/a/new@2 tank/b/a/new@2"]);
    assert!(pair.rehearse(&package[..package.len() - 1], |_| ()).is_err());
}
