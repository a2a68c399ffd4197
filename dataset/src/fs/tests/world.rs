//! A file system for tests.

use std::sync::Arc;

use pool::{
    admin::{self, CreateOptions, OpenOptions},
    check::{self, Ledger},
    device::{Device, MemoryDevice},
    env::SeededEnv,
    error::Result,
    format::key::Key,
    tree::{Batch, Block, View},
    txg::{Engine, Head, Plain, Settings, Sync, SyncClient, Written},
    units::{MIB, Txg},
};

use crate::{
    fs::{self, FileSystem, Options},
    lineage::reference,
};

/// A file system with small records, in a small pool of its own with hardly any cache.
pub(in crate::fs) struct World {
    device: Arc<dyn Device>,
    pub(in crate::fs) engine: Arc<Engine>,
    pub(in crate::fs) head: Arc<Head>,
    pub(in crate::fs) fs: Arc<FileSystem>,
}

/// The minimal layer above the engine: keeps one tree's root in the catalogue, and frees the blocks that the tree
/// drops.
struct OneTree;

/// The key of the tree's root in the catalogue.
const TREE: Key = Key::new(1, 1, 0);

impl SyncClient for OneTree {
    fn sync(&self, sync: &mut Sync<'_>, written: Vec<Written>) -> Result<()> {
        for Written { root, level, kills, shares, .. } in written {
            reference::take(sync, shares).unwrap();
            reference::give_up(sync, kills).unwrap();
            sync.catalogue(|_: &View<'_>, batch: &mut Batch| -> Result<(), Plain> {
                batch.put(TREE, [level], Some(&Block::Stored(root)));
                Ok(())
            })?;
        }
        Ok(())
    }
}

fn options() -> Options {
    Options { recordsize: 4096, sharing: true, acl: true, attributes: true, accounts: true, ..Options::default() }
}

const CACHE: u64 = MIB;
const DIRTY: u64 = 64 * MIB;

fn settings() -> Settings {
    Settings { cache: CACHE, dirty: DIRTY, workers: 0 }
}

impl World {
    pub(in crate::fs) fn new(seed: u64) -> World {
        World::on(Arc::new(MemoryDevice::new("disk", 64 * MIB)), seed)
    }

    /// As `new`, on the given device.
    pub(super) fn on(device: Arc<dyn Device>, seed: u64) -> World {
        let env = Arc::new(SeededEnv::new(seed));
        let create = CreateOptions { settings: settings(), ..CreateOptions::new("tank") };
        let engine = admin::create(vec![device.clone()], &create, env).unwrap().engine().clone();
        engine.set_client(Arc::new(OneTree));
        let head = engine.open_head(1, None);
        FileSystem::format(&head, (0, 0)).unwrap();
        let fs = FileSystem::open(head.clone(), options()).unwrap();
        World { device, engine, head, fs }
    }

    pub(super) fn commit(&self) {
        self.engine.commit().unwrap();
    }

    /// Empties the cache.
    pub(super) fn evict(&self) {
        self.engine.tune(0, DIRTY);
        self.engine.tune(CACHE, DIRTY);
    }

    /// Reopens the pool in its last committed state.
    pub(super) fn reopen(self) -> World {
        let World { device, engine, head, fs } = self;
        drop((engine, head, fs));
        let open = OpenOptions { settings: settings(), ..OpenOptions::default() };
        let engine = admin::open(vec![device.clone()], &open, Arc::new(SeededEnv::new(1))).unwrap().engine().clone();
        engine.set_client(Arc::new(OneTree));
        let root = engine.catalogue().read(|view| -> Result<_, Plain> {
            Ok(view.get(TREE)?.map(|entry| (entry.block().unwrap().pointer().unwrap(), entry.body()[0])))
        });
        let head = engine.open_head(1, root.unwrap());
        let fs = FileSystem::open(head.clone(), options()).unwrap();
        World { device, engine, head, fs }
    }

    /// Runs the file system's checker and, after a commit, the pool's: every block has exactly one owner.
    pub(in crate::fs) fn check(&self) {
        assert_eq!(fs::check::check(&self.head).unwrap(), []);
        self.commit();
        let mut ledger = Ledger::default();
        check::enter_catalogue(&self.engine, &mut ledger);
        let root = self.head.clean_root().expect("all is committed");
        check::walk_tree(&self.engine, root, Txg::ZERO, &mut ledger, "tree", |ledger, node| {
            let leaf = node.leaf().unwrap();
            for pointer in leaf.items().iter().filter_map(|item| leaf.pointer(item)) {
                ledger.refer(&pointer, "record");
            }
        });
        assert_eq!(check::conclude(&self.engine, &mut ledger).unwrap(), []);
    }
}
