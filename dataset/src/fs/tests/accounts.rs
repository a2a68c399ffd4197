//! Accounts and quotas of users, groups and projects: always exact, and refusing operations that would exceed a quota.

use std::sync::atomic::Ordering;

use pool::{
    format::label::PROJECT_QUOTA,
    tree::{Batch, View},
    txg::Plain,
};

use super::world::World;
use crate::{
    fs::{
        Account, Amount, Caller, Errno, FallocateFlags, Ino, Options, Project, ROOT, RenameFlags, SetAttr, SetQuota,
        account::ledger::{ALL, encode_below},
        key,
    },
    property::OwnerKind,
};
use OwnerKind::{Group, Project as OfProject, User};

pub(super) const ANN: Caller = Caller { uid: 1000, gid: 100, umask: 0o022 };
pub(super) const BOB: Caller = Caller { uid: 1001, gid: 100, umask: 0o022 };

pub(super) fn file(world: &World, caller: &Caller, name: &[u8], len: usize) -> Ino {
    let ino = world.fs.create(caller, ROOT, name, 0o644, true).unwrap().ino;
    assert_eq!(world.fs.write(ino, 0, &vec![7; len], false), Ok(len));
    ino
}

pub(super) fn used(world: &World, kind: OwnerKind, id: u32) -> (u64, u64) {
    let Amount { bytes, objects } = world.fs.account(kind, id).unwrap().used;
    (bytes, objects)
}

pub(super) fn limit(world: &World, kind: OwnerKind, id: u32, bytes: u64, objects: u64) {
    world.fs.set_quota(kind, id, SetQuota { bytes: Some(bytes), objects: Some(objects) }).unwrap();
}

pub(super) fn owner(uid: u32) -> SetAttr {
    SetAttr { uid: Some(uid), ..SetAttr::default() }
}

#[test]
fn old_inodes_are_counted_and_new_ones_charged() {
    let world = World::new(1);
    let fs = &world.fs;
    for index in 0..600u32 {
        let caller = if index % 3 == 0 { &ANN } else { &BOB };
        file(&world, caller, format!("old{index}").as_bytes(), 10);
    }
    assert_eq!((used(&world, User, 1000), used(&world, User, 1001)), ((2000, 200), (4000, 400)));
    assert!(!world.engine.is_active(PROJECT_QUOTA), "who only asks changes nothing");
    limit(&world, Group, 7, 0, 0);
    assert!(world.engine.is_active(PROJECT_QUOTA));
    assert_eq!((used(&world, User, 1000), used(&world, User, 1001)), ((2000, 200), (4000, 400)));
    assert_eq!((used(&world, Group, 100), used(&world, OfProject, 0)), ((6000, 600), (6000, 601)));
    let large = file(&world, &ANN, b"large", 100_000);
    assert_eq!(used(&world, User, 1000), (102_000, 201));
    world.check();

    fs.setattr(&ANN, large, &SetAttr { size: Some(50_000), ..SetAttr::default() }).unwrap();
    fs.fallocate(large, FallocateFlags { punch_hole: true, keep_size: true, ..FallocateFlags::default() }, 0, 4096)
        .unwrap();
    assert_eq!(used(&world, User, 1000), (2000 + 50_000 - 4096, 201));
    fs.setattr(&ANN, large, &owner(1001)).unwrap();
    assert_eq!((used(&world, User, 1000), used(&world, User, 1001)), ((2000, 200), (4000 + 50_000 - 4096, 401)));
    fs.rename(ROOT, b"old1", ROOT, b"large", RenameFlags::default()).unwrap();
    while fs.reap_orphans(100) {}
    assert_eq!(used(&world, User, 1001), (4000, 400));
    world.check();

    let world = world.reopen();
    for index in 0..600u32 {
        let _ = world.fs.unlink(ROOT, format!("old{index}").as_bytes());
    }
    world.fs.unlink(ROOT, b"large").unwrap();
    while world.fs.reap_orphans(100) {}
    assert_eq!(world.fs.accounts(User).unwrap().len(), 1, "who has nothing has no account");
    assert_eq!(used(&world, Group, 100), (0, 0));
    world.check();
}

