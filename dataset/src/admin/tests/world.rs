//! A pool for tests of administration.

use std::{collections::BTreeMap, sync::Arc};

use pool::{
    admin::{self, ClassedVdev, CreateOptions, OpenOptions},
    check::{self, Ledger},
    device::{Device, MemoryDevice},
    env::{Env, SeededEnv},
    format::{key::Key, pointer::BlockPointer},
    tree::{Event, Walker},
    txg::{Engine, SETTLING_COMMITS, Settings},
    units::{MIB, Txg},
};
use rustix::io::Errno;

use crate::{
    admin::{
        CreateRequest, Datasets, DestroyRequest, DestroySnapshotsRequest, Destroyed, ListRequest, Progress,
        RollbackRequest, RolledBack,
    },
    catalogue::{DatasetRow, dataset_key},
    error::{Error, Result},
    fs::{self, Caller, FileSystem, ROOT, SetAttr, key::EXTENT},
    lineage::{self, nodes},
    name::{DatasetName, Name},
};

/// Files by name, all in the root directory.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Nodes with their levels.
pub(crate) type Nodes = Vec<(u8, BlockPointer)>;
/// Blocks of items with their keys.
pub(crate) type Items = Vec<(Key, BlockPointer)>;

/// A pool named tank in memory.
pub(crate) struct World {
    pub(crate) devices: Vec<Arc<dyn Device>>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) datasets: Arc<Datasets>,
}

pub(crate) fn settings() -> Settings {
    Settings { cache: 16 * MIB, dirty: 32 * MIB, workers: 0 }
}

pub(crate) fn name(text: &str) -> DatasetName {
    text.parse().unwrap()
}

impl World {
    pub(crate) fn new(seed: u64) -> World {
        World::on(Arc::new(MemoryDevice::new("disk", 256 * MIB)), seed)
    }

    /// A new pool on this device.
    pub(crate) fn on(device: Arc<dyn Device>, seed: u64) -> World {
        World::over(vec![device], seed)
    }

    /// A new pool on the device, with threads that write.
    pub(crate) fn with_workers(device: Arc<dyn Device>, seed: u64, workers: usize) -> World {
        World::with_settings(vec![device], seed, Settings { workers, ..settings() })
    }

    /// A new pool on these devices.
    pub(crate) fn over(devices: Vec<Arc<dyn Device>>, seed: u64) -> World {
        World::with_settings(devices, seed, settings())
    }

    /// A new pool on the devices, with the given settings.
    pub(crate) fn with_settings(devices: Vec<Arc<dyn Device>>, seed: u64, settings: Settings) -> World {
        World::with_env(devices, settings, Arc::new(SeededEnv::new(seed)))
    }

    /// A new pool on the devices, with the given clock and randomness.
    pub(crate) fn with_env(devices: Vec<Arc<dyn Device>>, settings: Settings, env: Arc<dyn Env>) -> World {
        let options = CreateOptions { settings, ..CreateOptions::new("tank") };
        let pool = admin::create(devices.clone(), &options, env).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        World { devices, engine, datasets }
    }

    /// Closes the pool and opens it again.
    pub(crate) fn reopen(&mut self) {
        self.datasets.close_all().unwrap();
        let seed = self.engine.env().random();
        *self = World::open_all(self.devices.clone(), seed).unwrap();
    }

    /// A new pool of the given vdevs.
    pub(crate) fn of(vdevs: &[ClassedVdev], seed: u64) -> World {
        let options = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let pool = admin::create_of(vdevs, &options, Arc::new(SeededEnv::new(seed))).unwrap();
        let engine = pool.engine().clone();
        let datasets = Datasets::create_root(engine.clone(), name("tank"), (0, 0)).unwrap();
        let devices = vdevs.iter().flat_map(|classed| classed.vdev.devices().to_vec()).collect();
        World { devices, engine, datasets }
    }

    /// The pool on the device; `None` before the first dataset was committed.
    pub(crate) fn open(device: Arc<dyn Device>, seed: u64) -> Option<World> {
        World::open_all(vec![device], seed)
    }

