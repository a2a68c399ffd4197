//! Sending and receiving datasets between two pools: compared with the expected files, and checked.

use super::world::{World, name, noise, refusal};
use crate::{
    admin::{Arrived, Assignment, Naming, ReceiveRequest, SendFrom, SendRequest},
    error::{Error, Reader, Result},
    stream,
};

impl World {
    pub(super) fn send(
        &self,
        snapshot: &str,
        from: Option<&str>,
        change: impl FnOnce(&mut SendRequest),
    ) -> Result<Vec<u8>> {
        let from = from.map(|from| SendFrom::Base(from.parse().unwrap()));
        let mut request = SendRequest { from, ..SendRequest::plain(snapshot.parse().unwrap()) };
        change(&mut request);
        let mut out = Vec::new();
        self.datasets.send(&request, Reader::default(), &mut out, 0, &mut |_| {})?;
        let planned: u64 = self.datasets.plan_send(&request)?.iter().map(|planned| planned.bytes).sum();
        assert!(planned <= out.len() as u64);
        stream::verify(&mut &out[..], 0, &mut |_| {}).unwrap();
        Ok(out)
    }

    pub(super) fn receive(&self, target: &str, stream: &[u8], force: bool) -> Result<Arrived> {
        self.receive_with(target, stream, |request| request.force = force)
    }

    pub(super) fn receive_with(
        &self,
        target: &str,
        stream: &[u8],
        change: impl FnOnce(&mut ReceiveRequest),
    ) -> Result<Arrived> {
        let mut request = request(target);
        change(&mut request);
        let (arrived, received) = self.datasets.receive(request, &mut &stream[..], 0, &mut |_| {});
        received.map(|()| arrived)
    }

    /// As `receive`; `progress` is called with the number of bytes read so far.
    pub(super) fn receive_reporting(&self, target: &str, stream: &[u8], progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.datasets.receive(request(target), &mut &stream[..], 0, progress).1
    }
}

/// A request to receive the stream unchanged.
pub(super) fn request(target: &str) -> ReceiveRequest {
    ReceiveRequest::plain(target.parse().unwrap())
}

/// A pool whose `tank/home` was changed once and has the snapshot `a`.
pub(super) fn home(seed: u64) -> World {
    let world = World::new(seed);
    world.create("tank/home").unwrap();
    change(&world, "tank/home", 0);
    world.snapshot("tank/home@a").unwrap();
    world
}

/// Some files; each round changes some of them.
pub(super) fn change(world: &World, dataset: &str, round: u64) {
    for file in 0..12 {
        let len = 1 + (file * 7919 + round * 104_729) as usize % 90_000;
        if (file + round).is_multiple_of(3) {
            world.write(dataset, &format!("file{file}"), &noise(file + round, len));
        }
    }
    if round > 0 {
        world.write(dataset, "gone", b"");
        world.remove(dataset, "gone");
    }
}

#[test]
fn a_backup_follows_its_original() {
    let (here, there) = (World::new(1), World::new(2));
    here.create("tank/home").unwrap();
    let mut before: Option<String> = None;
    for round in 0..6 {
        change(&here, "tank/home", round);
        let snapshot = format!("tank/home@s{round}");
        here.snapshot(&snapshot).unwrap();
        let stream = here.send(&snapshot, before.as_deref(), |_| ()).unwrap();
        let arrived = there.receive("tank/copy", &stream, false).unwrap();
        let copy = format!("tank/copy@s{round}");
        assert_eq!(arrived.snapshots.len(), 1);
        let one = &arrived.snapshots[0];
        assert_eq!((one.sent.as_str(), one.name.as_str()), (snapshot.as_str(), copy.as_str()));
        assert_eq!(one.incremental, round > 0);
        assert_eq!(there.files(&copy), here.files(&snapshot));
        for property in ["guid", "creation"] {
            assert_eq!(there.get(&copy, property), here.get(&snapshot, property));
        }
        there.judge();
        before = Some(snapshot);
    }
    here.judge();
    there.work();
    there.judge();
    assert_eq!(there.names().len(), 8);
    there.destroy("tank/copy", true, false).unwrap();
    there.work();
    there.judge();
}