#[test]
fn a_quota_refuses_the_call_that_would_exceed_it() {
    let world = World::new(2);
    let fs = &world.fs;
    let (ann, bob) = (file(&world, &ANN, b"ann", 6000), file(&world, &BOB, b"bob", 6000));
    limit(&world, User, 1000, 10_000, 2);
    assert_eq!(fs.write(ann, 6000, &[1; 4000], false), Ok(4000));
    assert_eq!(fs.write(ann, 10_000, &[1], false), Err(Errno::DQUOT));
    assert_eq!(fs.write(ann, 0, &[2; 10_000], false), Ok(10_000), "that adds nothing");
    let mut read = Vec::new();
    fs.read(ann, 0, 20_000, &mut read).unwrap();
    assert!(read == [2; 10_000], "what was refused has changed nothing");
    assert_eq!(fs.write(ann, 5000, &[3; 5001], false), Ok(5000), "what still fits is written");
    assert_eq!(fs.write(bob, 6000, &[1; 40_000], false), Ok(40_000));

    assert_eq!(fs.setattr(&BOB, bob, &owner(1000)).map(drop), Err(Errno::DQUOT));
    fs.mkdir(&ANN, ROOT, b"dir", 0o755).unwrap();
    assert_eq!(fs.mkdir(&ANN, ROOT, b"more", 0o755).map(drop), Err(Errno::DQUOT));
    assert_eq!(fs.symlink(&ANN, ROOT, b"link", b"there").map(drop), Err(Errno::DQUOT));
    fs.unlink(ROOT, b"ann").unwrap();
    assert_eq!(fs.setattr(&BOB, bob, &owner(1000)).map(drop), Err(Errno::DQUOT), "it is too large");
    fs.setattr(&BOB, bob, &SetAttr { size: Some(10_000), ..SetAttr::default() }).unwrap();
    fs.setattr(&BOB, bob, &owner(1000)).unwrap();

    // A quota below the usage refuses growth, but removes nothing.
    limit(&world, User, 1000, 1, 0);
    assert_eq!(fs.write(bob, 0, b"new", false), Ok(3));
    assert_eq!(fs.write(bob, 10_000, b"new", false), Err(Errno::DQUOT));
    limit(&world, User, 1000, 0, 0);
    limit(&world, Group, 100, 10_100, 0);
    assert_eq!(fs.write(bob, 10_000, &[1; 99], false), Ok(99));
    assert_eq!(fs.write(bob, 10_099, &[1; 2], false), Ok(1));
    assert_eq!(fs.write(bob, 10_100, &[1], false), Err(Errno::DQUOT));
    limit(&world, Group, 100, 20_000, 0);
    assert_eq!(fs.write_back(bob, 10_100, &[1; 20_000], false), Err(Errno::DQUOT), "it is not all written");
    assert_eq!(fs.getattr(bob).unwrap().size, 20_000);
    assert_eq!(fs.write_back(bob, 0, &[2; 20_000], false), Ok(()));
    world.check();
}

#[test]
fn an_unlinked_file_makes_room_at_once() {
    let world = World::new(6);
    let fs = &world.fs;
    let ino = file(&world, &ANN, b"large", 0);
    // Too many pieces to be freed together with the name.
    (0..200).for_each(|index| assert_eq!(fs.write(ino, index * 140_000, &[7; 1000], false), Ok(1000)));
    limit(&world, User, 1000, 200_000, 1);
    fs.unlink(ROOT, b"large").unwrap();
    let ino = fs.create(&ANN, ROOT, b"second", 0o644, true).unwrap().ino;
    assert_eq!(fs.write(ino, 0, &[8; 200_000], false), Ok(200_000));
    assert_eq!(used(&world, User, 1000), (200_000, 1));
    fs.retain(ino);
    fs.unlink(ROOT, b"second").unwrap();
    assert_eq!(fs.create(&ANN, ROOT, b"third", 0o644, true).map(drop), Err(Errno::DQUOT), "it is still in use");
    assert!(fs.release(ino, 1));
    fs.create(&ANN, ROOT, b"third", 0o644, true).unwrap();
    world.check();
}

#[test]
fn the_first_count_goes_on_where_a_crash_has_stopped_it() {
    let world = World::new(9);
    let files: Vec<Ino> = (0..600u32).map(|index| file(&world, &ANN, format!("f{index}").as_bytes(), 10)).collect();
    world.fs.use_accounts().unwrap();
    assert_eq!(world.fs.count_step(), Ok(true));
    world.check();
    let world = world.reopen();
    let fs = &world.fs;
    // Inodes already charged, and inodes not yet charged.
    for index in [5, 500] {
        fs.write(files[index], 0, &[1; 30], false).unwrap();
        fs.setattr(&BOB, files[index + 1], &owner(1001)).unwrap();
        fs.unlink(ROOT, format!("f{}", index + 2).as_bytes()).unwrap();
    }
    file(&world, &BOB, b"more", 10);
    world.check();
    assert_eq!((used(&world, User, 1000), used(&world, User, 1001)), ((6000, 596), (30, 3)));
    limit(&world, User, 1000, 0, 0);
    assert_eq!((used(&world, User, 1000), used(&world, User, 1001)), ((6000, 596), (30, 3)));
    world.check();
}

