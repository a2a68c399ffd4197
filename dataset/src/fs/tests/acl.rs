//! Access control lists and modes, each following the other.

use super::world::World;
use crate::fs::{
    Caller, Errno, FileType, Ino, Options, ROOT, SetAttr, SetXattr,
    acl::{ACCESS, Acl, AclEntry, DEFAULT, Who},
};

const USER: Caller = Caller { uid: 1000, gid: 100, umask: 0o077 };

fn acl(entries: &[(Who, u8)]) -> Acl {
    Acl::new(entries.iter().map(|&(who, permissions)| AclEntry { who, permissions }).collect()).unwrap()
}

fn named() -> Acl {
    acl(&[(Who::Owner, 7), (Who::User(5), 6), (Who::Group, 5), (Who::Mask, 6), (Who::Other, 4)])
}

fn found(world: &World, ino: Ino, name: &[u8]) -> Result<Acl, Errno> {
    Ok(Acl::decode(&world.fs.getxattr(ino, name)?).unwrap().expect("no empty list is stored"))
}

fn mode(world: &World, ino: Ino) -> u16 {
    world.fs.getattr(ino).unwrap().mode
}

#[test]
fn a_list_and_the_mode_follow_each_other() {
    let world = World::new(1);
    let fs = &world.fs;
    let ino = fs.create(&Caller::default(), ROOT, b"file", 0o2600, true).unwrap().ino;
    fs.setxattr(ino, ACCESS, &named().encode(), SetXattr::Any).unwrap();
    assert_eq!(mode(&world, ino), 0o2764);
    let changed = fs.setattr(&USER, ino, &SetAttr { mode: Some(0o640), ..SetAttr::default() }).unwrap();
    assert_eq!(changed.mode, 0o640);
    let followed = [(Who::Owner, 6), (Who::User(5), 6), (Who::Group, 5), (Who::Mask, 4), (Who::Other, 0)];
    assert_eq!(found(&world, ino, ACCESS).unwrap(), acl(&followed));
    assert_eq!(fs.listxattr(ino).unwrap(), [ACCESS]);

    fs.setxattr(ino, ACCESS, &acl(&[(Who::Owner, 4), (Who::Group, 4), (Who::Other, 4)]).encode(), SetXattr::Any)
        .unwrap();
    assert_eq!((mode(&world, ino), found(&world, ino, ACCESS)), (0o444, Err(Errno::NODATA)), "the mode says it all");
    fs.setxattr(ino, ACCESS, &named().encode(), SetXattr::Any).unwrap();
    fs.removexattr(ino, ACCESS).unwrap();
    assert_eq!((mode(&world, ino), fs.removexattr(ino, ACCESS)), (0o764, Ok(())), "there need be none");
    assert_eq!(fs.removexattr(ino, DEFAULT), Ok(()));
    world.check();
}

#[test]
fn the_set_group_bit_goes_if_the_caller_says_so() {
    let world = World::new(1);
    let fs = &world.fs;
    let ino = fs.create(&Caller::default(), ROOT, b"file", 0o2755, true).unwrap().ino;
    fs.set_acl(ino, ACCESS, &named().encode(), false).unwrap();
    assert_eq!(mode(&world, ino), 0o2764);
    fs.set_acl(ino, ACCESS, &named().encode(), true).unwrap();
    assert_eq!(mode(&world, ino), 0o764);
}