    /// The pool on these devices.
    pub(crate) fn open_all(devices: Vec<Arc<dyn Device>>, seed: u64) -> Option<World> {
        World::open_as(devices, &OpenOptions::default(), seed).unwrap()
    }

    /// The pool on the devices, opened with the given options.
    pub(crate) fn open_as(
        devices: Vec<Arc<dyn Device>>,
        options: &OpenOptions,
        seed: u64,
    ) -> pool::error::Result<Option<World>> {
        let options = OpenOptions { settings: settings(), ..options.clone() };
        let pool = admin::open(devices.clone(), &options, Arc::new(SeededEnv::new(seed)))?;
        let engine = pool.engine().clone();
        let datasets = Datasets::open(engine.clone(), name("tank")).unwrap();
        let is_made = datasets.read(|tx| tx.contains(crate::catalogue::MASTER)).unwrap();
        Ok(is_made.then_some(World { devices, engine, datasets }))
    }

    pub(crate) fn fs(&self, dataset: &str) -> Arc<FileSystem> {
        self.datasets.open_dataset(&name(dataset)).unwrap().fs().clone()
    }

    pub(crate) fn write(&self, dataset: &str, file: &str, content: &[u8]) {
        self.try_write(dataset, file, content).unwrap();
    }

    pub(crate) fn try_write(&self, dataset: &str, file: &str, content: &[u8]) -> Result<(), Errno> {
        let fs = self.fs(dataset);
        let ino = fs.create(&Caller::default(), ROOT, file.as_bytes(), 0o644, false)?.ino;
        fs.setattr(&Caller::default(), ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        for (index, part) in content.chunks(64 << 10).enumerate() {
            fs.write(ino, (index as u64) << 16, part, false)?;
        }
        Ok(())
    }

    /// Writes files of the given length, named by number, until the space is used up; returns their number.
    pub(crate) fn fill(&self, dataset: &str, len: usize) -> u64 {
        for number in 0.. {
            match self.try_write(dataset, &number.to_string(), &noise(number, len)) {
                Ok(()) => {}
                Err(refusal) => {
                    assert_eq!(refusal, Errno::NOSPC);
                    // A partial last file may exist.
                    let _ = self.fs(dataset).unlink(ROOT, number.to_string().as_bytes());
                    return number;
                }
            }
        }
        unreachable!("it fills")
    }

    /// Copies a file, sharing blocks if possible.
    pub(crate) fn copy(&self, from: &str, source: &str, to: &str, target: &str) {
        let size = self.fs(from).lookup(ROOT, source.as_bytes()).unwrap().size;
        assert_eq!(self.try_copy(from, source, to, target), Ok(size));
    }

    /// As `copy`; returns the number of bytes copied.
    pub(crate) fn try_copy(&self, from: &str, source: &str, to: &str, target: &str) -> Result<u64, Errno> {
        let (other, fs) = (self.fs(from), self.fs(to));
        let source = other.lookup(ROOT, source.as_bytes())?;
        let ino = fs.create(&Caller::default(), ROOT, target.as_bytes(), 0o644, false)?.ino;
        fs.setattr(&Caller::default(), ino, &SetAttr { size: Some(0), ..SetAttr::default() })?;
        let mut copied = 0;
        while copied < source.size {
            match fs.copy_range_from(&other, source.ino, copied, ino, copied, source.size - copied)? {
                0 => break,
                count => copied += count,
            }
        }
        Ok(copied)
    }

    /// Copies a range between two existing files; returns the number of bytes.
    pub(crate) fn copy_range(&self, from: (&str, &str, u64), to: (&str, &str, u64), len: u64) -> u64 {
        let (other, fs) = (self.fs(from.0), self.fs(to.0));
        let source = other.lookup(ROOT, from.1.as_bytes()).unwrap().ino;
        let target = fs.lookup(ROOT, to.1.as_bytes()).unwrap().ino;
        // A copy within one file may extend the file.
        let len = len.min(other.getattr(source).unwrap().size.saturating_sub(from.2));
        let mut copied = 0;
        while copied < len {
            match fs.copy_range_from(&other, source, from.2 + copied, target, to.2 + copied, len - copied).unwrap() {
                0 => break,
                count => copied += count,
            }
        }
        copied
    }

    /// The number of shared blocks, and the bytes saved.
    pub(crate) fn sharing(&self) -> (u64, u64) {
        let row = self.datasets.read(lineage::reference::sharing).unwrap();
        (row.blocks, row.saved.allocated)
    }

    pub(crate) fn remove(&self, dataset: &str, file: &str) {
        self.fs(dataset).unlink(ROOT, file.as_bytes()).unwrap();
    }

    /// The files of a dataset or snapshot.
    pub(crate) fn files(&self, of: &str) -> Files {
        match of.parse::<Name>().unwrap() {
            Name::Dataset(name) => read_all(self.datasets.open_dataset(&name).unwrap().fs()),
            Name::Snapshot(name) => read_all(&self.datasets.open_snapshot(&name).unwrap().fs),
            Name::Bookmark(_) => unreachable!("a bookmark has no files"),
        }
    }

    /// The blocks of a committed dataset: nodes with levels, the root first, and the items' blocks with keys.
    pub(crate) fn blocks(&self, dataset: &str) -> (Nodes, Items) {
        let id = self.datasets.open_dataset(&name(dataset)).unwrap().id();
        let (row, root) = self.datasets.read(|tx| tx.row_and_block::<DatasetRow>(dataset_key(id))).unwrap();
        let mut walker = Walker::new(nodes::root(root.unwrap(), row.level), Key::MIN, Txg::ZERO);
        let seen = self.engine.pin().seen();
        let (mut found, mut blocks) = (Vec::new(), Vec::new());
        while let Some(event) = walker.next(|place| self.engine.load_node(place, seen)).unwrap() {
            let Event::Enter(place, node) = event else { continue };
            found.push((place.level, place.pointer));
            blocks.extend(nodes::items(&node).filter_map(|(leaf, item)| Some((item.key(), leaf.pointer(item)?))));
        }
        (found, blocks)
    }

    /// The committed blocks of a dataset's files.
    pub(crate) fn extents(&self, dataset: &str) -> Items {
        let (_, mut blocks) = self.blocks(dataset);
        blocks.retain(|(key, _)| key.kind == EXTENT);
        blocks
    }

    /// The first committed block of a file.
    pub(crate) fn extent(&self, dataset: &str, file: &str) -> BlockPointer {
        let ino = self.fs(dataset).lookup(ROOT, file.as_bytes()).unwrap().ino;
        let of_it = self.extents(dataset).into_iter().find(|(key, _)| key.object == ino);
        of_it.expect("the file has a block").1
    }

    pub(crate) fn create(&self, dataset: &str) -> Result<Vec<DatasetName>> {
        self.datasets.create(CreateRequest {
            name: name(dataset),
            parents: false,
            properties: Vec::new(),
            owner: (0, 0),
        })
    }

    pub(crate) fn snapshot(&self, snapshot: &str) -> Result<()> {
        self.datasets.snapshot(vec![snapshot.parse().unwrap()], false, Vec::new()).map(drop)
    }

    pub(crate) fn clone(&self, snapshot: &str, dataset: &str) -> Result<()> {
        self.datasets.clone_snapshot(&snapshot.parse().unwrap(), &name(dataset), false, Vec::new(), (0, 0))
    }

    pub(crate) fn rollback(&self, snapshot: &str, later: bool, dependents: bool) -> Result<RolledBack> {
        self.datasets.rollback(RollbackRequest { snapshot: snapshot.parse().unwrap(), later, dependents })
    }

    /// Destroys a dataset, or snapshots.
    pub(crate) fn destroy(&self, what: &str, recursive: bool, dependents: bool) -> Result<Destroyed> {
        self.destroy_or_not(what, recursive, dependents, false)
    }

    pub(crate) fn destroy_or_not(&self, what: &str, recursive: bool, dependents: bool, dry: bool) -> Result<Destroyed> {
        match what.parse() {
            Ok(set) => {
                let request = DestroySnapshotsRequest { set, recursive, dependents, defer: false };
                self.datasets.destroy_snapshots(request, dry)
            }
            Err(_) => self.datasets.destroy(DestroyRequest { name: name(what), recursive, dependents }, dry),
        }
    }

    /// A property's canonical value; `-` without a value.
    pub(crate) fn get(&self, of: &str, property: &str) -> String {
        let valued = self.datasets.get(&of.parse().unwrap(), property).unwrap();
        valued.map_or("-".into(), |valued| valued.value)
    }

    pub(crate) fn number(&self, of: &str, property: &str) -> u64 {
        self.get(of, property).parse().unwrap()
    }

    /// The names of all datasets, snapshots and bookmarks.
    pub(crate) fn names(&self) -> Vec<String> {
        let request = ListRequest { depth: None, ..ListRequest::default() };
        self.datasets.list(&request).unwrap().iter().map(|listed| listed.name.to_string()).collect()
    }

    /// Finishes all background work, in small steps.
    pub(crate) fn work(&self) {
        while self.datasets.background_step_of(20).unwrap() == Progress::Worked {}
    }

    /// The findings of the check of datasets, without space maps and files.
    pub(crate) fn findings(&self) -> Vec<lineage::check::Finding> {
        lineage::check::check(&self.engine, &mut Ledger::default()).unwrap().findings
    }

    /// Makes commits until all freed space can be reused.
    pub(crate) fn settle(&self) {
        for _ in 0..SETTLING_COMMITS {
            if self.engine.is_at_rest() {
                break;
            }
            self.engine.commit_anyway().unwrap();
        }
    }

    /// Commits, and returns all findings except those about files.
    pub(crate) fn all_findings(&self) -> Vec<check::Finding> {
        self.engine.commit().unwrap();
        let mut ledger = Ledger::default();
        check::enter_catalogue(&self.engine, &mut ledger);
        lineage::check::check(&self.engine, &mut ledger).unwrap().enter(&mut ledger);
        check::conclude(&self.engine, &mut ledger).unwrap()
    }

    /// The devices with errors, and their counts.
    pub(crate) fn harm(&self) -> Vec<String> {
        let leaves = self.engine.storage().vdevs.all().into_iter().flat_map(|vdev| vdev.leaves());
        let counts = leaves.map(|leaf| (leaf.name().to_owned(), leaf.counters().snapshot()));
        let harmed = counts.filter(|(_, it)| it.read_errors + it.write_errors + it.checksum_errors > 0);
        harmed.map(|(name, counts)| format!("{name}: {counts:?}")).collect()
    }

    /// Clears the errors of devices that tests have damaged.
    pub(crate) fn forgive(&self) {
        let leaves = self.engine.storage().vdevs.all().into_iter().flat_map(|vdev| vdev.leaves());
        leaves.for_each(|leaf| leaf.counters().clear_errors());
    }

    /// Commits, and fails if the check finds anything or a device has errors.
    pub(crate) fn judge(&self) {
        self.judge_damaged();
        assert_eq!(self.harm(), [""; 0], "nothing was damaged");
    }

    /// As `judge`, for a pool with damaged devices.
    pub(crate) fn judge_damaged(&self) {
        let findings = self.all_findings();
        assert!(findings.is_empty(), "{findings:#?}");
        for listed in self.datasets.list(&ListRequest { depth: None, ..ListRequest::default() }).unwrap() {
            if listed.is_partial() {
                continue;
            }
            let Name::Dataset(name) = listed.name else { continue };
            let dataset = self.datasets.open_dataset(&name).unwrap();
            assert_eq!(fs::check::check(dataset.head()).unwrap(), [], "{name}");
        }
    }
}

fn read_all(fs: &FileSystem) -> Files {
    let mut entries = Vec::new();
    fs.readdir(ROOT, 0, &mut |entry| {
        entries.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino));
        true
    })
    .unwrap();
    let read = |ino| {
        let mut content = Vec::new();
        let len = fs.getattr(ino).unwrap().size as usize;
        while content.len() < len {
            fs.read(ino, content.len() as u64, len - content.len(), &mut content).unwrap();
        }
        content
    };
    entries.into_iter().filter(|(name, _)| name != "." && name != "..").map(|(name, ino)| (name, read(ino))).collect()
}

/// Incompressible bytes.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// The error of a refused request.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T>) -> Error {
    result.expect_err("the request should have been refused")
}
