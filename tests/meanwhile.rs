//! Commands whose output is not read for a while, and what others do meanwhile: the snapshot that is read is destroyed, renamed,
//! promoted or given up, and all that is freed is written over. The content says whose it is. Without checksums nothing
//! else would tell.
//!
//! Each reader beside each command, stopped at any of its reads, stands in `dataset/src/admin/tests/meanwhile`.

mod lab;

use std::{
    fs,
    io::Read,
    process::{Child, Stdio},
};

use lab::{Lab, can_mount, wait_until};

/// More than pipes and buffers hold, and less than half of the pool.
const BIG: usize = 48 << 20;
/// What was written before, and what others write after it.
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

    /// Reads all that is left: the whole output, and whether the command has succeeded.
    fn finish(mut self) -> (Vec<u8>, Option<i32>) {
        let mut all = self.first;
        self.child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
        (all, self.child.wait().unwrap().code())
    }
}

/// Has what was freed be used by others, as far as there is room.
fn reuse(lab: &Lab) {
    (0..6).for_each(|_| drop(lab.pool(&["sync", "tank"])));
    lab.fs(&["create", "-o", "compression=off", "tank/foreign"]);
    // It fills the pool.
    let _ = fs::write(lab.mount("tank/foreign").join("other"), vec![FOREIGN; 150 << 20]);
    lab.pool(&["sync", "tank"]);
}

fn foreign_runs(bytes: &[u8]) -> usize {
    bytes.chunks(64).filter(|chunk| chunk.iter().all(|byte| *byte == FOREIGN)).count()
}

/// The errors that are counted at the pool's device.
fn errors(lab: &Lab) -> Vec<String> {
    let status = lab.pool(&["status", "tank"]);
    let line = status.lines().find(|line| line.contains("tank.img")).unwrap_or_else(|| panic!("{status}"));
    line.split_whitespace().skip(2).take(3).map(str::to_owned).collect()
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
        assert_eq!(errors(&lab), ["0", "0", "0"], "checksum={checksum}");
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
    // What it is called does not matter.
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
    assert_eq!(errors(&lab), ["0", "0", "0"]);
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
    // By force a pool is exported, whatever is sent.
    lab.fs(&["snapshot", "tank/a@2"]);
    let send = Slow::start(&lab, &["send", "tank/a@2"]);
    lab.pool(&["export", "-f", "tank"]);
    assert_ne!(send.finish().1, Some(0), "the stream is cut off");
}
