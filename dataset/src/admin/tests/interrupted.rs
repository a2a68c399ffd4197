//! Receives that are cut off, or end in a power failure, and are resumed: the result is the one of the uncut receive.

use std::sync::Arc;

use pool::{
    device::{Fate, MemoryDevice, Recorder},
    format::key::Key,
    units::MIB,
};

use super::{
    streams::{change, home, request},
    world::{World, name, noise, refusal},
};
use crate::{
    admin::{Assignment, ReceiveRequest, SendFrom, SendRequest},
    error::{Error, Reader, Result},
    lineage::arrival,
    stream::{self, Position, Token},
};

impl World {
    fn receive_resumably(&self, target: &str, stream: &[u8]) -> Result<()> {
        self.receive_with(target, stream, |request| request.resumable = true).map(drop)
    }

    fn token(&self, target: &str) -> Token {
        self.get(target, "receive_resume_token").parse().unwrap()
    }

    /// The stream that continues the interrupted receive into `target` of another pool.
    fn rest_for(&self, there: &World, target: &str) -> Result<Vec<u8>> {
        self.rest(there.token(target))
    }

    fn rest(&self, token: Token) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let request = SendRequest::resuming(token);
        self.datasets.send(&request, Reader::default(), &mut out, 0, &mut |_| {})?;
        assert!(self.datasets.plan_send(&request)?[0].bytes <= out.len() as u64);
        Ok(out)
    }

    /// Receives the rest of an interrupted receive, if there is one.
    fn resume(&self, here: &World, target: &str) {
        if self.get(target, "receive_resume_token") != "-" {
            self.receive_resumably(target, &here.rest_for(self, target).unwrap()).unwrap();
        }
    }
}

/// The offsets of the ends of all records.
fn bounds(stream: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    stream::verify(&mut &stream[..], 0, &mut |at| ends.push(at as usize)).unwrap();
    ends.dedup();
    ends
}

/// A pool whose `tank/home` has many small files in many leaves, and blocks in most of them.
fn many(seed: u64) -> World {
    let world = World::new(seed);
    world.create("tank/home").unwrap();
    for file in 0..60 {
        world.write("tank/home", &format!("file{file:03}"), &noise(file + 1, 900 + file as usize * 97));
    }
    world.write("tank/home", "large", &noise(99, 400_000));
    world.engine.commit().unwrap();
    world.copy("tank/home", "large", "tank/home", "sharing");
    world.snapshot("tank/home@a").unwrap();
    world
}

/// Changes some files of `tank/home`, and takes the snapshot `b`.
fn continued(world: &World) {
    for file in (0..60).step_by(4) {
        world.write("tank/home", &format!("file{file:03}"), &noise(file + 500, 2000 + file as usize * 31));
    }
    world.remove("tank/home", "file001");
    world.write("tank/home", "new", &noise(77, 150_000));
    world.snapshot("tank/home@b").unwrap();
}

#[test]
fn a_full_stream_cut_after_any_record_is_resumed() {
    let (here, there) = (many(601), World::new(602));
    let full = here.send("tank/home@a", None, |request| request.properties = true).unwrap();
    let mut begun = 0;
    for end in bounds(&full) {
        for cut in [end - 1, end] {
            if cut == full.len() {
                continue;
            }
            refusal(there.receive_resumably("tank/copy", &full[..cut]));
            if there.names().contains(&"tank/copy".to_owned()) {
                begun += 1;
                there.judge();
                there.resume(&here, "tank/copy");
            } else {
                there.receive_resumably("tank/copy", &full).unwrap();
            }
            assert_eq!(there.files("tank/copy"), here.files("tank/home@a"), "cut {cut}");
            assert_eq!(there.get("tank/copy@a", "guid"), here.get("tank/home@a", "guid"));
            assert_eq!(there.get("tank/copy", "receive_resume_token"), "-");
            there.judge();
            there.destroy("tank/copy", true, false).unwrap();
            there.work();
        }
    }
    assert!(begun > 20, "{begun}");
    there.judge();
}

