//! Requests of the kernel, and what the kernel caches.

use std::{
    collections::HashSet,
    fs::{self, File, OpenOptions},
    io::{ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use dataset::admin::{Differing, Replaced};
use dataset::fs::{Attribute, Caller, FileAttributes, FileSystem, ROOT};
use dataset::property::SnapDir;
use fuse_mount::Opcode;
use vmap::MapMut;

use crate::{names, support::Mounted};

fn ino(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

#[test]
fn open_and_close_need_no_request_with_snapdir_disabled() {
    let Some(mounted) = Mounted::with(|options| options.snapdir = SnapDir::Disabled) else { return };
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
fn a_direct_file_is_not_cached_and_others_are() {
    let prepare = |files: &FileSystem| {
        for name in [&b"direct"[..], b"cached"] {
            let ino = files.create(&Caller::default(), ROOT, name, 0o644, true).unwrap().ino;
            files.write(ino, 0, &[7; 10_000], false).unwrap();
            let turn = |attributes: &mut FileAttributes| {
                attributes.turn(Attribute::Direct, name == b"direct");
                Ok(())
            };
            files.set_file_attributes(ino, turn).unwrap();
        }
    };
    let Some(mounted) = Mounted::prepared(prepare, |_| {}) else { return };
    let reads_again = |name: &str| {
        let path = mounted.path().join(name);
        assert_eq!(fs::read(&path).unwrap(), [7; 10_000]);
        let before = mounted.mount.counters().get(Opcode::Read);
        assert_eq!(fs::read(&path).unwrap(), [7; 10_000]);
        mounted.mount.counters().get(Opcode::Read) > before
    };
    assert!(reads_again("direct") && !reads_again("cached"));
    fs::write(mounted.path().join("direct"), [7; 10_000]).unwrap();
    assert!(reads_again("direct"));
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
    change.finish(&Replaced::Everything);

    assert_eq!(names(root), ["before"]);
    assert_eq!(names(&root.join("before")), ["deleted", "kept"]);
    assert_eq!(fs::read(root.join("before/kept")).unwrap(), b"before");
    assert_eq!(fs::read(root.join("before/deleted")).unwrap(), b"x");
    assert!(!root.join("before/new").exists());
    assert!(!root.join("d").exists());
    let stale = open.write(b"into a file that is gone").unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::StaleNetworkFileHandle);
    // May reuse the number of the removed file.
    fs::write(root.join("before/newer"), b"untouched").unwrap();
    assert!(open.write(b"into a file that is gone").is_err());
    assert_eq!(fs::read(root.join("before/newer")).unwrap(), b"untouched");
}

/// Only what differs is invalidated; nothing else is requested again.
#[test]
fn a_change_that_is_known_costs_nothing_else() {
    let Some(mounted) = Mounted::new() else { return };
    let root = mounted.path();
    fs::create_dir(root.join("d")).unwrap();
    for name in ["d/kept", "d/changed", "d/deleted"] {
        fs::write(root.join(name), b"before").unwrap();
    }
    let before = mounted.remember();
    let objects = [ROOT, ino(root), ino(&root.join("d")), ino(&root.join("d/changed")), ino(&root.join("d/deleted"))];
    fs::write(root.join("d/changed"), b"after it").unwrap();
    fs::remove_file(root.join("d/deleted")).unwrap();
    fs::write(root.join("new"), b"x").unwrap();
    let open = OpenOptions::new().write(true).open(root.join("new")).unwrap();
    let objects = objects.into_iter().chain([ino(&root.join("new"))]).collect();
    assert!(!root.join("d/deleted").exists());
    assert_eq!(fs::read(root.join("d/changed")).unwrap(), b"after it");
    assert_eq!(fs::read(root.join("d/kept")).unwrap(), b"before");
    let names = [(ROOT, b"new".to_vec()), (ino(&root.join("d")), b"deleted".to_vec())].into();
    // All files are closed, with their pages cached.
    let change = mounted.mount.begin_change();
    mounted.roll_back(before);
    change.finish(&Replaced::Only(Differing { objects, names }));

    let counters = mounted.mount.counters();
    let asked = || [Opcode::Lookup, Opcode::GetAttr, Opcode::Read].map(|opcode| counters.get(opcode));
    let before = asked();
    assert_eq!(fs::read(root.join("d/kept")).unwrap(), b"before");
    assert_eq!(asked()[0], before[0], "its name is known");
    assert_eq!(asked()[2], before[2], "and its content");
    assert_eq!(fs::read(root.join("d/changed")).unwrap(), b"before");
    assert_eq!(fs::read(root.join("d/deleted")).unwrap(), b"before");
    assert!(!root.join("new").exists());
    let stale = open.set_len(0).unwrap_err();
    assert_eq!(stale.kind(), ErrorKind::StaleNetworkFileHandle);
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
    change.finish(&Replaced::Everything);

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
    let attr = mounted.file_system.create(&Caller::default(), ROOT, b"f", 0o644, true).unwrap();
    mounted.file_system.write(attr.ino, 0, b"one", false).unwrap();
    mounted.mount.entry_changed(ROOT, b"f");
    assert_eq!(fs::read(&path).unwrap(), b"one");
    mounted.file_system.write(attr.ino, 0, b"other", false).unwrap();
    mounted.mount.object_changed(attr.ino);
    assert_eq!(fs::read(&path).unwrap(), b"other");
}

/// The kernel need not wait by itself: `syncfs` on a FUSE mount may start to write, and return.
#[test]
fn writing_back_ends_when_the_file_system_has_everything() {
    const SIZE: usize = 4 << 20;
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path().join("file");
    fs::write(&path, vec![b'.'; SIZE]).unwrap();
    let (mut map, _) = MapMut::with_options().open(&path).unwrap();
    let quiet = mounted.file_system.head().exclude_changes();
    map.fill(b'm');
    let has_ended = AtomicBool::new(false);
    let was_early = thread::scope(|scope| {
        scope.spawn(|| {
            mounted.mount.write_back();
            has_ended.store(true, Ordering::Release);
        });
        thread::sleep(Duration::from_millis(300));
        // Until now no write was possible.
        let was_early = has_ended.load(Ordering::Acquire);
        drop(quiet);
        was_early
    });
    let ino = mounted.file_system.lookup(ROOT, b"file").unwrap().ino;
    let mut stored = Vec::new();
    mounted.file_system.read(ino, 0, SIZE, &mut stored).unwrap();
    let missing = stored.iter().filter(|byte| **byte != b'm').count();
    // A process that exits with dirty pages of its own mount waits for itself: so write everything back first.
    drop(map);
    File::open(&path).unwrap().sync_all().unwrap();
    assert_eq!((was_early, stored.len(), missing), (false, SIZE, 0));
}
