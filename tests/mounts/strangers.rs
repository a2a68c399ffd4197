//! `fs cp` from and to directories that another user changes meanwhile; and trees deeper than the longest path.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, symlink},
    },
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags, linkat, makedev, mkdirat, mknodat, openat,
    renameat_with, setxattr,
};

use crate::{
    lab::{Lab, Run, Stopped, assert_same, small_file_system},
    mounted,
};

/// An otherwise unused user.
const STRANGER: u32 = 65_534;
/// Bytes enough to interrupt a copy in the middle.
const LONG: usize = 96 << 20;
const LEVELS: u32 = 20_000;
const ROUNDS: u32 = 12;

/// A mounted pool whose lab other users may enter, for tests of root.
fn open_lab() -> Option<Lab> {
    if !lab_can_mount_as_root() {
        return None;
    }
    let lab = Lab::new();
    lab.create("tank", "512M");
    fs::set_permissions(lab.path(""), fs::Permissions::from_mode(0o755)).unwrap();
    Some(lab)
}

fn lab_can_mount_as_root() -> bool {
    crate::lab::can_mount() && rustix::process::geteuid().is_root()
}

/// A directory of the stranger.
fn home(lab: &Lab) -> std::path::PathBuf {
    let home = lab.path("home of a stranger");
    fs::create_dir(&home).unwrap();
    chown(&home, Some(STRANGER), Some(STRANGER)).unwrap();
    home
}

/// Runs the stranger's script in a directory.
fn stranger(dir: &Path, script: &str) -> bool {
    let number = STRANGER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &number, "--regid", &number, "--clear-groups", "sh", "-ec", script]);
    command.current_dir(dir).stderr(Stdio::null()).status().unwrap().success()
}

/// A running copy, stopped while `meanwhile` runs. `begun` is a file that the copy writes first.
#[track_caller]
fn interrupted(lab: &Lab, words: &[&str], begun: &Path, meanwhile: impl FnOnce()) -> Run {
    let mut copy: Child = lab.command("fs", words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while fs::metadata(begun).map_or(0, |metadata| metadata.len()) == 0 {
        assert!(start.elapsed() < Duration::from_secs(60) && copy.try_wait().unwrap().is_none(), "it never began");
    }
    let stopped = Stopped::new(lab.service("tank").unwrap());
    assert!(fs::metadata(begun).unwrap().len() < LONG as u64, "the copy was stopped too late");
    meanwhile();
    drop(stopped);
    Run::of("fs", words, copy.wait_with_output().unwrap())
}

/// The set-user-ID programs of root below a directory, each with whether it is the program from the pool.
fn programs_of_root(dir: &Path) -> Vec<bool> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let of_root = entries.filter(|path| {
        let metadata = path.symlink_metadata().unwrap();
        metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o4000 != 0
    });
    of_root.map(|path| path.metadata().unwrap().len() == LONG as u64).collect()
}

#[test]
fn a_file_swapped_during_a_copy_gets_no_set_id_bit() {
    let Some(lab) = open_lab() else { return };
    let home = home(&lab);
    let program = lab.mount("tank").join("program");
    fs::write(&program, vec![7; LONG]).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    for own in ["cp /bin/true program", "ln -s /etc/passwd program"] {
        assert!(stranger(&home, "rm -f *"));
        let target = home.join("program");
        let run = interrupted(&lab, &["cp", "tank:/program", target.to_str().unwrap()], &target, || {
            assert!(stranger(&home, &format!("mv program gone; {own}")));
        });
        run.ok();
        let metadata = target.symlink_metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o6000), (STRANGER, 0), "{own}");
        // The program from the pool is unchanged, under its present name.
        assert_eq!(programs_of_root(&home), [true], "{own}");
    }
}