#[test]
fn an_increment_cut_after_any_record_is_resumed() {
    let (here, there) = (many(603), World::new(604));
    continued(&here);
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    there.receive("tank/copy", &full, false).unwrap();
    for cut in bounds(&more) {
        if cut == more.len() {
            continue;
        }
        refusal(there.receive_resumably("tank/copy", &more[..cut]));
        // The dataset is in use meanwhile, as it was.
        assert_eq!(there.files("tank/copy"), here.files("tank/home@a"));
        there.judge();
        match there.get("tank/copy", "receive_resume_token").as_str() {
            "-" => there.receive_resumably("tank/copy", &more).unwrap(),
            _ => there.resume(&here, "tank/copy"),
        }
        assert_eq!(there.files("tank/copy@b"), here.files("tank/home@b"), "cut {cut}");
        assert_eq!(there.files("tank/copy"), here.files("tank/home@b"));
        there.judge();
        there.rollback("tank/copy@a", true, false).unwrap();
        there.work();
    }
    there.judge();
}

#[test]
fn the_same_stream_once_more_skips_what_is_known() {
    let (here, there) = (many(605), World::new(606));
    continued(&here);
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    for (stream, snapshot) in [(&full, "a"), (&more, "b")] {
        let mut before = Key::MIN;
        for part in 1..6 {
            refusal(there.receive_resumably("tank/copy", &stream[..stream.len() * part / 6]));
            let reached = there.token("tank/copy").position.key;
            assert!(reached >= before, "{reached} after {before}");
            before = reached;
        }
        assert!(before > Key::MIN);
        there.receive_resumably("tank/copy", stream).unwrap();
        assert_eq!(there.files(&format!("tank/copy@{snapshot}")), here.files(&format!("tank/home@{snapshot}")));
        there.judge();
    }
}

#[test]
fn a_partial_state_survives_an_export_and_counts_as_no_dataset() {
    let (here, mut there) = (many(607), World::new(608));
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    refusal(there.receive_resumably("tank/copy", &full[..full.len() * 2 / 3]));
    let token = there.token("tank/copy");
    assert_eq!(token.snapshot.as_str(), "tank/home@a");
    assert_ne!(token.position, Position::START);
    there.reopen();
    assert_eq!(there.datasets.destroy_unfinished().unwrap(), 0);
    assert_eq!(there.token("tank/copy"), token);
    assert!(there.number("tank/copy", "used") > 100_000);
    let partial = |error| assert!(matches!(error, Error::Partial { .. }), "{error}");
    partial(there.datasets.open_dataset(&name("tank/copy")).err().unwrap());
    partial(refusal(there.snapshot("tank/copy@x")));
    partial(refusal(there.receive("tank/copy", &full, false)));
    partial(refusal(there.receive("tank/copy", &full, true)));
    there.datasets.snapshot(vec!["tank@all".parse().unwrap()], true, Vec::new()).unwrap();
    assert_eq!(there.names(), ["tank", "tank@all", "tank/copy"]);
    there.resume(&here, "tank/copy");
    assert_eq!(there.files("tank/copy"), here.files("tank/home@a"));
    there.judge();
}

#[test]
fn a_receive_that_stored_nothing_keeps_nothing() {
    let (here, there) = (many(621), World::new(622));
    let full = here.send("tank/home@a", None, |_| {}).unwrap();
    let head = bounds(&full)[0];
    let names = there.names();
    refusal(there.receive_resumably("tank/copy", &full[..head]));
    assert_eq!(there.names(), names);
    there.receive_resumably("tank/copy", &full).unwrap();
    let other = World::new(623);
    refusal(other.receive_resumably("tank/copy", &full[..full.len() / 2]));
    let token = other.token("tank/copy");
    // A second attempt that fails at once keeps what the first has stored.
    refusal(other.receive_resumably("tank/copy", &full[..head]));
    assert_eq!(other.token("tank/copy"), token);
    other.resume(&here, "tank/copy");
    other.judge();
}

#[test]
fn discarding_frees_what_was_stored() {
    let (here, there) = (many(609), World::new(610));
    continued(&here);
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    let discard = || there.datasets.discard_partial(&name("tank/copy"));
    let nothing = there.number("tank", "used");
    refusal(there.receive_resumably("tank/copy", &full[..full.len() - 1]));
    assert!(there.number("tank", "used") > nothing + 400_000);
    discard().unwrap();
    there.work();
    assert_eq!(there.names(), ["tank"]);
    assert_eq!(there.number("tank", "used"), nothing);
    there.judge();
    assert!(matches!(refusal(discard()), Error::NotFound { .. }));

    there.receive("tank/copy", &full, false).unwrap();
    let whole = there.number("tank", "used");
    assert!(matches!(refusal(discard()), Error::NotReceived { .. }));
    refusal(there.receive_resumably("tank/copy", &more[..more.len() - 1]));
    assert!(there.number("tank", "used") > whole + 150_000);
    // The base is in use, and the error says by what.
    assert!(matches!(refusal(there.destroy("tank/copy@a", false, false)), Error::Partial { .. }));
    discard().unwrap();
    there.work();
    assert_eq!(there.number("tank", "used"), whole);
    there.judge();
    // A destroy of the dataset takes the partial state along.
    refusal(there.receive_resumably("tank/copy", &more[..more.len() - 1]));
    assert_eq!(there.destroy("tank/copy", true, false).unwrap().names, ["tank/copy@a", "tank/copy"]);
    there.work();
    assert_eq!(there.number("tank", "used"), nothing);
    refusal(there.receive_resumably("tank/copy", &full[..full.len() - 1]));
    there.destroy("tank/copy", false, false).unwrap();
    there.work();
    assert_eq!(there.number("tank", "used"), nothing);
    there.judge();
}

