//! A pool imported read-only: all reading works, and no byte of its image changes.

use std::fs;

use crate::{
    hash,
    lab::{self, Lab},
};

/// Uses every reading operation.
fn read_everything(lab: &Lab, mounted: bool) {
    assert_eq!(lab.fs(&["ls", "tank/a:/"]), "file\nold\n");
    assert_eq!(lab.fs(&["cat", "tank/a:/file"]), "text");
    assert!(!lab.run("fs", &["send", "tank/a@now"]).ok().is_empty());
    for words in [&["list", "-t", "all"][..], &["get", "all", "tank/a"], &["diff", "tank/a@now", "tank/a"]] {
        lab.fs(words);
    }
    for words in [&["status"][..], &["list", "-v"], &["history"], &["get", "all"], &["sync"]] {
        lab.pool(words);
    }
    for words in [&["set", "atime=off", "tank/a"][..], &["snapshot", "tank/a@b"], &["destroy", "tank/a"]] {
        lab.run("fs", words).fails(1);
    }
    lab.run("pool", &["set", "comment=x", "tank"]).fails(1);
    if mounted {
        lab.fs(&["mount", "-a"]);
        let folder = lab.mount("tank/a");
        assert_eq!(fs::read(folder.join("file")).unwrap(), b"text");
        assert_eq!(fs::read(folder.join(".zfs/snapshot/now/file")).unwrap(), b"text");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        assert!(fs::write(folder.join("new"), "x").is_err());
        assert!(fs::remove_file(folder.join("file")).is_err());
    }
}

/// Imports a pool read-only, reads everything, exports it, and compares the image with the original.
fn reads_and_writes_nothing(lab: &Lab, mounted: bool) {
    let mountpoint = lab.at("mnt/tank");
    lab.pool(&["create", "-O", "atime=on", "-O", "relatime=off", "-m", &mountpoint, "tank", "64M:tank.img"]);
    lab.fs(&["create", "tank/a"]);
    fs::write(lab.path("text"), "text").unwrap();
    lab.fs(&["cp", "text", "tank/a:/file"]);
    lab.fs(&["cp", "text", "tank/a:/old"]);
    lab.fs(&["snapshot", "tank/a@now"]);
    lab.pool(&["export", "tank"]);
    let before = hash(&lab.path("tank.img"));
    lab.pool(&["import", "-d", ".", "-o", "readonly=on", "tank"]);
    read_everything(lab, mounted);
    assert_eq!(hash(&lab.path("tank.img")), before, "while it is imported");
    // The kernel reports the close of files a moment later.
    lab::wait_until("the pool is exported", || lab.run("pool", &["export", "tank"]).code == Some(0));
    assert_eq!(hash(&lab.path("tank.img")), before, "after it was exported");
    lab.pool(&["import", "-d", "."]);
    lab.pool(&["check", "-d", ".", "tank"]);
    assert_eq!(hash(&lab.path("tank.img")), before, "after it was looked for and checked");
}

#[test]
fn a_pool_imported_to_be_read_only_is_not_written_by_commands() {
    reads_and_writes_nothing(&Lab::mountless(), false);
}

#[test]
fn a_service_does_not_write_a_pool_imported_read_only() {
    if lab::can_mount() {
        reads_and_writes_nothing(&Lab::new(), true);
    }
}
