//! One place for one dataset; foreign mounts on top are left alone.

use std::{
    fs,
    os::unix::fs::{chown, lchown, symlink},
    path::PathBuf,
    process::Command,
};

use crate::{lab::Lab, mounted, mounts_on};

const OURS: &str = "fuse.cenote";

/// A foreign mount over a directory until it is dropped; `None` if this user may not mount.
struct Foreign(PathBuf);

impl Foreign {
    fn over(path: PathBuf) -> Option<Foreign> {
        let status = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&path).output().ok()?.status;
        status.success().then(|| Foreign(path))
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // The test may have unmounted it already.
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

#[test]
fn a_dataset_is_not_mounted_over_another() {
    let Some(lab) = mounted(&["tank", "pond"]) else { return };
    let same = lab.path("same");
    let place = format!("mountpoint={}", same.display());
    lab.fs(&["create", "-o", &place, "tank/a"]);
    for other in ["tank/b", "pond/b"] {
        let said = lab.run("fs", &["create", "-o", &place, other]).fails(1);
        assert!(said.contains("is where 'tank/a' is mounted"), "{said}");
        let said = lab.run("fs", &["mount", "-O", other]).fails(1);
        assert!(said.contains("is where 'tank/a' is mounted"), "{said}");
    }
    lab.fs(&["create", "tank/c"]);
    let said = lab.run("fs", &["set", &place, "tank/c"]).fails(1);
    assert!(said.contains("is where 'tank/a' is mounted"), "{said}");
    assert_eq!(mounts_on(&same), [OURS]);
    // Through a symbolic link, too.
    std::os::unix::fs::symlink(&same, lab.path("link")).unwrap();
    let said = lab.run("fs", &["set", &format!("mountpoint={}", lab.at("link")), "tank/c"]).fails(1);
    assert!(said.contains("is where 'tank/a' is mounted"), "{said}");
    lab.fs(&["unmount", "tank/a"]);
    assert!(mounts_on(&same).is_empty());
    lab.fs(&["mount", "pond/b"]);
    lab.pool(&["export", "pond"]);
    lab.pool(&["export", "tank"]);
    assert!(mounts_on(&same).is_empty());
}

#[test]
fn a_foreign_mount_over_a_dataset_stays_and_is_named() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let top = lab.mount("tank");
    for (covered, data_set) in [(top.clone(), "tank"), (top.join("a"), "tank/a")] {
        lab.fs(&["create", "-p", "tank/a"]);
        let Some(foreign) = Foreign::over(covered.clone()) else { return };
        for words in [&["unmount", data_set][..], &["unmount", "-f", data_set], &["destroy", "tank/a"]] {
            let said = lab.run("fs", words).fails(1);
            assert!(said.contains("none (tmpfs) is mounted over it"), "{said}");
        }
        lab.run("pool", &["export", "-f", "tank"]).fails(1);
        assert_eq!(mounts_on(&covered), [OURS, "tmpfs"]);
        drop(foreign);
        fs::write(covered.join("file"), "still served").unwrap();
        lab.fs(&["destroy", "tank/a"]);
    }
    lab.pool(&["export", "tank"]);
    assert!(mounts_on(&top).is_empty());
}

/// The owner of a dataset could make root mount the dataset below over any directory of the machine.
#[test]
fn a_link_that_another_user_planted_is_not_mounted_on() {
    let Some(lab) = mounted(&["tank"]).filter(|_| rustix::process::geteuid().is_root()) else { return };
    lab.fs(&["create", "-o", "canmount=noauto", "tank/a"]);
    lab.fs(&["create", "-o", "canmount=noauto", "tank/a/b"]);
    let (home, victim) = (lab.mount("tank"), lab.path("victim"));
    fs::create_dir(&victim).unwrap();
    chown(&home, Some(65534), Some(65534)).unwrap();
    symlink(&victim, home.join("a")).unwrap();
    lchown(home.join("a"), Some(65534), Some(65534)).unwrap();
    for name in ["tank/a", "tank/a/b"] {
        let said = lab.run("fs", &["mount", name]).fails(1);
        assert!(said.contains("is a symbolic link possibly created by another user"), "{said}");
        assert!(said.contains("fs set mountpoint=PATH"), "{said}");
    }
    assert!(mounts_on(&victim).is_empty() && mounts_on(&victim.join("b")).is_empty());
    fs::remove_file(home.join("a")).unwrap();
    lab.fs(&["mount", "tank/a"]);
    assert_eq!(mounts_on(&home.join("a")), [OURS]);
}