#[test]
fn an_overwrite_is_resumed_and_goes_with_its_dataset() {
    let (here, there) = (many(611), World::new(612));
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let forced = |request: &mut ReceiveRequest| (request.force, request.resumable) = (true, true);
    there.create("tank/copy").unwrap();
    there.write("tank/copy", "old", b"old");
    let nothing = there.number("tank", "used");
    refusal(there.receive_with("tank/copy", &full[..full.len() / 2], forced));
    there.destroy("tank/copy", false, false).unwrap();
    there.work();
    assert!(there.number("tank", "used") < nothing);
    there.create("tank/copy").unwrap();
    refusal(there.receive_with("tank/copy", &full[..full.len() / 2], forced));
    let rest = here.rest_for(&there, "tank/copy").unwrap();
    there.receive_with("tank/copy", &rest, forced).unwrap();
    assert_eq!(there.files("tank/copy"), here.files("tank/home@a"));
    there.judge();
}

#[test]
fn only_the_rest_of_the_same_stream_continues_a_receive() {
    let (here, there) = (many(613), World::new(614));
    continued(&here);
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let other = here.send("tank/home@b", None, |_| ()).unwrap();
    refusal(there.receive_resumably("tank/copy", &full[..full.len() / 2]));
    let token = there.token("tank/copy");
    assert!(matches!(refusal(there.receive_resumably("tank/copy", &other)), Error::Partial { .. }));
    let rest = here.rest(token.clone()).unwrap();
    let refused = |stream: &[u8], target: &str, about: &str| match refusal(there.receive_resumably(target, stream)) {
        Error::NotReceived { problem, .. } => assert!(problem.contains(about), "{problem}"),
        error => panic!("{error}"),
    };
    refused(&rest, "tank/elsewhere", "no partial state");
    let end = Position { key: Key::MAX, ..token.position };
    let forged = here.rest(Token { position: end, ..token.clone() }).unwrap();
    refused(&forged, "tank/copy", "the partial state ends at");
    let gone = |token: Token, about: &str| match refusal(here.rest(token)) {
        Error::NotResumed(problem) => assert!(problem.contains(about), "{problem}"),
        error => panic!("{error}"),
    };
    let wanted = token.clone();
    gone(Token { guid: pool::units::Guid(5), ..wanted.clone() }, "used in the initial send no longer exists");
    gone(Token { base: Some(pool::units::Guid(5)), ..wanted.clone() }, "incremental source 0x5 no longer exists");
    gone(Token { snapshot: "tank/none@a".parse().unwrap(), ..wanted }, "no longer exists");
    // The refused streams have left the partial state unchanged.
    assert_eq!(there.token("tank/copy"), token);
    there.receive("tank/copy", &rest, false).unwrap();
    assert_eq!(there.files("tank/copy"), here.files("tank/home@a"));
    there.judge();
}

#[test]
fn one_receive_at_a_time_fills_a_dataset() {
    let (here, there) = (many(615), World::new(616));
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    refusal(there.receive_resumably("tank/copy", &full[..full.len() / 2]));
    let rest = here.rest_for(&there, "tank/copy").unwrap();
    let mut tried = false;
    let mut request = request("tank/copy");
    request.resumable = true;
    let mut meanwhile = |_| {
        if !std::mem::replace(&mut tried, true) {
            assert!(matches!(refusal(there.receive_resumably("tank/copy", &rest)), Error::Busy { .. }));
            assert!(matches!(refusal(there.datasets.discard_partial(&name("tank/copy"))), Error::Busy { .. }));
            assert!(matches!(refusal(there.destroy("tank/copy", false, false)), Error::Busy { .. }));
        }
    };
    let mut at = 0;
    let mut progress = |bytes| {
        at = bytes;
        // The stream's head has been read.
        if bytes > 400 {
            meanwhile(bytes);
        }
    };
    there.datasets.receive(request, &mut &rest[..], 0, &mut progress).1.unwrap();
    assert!(tried);
    assert_eq!(there.files("tank/copy"), here.files("tank/home@a"));
}

