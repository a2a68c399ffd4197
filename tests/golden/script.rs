//! The history of the golden pool: a little of everything with a form of its own on disk.
//!
//! Datasets with each compression and checksum, several copies, small and large records; every type of file; names,
//! links and attributes of every shape; snapshots, clones, one of them promoted; bookmarks, holds, limits, user and
//! received properties; cloned blocks; files with attributes and access control lists; accounting, quotas and projects;
//! a dataset being freed, an open file without a name, a paused scrub. The first generation has no cloned blocks,
//! attributes, lists or accounting.

use std::sync::Arc;

use dataset::{
    admin::{Assignment, CreateRequest, DestroyRequest, DestroySnapshotsRequest, ReceiveRequest, RollbackRequest},
    fs::{
        Attr, Attribute, Caller, Errno, FallocateFlags, FileAttributes, FileSystem, FileType, Ino, Project, ROOT,
        RenameFlags, SetAttr, SetQuota, SetTime, SetXattr,
        acl::{ACCESS, Acl, AclEntry, DEFAULT, Who},
    },
    jobs::Job,
    name::{DatasetName, SnapshotName},
    property::OwnerKind,
};
use pool::{
    admin::{ClassedVdev, NewVdev},
    device::MemoryDevice,
    env::SeededEnv,
};
use rand::{RngCore, SeedableRng, rngs::StdRng};

use crate::{
    DEVICES, send,
    world::{DEVICE_SIZE, World, as_devices, name},
};

/// The file that only the intent log of the crashed pool holds, as in a listing.
pub(crate) const ONLY_LOGGED: &str = "/only in the log/";

/// A kept stream.
pub(crate) struct Stream {
    pub(crate) name: &'static str,
    pub(crate) snapshot: &'static str,
    pub(crate) from: Option<&'static str>,
    pub(crate) package: bool,
    /// The dataset into which the tests receive the stream.
    pub(crate) into: &'static str,
}

pub(crate) const STREAMS: [Stream; 5] = [
    Stream { name: "full", snapshot: "tank/lz4@one", from: None, package: false, into: "tank/from-lz4" },
    Stream {
        name: "increment",
        snapshot: "tank/lz4@two",
        from: Some("tank/lz4#mark"),
        package: false,
        into: "tank/from-lz4",
    },
    Stream { name: "package", snapshot: "tank/set@two", from: None, package: true, into: "tank/from-set" },
    Stream { name: "replica", snapshot: "tank/set@one", from: None, package: true, into: "tank/replica" },
    // With the list of the sender's snapshots.
    Stream {
        name: "replica-increment",
        snapshot: "tank/set@two",
        from: Some("tank/set@one"),
        package: true,
        into: "tank/replica",
    },
];

/// The datasets that hold [`every_kind`] of file, and their properties.
const VARIANTS: [(&str, &[(&str, &str)]); 6] = [
    ("tank/lz4", &[("compression", "lz4"), ("checksum", "blake3")]),
    ("tank/zstd", &[("compression", "zstd-7"), ("checksum", "xxh3"), ("recordsize", "16384")]),
    ("tank/gzip", &[("compression", "gzip-6"), ("checksum", "sha256"), ("copies", "2")]),
    ("tank/fast", &[("compression", "zstd-fast-3"), ("recordsize", "1048576")]),
    ("tank/plain", &[("compression", "off"), ("checksum", "off"), ("recordsize", "4096")]),
    ("tank/thrice", &[("copies", "3"), ("sync", "always"), ("atime", "off"), ("snapdir", "visible")]),
];

/// The devices of the pool: `exported`, or `crashed` a little later.
pub(crate) fn make(state: &str) -> Vec<MemoryDevice> {
    let images: Vec<_> = (0..DEVICES).map(|at| Arc::new(MemoryDevice::new(format!("disk{at}"), DEVICE_SIZE))).collect();
    let mirror = ClassedVdev { vdev: NewVdev::Mirror(as_devices(&images)), class: None };
    let world = World::create(&[mirror], Arc::new(SeededEnv::new(1)));
    live(&world);
    match state {
        "exported" => {
            world.datasets.close_all().unwrap();
            world.pool.export().unwrap();
        }
        "crashed" => sync_and_lose_power(&world),
        _ => panic!("a pool is exported or crashed, not {state}"),
    }
    images.iter().map(|image| image.snapshot()).collect()
}

