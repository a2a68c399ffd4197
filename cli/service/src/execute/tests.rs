//! Requests executed on a real pool in an image file, without a service or a mount.

use std::{
    fs,
    io::{Read, Seek, Write},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use dataset::catalogue::{POOL, keys, kind};
use pool::admin::{ClassedVdev, NewVdev};
use protocol::{
    Chain, Chained, CopyRecord, DatasetRequest, DeviceRequest, EntryRecord, Failure, FileRequest, Location, PathBytes,
    PoolRequest, ReceiveSpec, Request, Response, Said, SendSpec, Stream, StreamRequest, VdevKind, VdevRole, VdevSpec,
    VdevTreeSpec, Wanted,
};
use rustix::fs::{CWD, FileType, Mode, SeekFrom, XattrFlags, lgetxattr, lsetxattr, mknodat};

use super::{Job, OpenPool, Opening, devices::NewDevices, found::find};
use crate::registry::KnownPool;

mod delegated;
mod history;

fn disks(taken: &NewDevices) -> Vec<ClassedVdev> {
    taken.devices().into_iter().map(|device| NewVdev::Disk(device).into()).collect()
}

/// A pool in a separate temporary folder.
struct World {
    folder: tempfile::TempDir,
    pool: Option<OpenPool>,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let specs = [VdevSpec { path: image.into(), create: Some(256 << 20) }];
        let taken = NewDevices::take(&specs, "create", "tank", false).unwrap();
        let pool = OpenPool::create(&"tank".parse().unwrap(), &disks(&taken), &[], &[]).unwrap();
        taken.keep();
        World { folder, pool: Some(pool) }
    }

    fn known(&self) -> KnownPool {
        let search = [PathBytes::from(self.folder.path().to_owned())];
        let found = find(&search, Wanted::Living).unwrap().remove(0);
        KnownPool {
            name: "tank".parse().unwrap(),
            guid: found.label.pool.0,
            former: None,
            devices: found.in_order(),
            read_only: false,
            no_mount: true,
            altroot: None,
            state: None,
        }
    }

    fn reopen(&mut self) {
        self.pool.take().unwrap().close().unwrap();
        self.pool = Some(OpenPool::open(&self.known(), &Opening::default()).unwrap());
    }

    fn ask_with(&self, request: impl Into<Request>, stream: Option<Stream>) -> Result<Response, Failure> {
        let mut ignore = |_| Ok(None);
        let mut job = Job::new(Vec::new(), &mut ignore);
        self.pool.as_ref().unwrap().execute("fs test", request, stream, &mut job)
    }

    fn ask(&self, request: impl Into<Request>) -> Result<Response, Failure> {
        self.ask_with(request, None)
    }

    fn create(&self, name: &str) {
        let name = name.parse().unwrap();
        let request =
            DatasetRequest::Create { name, parents: false, assignments: Vec::new(), no_mount: false, dry_run: false };
        assert!(matches!(self.ask(request), Ok(Response::Created(_))));
    }

    fn snapshot(&self, name: &str) {
        let names = vec![name.parse().unwrap()];
        assert_eq!(
            self.ask(DatasetRequest::Snapshot { names, recursive: false, assignments: Vec::new() }),
            Ok(Response::Done)
        );
    }

    fn copy_in(&self, source: &Path, to: &str) -> Result<CopyRecord, Failure> {
        let sources = vec![PathBytes::from(source.to_owned())];
        let copied = self.ask(FileRequest::CopyIn { sources, to: location(to), recursive: true, no_links: false })?;
        let Response::Copied(record) = copied else { panic!("{copied:?}") };
        Ok(record)
    }

    fn copy_within(&self, source: &str, to: &str) -> Result<CopyRecord, Failure> {
        let request = FileRequest::CopyWithin {
            sources: vec![location(source)],
            to: location(to),
            recursive: true,
            no_links: true,
        };
        let copied = self.ask(request)?;
        let Response::Copied(record) = copied else { panic!("{copied:?}") };
        Ok(record)
    }

    /// A property of the pool.
    fn property(&self, name: &str) -> String {
        let request = PoolRequest::Pool { properties: vec![name.to_owned()], vdevs: false };
        let Ok(Response::Pool(record)) = self.ask(request) else { panic!("no record") };
        record.properties[0].value.clone()
    }

    fn copy_out(&self, source: &str, to: &Path) -> Result<CopyRecord, Failure> {
        let request =
            FileRequest::CopyOut { sources: vec![location(source)], to: to.to_owned().into(), recursive: true };
        let copied = self.ask(request)?;
        let Response::Copied(record) = copied else { panic!("{copied:?}") };
        Ok(record)
    }

    fn cat(&self, what: &str) -> Result<Vec<u8>, Failure> {
        let mut file = tempfile::tempfile().unwrap();
        let stream = file.try_clone().unwrap().into();
        self.ask_with(FileRequest::Read { location: location(what) }, Some(stream))?;
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        Ok(bytes)
    }

    fn names_below(&self, what: &str) -> Vec<String> {
        let request = FileRequest::Entries { location: location(what), directory_itself: false, recursive: true };
        let (mut chain, mut names) = (Chain::default(), Vec::new());
        let mut said = |said| {
            if let Said::Part(part) = said {
                let entries = EntryRecord::of(part).expect("entries");
                names.extend(entries.into_iter().map(|shared| chain.whole(shared).unwrap().name.to_text()));
            }
            Ok(None)
        };
        let mut job = Job::new(Vec::new(), &mut said);
        let answer = self.pool.as_ref().unwrap().execute("fs test", request, None, &mut job);
        assert_eq!(answer, Ok(Response::Done));
        names
    }
}

