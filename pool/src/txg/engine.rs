//! An opened pool: what its parts share.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};

use crate::{
    block::{cache::BlockCache, storage::Storage},
    env::Env,
    error::{Error, Result},
    format::{
        intent::Entry,
        key::Key,
        node::NODE_MAX,
        pointer::BlockPointer,
        uberblock::{Epoch, Uberblock},
    },
    space::{Class, Hold, SpaceTotals},
    tree::{Miss, Node, Record, Root, verify_place},
    txg::{
        durable::Log,
        head::Head,
        still::{Place, Suspect, Suspects},
        sync::{self, SyncClient},
        throttle::Throttle,
        workers::Workers,
    },
    units::{Guid, Txg},
    vdev::Suspension,
};

/// The number under which the catalogue is open. No data set has it.
pub const CATALOGUE: u64 = 0;

/// What an operator may tune.
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

/// Which import of a pool commits, and which state it opened: see [`crate::format::uberblock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestry {
    /// The import that commits.
    pub epoch: Epoch,
    /// The import whose state it opened.
    pub parent: Epoch,
    /// The transaction group of that state.
    pub forked_at: Txg,
}

/// The kind of the uberblock's counter that holds the level of the catalogue's root.
pub(super) const CATALOGUE_LEVEL: u8 = 0;

/// The kind of the uberblock's counter that holds the transaction group whose state it repeats, if that is not its own: a
/// pool that went back, see [`crate::admin::rewind`].
pub(crate) const REPEATS: u8 = 1;

/// The transaction group that wrote the state that an uberblock stands for.
pub(crate) fn state_of(uberblock: &Uberblock) -> Txg {
    match uberblock.counter(REPEATS) {
        0 => uberblock.txg,
        earlier => Txg(earlier),
    }
}

/// All that it takes to open an engine.
pub struct Opening {
    /// The pool's guid.
    pub guid: Guid,
    /// The devices and their space.
    pub storage: Storage,
    /// The newest uberblock; `None` for a pool that is just being made.
    pub uberblock: Option<Uberblock>,
    /// Where the states committed from now on descend from.
    pub ancestry: Ancestry,
    /// The transaction group to begin with: above every one that was ever used.
    pub first: Txg,
    /// Whether nothing may be written at all.
    pub read_only: bool,
    /// What the intent log holds beyond the uberblock's state.
    pub log: Vec<Entry>,
}

/// An opened pool: devices, space, cache, transaction groups and the catalogue.
pub struct Engine {
    guid: Guid,
    pub(super) storage: Storage,
    cache: BlockCache,
    env: Arc<dyn Env>,
    pub(super) workers: Workers,
    pub(super) throttle: Throttle,
    pub(super) log: Log,
    read_only: bool,
    pub(super) ancestry: Ancestry,
    /// The open transaction group. Changes hold it shared; quiescing takes it.
    gate: RwLock<Txg>,
    /// Whether anything has happened in the open group that a commit must write.
    touched: AtomicBool,
    committed: AtomicU64,
    pub(super) heads: Mutex<BTreeMap<u64, Arc<Head>>>,
    catalogue: OnceLock<Arc<Head>>,
    client: OnceLock<Arc<dyn SyncClient>>,
    /// Held by whoever is committing, or keeps others from it.
    pub(super) syncing: Mutex<()>,
    pub(super) suspects: Suspects,
    /// Held by whoever writes labels.
    pub(crate) labelling: Mutex<()>,
    /// Records that workers are storing, by the parity of their group.
    pub(super) in_flight: Mutex<[usize; 2]>,
    /// Told when records have got their addresses.
    pub(super) landed: Condvar,
    /// Why the pool takes no changes any more.
    failed: OnceLock<String>,
    kick: Sender<()>,
    kicked: Receiver<()>,
    /// What the committer is asked for, while there is one.
    orders: Mutex<Orders>,
    settled: Condvar,
    /// Whether somebody commits when kicked. Without, writers run free until they have to commit themselves.
    attended: AtomicBool,
}