fn live(world: &World) {
    world.datasets.set_pool_property("comment", "a pool to keep").unwrap();
    world.datasets.record("pool create tank disk0 disk1", "root", "well").unwrap();
    for (dataset, properties) in VARIANTS {
        create(world, dataset, properties);
        every_kind(&world.fs(dataset), 40_000);
    }
    snapshot(world, "tank@one", true);
    for (dataset, _) in VARIANTS {
        change(&world.fs(dataset));
    }
    world.datasets.bookmark(&"tank/lz4@one".parse().unwrap(), &"tank/lz4#mark".parse().unwrap()).unwrap();
    snapshot(world, "tank@two", true);
    a_line_with_clones(world);
    a_set_to_send(world);
    limits_and_properties(world);
    rolled_back_and_received(world);
    shared_blocks(world);
    attributes_and_lists(world);
    accounts_and_projects(world);
    leave_things_unfinished(world);
}

/// Snapshots, some of them destroyed so that deadlists were merged; clones, one of them promoted.
fn a_line_with_clones(world: &World) {
    create(world, "tank/line", &[("compression", "zstd")]);
    create(world, "tank/line/below", &[]);
    let fs = world.fs("tank/line");
    for (round, snapshot_name) in ["zero", "one", "middle", "two"].into_iter().enumerate() {
        overwrite(&fs, "log", round as u64 * 50_000, &words(round as u64, 120_000));
        overwrite(&world.fs("tank/line/below"), "note", 0, &words(round as u64, 300));
        snapshot(world, &format!("tank/line@{snapshot_name}"), true);
    }
    for (origin, clone) in [("tank/line@one", "tank/clone"), ("tank/line@middle", "tank/promoted")] {
        world.datasets.clone_snapshot(&snap(origin), &name(clone), false, Vec::new(), (0, 0)).unwrap();
        overwrite(&world.fs(clone), "log", 10_000, &words(99, 50_000));
    }
    snapshot(world, "tank/promoted@own", false);
    world.datasets.promote(&name("tank/promoted")).unwrap();
    world.datasets.rename_snapshot(&snap("tank/promoted@zero"), "nought", false).unwrap();
    let doomed = DestroySnapshotsRequest {
        set: "tank/line/below@one%middle".parse().unwrap(),
        recursive: false,
        dependents: false,
        defer: false,
    };
    world.datasets.destroy_snapshots(doomed, false).unwrap();
    world.datasets.hold("keep", &[snap("tank/line@two"), snap("tank@one")], false).unwrap();
}

/// Datasets with snapshots at the same instants, for a replication package.
fn a_set_to_send(world: &World) {
    create(world, "tank/set", &[("compression", "off")]);
    create(world, "tank/set/below", &[("recordsize", "8192")]);
    set(world, "tank/set", &[("org.example:note", "sent with the package"), ("atime", "off")]);
    for (round, snapshot_name) in ["one", "two"].into_iter().enumerate() {
        overwrite(&world.fs("tank/set"), "log", round as u64 * 4_000, &words(round as u64, 10_000));
        overwrite(&world.fs("tank/set/below"), "log", round as u64 * 4_000, &words(round as u64 + 30, 20_000));
        snapshot(world, &format!("tank/set@{snapshot_name}"), true);
    }
}

fn limits_and_properties(world: &World) {
    create(world, "tank/limits", &[("quota", "20971520"), ("refquota", "10485760"), ("reservation", "2097152")]);
    create(world, "tank/limits/below", &[("refreservation", "1048576"), ("canmount", "noauto")]);
    set(world, "tank", &[("org.example:colour", "blue"), ("mountpoint", "/srv/tank"), ("compression", "zstd-3")]);
    set(world, "tank/lz4", &[("org.example:colour", "green"), ("relatime", "on"), ("exec", "off")]);
    set(world, "tank/line", &[("atime", "off")]);
}

