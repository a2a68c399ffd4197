//! Limits and progress of sends and receives, and what a replication leaves out.

use std::{
    fs,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::lab::{Lab, Run, noise};

/// A pool `tank` with `bytes` incompressible bytes in `tank/home@a`.
fn with_content(bytes: usize) -> Lab {
    let lab = Lab::mountless();
    lab.pool(&["create", "-m", "none", "tank", "128M:tank.img"]);
    lab.fs(&["create", "tank/home"]);
    fs::write(lab.path("content"), noise(bytes, 5)).unwrap();
    lab.fs(&["cp", "content", "tank/home:/content"]);
    lab.fs(&["snapshot", "tank/home@a"]);
    lab
}

/// The objects of `--progress json`.
fn objects(run: &Run) -> Vec<Value> {
    run.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_limit_holds_at_both_ends_and_the_progress_is_printed() {
    const RATE: u64 = 2 << 20;
    let lab = with_content(5 << 20);
    let begun = Instant::now();
    let sent = lab.run("fs", &["send", "--limit", "2M", "--progress", "json", "tank/home@a"]);
    let took = begun.elapsed().as_secs_f64();
    let length = sent.stdout.len() as u64;
    let due = length as f64 / RATE as f64;
    assert!(took > due * 0.9, "{length} bytes took {took} seconds");
    let printed = objects(&sent);
    assert!(printed.len() >= 2, "one a second, and one at the end: {printed:?}");
    assert!(printed.iter().all(|object| object["operation"] == "sending" && object["snapshot"] == "tank/home@a"));
    let [first, .., last] = &printed[..] else { unreachable!() };
    let number = |object: &Value, member: &str| object[member].as_u64().unwrap();
    assert!((1..RATE * 2).contains(&number(first, "bytes")), "{first}");
    assert!((RATE / 2..RATE * 11 / 10).contains(&number(first, "rate")), "{first}");
    assert!((1..4).contains(&number(first, "remaining_seconds")), "{first}");
    assert_eq!([number(last, "bytes"), number(last, "total"), number(last, "remaining_seconds")], [length, length, 0]);
    let begun = Instant::now();
    let received = lab.feed("fs", &["receive", "--limit", "2M", "--progress", "json", "tank/copy"], &sent.stdout);
    assert!(begun.elapsed().as_secs_f64() > due * 0.9);
    let printed = objects(&received);
    let [first, .., last] = &printed[..] else { panic!("one a second, and one at the end: {printed:?}") };
    // A pipe has no length: the sender's estimate is in the stream.
    assert!(number(first, "total").abs_diff(length) < length / 20 && number(first, "remaining_seconds") > 0, "{first}");
    assert_eq!((&last["snapshot"], number(last, "bytes") <= length), (&Value::from("tank/copy@a"), true), "{last}");
    assert_eq!(lab.fs_bytes(&["cat", "tank/copy:/content"]), lab.fs_bytes(&["cat", "tank/home:/content"]));
}

#[test]
fn lines_of_a_slow_transfer_have_rate_and_remaining_time() {
    let lab = with_content(3 << 20);
    let sent = lab.run("fs", &["send", "-v", "-V", "--limit", "1M", "tank/home@a"]);
    let line = sent.stderr.lines().find(|line| line.starts_with("sending tank/home@a: ")).unwrap().to_owned();
    assert!(
        line.contains(" of 3.0") && line.contains("%, ") && line.contains("/s, ") && line.ends_with(" left"),
        "{line}"
    );
    let refused = lab.run("fs", &["send", "--limit", "fast", "tank/home@a"]).fails(2);
    assert!(refused.contains("bad rate"), "{refused}");
    let begun = Instant::now();
    lab.run("fs", &["send", "--limit", "none", "tank/home@a"]);
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_damaged_stream_file_is_listed_and_each_damage_named() {
    let lab = with_content(2 << 20);
    fs::create_dir(lab.path("many")).unwrap();
    for number in 0..3000 {
        fs::write(lab.path(&format!("many/{number}")), noise(600, number)).unwrap();
    }
    lab.fs(&["cp", "-r", "many", "tank/home:/"]);
    lab.fs(&["snapshot", "tank/home@b"]);
    let mut stream = lab.fs_bytes(&["send", "tank/home@b"]);
    fs::write(lab.path("good"), &stream).unwrap();
    let listed = lab.fs(&["stream", "ls", "-R", "good"]);
    assert!(listed.lines().count() > 3000);
    // The middle of a range in the middle, and of two blocks of the large file.
    let records = lab.fs(&["stream", "dump", "good"]);
    let at = |kind: &str| -> Vec<usize> {
        let lines = records.lines().filter(|line| line.split_whitespace().nth(1) == Some(kind));
        lines.map(|line| line.split_whitespace().next().unwrap().parse().unwrap()).collect()
    };
    let (ranges, blocks) = (at("RANGE"), stream.windows(9).position(|part| part == &noise(9, 5)[..]).unwrap());
    let range = ranges[ranges.len() / 2];
    for place in [range + 100, blocks + 10, blocks + 300_000] {
        stream[place] ^= 1;
    }
    fs::write(lab.path("bad"), &stream).unwrap();
    let run = lab.run("fs", &["stream", "ls", "-R", "bad"]);
    let found = String::from_utf8(run.stdout.clone()).unwrap();
    let names: std::collections::BTreeSet<&str> = listed.lines().collect();
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(found.lines().count() > 1000 && found.lines().all(|line| names.contains(line)), "{found}");
    assert!(found.lines().count() < names.len());
    assert!(run.stderr.contains(&format!("damaged at byte {range}")), "{}", run.stderr);
    assert!(run.stderr.lines().count() < 30, "{}", run.stderr);
    let said = lab.run("fs", &["stream", "verify", "bad"]).fails(1);
    assert!(said.matches("damaged at byte").count() >= 3 && said.contains(&format!("byte {range}")), "{said}");
    assert_eq!(said.matches("file '/content'").count(), 2, "{said}");
}

#[test]
fn an_input_with_known_snapshots_goes_on_with_the_others() {
    let lab = with_content(1000);
    lab.fs(&["snapshot", "tank/home@b"]);
    let first = lab.fs_bytes(&["send", "tank/home@a"]);
    let second = lab.fs_bytes(&["send", "-i", "@a", "tank/home@b"]);
    lab.feed("fs", &["receive", "tank/copy"], &first).ok();
    let both = [first, second].concat();
    let planned = lab.feed("fs", &["receive", "-n", "-v", "tank/copy"], &both).ok();
    let skipped = "skip the stream of tank/copy@a, which exists already\n";
    assert!(planned.starts_with(&format!("would {skipped}would receive incremental")), "{planned}");
    let received = lab.feed("fs", &["receive", "-v", "tank/copy"], &both).ok();
    assert!(received.contains("skipped the stream of tank/copy@a, which exists already\nreceiving"), "{received}");
    assert_eq!(lab.feed("fs", &["receive", "tank/copy"], &both).ok(), "");
    let list = lab.fs(&["list", "-H", "-t", "snapshot", "-o", "name", "tank/copy"]);
    assert_eq!(list, "tank/copy@a\ntank/copy@b\n");
}

#[test]
fn a_replication_leaves_out_and_a_receiver_keeps() {
    let lab = with_content(1000);
    for name in ["tank/home/cache", "tank/home/cache/deep", "tank/home/mail"] {
        lab.fs(&["create", name]);
    }
    lab.fs(&["snapshot", "-r", "tank/home@b"]);
    lab.fs(&["snapshot", "-r", "tank/home@c"]);
    let names = |line: &[&str]| {
        let listed = lab.fs(&[&["send", "-n", "-P"], line].concat());
        listed.lines().filter_map(|line| Some(line.split('\t').rev().nth(1)?.to_owned())).collect::<Vec<_>>()
    };
    let all = names(&["-R", "tank/home@b"]);
    assert!(all.contains(&"tank/home/cache/deep@b".to_owned()), "{all:?}");
    let some = names(&["-R", "-X", "tank/home/cache,tank/home/none", "tank/home@b"]);
    assert!(
        some.contains(&"tank/home/mail@b".to_owned()) && !some.iter().any(|name| name.contains("cache")),
        "{some:?}"
    );
    lab.run("fs", &["send", "-X", "tank/home/cache", "tank/home@b"]).fails(2);
    let refused = lab.run("fs", &["send", "-R", "-X", "tank/home", "tank/home@b"]).fails(1);
    assert!(refused.contains("is also left out"), "{refused}");
    lab.run("fs", &["send", "-R", "-X", "tank", "tank/home@b"]).fails(1);
    // An increment destroys at the receiver what the sender lacks, and not what the sender leaves out.
    let whole = lab.fs_bytes(&["send", "-R", "tank/home@b"]);
    lab.feed("fs", &["receive", "tank/copy"], &whole).ok();
    let without = ["send", "-R", "-i", "@b", "-X", "tank/home/cache", "tank/home@c"];
    lab.feed("fs", &["receive", "-F", "tank/copy"], &lab.fs_bytes(&without)).ok();
    let there = lab.fs(&["list", "-H", "-r", "-o", "name", "-t", "filesystem,snapshot", "tank/copy"]);
    assert!(there.contains("tank/copy/cache/deep@b\n") && !there.contains("tank/copy/cache@c"), "{there}");
    assert!(there.contains("tank/copy/mail@c\n"), "{there}");
}

#[test]
fn holds_travel_if_sender_and_receiver_want_them() {
    let lab = with_content(1000);
    lab.fs(&["create", "tank/home/mail"]);
    lab.fs(&["snapshot", "-r", "tank/home@b"]);
    lab.fs(&["hold", "keep", "tank/home@a"]);
    lab.fs(&["hold", "-r", "both of us", "tank/home@b"]);
    let holds = |send: &[&str], receive: &[&str], to: &str| {
        let stream = lab.fs_bytes(&[&["send"], send].concat());
        fs::write(lab.path("stream"), &stream).unwrap();
        lab.feed("fs", &[&["receive"], receive, &[to]].concat(), &stream).ok();
        let names = lab.fs(&["list", "-H", "-r", "-o", "name", "-t", "snapshot", to]);
        let all = lab.fs(&[&["holds", "-H"], &names.lines().collect::<Vec<_>>()[..]].concat());
        let line = |line: &str| line.split('\t').take(2).collect::<Vec<_>>().join(" ");
        all.lines().map(line).collect::<Vec<_>>()
    };
    let all = |to: &str| [format!("{to}@a keep"), format!("{to}@b both of us"), format!("{to}/mail@b both of us")];
    assert_eq!(holds(&["-R", "-h", "tank/home@b"], &[], "tank/one"), all("tank/one"));
    let info = lab.fs(&["stream", "info", "-v", &lab.at("stream")]);
    assert!(info.contains("  hold         both of us\n"), "{info}");
    assert_eq!(holds(&["-R", "-h", "tank/home@b"], &["-h"], "tank/two"), [""; 0]);
    assert_eq!(holds(&["-R", "tank/home@b"], &[], "tank/three"), [""; 0]);
    assert_eq!(holds(&["-h", "tank/home@a"], &[], "tank/four"), ["tank/four@a keep"]);
    assert_eq!(holds(&["-R", "-h", "--format", "zfs", "tank/home@b"], &[], "tank/five"), all("tank/five"));
    // A snapshot that is held stays, and what only the holds brought is no property.
    lab.run("fs", &["destroy", "tank/four@a"]).fails(1);
    assert_eq!(lab.fs(&["get", "-H", "-s", "received", "-o", "property", "all", "tank/four"]), "");
}

#[test]
fn a_backup_sends_what_was_received_and_not_what_was_set_there() {
    let lab = with_content(1000);
    lab.fs(&["set", "atime=off", "tank/home"]);
    lab.fs(&["set", "our:note=first", "tank/home"]);
    let stream = lab.fs_bytes(&["send", "-p", "tank/home@a"]);
    lab.feed("fs", &["receive", "tank/copy"], &stream).ok();
    lab.fs(&["set", "our:note=changed", "tank/copy"]);
    lab.fs(&["set", "readonly=on", "tank/copy"]);
    let values = |option: &str, to: &str| {
        let stream = lab.fs_bytes(&["send", option, "tank/copy@a"]);
        lab.feed("fs", &["receive", to], &stream).ok();
        lab.fs(&["get", "-H", "-o", "value", "atime,our:note,readonly", to])
    };
    assert_eq!(values("-b", "tank/restored"), "off\nfirst\noff\n");
    assert_eq!(values("-p", "tank/again"), "off\nchanged\non\n");
}
