//! Mounts whose writes the kernel gathers (`writeback=on`): whatever asks the file system gets all that programs have
//! written, whether the kernel has passed it on or not.

use std::fs::{self, File};
use std::io::Write;

use crate::lab::Lab;
use crate::mounted;

const PIECES: usize = 200;

fn gathering(lab: &Lab, name: &str) -> File {
    lab.fs(&["create", "-o", "writeback=on", name]);
    written(lab, name)
}

/// A file of small writes that nobody has asked to be stored, still open.
fn written(lab: &Lab, name: &str) -> File {
    let mut file = File::create(lab.mount(name).join("file")).unwrap();
    (0..PIECES).for_each(|_| file.write_all(b"some text\n").unwrap());
    file
}

fn whole() -> Vec<u8> {
    b"some text\n".repeat(PIECES)
}

/// How many writes the kernel has passed on.
fn writes(lab: &Lab, name: &str) -> u64 {
    let listed: serde_json::Value = serde_json::from_str(&lab.fs(&["mount", "-j"])).unwrap();
    listed["datasets"][name]["requests"]["write"].as_u64().unwrap_or(0)
}

#[test]
fn small_writes_are_passed_on_together_or_one_by_one() {
    let Some(lab) = mounted(&["tank"]) else { return };
    gathering(&lab, "tank/on").sync_all().unwrap();
    assert_eq!(writes(&lab, "tank/on"), 1);
    lab.fs(&["create", "tank/off"]);
    written(&lab, "tank/off").sync_all().unwrap();
    assert_eq!(writes(&lab, "tank/off"), PIECES as u64);
    // What must be durable when it returns is not gathered.
    lab.fs(&["create", "-o", "writeback=on", "-o", "sync=always", "tank/always"]);
    drop(written(&lab, "tank/always"));
    assert_eq!(writes(&lab, "tank/always"), PIECES as u64);
}

#[test]
fn whatever_asks_the_file_system_gets_what_was_written() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let _open = gathering(&lab, "tank/on");
    lab.fs(&["snapshot", "-r", "tank@a"]);
    assert!(fs::read(lab.mount("tank/on").join(".zfs/snapshot/a/file")).unwrap() == whole());
    let _open = [written(&lab, "tank/on"), gathering(&lab, "tank/other")];
    lab.fs(&["snapshot", "tank/on@b"]);
    assert!(fs::read(lab.mount("tank/on").join(".zfs/snapshot/b/file")).unwrap() == whole());
    assert!(lab.fs(&["cat", "tank/other:/file"]).into_bytes() == whole());
    let _open = written(&lab, "tank/other");
    lab.fs(&["cp", "tank/other:/file", "tank:/copy"]);
    assert!(fs::read(lab.mount("tank").join("copy")).unwrap() == whole());
    let _open = written(&lab, "tank/other");
    lab.pool(&["sync", "tank"]);
    assert!(writes(&lab, "tank/other") >= 3, "the kernel was not asked");
}

/// The kernel believes nobody but itself how long a file is that is open: so none may be while it is replaced.
#[test]
fn a_rollback_waits_until_nobody_uses_the_mount() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "-o", "writeback=on", "tank/on"]);
    lab.fs(&["create", "tank/on/below"]);
    let file = lab.mount("tank/on").join("file");
    fs::write(&file, "short").unwrap();
    lab.fs(&["snapshot", "tank/on@a"]);
    let open = written(&lab, "tank/on");
    let said = lab.run("fs", &["rollback", "tank/on@a"]).fails(1);
    assert!(said.contains("in use"), "{said}");
    assert!(fs::read(&file).unwrap() == whole());
    drop(open);
    lab.fs(&["rollback", "tank/on@a"]);
    assert_eq!(fs::read(&file).unwrap(), b"short");
    assert!(lab.fs(&["mount"]).contains("tank/on/below"));
    lab.check("tank");
}

#[test]
fn a_stream_waits_until_nobody_uses_the_mount() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let file = lab.mount("tank").join("file");
    fs::write(&file, "short").unwrap();
    lab.fs(&["snapshot", "tank@a"]);
    fs::write(&file, "no longer as short").unwrap();
    lab.fs(&["snapshot", "tank@b"]);
    let (full, increment) = (lab.fs_bytes(&["send", "tank@a"]), lab.fs_bytes(&["send", "-i", "@a", "tank@b"]));
    lab.feed("fs", &["receive", "-o", "writeback=on", "tank/copy"], &full).ok();
    let open = written(&lab, "tank/copy");
    let said = lab.feed("fs", &["receive", "-F", "tank/copy"], &increment).fails(1);
    assert!(said.contains("in use"), "{said}");
    drop(open);
    assert!(fs::read(lab.mount("tank/copy").join("file")).unwrap() == whole());
    lab.feed("fs", &["receive", "-F", "tank/copy"], &increment).ok();
    assert_eq!(fs::read(lab.mount("tank/copy").join("file")).unwrap(), b"no longer as short");
    lab.check("tank");
}

#[test]
fn a_mount_in_use_gathers_when_it_is_made_again() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let file = written(&lab, "tank");
    let said = lab.run("fs", &["set", "writeback=on", "tank"]).fails(1);
    assert!(said.contains("acts only when the filesystem is mounted again"), "{said}");
    drop(file);
    lab.fs(&["set", "writeback=on", "tank"]);
    written(&lab, "tank").sync_all().unwrap();
    assert_eq!(writes(&lab, "tank"), 1);
    lab.fs(&["set", "sync=always", "tank"]);
    drop(written(&lab, "tank"));
    assert_eq!(writes(&lab, "tank"), PIECES as u64);
}
