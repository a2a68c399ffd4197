//! The metadata of files: mode, owner, times and extended attributes, and the right to change them.

use std::{
    fs::{self, File, Permissions},
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown, lchown, symlink},
        process::CommandExt,
    },
    path::Path,
    process::{Command, Stdio},
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags},
    io::Errno,
};

use crate::{is_root, lab::noise, mode, on_a_mount, sh};

/// Without group execution too, as on other file systems: whether the program is in the file's group decides.
#[test]
fn a_set_group_bit_does_not_outlive_a_foreign_change() {
    if !is_root() {
        return;
    }
    on_a_mount(|lab, place| {
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
        fs::set_permissions(place, Permissions::from_mode(0o755)).unwrap();
        for (number, change) in
            ["echo more >> FILE", ": > FILE", "fallocate -l 8192 FILE", "fallocate -p -o 0 -l 4096 FILE"]
                .iter()
                .enumerate()
        {
            let name = format!("file-{number}");
            let tool = place.join(&name);
            let by = |user: u32, group: u32| {
                fs::write(&tool, noise(5000, 1)).unwrap();
                chown(&tool, Some(0), Some(50)).unwrap();
                fs::set_permissions(&tool, Permissions::from_mode(0o6666)).unwrap();
                let mut command = Command::new("sh");
                command.args(["-c", &change.replace("FILE", &name)]).current_dir(place).uid(user).gid(group);
                assert!(command.status().unwrap().success(), "{change}");
                mode(&tool)
            };
            assert_eq!(by(65534, 65534), 0o666, "{change}, by a stranger");
            assert_eq!(by(65534, 50), 0o2666, "{change}, by one of the group");
            assert_eq!(by(0, 0), 0o6666, "{change}, by root");
        }
    });
}

