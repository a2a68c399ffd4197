//! A real mount: what programs see, what the kernel asks and what it keeps.

mod support;

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use dataset::fs::{Caller, ROOT};
use fuse_mount::{Error, FS_TYPE, Opcode, SnapDir, Unmount, detach_dead, mounts};
use rustix::fs::{CWD, FallocateFlags, FileType, FlockOperation, Mode, RenameFlags, XattrFlags};
use rustix::io::Errno;
use support::Mounted;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn files_directories_and_links() {
    let Some(mounted) = Mounted::new() else { return };
    let root = mounted.path();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/f"), b"hello").unwrap();
    assert_eq!(fs::read(root.join("d/f")).unwrap(), b"hello");
    fs::hard_link(root.join("d/f"), root.join("g")).unwrap();
    assert_eq!(fs::metadata(root.join("g")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(root.join("g")).unwrap().ino(), fs::metadata(root.join("d/f")).unwrap().ino());
    symlink("d/f", root.join("s")).unwrap();
    assert_eq!(fs::read_link(root.join("s")).unwrap(), Path::new("d/f"));
    assert_eq!(fs::read(root.join("s")).unwrap(), b"hello");
    assert_eq!(names(root), ["d", "g", "s"]);
    assert_eq!(fs::remove_dir(root.join("d")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    fs::remove_file(root.join("d/f")).unwrap();
    fs::remove_dir(root.join("d")).unwrap();
    assert_eq!(fs::read(root.join("g")).unwrap(), b"hello");
    assert_eq!(names(root), ["g", "s"]);
}

#[test]
fn special_files() {
    let Some(mounted) = Mounted::new() else { return };
    let root = mounted.path();
    let kinds = [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("char", FileType::CharacterDevice, rustix::fs::makedev(1, 3)),
        ("block", FileType::BlockDevice, rustix::fs::makedev(300, 70_000)),
        ("regular", FileType::RegularFile, 0),
    ];
    for (name, kind, device) in kinds {
        match rustix::fs::mknodat(CWD, root.join(name), kind, Mode::from_raw_mode(0o640), device) {
            Ok(()) => {}
            Err(Errno::PERM) if device != 0 => continue,
            Err(errno) => panic!("{name}: {errno}"),
        }
        let metadata = fs::symlink_metadata(root.join(name)).unwrap();
        assert_eq!(FileType::from_raw_mode(metadata.mode()), kind, "{name}");
        assert_eq!(metadata.rdev(), device, "{name}");
        assert_eq!(metadata.mode() & 0o777, 0o640, "{name}");
    }
}

#[test]
fn appending_truncating_and_large_data() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    let data: Vec<u8> = (0..5_000_000_u32).map(|i| (i * 7) as u8).collect();
    fs::write(&path, &data).unwrap();
    let mut file = OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"end").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), 5_000_003);
    let read = fs::read(&path).unwrap();
    assert!(read[..data.len()] == data && read[data.len()..] == *b"end");
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(10).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(&path).unwrap(), data[..10]);
    fs::write(&path, b"x").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"x");
    let largest = mounted.mount.counters().get(Opcode::Write);
    assert!(largest < 20, "5 MB should take few requests, not {largest}");
}

#[test]
fn an_unlinked_file_lives_while_it_is_open() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    let mut file = OpenOptions::new().create_new(true).read(true).write(true).open(&path).unwrap();
    file.write_all(b"still here").unwrap();
    let ino = file.metadata().unwrap().ino();
    fs::remove_file(&path).unwrap();
    file.write_all(b", still writable").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here, still writable");
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    drop(file);
    for _ in 0..100 {
        if mounted.file_system.getattr(ino).is_err() {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("the object is kept though nobody holds it");
}

#[test]
fn renaming_with_all_flags() {
    let Some(mounted) = Mounted::new() else { return };
    let at = |name: &str| mounted.path().join(name);
    fs::write(at("a"), b"a").unwrap();
    fs::write(at("b"), b"b").unwrap();
    let rename = |flags| rustix::fs::renameat_with(CWD, at("a"), CWD, at("b"), flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(Errno::EXIST));
    assert_eq!(rename(RenameFlags::WHITEOUT), Err(Errno::INVAL));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    fs::rename(at("a"), at("b")).unwrap();
    assert_eq!(names(mounted.path()), ["b"]);
    assert_eq!(fs::read(at("b")).unwrap(), b"b");
}

#[test]
fn attributes_and_times() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    fs::write(&path, b"x").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4751)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4751);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for (seconds, nanos) in [(1_000_000_000, 123_456_789), (-2, 800_000_000), (0, 0), (4_000_000_000, 1)] {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: nanos };
        let both = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &both).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (seconds, nanos));
        assert_eq!((metadata.atime(), metadata.atime_nsec()), (seconds, nanos));
    }
}

