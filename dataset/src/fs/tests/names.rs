//! Names, attributes, and files in use without a name.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::world::World;
use crate::fs::{
    Caller, Errno, FileType, ROOT, SetAttr, SetTime, SetXattr,
    change::{Change, load_inode},
    directory::{Dirent, window},
    key::{self, Ino},
};

const USER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };

#[test]
fn names_of_one_hash_stand_side_by_side() {
    let world = World::new(1);
    let fs = &world.fs;
    let window = window(fs.seed(), ROOT, b"wanted");
    // Two entries placed at offsets of the hash of another name.
    for (at, name) in [(0, b"one"), (2, b"two")] {
        let dirent = Dirent { ino: ROOT, file_type: FileType::Directory, name };
        fs.update_tree(|change| {
            change.put(key::dirent(ROOT, window.start + at), dirent.encode(), None);
            Ok(())
        })
        .unwrap();
    }
    assert_eq!(fs.lookup(ROOT, b"wanted"), Err(Errno::NOENT));
    let made = fs.create(&USER, ROOT, b"wanted", 0o644, true).unwrap();
    assert_eq!(fs.lookup(ROOT, b"wanted").unwrap(), made);
    assert!(fs.read_tree(|view| Ok(view.get(key::dirent(ROOT, window.start + 1))?.is_some())).unwrap());
    fs.unlink(ROOT, b"wanted").unwrap();
    assert_eq!(fs.lookup(ROOT, b"wanted"), Err(Errno::NOENT));
}

#[test]
fn an_unlinked_file_lives_until_it_is_released() {
    let world = World::new(1);
    let fs = &world.fs;
    let ino = fs.create(&USER, ROOT, b"a", 0o644, true).unwrap().ino;
    fs.retain(ino);
    fs.retain(ino);
    fs.unlink(ROOT, b"a").unwrap();
    fs.write(ino, 0, b"still here", false).unwrap();
    while fs.reap_orphans(10) {}
    assert_eq!(fs.getattr(ino).unwrap().nlink, 0);
    assert_eq!(fs.link(ino, ROOT, b"b"), Err(Errno::NOENT), "only a file made without a name gets one later");
    world.check();
    assert!(fs.release(ino, 2));
    fs.free_unused();
    assert_eq!(fs.getattr(ino), Err(Errno::NOENT));
    world.check();
}

#[test]
fn many_files_are_freed_together_but_for_those_that_cannot() {
    let world = World::new(1);
    let fs = &world.fs;
    let make = |name: &str, pieces: u64| {
        let ino = fs.create(&USER, ROOT, name.as_bytes(), 0o644, true).unwrap().ino;
        (0..pieces).for_each(|piece| assert_eq!(fs.write(ino, piece * 200_000, &[7; 600], false), Ok(600)));
        fs.retain(ino);
        fs.unlink(ROOT, name.as_bytes()).unwrap();
        ino
    };
    let small: Vec<Ino> = (0..100).map(|index| make(&format!("small {index}"), 1)).collect();
    let (large, used, damaged) = (make("large", 700), make("used", 1), make("damaged", 0));
    let damage = |body: &[u8]| {
        let put = |change: &mut Change<'_>| {
            change.put(key::inode(damaged), body, None);
            Ok(())
        };
        fs.update_tree(put).unwrap();
    };
    let whole = fs.read_tree(|view| Ok(load_inode(view, damaged)?.encode())).unwrap();
    damage(b"no inode");
    for ino in small.iter().copied().chain([large, damaged]) {
        assert!(fs.release(ino, 1));
    }
    assert!(fs.getattr(small[0]).is_ok(), "it is gathered first");
    fs.free_unused();
    for &ino in &small {
        assert_eq!(fs.getattr(ino), Err(Errno::NOENT));
    }
    assert!(fs.getattr(large).is_ok() && fs.has_orphans(), "the background frees the rest of it");
    damage(&whole);
    while fs.reap_orphans(10) {}
    assert_eq!((fs.getattr(large), fs.getattr(damaged)), (Err(Errno::NOENT), Err(Errno::NOENT)));
    assert_eq!(fs.getattr(used).unwrap().nlink, 0);
    world.check();
}

#[test]
fn a_locked_file_delays_no_other() {
    let world = World::new(1);
    let fs = &world.fs;
    let [taken, free] = ["taken", "free"].map(|name| {
        let ino = fs.create(&USER, ROOT, name.as_bytes(), 0o644, true).unwrap().ino;
        fs.retain(ino);
        fs.unlink(ROOT, name.as_bytes()).unwrap();
        assert!(fs.release(ino, 1));
        ino
    });
    thread::scope(|scope| {
        let hand = fs.locks.of(taken).read();
        let freeing = scope.spawn(|| fs.free_unused());
        let began = Instant::now();
        while fs.getattr(free).is_ok() {
            assert!(!freeing.is_finished(), "it was left to the background");
            assert!(began.elapsed() < Duration::from_secs(60), "it waits for the other");
            thread::yield_now();
        }
        assert!(fs.getattr(taken).is_ok());
        drop(hand);
    });
    assert_eq!(fs.getattr(taken), Err(Errno::NOENT));
    world.check();
}

#[test]
fn a_crash_leaves_no_orphan_for_long() {
    let world = World::new(1);
    let ino = world.fs.create(&USER, ROOT, b"a", 0o644, true).unwrap().ino;
    world.fs.retain(ino);
    world.fs.unlink(ROOT, b"a").unwrap();
    world.commit();
    let world = world.reopen();
    assert!(world.fs.getattr(ino).is_ok());
    while world.fs.reap_orphans(10) {}
    assert_eq!(world.fs.getattr(ino), Err(Errno::NOENT));
    world.check();
}

