//! The state that the parts of the engine share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use crossbeam_channel::{Receiver, Sender};
use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard};

use super::{
    parameters::{Ancestry, Found},
    pinned::Pinned,
    reclaimer::Reclaimer,
};
use crate::{
    block::{Ahead, storage::Storage},
    env::Env,
    error::{Error, Result},
    format::pointer::BlockPointer,
    secondary::Secondary,
    space::SpaceTotals,
    tree::{BlockCache, Root},
    txg::{
        client::{Features, SyncClient},
        durable::rounds::Log,
        head::Head,
        streams::Streams,
        suspects::Suspects,
        throttle::Throttle,
        workers::Workers,
    },
    units::{Guid, Txg},
    vdev::Suspension,
};

/// An opened pool: devices, space, cache, transaction groups and the catalogue.
pub struct Engine {
    pub(super) guid: AtomicU64,
    pub(in crate::txg) storage: Storage,
    pub(super) cache: BlockCache,
    /// Prefetch under way, and the streams of readers.
    pub(super) ahead: Ahead,
    pub(super) streams: Streams,
    pub(super) secondary: Secondary,
    pub(super) env: Arc<dyn Env>,
    pub(in crate::txg) workers: Workers,
    pub(in crate::txg) throttle: Throttle,
    pub(in crate::txg) log: Log,
    pub(super) read_only: bool,
    pub(in crate::txg) ancestry: Ancestry,
    /// The open transaction group. Changes hold the gate shared; quiescing holds it exclusively.
    pub(super) gate: RwLock<Txg>,
    /// Whether the open group has changes that a commit must write.
    pub(super) touched: AtomicBool,
    /// The last group that had changes when it was closed.
    pub(super) changed: AtomicU64,
    pub(super) committed: AtomicU64,
    /// The state found when the pool was opened.
    pub(super) found: Found,
    pub(in crate::txg) heads: Mutex<BTreeMap<u64, Arc<Head>>>,
    /// Open snapshots: trees that never change.
    pub(super) frozen: Mutex<Vec<Weak<Head>>>,
    pub(super) catalogue: OnceLock<Arc<Head>>,
    pub(super) client: OnceLock<Arc<dyn SyncClient>>,
    pub(super) features: OnceLock<Arc<dyn Features>>,
    pub(super) reclaimer: OnceLock<Weak<dyn Reclaimer>>,
    /// Held during a commit, and by callers that keep commits away.
    pub(in crate::txg) syncing: Mutex<()>,
    pub(in crate::txg) suspects: Suspects,
    /// Held while labels are written.
    pub(crate) labelling: Mutex<()>,
    /// Records being stored by workers, by the parity of their group.
    pub(in crate::txg) early_writes: Mutex<[usize; 2]>,
    /// Notified when records have got their addresses.
    pub(in crate::txg) early_written: Condvar,
    /// Why the pool takes no changes any more.
    pub(super) failed: OnceLock<String>,
    pub(super) kick: Sender<()>,
    pub(super) kicked: Receiver<()>,
    /// Requests to the committer, while there is one.
    pub(super) orders: Mutex<Orders>,
    pub(super) settled: Condvar,
    /// Whether a thread commits when kicked. Otherwise writers are not slowed until they must commit themselves.
    pub(super) attended: AtomicBool,
}

/// A pool held still. Dropping this lets commits go on.
#[must_use]
pub struct Still<'a> {
    pub(in crate::txg) engine: &'a Engine,
    pub(in crate::txg) _syncing: MutexGuard<'a, ()>,
}

/// Commits requested from the committer. Each request draws a number; a commit that begins later serves all numbers
/// drawn before.
#[derive(Default)]
pub(super) struct Orders {
    pub(super) has_committer: bool,
    pub(super) drawn: u64,
    pub(super) served: u64,
    /// A request wants a commit even if nothing has changed.
    pub(super) anyway: bool,
}

impl Engine {
    /// Sets the client of each sync. To be called once, before any change.
    pub fn set_client(&self, client: Arc<dyn SyncClient>) {
        assert!(self.client.set(client).is_ok(), "an engine has one client");
    }

    pub(in crate::txg) fn client(&self) -> Option<&Arc<dyn SyncClient>> {
        self.client.get()
    }

