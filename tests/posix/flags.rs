//! Attributes of single files: set and shown by `fs`, `chattr` and `lsattr`, enforced for all users, and preserved.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::Path,
    process::Command,
};

use rustix::{
    fs::{IFlags, ioctl_getflags, ioctl_setflags},
    io::Errno,
};
use vmap::{Flush, MapMut};

use crate::{
    is_root,
    lab::{Lab, noise},
    on_a_mount, sh,
};

fn flags(path: &Path) -> IFlags {
    ioctl_getflags(fs::File::open(path).unwrap()).unwrap()
}

fn set_flags(path: &Path, flags: IFlags) -> Result<(), Errno> {
    ioctl_setflags(fs::File::open(path).unwrap(), flags)
}

/// The values of some attributes of a file, by `fs`.
fn shown(lab: &Lab, attributes: &str, file: &str) -> String {
    let lines = lab.fs(&["getattr", "-Hp", attributes, file]);
    lines.lines().map(|line| line.rsplit('\t').next().unwrap()).collect::<Vec<_>>().join(" ")
}

fn denied(result: std::io::Result<impl Sized>) {
    assert_eq!(result.err().and_then(|error| error.raw_os_error()), Some(Errno::PERM.raw_os_error()));
}

/// An earlier mapping stays writable. A change through it is refused at write-back.
#[test]
fn what_is_stored_in_an_immutable_file_is_not_seen() {
    if !is_root() {
        return;
    }
    on_a_mount(|_, place| {
        let file = place.join("file");
        let content = vec![b'a'; 3 * 4096];
        fs::write(&file, &content).unwrap();
        let (mut map, _) = MapMut::with_options().open(&file).unwrap();
        let open = File::open(&file).unwrap();
        set_flags(&file, IFlags::IMMUTABLE).unwrap();
        denied(OpenOptions::new().read(true).write(true).open(&file));
        denied(OpenOptions::new().append(true).open(&file));
        for _ in 0..50 {
            map[4096..8192].fill(b'z');
            map.flush(&open, Flush::Sync).unwrap_err();
            assert!(fs::read(&file).unwrap() == content, "after msync");
        }
        map.fill(b'z');
        drop(map);
        assert!(fs::read(&file).unwrap() == content, "after munmap");
        set_flags(&file, IFlags::empty()).unwrap();
    });
}

#[test]
fn immutable_and_append_only_files_are_so_for_everybody() {
    if !is_root() {
        return;
    }
    on_a_mount(|_, place| {
        let file = place.join("file");
        fs::write(&file, "content").unwrap();
        let open = OpenOptions::new().write(true).open(&file).unwrap();
        let changed = fs::metadata(&file).unwrap();
        set_flags(&file, IFlags::IMMUTABLE).unwrap();
        let after = fs::metadata(&file).unwrap();
        assert!((after.ctime(), after.ctime_nsec()) > (changed.ctime(), changed.ctime_nsec()), "that is a change");
        denied(open.write_at(b"x", 0));
        denied(open.set_len(3));
        denied(OpenOptions::new().write(true).truncate(true).open(&file));
        denied(OpenOptions::new().write(true).open(&file));
        denied(fs::remove_file(&file));
        denied(fs::rename(&file, place.join("other")));
        denied(fs::hard_link(&file, place.join("other")));
        for command in ["chmod 600 file", "chown 1 file", "touch -d 2001-01-01 file", "setfattr -n user.a -v b file"] {
            let tried = Command::new("sh").args(["-c", &format!("{command} 2>/dev/null")]).current_dir(place).status();
            assert!(!tried.unwrap().success(), "{command}");
        }
        assert_eq!(fs::read(&file).unwrap(), b"content");

        set_flags(&file, IFlags::APPEND).unwrap();
        denied(OpenOptions::new().write(true).open(&file));
        denied(open.write_at(b"x", 0));
        denied(fs::remove_file(&file));
        OpenOptions::new().append(true).open(&file).unwrap().write_all(b" and more").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"content and more");
        set_flags(&file, IFlags::empty()).unwrap();

        let dir = place.join("dir");
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("file"), "").unwrap();
        set_flags(&dir, IFlags::IMMUTABLE).unwrap();
        denied(fs::write(dir.join("new"), ""));
        denied(fs::create_dir(dir.join("new")));
        denied(symlink("x", dir.join("new")));
        denied(fs::remove_file(dir.join("file")));
        denied(fs::rename(&file, dir.join("new")));
        fs::write(dir.join("file"), "more").unwrap();
        set_flags(&dir, IFlags::APPEND).unwrap();
        fs::write(dir.join("new"), "").unwrap();
        denied(fs::remove_file(dir.join("new")));
        set_flags(&dir, IFlags::empty()).unwrap();
        fs::remove_dir_all(&dir).unwrap();
    });
}

