//! File systems with `mountpoint=legacy` and snapshots, mounted by mount(8) through `mount.cenote`.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::lab::{Lab, Run, wait_until};
use crate::{mounted, mounts_on};

/// A pool with a legacy file system of one file, a snapshot of it, and the helper.
fn legacy() -> Option<Lab> {
    let lab = mounted(&["tank"])?;
    lab.fs(&["create", "tank/a"]);
    fs::write(lab.mount("tank/a").join("f"), "old").unwrap();
    lab.fs(&["snapshot", "tank/a@1"]);
    fs::write(lab.mount("tank/a").join("f"), "new").unwrap();
    lab.fs(&["set", "mountpoint=legacy", "tank/a"]);
    symlink(env!("CARGO_BIN_EXE_fs"), lab.path("mount.cenote")).unwrap();
    for place in ["l", "s"] {
        fs::create_dir(lab.path(place)).unwrap();
    }
    Some(lab)
}

/// The helper as mount(8) runs it, with the result.
fn mount(lab: &Lab, source: &str, place: &str, options: &str) -> Run {
    let mut command = lab.command("fs", &[]);
    let place = lab.at(place);
    let words = [source, place.as_str(), "-o", options];
    let mut helper = std::process::Command::new(lab.path("mount.cenote"));
    helper.args(words).current_dir(lab.path("")).stdin(std::process::Stdio::null());
    for (name, value) in command.env("LC_ALL", "C").get_envs() {
        match value {
            Some(value) => helper.env(name, value),
            None => helper.env_remove(name),
        };
    }
    Run::of("mount.cenote", &words, helper.output().unwrap())
}

