//! Streams in the format of ZFS, read by an independent reader and compared with the file system.

mod random;
mod reader;

use std::collections::BTreeMap;

use self::reader::{File, Files, Objects};
use super::Receiver;
use crate::{
    admin::{
        Assignment, ReceiveRequest, SendFrom, SendRequest,
        tests::world::{World, noise},
    },
    error::Reader,
    fs::{Caller, FileSystem, FileType, Ino, ROOT, SetAttr, SetXattr},
};

const CALLER: Caller = Caller { uid: 0, gid: 0, umask: 0 };

impl World {
    fn send_zfs(&self, snapshot: &str, from: Option<SendFrom>) -> crate::error::Result<Vec<u8>> {
        let request = SendRequest { from, ..SendRequest::plain(snapshot.parse().unwrap()) };
        let mut out = Vec::new();
        let sent = self.datasets.send_zfs(&request, Receiver::OpenZfs, Reader::default(), &mut out, &mut |_| {})?;
        assert_eq!(sent.bytes, out.len() as u64);
        Ok(out)
    }

    fn since(&self, base: &str, snapshot: &str) -> Vec<u8> {
        self.send_zfs(snapshot, Some(SendFrom::Base(base.parse().unwrap()))).unwrap()
    }

    fn bring(&self, target: &str, stream: &[u8]) {
        let request = ReceiveRequest::plain(target.parse().unwrap());
        self.datasets.receive(request, &mut &stream[..], 0, &mut |_| {}).1.unwrap();
    }

    /// The files of a snapshot, as the file system shows them.
    fn expected(&self, snapshot: &str) -> Files {
        let opened = self.datasets.open_snapshot(&snapshot.parse().unwrap()).unwrap();
        let mut files = Files::new();
        expect(&opened.fs, ROOT, Vec::new(), &mut files);
        files
    }
}

fn expect(fs: &FileSystem, ino: Ino, path: Vec<u8>, files: &mut Files) {
    let attr = fs.getattr(ino).unwrap();
    let mut content = Vec::new();
    match attr.file_type {
        FileType::Regular => {
            while (content.len() as u64) < attr.size {
                let offset = content.len() as u64;
                fs.read(ino, offset, (attr.size - offset) as usize, &mut content).unwrap();
            }
        }
        FileType::Symlink => content = fs.readlink(ino).unwrap(),
        _ => {}
    }
    let time = |nanos: i64| (nanos.div_euclid(1_000_000_000), nanos.rem_euclid(1_000_000_000) as u64);
    let xattr = |name: Vec<u8>| (name.clone(), fs.getxattr(ino, &name).unwrap());
    let (major, minor) = (attr.rdev >> 8 & 0xfff, attr.rdev & 0xff | attr.rdev >> 12 & 0xf_ff00);
    let file = File {
        mode: attr.file_type.mode_bits() | u32::from(attr.mode),
        links: attr.nlink.into(),
        uid: attr.uid.into(),
        gid: attr.gid.into(),
        rdev: u64::from(major) << 20 | u64::from(minor),
        times: [attr.atime, attr.mtime, attr.ctime, attr.crtime].map(time),
        content,
        xattrs: fs.listxattr(ino).unwrap().into_iter().map(xattr).collect::<BTreeMap<_, _>>(),
    };
    files.insert(path.clone(), file);
    if attr.file_type != FileType::Directory {
        return;
    }
    let mut entries = Vec::new();
    fs.readdir(ino, 0, &mut |entry| {
        entries.push((entry.name.to_vec(), entry.ino));
        true
    })
    .unwrap();
    for (name, child) in entries.into_iter().filter(|(name, _)| name != b"." && name != b"..") {
        expect(fs, child, [&path[..], b"/", &name].concat(), files);
    }
}

fn assert_same(found: &Files, expected: &Files) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (path, file) in expected {
        assert!(found[path] == *file, "{}: {:?} {:?}", path.escape_ascii(), found[path].mode, file.mode);
    }
}