#[test]
fn a_file_swapped_before_its_second_name_is_not_linked() {
    let Some(lab) = open_lab() else { return };
    let home = home(&lab);
    let tree = lab.mount("tank").join("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    fs::write(tree.join("one"), "from the pool").unwrap();
    fs::hard_link(tree.join("one"), tree.join("below/second")).unwrap();
    fs::write(tree.join("long"), vec![7; LONG]).unwrap();
    // The copy goes into the stranger's own directory.
    assert!(stranger(&home, "mkdir tree"));
    let words = ["cp", "-r", "tank:/tree", home.to_str().unwrap()];
    let run = interrupted(&lab, &words, &home.join("tree/long"), || {
        assert!(stranger(&home, "cd tree; mv one gone; echo mine > one"));
    });
    let said = run.fails(1);
    assert!(said.contains("another process has moved or replaced the file"), "{said}");
    assert!(!home.join("tree/below/second").exists());
    // Without interference the copy is one file with two names.
    fs::remove_file(home.join("tree/gone")).unwrap();
    lab.fs(&words);
    assert_same(&tree, &home.join("tree"));
}

#[test]
fn an_inherited_access_list_opens_no_copy() {
    let Some(lab) = open_lab() else { return };
    let home = home(&lab);
    let entry = |tag: u16, id: u32| [&tag.to_le_bytes()[..], &7_u16.to_le_bytes(), &id.to_le_bytes()].concat();
    let none = u32::MAX;
    let entries = [entry(1, none), entry(2, STRANGER), entry(4, none), entry(0x10, none), entry(0x20, none)];
    let list = [&2_u32.to_le_bytes()[..], &entries.concat()].concat();
    if setxattr(&home, "system.posix_acl_default", &list, XattrFlags::empty()).is_err() {
        return;
    }
    let tree = lab.mount("tank").join("tree");
    fs::create_dir(&tree).unwrap();
    for (name, mode) in [("program", 0o4775), ("text", 0o664)] {
        fs::write(tree.join(name), "from the pool").unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o775)).unwrap();
    lab.fs(&["cp", "-r", "tank:/tree", home.to_str().unwrap()]);
    assert_same(&tree, &home.join("tree"));
    for script in ["echo >> tree/program", "echo >> tree/text", "echo > tree/new"] {
        assert!(!stranger(&home, script), "{script}");
    }
}

/// Signals the end when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A name that keeps changing between two files: the copy is one of them, with its own mode and content.
#[test]
fn sources_swapped_during_a_copy_are_not_mixed() {
    let Some(lab) = open_lab() else { return };
    // In memory, names change fast enough to hit every gap between two steps.
    if !small_file_system(&lab.path("outside"), "16M") {
        return;
    }
    let (source, aside) = (lab.path("outside/source"), lab.path("outside/aside"));
    let names: Vec<String> = (0..12).map(|number| format!("file-{number:02}")).collect();
    fs::create_dir(&source).unwrap();
    fs::create_dir(&aside).unwrap();
    fs::write(lab.path("secret"), "secret").unwrap();
    for (at, name) in names.iter().enumerate() {
        fs::write(source.join(name), "public").unwrap();
        fs::set_permissions(source.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        let other = aside.join(name);
        match at % 3 {
            0 => {
                fs::write(&other, "secret").unwrap();
                fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).unwrap();
            }
            1 => symlink(lab.path("secret"), &other).unwrap(),
            _ => mknodat(CWD, &other, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap(),
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also if a copy fails, because the scope waits for the thread.
        let _over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for name in &names {
                    renameat_with(CWD, source.join(name), CWD, aside.join(name), RenameFlags::EXCHANGE).unwrap();
                }
            }
        });
        for round in 0..ROUNDS {
            let began = Instant::now();
            let run = lab.run("fs", &["cp", "-r", &lab.at("outside/source"), &format!("tank:/{round}")]);
            assert!(began.elapsed() < Duration::from_secs(60), "nothing was waited for");
            assert_eq!(run.code, Some(0), "{}", run.stderr);
        }
    });
    for round in 0..ROUNDS {
        for name in &names {
            let path = lab.mount("tank").join(round.to_string()).join(name);
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_file() {
                let content = fs::read_to_string(&path).unwrap();
                let wanted = if metadata.mode() & 0o777 == 0o600 { "secret" } else { "public" };
                assert_eq!(content, wanted, "{}", path.display());
            } else {
                assert!(metadata.is_symlink() || metadata.file_type().is_fifo());
            }
        }
    }
}

