//! What programs expect of a Linux file system, asked of a real mount.
//!
//! Each test makes a pool of its own, and has it checked at the end. What needs root is asked only as root.

mod lab;

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink},
        net::UnixListener,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::Command,
};

use lab::{Lab, can_mount, noise};
use rustix::{
    fs::{
        AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom as Place, Timespec,
        Timestamps, XattrFlags,
    },
    io::Errno,
};

/// Runs a test in a mounted data set of a new pool, which must be in order afterwards.
fn on_a_mount(test: impl FnOnce(&Lab, &Path)) {
    if !can_mount() {
        return;
    }
    let lab = Lab::new();
    lab.create("tank", "256M");
    test(&lab, &lab.mount("tank"));
    lab.check("tank");
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
}

fn sh(folder: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).current_dir(folder).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn files_live_on_without_a_name() {
    on_a_mount(|_, place| {
        let path = place.join("file");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(b"before").unwrap();
        fs::remove_file(&path).unwrap();
        assert!(names(place).is_empty());
        file.write_all(b" and after").unwrap();
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        fs::write(&path, "another").unwrap();
        let mut text = String::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "before and after");
    });
}

#[test]
fn large_removed_files_give_their_space_back() {
    on_a_mount(|lab, place| {
        // Small records make many items, more than one step of freeing takes.
        lab.fs(&["set", "recordsize=4K", "compression=off", "tank"]);
        fs::write(place.join("large"), noise(20 << 20, 1)).unwrap();
        let open = File::open(place.join("large")).unwrap();
        fs::remove_file(place.join("large")).unwrap();
        lab.pool(&["sync"]);
        let referenced =
            || lab.fs(&["get", "-H", "-p", "-o", "value", "referenced", "tank"]).trim().parse::<u64>().unwrap();
        assert!(20 << 20 < referenced());
        drop(open);
        lab::wait_until("the space is back", || {
            lab.pool(&["sync"]);
            referenced() < 1 << 20
        });
    });
}

#[test]
fn rename_replaces_exchanges_and_refuses() {
    on_a_mount(|_, place| {
        let at = |name: &str| place.join(name);
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "b").unwrap();
        assert_eq!(rename(&at("a"), &at("b"), RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename(&at("a"), &at("b"), RenameFlags::EXCHANGE).unwrap();
        assert_eq!(fs::read_to_string(at("a")).unwrap(), "b");
        assert_eq!(rename(&at("a"), &at("none"), RenameFlags::EXCHANGE), Err(Errno::NOENT));
        rename(&at("a"), &at("c"), RenameFlags::NOREPLACE).unwrap();
        rename(&at("c"), &at("b"), RenameFlags::empty()).unwrap();
        assert_eq!(names(place), ["b"]);
        assert_eq!(fs::read_to_string(at("b")).unwrap(), "b");

        fs::create_dir_all(at("dir/sub")).unwrap();
        fs::create_dir(at("empty")).unwrap();
        assert_eq!(rename(&at("empty"), &at("dir"), RenameFlags::empty()), Err(Errno::NOTEMPTY));
        assert_eq!(rename(&at("dir"), &at("dir/sub/deeper"), RenameFlags::empty()), Err(Errno::INVAL));
        assert_eq!(rename(&at("b"), &at("dir"), RenameFlags::empty()), Err(Errno::ISDIR));
        assert_eq!(rename(&at("dir"), &at("b"), RenameFlags::empty()), Err(Errno::NOTDIR));
        rename(&at("dir"), &at("empty"), RenameFlags::empty()).unwrap();
        assert_eq!(names(&at("empty")), ["sub"]);
        assert_eq!(fs::metadata(place).unwrap().nlink(), 3);
        rename(&at("b"), &at("empty"), RenameFlags::EXCHANGE).unwrap();
        assert!(at("b").is_dir() && at("empty").is_file());
        fs::hard_link(at("empty"), at("same")).unwrap();
        rename(&at("empty"), &at("same"), RenameFlags::empty()).unwrap();
        assert!(at("empty").exists() && at("same").exists(), "two names of one file stay as they are");
    });
}

#[test]
fn links_and_special_files() {
    on_a_mount(|_, place| {
        let at = |name: &str| place.join(name);
        fs::write(at("file"), "text").unwrap();
        fs::hard_link(at("file"), at("second")).unwrap();
        let (file, second) = (fs::metadata(at("file")).unwrap(), fs::metadata(at("second")).unwrap());
        assert_eq!((file.ino(), file.nlink()), (second.ino(), 2));
        fs::remove_file(at("file")).unwrap();
        assert_eq!(fs::metadata(at("second")).unwrap().nlink(), 1);

        for length in [1, 60, 100, 4095] {
            let target = "x".repeat(length);
            let link = at(&format!("link-{length}"));
            symlink(&target, &link).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new(&target));
            assert_eq!(fs::symlink_metadata(&link).unwrap().len(), length as u64);
        }
        symlink("second", at("good")).unwrap();
        assert_eq!(fs::read_to_string(at("good")).unwrap(), "text");
        symlink("loop", at("loop")).unwrap();
        assert_eq!(rustix::fs::open(at("loop"), OFlags::RDONLY, Mode::empty()).unwrap_err(), Errno::LOOP);

        sh(place, "mkfifo -m 640 fifo; (echo through > fifo) & cat fifo > out; wait");
        assert_eq!(fs::read_to_string(at("out")).unwrap(), "through\n");
        assert!(fs::metadata(at("fifo")).unwrap().file_type().is_fifo());
        assert_eq!(mode(&at("fifo")), 0o640);
        let _listener = UnixListener::bind(at("socket")).unwrap();
        assert!(fs::metadata(at("socket")).unwrap().file_type().is_socket());
        std::os::unix::net::UnixStream::connect(at("socket")).unwrap();
        if is_root() {
            let device = rustix::fs::makedev(1, 5);
            let made = rustix::fs::mknodat(CWD, at("zero"), FileType::CharacterDevice, Mode::from(0o600), device);
            made.unwrap();
            let found = fs::metadata(at("zero")).unwrap();
            assert!(found.file_type().is_char_device());
            assert_eq!(found.rdev(), device);
        }
    });
}

