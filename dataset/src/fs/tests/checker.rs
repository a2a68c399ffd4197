//! Each finding of the checker, planted.

use std::collections::BTreeSet;

use pool::{format::key::Key, tree::Block};

use super::world::World;
use crate::{
    fs::{
        Caller, FileType, Ino, ROOT, SetXattr,
        change::Change,
        check::{self, Problem},
        directory::{Dirent, window},
        failure::Failure,
        file::extent::Extent,
        inode::{Link, flag},
        key::{self, EXTENT},
        link,
        master::Master,
        xattr,
    },
    property::OwnerKind,
};

/// The inode numbers of a tree with a file, and a directory in a directory.
const FILE: Ino = 2;
const DIR: Ino = 3;
const BELOW: Ino = 4;

fn world() -> World {
    let world = World::new(1);
    let (fs, caller) = (&world.fs, Caller::default());
    assert_eq!(fs.create(&caller, ROOT, b"file", 0o644, true).unwrap().ino, FILE);
    assert_eq!(fs.mkdir(&caller, ROOT, b"dir", 0o755).unwrap().ino, DIR);
    assert_eq!(fs.mkdir(&caller, DIR, b"below", 0o755).unwrap().ino, BELOW);
    fs.write(FILE, 0, &[1; 6000], false).unwrap();
    fs.link(FILE, DIR, b"other").unwrap();
    fs.setxattr(FILE, b"user.a", &[1; 3000], SetXattr::Any).unwrap();
    world.check();
    world
}

/// The findings after `plant` has changed the tree.
fn found(plant: impl Fn(&mut Change<'_>, &World) -> Result<(), Failure>) -> Vec<Problem> {
    let world = world();
    world.fs.update_tree(|change| plant(change, &world)).unwrap();
    check::check(&world.head).unwrap().into_iter().map(|finding| finding.problem).collect()
}

/// Plants the problem with the given number.
fn plant(number: u16, change: &mut Change<'_>, world: &World) -> Result<(), Failure> {
    let seed = world.fs.seed();
    let master = |files, next| Master { next, files, seed }.encode();
    let dirent = |ino, file_type, name| Dirent { ino, file_type, name }.encode();
    match number {
        1 => {
            change.put(key::extent(FILE, 4096), [9], None);
            change.edit(FILE)?.bytes -= 6000 - 4096;
        }
        2 => change.put(Key::new(0, 0x77, 1), [], None),
        3 => change.delete(key::master()),
        4 => {
            change.delete(key::inode(ROOT));
            change.put(key::master(), master(3, 5), None);
        }
        5 => change.put(key::master(), master(4, 4), None),
        6 => change.put(key::master(), master(9, 5), None),
        7 => {
            change.put(key::master(), master(4, 9), None);
            let (body, block) = entry(change, key::extent(FILE, 4096));
            change.put(key::extent(7, 4096), body, block.as_ref());
        }
        8 => change.edit(FILE)?.nlink = 5,
        9 => change.edit(DIR)?.size = 7,
        10 => change.put(key::dirent(ROOT, 7), dirent(FILE, FileType::Regular, b"lost"), None),
        11 => {
            let at = window(seed, ROOT, b"ghost").start;
            change.put(key::dirent(ROOT, at), dirent(99, FileType::Regular, b"ghost"), None);
        }
        12 => {
            let at = window(seed, ROOT, b"file").start;
            change.put(key::dirent(ROOT, at), dirent(FILE, FileType::Fifo, b"file"), None);
        }
        13 => change.edit(FILE)?.parent = Link { dir: ROOT, offset: 5 },
        14 => {
            let other = Link { dir: DIR, offset: window(seed, DIR, b"other").start };
            change.delete(Key::new(FILE, key::PARENT, link::window(FILE, other).start));
        }
        15 => change.edit(DIR)?.parent.dir = BELOW,
        16 => change.edit(FILE)?.bytes += 1,
        17 => {
            put_part(change, 4000, 10, 0);
            change.edit(FILE)?.bytes += 10;
        }
        18 => {
            put_part(change, 9000, 10, 0);
            change.edit(FILE)?.bytes += 10;
        }
        19 => {
            change.delete(key::extent(FILE, 0));
            put_part(change, 4000, 1904, 0);
            change.delete(key::extent(FILE, 4096));
            change.edit(FILE)?.bytes = 1904;
        }
        20 => put_part(change, 4096, 1904, 10),
        21 => change.put(key::orphan(FILE), [], None),
        22 => change.edit(FILE)?.set(flag::TRUNCATING, true),
        23 => {
            let (body, block) = entry(change, Key::new(FILE, key::XATTR, xattr::window(FILE, b"user.a").start));
            assert!(block.is_some(), "a large attribute has a block of its own");
            let name = xattr::Xattr::decode(&body).expect("a good attribute");
            let capability = xattr::Xattr { name: xattr::CAPABILITY, ..name };
            let at = xattr::window(FILE, xattr::CAPABILITY).start;
            change.put(Key::new(FILE, key::XATTR, at), capability.encode(), block.as_ref());
        }
        24 => change.account(OwnerKind::Group.key(7))?.used.bytes = 9,
        number => panic!("nobody plants F{number:02}"),
    }
    Ok(())
}

/// The problems that necessarily accompany a problem.
fn with_it(number: u16) -> &'static [u16] {
    match number {
        // Every path to the root now leads nowhere.
        4 => &[7],
        // An additional entry, and an additional name.
        10 => &[8, 9, 14],
        11 => &[5, 7, 9],
        // The name used instead is not claimed.
        13 => &[14],
        15 => &[13, 14],
        _ => &[],
    }
}