#[test]
fn a_full_stream_holds_every_kind_of_file() {
    let world = World::new(1);
    world.create("tank/home").unwrap();
    let fs = world.fs("tank/home");
    let make = |name: &[u8]| fs.create(&CALLER, ROOT, name, 0o644, true).unwrap().ino;
    for (name, len) in [("empty", 0), ("small", 5), ("odd", 70_001), ("exact", 128 << 10), ("large", 700_000)] {
        world.write("tank/home", name, &noise(len as u64 + 1, len));
    }
    let sparse = make(b"sparse");
    fs.write(sparse, 5_000_000, b"in the middle", false).unwrap();
    fs.setattr(&CALLER, sparse, &SetAttr { size: Some(40_000_000), ..SetAttr::default() }).unwrap();
    fs.link(sparse, ROOT, b"hard link").unwrap();
    for (name, len) in [("short", 56), ("longer", 57), ("long", 1000)] {
        fs.symlink(&CALLER, ROOT, name.as_bytes(), &vec![b't'; len]).unwrap();
    }
    fs.mknod(&CALLER, ROOT, b"null", FileType::CharDevice, 0o666, 0x103).unwrap();
    fs.mknod(&CALLER, ROOT, b"pipe", FileType::Fifo, 0o600, 0).unwrap();
    let long = fs.mkdir(&CALLER, ROOT, &[b'n'; 255], 0o4711).unwrap().ino;
    for index in 0..60 {
        fs.create(&CALLER, long, format!("{index:0250}").as_bytes(), 0o2755, true).unwrap();
    }
    let attributed = make(b"attributed");
    for (name, len) in [("user.empty", 0), ("user.small", 9), ("trusted.large", 60_000)] {
        fs.setxattr(attributed, name.as_bytes(), &noise(3, len), SetXattr::Any).unwrap();
    }
    world.snapshot("tank/home@a").unwrap();
    let stream = world.send_zfs("tank/home@a", None).unwrap();
    let mut objects = Objects::default();
    let applied = objects.apply(&stream);
    assert_eq!((applied.name.as_str(), applied.flags, applied.rest), ("tank/home@a", 0, 0));
    assert_same(&objects.files(), &world.expected("tank/home@a"));
    assert_eq!(stream, world.send_zfs("tank/home@a", None).unwrap(), "the same bytes again");
    assert!(stream.len() < 2_500_000, "holes are not sent");
}

#[test]
fn an_increment_holds_what_changed() {
    let world = World::new(2);
    world.create("tank/home").unwrap();
    world.write("tank/home", "large", &noise(1, 2_000_000));
    world.write("tank/home", "shrinks", &noise(2, 300_000));
    world.write("tank/home", "goes", &noise(3, 3000));
    (0..100).for_each(|number| world.write("tank/home", &format!("{number}"), b"small"));
    world.snapshot("tank/home@a").unwrap();
    let mut objects = Objects::default();
    objects.apply(&world.send_zfs("tank/home@a", None).unwrap());
    let fs = world.fs("tank/home");
    let large = fs.lookup(ROOT, b"large").unwrap().ino;
    fs.write(large, 1_000_000, b"changed", false).unwrap();
    let shrinks = fs.lookup(ROOT, b"shrinks").unwrap().ino;
    fs.setattr(&CALLER, shrinks, &SetAttr { size: Some(5000), ..SetAttr::default() }).unwrap();
    fs.unlink(ROOT, b"goes").unwrap();
    fs.setxattr(shrinks, b"user.new", b"value", SetXattr::Any).unwrap();
    world.snapshot("tank/home@b").unwrap();
    let applied = objects.apply(&world.since("tank/home@a", "tank/home@b"));
    assert!(applied.writes < 10, "{applied:?}");
    assert_same(&objects.files(), &world.expected("tank/home@b"));

    fs.removexattr(shrinks, b"user.new").unwrap();
    fs.setattr(&CALLER, shrinks, &SetAttr { size: Some(900_000), ..SetAttr::default() }).unwrap();
    world.snapshot("tank/home@c").unwrap();
    objects.apply(&world.since("tank/home@b", "tank/home@c"));
    assert_same(&objects.files(), &world.expected("tank/home@c"));
}

#[test]
fn a_directory_grows_from_one_form_of_map_to_the_next() {
    let world = World::new(3);
    world.create("tank/home").unwrap();
    let fs = world.fs("tank/home");
    let (mut objects, mut base) = (Objects::default(), None);
    // Micro, fat with a table in its header block, and fat with a table of its own.
    for (step, count) in [(0, 2000u32), (1, 2100), (2, 2101), (3, 60_000), (4, 10)] {
        let names = fs.getattr(ROOT).unwrap().size as u32;
        (names..count).for_each(|name| fs.link_or_make(name));
        (count..names).for_each(|name| fs.unlink(ROOT, &numbered(name)).unwrap());
        let snapshot = format!("tank/home@{step}");
        world.snapshot(&snapshot).unwrap();
        let from = base.replace(snapshot.clone()).map(|base: String| SendFrom::Base(base.parse().unwrap()));
        let applied = objects.apply(&world.send_zfs(&snapshot, from).unwrap());
        assert_eq!(objects.files().len() as u32, count + 1);
        assert!(step != 2 || applied.writes < 4, "one leaf and the header: {applied:?}");
    }
}

/// A name; those of large numbers are long.
fn numbered(name: u32) -> Vec<u8> {
    if name < 2200 { format!("name {name}").into_bytes() } else { format!("name {name:0200}").into_bytes() }
}

