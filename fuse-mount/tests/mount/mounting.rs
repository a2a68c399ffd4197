//! Mounts as such: their entries in the mount table, and their ends.

use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    os::unix::fs::MetadataExt,
    process::Command,
    thread,
    time::Duration,
};

use fuse_mount::{Error, FS_TYPE, Unmount, detach_dead, mounts};

use rustix::mount::UnmountFlags;

use crate::{names, support::Mounted};

#[test]
fn space_and_source_are_shown() {
    let Some(mounted) = Mounted::new() else { return };
    let stat = rustix::fs::statvfs(mounted.path()).unwrap();
    assert!(stat.f_blocks >= stat.f_bfree && stat.f_bfree >= stat.f_bavail && stat.f_bavail > 0);
    assert_eq!(stat.f_namemax, 255);
    let output = Command::new("df").arg("-T").arg(mounted.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let fields: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(fields[..2], ["tank/home", FS_TYPE]);
    let found = mounts().unwrap().into_iter().find(|listed| listed.mountpoint == mounted.path()).unwrap();
    assert_eq!(found.dataset, "tank/home");
    assert!(!detach_dead(mounted.path()).unwrap(), "it is alive");
}

#[test]
fn a_busy_mount_is_refused_and_can_be_forced() {
    let Some(mounted) = Mounted::new() else { return };
    let mut file = File::create(mounted.path().join("f")).unwrap();
    assert!(matches!(mounted.mount.unmount(Unmount::Normal), Err(Error::Busy { .. })));
    file.write_all(b"it still works").unwrap();
    mounted.mount.unmount(Unmount::Force).unwrap();
    assert!(mounted.mount.has_ended());
    assert_eq!(file.write_all(b"x").unwrap_err().kind(), ErrorKind::NotConnected);
    assert!(names(mounted.path()).is_empty(), "the bare directory");
}

#[test]
fn an_unmount_waits_for_short_lived_users() {
    let Some(mounted) = Mounted::new() else { return };
    // On a busy machine a short look may outlast the wait.
    let is_unmounted = (0..20).any(|_| {
        let looked_at = File::open(mounted.path()).unwrap();
        let looking = thread::spawn(move || {
            thread::sleep(Duration::from_millis(30));
            drop(looked_at);
        });
        let unmounted = mounted.mount.unmount(Unmount::Normal).is_ok();
        looking.join().unwrap();
        unmounted
    });
    assert!(is_unmounted, "a mount that is looked at for a moment is always refused");
}

#[test]
fn unmounting_gives_everything_back() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    let file = File::create(&path).unwrap();
    let ino = file.metadata().unwrap().ino();
    fs::remove_file(&path).unwrap();
    assert!(mounted.file_system.getattr(ino).is_ok());
    mounted.mount.unmount(Unmount::Force).unwrap();
    assert!(mounted.file_system.getattr(ino).is_err());
    mounted.mount.unmount(Unmount::Normal).unwrap();
}

#[test]
fn a_foreign_unmount_is_noticed() {
    let Some(mounted) = Mounted::new() else { return };
    assert!(!mounted.mount.wait(Duration::from_millis(10)));
    let status = Command::new("umount").arg(mounted.path()).status().unwrap();
    assert!(status.success());
    assert!(mounted.mount.wait(Duration::from_secs(5)));
    mounted.mount.unmount(Unmount::Normal).unwrap();
}

#[test]
fn a_detached_mount_still_serves_open_files() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    let mut file = File::create(&path).unwrap();
    if rustix::mount::unmount(mounted.path(), UnmountFlags::DETACH) == Err(rustix::io::Errno::PERM) {
        return;
    }
    assert!(!mounted.mount.is_mounted());
    file.write_all(b"content").unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().len(), 7);
    assert!(!path.exists() && !mounted.mount.has_ended());
    drop(file);
    assert!(mounted.mount.wait(Duration::from_secs(60)));
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(mounted) = Mounted::with(|options| options.readonly = true) else { return };
    let refused = fs::write(mounted.path().join("f"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let listed = mounts().unwrap().into_iter().find(|listed| listed.mountpoint == mounted.path()).unwrap();
    assert!(listed.flags.split(',').any(|flag| flag == "ro"));
}
