//! Snapshots in the control directory.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::{MetadataExt, PermissionsExt},
};

use dataset::property::SnapDir;
use rustix::io::Errno;

use crate::{names, support::Mounted};

#[test]
fn snapshots_are_browsed_and_cannot_be_changed() {
    let Some(mounted) = Mounted::new() else { return };
    let root = mounted.path();
    fs::write(root.join("f"), b"old").unwrap();
    mounted.snapshot("monday", 1);
    fs::write(root.join("f"), b"new").unwrap();
    let snapshots = root.join(".zfs/snapshot");
    assert_eq!(names(root), ["f"], ".zfs is hidden");
    assert_eq!(names(&root.join(".zfs")), ["snapshot"]);
    assert_eq!(names(&snapshots), ["monday"]);
    let old = snapshots.join("monday/f");
    assert_eq!(fs::read(&old).unwrap(), b"old");
    assert_eq!(fs::read(root.join("f")).unwrap(), b"new");
    let (live, shown) = (fs::metadata(root.join("f")).unwrap(), fs::metadata(&old).unwrap());
    assert_eq!(live.dev(), shown.dev());
    assert_ne!(live.ino(), shown.ino(), "no two files of a mount share a number");
    for refused in [
        fs::write(&old, b"x"),
        fs::OpenOptions::new().read(true).write(true).open(&old).map(drop),
        fs::remove_file(&old),
        fs::create_dir(snapshots.join("monday/d")),
        fs::rename(&old, snapshots.join("monday/g")),
        fs::create_dir(root.join(".zfs/d")),
        fs::set_permissions(&old, fs::Permissions::from_mode(0o600)),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    }
    assert!(fs::create_dir(root.join(".zfs")).is_err());
    assert!(fs::rename(root.join("f"), root.join(".zfs")).is_err());
    assert!(fs::remove_dir(root.join(".zfs")).is_err());
    fs::copy(&old, root.join("copy")).unwrap();
    assert_eq!(fs::read(root.join("copy")).unwrap(), b"old");
}

#[test]
fn snapshots_come_and_go() {
    let Some(mounted) = Mounted::new() else { return };
    let snapshots = mounted.path().join(".zfs/snapshot");
    assert!(names(&snapshots).is_empty());
    fs::write(mounted.path().join("f"), b"1").unwrap();
    mounted.snapshot("a", 1);
    assert_eq!(names(&snapshots), ["a"]);
    fs::write(mounted.path().join("f"), b"2").unwrap();
    mounted.snapshot("b", 2);
    assert_eq!(names(&snapshots), ["a", "b"]);
    assert_eq!(fs::read(snapshots.join("b/f")).unwrap(), b"2");
    let open = File::open(snapshots.join("a/f")).unwrap();
    mounted.snapshots.0.lock().remove(0);
    mounted.mount.close_snapshot("a");
    assert_eq!(names(&snapshots), ["b"]);
    assert!(!snapshots.join("a").exists());
    assert_eq!(rustix::fs::fstatvfs(&open).err(), Some(Errno::STALE));
    mounted.snapshot("a", 3);
    assert_eq!(fs::read(snapshots.join("a/f")).unwrap(), b"2");
}

#[test]
fn a_visible_control_directory_is_listed() {
    let Some(mounted) = Mounted::new() else { return };
    fs::write(mounted.path().join("f"), b"x").unwrap();
    assert_eq!(names(mounted.path()), ["f"]);
    mounted.mount.set_snapdir(SnapDir::Visible);
    assert_eq!(names(mounted.path()), [".zfs", "f"]);
    mounted.mount.set_snapdir(SnapDir::Hidden);
    assert_eq!(names(mounted.path()), ["f"]);
}
