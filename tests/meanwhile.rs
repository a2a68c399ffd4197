//! Commands whose output is not read for a while, and concurrent changes: the snapshot being read is destroyed,
//! renamed, promoted, released or replaced, and all freed space is overwritten. The content tells its owner: without
//! checksums nothing else would. No device may be blamed, which the lab checks.
//!
//! All combinations of a reader or writer with a command, stopped anywhere, are in `dataset/src/admin/tests/meanwhile`.

mod lab;

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::Path,
    process::{Child, Stdio},
};

use lab::{Lab, Stopped, can_mount, wait_until};

/// More than pipes and buffers hold, and less than half of the pool.
const BIG: usize = 48 << 20;
/// The bytes of the snapshot, and the bytes written over freed space.
const OWN: u8 = b'o';
const FOREIGN: u8 = b'S';

/// A pool in which `tank/a@1` has a large file, with or without checksums.
fn lab(checksum: &str) -> Lab {
    let lab = Lab::new();
    lab.create("tank", "160M");
    lab.fs(&["create", "-o", "compression=off", "-o", &format!("checksum={checksum}"), "tank/a"]);
    fs::write(lab.mount("tank/a").join("x"), "x").unwrap();
    lab.fs(&["snapshot", "tank/a@0"]);
    fs::write(lab.mount("tank/a").join("big"), vec![OWN; BIG]).unwrap();
    lab.fs(&["snapshot", "tank/a@1"]);
    lab
}

/// A command that has begun to write and waits for a reader.
struct Slow {
    child: Child,
    first: Vec<u8>,
}

