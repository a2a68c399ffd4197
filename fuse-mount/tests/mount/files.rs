//! Files and directories as programs see them.

use std::{
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};

use fuse_mount::Opcode;
use rustix::{
    fs::{CWD, FallocateFlags, FileType, FlockOperation, Mode, RenameFlags, XattrFlags},
    io::Errno,
};

use crate::{names, support::Mounted};

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
    assert_eq!(rename(RenameFlags::WHITEOUT | RenameFlags::EXCHANGE), Err(Errno::INVAL));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!((fs::read(at("a")).unwrap(), fs::read(at("b")).unwrap()), (b"b".to_vec(), b"a".to_vec()));
    fs::rename(at("a"), at("b")).unwrap();
    assert_eq!(names(mounted.path()), ["b"]);
    assert_eq!(fs::read(at("b")).unwrap(), b"b");
    if rustix::process::geteuid().is_root() {
        fs::write(at("a"), b"a").unwrap();
        rename(RenameFlags::WHITEOUT).unwrap();
        assert_eq!(fs::read(at("b")).unwrap(), b"a");
        assert_eq!(rustix::fs::stat(at("a")).map(|stat| (stat.st_mode, stat.st_rdev)), Ok((0o020_000, 0)));
    }
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
fn a_write_by_an_ordinary_user_clears_set_id_bits() {
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
