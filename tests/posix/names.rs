//! Directories: the effects of renames, links and removals on names, allowed names, and reading directories.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, symlink},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, RenameFlags},
    io::Errno,
};

use crate::{is_root, mode, names, on_a_mount, sh};

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> Result<(), Errno> {
    rustix::fs::renameat_with(CWD, from, CWD, to, flags)
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
fn rename_leaves_a_whiteout_behind() {
    on_a_mount(|_, place| {
        if !is_root() {
            return;
        }
        let at = |name: &str| place.join(name);
        fs::write(at("a"), "a").unwrap();
        fs::write(at("b"), "b").unwrap();
        fs::create_dir(at("dir")).unwrap();
        rename(&at("a"), &at("b"), RenameFlags::WHITEOUT).unwrap();
        rename(&at("dir"), &at("moved"), RenameFlags::WHITEOUT | RenameFlags::NOREPLACE).unwrap();
        for name in ["a", "dir"] {
            let whiteout = fs::symlink_metadata(at(name)).unwrap();
            assert!(whiteout.file_type().is_char_device());
            assert_eq!((whiteout.rdev(), whiteout.nlink(), whiteout.mode() & 0o7777), (0, 1, 0));
        }
        assert_eq!(fs::read_to_string(at("b")).unwrap(), "a");
        assert_eq!(names(place), ["a", "b", "dir", "moved"]);
        assert_eq!(fs::metadata(place).unwrap().nlink(), 3);
        assert_eq!(rename(&at("b"), &at("a"), RenameFlags::WHITEOUT | RenameFlags::EXCHANGE), Err(Errno::INVAL));
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
        UnixStream::connect(at("socket")).unwrap();
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
        // Every file that stays is listed once.
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