#[test]
fn modes_owners_and_set_id_bits() {
    on_a_mount(|lab, place| {
        let at = |name: &str| place.join(name);
        sh(place, "umask 027; touch file; mkdir dir; umask 0; touch open");
        assert_eq!((mode(&at("file")), mode(&at("dir")), mode(&at("open"))), (0o640, 0o750, 0o666));
        fs::set_permissions(at("file"), Permissions::from_mode(0o4711)).unwrap();
        assert_eq!(mode(&at("file")), 0o4711);
        if !is_root() {
            return;
        }
        // Others must be able to reach the mount.
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
        chown(at("dir"), Some(0), Some(50)).unwrap();
        fs::set_permissions(at("dir"), Permissions::from_mode(0o2777)).unwrap();
        sh(place, "umask 022; touch dir/file; mkdir dir/sub");
        assert_eq!(fs::metadata(at("dir/file")).unwrap().gid(), 50);
        assert_eq!((fs::metadata(at("dir/sub")).unwrap().gid(), mode(&at("dir/sub"))), (50, 0o2755));

        let tool = at("tool");
        let as_nobody = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(place).uid(65534).gid(65534).stderr(std::process::Stdio::null());
            command.status().unwrap().success()
        };
        let reset = || {
            fs::write(&tool, "tool").unwrap();
            chown(&tool, Some(0), Some(0)).unwrap();
            fs::set_permissions(&tool, Permissions::from_mode(0o6777)).unwrap();
        };
        reset();
        assert!(as_nobody("echo changed >> tool"));
        assert_eq!(mode(&tool), 0o777, "a write by another takes the set-id bits");
        reset();
        assert!(as_nobody(": > tool"));
        assert_eq!(mode(&tool), 0o777, "so does a truncation");
        reset();
        chown(&tool, Some(1), Some(1)).unwrap();
        assert_eq!(mode(&tool), 0o777, "and a change of owner");

        fs::write(at("secret"), "mine").unwrap();
        fs::set_permissions(at("secret"), Permissions::from_mode(0o600)).unwrap();
        assert!(!as_nobody("cat secret"));
        assert!(!as_nobody("chmod 777 secret"));
        assert!(!as_nobody("touch in-the-root"));
        fs::set_permissions(at("dir"), Permissions::from_mode(0o1777)).unwrap();
        assert!(as_nobody("touch dir/mine && rm dir/mine"));
        assert!(!as_nobody("rm -f dir/file"), "the sticky bit protects what belongs to others");
        symlink("secret", at("link")).unwrap();
        lchown(at("link"), Some(7), Some(8)).unwrap();
        let link = fs::symlink_metadata(at("link")).unwrap();
        assert_eq!((link.uid(), link.gid(), fs::metadata(at("secret")).unwrap().uid()), (7, 8, 0));
    });
}