#[test]
fn a_bookmark_is_a_base_and_snapshots_in_between_are_sent() {
    let (here, there) = (home(3), World::new(4));
    there.receive("tank/copy", &here.send("tank/home@a", None, |_| ()).unwrap(), false).unwrap();
    here.datasets.bookmark(&"tank/home@a".parse().unwrap(), &"tank/home#a".parse().unwrap()).unwrap();
    here.destroy("tank/home@a", false, false).unwrap();
    here.work();
    for round in 1..4 {
        change(&here, "tank/home", round);
        here.snapshot(&format!("tank/home@{round}")).unwrap();
    }
    let stream = here.send("tank/home@1", Some("tank/home#a"), |_| ()).unwrap();
    there.receive("tank/copy", &stream, false).unwrap();
    let all = |request: &mut SendRequest| request.from = Some(SendFrom::Each("tank/home@1".parse().unwrap()));
    let stream = here.send("tank/home@3", None, all).unwrap();
    assert_eq!(there.receive("tank/copy", &stream, false).unwrap().snapshots.len(), 2);
    for snapshot in ["@1", "@2", "@3", ""] {
        assert_eq!(there.files(&format!("tank/copy{snapshot}")), here.files(&format!("tank/home{snapshot}")));
    }
    there.judge();
    let error = refusal(here.send("tank/home@1", Some("tank/home@3"), |_| ()));
    assert!(matches!(error, Error::Unrelated { .. }));
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let (here, there) = (home(5), World::new(6));
    change(&here, "tank/home", 1);
    here.snapshot("tank/home@b").unwrap();
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    let refused = |result: Result<Arrived>, what: &str| {
        let error = refusal(result);
        assert!(matches!(&error, Error::NotReceived { problem, .. } if problem.contains(what)), "{error}");
        assert!(error.remedy().is_some());
    };
    refused(there.receive("tank/copy", &more, false), "does not exist");
    refused(there.receive("tank", &full, false), "exists");
    there.receive("tank/copy", &full, false).unwrap();
    refused(there.receive("tank/copy", &full, true), "already");
    there.write("tank/copy", "mine", b"my own");
    refused(there.receive("tank/copy", &more, false), "modified");
    assert_eq!(there.files("tank/copy")["mine"], b"my own");
    assert_eq!(there.receive("tank/copy", &more, true).unwrap().replaced.len(), 1);
    assert_eq!(there.files("tank/copy"), here.files("tank/home@b"));
    there.snapshot("tank/copy@own").unwrap();
    refused(
        there.receive("tank/copy", &here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap(), false),
        "already",
    );
    refused(there.receive("tank/copy", &here.send("tank/home@b", None, |_| ()).unwrap(), true), "already");
    there.work();
    there.judge();
}

#[test]
fn a_forced_full_stream_overwrites_a_dataset_without_snapshots() {
    let (here, there) = (World::new(7), World::new(8));
    change(&here, "tank", 0);
    here.snapshot("tank@a").unwrap();
    there.write("tank", "old", &noise(1, 300_000));
    let stream = here.send("tank@a", None, |_| ()).unwrap();
    there.receive("tank", &stream, true).unwrap();
    assert_eq!(there.files("tank"), here.files("tank@a"));
    there.work();
    there.judge();
    assert_eq!(there.number("tank", "referenced"), there.number("tank@a", "referenced"));
    there.write("tank", "new", b"goes on");
    there.judge();
}

#[test]
fn a_replication_brings_children_clones_and_properties() {
    let (here, there) = (World::new(9), World::new(10));
    here.create("tank/a").unwrap();
    here.create("tank/a/b").unwrap();
    let set = |property: &str, value: &str| Assignment { property: property.into(), value: value.into() };
    here.datasets.set(&[name("tank/a").into()], &[set("compression", "zstd-3"), set("quota", "100M")]).unwrap();
    here.datasets.set(&[name("tank/a/b").into()], &[set("my:note", "hello"), set("recordsize", "8K")]).unwrap();
    change(&here, "tank/a", 0);
    change(&here, "tank/a/b", 1);
    here.datasets.snapshot(vec!["tank/a@one".parse().unwrap()], true, Vec::new()).unwrap();
    here.clone("tank/a/b@one", "tank/a/aclone").unwrap();
    change(&here, "tank/a/aclone", 2);
    change(&here, "tank/a/b", 3);
    here.datasets.snapshot(vec!["tank/a@two".parse().unwrap()], true, Vec::new()).unwrap();
    let all = |request: &mut SendRequest| request.replicate = true;
    let stream = here.send("tank/a@two", None, all).unwrap();
    let without = |request: &mut ReceiveRequest| {
        request.exclude = vec!["recordsize".into()];
        request.properties = vec![set("atime", "off")];
        request.naming = Naming::WithoutPool;
    };
    there.create("tank/backup").unwrap();
    let arrived = there.receive_with("tank/backup", &stream, without).unwrap();
    assert_eq!(arrived.snapshots.len(), 5);
    for of in ["a", "a@one", "a@two", "a/b", "a/b@one", "a/aclone", "a/aclone@two"] {
        assert_eq!(there.files(&format!("tank/backup/{of}")), here.files(&format!("tank/{of}")), "{of}");
    }
    let get = |of: &str, property: &str| there.get(&format!("tank/backup/{of}"), property);
    assert_eq!(get("a", "compression"), here.get("tank/a", "compression"));
    assert_eq!(get("a", "quota"), (100 << 20).to_string());
    assert_eq!(
        (get("a/b", "my:note"), get("a/b", "recordsize"), get("a/b", "atime")),
        ("hello".into(), "131072".into(), "off".into())
    );
    assert_eq!(get("a/aclone", "origin"), "tank/backup/a/b@one");
    there.judge();

    change(&here, "tank/a/aclone", 4);
    here.create("tank/a/young").unwrap();
    here.datasets.snapshot(vec!["tank/a@three".parse().unwrap()], true, Vec::new()).unwrap();
    let stream = here.send("tank/a@three", Some("tank/a@two"), all).unwrap();
    let arrived = there.receive_with("tank/backup", &stream, without).unwrap();
    assert_eq!(arrived.snapshots.len(), 4);
    assert_eq!(there.files("tank/backup/a/aclone"), here.files("tank/a/aclone"));
    assert!(there.names().contains(&"tank/backup/a/young@three".to_string()));
    there.judge();
}