#[test]
fn chattr_and_fs_speak_of_the_same() {
    if !is_root() {
        return;
    }
    on_a_mount(|lab, place| {
        let (file, at) = (place.join("dir/file"), lab.at("mnt/tank/dir/file"));
        fs::create_dir(place.join("dir")).unwrap();
        fs::write(&file, "text").unwrap();
        assert_eq!(lab.pool(&["get", "-H", "-o", "value", "feature@file_attributes", "tank"]).trim(), "enabled");
        set_flags(&file, IFlags::NODUMP | IFlags::NOATIME | IFlags::COMPRESSED).unwrap();
        assert_eq!(lab.pool(&["get", "-H", "-o", "value", "feature@file_attributes", "tank"]).trim(), "active");
        assert_eq!(shown(lab, "all", &at), "off off on on lz4 - off");
        lab.fs(&["setattr", "compression=gzip-9", "immutable=on", "nodump=off", "tank:/dir/file"]);
        assert_eq!(flags(&file), IFlags::COMPRESSED | IFlags::NOATIME | IFlags::IMMUTABLE);
        denied(fs::write(&file, "x"));
        set_flags(&file, IFlags::COMPRESSED).unwrap();
        assert_eq!(shown(lab, "compression,noatime", &at), "gzip-9 off", "the way stays");
        assert_eq!(set_flags(&file, IFlags::COMPRESSED | IFlags::from_bits_retain(0x1)), Err(Errno::OPNOTSUPP));
        assert_eq!(ioctl_setflags(fs::File::open(place.join(".zfs")).unwrap(), IFlags::NODUMP), Err(Errno::NOTTY));

        let has_chattr = Command::new("chattr").arg("-V").output().is_ok();
        if has_chattr {
            sh(
                place,
                "chattr +id dir/file; lsattr dir/file | grep -q -- '^----i-d'; chattr -i dir/file; chattr +m dir",
            );
            assert_eq!(shown(lab, "immutable,nodump,compression", &at), "off on gzip-9");
            assert_eq!(shown(lab, "compression", "tank:/dir"), "off");
        }

        // Paths are found through links, in snapshots, and recursively.
        symlink("dir", place.join("link")).unwrap();
        symlink("nowhere", place.join("dir/dangling")).unwrap();
        lab.fs(&["setattr", "-R", "noatime=on", "recordsize=16K", &lab.at("mnt/tank/link/.")]);
        assert_eq!(shown(lab, "noatime,recordsize", "tank:/dir/file"), "on 16384");
        lab.fs(&["snapshot", "tank@a"]);
        lab.fs(&["setattr", "recordsize=inherit", &at]);
        assert_eq!(shown(lab, "recordsize", &lab.at("mnt/tank/.zfs/snapshot/a/dir/file")), "16384");
        assert_eq!(shown(lab, "recordsize", "tank@a:/dir/file"), "16384");
        let said = lab.run("fs", &["setattr", "append=on", "tank@a:/dir/file"]).fails(1);
        assert!(said.contains("never changes"), "{said}");
        let said = lab.run("fs", &["setattr", "append=on", "/etc/passwd"]).fails(1);
        assert!(said.contains("no Cenote file system is mounted there"), "{said}");
        lab.run("fs", &["setattr", "append=perhaps", &at]).fails(2);
        lab.run("fs", &["setattr", "immutable=on", &at, "tank:/none"]).fails(1);
        assert_eq!(shown(lab, "immutable", &at), "on", "what comes before a failure is done");
        lab.fs(&["setattr", "immutable=off", &at]);
        let json = lab.fs(&["getattr", "-r", "-j", "noatime", "tank:/dir"]);
        assert!(json.contains("\"tank:/dir/file\""), "{json}");
        assert_eq!(lab.fs(&["diff", "tank@a", "tank"]).matches("dir/file").count(), 1);
    });
}

#[test]
fn attributes_travel() {
    on_a_mount(|lab, place| {
        fs::create_dir(place.join("dir")).unwrap();
        lab.fs(&["setattr", "compression=zstd-9", "recordsize=1M", "noatime=on", "direct=on", "tank:/dir"]);
        fs::write(place.join("dir/file"), noise(3_000_000, 5)).unwrap();
        lab.fs(&["setattr", "append=on", "tank:/dir/file"]);
        let values = "off on off on zstd-9 1048576 on";
        assert_eq!(shown(lab, "all", "tank:/dir/file"), values);
        assert_eq!(fs::metadata(place.join("dir/file")).unwrap().blksize(), 1 << 20);
        lab.fs(&["snapshot", "tank@a"]);
        let full = lab.fs_bytes(&["send", "tank@a"]);
        lab.feed("fs", &["receive", "tank/copy"], &full).ok();
        assert_eq!(shown(lab, "all", "tank/copy:/dir/file"), values);
        denied(fs::remove_file(lab.mount("tank").join("copy/dir/file")));

        OpenOptions::new().append(true).open(place.join("dir/file")).unwrap().write_all(b"more").unwrap();
        lab.fs(&["setattr", "append=off", "compression=inherit", "tank:/dir/file"]);
        lab.fs(&["snapshot", "tank@b"]);
        let increment = lab.fs_bytes(&["send", "-i", "@a", "tank@b"]);
        lab.feed("fs", &["receive", "tank/copy"], &increment).ok();
        assert_eq!(shown(lab, "all", "tank/copy:/dir/file"), "off off off on - 1048576 on");
        lab.fs(&["rollback", "-r", "tank@a"]);
        assert_eq!(shown(lab, "all", "tank:/dir/file"), values);

        // A pool without the feature takes the stream, and activates the feature.
        lab.create("pond", "256M");
        lab.feed("fs", &["receive", "pond/copy"], &full).ok();
        assert_eq!(lab.pool(&["get", "-H", "-o", "value", "feature@file_attributes", "pond"]).trim(), "active");
        assert_eq!(shown(lab, "all", "pond/copy:/dir/file"), values);
        let read = fs::read(lab.mount("pond").join("copy/dir/file")).unwrap();
        assert!(read == noise(3_000_000, 5));
        let cached = fs::File::open(lab.mount("pond").join("copy/dir/file")).unwrap();
        sh(&lab.mount("pond").join("copy/dir"), "cp file copied; cmp file copied; echo x >> copied; tail -c 2 copied");
        drop(cached);
        lab.check("pond");
    });
}