fn read(place: &Path) -> String {
    fs::read_to_string(place.join("f")).unwrap_or_default()
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<i32> {
    result.unwrap_err().raw_os_error()
}

#[test]
fn a_legacy_file_system_is_mounted_where_mount_says() {
    let Some(lab) = legacy() else { return };
    let said = lab.run("fs", &["mount", "tank/a"]).fails(1);
    assert!(said.contains("mount -t cenote tank/a"), "{said}");
    mount(&lab, "tank/a", "l", "rw").ok();
    assert_eq!(read(&lab.path("l")), "new");
    assert_eq!(lab.fs(&["get", "-Ho", "value", "mounted", "tank/a"]), "yes\n");
    assert!(lab.fs(&["mount"]).contains(&lab.at("l")));
    let said = mount(&lab, "tank/a", "s", "rw").fails(32);
    assert!(said.contains("already mounted at"), "{said}");
    let said = mount(&lab, "tank", "s", "rw").fails(32);
    assert!(said.contains("fs set mountpoint=legacy tank"), "{said}");
    mount(&lab, "tank/a", "l", "fast").fails(1);
    lab.fs(&["unmount", &lab.at("l")]);
    assert!(lab.path("l").is_dir(), "its directory was there before");
    assert_eq!(lab.fs(&["get", "-Ho", "value", "mounted", "tank/a"]), "no\n");
}

#[test]
fn options_of_a_mount_change_while_it_lives() {
    let Some(lab) = legacy() else { return };
    let file = lab.path("l/g");
    mount(&lab, "tank/a", "l", "ro").ok();
    assert_eq!(errno(fs::write(&file, "")), Some(Errno::ROFS.raw_os_error()));
    mount(&lab, "tank/a", "l", "rw,remount").ok();
    fs::write(&file, "").unwrap();
    mount(&lab, "tank/a", "l", "ro,remount").ok();
    assert_eq!(errno(fs::write(&file, "")), Some(Errno::ROFS.raw_os_error()));
    assert_eq!(lab.fs(&["get", "-Ho", "value,source", "readonly", "tank/a"]), "on\ttemporary\n");
    mount(&lab, "tank/a", "s", "ro,remount").fails(32);
}

#[test]
fn a_mounted_snapshot_has_the_live_numbers() {
    let Some(lab) = legacy() else { return };
    mount(&lab, "tank/a", "l", "rw").ok();
    mount(&lab, "tank/a@1", "s", "rw").ok();
    assert_eq!((read(&lab.path("l")), read(&lab.path("s"))), ("new".into(), "old".into()));
    let places: [PathBuf; 3] = ["l/f", "s/f", "l/.zfs/snapshot/1/f"].map(|place| lab.path(place));
    let files = places.map(|place| fs::metadata(place).unwrap());
    assert_eq!(files[0].ino(), files[1].ino());
    assert_ne!(files[0].dev(), files[1].dev());
    assert_eq!(files.iter().map(|file| (file.dev(), file.ino())).collect::<BTreeSet<_>>().len(), 3);
    let read_only = Some(Errno::ROFS.raw_os_error());
    assert_eq!(errno(fs::OpenOptions::new().write(true).open(lab.path("s/f"))), read_only);
    assert_eq!(errno(fs::write(lab.path("s/g"), "")), read_only);
    mount(&lab, "tank/a@1", "s", "rw,remount").fails(32);
    assert!(lab.fs(&["mount"]).contains("tank/a@1"));
    lab.fs(&["unmount", "tank/a@1"]);
    assert!(mounts_on(&lab.path("s")).is_empty());
}

#[test]
fn a_mounted_snapshot_in_use_is_not_destroyed() {
    let Some(lab) = legacy() else { return };
    mount(&lab, "tank/a@1", "s", "rw").ok();
    let open = fs::File::open(lab.path("s/f")).unwrap();
    lab.run("fs", &["destroy", "tank/a@1"]).fails(1);
    assert_eq!(read(&lab.path("s")), "old");
    drop(open);
    lab.fs(&["rename", "tank/a@1", "tank/a@2"]);
    assert_eq!(read(&lab.path("s")), "old", "a new name takes nothing away");
    lab.fs(&["destroy", "tank/a@2"]);
    assert!(mounts_on(&lab.path("s")).is_empty());
}

#[test]
fn mounts_by_hand_come_back_with_the_service() {
    let Some(lab) = legacy() else { return };
    mount(&lab, "tank/a", "l", "ro").ok();
    mount(&lab, "tank/a@1", "s", "rw").ok();
    lab.fs(&["rename", "tank/a", "tank/b"]);
    for signal in ["-9", "-15"] {
        let service = lab.service("tank").unwrap();
        assert!(std::process::Command::new("kill").args([signal, &service.to_string()]).status().unwrap().success());
        wait_until("the service is gone", || lab.service("tank").is_none());
        lab.pool(&["import", "tank"]);
        assert_eq!((read(&lab.path("l")), read(&lab.path("s"))), ("new".into(), "old".into()), "{signal}");
        assert_eq!(lab.fs(&["get", "-Ho", "value", "readonly", "tank/b"]), "on\n");
    }
    lab.pool(&["export", "tank"]);
    lab.pool(&["import", "-d", &lab.at(""), "tank"]);
    assert!(mounts_on(&lab.path("l")).is_empty() && mounts_on(&lab.path("s")).is_empty());
}

#[test]
fn a_mount_by_hand_that_fails_keeps_no_other_away() {
    let Some(lab) = legacy() else { return };
    mount(&lab, "tank/a", "l", "ro").ok();
    mount(&lab, "tank/a@1", "s", "rw").ok();
    let remembered = || fs::read_to_string(lab.path("state/pools/tank.mounts")).unwrap();
    let both = remembered();
    lab.kill("tank");
    assert!(std::process::Command::new("umount").arg("-l").arg(lab.path("l")).status().unwrap().success());
    fs::remove_dir(lab.path("l")).unwrap();
    fs::write(lab.path("l"), "in the way").unwrap();
    let said = lab.run("pool", &["import", "tank"]).fails(1);
    assert!(said.contains("cannot mount 'tank/a'"), "{said}");
    assert_eq!((read(&lab.path("s")), read(&lab.mount("tank"))), ("old".into(), String::new()));
    assert!(fs::read_to_string(lab.path("state/log/tank.log")).unwrap().contains("cannot mount 'tank/a'"));
    assert_eq!(remembered().matches("tank/a").count(), both.matches("tank/a").count());
    // The mount comes back unchanged when the obstacle is gone.
    fs::remove_file(lab.path("l")).unwrap();
    fs::create_dir(lab.path("l")).unwrap();
    lab.kill("tank");
    lab.pool(&["import", "tank"]);
    assert_eq!((read(&lab.path("l")), read(&lab.path("s"))), ("new".into(), "old".into()));
    assert_eq!(lab.fs(&["get", "-Ho", "value", "readonly", "tank/a"]), "on\n");
    assert_eq!(remembered(), both);
    // A mount that cannot be made again is forgotten by unmounting.
    lab.kill("tank");
    assert!(std::process::Command::new("umount").arg("-l").arg(lab.path("l")).status().unwrap().success());
    fs::remove_dir(lab.path("l")).unwrap();
    fs::write(lab.path("l"), "in the way").unwrap();
    lab.run("pool", &["import", "tank"]).fails(1);
    lab.fs(&["unmount", "tank/a"]);
    lab.run("fs", &["unmount", "tank/a"]).fails(1);
    lab.fs(&["mount", "-a"]);
    assert!(!remembered().contains("\"tank/a\""), "{}", remembered());
}

/// After a crash, mount(8) itself is the first to need the service.
#[test]
fn a_mount_by_hand_after_a_crash_brings_back_the_others() {
    let Some(lab) = legacy() else { return };
    mount(&lab, "tank/a", "l", "ro").ok();
    mount(&lab, "tank/a@1", "s", "rw").ok();
    lab.kill("tank");
    mount(&lab, "tank/a", "l", "rw").ok();
    assert_eq!((read(&lab.path("l")), read(&lab.path("s"))), ("new".into(), "old".into()));
    assert_eq!(lab.fs(&["get", "-Ho", "value", "readonly", "tank/a"]), "off\n");
    assert_eq!(mounts_on(&lab.mount("tank")).len(), 1);
}

/// A copy of the mount in another namespace keeps the kernel's superblock alive, but must not keep our session.
#[test]
fn what_was_unmounted_is_mounted_again_beside_a_copy() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let place = lab.mount("tank");
    fs::write(place.join("f"), "content").unwrap();
    let unshare = std::process::Command::new("unshare").args(["-m", "sleep", "60"]).spawn();
    let Ok(mut elsewhere) = unshare else { return };
    let namespace = format!("/proc/{}/ns/mnt", elsewhere.id());
    wait_until("it has a namespace of its own", || {
        fs::read_link(&namespace).ok() != fs::read_link("/proc/self/ns/mnt").ok()
    });
    assert!(std::process::Command::new("umount").arg(&place).status().unwrap().success());
    assert_eq!(lab.fs(&["get", "-Ho", "value", "mounted", "tank"]), "no\n");
    lab.fs(&["mount", "tank"]);
    assert_eq!(read(&place), "content");
    let before = std::time::Instant::now();
    assert!(std::process::Command::new("umount").arg(&place).status().unwrap().success());
    lab.pool(&["export", "tank"]);
    assert!(before.elapsed() < std::time::Duration::from_secs(4), "{:?}", before.elapsed());
    elsewhere.kill().unwrap();
    elsewhere.wait().unwrap();
}