fn rolled_back_and_received(world: &World) {
    overwrite(&world.fs("tank/zstd"), "soon gone", 0, &words(5, 100_000));
    let request = RollbackRequest { snapshot: snap("tank/zstd@two"), later: false, dependents: false };
    world.datasets.rollback(request).unwrap();
    let stream = send(world, "tank/line@two", None, true);
    let request = ReceiveRequest {
        properties: vec![Assignment { property: "readonly".into(), value: "on".into() }],
        exclude: vec!["atime".into()],
        ..ReceiveRequest::plain("tank/received".parse().unwrap())
    };
    world.datasets.receive(request, &mut &stream[..], 0, &mut |_| {}).1.unwrap();
}

/// Files that share blocks, whole and in part, within a dataset and between datasets, some of them only in snapshots.
fn shared_blocks(world: &World) {
    create(world, "tank/shares", &[("recordsize", "16384")]);
    create(world, "tank/shares/below", &[]);
    let fs = world.fs("tank/shares");
    let source = file(&fs, ROOT, b"source", &noise(40, 60_000));
    world.engine().commit().unwrap();
    copy(world, ("tank/shares", "source", 0), ("tank/shares", "copy", 0), 100_000);
    copy(world, ("tank/shares", "source", 0), ("tank/shares", "source", 131_072), 40_000);
    copy(world, ("tank/shares", "source", 1_000), ("tank/shares/below", "part", 33_768), 60_000);
    snapshot(world, "tank/shares@one", true);
    fs.write(source, 20_000, &noise(41, 30_000), false).unwrap();
    fs.unlink(ROOT, b"copy").unwrap();
    copy(world, ("tank/shares/below", "part", 0), ("tank/thrice", "copied", 0), 90_000);
    world.engine().commit().unwrap();
}

/// Files with their own and with inherited attributes, and with access control lists.
fn attributes_and_lists(world: &World) {
    create(world, "tank/special", &[("acltype", "posix")]);
    let fs = world.fs("tank/special");
    let set = |ino, values: &[(Attribute, &str)]| {
        let edit = |attributes: &mut FileAttributes| {
            values.iter().try_for_each(|(attribute, value)| attributes.set(*attribute, value)).ok_or(Errno::INVAL)
        };
        fs.set_file_attributes(ino, edit).unwrap();
    };
    let dir = made(fs.mkdir(&OWNER, ROOT, b"dir", 0o755));
    let values = [(Attribute::Compression, "zstd-11"), (Attribute::RecordSize, "16384"), (Attribute::NoAtime, "on")];
    set(dir, &values);
    set(file(&fs, dir, b"inherits", &words(50, 18_000)), &[(Attribute::Direct, "on")]);
    set(file(&fs, ROOT, b"immutable", b"for ever"), &[(Attribute::Immutable, "on"), (Attribute::NoDump, "on")]);
    set(file(&fs, ROOT, b"append", &words(51, 3_000)), &[(Attribute::Append, "on"), (Attribute::Compression, "off")]);
    let list = [(Who::Owner, 7), (Who::User(1000), 6), (Who::Group, 5), (Who::NamedGroup(7), 4), (Who::Mask, 6)];
    let entries = list.into_iter().chain([(Who::Other, 1)]);
    let list = Acl::new(entries.map(|(who, permissions)| AclEntry { who, permissions }).collect()).unwrap().encode();
    fs.setxattr(dir, DEFAULT, &list, SetXattr::Any).unwrap();
    made(fs.mkdir(&OWNER, dir, b"with lists", 0o750));
    let listed = file(&fs, dir, b"with a list", b"");
    fs.setxattr(listed, ACCESS, &list, SetXattr::Any).unwrap();
    snapshot(world, "tank/special@one", false);
}