impl Slow {
    fn start(lab: &Lab, words: &[&str]) -> Slow {
        let mut child = lab.command("fs", words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = vec![0; 4096];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        Slow { child, first }
    }

    /// Reads the rest: the whole output, and the command's exit status.
    fn finish(mut self) -> (Vec<u8>, Option<i32>) {
        let mut all = self.first;
        self.child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
        (all, self.child.wait().unwrap().code())
    }
}

/// Overwrites freed space, as far as there is room.
fn reuse(lab: &Lab) {
    (0..6).for_each(|_| drop(lab.pool(&["sync", "tank"])));
    lab.fs(&["create", "-o", "compression=off", "tank/foreign"]);
    // Fails when the pool is full.
    let _ = fs::write(lab.mount("tank/foreign").join("other"), vec![FOREIGN; 150 << 20]);
    lab.pool(&["sync", "tank"]);
}

fn foreign_runs(bytes: &[u8]) -> usize {
    bytes.chunks(64).filter(|chunk| chunk.iter().all(|byte| *byte == FOREIGN)).count()
}

#[test]
fn a_file_of_a_destroyed_snapshot_is_never_anothers() {
    if !can_mount() {
        return;
    }
    for checksum in ["off", "on"] {
        let lab = lab(checksum);
        let cat = Slow::start(&lab, &["cat", "tank/a@1:/big"]);
        lab.fs(&["destroy", "tank/a@1"]);
        fs::remove_file(lab.mount("tank/a").join("big")).unwrap();
        reuse(&lab);
        let (content, code) = cat.finish();
        assert_eq!(content.iter().filter(|byte| **byte != OWN).count(), 0, "checksum={checksum}");
        assert!(code == Some(1) && content.len() < BIG, "it was too late for the rest: {code:?}, {}", content.len());
    }
}

#[test]
fn what_is_sent_is_held_by_what_it_is() {
    if !can_mount() {
        return;
    }
    let lab = lab("off");
    let send = Slow::start(&lab, &["send", "tank/a@1"]);
    let process = format!("process {}", send.child.id());
    for refused in [
        &["destroy", "tank/a@1"][..],
        &["destroy", "-d", "tank/a@1"],
        &["destroy", "-r", "tank/a"],
        &["rollback", "-r", "tank/a@0"],
    ] {
        let said = lab.run("fs", refused).fails(1);
        let names = ["dataset is busy", "'fs send tank/a@1'", &process, " s\n", &format!("kill {}", send.child.id())];
        assert!(names.iter().all(|part| said.contains(part)), "{refused:?}: {said}");
    }
    // Renaming does not matter.
    lab.fs(&["rename", "tank/a", "tank/d"]);
    lab.fs(&["rename", "tank/d@1", "@one"]);
    lab.fs(&["clone", "tank/d@one", "tank/c"]);
    lab.fs(&["promote", "tank/c"]);
    lab.fs(&["destroy", "tank/d"]);
    assert!(lab.run("fs", &["destroy", "-r", "tank/c"]).fails(1).contains("'tank/c@one'"));
    let busy = lab.run("pool", &["export", "tank"]).fails(1);
    assert!(busy.contains(&process) && busy.contains("-f"), "{busy}");

    let waiting = lab.command("fs", &["destroy", "--wait", "-r", "tank/c"]).spawn().unwrap();
    let (stream, code) = send.finish();
    assert_eq!((code, foreign_runs(&stream)), (Some(0), 0));
    assert!(waiting.wait_with_output().unwrap().status.success(), "it goes when it was sent");
    lab.feed("fs", &["receive", "tank/back"], &stream).ok();
    assert!(fs::read(lab.mount("tank/back").join("big")).unwrap() == vec![OWN; BIG]);
}

#[test]
fn a_snapshot_goes_when_its_sender_is_gone() {
    if !can_mount() {
        return;
    }
    let lab = lab("on");
    let mut send = Slow::start(&lab, &["send", "tank/a@1"]);
    lab.run("fs", &["destroy", "tank/a@1"]).fails(1);
    send.child.kill().unwrap();
    send.child.wait().unwrap();
    wait_until("the hold is gone", || lab.run("fs", &["destroy", "tank/a@1"]).code == Some(0));
    // `export -f` succeeds during a send.
    lab.fs(&["snapshot", "tank/a@2"]);
    let send = Slow::start(&lab, &["send", "tank/a@2"]);
    lab.pool(&["export", "-f", "tank"]);
    assert_ne!(send.finish().1, Some(0), "the stream is cut off");
}

/// Some commands, with their results.
type Change = fn(&Lab) -> Vec<lab::Run>;

/// Changes that remove `tank/a@1`, or its dataset.
const CHANGES: [(&str, Change); 5] = [
    ("destroy", |lab| run(lab, &["destroy tank/a@1"])),
    ("rollback", |lab| run(lab, &["rollback -r tank/a@0"])),
    ("rename", |lab| run(lab, &["rename tank/a tank/b", "destroy -r tank/b"])),
    ("promote", |lab| run(lab, &["clone tank/a@1 tank/c", "promote tank/c", "destroy -R tank/c"])),
    ("receive", |lab| vec![lab.feed("fs", &["receive", "-F", "tank/a"], &fs::read(lab.path("stream")).unwrap())]),
];

fn run(lab: &Lab, lines: &[&str]) -> Vec<lab::Run> {
    lines.iter().map(|line| lab.enter(&format!("fs {line}"))).collect()
}

/// Makes a change, and overwrites the freed space. The change succeeds, or is refused because the snapshot is being
/// read.
fn take_away(lab: &Lab, change: Change) {
    for run in change(lab) {
        assert!(run.code == Some(0) || run.stderr.contains("dataset is busy"), "{}: {}", run.line, run.stderr);
    }
    (0..6).for_each(|_| drop(lab.pool(&["sync", "tank"])));
    lab.fs(&["create", "tank/foreign"]);
    // Fails when the pool is full.
    let _ = fs::write(lab.mount("tank/foreign").join("other"), vec![FOREIGN; 60 << 20]);
    lab.pool(&["sync", "tank"]);
}

/// A pool in which `fill` has changed `tank/a@1` since `tank/a@0`, and a stream that replaces the snapshot.
fn lab_of(checksum: &str, fill: impl Fn(&Path)) -> Lab {
    let lab = Lab::new();
    lab.create("tank", "64M");
    lab.fs(&["set", "compression=off", &format!("checksum={checksum}"), "tank"]);
    lab.fs(&["create", "tank/a"]);
    lab.fs(&["snapshot", "tank/a@0"]);
    lab.fs(&["clone", "tank/a@0", "tank/s"]);
    fs::write(lab.mount("tank/s").join("another"), vec![FOREIGN; 1 << 20]).unwrap();
    lab.fs(&["snapshot", "tank/s@s"]);
    let stream = lab.fs_bytes(&["send", "-i", "tank/a@0", "tank/s@s"]);
    fs::write(lab.path("stream"), stream).unwrap();
    lab.fs(&["destroy", "-r", "tank/s"]);
    fill(&lab.mount("tank/a"));
    lab.fs(&["snapshot", "tank/a@1"]);
    lab
}

/// The number of copied files, and their length in bytes. Many, so that the first arrives long before the last is read.
const FILES: usize = 2000;
const LEN: usize = 8 << 10;

/// The target of the copy is another pool, whose service is stopped after the first file.
fn copy_beside(checksum: &str, (name, change): (&str, Change)) {
    let lab = lab_of(checksum, |place| {
        (0..FILES).for_each(|number| fs::write(place.join(number.to_string()), vec![OWN; LEN]).unwrap());
    });
    lab.create("slow", "64M");
    let place = lab.mount("slow").join("copy");
    let mut command = lab.command("fs", &["cp", "-r", "tank/a@1:/.", &place.display().to_string()]);
    let mut copying = command.stderr(Stdio::piped()).spawn().unwrap();
    while !fs::read_dir(&place).is_ok_and(|mut files| files.next().is_some()) {}
    let stopped = Stopped::new(lab.service("slow").unwrap());
    assert!(copying.try_wait().unwrap().is_none(), "{name}: it is under way");
    take_away(&lab, change);
    drop(stopped);
    let ended = copying.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    let copied: Vec<Vec<u8>> =
        fs::read_dir(&place).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
    let foreign = copied.iter().filter(|file| file.iter().any(|byte| *byte != OWN)).count();
    assert_eq!(foreign, 0, "{name}, checksum={checksum}: {said}");
    match ended.status.code() {
        Some(0) => {
            assert!(copied.len() == FILES && copied.iter().all(|file| file.len() == LEN), "{name}: not all of it")
        }
        code => assert!(code == Some(1) && said.contains("destroyed"), "{name}: {code:?}, {said}"),
    }
}

#[test]
fn a_copy_of_a_snapshot_has_nothing_of_what_came_later() {
    if can_mount() {
        CHANGES.into_iter().for_each(|change| copy_beside("off", change));
    }
}

#[test]
fn a_copy_of_a_destroyed_snapshot_blames_no_device() {
    if can_mount() {
        copy_beside("on", CHANGES[0]);
    }
}

/// More lines than pipes and buffers hold.
fn compare_beside(checksum: &str, (name, change): (&str, Change)) {
    let lab = lab_of(checksum, |place| {
        let deep =
            ["d".repeat(250), "e".repeat(250), "f".repeat(250)].iter().fold(place.to_owned(), |at, dir| at.join(dir));
        fs::create_dir_all(&deep).unwrap();
        (0..2500).for_each(|number| fs::write(deep.join(format!("{number:0250}")), "").unwrap());
    });
    let lines =
        |text: &[u8]| -> BTreeSet<String> { String::from_utf8_lossy(text).lines().map(str::to_owned).collect() };
    let expected = lines(&lab.fs_bytes(&["diff", "tank/a@0", "tank/a@1"]));
    let diff = Slow::start(&lab, &["diff", "tank/a@0", "tank/a@1"]);
    take_away(&lab, change);
    let (output, code) = diff.finish();
    let found = lines(&output);
    match code {
        Some(0) => assert!(found == expected, "{name}, checksum={checksum}: {} lines", found.len()),
        code => {
            assert_eq!(code, Some(1), "{name}");
            assert!(found.is_subset(&expected), "{name}, checksum={checksum}: {:?}", found.difference(&expected));
        }
    }
}

#[test]
fn snapshots_are_compared_as_they_were_or_not_at_all() {
    if can_mount() {
        CHANGES.into_iter().for_each(|change| compare_beside("off", change));
    }
}

#[test]
fn a_comparison_with_what_is_destroyed_blames_no_device() {
    if can_mount() {
        compare_beside("on", CHANGES[0]);
    }
}