#[test]
fn clones_bookmarks_and_properties_are_resumed() {
    let (here, there) = (many(617), World::new(618));
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    there.receive("tank/copy", &full, false).unwrap();
    here.clone("tank/home@a", "tank/clone").unwrap();
    here.write("tank/clone", "own", &noise(5, 200_000));
    let set = Assignment { property: "user:p".into(), value: "v".into() };
    here.datasets.set(&["tank/clone".parse().unwrap()], &[set]).unwrap();
    here.snapshot("tank/clone@1").unwrap();
    let with = |request: &mut SendRequest| request.properties = true;
    let clone = here.send("tank/clone@1", Some("tank/home@a"), with).unwrap();
    refusal(there.receive_resumably("tank/clone", &clone[..clone.len() - 300]));
    there.judge();
    there.resume(&here, "tank/clone");
    assert_eq!(there.files("tank/clone"), here.files("tank/clone@1"));
    assert_eq!(there.get("tank/clone", "origin"), "tank/copy@a");
    assert_eq!(there.get("tank/clone", "user:p"), "v");

    continued(&here);
    here.datasets.bookmark(&"tank/home@a".parse().unwrap(), &"tank/home#a".parse().unwrap()).unwrap();
    let since = |request: &mut SendRequest| request.from = Some(SendFrom::Base("tank/home#a".parse().unwrap()));
    let more = here.send("tank/home@b", None, since).unwrap();
    refusal(there.receive_resumably("tank/copy", &more[..more.len() / 2]));
    there.resume(&here, "tank/copy");
    assert_eq!(there.files("tank/copy@b"), here.files("tank/home@b"));
    there.judge();
}

#[test]
fn a_package_is_resumed_at_its_current_stream() {
    let (here, there) = (home(619), World::new(620));
    for round in 1..4 {
        change(&here, "tank/home", round);
        here.snapshot(&format!("tank/home@{round}")).unwrap();
    }
    let all = |request: &mut SendRequest| request.replicate = true;
    let package = here.send("tank/home@3", None, all).unwrap();
    refusal(there.receive_resumably("tank/copy", &package[..package.len() * 3 / 5]));
    there.judge();
    let snapshot = there.token("tank/copy").snapshot;
    there.resume(&here, "tank/copy");
    assert!(there.names().contains(&snapshot.to_string().replace("home", "copy")));
    // The same package once more brings the rest.
    refusal(there.receive_resumably("tank/copy", &package[..package.len() - 1]));
    there.receive_resumably("tank/copy", &package).unwrap();
    for snapshot in ["@a", "@1", "@2", "@3"] {
        assert_eq!(there.files(&format!("tank/copy{snapshot}")), here.files(&format!("tank/home{snapshot}")));
    }
    there.judge();
}

/// Receives with a commit every few kilobytes.
fn receive_committing(world: &World, target: &str, stream: &[u8]) -> Result<()> {
    let mut request = request(target);
    request.resumable = true;
    let mut next = 0;
    let mut progress = |bytes| {
        if bytes >= next {
            next = bytes + 40_000;
            world.engine.commit().unwrap();
        }
    };
    world.datasets.receive(request, &mut &stream[..], 0, &mut progress).1
}

