//! Stream files read as archives, beside the snapshots that they were made from.

use std::{
    collections::BTreeMap,
    io, ops,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    streams::change,
    world::{World, noise},
};
use crate::{
    admin::SendRequest,
    archive::{Change, Changed, Error, Tree},
    fs::{Attr, Caller, Errno, FileSystem, FileType, Ino, ROOT, SetAttr, SetXattr},
    name::SnapshotName,
    stream::archive::{self, Archive, Layers},
};

/// What a reader sees of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seen {
    attr: Attr,
    content: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(super) type Files = BTreeMap<Vec<u8>, Seen>;

pub(super) const ME: Caller = Caller { uid: 0, gid: 0, umask: 0o022 };

/// Makes directories, links, holes, attributes and large files in the dataset, differently in each round.
fn build(world: &World, dataset: &str, round: u64) {
    let fs = world.fs(dataset);
    change(world, dataset, round);
    let dir = fs.mkdir(&ME, ROOT, format!("dir{round}").as_bytes(), 0o755).unwrap().ino;
    let below = fs.mkdir(&ME, dir, b"below", 0o700).unwrap().ino;
    let away = fs.mkdir(&ME, dir, b"away", 0o755).unwrap().ino;
    fs.create(&ME, away, b"inside", 0o644, true).unwrap();
    for number in 0..60 {
        let name = format!("name{number}-{}", "x".repeat(number as usize * 3));
        let file = fs.create(&ME, below, name.as_bytes(), 0o640, true).unwrap().ino;
        fs.write(file, 0, &noise(round + number, 700 + 37 * number as usize), false).unwrap();
    }
    let large = fs.create(&ME, dir, b"large", 0o600, true).unwrap().ino;
    fs.write(large, 3 << 20, &noise(round, 700_000), false).unwrap();
    fs.write(large, 100, b"before the hole", false).unwrap();
    fs.setxattr(large, b"user.short", b"value", SetXattr::Any).unwrap();
    fs.setxattr(large, b"user.long", &noise(round, 9000), SetXattr::Any).unwrap();
    fs.link(large, below, b"again").unwrap();
    fs.symlink(&ME, dir, b"link", b"below/again").unwrap();
    fs.setattr(&ME, below, &SetAttr { uid: Some(1000 + round as u32), ..SetAttr::default() }).unwrap();
    if round > 0 {
        let old = fs.lookup(ROOT, format!("dir{}", round - 1).as_bytes()).unwrap().ino;
        fs.unlink(old, b"link").unwrap();
        fs.rename(old, b"large", dir, b"moved", crate::fs::RenameFlags::default()).unwrap();
        fs.rename(old, b"away", dir, b"moved away", crate::fs::RenameFlags::default()).unwrap();
    }
}

/// All files of a snapshot, as its file system tells.
pub(super) fn of_snapshot(fs: &FileSystem) -> Files {
    let mut files = Files::new();
    let mut pending = vec![(Vec::new(), fs.getattr(ROOT).unwrap())];
    while let Some((path, attr)) = pending.pop() {
        let mut content = Vec::new();
        match attr.file_type {
            FileType::Directory => fs
                .readdir_plus(attr.ino, 2, &mut |entry, attr| {
                    pending.push(([&path[..], b"/", entry.name].concat(), *attr));
                    true
                })
                .unwrap(),
            FileType::Symlink => content = fs.readlink(attr.ino).unwrap(),
            _ => fs.read(attr.ino, 0, attr.size as usize, &mut content).unwrap(),
        }
        let names = fs.listxattr(attr.ino).unwrap();
        let xattrs = names.into_iter().map(|name| (name.clone(), fs.getxattr(attr.ino, &name).unwrap())).collect();
        files.insert(path, Seen { attr: Attr { block_size: 0, ..attr }, content, xattrs });
    }
    files
}