fn location(text: &str) -> Location {
    let (name, path) = text.split_once(':').unwrap();
    Location { name: name.parse().unwrap(), path: path.into() }
}

/// Creates files with every attribute that a copy preserves.
fn write_sample(root: &Path) {
    fs::create_dir_all(root.join("dir/empty")).unwrap();
    fs::write(root.join("small"), b"some text").unwrap();
    fs::write(root.join("dir/large"), vec![7; 3_000_001]).unwrap();
    fs::hard_link(root.join("small"), root.join("dir/second name")).unwrap();
    symlink("../small", root.join("dir/link")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    let mut sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.seek(std::io::SeekFrom::Start(5 << 20)).unwrap();
    sparse.write_all(b"in the middle").unwrap();
    sparse.set_len(20 << 20).unwrap();
    mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0).unwrap();
    fs::set_permissions(root.join("small"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("dir"), fs::Permissions::from_mode(0o1770)).unwrap();
    // Not every test machine's file system supports extended attributes.
    let _ = lsetxattr(root.join("small"), "user.colour", b"green", XattrFlags::empty());
    let time = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    for name in ["small", "dir"] {
        fs::File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    }
}

fn assert_same(a: &Path, b: &Path) {
    let (of_a, of_b) = (a.symlink_metadata().unwrap(), b.symlink_metadata().unwrap());
    let facts = |m: &fs::Metadata| (m.mode(), m.uid(), m.gid(), m.mtime(), m.mtime_nsec());
    assert_eq!(facts(&of_a), facts(&of_b), "{}", a.display());
    let xattr = |path: &Path| {
        let mut value = [0; 64];
        lgetxattr(path, "user.colour", &mut value).map(|len| value[..len].to_vec()).ok()
    };
    assert_eq!(xattr(a), xattr(b), "{}", a.display());
    if of_a.is_dir() {
        for entry in fs::read_dir(a).unwrap() {
            let name = entry.unwrap().file_name();
            assert_same(&a.join(&name), &b.join(&name));
        }
        assert_eq!(fs::read_dir(a).unwrap().count(), fs::read_dir(b).unwrap().count());
    } else if of_a.is_symlink() {
        assert_eq!(fs::read_link(a).unwrap(), fs::read_link(b).unwrap());
    } else if of_a.is_file() {
        assert_eq!(of_a.nlink(), of_b.nlink(), "{}", a.display());
        assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{} differs", a.display());
    }
}

#[test]
fn what_is_copied_in_and_out_again_is_the_same() {
    let mut world = World::new();
    world.create("tank/home");
    let source = world.folder.path().join("source");
    write_sample(&source);
    let copied = world.copy_in(&source, "tank/home:/").unwrap();
    assert_eq!((copied.files, copied.directories), (7, 3));
    world.snapshot("tank/home@a");
    world.reopen();
    for (what, name) in [("tank/home:/source", "live"), ("tank/home@a:/source/", "frozen")] {
        let target = world.folder.path().join(name);
        world.copy_out(what, &target).unwrap();
        assert_same(&source, &target);
        let sparse = fs::File::open(target.join("sparse")).unwrap();
        assert_eq!(rustix::fs::seek(&sparse, SeekFrom::Data(0)).unwrap() >> 20, 5, "a hole stays one");
        assert!(target.join("fifo").symlink_metadata().unwrap().file_type().is_fifo());
        let (first, second) = (target.join("small"), target.join("dir/second name"));
        assert_eq!(first.metadata().unwrap().ino(), second.metadata().unwrap().ino());
    }
}

#[test]
fn copies_within_a_pool_are_equal_and_share_blocks() {
    let world = World::new();
    world.create("tank/home");
    world.create("tank/other");
    let source = world.folder.path().join("source");
    write_sample(&source);
    world.copy_in(&source, "tank/home:/").unwrap();
    world.snapshot("tank/home@a");
    assert_eq!((world.property("feature@block_cloning"), world.property("bcloneused")), ("enabled".into(), "0".into()));
    let copied = world.copy_within("tank/home:/source", "tank/home:/copy").unwrap();
    assert_eq!((copied.files, copied.directories), (7, 3));
    world.copy_within("tank/home@a:/source", "tank/other:/").unwrap();
    for (what, name) in [("tank/home:/copy", "one"), ("tank/other:/source", "two")] {
        let target = world.folder.path().join(name);
        world.copy_out(what, &target).unwrap();
        assert_same(&source, &target);
        let sparse = fs::File::open(target.join("sparse")).unwrap();
        assert_eq!(rustix::fs::seek(&sparse, SeekFrom::Data(0)).unwrap() >> 20, 5, "a hole stays one");
        let (first, second) = (target.join("small"), target.join("dir/second name"));
        assert_eq!(first.metadata().unwrap().ino(), second.metadata().unwrap().ino());
    }
    assert_eq!(world.property("feature@block_cloning"), "active");
    let [used, saved] = ["bcloneused", "bclonesaved"].map(|name| world.property(name).parse::<u64>().unwrap());
    assert!(used > 0 && saved == 2 * used, "{used} used, {saved} saved");
    assert_eq!(world.property("bcloneratio"), "3.00");
    assert!(
        world.copy_within("tank/home:/copy", "tank/home:/copy/deeper").unwrap_err().to_string().contains("into itself")
    );
    assert!(
        world.copy_within("tank/home:/copy/small", "tank/home:/copy/").unwrap_err().to_string().contains("same file")
    );
}

#[test]
fn a_copy_without_links_is_led_nowhere_else() {
    let world = World::new();
    world.create("tank/home");
    let source = world.folder.path().join("source");
    fs::create_dir_all(source.join("ann/docs")).unwrap();
    fs::create_dir_all(source.join("bob/secret")).unwrap();
    fs::write(source.join("ann/docs/keys"), "of ann").unwrap();
    fs::write(source.join("bob/secret/keys"), "of bob").unwrap();
    symlink("../bob/secret", source.join("ann/led")).unwrap();
    symlink("../bob/secret/keys", source.join("ann/last")).unwrap();
    world.copy_in(&source.join("."), "tank/home:/").unwrap();
    for to in ["/ann/led/", "/ann/led/keys"] {
        let refused = world.copy_within("tank/home:/ann/docs/keys", &format!("tank/home:{to}")).unwrap_err();
        assert!(refused.to_string().contains("/ann/led is a symbolic link"), "{refused}");
    }
    // A link under the file's own name is replaced, and not followed.
    world.copy_within("tank/home:/ann/docs/keys", "tank/home:/ann/last").unwrap();
    world.copy_within("tank/home:/ann/docs/keys", "tank/home:/ann/").unwrap();
    world.copy_within("tank/home:/ann/docs/keys", "tank/home:/ann/new").unwrap();
    let back = world.folder.path().join("back");
    world.copy_out("tank/home:/", &back).unwrap();
    let read = |name: &str| fs::read_to_string(back.join(name)).unwrap();
    assert_eq!(
        [read("bob/secret/keys"), read("ann/last"), read("ann/keys"), read("ann/new")],
        ["of bob", "of ann", "of ann", "of ann"]
    );
    assert!(!back.join("ann/last").symlink_metadata().unwrap().is_symlink());
}

#[test]
fn a_pool_gets_no_raidz_until_its_features_are_enabled() {
    let world = World::new();
    let datasets = world.pool.as_ref().unwrap().datasets.clone();
    // Deletes the features, as in a pool created by an older version.
    datasets.run(|tx| tx.delete_range(keys(POOL, kind::PROPERTY))).unwrap();
    let ask = |sizes: [u64; 3], dry_run: bool| {
        let device = |(at, size): (usize, u64)| {
            let path = world.folder.path().join(format!("{at} of {size}"));
            VdevSpec { path: path.into(), create: Some(size << 20) }
        };
        let devices = sizes.into_iter().enumerate().map(device).collect();
        let vdevs = vec![VdevTreeSpec { kind: VdevKind::RaidZ1, role: VdevRole::Normal, devices }];
        world.ask(DeviceRequest::AddVdevs { vdevs, spares: Vec::new(), force: true, dry_run })
    };
    let add = |sizes| ask(sizes, false);
    let enable = |feature: &str| datasets.set_pool_property(&format!("feature@{feature}"), "enabled").unwrap();
    let refused = |sizes, feature: &str| {
        let hint = format!("the pool's feature {feature} is disabled; to enable it: pool set");
        let failure = add(sizes).unwrap_err();
        assert!(failure.to_string().ends_with(&hint), "{}", failure.to_string());
        assert_eq!(ask(sizes, true).unwrap_err().to_string(), failure.to_string(), "it is said before, too");
        assert_eq!(fs::read_dir(world.folder.path()).unwrap().count(), 1, "no image is left");
        assert_eq!(world.property(&format!("feature@{feature}")), "disabled");
    };
    refused([70, 70, 70], "raidz");
    enable("raidz");
    refused([64, 90, 90], "raidz_expansion");
    enable("raidz_expansion");
    refused([64, 90, 90], "raidz_sizes");
    add([70, 70, 70]).unwrap();
    assert_eq!(
        (world.property("feature@raidz"), world.property("feature@raidz_sizes")),
        ("active".into(), "disabled".into())
    );
    enable("raidz_sizes");
    add([64, 90, 90]).unwrap();
    assert_eq!(world.property("feature@raidz_sizes"), "active");
    let spare = || {
        let spare = VdevSpec { path: world.folder.path().join("spare").into(), create: Some(64 << 20) };
        world.ask(DeviceRequest::AddVdevs { vdevs: Vec::new(), spares: vec![spare], force: true, dry_run: false })
    };
    assert!(
        spare().unwrap_err().to_string().ends_with("the pool's feature spares is disabled; to enable it: pool set")
    );
    enable("spares");
    spare().unwrap();
}

#[test]
fn copying_again_replaces_files_and_merges_directories() {
    let world = World::new();
    let source = world.folder.path().join("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("one"), "old").unwrap();
    world.copy_in(&source, "tank:/").unwrap();
    fs::write(source.join("one"), "new").unwrap();
    fs::write(source.join("two"), "2").unwrap();
    world.copy_in(&source.join("."), "tank:/source").unwrap();
    assert_eq!(world.names_below("tank:/"), ["source", "source/one", "source/two"]);
    assert_eq!(world.cat("tank:/source/one").unwrap(), b"new");
    world.copy_in(&source.join("two"), "tank:/source/three").unwrap();
    assert_eq!(world.cat("tank:/source/../source/three").unwrap(), b"2");
}

#[test]
fn refusals_name_the_path() {
    let world = World::new();
    world.snapshot("tank@a");
    let missing = world.folder.path().join("missing");
    let failures = [
        (world.copy_in(&missing, "tank:/").unwrap_err(), "missing"),
        (world.copy_in(world.folder.path(), "tank@a:/").unwrap_err(), "tank@a:/"),
        (world.copy_out("tank:/nothing", &missing).unwrap_err(), "tank:/nothing"),
        (world.cat("tank:/nothing").map(|_| CopyRecord::default()).unwrap_err(), "tank:/nothing"),
        (world.cat("tank:/").map(|_| CopyRecord::default()).unwrap_err(), "Is a directory"),
        (world.cat("tank/no:/").map(|_| CopyRecord::default()).unwrap_err(), "tank/no"),
    ];
    for (failure, expected) in failures {
        assert!(failure.to_string().contains(expected), "{}", failure.to_string());
    }
}

#[test]
fn symbolic_links_lead_within_the_dataset() {
    let world = World::new();
    let source = world.folder.path().join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    fs::write(source.join("dir/file"), "here").unwrap();
    symlink("/source/dir", source.join("absolute")).unwrap();
    symlink("dir/../dir", source.join("relative")).unwrap();
    symlink("loop", source.join("loop")).unwrap();
    world.copy_in(&source, "tank:/").unwrap();
    assert_eq!(world.cat("tank:/source/absolute/file").unwrap(), b"here");
    assert_eq!(world.cat("tank:/source/relative/file").unwrap(), b"here");
    assert_eq!(world.cat("tank:/../../source/dir/file").unwrap(), b"here");
    assert!(world.cat("tank:/source/loop/file").unwrap_err().to_string().contains("symbolic links"));
}

#[test]
fn streams_carry_snapshots_to_another_dataset() {
    let world = World::new();
    world.create("tank/from");
    let source = world.folder.path().join("source");
    write_sample(&source);
    world.copy_in(&source, "tank/from:/").unwrap();
    world.snapshot("tank/from@1");
    fs::write(source.join("added"), "later").unwrap();
    world.copy_in(&source.join("added"), "tank/from:/source/").unwrap();
    world.snapshot("tank/from@2");
    for (base, snapshot) in [(None, "tank/from@1"), (Some("tank/from@1"), "tank/from@2")] {
        let stream = world.folder.path().join("stream");
        let what =
            SendSpec { base: base.map(|base| base.parse().unwrap()), ..SendSpec::full(snapshot.parse().unwrap()) };
        let out = fs::File::create(&stream).unwrap();
        world.ask_with(StreamRequest::Send { what, dry_run: false }, Some(out.into())).unwrap();
        let spec = ReceiveSpec { no_mount: true, ..ReceiveSpec::exact("tank/to".parse().unwrap()) };
        let input = fs::File::open(&stream).unwrap();
        let received = world.ask_with(StreamRequest::Receive(spec), Some(input.into())).unwrap();
        let Response::Received { records, .. } = received else { panic!("{received:?}") };
        assert_eq!(records[0].incremental, base.is_some());
    }
    assert_eq!(world.names_below("tank/to@2:/"), world.names_below("tank/from@2:/"));
    assert_eq!(world.cat("tank/to:/source/added").unwrap(), b"later");
}

#[test]
fn what_changes_the_pool_is_in_its_history() {
    let mut world = World::new();
    world.create("tank/a");
    let _ = world.ask(DatasetRequest::Promote { name: "tank/a".parse().unwrap() }).unwrap_err();
    world.ask(PoolRequest::Status).unwrap();
    world.reopen();
    let Ok(Response::History(lines)) = world.ask(PoolRequest::History { internal: false }) else {
        panic!("no history")
    };
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].text, "fs test");
}

