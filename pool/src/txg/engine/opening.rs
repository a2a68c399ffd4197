//! Opening an engine.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64},
};

use crossbeam_channel::bounded;
use parking_lot::{Condvar, Mutex, RwLock};

use super::{
    parameters::{CATALOGUE, Found, Opening, Settings, catalogue_level, state_of},
    state::Engine,
};
use crate::{
    block::Ahead,
    env::Env,
    secondary::Secondary,
    tree::{BlockCache, Root},
    txg::{
        durable::rounds::Log, head::Head, streams::Streams, suspects::Suspects, throttle::Throttle, workers::Workers,
    },
    units::Txg,
};

impl Engine {
    /// Opens an engine. A new pool gets an empty catalogue and needs a first commit.
    pub fn open(opening: Opening, env: Arc<dyn Env>, settings: Settings) -> Arc<Engine> {
        let Opening { guid, storage, uberblock, ancestry, first, read_only, log } = opening;
        let committed = uberblock.as_ref().map_or(first.back(1), |uberblock| uberblock.txg);
        let root = match &uberblock {
            Some(uberblock) => Root::stored(uberblock.catalogue, catalogue_level(uberblock)),
            None => Root::empty(first),
        };
        let head = uberblock.as_ref().and_then(|uberblock| uberblock.log);
        let opened = uberblock.as_ref().map_or(Txg::ZERO, state_of);
        let counters = uberblock.as_ref().map_or_else(Vec::new, |uberblock| uberblock.counters.clone());
        let found = Found { txg: committed, counters, has_log: !log.is_empty() };
        let (kick, kicked) = bounded(1);
        let engine = Arc::new(Engine {
            guid: AtomicU64::new(guid.0),
            log: Log::new(head.map(|head| (head, storage.space.unit_at(head.area))), log),
            storage,
            cache: BlockCache::new(settings.cache),
            ahead: Ahead::new(settings.cache),
            streams: Streams::default(),
            secondary: Secondary::new(settings.cache, ancestry.epoch, opened, read_only),
            env,
            workers: Workers::new(settings.workers),
            throttle: Throttle::new(settings.dirty),
            read_only,
            ancestry,
            gate: RwLock::new(first),
            touched: AtomicBool::new(uberblock.is_none()),
            changed: AtomicU64::new(opened.0),
            committed: AtomicU64::new(committed.0),
            found,
            heads: Mutex::default(),
            frozen: Mutex::default(),
            catalogue: OnceLock::new(),
            client: OnceLock::new(),
            features: OnceLock::new(),
            reclaimer: OnceLock::new(),
            syncing: Mutex::default(),
            suspects: Suspects::default(),
            labelling: Mutex::default(),
            early_writes: Mutex::default(),
            early_written: Condvar::new(),
            failed: OnceLock::new(),
            kick,
            kicked,
            orders: Mutex::default(),
            settled: Condvar::new(),
            attended: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&engine);
        engine.storage.vdevs.suspension().watch(move || {
            if let Some(engine) = weak.upgrade() {
                engine.notify();
            }
        });
        let catalogue = Head::new(CATALOGUE, Arc::downgrade(&engine), root, uberblock.is_none());
        assert!(engine.catalogue.set(catalogue).is_ok());
        engine
    }
}