#[test]
fn the_first_quota_comes_while_files_are_changed() {
    const ROUNDS: u32 = 400;
    let world = World::new(10);
    (0..1000u32).for_each(|index| assert!(file(&world, &ANN, format!("f{index}").as_bytes(), 10) > 0));
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let fs = &world.fs;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let old = format!("f{}", (round * 2 + thread) % 1000);
                    let ino = fs.lookup(ROOT, old.as_bytes()).unwrap().ino;
                    fs.write(ino, 0, &[1; 20], false).unwrap();
                    fs.setattr(&BOB, ino, &owner(1001)).unwrap();
                    let made = fs.create(&ANN, ROOT, format!("new{thread}").as_bytes(), 0o644, true).unwrap().ino;
                    fs.write(made, 0, &[1; 5000], false).unwrap();
                    fs.unlink(ROOT, format!("new{thread}").as_bytes()).unwrap();
                }
            });
        }
        limit(&world, User, 1000, 0, 0);
    });
    let changed = u64::from(2 * ROUNDS);
    assert_eq!(used(&world, User, 1000), (10 * (1000 - changed), 1000 - changed));
    assert_eq!(used(&world, User, 1001), (20 * changed, changed));
    world.check();
}

#[test]
fn a_tree_in_the_place_of_another_is_counted_from_its_beginning() {
    let world = World::new(8);
    for index in 0..600u32 {
        file(&world, &ANN, format!("f{index}").as_bytes(), 10);
    }
    let fs = &world.fs;
    fs.use_accounts().unwrap();
    assert_eq!(fs.count_step(), Ok(true));
    // As after a stream that has brought a tree without accounts.
    fs.tree_replaced().unwrap();
    fs.write(fs.lookup(ROOT, b"f5").unwrap().ino, 0, &[1; 20], false).unwrap();
    assert_eq!(fs.count_step(), Ok(true));
    file(&world, &ANN, b"more", 10);
    limit(&world, User, 1000, 0, 0);
    assert_eq!(used(&world, User, 1000), (6020, 601));
    world.check();
}

#[test]
fn a_tree_that_cannot_be_read_is_taken_to_keep_accounts() {
    let world = World::new(19);
    let put = |_: &View<'_>, batch: &mut Batch| {
        batch.put(key::accounting(), encode_below(0), None);
        batch.put(key::master(), b"what no master item is", None);
        Ok::<_, Plain>(())
    };
    world.head.update(put).unwrap();
    assert_eq!(world.fs.tree_replaced(), Err(Errno::IO));
    assert!(world.fs.accounted.load(Ordering::Acquire), "each change looks for itself");
}

#[test]
fn accounts_that_came_along_have_the_feature_named() {
    let world = World::new(18);
    file(&world, &ANN, b"file", 10);
    // As after a stream that has brought accounts without activating the feature.
    let root = Account { used: Amount { bytes: 0, objects: 1 }, quota: Amount::default() };
    let ann = Account { used: Amount { bytes: 10, objects: 1 }, quota: Amount::default() };
    let all = Account { used: Amount { bytes: 10, objects: 2 }, quota: Amount::default() };
    let owners = [(User, 0, root), (User, 1000, ann), (Group, 0, root), (Group, 100, ann), (OfProject, 0, all)];
    let put = |_: &View<'_>, batch: &mut Batch| {
        batch.put(key::accounting(), encode_below(ALL), None);
        owners.iter().for_each(|(kind, id, account)| batch.put(kind.key(*id), account.encode(), None));
        Ok::<_, Plain>(())
    };
    world.head.update(put).unwrap();
    // The feature was not activated for the new tree.
    assert!(!world.engine.is_active(PROJECT_QUOTA));
    limit(&world, User, 1000, 500, 0);
    assert!(world.engine.is_active(PROJECT_QUOTA));
    file(&world, &ANN, b"more", 3);
    assert_eq!(used(&world, User, 1000), (13, 2));
    world.check();
}