/// Commits that others have asked the committer for. Whoever asks draws a number; a commit that begins later serves all
/// numbers drawn before.
#[derive(Default)]
struct Orders {
    has_committer: bool,
    drawn: u64,
    served: u64,
    /// One of them wants a commit even if nothing has changed.
    anyway: bool,
}

impl Engine {
    /// Opens an engine. A pool that is just being made gets an empty catalogue and needs a first commit.
    pub fn open(opening: Opening, env: Arc<dyn Env>, settings: Settings) -> Arc<Engine> {
        let Opening { guid, storage, uberblock, ancestry, first, read_only, log } = opening;
        let committed = uberblock.as_ref().map_or(first.back(1), |uberblock| uberblock.txg);
        let root = match &uberblock {
            Some(uberblock) => Root::stored(uberblock.catalogue, catalogue_level(uberblock)),
            None => Root::empty(first),
        };
        let (kick, kicked) = bounded(1);
        let engine = Arc::new(Engine {
            guid,
            storage,
            cache: BlockCache::new(settings.cache),
            env,
            workers: Workers::new(settings.workers),
            throttle: Throttle::new(settings.dirty),
            log: Log::new(uberblock.as_ref().and_then(|uberblock| uberblock.log), log),
            read_only,
            ancestry,
            gate: RwLock::new(first),
            touched: AtomicBool::new(uberblock.is_none()),
            committed: AtomicU64::new(committed.0),
            heads: Mutex::default(),
            catalogue: OnceLock::new(),
            client: OnceLock::new(),
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

    /// Names who takes part in each sync. To be called once, before anything is changed.
    pub fn set_client(&self, client: Arc<dyn SyncClient>) {
        assert!(self.client.set(client).is_ok(), "an engine has one client");
    }

    pub(super) fn client(&self) -> Option<&Arc<dyn SyncClient>> {
        self.client.get()
    }

    /// The pool's guid.
    pub fn guid(&self) -> Guid {
        self.guid
    }

    /// The clock and randomness that the pool was opened with.
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

    /// How many copies a data set's nodes have: two if they can lie on different devices.
    pub fn metadata_copies(&self) -> u8 {
        if self.storage.vdevs.count() > 1 { 2 } else { 1 }
    }

    /// Whether the pool was opened to be read only.
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// The cache of nodes and data.
    pub fn cache(&self) -> &BlockCache {
        &self.cache
    }

    /// Changes the bounds of cache and dirty data, in bytes.
    pub fn tune(&self, cache: u64, dirty: u64) {
        self.cache.set_capacity(cache);
        self.throttle.set_limit(dirty);
    }

    /// The catalogue. Anybody may read it; only sync changes it.
    pub fn catalogue(&self) -> &Arc<Head> {
        self.catalogue.get().expect("the catalogue is opened with the engine")
    }

    /// Opens the tree at `root`, or an empty one that the open transaction group makes, under a number that no other
    /// open tree has. What changes in it is written with each commit.
    pub fn open_head(self: &Arc<Self>, id: u64, root: Option<(BlockPointer, u8)>) -> Arc<Head> {
        let gate = self.enter();
        let dirty = root.is_none();
        let root = root.map_or_else(|| Root::empty(*gate), |(pointer, level)| Root::stored(pointer, level));
        let head = Head::new(id, Arc::downgrade(self), root, dirty);
        let before = self.heads.lock().insert(id, head.clone());
        assert!(before.is_none(), "tree {id} is open already");
        self.touched.fetch_or(dirty, Ordering::Relaxed);
        head
    }

    /// Opens a tree that never changes: a snapshot's.
    pub fn open_frozen(self: &Arc<Self>, id: u64, root: BlockPointer, level: u8) -> Arc<Head> {
        Head::new(id, Arc::downgrade(self), Root::stored(root, level), false)
    }

    /// Closes a tree: who still has it cannot change it any more. What has changed since the last commit is lost, so the
    /// tree's owner excludes changes and commits first, or has dropped the tree.
    pub fn close_head(&self, id: u64) {
        if let Some(head) = self.heads.lock().remove(&id) {
            head.close();
        }
    }

    /// Runs `f` while the open transaction group stays open, and has the group committed even if nothing else changes.
    pub fn with_open_txg<T>(&self, f: impl FnOnce(Txg) -> T) -> T {
        let gate = self.enter();
        self.touch();
        f(*gate)
    }

    /// The newest committed transaction group.
    pub fn committed(&self) -> Txg {
        Txg(self.committed.load(Ordering::Acquire))
    }

    /// Brings everything done before the call to stable storage. Callers that come together share a commit.
    ///
    /// # Errors
    /// [`Error::Suspended`] if the pool is suspended, or becomes so meanwhile, and nobody is to wait for its end. What was
    /// done before the call is committed nevertheless when the pool is resumed.
    pub fn commit(&self) -> Result<Txg> {
        self.commit_if(false)
    }

    /// As [`Engine::commit`], but waits neither for the end of a suspension nor longer than `patience`: then there is no
    /// commit, yet.
    ///
    /// # Errors
    /// [`Error::Suspended`] if the pool is suspended, or becomes so meanwhile.
    pub fn commit_within(&self, patience: Duration) -> Result<Option<Txg>> {
        let end = Instant::now() + patience;
        let mut orders = self.orders.lock();
        orders.drawn += 1;
        let number = orders.drawn;
        while orders.has_committer && orders.served < number {
            self.not_failed()?;
            if let Some(why) = self.suspension().reason() {
                return Err(Error::Suspended(why));
            }
            let _ = self.kick.try_send(());
            if self.settled.wait_until(&mut orders, end).timed_out() {
                return Ok(None);
            }
        }
        let is_served = orders.served >= number;
        drop(orders);
        self.not_failed()?;
        if is_served { Ok(Some(self.committed())) } else { self.commit_here(false).map(Some) }
    }

    /// Commits even if nothing has changed: what was freed becomes free for use two commits later.
    pub fn commit_anyway(&self) -> Result<Txg> {
        self.commit_if(true)
    }

    /// Commits on this thread, or has the committer do it and waits.
    fn commit_if(&self, anyway: bool) -> Result<Txg> {
        let mut orders = self.orders.lock();
        orders.drawn += 1;
        orders.anyway |= anyway;
        let number = orders.drawn;
        while orders.has_committer {
            if orders.served >= number {
                return self.not_failed().map(|()| self.committed());
            }
            self.not_failed()?;
            self.not_suspended()?;
            // A full channel means that the committer has been told.
            let _ = self.kick.try_send(());
            self.settled.wait(&mut orders);
        }
        drop(orders);
        self.commit_here(anyway)
    }

    /// Commits on this thread, whatever else there is.
    fn commit_here(&self, anyway: bool) -> Result<Txg> {
        let target = *self.gate.read();
        let _syncing = self.syncing.lock();
        if self.committed() >= target || self.read_only {
            return Ok(self.committed());
        }
        self.not_failed()?;
        if !anyway && !self.touched.load(Ordering::Relaxed) {
            return Ok(self.committed());
        }
        assert!(!self.log.is_applying(), "the intent log is put back before anything is committed");
        self.storage.space.ease_holds();
        let unwinding = FailOnPanic(self);
        let outcome = Suspension::patiently(|| sync::run(self));
        std::mem::forget(unwinding);
        match outcome {
            Ok(txg) => {
                self.throttle.committed(txg, self.env.uptime());
                self.committed.store(txg.0, Ordering::Release);
                self.log.committed(txg);
                self.heads.lock().values().for_each(|head| head.forget_frozen());
                Ok(txg)
            }
            Err(error) => {
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Holds the last committed state, and has `find` look for what it needs of it while nobody commits.
    pub(crate) fn hold_committed<T>(&self, find: impl FnOnce(Txg) -> Result<T>) -> Result<(Arc<Hold>, T)> {
        let _syncing = self.syncing.lock();
        let committed = self.committed();
        let hold = self.storage.space.hold(committed);
        Ok((hold, find(committed)?))
    }

    /// From now on there is, or is no more, a thread that calls [`Engine::serve`] when it is told to.
    pub(super) fn set_committer(&self, has_committer: bool) {
        self.orders.lock().has_committer = has_committer;
        self.tell();
    }

    /// Makes the commits that were asked for, on the committer's thread.
    pub(super) fn serve(&self) -> Result<Txg> {
        let (drawn, anyway) = {
            let mut orders = self.orders.lock();
            (orders.drawn, std::mem::take(&mut orders.anyway))
        };
        let outcome = self.commit_here(anyway);
        self.orders.lock().served = drawn;
        self.tell();
        outcome
    }

    /// Has everybody who waits for a commit look again.
    fn tell(&self) {
        // Whoever has looked and is about to wait holds the lock.
        drop(self.orders.lock());
        self.settled.notify_all();
    }

    /// Whether errors of the devices have suspended the pool.
    pub fn suspension(&self) -> &Suspension {
        self.storage.vdevs.suspension()
    }

    /// Fails if the pool is suspended and nobody is to wait for its end.
    fn not_suspended(&self) -> Result<()> {
        let suspension = self.suspension();
        match suspension.is_suspended() && !suspension.is_waiting() {
            true => Err(Error::Suspended(suspension.reason().unwrap_or_default())),
            false => Ok(()),
        }
    }

    /// Closes the gate, opens the next transaction group, and hands the one that was open and all that changed in it to
    /// `freeze`, which must not wait for anything.
    pub(super) fn quiesce<T>(&self, freeze: impl FnOnce(Txg) -> T) -> (Txg, T) {
        let mut gate = self.gate.write();
        self.touched.store(false, Ordering::Relaxed);
        let txg = *gate;
        let frozen = freeze(txg);
        self.throttle.syncing(txg, self.env.uptime());
        *gate = txg.next();
        (txg, frozen)
    }

    /// Keeps the open transaction group open.
    pub(super) fn enter(&self) -> RwLockReadGuard<'_, Txg> {
        self.gate.read()
    }

    pub(super) fn touch(&self) {
        if !self.touched.load(Ordering::Relaxed) {
            self.touched.store(true, Ordering::Relaxed);
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

    /// Why a commit has failed for good, if one has: then only importing the pool again helps.
    pub fn failure(&self) -> Option<&str> {
        self.failed.get().map(String::as_str)
    }

    /// Gives up what was not committed: whoever waits for a suspended device gets an error, and the pool takes no more
    /// changes.
    pub fn abandon(&self) {
        let _ = self.failed.set("what was not committed was given up".into());
        self.suspension().abandon();
        self.storage.vdevs.devices().iter().for_each(|device| device.give_up());
        self.tell();
    }

    /// Takes no more changes. A failed commit leaves the last committed state on the devices and nobody knows how much
    /// of the next: going on from memory would promise what may not be kept.
    pub(super) fn fail(&self, error: &Error) {
        tracing::error!("the pool takes no more changes: {error}");
        // If another failure came first, that one is told.
        let _ = self.failed.set(format!("a commit has failed: {error}"));
        self.tell();
    }

    /// Told when a commit should come soon. Who asks for this will commit then, until [`Engine::unattended`].
    pub(super) fn attend(&self) -> Receiver<()> {
        self.attended.store(true, Ordering::Relaxed);
        self.kicked.clone()
    }

    /// Nobody listens to kicks any more.
    pub(super) fn unattended(&self) {
        self.attended.store(false, Ordering::Relaxed);
    }

    /// See [`Head::take_turn`].
    pub(super) fn take_turn(&self, bytes: u64) -> Result<()> {
        self.wait_for_turn(bytes)?;
        self.throttle.add_work(*self.enter(), bytes);
        Ok(())
    }

    /// See [`Head::admit_in_turn`].
    pub(super) fn admit(&self, bytes: u64) -> Result<()> {
        self.writable()?;
        // What the bytes may take: they may not compress, and whole sectors and nodes come on top.
        let bytes = bytes.next_multiple_of(self.sector().into()) + bytes / 64;
        self.wait_for_room(bytes)?;
        self.relieve(|| self.throttle.data.is_full(bytes))?;
        self.throttle.data.add(*self.enter(), bytes);
        Ok(())
    }

    /// Counts an update in `txg`, with the nodes that it made dirty, in bytes of memory.
    pub(super) fn count_update(&self, txg: Txg, bytes: usize) {
        self.throttle.add_update(txg, bytes as u64 * u64::from(self.metadata_copies()));
    }

    /// Slows who changes nodes when many are dirty, and commits first when too many are: also what frees space changes
    /// nodes, and a commit must find room for all that it has to write. To be called without locks.
    pub(super) fn pace(&self) -> Result<()> {
        if self.log.is_applying() {
            return Ok(());
        }
        let nodes = &self.throttle.nodes;
        let room = self.storage.space.free_for(Class::Metadata) / 2;
        nodes.set_limit(room.min(self.throttle.data.limit()).max(1 << 20));
        self.wait_for_turn(0)?;
        self.relieve(|| nodes.is_full(0))
    }

    /// Has a commit come if much is dirty and, if somebody makes it, waits for the turn of so much work.
    fn wait_for_turn(&self, work: u64) -> Result<()> {
        let throttle = &self.throttle;
        if throttle.is_light() {
            return Ok(());
        }
        if throttle.is_worth_a_commit(*self.enter()) {
            self.kick();
        }
        if !self.attended.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(turn) = throttle.queue(work, self.env.uptime()) else { return Ok(()) };
        while let Some(wait) = throttle.wait(turn, self.env.uptime()) {
            self.env.sleep(wait);
            self.writable()?;
        }
        Ok(())
    }

    /// The last resort against too much that is dirty: waits for the commit that is under way and, if that did not help,
    /// makes one.
    fn relieve(&self, is_full: impl Fn() -> bool) -> Result<()> {
        // A commit that is suspended may not end; then it depends on the pool whether writers wait for it.
        while is_full() && self.syncing.try_lock_for(Duration::from_millis(20)).is_none() {
            self.writable()?;
        }
        if is_full() { self.commit().map(drop) } else { Ok(()) }
    }

    /// Asks for a commit soon.
    pub(super) fn kick(&self) {
        // A full channel means that the committer has been told.
        let _ = self.kick.try_send(());
    }

    /// Space that was freed becomes free for use only some commits later; before the pool is called full, they are made.
    fn wait_for_room(&self, bytes: u64) -> Result<()> {
        for _ in 0..4 {
            if self.available() >= bytes {
                return Ok(());
            }
            if self.is_at_rest() {
                break;
            }
            self.storage.space.give_up_holds();
            self.commit_anyway()?;
        }
        if self.available() >= bytes { Ok(()) } else { Err(Error::OutOfSpace) }
    }

    /// Whether more commits would leave as much room as there is: nothing has changed since the last one, and nothing
    /// that was freed waits until it can be allocated.
    pub fn is_at_rest(&self) -> bool {
        let has_changed = self.touched.load(Ordering::Relaxed) || self.throttle.data.dirty() > 0;
        !has_changed && self.storage.space.totals().deferred == 0
    }

    /// How many bytes of data there is room for, should nothing compress.
    pub fn available(&self) -> u64 {
        self.storage.space.free_for(Class::Data).saturating_sub(self.throttle.data.dirty())
    }

    /// How many worker threads there are.
    pub fn worker_count(&self) -> usize {
        self.workers.count()
    }

    /// The devices' space.
    pub fn space_totals(&self) -> SpaceTotals {
        self.storage.space.totals()
    }

    /// The content of a block, verified and decompressed, through the cache.
    pub fn read_block(&self, pointer: &BlockPointer) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.data(pointer) {
            return Ok(bytes);
        }
        let bytes = Arc::new(self.storage.read_block(pointer)?);
        self.cache.keep_data(pointer, bytes.clone());
        Ok(bytes)
    }

    /// The same for a block that belongs to an item of an open tree: a bad copy will be looked at again.
    pub(super) fn read_item(&self, tree: u64, key: Key, pointer: &BlockPointer) -> Result<Arc<Vec<u8>>> {
        if let Some(bytes) = self.cache.data(pointer) {
            return Ok(bytes);
        }
        let suspect = Suspect { tree, place: Place::Item(key), pointer: *pointer };
        let bytes = Arc::new(self.storage.read_block_noting(pointer, || self.suspects.add(suspect))?);
        self.cache.keep_data(pointer, bytes.clone());
        Ok(bytes)
    }

    /// The bytes of a block as they are stored, verified.
    pub fn read_stored(&self, pointer: &BlockPointer) -> Result<Vec<u8>> {
        self.storage.read_stored(pointer)
    }

    /// Reads a node that is not in memory.
    pub fn load_node(&self, miss: &Miss) -> Result<Arc<Node>> {
        self.load_node_noting(miss, || {})
    }

    /// The same for a node of an open tree: a bad copy will be looked at again.
    pub(super) fn load_node_of(&self, tree: u64, miss: &Miss) -> Result<Arc<Node>> {
        let suspect = Suspect { tree, place: Place::of(miss), pointer: miss.pointer };
        self.load_node_noting(miss, || self.suspects.add(suspect))
    }

    fn load_node_noting(&self, miss: &Miss, bad: impl FnMut()) -> Result<Arc<Node>> {
        if let Some(node) = self.cache.node(&miss.pointer) {
            // A pointer that lies may lead to a node that is here by right, in another place.
            verify_place(&node, miss.pointer.birth, miss).map_err(|problem| Error::damaged("tree node", problem))?;
            return Ok(node);
        }
        if miss.pointer.logical as usize > NODE_MAX {
            return Err(Error::damaged("tree node", format!("it is said to have {} bytes", miss.pointer.logical)));
        }
        let bytes = self.storage.read_block_noting(&miss.pointer, bad)?;
        let decoded = Node::decode(&bytes);
        let placed = decoded.and_then(|(node, txg)| verify_place(&node, txg, miss).map(|()| node));
        let node = Arc::new(placed.map_err(|problem| Error::damaged("tree node", problem))?);
        self.cache.keep_node(&miss.pointer, node.clone());
        Ok(node)
    }

    /// See [`Head::submit`].
    pub(super) fn submit(self: &Arc<Self>, record: &Arc<Record>) {
        if !self.take_off(record.txg()) {
            return;
        }
        let Some(bytes) = record.seal() else { return self.land(record.txg()) };
        let (engine, record) = (self.clone(), record.clone());
        self.workers.spawn(move || {
            engine.store_early(&record, bytes);
            engine.land(record.txg());
        });
    }

    fn store_early(&self, record: &Record, bytes: Arc<Vec<u8>>) {
        match self.storage.write_blocks(record.txg(), Class::Data, &[record.payload(bytes)]) {
            Ok(pointers) => record.stored(pointers[0], self.sector()),
            Err(error) => self.fail(&error),
        }
    }

    /// Counts a record that a worker will store, unless its group is frozen: then sync stores what is left of it.
    fn take_off(&self, txg: Txg) -> bool {
        let gate = self.enter();
        let open = *gate == txg;
        if open {
            self.in_flight.lock()[(txg.0 % 2) as usize] += 1;
        }
        open
    }

    fn land(&self, txg: Txg) {
        self.in_flight.lock()[(txg.0 % 2) as usize] -= 1;
        self.landed.notify_all();
    }

    /// Waits until no worker stores a record of `txg`, which must be frozen.
    pub(super) fn wait_landed(&self, txg: Txg) {
        let mut in_flight = self.in_flight.lock();
        while in_flight[(txg.0 % 2) as usize] > 0 {
            self.landed.wait(&mut in_flight);
        }
    }
}

/// A group whose sync panicked is lost: its changes are in no tree that a later commit would write. None may follow.
struct FailOnPanic<'a>(&'a Engine);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail(&Error::Closed("the thread that committed has panicked".into()));
    }
}

/// A level too high to be one, from an uberblock that lies, is refused when the root is read.
fn catalogue_level(uberblock: &Uberblock) -> u8 {
    u8::try_from(uberblock.counter(CATALOGUE_LEVEL)).unwrap_or(u8::MAX)
}