#[test]
fn times_are_kept_to_the_nanosecond() {
    on_a_mount(|_, place| {
        let path = place.join("file");
        fs::write(&path, "text").unwrap();
        let at = |seconds, nanoseconds| Timespec { tv_sec: seconds, tv_nsec: nanoseconds };
        let set = |last_access, last_modification| {
            let times = Timestamps { last_access, last_modification };
            rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
            fs::metadata(&path).unwrap()
        };
        let found = set(at(1_000_000_000, 123_456_789), at(-5, 999_999_999));
        assert_eq!((found.atime(), found.atime_nsec()), (1_000_000_000, 123_456_789));
        assert_eq!((found.mtime(), found.mtime_nsec()), (-5, 999_999_999));
        let changed = (found.ctime(), found.ctime_nsec());
        let found = set(at(0, rustix::fs::UTIME_OMIT), at(9_000_000_000, 1));
        assert_eq!((found.atime(), found.mtime(), found.mtime_nsec()), (1_000_000_000, 9_000_000_000, 1));
        assert!((found.ctime(), found.ctime_nsec()) > changed);
        let found = set(at(0, rustix::fs::UTIME_NOW), at(0, rustix::fs::UTIME_OMIT));
        assert!(found.atime() > 1_600_000_000 && found.mtime() == 9_000_000_000);

        let before = fs::metadata(place).unwrap();
        fs::write(place.join("more"), "").unwrap();
        let after = fs::metadata(place).unwrap();
        assert!((after.mtime(), after.mtime_nsec()) > (before.mtime(), before.mtime_nsec()));
    });
}