/// Copies a range to a file, which is made if missing.
fn copy(world: &World, from: (&str, &str, u64), to: (&str, &str, u64), len: u64) {
    let (other, fs) = (world.fs(from.0), world.fs(to.0));
    let source = made(other.lookup(ROOT, from.1.as_bytes()));
    let target = made(fs.create(&OWNER, ROOT, to.1.as_bytes(), 0o600, false));
    let mut done = 0;
    while done < len {
        match fs.copy_range_from(&other, source, from.2 + done, target, to.2 + done, len - done).unwrap() {
            0 => break,
            count => done += count,
        }
    }
}

/// A paused scrub, a dataset with blocks still to be freed, and an open file without a name.
fn leave_things_unfinished(world: &World) {
    create(world, "tank/gone", &[]);
    every_kind(&world.fs("tank/gone"), 100_000);
    copy(world, ("tank/shares", "source", 0), ("tank/gone", "copy", 0), 100_000);
    snapshot(world, "tank/gone@last", false);
    world.datasets.scrub().start().unwrap();
    world.datasets.scrub().advance(1 << 20).unwrap();
    world.datasets.scrub().pause().unwrap();
    let request = DestroyRequest { name: name("tank/gone"), recursive: true, dependents: false };
    world.datasets.destroy(request, false).unwrap();
    let fs = world.fs("tank/plain");
    let orphan = file(&fs, ROOT, b"orphan", &words(7, 30_000));
    fs.retain(orphan);
    fs.unlink(ROOT, b"orphan").unwrap();
    world.engine().commit().unwrap();
}

/// After the last commit: changes of all kinds, made durable only by the intent log.
fn sync_and_lose_power(world: &World) {
    for dataset in ["tank/gzip", "tank/thrice", "tank/clone"] {
        let fs = world.fs(dataset);
        let new = file(&fs, ROOT, b"only in the log", &words(11, 3_000));
        fs.write(new, 3_000, &words(12, 200_000), false).unwrap();
        fs.setxattr(new, b"user.logged", b"yes", SetXattr::Any).unwrap();
        fs.fsync(new).unwrap();
        overwrite(&fs, "log", 100, b"appended to what was committed");
        fs.rename(ROOT, b"log", ROOT, b"renamed in the log", RenameFlags::default()).unwrap();
        fs.fsyncdir(ROOT).unwrap();
    }
    copy(world, ("tank/shares", "source", 0), ("tank/gzip", "copied in the log", 0), 100_000);
    world.fs("tank/gzip").sync().unwrap();
    let fs = world.fs("tank/accounts");
    let charged = file(&fs, ROOT, b"charged in the log", &words(62, 3_000));
    fs.setattr(&OWNER, charged, &SetAttr { uid: Some(1002), ..SetAttr::default() }).unwrap();
    fs.sync().unwrap();
    // This file is not made durable, and need not come back.
    file(&world.fs("tank/zstd"), ROOT, b"never synced", b"lost");
}

/// Changes by today's program to an old pool.
pub(crate) fn go_on(world: &World) {
    // From now on reading files must change nothing.
    set(world, "tank", &[("atime", "off")]);
    for dataset in ["tank/gzip", "tank/line", "tank/received"] {
        set(world, dataset, &[("readonly", "off"), ("org.example:later", "yes")]);
        every_kind(&world.fs(dataset), 20_000);
        snapshot(world, &format!("{dataset}@later"), false);
    }
    let request = DestroyRequest { name: name("tank/fast"), recursive: true, dependents: false };
    world.datasets.destroy(request, false).unwrap();
    world.clean_up().unwrap();
}

