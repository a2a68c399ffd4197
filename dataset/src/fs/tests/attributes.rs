//! Attributes of single files: their restrictions, inheritance, and effects on blocks.

use pool::{block::compression::CompressionChoice, format::pointer::Compression};

use super::world::World;
use crate::fs::{
    Attribute, Caller, Errno, FallocateFlags, FileType, Ino, Options, ROOT, RenameFlags, SetAttr, SetTime, SetXattr,
    key,
};

const USER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };

fn turn(world: &World, ino: Ino, attribute: Attribute, value: &str) {
    set(world, ino, attribute, value).unwrap();
}

fn set(world: &World, ino: Ino, attribute: Attribute, value: &str) -> Result<(), Errno> {
    world.fs.set_file_attributes(ino, |attributes| attributes.set(attribute, value).ok_or(Errno::INVAL))
}

fn get(world: &World, ino: Ino, attribute: Attribute) -> String {
    world.fs.file_attributes(ino).unwrap().get(attribute)
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

/// Makes every change of `file` in `dir` except to its content, and returns the results.
fn change_all(world: &World, dir: Ino, ino: Ino) -> Vec<Result<(), Errno>> {
    let fs = &world.fs;
    vec![
        fs.unlink(dir, b"file"),
        fs.rename(dir, b"file", dir, b"other", RenameFlags::default()),
        fs.rename(dir, b"other", dir, b"file", RenameFlags::default()),
        fs.rename(dir, b"other", dir, b"file", RenameFlags { exchange: true, ..RenameFlags::default() }),
        fs.link(ino, dir, b"linked").map(drop),
        fs.setattr(&USER, ino, &mode(0o600)).map(drop),
        fs.setattr(&USER, ino, &SetAttr { uid: Some(0), ..SetAttr::default() }).map(drop),
        fs.setattr(&USER, ino, &SetAttr { mtime: Some(SetTime::At(1)), ..SetAttr::default() }).map(drop),
        fs.setattr(&USER, ino, &SetAttr { size: Some(1), ..SetAttr::default() }).map(drop),
        fs.setxattr(ino, b"user.a", b"b", SetXattr::Any),
        fs.removexattr(ino, b"user.there"),
    ]
}

/// A file with content and an extended attribute, and a second file.
fn furnished() -> (World, Ino) {
    let world = World::new(1);
    let ino = world.fs.create(&USER, ROOT, b"file", 0o644, true).unwrap().ino;
    world.fs.create(&USER, ROOT, b"other", 0o644, true).unwrap();
    world.fs.write(ino, 0, b"content", false).unwrap();
    world.fs.setxattr(ino, b"user.there", b"1", SetXattr::Any).unwrap();
    (world, ino)
}

#[test]
fn an_immutable_file_stays_unchanged() {
    let (world, ino) = furnished();
    let fs = &world.fs;
    turn(&world, ino, Attribute::Immutable, "on");
    let before = fs.getattr(ino).unwrap();

    assert_eq!(change_all(&world, ROOT, ino), [Err(Errno::PERM); 11]);
    let touched = fs.setattr(&USER, ino, &SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() });
    assert_eq!(touched, Err(Errno::PERM));
    assert_eq!(fs.write(ino, 7, b"x", false), Err(Errno::PERM));
    let punch = FallocateFlags { punch_hole: true, keep_size: true, ..FallocateFlags::default() };
    assert_eq!(fs.fallocate(ino, punch, 0, 4096), Err(Errno::PERM));
    assert_eq!(fs.fallocate(ino, FallocateFlags::default(), 0, 4096), Err(Errno::PERM));
    assert_eq!(fs.getattr(ino).unwrap(), before);

    let dir = fs.mkdir(&USER, ROOT, b"dir", 0o755).unwrap().ino;
    let inside = fs.create(&USER, dir, b"file", 0o644, true).unwrap().ino;
    turn(&world, dir, Attribute::Immutable, "on");
    assert_eq!(fs.create(&USER, dir, b"new", 0o644, true), Err(Errno::PERM));
    assert_eq!(fs.create(&USER, dir, b"file", 0o644, true), Err(Errno::EXIST));
    assert_eq!(fs.unlink(dir, b"file"), Err(Errno::PERM));
    assert_eq!(fs.unlink(dir, b"none"), Err(Errno::NOENT));
    assert_eq!(fs.link(inside, dir, b"linked"), Err(Errno::PERM));
    assert_eq!(fs.rename(dir, b"file", ROOT, b"out", RenameFlags::default()), Err(Errno::PERM));
    assert_eq!(fs.rename(ROOT, b"other", dir, b"in", RenameFlags::default()), Err(Errno::PERM));
    assert_eq!(fs.tmpfile(&USER, dir, 0o600), Err(Errno::PERM));
    assert_eq!(fs.write(inside, 0, b"x", false), Ok(1), "what is in it is another file");

    turn(&world, ino, Attribute::Immutable, "off");
    fs.unlink(ROOT, b"file").unwrap();
    world.check();
}