#[test]
fn a_file_made_without_a_name_may_get_one() {
    let world = World::new(1);
    let fs = &world.fs;
    let ino = fs.tmpfile(&USER, ROOT, 0o600).unwrap().ino;
    world.check();
    assert_eq!(fs.link(ino, ROOT, b"now").unwrap().nlink, 1);
    fs.release(ino, 1);
    fs.free_unused();
    assert_eq!(fs.lookup(ROOT, b"now").unwrap().ino, ino);
    let unnamed = fs.tmpfile(&USER, ROOT, 0o600).unwrap().ino;
    assert!(fs.release(unnamed, 1));
    fs.free_unused();
    assert_eq!(fs.getattr(unnamed), Err(Errno::NOENT));
    world.check();
}

#[test]
fn a_set_gid_directory_hands_its_group_down() {
    let world = World::new(1);
    let fs = &world.fs;
    let owner = Caller { uid: 1, gid: 42, umask: 0 };
    let dir = fs.mkdir(&owner, ROOT, b"d", 0o2775).unwrap();
    assert_eq!(dir.mode, 0o2775);
    let below = fs.mkdir(&USER, dir.ino, b"below", 0o755).unwrap();
    assert_eq!((below.uid, below.gid, below.mode), (1000, 42, 0o2755));
    let file = fs.create(&USER, dir.ino, b"file", 0o644, true).unwrap();
    assert_eq!((file.gid, file.mode), (42, 0o644));
}

#[test]
fn set_id_bits_and_capabilities_do_not_outlive_a_change() {
    let world = World::new(1);
    let fs = &world.fs;
    let ino = fs.create(&USER, ROOT, b"a", 0o6755, true).unwrap().ino;
    fs.setxattr(ino, b"security.capability", b"all", SetXattr::Any).unwrap();
    fs.write(ino, 0, b"x", false).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().mode, 0o6755);
    assert_eq!(fs.getxattr(ino, b"security.capability"), Err(Errno::NODATA));
    fs.write(ino, 0, b"x", true).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().mode, 0o755);
    let set = |mode, uid, gid| SetAttr { mode, uid, gid, ..SetAttr::default() };
    fs.setattr(&USER, ino, &set(Some(0o6745), None, None)).unwrap();
    // A set-group bit without group execution has another meaning, and stays.
    assert_eq!(fs.setattr(&USER, ino, &set(None, None, Some(7))).unwrap().mode, 0o2745);
    assert_eq!(fs.setattr(&USER, ino, &set(Some(0o4755), Some(8), None)).unwrap().mode, 0o4755);
    world.check();
}

#[test]
fn times_are_set_as_requested() {
    let world = World::new(1);
    let fs = &world.fs;
    let ino = fs.create(&USER, ROOT, b"a", 0o644, true).unwrap().ino;
    let set = SetAttr { atime: Some(SetTime::At(-5)), mtime: Some(SetTime::At(7)), ..SetAttr::default() };
    let attr = fs.setattr(&USER, ino, &set).unwrap();
    assert_eq!((attr.atime, attr.mtime), (-5, 7));
    assert!(attr.ctime > attr.crtime);
    fs.write(ino, 0, b"x", false).unwrap();
    let written = fs.getattr(ino).unwrap();
    assert!(written.mtime > attr.ctime && written.mtime == written.ctime);
    fs.read(ino, 0, 1, &mut Vec::new()).unwrap();
    let first = fs.getattr(ino).unwrap().atime;
    assert!(first > written.mtime, "the first reading after a change counts");
    fs.read(ino, 0, 1, &mut Vec::new()).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().atime, first, "the second does not");
}

#[test]
fn nothing_changes_a_read_only_file_system() {
    let world = World::new(1);
    let fs = &world.fs;
    let ino = fs.create(&USER, ROOT, b"a", 0o644, true).unwrap().ino;
    let mut options = fs.options();
    options.readonly = true;
    fs.set_options(options);
    assert_eq!(fs.create(&USER, ROOT, b"b", 0o644, true), Err(Errno::ROFS));
    assert_eq!(fs.write(ino, 0, b"x", false), Err(Errno::ROFS));
    assert_eq!(fs.unlink(ROOT, b"a"), Err(Errno::ROFS));
    assert_eq!(fs.setxattr(ino, b"user.a", b"", SetXattr::Any), Err(Errno::ROFS));
    assert_eq!(fs.setattr(&USER, ino, &SetAttr::default()), Err(Errno::ROFS));
    assert!(!fs.reap_orphans(10));
    assert!(fs.lookup(ROOT, b"a").is_ok());
}

#[test]
fn a_directory_that_changes_is_read_without_repetition_or_loss() {
    let world = World::new(1);
    let fs = &world.fs;
    let name = |index: u32| format!("file {index}").into_bytes();
    for index in 0..1000 {
        fs.create(&USER, ROOT, &name(index), 0o644, true).unwrap();
    }
    let mut seen = Vec::new();
    fs.readdir(ROOT, 0, &mut |entry| {
        seen.push(entry.name.to_vec());
        // Removes each file after its entry is returned, as `rm -r` does, and adds new files.
        if entry.name.starts_with(b"file") {
            fs.unlink(ROOT, entry.name).unwrap();
            fs.create(&USER, ROOT, &[b"new ", entry.name].concat(), 0o644, true).unwrap();
        }
        true
    })
    .unwrap();
    seen.retain(|name| name.starts_with(b"file"));
    seen.sort();
    let mut expected: Vec<Vec<u8>> = (0..1000).map(name).collect();
    expected.sort();
    assert_eq!(seen, expected);
    world.check();
}
