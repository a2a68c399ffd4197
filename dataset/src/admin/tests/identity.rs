//! Handles of files, used after a rollback of their file system.

use rustix::io::Errno;

use super::world::World;
use crate::fs::{Attr, Caller, FileSystem, Handle, ROOT, SetAttr};

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0 };

fn make(fs: &FileSystem, name: &[u8]) -> Attr {
    fs.create(&CALLER, ROOT, name, 0o600, true).unwrap()
}

fn content(fs: &FileSystem, attr: &Attr) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    fs.read(attr.ino, 0, 100, &mut bytes).map(|()| bytes)
}

/// A file found before a rollback, the file system at that time, and another file with the same number after the
/// rollback.
struct Replaced {
    world: World,
    found: Attr,
    handle: Handle,
    pinned: FileSystem,
    other: Attr,
}

impl Replaced {
    fn new(seed: u64) -> Replaced {
        let world = World::new(seed);
        world.create("tank/a").unwrap();
        world.snapshot("tank/a@0").unwrap();
        let fs = world.fs("tank/a");
        let (epoch, pinned) = (fs.epoch(), fs.pinned());
        let found = make(&fs, b"found");
        fs.write(found.ino, 0, b"found", false).unwrap();
        world.rollback("tank/a@0", false, false).unwrap();
        let other = make(&fs, b"other");
        fs.write(other.ino, 0, b"other", false).unwrap();
        assert_eq!(other.ino, found.ino, "the number is used again");
        Replaced { world, found, handle: Handle::new(&found, epoch), pinned, other }
    }
}

#[test]
fn a_number_that_another_file_has_is_stale() {
    let Replaced { world, found, handle, pinned, other } = Replaced::new(201);
    let fs = world.fs("tank/a");
    let owned = SetAttr { uid: Some(7), mode: Some(0o4755), ..SetAttr::default() };
    for stale in [fs.only([handle]), pinned] {
        assert_eq!(content(&stale, &found), Err(Errno::STALE));
        assert_eq!(stale.write(found.ino, 0, b"lost", false), Err(Errno::STALE));
        assert_eq!(stale.setattr(&CALLER, found.ino, &owned), Err(Errno::STALE));
        assert_eq!(stale.setattr(&CALLER, found.ino, &SetAttr { size: Some(0), ..owned }), Err(Errno::STALE));
        assert_eq!(stale.link(found.ino, ROOT, b"name"), Err(Errno::STALE));
        assert_eq!(stale.setxattr(found.ino, b"user.a", b"1", crate::fs::SetXattr::Any), Err(Errno::STALE));
        assert_eq!(stale.set_file_attributes(found.ino, |_| Ok(())), Err(Errno::STALE));
        assert_eq!(stale.copy_range_from(&fs, other.ino, 0, found.ino, 10, 5), Err(Errno::STALE));
        assert_eq!(fs.copy_range_from(&stale, found.ino, 0, other.ino, 10, 5), Err(Errno::STALE));
        assert_eq!(stale.readdir_plus(ROOT, 0, &mut |_, _| true), Err(Errno::STALE));
    }
    assert_eq!(content(&fs, &other), Ok(b"other".to_vec()));
    let now = fs.getattr(other.ino).unwrap();
    assert_eq!((now.mode, now.uid, now.nlink), (0o600, 0, 1));
}

#[test]
fn a_file_that_is_gone_is_stale_and_no_empty_file() {
    let world = World::new(202);
    world.create("tank/a").unwrap();
    world.snapshot("tank/a@0").unwrap();
    let fs = world.fs("tank/a");
    let handle = Handle::new(&make(&fs, b"found"), fs.epoch());
    world.rollback("tank/a@0", false, false).unwrap();
    assert_eq!(fs.only([handle]).getattr(handle.ino()), Err(Errno::STALE));
}

#[test]
fn the_same_file_goes_on_with_its_new_content() {
    let world = World::new(203);
    world.create("tank/a").unwrap();
    let fs = world.fs("tank/a");
    let (kept, changed) = (make(&fs, b"kept"), make(&fs, b"changed"));
    for file in [kept, changed] {
        fs.write(file.ino, 0, b"old", false).unwrap();
    }
    world.snapshot("tank/a@0").unwrap();
    fs.write(changed.ino, 0, b"new", false).unwrap();
    let epoch = fs.epoch();
    let handles = [kept, changed].map(|file| {
        let attr = fs.getattr(file.ino).unwrap();
        (Handle::new(&attr, epoch), Handle::new(&attr, epoch).unreplaced(&attr))
    });
    let pinned = fs.pinned();
    world.rollback("tank/a@0", false, false).unwrap();
    assert_ne!(fs.epoch(), epoch);
    let [kept_handles, changed_handles] = handles;
    assert_eq!(content(&fs.only([kept_handles.0]), &kept), Ok(b"old".to_vec()));
    assert_eq!(content(&fs.only([kept_handles.1]), &kept), Ok(b"old".to_vec()));
    assert_eq!(content(&fs.only([changed_handles.0]), &changed), Ok(b"old".to_vec()));
    // A caller that has read the beginning would continue in other content.
    assert_eq!(content(&fs.only([changed_handles.1]), &changed), Err(Errno::STALE));
    // A view bound to its tree fails for every file after a replacement.
    assert_eq!(content(&pinned, &kept), Err(Errno::STALE));
    assert_eq!(content(&pinned.pinned(), &kept), Err(Errno::STALE));
    // Within one tree a file may change.
    let now = fs.getattr(kept.ino).unwrap();
    let reading = fs.only([Handle::new(&now, fs.epoch()).unreplaced(&now)]);
    fs.write(kept.ino, 0, b"more", false).unwrap();
    assert_eq!(content(&reading, &kept), Ok(b"more".to_vec()));
}