    /// Sets the writer of the pool's labels. To be called once.
    pub(crate) fn set_features(&self, features: Arc<dyn Features>) {
        assert!(self.features.set(features).is_ok(), "a pool has one set of labels");
    }

    /// The writer of the labels, if the pool has labels.
    pub(in crate::txg) fn labels(&self) -> Option<&Arc<dyn Features>> {
        self.features.get()
    }

    /// Adds a feature to all labels if it is missing. Structures that only software with this feature understands may
    /// be written when this has returned and not before, in a commit or in the intent log.
    ///
    /// A device that refuses its labels suspends the pool.
    pub fn activate(&self, feature: &'static str) -> Result<()> {
        let features = self.features.get().ok_or_else(|| Error::Closed("it has no labels".into()))?;
        if features.is_active(feature) {
            return Ok(());
        }
        let suspension = self.suspension();
        loop {
            self.writable()?;
            let era = suspension.era();
            let Err(error) = features.activate(self, feature) else { return Ok(()) };
            if !matches!(error, Error::Device { .. }) {
                return Err(error);
            }
            // Like any change: the caller waits or gets an error.
            suspension.suspend(era, &error);
            self.not_suspended()?;
            suspension.hold(era, error)?;
        }
    }

    /// Whether the pool's labels name a feature.
    pub fn is_active(&self, feature: &str) -> bool {
        self.features.get().is_some_and(|features| features.is_active(feature))
    }

    /// The pool's GUID, which `pool reguid` changes.
    pub fn guid(&self) -> Guid {
        Guid(self.guid.load(Ordering::Acquire))
    }

    /// The state found when the pool was opened.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// The clock and randomness of the pool.
    pub fn env(&self) -> &dyn Env {
        &*self.env
    }

    /// The devices and their space.
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The unit of allocation, in bytes.
    pub fn sector(&self) -> u32 {
        self.storage.sector
    }

    /// How many copies a dataset's nodes have: two if there are two or more vdevs to spread over.
    pub fn metadata_copies(&self) -> u8 {
        if self.storage.space.spread() > 1 { 2 } else { 1 }
    }

    /// Whether the pool was opened to be read only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// The cache of nodes and data.
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// The cache devices (OpenZFS: L2ARC).
    pub fn secondary(&self) -> &Secondary {
        &self.secondary
    }

    /// Changes the bounds of cache and dirty data, in bytes.
    pub fn tune(&self, cache: u64, dirty: u64) {
        self.cache.set_capacity(cache);
        self.ahead.set_cache(cache);
        self.secondary.set_cache(cache);
        self.throttle.set_limit(dirty);
    }

    /// The catalogue. Every layer may read it; only sync changes it.
    pub fn catalogue(&self) -> &Arc<Head> {
        self.catalogue.get().expect("the catalogue is opened with the engine")
    }

    /// Opens the tree at `root`, or an empty tree born in the open transaction group. `id` must differ from every open
    /// tree's. Each commit writes the tree's changes.
    pub fn open_head(self: &Arc<Self>, id: u64, root: Option<(BlockPointer, u8)>) -> Arc<Head> {
        let gate = self.enter();
        let dirty = root.is_none();
        let root = root.map_or_else(|| Root::empty(*gate), |(pointer, level)| Root::stored(pointer, level));
        let head = Head::new(id, Arc::downgrade(self), root, dirty);
        let before = self.heads.lock().insert(id, head.clone());
        assert!(before.is_none(), "TXG-4: tree {id} is open already");
        self.touched.fetch_or(dirty, Ordering::Relaxed);
        head
    }

    /// Opens a tree that never changes, under the number of its snapshot, until [`Engine::close_head`] with the same
    /// number. The caller must look up the snapshot after this call: a destroy that ran before could not close the
    /// tree.
    pub fn open_frozen(self: &Arc<Self>, id: u64, root: BlockPointer, level: u8) -> Arc<Head> {
        let head = Head::frozen(id, Arc::downgrade(self), Root::stored(root, level), None);
        let mut frozen = self.frozen.lock();
        // Before the vector grows, so that the amortized cost of an open is small.
        if frozen.len() == frozen.capacity() {
            frozen.retain(|head| head.strong_count() > 0);
        }
        frozen.push(Arc::downgrade(&head));
        head
    }