#[test]
fn extended_attributes() {
    on_a_mount(|_, place| {
        let path = place.join("file");
        fs::write(&path, "").unwrap();
        let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
        let get = |name: &str| {
            let mut value = vec![0; 65536];
            let length = rustix::fs::getxattr(&path, name, &mut value[..])?;
            value.truncate(length);
            Ok::<_, Errno>(value)
        };
        let large = noise(60_000, 2);
        set("user.small", b"value", XattrFlags::empty()).unwrap();
        set("user.large", &large, XattrFlags::empty()).unwrap();
        set("user.empty", b"", XattrFlags::empty()).unwrap();
        assert_eq!(get("user.small").unwrap(), b"value");
        assert_eq!(get("user.large").unwrap(), large);
        assert_eq!(get("user.empty").unwrap(), b"");
        assert_eq!(get("user.none"), Err(Errno::NODATA));
        assert_eq!(set("user.small", b"x", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(set("user.none", b"x", XattrFlags::REPLACE), Err(Errno::NODATA));
        set("user.small", b"other", XattrFlags::REPLACE).unwrap();
        let mut list = vec![0; 4096];
        let length = rustix::fs::listxattr(&path, &mut list[..]).unwrap();
        let mut found: Vec<&[u8]> = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        found.sort_unstable();
        assert_eq!(found, [&b"user.empty"[..], b"user.large", b"user.small"]);
        assert_eq!(rustix::fs::getxattr(&path, "user.large", &mut [0; 10][..]), Err(Errno::RANGE));
        rustix::fs::removexattr(&path, "user.large").unwrap();
        assert_eq!(rustix::fs::removexattr(&path, "user.large"), Err(Errno::NODATA));
    });
}

#[test]
fn sparse_files_and_fallocate() {
    on_a_mount(|_, place| {
        let path = place.join("sparse");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let seek = |place| rustix::fs::seek(&file, place);
        file.set_len(1 << 30).unwrap();
        assert_eq!(seek(Place::Data(0)), Err(Errno::NXIO));
        assert_eq!(seek(Place::Hole(0)), Ok(0));
        let content = noise(1 << 20, 3);
        file.write_all_at(&content, 512 << 20).unwrap();
        file.sync_all().unwrap();
        let data = seek(Place::Data(0)).unwrap();
        assert!((500 << 20..=512 << 20).contains(&data), "{data}");
        let hole = seek(Place::Hole(data)).unwrap();
        assert!((513 << 20..520 << 20).contains(&hole), "{hole}");
        assert_eq!(seek(Place::Hole(1 << 31)), Err(Errno::NXIO));
        assert!(file.metadata().unwrap().blocks() * 512 < 4 << 20);

        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let inner = (512 << 20) + 1000;
        rustix::fs::fallocate(&file, punch, inner, 500_000).unwrap();
        let mut found = vec![1; content.len()];
        file.read_exact_at(&mut found, 512 << 20).unwrap();
        let mut wanted = content.clone();
        wanted[1000..501_000].fill(0);
        assert!(found == wanted);
        rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, inner + 600_000, 1000).unwrap();
        wanted[601_000..602_000].fill(0);
        file.read_exact_at(&mut found, 512 << 20).unwrap();
        assert!(found == wanted);

        let small = File::create(place.join("small")).unwrap();
        rustix::fs::fallocate(&small, FallocateFlags::empty(), 0, 1_000_000).unwrap();
        assert_eq!(small.metadata().unwrap().len(), 1_000_000);
        rustix::fs::fallocate(&small, FallocateFlags::KEEP_SIZE, 0, 2_000_000).unwrap();
        assert_eq!(small.metadata().unwrap().len(), 1_000_000);
        let collapse = rustix::fs::fallocate(&small, FallocateFlags::COLLAPSE_RANGE, 0, 4096);
        assert!(matches!(collapse, Ok(()) | Err(Errno::OPNOTSUPP)), "{collapse:?}");

        // What was cut off stays off when the file grows again.
        file.set_len((512 << 20) + 100).unwrap();
        file.set_len(513 << 20).unwrap();
        file.read_exact_at(&mut found, 512 << 20).unwrap();
        assert!(found[..100] == wanted[..100] && found[100..].iter().all(|byte| *byte == 0));
        assert!(file.metadata().unwrap().blocks() * 512 < 1 << 20);
    });
}

#[test]
fn several_processes_append() {
    on_a_mount(|_, place| {
        let script =
            "for writer in 1 2 3 4; do (for line in $(seq 200); do echo \"$writer $line\" >> log; done) & done; wait";
        sh(place, script);
        let text = fs::read_to_string(place.join("log")).unwrap();
        assert_eq!(text.lines().count(), 800);
        for writer in 1..=4 {
            let own: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{writer} "))).collect();
            let wanted: Vec<String> = (1..=200).map(|line| format!("{writer} {line}")).collect();
            assert_eq!(own, wanted);
        }
    });
}

#[test]
fn locks_exclude() {
    on_a_mount(|_, place| {
        let path = place.join("lock");
        let first = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let second = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        rustix::fs::flock(&first, FlockOperation::LockExclusive).unwrap();
        let refused = rustix::fs::flock(&second, FlockOperation::NonBlockingLockShared);
        assert_eq!(refused, Err(Errno::WOULDBLOCK));
        rustix::fs::flock(&first, FlockOperation::Unlock).unwrap();
        rustix::fs::flock(&second, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(second);
        // Record locks belong to processes: another one must be refused.
        rustix::fs::fcntl_lock(&first, FlockOperation::LockExclusive).unwrap();
        if Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
            let script = "import fcntl,sys\ntry: fcntl.lockf(open('lock','r+'), fcntl.LOCK_EX|fcntl.LOCK_NB)\n\
                          except BlockingIOError: sys.exit(7)";
            let status = Command::new("python3").args(["-c", script]).current_dir(place).status().unwrap();
            assert_eq!(status.code(), Some(7));
        }
        rustix::fs::fcntl_lock(&first, FlockOperation::Unlock).unwrap();
    });
}

#[test]
fn the_space_of_a_mount_adds_up() {
    on_a_mount(|lab, place| {
        lab.fs(&["set", "compression=off", "tank"]);
        let stat = || {
            lab.pool(&["sync"]);
            rustix::fs::statvfs(place).unwrap()
        };
        let before = stat();
        assert!(before.f_bavail <= before.f_bfree && before.f_bfree <= before.f_blocks);
        assert!(before.f_frsize.is_power_of_two() && before.f_namemax == 255);
        assert!(before.f_blocks * before.f_frsize > 200 << 20);
        fs::write(place.join("file"), noise(20 << 20, 4)).unwrap();
        let after = stat();
        let taken = (before.f_bavail - after.f_bavail) * before.f_frsize;
        assert!((20 << 20..24 << 20).contains(&taken), "{taken}");
        let used = (after.f_blocks - after.f_bfree) * after.f_frsize;
        assert!((20 << 20..24 << 20).contains(&used), "{used}");
        assert!(before.f_blocks.abs_diff(after.f_blocks) * before.f_frsize < 4 << 20);
        assert!(after.f_files > after.f_ffree && after.f_files - after.f_ffree >= 2);
    });
}

#[test]
fn names_of_any_kind() {
    on_a_mount(|_, place| {
        let long = "n".repeat(255);
        fs::write(place.join(&long), "long").unwrap();
        let refused = rustix::fs::mkdir(place.join("n".repeat(256)), Mode::from(0o755));
        assert_eq!(refused, Err(Errno::NAMETOOLONG));
        let odd = std::ffi::OsStr::from_bytes(b"\xff\xfe \n'\"\\*");
        fs::write(place.join(odd), "odd").unwrap();
        fs::write(place.join("Ünïcode"), "").unwrap();
        fs::write(place.join("unicode"), "").unwrap();
        fs::write(place.join("Unicode"), "").unwrap();
        assert_eq!(fs::read_to_string(place.join(odd)).unwrap(), "odd");
        assert_eq!(fs::read_dir(place).unwrap().count(), 5);
        let mut deep = PathBuf::from(place);
        (0..10).for_each(|_| deep.push("d".repeat(200)));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "deep").unwrap();
        assert_eq!(fs::read_to_string(deep.join("file")).unwrap(), "deep");
    });
}