#[test]
fn a_broken_or_crashed_receive_leaves_nothing_for_long() {
    let (here, mut there) = (World::new(11), World::new(12));
    here.create("tank/home").unwrap();
    change(&here, "tank/home", 0);
    here.snapshot("tank/home@a").unwrap();
    change(&here, "tank/home", 1);
    here.snapshot("tank/home@b").unwrap();
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    for cut in [17, full.len() / 2, full.len() - 1] {
        refusal(there.receive("tank/copy", &full[..cut], false));
        assert_eq!(there.names(), ["tank"]);
        there.work();
        there.judge();
    }
    there.receive("tank/copy", &full, false).unwrap();
    for cut in (0..more.len()).step_by(more.len() / 7) {
        let mut bad = more.clone();
        bad[cut] ^= 4;
        refusal(there.receive("tank/copy", &bad, false));
        assert_eq!(there.names(), ["tank", "tank/copy", "tank/copy@a"]);
        assert_eq!(there.files("tank/copy@a"), here.files("tank/home@a"));
    }
    there.work();
    there.judge();
    // The state after a power failure in the middle: a hidden dataset is committed, and neither finished nor abandoned.
    there.hide_one("tank/copy@a");
    there.reopen();
    assert_eq!(there.datasets.destroy_unfinished().unwrap(), 1);
    there.work();
    there.judge();
    there.receive("tank/copy", &more, false).unwrap();
    assert_eq!(there.files("tank/copy@b"), here.files("tank/home@b"));
    there.judge();
}

#[test]
fn the_base_of_a_receive_cannot_be_destroyed_meanwhile() {
    let world = World::new(13);
    world.create("tank/home").unwrap();
    world.snapshot("tank/home@a").unwrap();
    world.hide_one("tank/home@a");
    assert_eq!(world.names(), ["tank", "tank/home", "tank/home@a"]);
    assert!(matches!(refusal(world.destroy("tank/home@a", false, false)), Error::HasClones { .. }));
    assert!(matches!(refusal(world.destroy("tank/home@a", false, true)), Error::Busy { .. }));
    assert!(matches!(refusal(world.destroy("tank/home", true, true)), Error::Busy { .. }));
}

#[test]
fn limits_that_are_lowered_together_are_taken_together() {
    let (here, there) = (World::new(57), World::new(58));
    here.create("tank/home").unwrap();
    let set = |limits: [(&str, &str); 2]| {
        for (property, value) in limits {
            let value = Assignment { property: property.into(), value: value.into() };
            here.datasets.set(&[name("tank/home").into()], &[value]).unwrap();
        }
    };
    let with_properties = |request: &mut SendRequest| request.properties = true;
    set([("quota", "40M"), ("reservation", "20M")]);
    here.snapshot("tank/home@a").unwrap();
    there.receive("tank/copy", &here.send("tank/home@a", None, with_properties).unwrap(), false).unwrap();
    // The new quota is below the old reservation.
    set([("reservation", "5M"), ("quota", "10M")]);
    here.snapshot("tank/home@b").unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), with_properties).unwrap();
    there.receive("tank/copy", &more, false).unwrap();
    for limit in ["quota", "reservation"] {
        assert_eq!(there.number("tank/copy", limit), here.number("tank/home", limit), "{limit}");
    }
    there.judge();
}

