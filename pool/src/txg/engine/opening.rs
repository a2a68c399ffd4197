//! Opening an engine: its parameters, and the uberblock's counters.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64},
};

use crossbeam_channel::bounded;
use parking_lot::{Condvar, Mutex, RwLock};

use super::{CATALOGUE, Engine};
use crate::{
    block::{Ahead, storage::Storage},
    env::Env,
    format::{
        intent::Entry,
        uberblock::{Epoch, Uberblock, counter},
    },
    secondary::Secondary,
    tree::{BlockCache, Root},
    txg::{durable::Log, head::Head, still::Suspects, streams::Streams, throttle::Throttle, workers::Workers},
    units::{Guid, Txg},
};

/// The tunables of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bound of the cache, in bytes.
    pub cache: u64,
    /// The bound of dirty data, in bytes.
    pub dirty: u64,
    /// Worker threads; 0 has everything run on the caller's thread.
    pub workers: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        Settings { cache: 256 << 20, dirty: 128 << 20, workers }
    }
}

/// The import that commits, and the state that it opened: see [`crate::format::uberblock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestry {
    /// The committing import.
    pub epoch: Epoch,
    /// The import that wrote the opened state.
    pub parent: Epoch,
    /// The transaction group of the opened state.
    pub forked_at: Txg,
}

/// The kind of the uberblock's counter for the level of the catalogue's root.
pub(in crate::txg) const CATALOGUE_LEVEL: u8 = 0;

/// The kind of the uberblock's counter for the transaction group whose state the uberblock repeats. Absent unless the
/// pool was rewound: see [`crate::admin::rewind`].
pub(crate) const REPEATS: u8 = 1;

/// The transaction group that wrote the uberblock's state.
pub(crate) fn state_of(uberblock: &Uberblock) -> Txg {
    match uberblock.counter(REPEATS) {
        0 => uberblock.txg,
        earlier => Txg(earlier),
    }
}

/// The opened state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The transaction group of the uberblock.
    pub txg: Txg,
    /// The uberblock's counters, by kind.
    pub counters: Vec<(u8, u64)>,
    /// Whether the intent log holds something beyond its state.
    pub has_log: bool,
}

impl Found {
    /// The counter of this kind, zero if absent.
    pub fn counter(&self, kind: u8) -> u64 {
        counter(&self.counters, kind)
    }
}

/// The parameters of [`Engine::open`].
pub struct Opening {
    /// The pool's guid.
    pub guid: Guid,
    /// The devices and their space.
    pub storage: Storage,
    /// The newest uberblock; `None` for a new pool.
    pub uberblock: Option<Uberblock>,
    /// Where the states committed from now on descend from.
    pub ancestry: Ancestry,
    /// The transaction group to begin with, higher than any used before.
    pub first: Txg,
    /// Whether nothing may be written at all.
    pub read_only: bool,
    /// The entries of the intent log beyond the uberblock's state.
    pub log: Vec<Entry>,
}

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
            in_flight: Mutex::default(),
            landed: Condvar::new(),
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
                engine.tell();
            }
        });
        let catalogue = Head::new(CATALOGUE, Arc::downgrade(&engine), root, uberblock.is_none());
        assert!(engine.catalogue.set(catalogue).is_ok());
        engine
    }
}

/// An impossible level, from a corrupt uberblock, is refused when the root is read.
fn catalogue_level(uberblock: &Uberblock) -> u8 {
    u8::try_from(uberblock.counter(CATALOGUE_LEVEL)).unwrap_or(u8::MAX)
}
