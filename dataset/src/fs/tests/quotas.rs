//! Writes under a quota: never charged more than the bytes asked for, whatever happens to the records, and done as far
//! as the quota allows.

use std::{
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use super::{
    accounts::{ANN, BOB, file, limit, owner, used},
    world::World,
};
use crate::{
    fs::{Amount, Attribute, Errno, FallocateFlags, Ino, Project, ROOT, Room, SetAttr, failure::Failure},
    property::OwnerKind::{Project as OfProject, User},
};

/// The record size of the tests' file system.
const RECORD: u64 = 4096;
/// The most pieces of a record.
const PIECES: u64 = 12;
const PUNCH: FallocateFlags = FallocateFlags { keep_size: true, punch_hole: true, zero_range: false };

/// The offset of a piece in a record with holes between its pieces.
fn place(record: u64, piece: u64) -> u64 {
    record * RECORD + piece * 300
}

/// A file with the given number of records, each in the maximal number of three-byte pieces; with its content.
fn spread(world: &World, name: &[u8], records: u64) -> (Ino, Vec<u8>) {
    let ino = file(world, &ANN, name, 0);
    let mut content = vec![0; place(records - 1, PIECES - 1) as usize + 3];
    for piece in 0..PIECES {
        for at in (0..records).rev().map(|record| place(record, piece)) {
            write(world, ino, &mut content, at, &[7; 3]);
        }
        // Later writes do not edit the committed blocks.
        world.commit();
    }
    (ino, content)
}

fn write(world: &World, ino: Ino, content: &mut [u8], at: u64, data: &[u8]) {
    assert_eq!(world.fs.write(ino, at, data, false), Ok(data.len()));
    content[at as usize..][..data.len()].copy_from_slice(data);
}

fn expect(world: &World, ino: Ino, content: &[u8]) {
    world.commit();
    world.evict();
    let mut read = Vec::new();
    world.fs.read(ino, 0, content.len() + 1, &mut read).unwrap();
    assert!(read == content, "content differs");
    world.check();
}

/// Removes a file with so many pieces that the content is freed later.
fn leave_behind(world: &World, caller: &crate::fs::Caller, name: &[u8]) {
    let ino = file(world, caller, name, 0);
    (0..200).for_each(|index| assert_eq!(world.fs.write(ino, index * 140_000, &[7; 1000], false), Ok(1000)));
    world.fs.unlink(ROOT, name).unwrap();
}

#[test]
fn holes_stay_if_a_quota_has_no_room_to_fill_them() {
    const RECORDS: u64 = 10;
    let world = World::new(11);
    let fs = &world.fs;
    let (ino, mut content) = spread(&world, b"spread", RECORDS);
    let (before, _) = used(&world, User, 1000);
    assert_eq!(before, RECORDS * PIECES * 3);
    limit(&world, User, 1000, before, 0);
    // One piece more than the maximum: the record is rewritten.
    for record in 0..RECORDS {
        write(&world, ino, &mut content, place(record, 5) + 1, &[8]);
        assert_eq!(used(&world, User, 1000).0, before);
        assert_eq!(fs.write(ino, place(record, 5) + 100, &[9; 100], false), Err(Errno::DQUOT));
    }
    expect(&world, ino, &content);
    for record in 0..RECORDS {
        fs.fallocate(ino, PUNCH, place(record, 7) + 1, 1).unwrap();
        content[place(record, 7) as usize + 1] = 0;
        assert_eq!(used(&world, User, 1000).0, before - record - 1);
    }
    for record in 0..RECORDS {
        write(&world, ino, &mut content, place(record, 9) + 100, &[6]);
        assert_eq!(fs.write(ino, place(record, 7) + 100, &[9; 100], false), Err(Errno::DQUOT));
    }
    assert_eq!(used(&world, User, 1000).0, before);
    expect(&world, ino, &content);
    limit(&world, User, 1000, 0, 0);
    write(&world, ino, &mut content, place(3, 3) + 1, &[5]);
    expect(&world, ino, &content);
}

#[test]
fn a_rewrite_from_inline_is_not_charged_for_a_hole() {
    let world = World::new(12);
    let ino = file(&world, &ANN, b"small", 10);
    limit(&world, User, 1000, 11, 0);
    let mut content = vec![7; 10];
    content.resize(3001, 0);
    write(&world, ino, &mut content, 3000, &[8]);
    assert_eq!(used(&world, User, 1000).0, 11);
    expect(&world, ino, &content);
}

#[test]
fn a_small_file_is_not_charged_for_its_hole() {
    let world = World::new(20);
    let ino = file(&world, &ANN, b"small", 0);
    limit(&world, User, 1000, 1, 0);
    let mut content = vec![0; 1001];
    write(&world, ino, &mut content, 1000, &[8]);
    assert_eq!(used(&world, User, 1000).0, 1);
    expect(&world, ino, &content);
}

#[test]
fn a_quota_keeps_no_record_in_too_many_pieces() {
    let world = World::new(21);
    let ino = file(&world, &ANN, b"file", 0);
    limit(&world, User, 1000, 1000, 0);
    let mut content = vec![0; RECORD as usize];
    write(&world, ino, &mut content, RECORD - 1, &[8]);
    let refused = (0..RECORD / 4).find(|index| {
        let written = world.fs.write(ino, index * 4, &[9], false);
        written.map(|_| content[*index as usize * 4] = 9) == Err(Errno::DQUOT)
    });
    assert_eq!(refused, Some(255), "each further change would look at all pieces");
    expect(&world, ino, &content);
    // With room for the whole record, the record becomes one piece.
    limit(&world, User, 1000, RECORD, 0);
    write(&world, ino, &mut content, 2000, &[7]);
    assert_eq!(used(&world, User, 1000).0, RECORD);
    expect(&world, ino, &content);
}

#[test]
fn whole_records_of_zeros_are_holes_to_a_quota_too() {
    let world = World::new(13);
    let ino = file(&world, &ANN, b"file", RECORD as usize * 2);
    limit(&world, User, 1000, RECORD * 2, 0);
    let mut content = vec![7; RECORD as usize * 6];
    write(&world, ino, &mut content, RECORD * 2, &[0; RECORD as usize * 4]);
    assert_eq!(used(&world, User, 1000).0, RECORD * 2);
    write(&world, ino, &mut content, 0, &[0; RECORD as usize]);
    assert_eq!(used(&world, User, 1000).0, RECORD);
    write(&world, ino, &mut content, RECORD * 4, &[9; RECORD as usize]);
    expect(&world, ino, &content);
}

/// A room that refuses everything.
struct NoRoom;

impl Room for NoRoom {
    fn admit(&self, _: u64) -> Result<(), Errno> {
        Err(Errno::DQUOT)
    }

    fn look_for(&self, _: u64) -> Result<(), Errno> {
        Ok(())
    }

    fn space(&self) -> (u64, u64) {
        (0, 0)
    }
}

#[test]
fn a_quota_frees_only_files_charged_to_it() {
    let world = World::new(14);
    let ino = file(&world, &ANN, b"ann", 1000);
    leave_behind(&world, &BOB, b"bob");
    let behind = used(&world, User, 1001);
    assert_eq!(behind.1, 1);
    limit(&world, User, 1000, 1000, 1);
    assert_eq!(world.fs.write(ino, 1000, &[7; 10], false), Err(Errno::DQUOT));
    assert_eq!(world.fs.create(&ANN, ROOT, b"second", 0o644, true).map(drop), Err(Errno::DQUOT));
    assert_eq!(used(&world, User, 1001), behind, "somebody else's is left to the background");
    world.check();
}

#[test]
fn a_quota_waits_for_a_file_about_to_be_released() {
    let world = World::new(22);
    let fs = &world.fs;
    let ino = file(&world, &ANN, b"old", 1000);
    limit(&world, User, 1000, 0, 1);
    fs.retain(ino);
    fs.unlink(ROOT, b"old").unwrap();
    let (refused, was_refused) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            was_refused.recv().unwrap();
            assert!(fs.release(ino, 1));
        });
        let made = fs.under_quota_within(Duration::from_secs(600), || {
            let made = fs.try_update(|change| change.account(User.key(1000)).map(|account| account.used.objects));
            match made? {
                0 => Ok(()),
                _ => {
                    let _ = refused.send(());
                    Err(Failure::Exceeded(User.key(1000)))
                }
            }
        });
        assert_eq!(made, Ok(()));
    });
    world.check();
}

