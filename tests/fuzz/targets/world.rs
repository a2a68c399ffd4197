//! A small pool, made once and opened for each input from a copy: the destination of hostile items and streams.

use std::sync::{Arc, LazyLock};

use dataset::{
    admin::{Assignment, CreateRequest, Datasets},
    error::Error,
    fs::{Caller, Errno, FallocateFlags, FileSystem, ROOT, SetXattr},
    jobs::Job,
    lineage,
    name::{DatasetName, Name},
};
use pool::{
    admin::{self, CreateOptions, OpenOptions},
    check::{self, Ledger},
    device::MemoryDevice,
    env::SeededEnv,
    txg::Settings,
    units::MIB,
};

/// The size of the device in bytes: the smallest allowed.
const SIZE: u64 = 64 * MIB;

/// The pool's only dataset besides its root.
pub(crate) const HOME: &str = "tank/home";

/// A clone of a snapshot of [`HOME`].
pub(crate) const CLONE: &str = "tank/clone";

/// The image that every input begins with.
static IMAGE: LazyLock<MemoryDevice> = LazyLock::new(|| make().expect("a pool can be made in memory"));

/// An open pool.
pub(crate) struct World {
    device: Arc<MemoryDevice>,
    pool: admin::Pool,
    pub(crate) datasets: Arc<Datasets>,
}

fn settings() -> Settings {
    Settings { cache: 4 * MIB, dirty: 8 * MIB, workers: 0 }
}

pub(crate) fn name(text: &str) -> DatasetName {
    text.parse().expect("names of tests are valid")
}

impl World {
    /// The pool as it was made, on a device of its own.
    pub(crate) fn new() -> World {
        World::on(Arc::new(IMAGE.snapshot())).expect("the image opens")
    }

    fn on(device: Arc<MemoryDevice>) -> Result<World, Error> {
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(vec![device.clone()], &options, Arc::new(SeededEnv::new(2)))?;
        let datasets = Datasets::open(pool.engine().clone(), name("tank"))?;
        Ok(World { device, pool, datasets })
    }

    /// Closes the pool and opens it again, if it still opens.
    pub(crate) fn reopened(self) -> Result<World, Error> {
        self.datasets.close_all()?;
        self.pool.export()?;
        World::on(self.device)
    }

    /// The file system of a dataset.
    pub(crate) fn fs(&self, dataset: &str) -> Arc<FileSystem> {
        self.datasets.open_dataset(&name(dataset)).expect("the dataset opens").fs().clone()
    }

    /// Commits, and asserts that every sector is accounted for once, even after hostile edits.
    pub(crate) fn check_space(&self) {
        let engine = self.datasets.engine();
        engine.commit().expect("memory does not fail");
        let mut ledger = Ledger::default();
        check::enter_catalogue(engine, &mut ledger);
        lineage::check::check(engine, &mut ledger).expect("memory does not fail").enter(&mut ledger);
        let findings = check::conclude(engine, &mut ledger).expect("memory does not fail");
        assert!(findings.is_empty(), "the check finds {findings:#?}");
    }
}

/// A pool with files of every kind, and a catalogue with rows of every kind. The newest snapshot of [`HOME`] is `a`.
fn make() -> Result<MemoryDevice, Error> {
    let device = Arc::new(MemoryDevice::new("disk", SIZE));
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = admin::create(vec![device.clone()], &options, Arc::new(SeededEnv::new(1)))?;
    let datasets = Datasets::create_root(pool.engine().clone(), name("tank"), (0, 0))?;
    let request = CreateRequest { name: name(HOME), parents: false, properties: Vec::new(), owner: (0, 0) };
    datasets.create(request)?;
    let fs = datasets.open_dataset(&name(HOME))?.fs().clone();
    let [older, old, newest] = ["older", "old", "a"].map(|snapshot| name(HOME).snapshot(snapshot).expect("valid"));
    for snapshot in [&older, &old, &newest] {
        fill(&fs).expect("there is room for a few files");
        datasets.snapshot(vec![snapshot.clone()], false, Vec::new())?;
    }
    datasets.clone_snapshot(&old, &name(CLONE), false, Vec::new(), (0, 0))?;
    datasets.bookmark(&Name::Snapshot(older.clone()), &name(HOME).bookmark("mark").expect("valid"))?;
    datasets.hold("keep", &[older], false)?;
    let quota = Assignment { property: "quota".into(), value: "60M".into() };
    let note = Assignment { property: "test:note".into(), value: "hers".into() };
    datasets.set(&[Name::Dataset(name(HOME))], &[quota, note])?;
    datasets.record("fs set", "ann", "well")?;
    datasets.scrub().start()?;
    datasets.scrub().pause()?;
    datasets.close_all()?;
    pool.export()?;
    Ok(device.snapshot())
}

/// Makes the files, or makes them anew.
fn fill(fs: &FileSystem) -> Result<(), Errno> {
    let caller = Caller::default();
    if let Ok(dir) = fs.lookup(ROOT, b"dir") {
        [b"small", b"again"].iter().try_for_each(|name| fs.unlink(dir.ino, *name))?;
        [b"file", b"link"].iter().try_for_each(|name| fs.unlink(ROOT, *name))?;
        fs.rmdir(ROOT, b"dir")?;
    }
    let dir = fs.mkdir(&caller, ROOT, b"dir", 0o755)?.ino;
    let small = fs.create(&caller, dir, b"small", 0o644, true)?.ino;
    fs.write(small, 0, b"a few bytes", false)?;
    let file = fs.create(&caller, ROOT, b"file", 0o640, true)?.ino;
    fs.write(file, 0, &[7; 300_000], false)?;
    // Inside a record: the remaining parts share a block between two items.
    fs.fallocate(file, FallocateFlags { punch_hole: true, keep_size: true, zero_range: false }, 20_000, 9_000)?;
    fs.link(file, dir, b"again")?;
    fs.symlink(&caller, ROOT, b"link", b"dir/small")?;
    fs.setxattr(file, b"user.short", b"value", SetXattr::Any)?;
    fs.setxattr(file, b"user.long", &[3; 20_000], SetXattr::Any)?;
    let orphan = fs.create(&caller, ROOT, b"orphan", 0o600, true)?.ino;
    fs.write(orphan, 5_000_000, b"far", false)?;
    fs.retain(orphan);
    fs.unlink(ROOT, b"orphan")
}