#[test]
fn a_directory_that_holds_something_is_hidden_only_on_request() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "-o", "canmount=noauto", "-o", "overlay=off", "tank/a"]);
    let folder = lab.mount("tank/a");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("below"), "").unwrap();
    let said = lab.run("fs", &["mount", "tank/a"]).fails(1);
    assert!(said.contains("directory is not empty") && said.contains("fs mount -O"), "{said}");
    lab.fs(&["mount", "-O", "tank/a"]);
    assert_eq!(mounts_on(&folder), [OURS]);
    assert!(!folder.join("below").exists());
    lab.fs(&["unmount", "tank/a"]);
    assert!(folder.join("below").exists());
    lab.fs(&["inherit", "overlay", "tank/a"]);
    lab.fs(&["mount", "tank/a"]);
    assert!(!folder.join("below").exists());
}

/// Sends `pond/x/y@1`, with contents, into a new `tank`.
fn arriving(lab: &Lab, words: &[&str]) {
    lab.fs(&["create", "-p", "pond/x/y"]);
    fs::write(lab.mount("pond/x/y").join("file"), "text").unwrap();
    lab.fs(&["snapshot", "pond/x/y@1"]);
    let stream = lab.fs_bytes(&["send", "pond/x/y@1"]);
    let words: Vec<&str> = std::iter::once("receive").chain(words.iter().copied()).collect();
    lab.feed("fs", &words, &stream).ok();
}

#[test]
fn received_snapshots_are_listed_if_their_mount_fails() {
    let Some(lab) = mounted(&["tank", "pond"]) else { return };
    lab.fs(&["snapshot", "pond@1"]);
    let stream = lab.fs_bytes(&["send", "pond@1"]);
    let folder = lab.mount("tank").join("copy");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("below"), "").unwrap();
    lab.fs(&["set", "overlay=off", "tank"]);
    let run = lab.feed("fs", &["receive", "-v", "tank/copy"], &stream);
    assert!(run.text().contains("receiving full stream of pond@1 into tank/copy@1\n"), "{run:?}");
    let said = run.fails(1);
    assert!(said.contains("cannot mount 'tank/copy': ") && said.contains("directory is not empty"), "{said}");
    assert_eq!(lab.fs(&["list", "-H", "-o", "name", "tank/copy@1"]), "tank/copy@1\n");
}

#[test]
fn what_is_created_above_an_arrival_is_mounted_with_it() {
    let Some(lab) = mounted(&["tank", "pond"]) else { return };
    arriving(&lab, &["-d", "tank"]);
    for name in ["tank/x", "tank/x/y"] {
        assert_eq!(mounts_on(&lab.mount(name)), [OURS], "{name}");
    }
    assert_eq!(fs::read_to_string(lab.mount("tank/x/y/file")).unwrap(), "text");
    lab.fs(&["snapshot", "tank/x@a"]);
    lab.fs(&["clone", "-p", "tank/x@a", "tank/p/q/clone"]);
    lab.fs(&["rename", "-p", "tank/p/q/clone", "tank/r/s/clone"]);
    for name in ["tank/p", "tank/p/q", "tank/r", "tank/r/s", "tank/r/s/clone"] {
        assert_eq!(mounts_on(&lab.mount(name)), [OURS], "{name}");
    }
    lab.check("tank");
    lab.fs(&["mount", "-a"]);
    assert_eq!(fs::read_to_string(lab.mount("tank/x/y/file")).unwrap(), "text");
}

#[test]
fn a_dataset_below_canmount_noauto_is_mounted_at_every_import() {
    let Some(lab) = mounted(&["tank", "pond"]) else { return };
    lab.fs(&["create", "-o", "canmount=noauto", "tank/quiet"]);
    arriving(&lab, &["-d", "tank/quiet"]);
    for _ in 0..2 {
        assert!(mounts_on(&lab.mount("tank/quiet")).is_empty());
        assert_eq!(mounts_on(&lab.mount("tank/quiet/x")), [OURS]);
        assert_eq!(fs::read_to_string(lab.mount("tank/quiet/x/y/file")).unwrap(), "text");
        lab.check("tank");
    }
}

#[test]
fn of_many_concurrent_mounts_of_a_dataset_one_succeeds() {
    let Some(lab) = mounted(&["tank"]) else { return };
    lab.fs(&["create", "tank/a"]);
    for _ in 0..5 {
        lab.fs(&["unmount", "tank/a"]);
        let start = |_| lab.command("fs", &["mount", "tank/a"]).stderr(std::process::Stdio::null()).spawn().unwrap();
        let started: Vec<_> = (0..6).map(start).collect();
        let succeeded = started.into_iter().filter_map(|mut child| child.wait().ok().filter(|status| status.success()));
        assert_eq!(succeeded.count(), 1);
        assert_eq!(mounts_on(&lab.mount("tank/a")).len(), 1);
    }
}