/// Files of several users, groups and projects, charged to them: in a snapshot, and later.
fn accounts_and_projects(world: &World) {
    create(world, "tank/accounts", &[("recordsize", "16384")]);
    let fs = world.fs("tank/accounts");
    let by = |uid, gid, dir, name: &[u8], content: &[u8]| {
        let ino = made(fs.create(&Caller { uid, gid, umask: 0 }, dir, name, 0o644, true));
        assert_eq!(fs.write(ino, 0, content, false), Ok(content.len()));
    };
    by(1000, 100, ROOT, b"before", &words(60, 20_000));
    for (kind, id, bytes, objects) in [
        (OwnerKind::User, 1000, Some(1 << 20), Some(7)),
        (OwnerKind::User, 1001, Some(10_000), None),
        (OwnerKind::Group, 100, None, Some(u64::MAX)),
        (OwnerKind::Project, u32::MAX, Some(1), None),
        (OwnerKind::Project, 7, Some(1 << 40), Some(300)),
    ] {
        fs.set_quota(kind, id, SetQuota { bytes, objects }).unwrap();
    }
    let dir = made(fs.mkdir(&OWNER, ROOT, b"project", 0o755));
    fs.set_project(dir, Project { id: 7, inherit: true }).unwrap();
    by(1001, 101, dir, b"in it", &words(61, 9_000));
    snapshot(world, "tank/accounts@one", false);
    let below = made(fs.mkdir(&OWNER, dir, b"below", 0o755));
    by(1001, 100, below, b"small", b"in the tree");
    fs.unlink(ROOT, b"before").unwrap();
}

/// Every type of file, and names, links, attributes and contents of every shape, in a directory of their own.
pub(crate) fn every_kind(fs: &FileSystem, size: usize) {
    let top = made(fs.mkdir(&OWNER, ROOT, format!("kinds of {size}").as_bytes(), 0o2755));
    file(fs, top, b"empty", b"");
    file(fs, top, b"inline", &words(1, 90));
    file(fs, top, b"text", &words(2, size * 3));
    file(fs, top, b"noise", &noise(3, size));
    let sparse = file(fs, top, b"sparse", &words(4, 5_000));
    fs.write(sparse, 3 << 20, &words(5, 5_000), false).unwrap();
    fs.setattr(&OWNER, sparse, &SetAttr { size: Some(1 << 40), ..SetAttr::default() }).unwrap();
    fs.setattr(&OWNER, sparse, &SetAttr { size: Some((3 << 20) + 9_000), ..SetAttr::default() }).unwrap();
    let reserved = file(fs, top, b"reserved", b"");
    fs.fallocate(reserved, FallocateFlags::default(), 0, 20_000).unwrap();
    let punched = file(fs, top, b"punched", &words(6, size * 2));
    let punch = FallocateFlags { punch_hole: true, keep_size: true, ..FallocateFlags::default() };
    fs.fallocate(punched, punch, 10_000, 50_000).unwrap();

    let linked = file(fs, top, b"linked", b"a file with three names");
    fs.link(linked, top, b"second name").unwrap();
    fs.link(linked, ROOT, format!("third name {size}").as_bytes()).unwrap();
    fs.symlink(&OWNER, top, b"short link", b"text").unwrap();
    fs.symlink(&OWNER, top, b"long link", &[b'x'; 3_000]).unwrap();
    for (name, file_type, rdev) in [
        (&b"fifo"[..], FileType::Fifo, 0),
        (b"socket", FileType::Socket, 0),
        (b"disk", FileType::BlockDevice, 0x0801),
        (b"terminal", FileType::CharDevice, 0x0501),
    ] {
        fs.mknod(&OWNER, top, name, file_type, 0o640, rdev).unwrap();
    }
    file(fs, top, &[b'n'; 255], b"the longest name");
    file(fs, top, b"not \xff UTF-8 \x01", b"any bytes but / and 0");

    let set_id = file(fs, top, b"set-id", b"#!/bin/sh\n");
    let old = SetTime::At(-2_000_000_000_123_456_789);
    let set =
        SetAttr { mode: Some(0o6755), uid: Some(4_000_000_000), gid: Some(7), mtime: Some(old), ..SetAttr::default() };
    fs.setattr(&OWNER, set_id, &set).unwrap();
    fs.setxattr(set_id, b"user.small", b"value", SetXattr::Any).unwrap();
    fs.setxattr(set_id, b"trusted.large", &words(8, 20_000), SetXattr::Any).unwrap();
    fs.setxattr(top, b"user.of a directory", &noise(9, 300), SetXattr::Any).unwrap();

    let many = made(fs.mkdir(&OWNER, top, b"many", 0o1777));
    for number in 0..50 {
        // Enough for several leaves.
        file(fs, many, format!("entry {number:.>200}").as_bytes(), &words(number, 100));
    }
    let deep = (0..12).fold(top, |dir, depth| made(fs.mkdir(&OWNER, dir, format!("{depth}").as_bytes(), 0o700)));
    file(fs, deep, b"bottom", b"far down");
    overwrite(fs, "log", 0, &words(10, 30_000));
}