/// All files of a stream.
fn of_stream(tree: &Tree<'_>) -> Result<Files, Error> {
    let mut files = Files::new();
    let mut pending = vec![(Vec::new(), tree.attr(ROOT)?)];
    while let Some((path, attr)) = pending.pop() {
        let mut content = Vec::new();
        match attr.file_type {
            FileType::Directory => {
                let mut entries = Vec::new();
                tree.entries(attr.ino, 0, &mut |entry| {
                    entries.push(entry);
                    true
                })?;
                for entry in entries {
                    pending.push(([&path[..], b"/", &entry.name].concat(), tree.attr_of(attr.ino, &entry)?));
                }
            }
            FileType::Symlink => content = tree.link_target(&attr)?,
            _ => {
                tree.data(&attr, &mut |range: ops::Range<u64>, bytes| {
                    content.resize(range.start as usize, 0);
                    content.extend_from_slice(bytes?);
                    Ok::<(), Error>(())
                })?;
                content.resize(attr.size as usize, 0);
            }
        }
        let mut xattrs = BTreeMap::new();
        tree.xattrs(attr.ino, &mut |name, value| {
            xattrs.insert(name.to_vec(), value.to_vec());
            Ok::<(), Error>(())
        })?;
        files.insert(path, Seen { attr: Attr { block_size: 0, ..attr }, content, xattrs });
    }
    Ok(files)
}

pub(super) fn open(stream: &[u8]) -> Archive {
    Archive::open(stream.to_vec()).unwrap()
}

fn tree(archives: &[Archive], top: usize) -> Result<Tree<'_>, Error> {
    Tree::new(Layers::of((&archives[top], &archives[top].streams()[0]), archives))
}

fn inode(fs: &FileSystem, path: &[&str]) -> Ino {
    path.iter().fold(ROOT, |dir, name| fs.lookup(dir, name.as_bytes()).unwrap().ino)
}

/// A world with snapshots of `tank/home`, and the streams: one in full, then the increments.
pub(super) fn three(seed: u64) -> (World, Vec<Vec<u8>>) {
    let world = World::new(seed);
    world.create("tank/home").unwrap();
    let mut streams = Vec::new();
    for round in 0..3 {
        build(&world, "tank/home", round);
        world.snapshot(&format!("tank/home@{round}")).unwrap();
        let from = (round > 0).then(|| format!("tank/home@{}", round - 1));
        streams.push(world.send(&format!("tank/home@{round}"), from.as_deref(), |_| ()).unwrap());
    }
    (world, streams)
}

pub(super) fn snapshot(world: &World, round: usize) -> Files {
    let name: SnapshotName = format!("tank/home@{round}").parse().unwrap();
    of_snapshot(&world.datasets.open_snapshot(&name).unwrap().fs)
}

#[test]
fn a_stream_shows_the_files_of_its_snapshot() {
    let (world, streams) = three(700);
    let archives: Vec<Archive> = streams.iter().map(|stream| open(stream)).collect();
    assert!(archives.iter().all(|archive| archive.is_indexed() && archive.ended().is_none()));
    for round in 0..3 {
        let tree = tree(&archives, round).unwrap();
        assert_eq!(tree.missing(), None);
        let expected = snapshot(&world, round);
        assert_eq!(of_stream(&tree).unwrap(), expected);
        for (path, seen) in &expected {
            let path = if path.is_empty() { b"/".to_vec() } else { path.clone() };
            assert_eq!(tree.find(&path, false).unwrap().ino, seen.attr.ino, "{}", String::from_utf8_lossy(&path));
        }
        assert_eq!(tree.find(b"/dir0/../dir0/./below/", false).unwrap().file_type, FileType::Directory);
        assert!(matches!(tree.find(b"/dir0/none", false), Err(Error::File(Errno::NOENT))));
        assert!(matches!(tree.find(b"/file0/none", false), Err(Error::File(Errno::NOTDIR))));
    }
    let last = tree(&archives, 2).unwrap();
    assert_eq!(last.find(b"/dir2/link", true).unwrap().ino, last.find(b"/dir2/large", false).unwrap().ino);
    world.judge();
}