#[test]
fn each_problem_is_planted_and_seen_as_itself() {
    let mut wrong = Vec::new();
    for &number in Problem::NUMBERS {
        let seen: BTreeSet<u16> =
            found(|change, world| plant(number, change, world)).iter().map(Problem::number).collect();
        if seen != with_it(number).iter().copied().chain([number]).collect() {
            wrong.push((number, seen));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn entry(change: &Change<'_>, key: Key) -> (Vec<u8>, Option<Block>) {
    let entry = change.view.get(key).ok().flatten().unwrap();
    (entry.body().to_vec(), entry.block())
}

fn put_part(change: &mut Change<'_>, offset: u64, len: u32, start: u32) {
    let (_, block) = entry(change, key::extent(FILE, 4096));
    change.put(key::extent(FILE, offset), Extent::Part { len, start }.encode(), block.as_ref());
}

#[test]
fn the_dataset_itself_is_judged() {
    let found = found(|change, world| {
        change.put(key::master(), Master { next: 4, files: 9, seed: world.fs.seed() }.encode(), None);
        change.put(Key::new(0, 0x77, 1), [], None);
        Ok(())
    });
    assert_eq!(found, [Problem::Stray(Key::new(0, 0x77, 1)), Problem::Files(9, 4), Problem::BeyondNext]);
}

#[test]
fn a_missing_master_and_root_are_found() {
    let found = found(|change, _| {
        change.delete(key::master());
        change.delete(key::inode(ROOT));
        Ok(())
    });
    assert!(found.contains(&Problem::NoMaster));
    assert!(found.contains(&Problem::NoInode));
}

#[test]
fn counts_of_inodes_are_judged() {
    let found = found(|change, _| {
        change.edit(FILE)?.nlink = 5;
        change.edit(FILE)?.bytes += 1;
        change.edit(DIR)?.size = 7;
        change.edit(BELOW)?.nlink = 3;
        Ok(())
    });
    let expected = [Problem::Bytes(6001, 6000), Problem::Entries(7, 2), Problem::Links(3, 2), Problem::Links(5, 2)];
    assert_eq!(found, expected);
}

#[test]
fn garbage_is_found_and_not_believed() {
    let found = found(|change, _| {
        change.put(key::inode(BELOW), [1, 2, 3], None);
        change.put(key::extent(FILE, 4096), [9], None);
        Ok(())
    });
    for garbage in [key::extent(FILE, 4096), key::inode(BELOW)] {
        assert!(found.iter().any(|problem| matches!(problem, Problem::Malformed(key, _) if *key == garbage)));
    }
}

#[test]
fn entries_are_judged() {
    let link = |world: &World, name: &[u8]| Link { dir: ROOT, offset: window(world.fs.seed(), ROOT, name).start };
    let world = world();
    let (ghost, twin) = (link(&world, b"ghost"), link(&world, b"twin"));
    let found = found(|change, _| {
        let ghostly = Dirent { ino: 99, file_type: FileType::Regular, name: b"ghost" };
        change.put(key::dirent(ROOT, ghost.offset), ghostly.encode(), None);
        let wrong = Dirent { ino: FILE, file_type: FileType::Fifo, name: b"twin" };
        change.put(key::dirent(ROOT, twin.offset), wrong.encode(), None);
        let lost = Dirent { ino: FILE, file_type: FileType::Regular, name: b"lost" };
        change.put(key::dirent(ROOT, 7), lost.encode(), None);
        Ok(())
    });
    for problem in [
        Problem::Misplaced(key::dirent(ROOT, 7)),
        Problem::Dangling(ghost),
        Problem::EntryType(twin),
        Problem::Entries(2, 5),
        Problem::Links(2, 4),
        Problem::Names(2, 4),
        Problem::NoInode,
    ] {
        assert!(found.contains(&problem), "{problem:?} in {found:?}");
    }
}

#[test]
fn a_claimed_name_and_a_loop_are_found() {
    let claimed = Link { dir: ROOT, offset: 5 };
    let found = found(|change, _| {
        change.edit(FILE)?.parent = claimed;
        change.edit(DIR)?.parent.dir = BELOW;
        Ok(())
    });
    assert!(found.contains(&Problem::NotItsName(claimed)));
    assert_eq!(found.iter().filter(|problem| **problem == Problem::Unreachable).count(), 2);
}

#[test]
fn extents_are_judged() {
    let overlapping = found(|change, _| {
        put_part(change, 4000, 10, 0);
        Ok(())
    });
    assert_eq!(overlapping, [Problem::Overlap(4000), Problem::Bytes(6000, 6010)]);
    let outside = found(|change, _| {
        put_part(change, 9000, 10, 0);
        Ok(())
    });
    assert_eq!(outside, [Problem::BeyondEnd(9000), Problem::Bytes(6000, 6010)]);
    let across = found(|change, _| {
        change.delete(key::extent(FILE, 0));
        put_part(change, 4000, 1904, 0);
        change.delete(key::extent(FILE, 4096));
        change.edit(FILE)?.bytes = 1904;
        Ok(())
    });
    assert_eq!(across, [Problem::AcrossRecords(4000)]);
    let short = found(|change, _| {
        put_part(change, 4096, 1904, 10);
        Ok(())
    });
    assert_eq!(short, [Problem::Block(Key::new(FILE, EXTENT, 4096))]);
}

#[test]
fn marks_and_their_items_go_together() {
    let found = found(|change, _| {
        change.put(key::orphan(FILE), [], None);
        change.edit(FILE)?.set(flag::TRUNCATING, true);
        Ok(())
    });
    assert_eq!(found, [Problem::Orphan, Problem::Truncating]);
}

#[test]
fn unmarked_capabilities_are_found() {
    let world = world();
    world.fs.setxattr(FILE, b"security.capability", b"x", SetXattr::Any).unwrap();
    world
        .fs
        .update_tree(|change| {
            change.edit(FILE)?.set(flag::CAPABILITY, false);
            Ok(())
        })
        .unwrap();
    let found = check::check(&world.head).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].to_string(), "F23 object 2: it has capabilities and is not marked so");
}
