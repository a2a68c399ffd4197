//! Commands that are reading files when the dataset is rolled back.

use std::fs;
use std::io::{self, Read, Seek};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Stdio;

use crate::lab::{Stopped, noise, wait_until};
use crate::mounted;

#[test]
fn cat_of_a_file_that_is_replaced_fails() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let (place, old) = (lab.mount("tank"), noise(8 << 20, 1));
    lab.fs(&["snapshot", "tank@0"]);
    fs::write(place.join("old"), &old).unwrap();
    let number = fs::metadata(place.join("old")).unwrap().ino();
    // Without a reader the command waits for room in the pipe.
    let mut command = lab.command("fs", &["cat", "tank:/old"]);
    let mut cat = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut output, mut first) = (cat.stdout.take().unwrap(), [0; 1]);
    output.read_exact(&mut first).unwrap();
    lab.fs(&["rollback", "tank@0"]);
    fs::write(place.join("secret"), vec![0; 8 << 20]).unwrap();
    assert_eq!(fs::metadata(place.join("secret")).unwrap().ino(), number, "the number is used again");
    let mut read = first.to_vec();
    output.read_to_end(&mut read).unwrap();
    let ended = cat.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("tank:/old") && said.contains("rolled back"), "{said}");
    assert!(read.len() < old.len() && old.starts_with(&read), "{} bytes", read.len());
}

#[test]
fn a_copy_into_what_is_rolled_back_touches_nothing_new() {
    let Some(lab) = mounted(&["tank", "slow"]) else { return };
    let place = lab.mount("tank");
    lab.fs(&["snapshot", "tank@0"]);
    // A folder whose second entry blocks every lookup: the pool mounted there is stopped.
    let from = lab.path("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), b"first").unwrap();
    fs::write(from.join("c"), b"last").unwrap();
    fs::create_dir(from.join("b")).unwrap();
    lab.fs(&["set", &format!("mountpoint={}", from.join("b").display()), "slow"]);
    fs::write(from.join("b/file"), b"slow").unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o2711)).unwrap();
    chown(&from, Some(7), Some(8)).unwrap();
    let stopped = Stopped::new(lab.service("slow").unwrap());
    let mut command = lab.command("fs", &["cp", "-r", &lab.at("from"), "tank:/"]);
    let copying = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the first file is copied", || fs::metadata(place.join("from/a")).is_ok_and(|file| file.len() == 5));
    let numbers: Vec<u64> = ["from", "from/a"].iter().map(|n| fs::metadata(place.join(n)).unwrap().ino()).collect();
    lab.fs(&["rollback", "tank@0"]);
    fs::create_dir(place.join("mine")).unwrap();
    fs::set_permissions(place.join("mine"), fs::Permissions::from_mode(0o700)).unwrap();
    let mine = fs::metadata(place.join("mine")).unwrap();
    assert_eq!(mine.ino(), numbers[0], "the number is used again");
    drop(stopped);
    let ended = copying.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("tank:/") && said.contains("rolled back"), "{said}");
    assert_eq!(fs::read_dir(place.join("mine")).unwrap().count(), 0, "nothing was put into another directory");
    let now = fs::metadata(place.join("mine")).unwrap();
    assert_eq!((now.mode(), now.uid(), now.gid()), (mine.mode(), mine.uid(), mine.gid()));
    assert!(!place.join("from").exists());
}

#[test]
fn a_listing_ends_when_its_reader_has_gone() {
    let Some(lab) = mounted(&["tank"]) else { return };
    for number in 0..5000 {
        fs::write(lab.mount("tank").join(format!("{number:0250}")), b"").unwrap();
    }
    let mut command = lab.command("fs", &["ls", "tank:/"]);
    let mut listing = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut output = listing.stdout.take().unwrap();
    output.read_exact(&mut [0; 251]).unwrap();
    drop(output);
    listing.wait().unwrap();
    // The service has stopped working for the closed connection.
    assert_eq!(lab.fs(&["ls", "tank:/"]).lines().count(), 5000);
}

/// A tree with paths of `levels` long names, and `files` files at its end.
fn deep(lab: &crate::lab::Lab, levels: usize, files: usize) {
    use rustix::fs::{Mode, OFlags, mkdirat, open, openat};
    let name = "d".repeat(250);
    let mut dir = open(lab.mount("tank"), OFlags::PATH, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&dir, name.as_str(), Mode::RWXU).unwrap();
        dir = openat(&dir, name.as_str(), OFlags::PATH, Mode::empty()).unwrap();
    }
    for number in 0..files {
        openat(&dir, format!("f{number}"), OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    }
}

#[test]
fn many_long_paths_are_listed_in_bounded_memory() {
    const LEVELS: usize = 150;
    const FILES: usize = 4000;
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["snapshot", "tank@0"]);
    deep(&lab, LEVELS, FILES);
    let service = lab.service("tank").unwrap();
    for words in [
        &["ls", "-R", "tank:/"][..],
        &["ls", "-lR", "tank:/"],
        &["ls", "-Rj", "tank:/"],
        &["getattr", "-rH", "nodump", "tank:/"],
        &["project", "-r", "tank:/"],
        &["diff", "tank@0"],
    ] {
        // The paths are 150 MB together, many times the allowed memory.
        let before = crate::lab::memory(service, "VmHWM");
        let mut file = tempfile::tempfile().unwrap();
        let status = lab.command("fs", words).stdout(file.try_clone().unwrap()).status().unwrap();
        assert!(status.success(), "{words:?}");
        let grown = crate::lab::memory(service, "VmHWM").saturating_sub(before);
        assert!(grown < 96 << 20, "{words:?}: {} MiB", grown >> 20);
        file.rewind().unwrap();
        let mut tail = [0; 1 << 20];
        let mut lines = 0;
        loop {
            match file.read(&mut tail) {
                Ok(0) => break,
                Ok(count) => lines += tail[..count].iter().filter(|byte| **byte == b'\n').count(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => panic!("{error}"),
            }
        }
        assert!(lines >= FILES + LEVELS, "{words:?}: {lines} lines");
    }
    lab.fs(&["setattr", "-R", "nodump=on", "tank:/"]);
    lab.fs(&["project", "-s", "-p", "7", "-r", "tank:/"]);
    assert_eq!(lab.fs(&["project", "-c", "-r", "tank:/"]), "");
    lab.fs(&["create", "tank/copy"]);
    lab.fs(&["cp", "-r", "tank:/.", "tank/copy:/"]);
    let copied = lab.run("fs", &["getattr", "-rH", "nodump", "tank/copy:/"]);
    assert!(copied.stdout.iter().filter(|byte| **byte == b'\n').count() > FILES + LEVELS);
}
