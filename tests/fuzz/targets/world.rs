//! A small pool, made once and opened for each input from a copy: what hostile items and streams are put into.

use std::sync::{Arc, LazyLock};

use dataset::{
    admin::{CreateRequest, Datasets},
    fs::{Caller, Errno, FallocateFlags, FileSystem, ROOT, SetXattr},
    lineage,
    name::DatasetName,
};
use pool::{
    admin::{self, CreateOptions, OpenOptions},
    check::{self, Ledger},
    device::MemoryDevice,
    env::SeededEnv,
    txg::Settings,
    units::MIB,
};

/// The size of the device: the smallest that there may be.
const SIZE: u64 = 64 * MIB;

/// The pool's one data set beside its root.
pub(crate) const HOME: &str = "tank/home";

/// The image that every input begins with.
static IMAGE: LazyLock<MemoryDevice> = LazyLock::new(|| make().expect("a pool can be made in memory"));

/// An open pool.
pub(crate) struct World {
    /// Closes the pool last.
    _pool: admin::Pool,
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
        let options = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let pool = admin::open(vec![Arc::new(IMAGE.snapshot())], &options, Arc::new(SeededEnv::new(2)));
        let pool = pool.expect("the image opens");
        let datasets = Datasets::open(pool.engine().clone(), name("tank")).expect("its data sets open");
        World { _pool: pool, datasets }
    }

    /// The files of a data set.
    pub(crate) fn fs(&self, dataset: &str) -> Arc<FileSystem> {
        self.datasets.open_dataset(&name(dataset)).expect("the data set opens").fs().clone()
    }

    /// Commits, and asserts that every sector is accounted for once, whatever the files have become.
    pub(crate) fn check_space(&self) {
        let engine = self.datasets.engine();
        engine.commit().expect("memory does not fail");
        let report = lineage::check::check(engine).expect("memory does not fail");
        let mut ledger = Ledger::default();
        check::enter_catalogue(engine, &mut ledger);
        report.enter(&mut ledger);
        let findings = check::conclude(engine, &mut ledger).expect("memory does not fail");
        assert!(findings.is_empty(), "the check finds {findings:#?}");
    }
}

/// A pool with files of every kind, and a snapshot of them.
fn make() -> Result<MemoryDevice, dataset::admin::Error> {
    let device = Arc::new(MemoryDevice::new("disk", SIZE));
    let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
    let pool = admin::create(vec![device.clone()], &options, Arc::new(SeededEnv::new(1)))?;
    let datasets = Datasets::create_root(pool.engine().clone(), name("tank"), (0, 0))?;
    let request = CreateRequest { name: name(HOME), parents: false, properties: Vec::new(), owner: (0, 0) };
    datasets.create(request)?;
    let fs = datasets.open_dataset(&name(HOME))?.fs().clone();
    fill(&fs).expect("there is room for a few files");
    datasets.snapshot(vec![name(HOME).snapshot("a").expect("a valid name")], false, Vec::new())?;
    datasets.close_all()?;
    pool.export()?;
    Ok(device.snapshot())
}

fn fill(fs: &FileSystem) -> Result<(), Errno> {
    let caller = Caller::default();
    let dir = fs.mkdir(&caller, ROOT, b"dir", 0o755)?.ino;
    let small = fs.create(&caller, dir, b"small", 0o644, true)?.ino;
    fs.write(small, 0, b"a few bytes", false)?;
    let file = fs.create(&caller, ROOT, b"file", 0o640, true)?.ino;
    fs.write(file, 0, &[7; 300_000], false)?;
    // The middle of a record: its rest stands on a block that two items share.
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