#[test]
fn a_quota_of_the_dataset_has_removed_files_freed() {
    let world = World::new(17);
    let ino = file(&world, &BOB, b"bob", 1000);
    limit(&world, User, 1001, 0, 0);
    leave_behind(&world, &BOB, b"large");
    let behind = used(&world, User, 1001);
    assert_eq!(behind.1, 2);
    world.fs.set_room(Arc::new(NoRoom));
    assert_eq!(world.fs.write(ino, 0, &[7; 10], false), Err(Errno::DQUOT));
    assert_eq!(used(&world, User, 1001).1, 1, "the file that was left behind is gone");
    world.check();
}

#[test]
fn a_new_owners_unlinked_files_are_freed_first() {
    let world = World::new(15);
    let bobs = file(&world, &BOB, b"bobs", 1000);
    leave_behind(&world, &ANN, b"large");
    limit(&world, User, 1000, 1000, 1);
    world.fs.setattr(&BOB, bobs, &owner(1000)).unwrap();
    assert_eq!(used(&world, User, 1000), (1000, 1));

    let dir = world.fs.mkdir(&BOB, ROOT, b"dir", 0o755).unwrap().ino;
    world.fs.set_project(dir, Project { id: 7, inherit: true }).unwrap();
    limit(&world, OfProject, 7, 1000, 2);
    let unlinked = world.fs.create(&BOB, dir, b"unlinked", 0o644, true).unwrap().ino;
    limit(&world, OfProject, 7, 200_000, 2);
    (0..200).for_each(|index| assert_eq!(world.fs.write(unlinked, index * 140_000, &[7; 1000], false), Ok(1000)));
    world.fs.unlink(dir, b"unlinked").unwrap();
    world.fs.set_project(bobs, Project { id: 7, inherit: false }).unwrap();
    assert_eq!(used(&world, OfProject, 7), (1000, 2));
    world.check();
}