#[test]
fn accounts_and_quotas_survive_a_reopen_and_copies_are_charged() {
    let world = World::new(3);
    let (one, two) = (file(&world, &ANN, b"one", 40_960), file(&world, &BOB, b"two", 1));
    limit(&world, User, 1001, 41_000, 0);
    world.commit();
    let world = world.reopen();
    let expected = Account { used: Amount { bytes: 1, objects: 1 }, quota: Amount { bytes: 41_000, objects: 0 } };
    assert_eq!(world.fs.account(User, 1001), Ok(expected));
    assert_eq!(world.fs.copy_range(one, 0, two, 0, 40_960), Ok(40_960));
    assert_eq!(used(&world, User, 1001), (40_960, 1), "shared or not");
    assert_eq!(world.fs.copy_range(one, 0, two, 40_960, 40_960), Ok(40), "what fits is copied");
    assert_eq!(world.fs.copy_range(one, 0, two, 41_000, 40_960), Err(Errno::DQUOT));
    assert_eq!(used(&world, User, 1001), (41_000, 1));
    world.check();
}

#[test]
fn where_nothing_can_be_kept_it_is_counted() {
    let world = World::new(4);
    file(&world, &ANN, b"one", 10);
    let fs = &world.fs;
    fs.set_options(Options { accounts: false, ..fs.options() });
    assert_eq!(fs.set_quota(User, 1000, SetQuota::default()), Err(Errno::OPNOTSUPP));
    assert_eq!(used(&world, User, 1000), (10, 1));
    fs.set_options(Options { accounts: true, readonly: true, ..fs.options() });
    assert_eq!(fs.set_quota(User, 1000, SetQuota::default()), Err(Errno::ROFS));
    assert_eq!(used(&world, User, 1000), (10, 1));
    assert!(!world.engine.is_active(PROJECT_QUOTA));
    fs.set_options(Options { readonly: false, ..fs.options() });
    limit(&world, User, 1000, 5, 0);
    fs.set_options(Options { readonly: true, ..fs.options() });
    let expected = Account { used: Amount { bytes: 10, objects: 1 }, quota: Amount { bytes: 5, objects: 0 } };
    assert_eq!(fs.account(User, 1000), Ok(expected));
    world.check();
}

#[test]
fn a_project_is_handed_down_and_kept_apart() {
    let world = World::new(5);
    let fs = &world.fs;
    let dir = fs.mkdir(&ANN, ROOT, b"dir", 0o755).unwrap().ino;
    let before = fs.create(&ANN, dir, b"before", 0o644, true).unwrap().ino;
    fs.set_project(dir, Project { id: 7, inherit: true }).unwrap();
    assert_eq!(fs.set_project(before, Project { id: 7, inherit: true }), Err(Errno::OPNOTSUPP));
    let below = fs.mkdir(&ANN, dir, b"below", 0o755).unwrap().ino;
    let inside = fs.create(&ANN, below, b"inside", 0o644, true).unwrap().ino;
    assert_eq!(fs.project(below), Ok(Project { id: 7, inherit: true }));
    assert_eq!(fs.project(inside), Ok(Project { id: 7, inherit: false }));
    assert_eq!(fs.project(before), Ok(Project::default()));

    file(&world, &ANN, b"other", 10);
    assert_eq!(fs.rename(ROOT, b"other", dir, b"other", RenameFlags::default()), Err(Errno::XDEV));
    let exchange = RenameFlags { exchange: true, ..RenameFlags::default() };
    assert_eq!(fs.rename(below, b"inside", ROOT, b"other", exchange), Err(Errno::XDEV));
    assert_eq!(fs.link(fs.lookup(ROOT, b"other").unwrap().ino, dir, b"other").map(drop), Err(Errno::XDEV));
    fs.rename(below, b"inside", ROOT, b"inside", RenameFlags::default()).unwrap();
    assert_eq!(fs.project(inside), Ok(Project { id: 7, inherit: false }), "it leaves with what it is");

    limit(&world, OfProject, 7, 100, 3);
    assert_eq!(used(&world, OfProject, 7), (0, 3));
    assert_eq!(fs.create(&BOB, below, b"more", 0o644, true).map(drop), Err(Errno::DQUOT));
    assert_eq!(fs.write(inside, 0, &[1; 101], false), Ok(100));
    assert_eq!(fs.write(inside, 100, &[1], false), Err(Errno::DQUOT));
    assert_eq!(fs.set_project(before, Project { id: 7, inherit: false }), Err(Errno::DQUOT));
    fs.set_project(inside, Project::default()).unwrap();
    fs.set_project(before, Project { id: 7, inherit: false }).unwrap();
    world.check();
}