#[test]
fn links_nodes_and_attributes_come_out_as_they_went_in() {
    let Some(lab) = open_lab() else { return };
    let source = lab.path("source");
    fs::create_dir_all(source.join("a/b")).unwrap();
    let node = |name: &str, kind, mode, device| {
        mknodat(CWD, source.join(name), kind, Mode::from_raw_mode(mode), device).unwrap();
    };
    node("null", FileType::CharacterDevice, 0o622, makedev(1, 3));
    node("disk", FileType::BlockDevice, 0o640, makedev(259, 0x12345));
    node("a/fifo", FileType::Fifo, 0o604, 0);
    node("a/socket", FileType::Socket, 0o700, 0);
    symlink("nowhere", source.join("link")).unwrap();
    linkat(CWD, source.join("link"), CWD, source.join("a/b/same link"), AtFlags::empty()).unwrap();
    linkat(CWD, source.join("a/fifo"), CWD, source.join("a/b/same fifo"), AtFlags::empty()).unwrap();
    fs::write(source.join("a/file"), "text").unwrap();
    for at in 0..3 {
        fs::hard_link(source.join("a/file"), source.join(format!("a/b/{at}"))).unwrap();
    }
    chown(source.join("a/file"), Some(1234), Some(4321)).unwrap();
    fs::set_permissions(source.join("a/file"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(source.join("a/b"), fs::Permissions::from_mode(0o2551)).unwrap();
    for (name, attribute) in [("a/file", "user.x"), ("a", "user.y"), ("a/fifo", "trusted.z"), ("null", "trusted.z")] {
        // Attributes may be unsupported on the file system of the test.
        let _ = setxattr(source.join(name), attribute, b"value", XattrFlags::empty());
    }
    lab.fs(&["cp", "-r", &lab.at("source"), "tank:/"]);
    lab.fs(&["cp", "-r", "tank:/source", &lab.at("out")]);
    let out = lab.path("out");
    let facts = |folder: &Path| {
        let script = "find . -printf '%p %y %m %U %G %T@ %l ' -exec stat -c '%h %t,%T' {} \\; | sort; \
                      getfattr -Rhd -m - . | sort";
        String::from_utf8(Command::new("sh").args(["-c", script]).current_dir(folder).output().unwrap().stdout).unwrap()
    };
    assert!(facts(&source).contains("disk b 640 0 0"), "{}", facts(&source));
    assert_eq!(facts(&source), facts(&out));
    assert!(out.join("a/socket").symlink_metadata().unwrap().file_type().is_socket());
    let ino = |name: &str| out.join(name).symlink_metadata().unwrap().ino();
    assert_eq!((ino("link"), ino("a/fifo")), (ino("a/b/same link"), ino("a/b/same fifo")));
    assert!((0..3).all(|at| ino(&format!("a/b/{at}")) == ino("a/file")));
}

/// A directory with [`LEVELS`] nested directories, and a file in the last.
fn dig(top: &Path) {
    fs::create_dir(top).unwrap();
    let mut dir: std::os::fd::OwnedFd = fs::File::open(top).unwrap().into();
    for _ in 0..LEVELS {
        mkdirat(&dir, "d", Mode::from_raw_mode(0o755)).unwrap();
        dir = openat(&dir, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    drop(openat(&dir, "file", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o644)).unwrap());
}

/// The number of nested directories.
fn depth(top: &Path) -> u32 {
    let mut dir: std::os::fd::OwnedFd = fs::File::open(top).unwrap().into();
    let mut levels = 0;
    loop {
        match openat(&dir, OsStr::from_bytes(b"d"), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(below) => dir = below,
            Err(_) => break,
        }
        levels += 1;
    }
    openat(&dir, "file", OFlags::RDONLY, Mode::empty()).expect("the last has a file");
    levels
}

#[test]
fn twenty_thousand_levels_go_in_and_out() {
    let Some(lab) = mounted(&["tank"]) else { return };
    // A tmpfs takes a second, and its unmount removes the tree; the lab's own removal recurses with a call for each
    // level.
    if !small_file_system(&lab.path("outside"), "256M") {
        return;
    }
    let service = lab.service("tank");
    dig(&lab.path("outside/in"));
    let said = lab.fs(&["cp", "-rv", &lab.at("outside/in"), "tank:/"]);
    assert!(said.contains(&format!("copied 1 files and {} directories", LEVELS + 1)), "{said}");
    lab.fs(&["cp", "-r", "tank:/in", &lab.at("outside/out")]);
    assert_eq!(depth(&lab.path("outside/out")), LEVELS);
    assert_eq!(lab.service("tank"), service);
}

#[test]
fn a_directory_is_not_copied_into_itself_through_the_mount() {
    let Some(lab) = mounted(&["tank"]) else { return };
    let top = lab.mount("tank");
    fs::create_dir(top.join("a")).unwrap();
    fs::create_dir(top.join("within")).unwrap();
    fs::write(top.join("a/file"), "text").unwrap();
    let content = format!("{}/.", top.display());
    for words in [
        ["cp", "-r", &content, "tank:/a"],
        ["cp", "-r", "tank:/", top.join("within").to_str().unwrap()],
        ["cp", "-r", "tank:/a", top.join("a/new").to_str().unwrap()],
    ] {
        let said = lab.run("fs", &words).fails(1);
        assert!(said.contains("a directory cannot be copied into itself"), "{said}");
    }
}