#[test]
fn the_changes_of_an_increment_are_those_of_diff() {
    let (world, streams) = three(710);
    let archives: Vec<Archive> = streams.iter().map(|stream| open(stream)).collect();
    for round in 1..3 {
        let mut changes = tree(&archives, round).unwrap().changes().unwrap();
        let mut expected = Vec::new();
        let (from, to) = (format!("tank/home@{}", round - 1), format!("tank/home@{round}"));
        let each = |found: crate::admin::Difference| {
            let change = match (found.kind.sign(), found.new_path) {
                ('-', _) => Change::Removed,
                ('+', _) => Change::Added,
                ('M', _) => Change::Modified,
                (_, new) => Change::Renamed(new.unwrap()),
            };
            expected.push(Changed { change, file_type: Some(found.file_type), path: found.path });
            Ok(())
        };
        world.datasets.diff(&from.parse().unwrap(), &to.parse().unwrap(), each).unwrap();
        let by_path = |one: &Changed, other: &Changed| (&one.path, &one.change).cmp(&(&other.path, &other.change));
        changes.sort_by(by_path);
        expected.sort_by(by_path);
        assert!(expected.len() > 60);
        assert_eq!(changes, expected);
    }
}

#[test]
fn an_increment_alone_tells_what_it_has_and_names_its_base() {
    let (world, streams) = three(720);
    let archives = [open(&streams[1])];
    let alone = tree(&archives, 0).unwrap();
    assert_eq!(alone.missing().as_deref(), Some("tank/home@0"));
    let changes = alone.changes().unwrap();
    let added = |path: &[u8]| changes.iter().any(|one| one.change == Change::Added && one.path == path);
    assert!(added(b"/dir1") && added(b"/dir1/below/name7-xxxxxxxxxxxxxxxxxxxxx") && !added(b"/dir0"));
    let fs = world.fs("tank/home");
    let new = alone.attr(inode(&fs, &["dir1", "below", "name0-"])).unwrap();
    let mut content = Vec::new();
    alone
        .data(&new, &mut |_, bytes| {
            content.extend_from_slice(bytes?);
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(content, noise(1, 700));
    let of_base = alone.attr(inode(&fs, &["dir0", "below", "name7-xxxxxxxxxxxxxxxxxxxxx"]));
    assert!(of_base.is_ok() || matches!(of_base, Err(Error::Archive(archive::Error::Base { .. }))), "{of_base:?}");
    assert!(matches!(open(&streams[0]).streams(), [stream] if stream.base().is_none()));
}

#[test]
fn a_file_without_an_index_is_walked_through_up_to_its_cut() {
    let (world, streams) = three(730);
    let whole = &streams[0];
    // Several packages are no single index.
    let both = [&whole[..], &streams[1]].concat();
    let archives = [open(&both)];
    assert!(!archives[0].is_indexed() && archives[0].streams().len() == 2);
    let top = (&archives[0], &archives[0].streams()[1]);
    assert_eq!(of_stream(&Tree::new(Layers::of(top, &archives)).unwrap()).unwrap(), snapshot(&world, 1));
    let mut readable = 0;
    for cut in (20..whole.len()).step_by(whole.len() / 37) {
        let Ok(archive) = Archive::open(whole[..cut].to_vec()) else { continue };
        assert!(archive.ended().is_some(), "{cut}");
        let archives = [archive];
        let Some(stream) = archives[0].streams().first() else { continue };
        assert_eq!(stream.totals, None);
        let Ok(tree) = Tree::new(Layers::of((&archives[0], stream), &archives)) else { continue };
        readable += usize::from(tree.find(b"/file0", false).is_ok());
        assert!(of_stream(&tree).is_err(), "{cut}");
    }
    assert!(readable > 20, "{readable}");
}

#[test]
fn damage_is_named_and_the_rest_is_readable() {
    let (world, streams) = three(740);
    let expected = snapshot(&world, 0);
    let whole = &streams[0];
    let mut located = 0;
    for at in (100..whole.len()).step_by(whole.len() / 211) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        let archive = Archive::open(bytes).unwrap();
        let archives = [archive];
        let Some(stream) = archives[0].streams().first() else { continue };
        let Ok(tree) = Tree::new(Layers::of((&archives[0], stream), &archives)) else { continue };
        for (path, seen) in &expected {
            let Ok(found) = tree.find(path, false) else { continue };
            assert_eq!(Attr { block_size: 0, ..found }, seen.attr);
            if found.file_type != FileType::Regular {
                continue;
            }
            let mut damaged = Vec::new();
            let read = tree.data(&found, &mut |range: ops::Range<u64>, bytes| {
                match bytes {
                    Ok(bytes) => assert_eq!(bytes, &seen.content[range.start as usize..range.end as usize]),
                    Err(Error::Archive(archive::Error::Damaged { offset, .. })) => damaged.push(offset),
                    Err(error) => panic!("{error}"),
                }
                Ok::<(), Error>(())
            });
            if let (Ok(()), Some(offset)) = (read, damaged.first()) {
                let (stream, key) = archives[0].at(*offset).unwrap();
                assert_eq!((stream.name().as_str(), key.unwrap().object), ("tank/home@0", found.ino));
                assert!((*offset..*offset + (1 << 20)).contains(&(at as u64)));
                located += 1;
            }
        }
    }
    assert!(located > 50, "{located}");
}

#[test]
fn a_damaged_stream_of_a_package_leaves_the_others() {
    let (world, streams) = three(750);
    let all = |request: &mut SendRequest| request.replicate = true;
    let package = world.send("tank/home@2", None, all).unwrap();
    let offsets: Vec<usize> = open(&package).streams().iter().map(|stream| stream.offset as usize).collect();
    let mut bytes = package.clone();
    bytes[offsets[1] + 30] ^= 1;
    let archives = [open(&bytes)];
    let names: Vec<String> = archives[0].streams().iter().map(|stream| stream.name()).collect();
    assert_eq!(names, ["tank/home@0", "tank/home@2"]);
    assert!(archives[0].is_indexed() && archives[0].streams().iter().all(|stream| stream.totals.is_some()));
    let ended = archives[0].ended().unwrap();
    assert!(
        matches!(ended, archive::Error::Damaged { offset, problem }
        if *offset == offsets[1] as u64 && problem.contains("stream 2 of 3")),
        "{ended}"
    );
    assert!(archives[0].at(offsets[1] as u64).is_none() && archives[0].at(offsets[2] as u64).is_some());
    let first = Tree::new(Layers::of((&archives[0], &archives[0].streams()[0]), &archives)).unwrap();
    assert_eq!(of_stream(&first).unwrap(), snapshot(&world, 0));
    // With its base from another file, the last stream is whole too.
    let both = [open(&bytes), open(&streams[1])];
    let last = Tree::new(Layers::of((&both[0], &both[0].streams()[1]), &both)).unwrap();
    assert_eq!(of_stream(&last).unwrap(), snapshot(&world, 2));
}

#[test]
fn all_damages_of_a_file_are_found() {
    let (_, streams) = three(751);
    let whole = streams.concat();
    assert!(open(&whole).damages(100).is_empty() && open(&streams[0]).damages(100).is_empty());
    let offsets = |damages: Vec<archive::Error>| -> Vec<u64> {
        let offset = |damage| match damage {
            archive::Error::Damaged { offset, .. } => offset,
            other => panic!("{other}"),
        };
        damages.into_iter().map(offset).collect()
    };
    // A head, and the middle of each stream: a range or a block.
    let starts = [0, streams[0].len(), streams[0].len() + streams[1].len()];
    let heads: Vec<usize> = open(&whole).streams().iter().map(|stream| stream.offset as usize).collect();
    let mut bytes = whole.clone();
    let places = [starts[1] / 2, heads[1] + 30, (starts[1] + starts[2]) / 2, (starts[2] + whole.len()) / 2];
    places.iter().for_each(|at| bytes[*at] ^= 1);
    let found = offsets(open(&bytes).damages(100));
    // The data of a stream without its head cannot be examined, only its records.
    for place in [places[0], places[1], places[3]] {
        let is_it = |offset: &&u64| **offset <= place as u64 && place as u64 - **offset < 1 << 20;
        assert!(found.iter().any(|offset| is_it(&offset)), "{place} {found:?}");
    }
    assert!((3..=4).contains(&found.len()), "{found:?}");
    assert_eq!(open(&bytes).damages(2).len(), 2);
    // Lengths that lie: the index leads on.
    let mut bytes = streams[0].clone();
    let head = open(&bytes).streams()[0].offset as usize;
    bytes[head + 2..head + 8].fill(0xff);
    let place = bytes.len() / 2;
    bytes[place] ^= 1;
    let found = offsets(open(&bytes).damages(100));
    assert_eq!(found[0], head as u64);
    // Garbage ends.
    for seed in 0..50 {
        let mut bytes = streams[0].clone();
        for (number, at) in (20..bytes.len()).step_by(997).enumerate() {
            bytes[at] ^= (seed * 31 + number) as u8 | 1;
        }
        assert!((1..=10).contains(&open(&bytes).damages(10).len()));
    }
}

#[test]
fn an_increment_alone_tells_of_small_changes() {
    let world = World::new(752);
    world.create("tank/home").unwrap();
    for number in 0..40 {
        world.write("tank/home", &format!("small{number}"), b"old");
    }
    world.snapshot("tank/home@a").unwrap();
    world.work();
    world.write("tank/home", "small7", b"new");
    world.write("tank/home", "young", b"new");
    world.snapshot("tank/home@b").unwrap();
    let increment = world.send("tank/home@b", Some("tank/home@a"), |_| ()).unwrap();
    let archives = [open(&increment)];
    assert!(archives[0].streams()[0].begin.own_properties().is_none());
    let alone = tree(&archives, 0).unwrap().changes().unwrap();
    let lines: Vec<_> = alone.iter().map(|one| (&one.change, String::from_utf8_lossy(&one.path))).collect();
    let expected = [(&Change::Modified, "/"), (&Change::Modified, "/small7"), (&Change::Added, "/young")];
    assert_eq!(lines, expected.map(|(change, path)| (change, path.into())));
}

/// Bytes in memory, counted when read.
struct Counted(Vec<u8>, Arc<AtomicU64>);

impl archive::Bytes for Counted {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let read = self.0.read_at(buf, offset)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
}

#[test]
fn a_look_into_a_stream_reads_little_of_it() {
    let world = World::new(750);
    world.create("tank/home").unwrap();
    let fs = world.fs("tank/home");
    for number in 0..24 {
        let file = fs.create(&ME, ROOT, format!("file{number}").as_bytes(), 0o644, true).unwrap().ino;
        for part in 0..8 {
            fs.write(file, part << 18, &noise(number * 8 + part, 256 << 10), false).unwrap();
        }
    }
    world.snapshot("tank/home@1").unwrap();
    let stream = world.send("tank/home@1", None, |_| ()).unwrap();
    let (size, read) = (stream.len() as u64, Arc::new(AtomicU64::new(0)));
    assert!(size > 40 << 20);
    let archives = [Archive::open(Counted(stream, read.clone())).unwrap()];
    let tree = tree(&archives, 0).unwrap();
    let mut names = 0;
    tree.entries(ROOT, 0, &mut |entry| {
        names += usize::from(tree.attr(entry.ino).is_ok());
        true
    })
    .unwrap();
    let listed = read.swap(0, Ordering::Relaxed);
    let file = tree.find(b"/file7", false).unwrap();
    let mut bytes = 0;
    tree.data(&file, &mut |_, part| {
        bytes += part?.len();
        Ok::<(), Error>(())
    })
    .unwrap();
    let copied = read.load(Ordering::Relaxed);
    assert_eq!((names, bytes), (24, 2 << 20));
    assert!(listed < size / 20, "listing reads {listed} of {size} bytes");
    assert!(copied < 4 << 20, "2 MiB read {copied} bytes");
}
