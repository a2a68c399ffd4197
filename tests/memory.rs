//! A service with little memory: with 100,000 files all held by the kernel, 256 MiB are enough.
//!
//! For a million files see `benches/million.rs`. The test prints the kind of limit on standard error. Without a control
//! group the test is skipped: a limit on each process's data also counts memory reserved and never used.

mod lab;

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use lab::{Lab, can_mount, crowd, limit::Limit, memory, noise};

const FILES: usize = 100_000;
const LIMIT: u64 = 256 << 20;

#[test]
fn a_service_with_many_files_does_with_little_memory() {
    if !can_mount() {
        return;
    }
    let limit = Limit::new(LIMIT);
    if let Limit::Process(_) = limit {
        return say("skipped: no memory control group can be made here");
    }
    say(&format!("{FILES} files in {} MiB by {}", LIMIT >> 20, limit.kind()));
    let mut lab = Lab::new();
    lab.create("tank", "2G");
    lab.fs(&["create", "tank/data"]);
    lab.pool(&["export", "tank"]);
    crowd::fill(&lab.path("tank.img"), "tank/data", FILES);
    lab.through(limit.prefix());

    let folder = lab.path("").display().to_string();
    lab.pool(&["import", "-d", &folder, "tank"]);
    let shares = lab.pool(&["get", "-H", "-p", "-o", "value", "cache_size,dirty_limit", "tank"]);
    assert_eq!(shares, format!("{}\n{}\n", 32 << 20, 16 << 20), "the defaults follow the limit");
    let service = lab.service("tank");
    let place = lab.mount("tank/data");
    look(&place);
    lab.fs(&["snapshot", "tank/data@one"]);
    // More than may be dirty, and more than the limit.
    for number in 0..5 {
        fs::write(place.join(format!("large-{number}")), noise(40_000_000, number)).unwrap();
    }
    remove(&place);
    lab.fs(&["snapshot", "tank/data@two"]);
    let stream = lab.path("stream");
    let sent = lab.command("fs", &["send", "tank/data@two"]).stdout(File::create(&stream).unwrap()).status().unwrap();
    assert!(sent.success());
    let increment = ["send", "-i", "one", "tank/data@two"];
    assert!(lab.command("fs", &increment).stdout(Stdio::null()).status().unwrap().success());
    let mut receive = lab.command("fs", &["receive", "tank/copy"]);
    assert!(receive.stdin(File::open(&stream).unwrap()).status().unwrap().success());
    lab.fs(&["rollback", "-r", "tank/data@one"]);
    look(&place);

    assert_eq!(lab.service("tank"), service, "the service was never ended");
    let peak = memory(service.unwrap(), "VmHWM");
    say(&format!("the service had at most {} MiB", peak >> 20));
    assert!(peak < LIMIT);
    lab.check("tank");
}

/// Prints past the test harness, which hides the output of passing tests.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Reads the attributes of every file.
#[track_caller]
fn look(place: &Path) {
    let output = Command::new("find").arg(place).args(["-type", "f", "-printf", "%s\n"]).output().unwrap();
    assert!(output.status.success());
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), FILES);
}

/// Removes a tenth of the files.
fn remove(place: &Path) {
    for directory in (0..FILES / crowd::PER_DIRECTORY).step_by(10) {
        fs::remove_dir_all(place.join(format!("directory-{directory}"))).unwrap();
    }
}