#[test]
fn new_files_inherit_the_default_list() {
    let world = World::new(1);
    let fs = &world.fs;
    let dir = fs.mkdir(&Caller::default(), ROOT, b"dir", 0o755).unwrap().ino;
    fs.setxattr(dir, DEFAULT, &named().encode(), SetXattr::Any).unwrap();
    assert_eq!(mode(&world, dir), 0o755, "a default list is not about the directory itself");

    let file = fs.create(&USER, dir, b"file", 0o666, true).unwrap();
    assert_eq!(file.mode, 0o664, "the list takes the umask's place");
    let expected = [(Who::Owner, 6), (Who::User(5), 6), (Who::Group, 5), (Who::Mask, 6), (Who::Other, 4)];
    assert_eq!(found(&world, file.ino, ACCESS).unwrap(), acl(&expected));
    assert_eq!(found(&world, file.ino, DEFAULT), Err(Errno::NODATA));

    let sub = fs.mkdir(&USER, dir, b"sub", 0o1700).unwrap();
    assert_eq!((sub.mode, found(&world, sub.ino, DEFAULT)), (0o1700, Ok(named())));
    let fifo = fs.mknod(&USER, sub.ino, b"fifo", FileType::Fifo, 0o640, 0).unwrap();
    assert_eq!((fifo.mode, found(&world, fifo.ino, ACCESS).is_ok()), (0o640, true));
    let link = fs.symlink(&USER, sub.ino, b"link", b"to").unwrap();
    assert_eq!((link.mode, fs.listxattr(link.ino)), (0o777, Ok(vec![])));
    let orphan = fs.tmpfile(&USER, dir, 0o600).unwrap();
    assert_eq!((orphan.mode, found(&world, orphan.ino, ACCESS).is_ok()), (0o600, true));
    assert!(fs.release(orphan.ino, 1));
    fs.free_unused();

    fs.setxattr(dir, DEFAULT, b"", SetXattr::Any).unwrap();
    assert_eq!(fs.create(&USER, dir, b"masked", 0o666, true).unwrap().mode, 0o600);
    assert_eq!(fs.symlink(&USER, dir, b"link", b"to").unwrap().mode, 0o777);
    world.check();
}

#[test]
fn a_default_list_of_three_entries_makes_modes_only() {
    let world = World::new(1);
    let fs = &world.fs;
    let plain = acl(&[(Who::Owner, 7), (Who::Group, 5), (Who::Other, 0)]);
    fs.setxattr(ROOT, DEFAULT, &plain.encode(), SetXattr::Any).unwrap();
    let sub = fs.mkdir(&USER, ROOT, b"sub", 0o777).unwrap();
    assert_eq!((sub.mode, fs.listxattr(sub.ino)), (0o750, Ok(vec![DEFAULT.to_vec()])));
}

#[test]
fn invalid_lists_are_refused() {
    let world = World::new(1);
    let fs = &world.fs;
    let file = fs.create(&USER, ROOT, b"file", 0o644, true).unwrap().ino;
    let link = fs.symlink(&USER, ROOT, b"link", b"to").unwrap().ino;
    let set = |ino, name: &[u8], value: &[u8]| fs.setxattr(ino, name, value, SetXattr::Any);
    assert_eq!(set(file, ACCESS, b"\x02\0\0\0garbage!"), Err(Errno::INVAL));
    assert_eq!(set(file, DEFAULT, &named().encode()), Err(Errno::ACCESS));
    assert_eq!(set(file, DEFAULT, b""), Ok(()));
    assert_eq!(set(link, ACCESS, &named().encode()), Err(Errno::OPNOTSUPP));
    assert_eq!(set(file, b"system.posix_acl_other", b""), Err(Errno::OPNOTSUPP));
    assert_eq!(mode(&world, file), 0o600);
}

#[test]
fn without_lists_they_are_hidden_and_go_on_following_the_mode() {
    let world = World::new(1);
    let fs = &world.fs;
    let dir = fs.mkdir(&USER, ROOT, b"dir", 0o755).unwrap().ino;
    fs.setxattr(dir, DEFAULT, &named().encode(), SetXattr::Any).unwrap();
    fs.setxattr(dir, ACCESS, &named().encode(), SetXattr::Any).unwrap();
    fs.set_options(Options { acl: false, ..fs.options() });
    assert_eq!(fs.listxattr(dir), Ok(vec![]));
    assert_eq!(fs.getxattr(dir, ACCESS), Err(Errno::OPNOTSUPP));
    assert_eq!(fs.setxattr(dir, ACCESS, &named().encode(), SetXattr::Any), Err(Errno::OPNOTSUPP));
    assert_eq!(fs.removexattr(dir, DEFAULT), Err(Errno::OPNOTSUPP));
    let file = fs.create(&USER, dir, b"file", 0o666, true).unwrap();
    assert_eq!(file.mode, 0o600);
    fs.setattr(&USER, dir, &SetAttr { mode: Some(0o700), ..SetAttr::default() }).unwrap();
    fs.set_options(Options { acl: true, ..fs.options() });
    assert_eq!(found(&world, dir, ACCESS).unwrap().mode(), 0o700);
    assert_eq!(found(&world, file.ino, ACCESS), Err(Errno::NODATA));
}