#[test]
fn an_append_only_file_only_grows() {
    let (world, ino) = furnished();
    let fs = &world.fs;
    turn(&world, ino, Attribute::Append, "on");
    assert_eq!(change_all(&world, ROOT, ino), [Err(Errno::PERM); 11]);
    assert_eq!(fs.write(ino, 3, b"x", false), Err(Errno::PERM));
    assert_eq!(fs.write(ino, 8, b"x", false), Err(Errno::PERM));
    let zero = FallocateFlags { zero_range: true, ..FallocateFlags::default() };
    assert_eq!(fs.fallocate(ino, zero, 0, 3), Err(Errno::PERM));
    // More than one step writes.
    assert_eq!(fs.write(ino, 7, &vec![b'x'; 5 << 20], false), Ok(5 << 20));
    assert!(fs.setattr(&USER, ino, &SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() }).is_ok());

    let dir = fs.mkdir(&USER, ROOT, b"dir", 0o755).unwrap().ino;
    turn(&world, dir, Attribute::Append, "on");
    fs.create(&USER, dir, b"file", 0o644, true).unwrap();
    fs.rename(ROOT, b"other", dir, b"moved", RenameFlags::default()).unwrap();
    assert_eq!(fs.unlink(dir, b"file"), Err(Errno::PERM));
    assert_eq!(fs.rename(dir, b"file", dir, b"renamed", RenameFlags::default()), Err(Errno::PERM));
    assert_eq!(fs.rename(dir, b"file", dir, b"moved", RenameFlags::default()), Err(Errno::PERM));
    world.check();
}

#[test]
fn a_directory_passes_on_attributes_of_content() {
    let world = World::new(1);
    let fs = &world.fs;
    for (attribute, value) in [
        (Attribute::Compression, "zstd-9"),
        (Attribute::RecordSize, "16384"),
        (Attribute::Direct, "on"),
        (Attribute::NoDump, "on"),
        (Attribute::NoAtime, "on"),
        (Attribute::Append, "on"),
    ] {
        turn(&world, ROOT, attribute, value);
    }
    let dir = fs.mkdir(&USER, ROOT, b"dir", 0o755).unwrap().ino;
    let file = fs.create(&USER, dir, b"file", 0o644, true).unwrap();
    let link = fs.symlink(&USER, dir, b"link", b"to").unwrap().ino;
    let fifo = fs.mknod(&USER, dir, b"fifo", FileType::Fifo, 0o644, 0).unwrap().ino;
    let shown = |ino| Attribute::ALL.map(|attribute| get(&world, ino, attribute)).join(" ");
    assert_eq!(shown(ROOT), "off on on on zstd-9 16384 on");
    assert_eq!((shown(dir), shown(file.ino)), (shown(dir), "off off on on zstd-9 16384 on".into()));
    assert_eq!((shown(link), shown(fifo)), ("off off on on - - off".into(), "off off on on - - off".into()));
    assert_eq!(file.block_size, 16384);
    assert!(fs.has_direct_files().unwrap());

    assert_eq!(set(&world, link, Attribute::NoDump, "off"), Err(Errno::OPNOTSUPP));
    assert_eq!(set(&world, fifo, Attribute::Compression, "lz4"), Err(Errno::OPNOTSUPP));
    assert_eq!(set(&world, fifo, Attribute::Immutable, "on"), Ok(()));
    world.commit();
    let world = world.reopen();
    let shown = |ino| Attribute::ALL.map(|attribute| get(&world, ino, attribute)).join(" ");
    assert_eq!(shown(file.ino), "off off on on zstd-9 16384 on");
    world.check();
}