#[test]
fn a_receive_resumed_after_any_power_failure_is_the_uncut_one() {
    let here = many(621);
    continued(&here);
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    let recorder = Recorder::new();
    let there = World::on(Arc::new(recorder.wrap(MemoryDevice::new("disk", 64 * MIB))), 622);
    let first = recorder.len();
    refusal(receive_committing(&there, "tank/copy", &full[..full.len() / 2]));
    receive_committing(&there, "tank/copy", &here.rest_for(&there, "tank/copy").unwrap()).unwrap();
    let is_full = recorder.len();
    refusal(receive_committing(&there, "tank/copy", &more[..more.len() * 2 / 3]));
    receive_committing(&there, "tank/copy", &more).unwrap();
    let (mut resumed, mut furthest) = (0, Key::MIN);
    for cut in (first..=recorder.len()).step_by(2) {
        let mut fate = Fate::seeded(cut as u64);
        let image = recorder.images_at(cut, &mut fate).remove(0);
        let world = World::open(Arc::new(image), cut as u64).expect("the pool was made before");
        world.datasets.destroy_unfinished().unwrap();
        world.judge();
        let names = world.names();
        let has = |name: &str| names.iter().any(|known| known == name);
        for (stream, snapshot) in [(&full, "@a"), (&more, "@b")] {
            if has(&format!("tank/copy{snapshot}")) {
                continue;
            }
            match names.iter().any(|name| name == "tank/copy") && world.get("tank/copy", "receive_resume_token") != "-"
            {
                true => {
                    resumed += 1;
                    furthest = furthest.max(world.token("tank/copy").position.key);
                    world.resume(&here, "tank/copy");
                }
                false => world.receive_resumably("tank/copy", stream).unwrap(),
            }
            if cut < is_full && snapshot == "@a" {
                assert_eq!(world.files("tank/copy"), here.files("tank/home@a"), "cut {cut}");
            }
        }
        assert_eq!(world.files("tank/copy@a"), here.files("tank/home@a"), "cut {cut}");
        assert_eq!(world.files("tank/copy"), here.files("tank/home@b"), "cut {cut}");
        assert_eq!(world.names(), ["tank", "tank/copy", "tank/copy@a", "tank/copy@b"]);
        world.work();
        world.judge();
        let left = world.datasets.read(|tx| Ok((arrival::hidden(tx)?, arrival::unfinished(tx)?))).unwrap();
        assert_eq!(left, (vec![], vec![]), "cut {cut}");
    }
    assert!(resumed > 30 && furthest > Key::new(2, 0, 0), "{resumed}, {furthest}");
}

#[test]
fn a_file_cut_after_any_byte_is_completed_to_the_same_file() {
    let here = many(623);
    continued(&here);
    let full = here.send("tank/home@a", None, |request| request.properties = true).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    for (file, snapshot) in [(&full, "tank/home@a"), (&more, "tank/home@b")] {
        let ends = bounds(file);
        let cuts = ends.iter().flat_map(|end| [*end, end - 7]).filter(|cut| *cut < file.len());
        let mut continued = 0;
        for cut in cuts {
            let examined = stream::examine(&mut &file[..cut]).unwrap();
            let stream::Examined::Cut(cut) = examined else { continue };
            continued += 1;
            let rest = here.rest(cut.token(snapshot.parse().unwrap())).unwrap();
            let mut completed = file[..cut.len as usize].to_vec();
            cut.complete(&mut &rest[..], &mut completed).unwrap();
            assert!(completed == **file, "{} bytes instead of {}", completed.len(), file.len());
        }
        assert!(continued > 20, "{continued}");
        assert!(matches!(stream::examine(&mut &file[..]).unwrap(), stream::Examined::Complete));
        // A flipped bit ends the part that is kept.
        let mut damaged = file.clone();
        damaged[file.len() / 2] ^= 1;
        let stream::Examined::Cut(cut) = stream::examine(&mut &damaged[..]).unwrap() else { panic!("it is cut") };
        assert!(cut.len as usize <= file.len() / 2);
        let position = Position { key: Key::new(1, 2, 3), bytes: 0 };
        let other = here.rest(stream::Token { position, ..cut.token(snapshot.parse().unwrap()) });
        assert!(cut.complete(&mut &other.unwrap()[..], &mut Vec::new()).is_err());
    }
}

#[test]
fn a_partial_state_is_passed_on_and_resumed_there() {
    let (here, there) = (many(631), World::new(632));
    continued(&here);
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let more = here.send("tank/home@b", Some("tank/home@a"), |request| request.properties = true).unwrap();
    for (stream, snapshot, parts) in [(&full, "a", 9), (&more, "b", 5)] {
        let mut passed = 0;
        for part in 1..parts {
            refusal(there.receive_resumably("tank/copy", &stream[..stream.len() * part / parts]));
            if there.get("tank/copy", "receive_resume_token") == "-" {
                continue;
            }
            let third = World::new(633);
            if snapshot == "b" {
                third.receive("tank/third", &full, false).unwrap();
            }
            let mut saved = Vec::new();
            there.datasets.send_saved(&name("tank/copy"), &mut saved, 0, &mut |_| {}).unwrap();
            refusal(third.receive("tank/third", &saved, false));
            refusal(third.receive_resumably("tank/third", &saved));
            let (theirs, ours) = (there.token("tank/copy"), third.token("tank/third"));
            assert!(ours.position.key <= theirs.position.key && ours.position != Position::START);
            assert_eq!(Token { position: theirs.position, ..ours }, theirs);
            passed += 1;
            third.judge();
            third.resume(&here, "tank/third");
            let named = |dataset: &str| format!("{dataset}@{snapshot}");
            assert_eq!(third.files(&named("tank/third")), here.files(&named("tank/home")));
            assert_eq!(third.get(&named("tank/third"), "guid"), here.get(&named("tank/home"), "guid"));
            third.judge();
        }
        assert!(passed > 1, "{passed}");
        there.receive_resumably("tank/copy", stream).unwrap();
        let error = there.datasets.send_saved(&name("tank/copy"), &mut Vec::new(), 0, &mut |_| {}).unwrap_err();
        assert!(error.to_string().contains("no partial state"), "{error}");
    }
    there.judge();
}