#[test]
fn a_file_keeps_its_birth_time() {
    on_a_mount(|_, place| {
        let before = SystemTime::now();
        sh(place, "echo one > file; mkdir dir; mkfifo fifo; ln -s file link");
        let born = |name: &str| fs::symlink_metadata(place.join(name)).unwrap().created();
        if born("file").is_err() {
            let release = rustix::system::uname().release().to_string_lossy().into_owned();
            let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
            assert!((numbers.next(), numbers.next()) < (Some(6), Some(6)), "Linux {release} asks for birth times");
            return;
        }
        for name in ["file", "dir", "fifo", "link"] {
            let age = born(name).unwrap().duration_since(before - Duration::from_secs(1)).unwrap();
            assert!(age < Duration::from_secs(60), "{name}: {age:?}");
        }
        let (file, dir) = (born("file").unwrap(), born("dir").unwrap());
        sh(
            place,
            "sleep 0.02; echo two >> file; touch -d 2001-01-01 file; chmod 600 file; ln file second; mv file dir/moved",
        );
        assert_eq!((born("second").unwrap(), born("dir/moved").unwrap(), born("dir").unwrap()), (file, file, dir));
        sh(place, "echo three > other; mv other second");
        assert!(born("second").unwrap() > file);
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
        // Other users must be able to reach the mount.
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
        chown(at("dir"), Some(0), Some(50)).unwrap();
        fs::set_permissions(at("dir"), Permissions::from_mode(0o2777)).unwrap();
        sh(place, "umask 022; touch dir/file; mkdir dir/sub");
        assert_eq!(fs::metadata(at("dir/file")).unwrap().gid(), 50);
        assert_eq!((fs::metadata(at("dir/sub")).unwrap().gid(), mode(&at("dir/sub"))), (50, 0o2755));

        let tool = at("tool");
        let as_nobody = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).current_dir(place).uid(65534).gid(65534).stderr(Stdio::null());
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
        assert_eq!(set("user.none", b"x", XattrFlags::CREATE | XattrFlags::REPLACE), Err(Errno::NODATA));
        assert_eq!(set("user.small", b"x", XattrFlags::CREATE | XattrFlags::REPLACE), Err(Errno::EXIST));
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

/// The capability `CAP_CHOWN`, encoded for `security.capability`.
const CAPABILITY: [u8; 20] = [0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

#[test]
fn set_id_bits_and_capabilities_go_when_and_only_when_they_must() {
    on_a_mount(|lab, place| {
        if !is_root() {
            return;
        }
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
        let path = place.join("tool");
        let name = "security.capability";
        let is_capable = |path: &Path| rustix::fs::getxattr(path, name, &mut [0; 64][..]).is_ok();
        let plant = || {
            fs::write(&path, noise(10_000, 6)).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o6777)).unwrap();
        };
        let reset = || {
            plant();
            rustix::fs::setxattr(&path, name, &CAPABILITY, XattrFlags::empty()).unwrap();
        };
        let bits = || mode(&path) & 0o7000;
        for script in ["fallocate -l 20000 tool", "fallocate -p -o 100 -l 5000 tool", "fallocate -z -l 200 tool"] {
            plant();
            sh(place, script);
            assert_eq!(bits(), 0o6000, "root: {script}");
            // If a file has both, root loses both: the kernel sends the same request for each.
            reset();
            sh(place, script);
            assert!(!is_capable(&path), "root: {script}");
            reset();
            let mut command = Command::new("sh");
            assert!(command.args(["-c", script]).current_dir(place).uid(65534).gid(65534).status().unwrap().success());
            assert_eq!((bits(), is_capable(&path)), (0, false), "another: {script}");
        }
        let copy = |from: &str| {
            let from = File::open(place.join(from)).unwrap();
            let to = File::options().write(true).open(&path).unwrap();
            rustix::fs::copy_file_range(from, None, to, None, 5000).unwrap();
        };
        fs::write(place.join("source"), noise(9000, 7)).unwrap();
        plant();
        copy("source");
        assert_eq!(bits(), 0o6000, "root copies");
        reset();
        copy("source");
        assert!(!is_capable(&path), "root copies");
        reset();
        chown(&path, None, None).unwrap();
        assert_eq!((bits(), is_capable(&path)), (0, false), "a change of owner that changes nothing is one");
        plant();
        fs::set_permissions(&path, Permissions::from_mode(0o6755)).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "chown '' tool"]).current_dir(place).uid(65534).gid(65534).stderr(Stdio::null());
        assert!(!command.status().unwrap().success());
        assert_eq!(bits(), 0o6000, "and not for everybody to do");

        let dir = place.join("dir");
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, Permissions::from_mode(0o6755)).unwrap();
        rustix::fs::setxattr(&dir, name, &CAPABILITY, XattrFlags::empty()).unwrap();
        for owner in [None, Some(7)] {
            chown(&dir, owner, owner).unwrap();
            assert_eq!((mode(&dir), is_capable(&dir)), (0o6755, true), "directories are not run");
        }
    });
}

#[test]
fn trusted_attributes_are_hidden_from_others() {
    on_a_mount(|lab, place| {
        if !is_root() {
            return;
        }
        fs::set_permissions(lab.path(""), Permissions::from_mode(0o711)).unwrap();
        let path = place.join("file");
        fs::write(&path, "").unwrap();
        for name in ["trusted.secret", "user.open"] {
            rustix::fs::setxattr(&path, name, b"value", XattrFlags::empty()).unwrap();
        }
        let list = "python3 -c 'import os; print(sorted(os.listxattr(\"file\")))'";
        let listed = |command: &mut Command| {
            let output = command.args(["-c", list]).current_dir(place).output().unwrap();
            output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
        };
        if let Some(all) = listed(&mut Command::new("sh")) {
            assert_eq!(all.trim(), "['trusted.secret', 'user.open']");
            let others = listed(Command::new("sh").uid(65534).gid(65534)).unwrap();
            assert_eq!(others.trim(), "['user.open']");
        }
    });
}