    /// Opens a tree whose root was looked up after the pin was made. The tree can be read while the pin holds. No
    /// references to its blocks can be taken.
    pub fn open_pinned(self: &Arc<Self>, id: u64, root: BlockPointer, level: u8, pinned: Pinned) -> Arc<Head> {
        Head::frozen(id, Arc::downgrade(self), Root::stored(root, level), Some(pinned))
    }

    /// Closes a tree: other holders of the [`Head`] can neither change nor read it any more. Changes since the last
    /// commit are lost, so the tree's owner excludes changes and commits first, or drops the tree in the group being
    /// written.
    pub fn close_head(&self, id: u64) {
        if let Some(head) = self.heads.lock().remove(&id) {
            head.close();
        }
        let frozen = self.frozen.lock();
        frozen.iter().filter_map(Weak::upgrade).filter(|head| head.id() == id).for_each(|head| head.close());
    }

    /// Runs `f` while the open transaction group stays open, and has the group committed even if nothing else changes.
    pub fn with_open_txg<T>(&self, f: impl FnOnce(Txg) -> T) -> T {
        let gate = self.enter();
        self.touch();
        f(*gate)
    }

    /// How many worker threads there are.
    pub fn worker_count(&self) -> usize {
        self.workers.count()
    }

    /// The totals of the pool's space, in bytes.
    pub fn space_totals(&self) -> SpaceTotals {
        self.storage.space.totals()
    }

    /// Closes the gate, calls `freeze` with the group that was open, and opens the next group. `freeze` collects all
    /// changed trees and must not block.
    pub(in crate::txg) fn quiesce<T>(&self, freeze: impl FnOnce(Txg) -> T) -> (Txg, T) {
        let mut gate = self.gate.write();
        let txg = *gate;
        if self.touched.swap(false, Ordering::Relaxed) {
            self.changed.store(txg.0, Ordering::Relaxed);
        }
        let frozen = freeze(txg);
        self.throttle.syncing(txg, self.env.uptime());
        *gate = txg.next();
        (txg, frozen)
    }

    /// Keeps the open transaction group open.
    pub(in crate::txg) fn enter(&self) -> RwLockReadGuard<'_, Txg> {
        self.gate.read()
    }

    pub(in crate::txg) fn touch(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
        }
    }

    /// Whether errors of the devices have suspended the pool.
    pub fn suspension(&self) -> &Suspension {
        self.storage.vdevs.suspension()
    }

    /// Fails if the pool is suspended and callers are not to wait.
    pub(super) fn not_suspended(&self) -> Result<()> {
        let suspension = self.suspension();
        match suspension.is_suspended() && !suspension.is_waiting() {
            true => Err(Error::Suspended(suspension.reason().unwrap_or_default())),
            false => Ok(()),
        }
    }

    /// Fails if the pool takes no changes.
    pub fn writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::Closed("it was imported read-only".into()));
        }
        self.not_failed()?;
        self.not_suspended()
    }

    /// Fails if a commit has failed for good.
    pub(crate) fn not_failed(&self) -> Result<()> {
        self.failed.get().map_or(Ok(()), |why| Err(Error::Closed(why.clone())))
    }

    /// Why a commit has failed for good, if so. Only a new import helps.
    pub fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Gives up uncommitted changes: callers that wait for a suspended device get an error, and the pool takes no more
    /// changes.
    pub fn abandon(&self) {
        let _ = self.failed.set("uncommitted changes were discarded".into());
        self.suspension().abandon();
        self.storage.vdevs.give_up();
        self.notify();
    }

    /// Takes no more changes because a thread of the pool has panicked. Its work is half done in memory; the last
    /// committed state is whole. Waiting callers get an error.
    pub fn note_defect(&self, thread: &str) {
        let why = format!("the {thread} has ended by a defect of the program");
        tracing::error!("the pool takes no more changes: {why}");
        let _ = self.failed.set(why);
        self.suspension().abandon();
        self.notify();
    }

    /// Takes no more changes. A failed commit leaves the last committed state on the devices with an unknown part of
    /// the next. Continuing from memory could acknowledge changes that are lost later.
    pub(in crate::txg) fn fail(&self, error: &Error) {
        tracing::error!("the pool takes no more changes: {error}");
        // The first failure is the one reported.
        let _ = self.failed.set(format!("a commit has failed: {error}"));
        self.notify();
    }
}