#[test]
fn attributes_and_project_are_set_together_or_not_at_all() {
    let world = World::new(20);
    let fs = &world.fs;
    let ino = file(&world, &ANN, b"file", 1000);
    let set = |immutable, id| {
        fs.set_attributes_and_project(ino, |attributes, project| {
            attributes.turn(Attribute::Immutable, immutable);
            project.id = id;
            Ok(())
        })
    };
    limit(&world, OfProject, 7, 10, 0);
    assert_eq!(set(true, 7), Err(Errno::DQUOT));
    assert!(!fs.file_attributes(ino).unwrap().has(Attribute::Immutable), "half of it would be done");
    assert_eq!(set(true, 8), Ok(()));
    assert_eq!(set(true, 9), Err(Errno::PERM));
    assert_eq!((fs.project(ino).unwrap().id, used(&world, OfProject, 8)), (8, (1000, 1)));
    assert_eq!(set(false, 9), Ok(()));
    assert_eq!(used(&world, OfProject, 9), (1000, 1));
    world.check();
}

#[test]
fn who_waits_no_more_has_nothing_counted() {
    let world = World::new(21);
    file(&world, &ANN, b"file", 1000);
    assert_eq!(world.fs.account_while(User, 1000, &|| false), Err(Errno::INTR));
    assert_eq!(world.fs.accounts_while(User, &|| false), Err(Errno::INTR));
    assert_eq!(world.fs.quota(User, 1000), Ok(Amount::default()));
    limit(&world, User, 1000, 5000, 2);
    assert_eq!(world.fs.account_while(User, 1000, &|| false).unwrap().used.bytes, 1000);
    assert_eq!(world.fs.quota(User, 1000), Ok(Amount { bytes: 5000, objects: 2 }));
}

#[test]
fn a_copy_is_made_as_far_as_it_fits() {
    let world = World::new(16);
    let (one, two) = (file(&world, &ANN, b"one", 40_960), file(&world, &BOB, b"two", 0));
    world.commit();
    limit(&world, User, 1001, 20_000, 0);
    assert_eq!(world.fs.copy_range(one, 0, two, 0, 40_960), Ok(20_000));
    assert_eq!(world.fs.copy_range(one, 0, two, 20_000, 10), Err(Errno::DQUOT));
    assert_eq!(used(&world, User, 1001), (20_000, 1));
    world.fs.setattr(&BOB, two, &SetAttr { size: Some(0), ..SetAttr::default() }).unwrap();
    limit(&world, User, 1001, 40_960, 0);
    assert_eq!(world.fs.copy_range(one, 0, two, 0, 40_960), Ok(40_960));
    world.check();
}

#[test]
fn no_more_is_allocated_than_a_quota_admits() {
    let world = World::new(23);
    let ino = file(&world, &ANN, b"file", 1000);
    limit(&world, User, 1000, 2000, 0);
    let allocate = |offset, len| world.fs.fallocate(ino, FallocateFlags::default(), offset, len);
    assert_eq!(allocate(0, 2001), Err(Errno::DQUOT));
    assert_eq!(allocate(5000, 1001), Err(Errno::DQUOT));
    assert_eq!(world.fs.getattr(ino).unwrap().size, 1000);
    assert_eq!(allocate(500, 1500), Ok(()));
    assert_eq!(allocate(5000, 1000), Ok(()));
    assert_eq!(used(&world, User, 1000).0, 1000);
    world.check();
}