#[test]
fn extended_attributes() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    fs::write(&path, b"x").unwrap();
    rustix::fs::setxattr(&path, "user.colour", b"blue", XattrFlags::empty()).unwrap();
    assert_eq!(rustix::fs::setxattr(&path, "user.colour", b"red", XattrFlags::CREATE), Err(Errno::EXIST));
    assert_eq!(rustix::fs::setxattr(&path, "user.none", b"red", XattrFlags::REPLACE), Err(Errno::NODATA));
    let mut value = [0; 16];
    assert_eq!(rustix::fs::getxattr(&path, "user.colour", &mut value[..]), Ok(4));
    assert_eq!(&value[..4], b"blue");
    assert_eq!(rustix::fs::getxattr(&path, "user.colour", &mut [0; 2][..]), Err(Errno::RANGE));
    assert_eq!(rustix::fs::getxattr(&path, "user.other", &mut value[..]), Err(Errno::NODATA));
    assert_eq!(rustix::fs::getxattr(&path, "system.posix_acl_access", &mut value[..]), Err(Errno::OPNOTSUPP));
    let length = rustix::fs::listxattr(&path, &mut value[..]).unwrap();
    assert_eq!(&value[..length], b"user.colour\0");
    rustix::fs::removexattr(&path, "user.colour").unwrap();
    assert_eq!(rustix::fs::listxattr(&path, &mut value[..]), Ok(0));
}

#[test]
fn holes_reservations_and_copies() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 100).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 1 << 20);
    file.write_all_at(&[7; 8192], 0).unwrap();
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 4096).unwrap();
    let mut start = [1; 8192];
    file.read_exact_at(&mut start, 0).unwrap();
    assert!(start[..4096] == [0; 4096] && start[4096..] == [7; 4096]);
    let hole = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(1 << 19)).unwrap();
    assert!(hole <= 1 << 20);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(1 << 21)), Err(Errno::NXIO));
    let copy = File::create(mounted.path().join("copy")).unwrap();
    let (mut from, mut to) = (4096, 10);
    assert_eq!(rustix::fs::copy_file_range(&file, Some(&mut from), &copy, Some(&mut to), 4096), Ok(4096));
    assert_eq!(copy.metadata().unwrap().len(), 4106);
    assert_eq!(fs::read(mounted.path().join("copy")).unwrap()[10..], [7; 4096]);
}

#[test]
fn opening_and_closing_need_no_request() {
    let Some(mounted) = Mounted::new() else { return };
    let counters = mounted.mount.counters();
    for i in 0..10 {
        let path = mounted.path().join(format!("f{i}"));
        fs::write(&path, b"x").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"x");
        names(mounted.path());
    }
    for opcode in [Opcode::Open, Opcode::OpenDir, Opcode::Flush] {
        assert!(counters.get(opcode) <= 1, "{}: {:?}", opcode.name(), counters.seen());
    }
    assert_eq!(counters.get(Opcode::Release), 0, "{:?}", counters.seen());
    assert_eq!(counters.get(Opcode::Create), 10);
}

#[test]
fn absent_names_and_listings_are_remembered() {
    let Some(mounted) = Mounted::new() else { return };
    let counters = mounted.mount.counters();
    let path = mounted.path().join("absent");
    assert!(!path.exists());
    let lookups = counters.get(Opcode::Lookup);
    assert!(!path.exists());
    assert_eq!(counters.get(Opcode::Lookup), lookups);
    fs::write(&path, b"x").unwrap();
    assert!(path.exists());
    for _ in 0..2 {
        assert_eq!(names(mounted.path()), ["absent"]);
    }
    let listings = counters.get(Opcode::ReadDir) + counters.get(Opcode::ReadDirPlus);
    assert_eq!(names(mounted.path()), ["absent"]);
    assert_eq!(counters.get(Opcode::ReadDir) + counters.get(Opcode::ReadDirPlus), listings);
    fs::remove_file(&path).unwrap();
    assert!(names(mounted.path()).is_empty());
}