impl FileSystem {
    /// A further name of a file in the root directory, or another file when there are many names.
    fn link_or_make(&self, name: u32) {
        let _ = match (name % 1000, self.lookup(ROOT, &numbered(name / 1000 * 1000))) {
            (1.., Ok(first)) => self.link(first.ino, ROOT, &numbered(name)).unwrap(),
            _ => self.create(&CALLER, ROOT, &numbered(name), 0o600, true).unwrap(),
        };
    }
}

#[test]
fn a_bookmark_is_no_base() {
    let world = World::new(4);
    world.create("tank/home").unwrap();
    world.snapshot("tank/home@a").unwrap();
    world.datasets.bookmark(&"tank/home@a".parse().unwrap(), &"tank/home#a".parse().unwrap()).unwrap();
    world.snapshot("tank/home@b").unwrap();
    let refused = world.send_zfs("tank/home@b", Some(SendFrom::Base("tank/home#a".parse().unwrap()))).unwrap_err();
    assert!(refused.to_string().contains("bookmark"), "{refused}");
}

#[test]
fn a_package_may_build_on_a_snapshot_of_zfs_that_it_has_itself() {
    let world = World::new(7);
    world.bring("tank/copy", &crate::zfs::tests::fixture("repl-R-full"));
    let send = |from: Option<SendFrom>, replicate| {
        let snapshot = "tank/copy@r3".parse().unwrap();
        let request = SendRequest { from, replicate, properties: replicate, ..SendRequest::plain(snapshot) };
        let mut out = Vec::new();
        let sent = world.datasets.send_zfs(&request, Receiver::OpenZfs, Reader::default(), &mut out, &mut |_| {});
        (sent, out)
    };
    let (sent, package) = send(None, true);
    sent.unwrap();
    world.bring("tank/back", &package);
    for snapshot in ["@r1", "@r2", "@r3"] {
        let of = |dataset: &str| world.expected(&format!("tank/{dataset}{snapshot}"));
        assert_same(&of("back"), &of("copy"));
    }
    // A receiver may have @r1 from ZFS itself.
    let since = || "tank/copy@r1".parse().unwrap();
    for (from, replicate) in
        [(SendFrom::Each(since()), true), (SendFrom::Each(since()), false), (SendFrom::Base(since()), false)]
    {
        let (sent, out) = send(Some(from), replicate);
        assert!(matches!(sent, Err(crate::error::Error::NotSent { .. })));
        assert!(out.is_empty(), "{} bytes", out.len());
    }
}

#[test]
fn a_file_with_too_many_attributes_is_refused() {
    let world = World::new(5);
    world.write("tank", "file", b"");
    let fs = world.fs("tank");
    let file = fs.lookup(ROOT, b"file").unwrap().ino;
    for index in 0..=super::XATTRS_MAX {
        fs.setxattr(file, format!("user.{index}").as_bytes(), b"", SetXattr::Any).unwrap();
    }
    world.snapshot("tank@a").unwrap();
    let refused = world.send_zfs("tank@a", None).unwrap_err();
    assert!(refused.to_string().contains("extended attributes"), "{refused}");
}

#[test]
fn a_package_holds_datasets_with_their_properties() {
    let world = World::new(6);
    world.create("tank/home").unwrap();
    world.create("tank/home/below").unwrap();
    let stronger = Assignment { property: "compression".into(), value: "zstd-7".into() };
    world.datasets.set(&["tank/home".parse().unwrap()], &[stronger]).unwrap();
    for snapshot in ["1", "2", "3"] {
        world.write("tank/home/below", snapshot, &noise(9, 5000));
        world.snapshot(&format!("tank/home@{snapshot}")).unwrap();
        world.snapshot(&format!("tank/home/below@{snapshot}")).unwrap();
    }
    let send = |from: Option<&str>| {
        let request = SendRequest {
            from: from.map(|from| SendFrom::Each(from.parse().unwrap())),
            replicate: true,
            properties: true,
            ..SendRequest::plain("tank/home@3".parse().unwrap())
        };
        let mut out = Vec::new();
        world.datasets.send_zfs(&request, Receiver::OpenZfs, Reader::default(), &mut out, &mut |_| {}).unwrap();
        out
    };
    world.bring("tank/back", &send(None));
    for snapshot in ["home@1", "home@3", "home/below@2", "home/below@3"] {
        let arrived = world.expected(&format!("tank/{}", snapshot.replace("home", "back")));
        assert_same(&arrived, &world.expected(&format!("tank/{snapshot}")));
    }
    assert_eq!(world.get("tank/back", "compression"), "zstd-7");
    assert!(send(Some("tank/home@1")).len() < send(None).len());
}