#[test]
fn values_of_a_files_own_count_for_its_blocks() {
    let world = World::new(1);
    let fs = &world.fs;
    let (text, size) = (b"compressible ".repeat(8000), 16384);
    let block = |ino| {
        let first = |view: &pool::tree::View<'_>| Ok(view.get(key::extent(ino, 0))?.and_then(|entry| entry.block()));
        world.commit();
        fs.read_tree(first).unwrap().and_then(|block| block.pointer()).unwrap()
    };
    let plain = fs.create(&USER, ROOT, b"plain", 0o644, true).unwrap().ino;
    fs.write(plain, 0, &text, false).unwrap();
    assert_eq!(block(plain).logical, 4096);

    let own = fs.create(&USER, ROOT, b"own", 0o644, true).unwrap().ino;
    turn(&world, own, Attribute::Compression, "gzip-3");
    turn(&world, own, Attribute::RecordSize, &size.to_string());
    fs.write(own, 0, &text, false).unwrap();
    assert_eq!((block(own).compression, block(own).logical), (Compression::Zlib, size));
    turn(&world, own, Attribute::Compression, "off");
    turn(&world, own, Attribute::RecordSize, "inherit");
    fs.write(own, 0, &text[..size as usize], false).unwrap();
    assert_eq!((block(own).compression, block(own).logical), (Compression::Off, size), "records stay as they are");
    assert_eq!(fs.file_attributes(own).unwrap().compression(), Some(CompressionChoice::Off));

    turn(&world, own, Attribute::Direct, "on");
    world.evict();
    let mut read = Vec::new();
    fs.read(own, 0, text.len(), &mut read).unwrap();
    assert!(read == text);
    world.check();
}

#[test]
fn reading_leaves_the_access_time_alone() {
    let world = World::new(1);
    let fs = &world.fs;
    let ino = fs.create(&USER, ROOT, b"file", 0o644, true).unwrap().ino;
    turn(&world, ino, Attribute::NoAtime, "on");
    let before = fs.getattr(ino).unwrap().atime;
    let mut read = Vec::new();
    fs.read(ino, 0, 10, &mut read).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().atime, before);
    turn(&world, ino, Attribute::NoAtime, "off");
    fs.read(ino, 0, 10, &mut read).unwrap();
    assert!(fs.getattr(ino).unwrap().atime > before);
}

#[test]
fn the_feature_is_activated_only_if_enabled_and_needed() {
    let world = World::new(1);
    let fs = &world.fs;
    let active = || world.engine.is_active(pool::format::label::FILE_ATTRIBUTES);
    fs.set_options(Options { attributes: false, ..fs.options() });
    assert_eq!(set(&world, ROOT, Attribute::NoDump, "on"), Err(Errno::OPNOTSUPP));
    assert_eq!(set(&world, ROOT, Attribute::NoDump, "off"), Ok(()), "that changes nothing");
    assert_eq!(set(&world, ROOT, Attribute::NoDump, "perhaps"), Err(Errno::INVAL));
    fs.set_options(Options { attributes: true, ..fs.options() });
    assert!(!active());
    let before = fs.getattr(ROOT).unwrap().ctime;
    turn(&world, ROOT, Attribute::NoDump, "on");
    assert!(active() && fs.getattr(ROOT).unwrap().ctime > before);
    fs.set_options(Options { readonly: true, ..fs.options() });
    assert_eq!(set(&world, ROOT, Attribute::NoDump, "off"), Err(Errno::ROFS));
}