#[test]
fn a_device_that_holds_a_pool_is_refused_by_name() {
    let mut world = World::new();
    world.pool.take().unwrap().export().unwrap();
    let image: PathBuf = world.folder.path().join("image");
    let take = |create, force| {
        let specs = [VdevSpec { path: image.clone().into(), create }];
        NewDevices::take(&specs, "create", "other", force).map(drop)
    };
    assert!(take(None, false).unwrap_err().to_string().contains("pool 'tank'"));
    assert!(take(Some(64 << 20), true).unwrap_err().to_string().contains("exists"), "an image is never overwritten");
    assert!(take(None, true).is_ok());
}

#[test]
fn images_that_came_to_nothing_go_away() {
    let folder = tempfile::tempdir().unwrap();
    let spec = |name: &str, create| VdevSpec { path: folder.path().join(name).into(), create };
    let specs = [spec("a", Some(64 << 20)), spec("b", Some(1 << 20))];
    assert!(NewDevices::take(&specs, "create", "tank", false).unwrap_err_or_panic().to_string().contains("64M"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// `unwrap_err` for a value without `Debug`.
trait UnwrapErr {
    fn unwrap_err_or_panic(self) -> Failure;
}

impl UnwrapErr for Result<NewDevices, Failure> {
    fn unwrap_err_or_panic(self) -> Failure {
        self.err().expect("it was refused")
    }
}

#[test]
fn nobody_waits_for_a_thread_that_has_ended_by_a_defect() {
    let world = World::new();
    let pool = world.pool.as_ref().unwrap();
    let engine = pool.engine().clone();
    let defect = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        let _vital = super::vital::Vital::new(&engine, "thread that is tried");
        panic!("as it is meant to");
    });
    // At one byte a second, the trim would take years.
    let order = protocol::Order::Start { target: protocol::JobTarget::Devices(Vec::new()), limit: Some(1) };
    let request = Request::job(dataset::jobs::Kind::Trim, order);
    let failure = pool.execute("pool trim", request, None, &mut Job::new(Vec::new(), &mut |_| Ok(None))).unwrap_err();
    assert!(failure.to_string().contains("the thread that is tried has ended by a defect of the program"), "{failure}");
    assert!(defect.join().is_err());
    assert!(pool.engine().commit_anyway().is_err());
}