#[test]
fn a_stream_beyond_a_limit_is_refused() {
    let (here, there) = (World::new(14), World::new(15));
    here.create("tank/home").unwrap();
    here.snapshot("tank/home@a").unwrap();
    here.write("tank/home", "file", &noise(1, 3 << 20));
    here.snapshot("tank/home@b").unwrap();
    let small = here.send("tank/home@a", None, |_| ()).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    let full = here.send("tank/home@b", None, |_| ()).unwrap();
    let set = |of: &str, property: &str, value: &str| {
        let value = Assignment { property: property.into(), value: value.into() };
        there.datasets.set(&[name(of).into()], &[value]).unwrap();
    };
    there.create("tank/a").unwrap();
    there.receive("tank/a/copy", &small, false).unwrap();
    set("tank/a", "quota", "2M");
    assert!(matches!(refusal(there.receive("tank/a/new", &full, false)), Error::Quota { .. }));
    assert!(matches!(refusal(there.receive("tank/a/copy", &more, true)), Error::Quota { .. }));
    set("tank/a", "quota", "none");
    set("tank/a/copy", "refquota", "2M");
    assert!(matches!(refusal(there.receive("tank/a/copy", &more, false)), Error::Quota { .. }));
    set("tank/a/copy", "refquota", "none");
    there.work();
    there.create("tank/other").unwrap();
    there.settle();
    let room = there.number("tank", "available") - (1 << 20);
    set("tank/other", "reservation", &room.to_string());
    let error = refusal(there.receive("tank/a/copy", &more, false));
    assert!(matches!(error, Error::Pool(pool::error::Error::OutOfSpace)), "{error}");
    set("tank/other", "reservation", "none");
    assert_eq!(there.names(), ["tank", "tank/a", "tank/a/copy", "tank/a/copy@a", "tank/other"]);
    there.work();
    there.judge();
    there.receive("tank/a/copy", &more, false).unwrap();
    there.judge();
}

#[test]
fn parents_of_what_did_not_come_go_again() {
    let (here, there) = (World::new(16), World::new(17));
    here.create("tank/x").unwrap();
    here.create("tank/x/home").unwrap();
    change(&here, "tank/x/home", 0);
    here.snapshot("tank/x/home@a").unwrap();
    let full = here.send("tank/x/home@a", None, |_| ()).unwrap();
    change(&here, "tank/x/home", 1);
    here.snapshot("tank/x/home@b").unwrap();
    let more = here.send("tank/x/home@b", Some("tank/x/home@a"), |_| ()).unwrap();
    there.create("tank/backup").unwrap();
    let below =
        |stream: &[u8]| there.receive_with("tank/backup", stream, |request| request.naming = Naming::WithoutPool);
    refusal(below(&full[..full.len() - 1]));
    assert_eq!(there.names(), ["tank", "tank/backup"]);
    refusal(below(&more));
    assert_eq!(there.names(), ["tank", "tank/backup"]);
    below(&full).unwrap();
    refusal(below(&more[..more.len() / 2]));
    assert_eq!(there.names().last().unwrap(), "tank/backup/x/home@a");
    there.work();
    there.judge();
}

#[test]
fn what_was_only_read_takes_an_increment() {
    let (here, there) = (home(18), World::new(19));
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    change(&here, "tank/home", 1);
    here.snapshot("tank/home@b").unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    there.receive("tank/copy", &full, false).unwrap();
    there.files("tank/copy");
    there.engine.commit().unwrap();
    assert!(there.number("tank/copy", "written") > 0, "reading has set access times");
    there.receive("tank/copy", &more, false).unwrap();
    assert_eq!(there.files("tank/copy"), here.files("tank/home@b"));
    there.work();
    there.judge();
}

impl World {
    /// Begins a receive, and leaves it unfinished.
    fn hide_one(&self, base: &str) {
        let crate::admin::Target::Snapshot(base) = self.datasets.resolve(&base.parse().unwrap()).unwrap() else {
            unreachable!("it is a snapshot's name")
        };
        let begin = move |tx: &mut crate::catalogue::Transaction<'_>| {
            crate::lineage::arrival::begin(tx, Some(base), pool::units::Guid(7))
        };
        self.datasets.run(begin).unwrap();
    }
}

#[test]
fn looking_for_what_to_send_keeps_no_request_waiting() {
    let world = World::new(90);
    world.create("tank/a").unwrap();
    world.snapshot("tank/a@1").unwrap();
    let request = SendRequest { replicate: true, ..SendRequest::plain("tank/a@1".parse().unwrap()) };
    // While the lock is held, no request is carried out; finding snapshots must not need the lock.
    let table = world.datasets.table().lock();
    let (done, planned) = std::sync::mpsc::channel();
    let datasets = world.datasets.clone();
    let looking = std::thread::spawn(move || done.send(datasets.plan_send(&request).unwrap().len()).unwrap());
    assert_eq!(planned.recv_timeout(std::time::Duration::from_secs(20)), Ok(1));
    drop(table);
    looking.join().unwrap();
}