#[test]
fn a_resumed_backup_sends_received_values() {
    let (source, here, there) = (many(641), World::new(642), World::new(643));
    source.set("tank/home", "atime", "off").unwrap();
    let sent = source.send("tank/home@a", None, |request| request.properties = true).unwrap();
    here.receive("tank/home", &sent, false).unwrap();
    here.set("tank/home", "atime", "on").unwrap();
    here.set("tank/home", "sync", "always").unwrap();
    let backup = here.send("tank/home@a", None, |request| request.backup = true).unwrap();
    for passed_on in [false, true] {
        refusal(there.receive_resumably("tank/copy", &backup[..backup.len() / 2]));
        if passed_on {
            let mut saved = Vec::new();
            there.datasets.send_saved(&name("tank/copy"), &mut saved, 0, &mut |_| {}).unwrap();
            there.datasets.discard_partial(&name("tank/copy")).unwrap();
            refusal(there.receive_resumably("tank/copy", &saved));
        }
        assert!(there.token("tank/copy").backup);
        there.resume(&here, "tank/copy");
        let values = ["atime", "sync", "cenote:backup"].map(|property| there.get("tank/copy", property));
        assert_eq!(values, ["off", "standard", "-"]);
        assert_eq!(there.files("tank/copy"), source.files("tank/home"));
        there.judge();
        there.destroy("tank/copy", true, false).unwrap();
        there.work();
    }
}

#[test]
fn damage_anywhere_keeps_what_came_before() {
    let (here, there) = (many(625), World::new(626));
    let full = here.send("tank/home@a", None, |_| ()).unwrap();
    let mut resumed = 0;
    for at in (0..full.len()).step_by(full.len() / 60) {
        let mut damaged = full.clone();
        damaged[at] ^= 8;
        refusal(there.receive_resumably("tank/copy", &damaged));
        match there.names().contains(&"tank/copy".to_owned()) {
            true => {
                resumed += 1;
                there.resume(&here, "tank/copy");
            }
            // Damage in the first step leaves nothing.
            false => there.receive_resumably("tank/copy", &full).unwrap(),
        }
        assert_eq!(there.files("tank/copy"), here.files("tank/home@a"), "damaged at {at}");
        there.judge();
        there.destroy("tank/copy", true, false).unwrap();
        there.work();
    }
    assert!(resumed > 0, "{resumed}");
}

#[test]
fn an_empty_partial_state_with_a_dataset_below_stays() {
    let (here, there) = (many(640), World::new(641));
    let full = here.send("tank/home@a", None, |_| {}).unwrap();
    // The last record before something is stored.
    let mut ends = bounds(&full).into_iter();
    let mut cut = 0;
    let kept = loop {
        let end = ends.next().unwrap();
        refusal(there.receive_resumably("tank/copy", &full[..end]));
        if there.names().contains(&"tank/copy".to_owned()) {
            break end;
        }
        cut = end;
    };
    assert!(0 < cut && cut < kept);
    there.datasets.discard_partial(&name("tank/copy")).unwrap();
    let request = ReceiveRequest { resumable: true, ..request("tank/copy") };
    let mut below = |_| drop(there.create("tank/copy/below"));
    let (arrived, received) = there.datasets.receive(request, &mut &full[..cut], 0, &mut below);
    refusal(received);
    assert_eq!(arrived.partial, Some(name("tank/copy")));
    assert!(there.names().contains(&"tank/copy/below".to_owned()));
    there.judge();
    there.resume(&here, "tank/copy");
    assert_eq!(there.files("tank/copy"), here.files("tank/home@a"));
    there.judge();
}