#[test]
fn a_large_directory_is_read_while_it_shrinks() {
    const FILES: usize = 10_000;
    on_a_mount(|_, place| {
        let folder = place.join("many");
        fs::create_dir(&folder).unwrap();
        (0..FILES).for_each(|number| drop(File::create(folder.join(format!("file-{number}"))).unwrap()));
        assert_eq!(names(&folder).len(), FILES);
        // Every file that is not removed meanwhile is seen once.
        let mut seen = std::collections::HashMap::new();
        for (count, entry) in fs::read_dir(&folder).unwrap().enumerate() {
            *seen.entry(entry.unwrap().file_name().into_string().unwrap()).or_insert(0) += 1;
            let doomed = folder.join(format!("file-{}", count * 2));
            if count * 2 < FILES {
                fs::remove_file(doomed).unwrap();
            }
        }
        for number in (1..FILES).step_by(2) {
            assert_eq!(seen.get(&format!("file-{number}")), Some(&1), "file-{number}");
        }
        assert!(seen.values().all(|times| *times == 1));
        for entry in fs::read_dir(&folder).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        fs::remove_dir(&folder).unwrap();
    });
}

#[test]
fn no_two_files_of_a_mount_share_an_inode_number() {
    on_a_mount(|lab, place| {
        for name in ["one", "two", "three"] {
            fs::create_dir_all(place.join("dir")).unwrap();
            fs::write(place.join("dir").join(name), name).unwrap();
            lab.fs(&["snapshot", &format!("tank@{name}")]);
        }
        let listed = sh(place, "find . .zfs -printf '%i %p\\n'");
        let mut numbers: Vec<u64> =
            listed.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect();
        let count = numbers.len();
        assert!(count > 3 + 3 + 6, "{listed}");
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count, "{listed}");
        assert_eq!(names(&place.join(".zfs/snapshot/two/dir")), ["one", "two"]);
        assert_eq!(fs::write(place.join(".zfs/snapshot/two/dir/one"), "x").unwrap_err().raw_os_error(), Some(30));
    });
}

#[test]
fn direct_input_and_output() {
    on_a_mount(|_, place| {
        fs::write(place.join("source"), noise(3_000_000, 5)).unwrap();
        let copy = "dd if=source of=copy bs=64K iflag=direct oflag=direct conv=fsync status=none; cmp source copy";
        sh(place, copy);
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::DIRECT.bits() as i32)
            .open(place.join("source"))
            .unwrap();
        let mut text = Vec::new();
        (&file).read_to_end(&mut text).unwrap();
        assert!(text == noise(3_000_000, 5));
    });
}

#[test]
fn git_works_on_it() {
    on_a_mount(|lab, place| {
        let planted = place.join("origin");
        fs::create_dir(&planted).unwrap();
        lab::plant(&planted);
        let git = "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a \
                   GIT_COMMITTER_EMAIL=a";
        sh(
            &planted,
            &format!("{git}; git init -q; git add .; git commit -qm one; git rm -qr dir-0; git commit -qm two"),
        );
        sh(place, &format!("{git}; git clone -q origin clone; cd clone; git gc -q; git fsck --strict; git status"));
        assert_eq!(sh(place, "cd clone; git log --oneline | wc -l; git status --porcelain").trim(), "2");
        lab.fs(&["snapshot", "tank@repository"]);
        sh(&place.join("clone"), &format!("{git}; git checkout -q HEAD~1; git -c gc.auto=0 repack -qad; git fsck"));
    });
}