#[test]
fn large_directories_are_listed_once_and_whole() {
    let Some(mounted) = Mounted::with(|options| options.snapdir = SnapDir::Visible) else { return };
    let expected: HashSet<String> = (0..3000).map(|i| format!("a rather long file name {i}")).collect();
    for name in &expected {
        File::create(mounted.path().join(name)).unwrap();
    }
    let listed = names(mounted.path());
    assert_eq!(listed.len(), 3001);
    assert_eq!(listed[0], ".zfs");
    assert_eq!(listed.into_iter().skip(1).collect::<HashSet<_>>(), expected);
}

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
fn a_writer_who_is_not_root_takes_set_id_bits_away() {
    let Some(mounted) = Mounted::new() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    fs::set_permissions(mounted.path().parent().unwrap(), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(mounted.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let path = mounted.path().join("f");
    for command in ["printf y >>", "truncate -s 5 "] {
        fs::write(&path, b"x").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
        let script = format!("{command}{}", path.display());
        let status = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", &script])
            .status()
            .unwrap();
        assert!(status.success(), "{command}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777, "{command}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    fs::write(&path, b"root may").unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o6777);
}

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

#[test]
fn a_changed_file_system_is_seen_at_once() {
    let Some(mounted) = Mounted::new() else { return };
    let root = mounted.path();
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/kept"), b"before").unwrap();
    fs::write(root.join("d/deleted"), b"x").unwrap();
    fs::rename(root.join("d"), root.join("before")).unwrap();
    let before = mounted.remember();
    fs::rename(root.join("before"), root.join("d")).unwrap();
    fs::write(root.join("d/kept"), b"after it").unwrap();
    fs::remove_file(root.join("d/deleted")).unwrap();
    assert!(!root.join("d/deleted").exists());
    fs::write(root.join("d/new"), b"x").unwrap();
    let mut open = OpenOptions::new().read(true).write(true).open(root.join("d/new")).unwrap();
    names(root);
    names(&root.join("d"));

    let change = mounted.mount.begin_change();
    mounted.roll_back(before);
    change.finish();

    assert_eq!(names(root), ["before"]);
    assert_eq!(names(&root.join("before")), ["deleted", "kept"]);
    assert_eq!(fs::read(root.join("before/kept")).unwrap(), b"before");
    assert_eq!(fs::read(root.join("before/deleted")).unwrap(), b"x");
    assert!(!root.join("before/new").exists());
    assert!(!root.join("d").exists());
    let stale = open.write(b"into a file that is gone").unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::StaleNetworkFileHandle);
    // May take over the number of the file that is gone.
    fs::write(root.join("before/newer"), b"untouched").unwrap();
    assert!(open.write(b"into a file that is gone").is_err());
    assert_eq!(fs::read(root.join("before/newer")).unwrap(), b"untouched");
}

#[test]
fn a_change_leaves_mounts_below_where_they_are() {
    let Some(mounted) = Mounted::new() else { return };
    let Some(inner) = Mounted::new() else { return };
    let root = mounted.path();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/kept"), b"before").unwrap();
    let before = mounted.remember();
    fs::write(root.join("a/kept"), b"after it").unwrap();
    fs::write(root.join("a/new"), b"x").unwrap();
    let Ok(()) = rustix::mount::mount_bind(inner.path(), root.join("a/b")) else { return };
    fs::write(root.join("a/b/inner"), b"x").unwrap();
    names(&root.join("a"));

    let change = mounted.mount.begin_change();
    mounted.roll_back(before);
    change.finish();

    let seen = (names(&root.join("a")), names(&root.join("a/b")), fs::read(root.join("a/kept")).unwrap());
    rustix::mount::unmount(root.join("a/b"), rustix::mount::UnmountFlags::DETACH).unwrap();
    assert_eq!(seen, (vec!["b".to_owned(), "kept".to_owned()], vec!["inner".to_owned()], b"before".to_vec()));
    assert!(!root.join("a/new").exists());
    assert!(mounted.mount.is_mounted());
}

#[test]
fn changes_made_by_others_can_be_announced() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    assert!(!path.exists());
    let attr = mounted.file_system.create(&Caller { uid: 0, gid: 0 }, ROOT, b"f", 0o644, true).unwrap();
    mounted.file_system.write(attr.ino, 0, b"one", false).unwrap();
    mounted.mount.entry_changed(ROOT, b"f");
    assert_eq!(fs::read(&path).unwrap(), b"one");
    mounted.file_system.write(attr.ino, 0, b"other", false).unwrap();
    mounted.mount.object_changed(attr.ino);
    assert_eq!(fs::read(&path).unwrap(), b"other");
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
fn an_unmount_by_somebody_else_is_noticed() {
    let Some(mounted) = Mounted::new() else { return };
    assert!(!mounted.mount.wait(Duration::from_millis(10)));
    let status = Command::new("umount").arg(mounted.path()).status().unwrap();
    assert!(status.success());
    assert!(mounted.mount.wait(Duration::from_secs(5)));
    mounted.mount.unmount(Unmount::Normal).unwrap();
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(mounted) = Mounted::with(|options| options.readonly = true) else { return };
    let refused = fs::write(mounted.path().join("f"), b"x").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    let listed = mounts().unwrap().into_iter().find(|listed| listed.mountpoint == mounted.path()).unwrap();
    assert!(listed.flags.split(',').any(|flag| flag == "ro"));
}

#[test]
fn locks_exclude_each_other() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("f");
    let (one, two) = (File::create(&path).unwrap(), File::create(&path).unwrap());
    rustix::fs::flock(&one, FlockOperation::LockExclusive).unwrap();
    let refused = rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(Errno::WOULDBLOCK));
    rustix::fs::flock(&one, FlockOperation::Unlock).unwrap();
    rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    rustix::fs::fcntl_lock(&one, FlockOperation::NonBlockingLockExclusive).unwrap();
}

#[test]
fn threads_work_side_by_side() {
    let Some(mounted) = Mounted::new() else { return };
    let root = Arc::new(mounted.path().to_owned());
    std::thread::scope(|scope| {
        for worker in 0..4_u8 {
            let root = Arc::clone(&root);
            scope.spawn(move || {
                for i in 0..50 {
                    let path = root.join(format!("{worker}-{i}"));
                    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path).unwrap();
                    file.write_all(&[worker; 10_000]).unwrap();
                    if i % 10 == 0 {
                        file.sync_all().unwrap();
                    }
                    assert!(fs::read(&path).unwrap() == [worker; 10_000]);
                }
            });
        }
    });
    assert_eq!(names(&root).len(), 200);
}