/// Changes some of the files of [`every_kind`].
fn change(fs: &FileSystem) {
    let top = fs.lookup(ROOT, b"kinds of 40000").unwrap().ino;
    let text = fs.lookup(top, b"text").unwrap().ino;
    fs.write(text, 50_000, &words(20, 10_000), false).unwrap();
    fs.setattr(&OWNER, text, &SetAttr { size: Some(100_001), ..SetAttr::default() }).unwrap();
    fs.unlink(top, b"noise").unwrap();
    fs.unlink(top, b"linked").unwrap();
    fs.rename(top, b"empty", top, b"no longer inline", RenameFlags::default()).unwrap();
    fs.write(fs.lookup(top, b"no longer inline").unwrap().ino, 0, &words(21, 9_000), false).unwrap();
    fs.rename(top, b"fifo", top, b"socket", RenameFlags { exchange: true, ..RenameFlags::default() }).unwrap();
    fs.removexattr(fs.lookup(top, b"set-id").unwrap().ino, b"user.small").unwrap();
    overwrite(fs, "log", 30_000, &words(22, 500));
}

const OWNER: Caller = Caller { uid: 1000, gid: 100, umask: 0 };

fn made(attr: Result<Attr, dataset::fs::Errno>) -> Ino {
    attr.unwrap().ino
}

pub(crate) fn file(fs: &FileSystem, dir: Ino, name: &[u8], content: &[u8]) -> Ino {
    let ino = made(fs.create(&OWNER, dir, name, 0o644, true));
    if !content.is_empty() {
        assert_eq!(fs.write(ino, 0, content, false), Ok(content.len()));
    }
    ino
}

/// Writes into a file of the root directory, which is made if missing.
pub(crate) fn overwrite(fs: &FileSystem, name: &str, at: u64, content: &[u8]) {
    let ino = made(fs.create(&OWNER, ROOT, name.as_bytes(), 0o600, false));
    assert_eq!(fs.write(ino, at, content, false), Ok(content.len()));
}

/// Text that compresses.
pub(crate) fn words(seed: u64, len: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|line: u64| format!("{seed}: line {line} of some text\n").into_bytes());
    lines.take(len).collect()
}

/// Bytes that do not compress.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    StdRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn snap(text: &str) -> SnapshotName {
    text.parse().unwrap()
}

fn assignments(properties: &[(&str, &str)]) -> Vec<Assignment> {
    let assignment = |&(property, value): &(&str, &str)| Assignment { property: property.into(), value: value.into() };
    properties.iter().map(assignment).collect()
}

pub(crate) fn create(world: &World, dataset: &str, properties: &[(&str, &str)]) {
    let properties = assignments(properties);
    let name: DatasetName = name(dataset);
    world.datasets.create(CreateRequest { name, parents: false, properties, owner: (1000, 100) }).unwrap();
}

pub(crate) fn set(world: &World, dataset: &str, properties: &[(&str, &str)]) {
    world.datasets.set(&[dataset.parse().unwrap()], &assignments(properties)).unwrap();
}

pub(crate) fn snapshot(world: &World, name: &str, recursive: bool) {
    world.datasets.snapshot(vec![snap(name)], recursive, Vec::new()).unwrap();
}
