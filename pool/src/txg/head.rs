//! One tree and its life through the transaction groups.

use std::{
    cell::{Cell, RefCell},
    fmt, hint, mem,
    ops::Range,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::{RwLock, RwLockWriteGuard};
use smallvec::SmallVec;

use crate::{
    block::{Spares, Stored},
    error::{Error, Result},
    format::{key::Key, pointer::BlockPointer},
    space::Seen,
    tree::{
        Batch, Births, Block, BlockCache, Entry, Kill, Lookup, Miss, Node, NodeSource, Policy, Record, Root, Usage,
        View,
    },
    txg::{
        engine::{
            caching::{Cached, Caching, Redundancy},
            pinned::Pinned,
            state::Engine,
        },
        streams::Outlook,
    },
    units::Txg,
};

/// The error of an operation on a tree. It carries a [`Miss`] from the view to the head, which reads the node and runs
/// the operation again.
pub trait OpError: From<Miss> + From<Error> {
    /// The missing node, if the error is a miss.
    fn miss(&self) -> Option<&Miss>;
}

/// The error of an operation with no errors of its own.
#[derive(Debug)]
pub enum Plain {
    /// A node is not in memory.
    Miss(Miss),
    /// An error of the engine.
    Error(Error),
}

impl From<Miss> for Plain {
    fn from(miss: Miss) -> Plain {
        Plain::Miss(miss)
    }
}

impl From<Error> for Plain {
    fn from(error: Error) -> Plain {
        Plain::Error(error)
    }
}

impl From<Plain> for Error {
    fn from(plain: Plain) -> Error {
        match plain {
            Plain::Error(error) => error,
            Plain::Miss(_) => unreachable!("a head never returns a miss"),
        }
    }
}

impl OpError for Plain {
    fn miss(&self) -> Option<&Miss> {
        match self {
            Plain::Miss(miss) => Some(miss),
            Plain::Error(_) => None,
        }
    }
}

/// A tree, open for reading and changing.
pub struct Head {
    id: u64,
    engine: Weak<Engine>,
    births: Arc<Births>,
    cached: Cached,
    /// Held shared during each change of the tree.
    changes: RwLock<()>,
    /// Whether the tree is closed. A closed tree takes no changes, because no commit would write them, gives no
    /// references, and cannot be read.
    closed: AtomicBool,
    /// Whether the tree never changes.
    is_frozen: bool,
    /// Keeps the blocks of a pinned tree from being overwritten, as long as the pool has room.
    pinned: Option<Pinned>,
    /// Changes with the tree, under its lock.
    epoch: AtomicU64,
    tree: RwLock<Tree>,
}

/// Identifies the tree that a head shows: rollback and every receive replace a head's tree. Unique in this process
/// among all heads and all trees of a head; the default belongs to none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeEpoch(u64);

impl TreeEpoch {
    fn next() -> TreeEpoch {
        static LAST: AtomicU64 = AtomicU64::new(0);
        TreeEpoch(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// How many times a change polls the tree's lock before sleeping: ten to forty microseconds.
const LOOKS: usize = 500;

/// Keeps the tree from changing.
#[must_use]
pub struct Quiet<'a> {
    _changes: RwLockWriteGuard<'a, ()>,
}

struct Tree {
    root: Root,
    kills: Vec<Kill>,
    /// Dropped blocks that entered the tree in this group or before are kept for snapshots.
    newest_snapshot: Txg,
    /// Bytes of the dropped stored blocks that no snapshot keeps.
    dropped: u64,
    /// References that the tree has taken to blocks of others.
    shares: Vec<BlockPointer>,
    /// Changed since the last freeze.
    dirty: bool,
    /// Changes not yet in the intent log; `None` if the tree is not logged.
    unlogged: Option<Unlogged>,
}

/// A frame of the log tells of at most so many items; a commit is the better way for more.
const UNLOGGED_MAX: usize = 10_000;

/// Changed keys not yet in the intent log, of the open group and of the one being written.
#[derive(Debug, Default)]
struct Unlogged {
    open: Keys,
    frozen: Keys,
    /// The log is of no use before everything older than this group is committed.
    since: Txg,
}

impl Unlogged {
    fn freeze(&mut self) {
        self.frozen = mem::take(&mut self.open);
    }
}

/// Keys of items, or the fact that they are too many for a frame.
#[derive(Debug)]
enum Keys {
    Few {
        keys: Vec<Key>,
        /// The number of distinct keys at the last deduplication.
        distinct: usize,
    },
    TooMany,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys::Few { keys: Vec::new(), distinct: 0 }
    }
}

impl Keys {
    fn add(&mut self, more: &[Key]) {
        let Keys::Few { keys, distinct } = self else { return };
        keys.extend_from_slice(more);
        if keys.len() > 2 * (*distinct).max(1024) {
            sort(keys);
            *distinct = keys.len();
            if keys.len() > UNLOGGED_MAX {
                *self = Keys::TooMany;
            }
        }
    }

    /// Moves the keys to `all`, in any order; false if there are too many.
    fn give(&mut self, all: &mut Vec<Key>) -> bool {
        match mem::take(self) {
            Keys::Few { keys, .. } => all.extend(keys),
            Keys::TooMany => return false,
        }
        true
    }
}

fn sort(keys: &mut Vec<Key>) {
    keys.sort_unstable();
    keys.dedup();
}

/// A tree at the freeze of its transaction group.
pub(super) struct Frozen {
    pub(super) head: Arc<Head>,
    pub(super) root: Root,
    pub(super) kills: Vec<Kill>,
    pub(super) shares: Vec<BlockPointer>,
}

/// A tree's changes for the log.
pub(super) enum Touched<T> {
    /// No unlogged changes.
    Nothing,
    /// More changes than fit a frame.
    TooMuch,
    /// The changed items.
    Items(T),
}

/// A panic while a batch is applied leaves half of the batch in the tree. The half must not be committed, so the pool
/// stops taking changes before the tree's lock is free.
struct FailOnPanic<'a>(&'a Engine);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail(&Error::Closed("a change has panicked half way".into()));
    }
}

/// The cache, and the nodes that this operation has read: they stay until it ends, even if the cache drops them.
struct Sources<'a> {
    cache: &'a BlockCache,
    pinned: RefCell<Vec<(BlockPointer, Arc<Node>)>>,
    /// Nodes found in the cache, counted when the operation ends.
    hits: Cell<u64>,
}

impl Sources<'_> {
    fn new(cache: &BlockCache) -> Sources<'_> {
        Sources { cache, pinned: RefCell::default(), hits: Cell::new(0) }
    }
}

impl Drop for Sources<'_> {
    fn drop(&mut self) {
        if self.hits.get() > 0 {
            self.cache.tally().add(Lookup::MetadataHit, self.hits.get());
        }
    }
}

impl NodeSource for Sources<'_> {
    fn node(&self, pointer: &BlockPointer) -> Option<Arc<Node>> {
        let found = self.cache.node(pointer).inspect(|_| self.hits.set(self.hits.get() + 1));
        found.or_else(|| {
            let pinned = self.pinned.borrow();
            pinned.iter().find(|(known, _)| known == pointer).map(|(_, node)| node.clone())
        })
    }
}

impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {}", self.id)
    }
}

impl Head {
    pub(super) fn new(id: u64, engine: Weak<Engine>, root: Root, dirty: bool) -> Arc<Head> {
        Arc::new(Head::build(id, engine, root, dirty))
    }

    /// A tree that never changes: open until closed, or while the pin holds.
    pub(super) fn frozen(id: u64, engine: Weak<Engine>, root: Root, pinned: Option<Pinned>) -> Arc<Head> {
        Arc::new(Head { is_frozen: true, pinned, ..Head::build(id, engine, root, false) })
    }

    fn build(id: u64, engine: Weak<Engine>, root: Root, dirty: bool) -> Head {
        let tree = RwLock::new(Tree {
            root,
            kills: Vec::new(),
            newest_snapshot: Txg(u64::MAX),
            dropped: 0,
            shares: Vec::new(),
            dirty,
            unlogged: None,
        });
        Head {
            id,
            engine,
            births: Arc::default(),
            cached: Cached::default(),
            changes: RwLock::default(),
            closed: AtomicBool::new(false),
            is_frozen: false,
            pinned: None,
            epoch: AtomicU64::new(TreeEpoch::next().0),
            tree,
        }
    }

    /// Identifies the tree shown now. Within [`Head::read`] and [`Head::update`] it belongs to the tree being read.
    pub fn epoch(&self) -> TreeEpoch {
        TreeEpoch(self.epoch.load(Ordering::Acquire))
    }

    /// The number of the open tree, unique among open trees.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The engine of the tree's pool.
    pub fn engine(&self) -> Arc<Engine> {
        self.engine.upgrade().expect("a head does not outlive its engine")
    }

    /// A token to read blocks found in the tree from now on. The sync that takes out a snapshot's row closes the
    /// snapshot before the commit. So no group committed now has freed a block of an open snapshot.
    fn seen(&self, engine: &Engine) -> Result<Seen> {
        let seen = match &self.pinned {
            Some(pinned) => Some(pinned.seen()).filter(|seen| engine.storage.space.stands(*seen)),
            // Taken before `closed` is checked.
            None => Some(engine.seen()).filter(|_| !self.closed.load(Ordering::SeqCst)),
        };
        seen.ok_or(Error::Stale)
    }

    /// Fails if the tree can no longer be read, because it was destroyed or closed, or its pin was given up.
    pub fn check_open(&self) -> Result<()> {
        self.seen(&self.engine()).map(drop)
    }

    /// Reads a node of a tree that never changes.
    ///
    /// # Errors
    /// [`Error::Stale`] if the tree is gone.
    ///
    /// # Panics
    /// If the tree can change: the node may have been freed since.
    pub fn load_node(&self, place: &Miss) -> Result<Arc<Node>> {
        self.for_good(|engine, seen| engine.load_node(place, seen))
    }

    /// The stored bytes of blocks of a tree that never changes, verified, in the order of `pointers`. Neighbours are read
    /// by one request, into buffers of `spares`.
    ///
    /// # Errors
    /// As [`Head::load_node`].
    ///
    /// # Panics
    /// As [`Head::load_node`].
    pub fn read_all_stored(&self, pointers: &[BlockPointer], spares: &Spares) -> Result<Vec<Stored>> {
        let mut all = vec![None; pointers.len()];
        self.for_good(|engine, seen| engine.read_all_stored(pointers, &mut all, seen, spares))?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Reads from a tree that never changes, as long as the tree is open. A read that took too long is repeated.
    fn for_good<T>(&self, mut read: impl FnMut(&Engine, Seen) -> Result<T>) -> Result<T> {
        assert!(self.is_frozen, "TXG-5: a block of a tree that changes is read without a look at the tree");
        let engine = self.engine();
        loop {
            match read(&engine, self.seen(&engine)?) {
                Err(Error::Stale) => {}
                done => return done,
            }
        }
    }

    /// Runs `operation` on the tree's present state, under a shared lock. Runs it again after a node had to be read;
    /// earlier runs must have no effect.
    ///
    /// # Errors
    /// [`Error::Stale`] if the tree is gone: see [`Head::check_open`].
    pub fn read<T, E: OpError>(&self, mut operation: impl FnMut(&View<'_>) -> Result<T, E>) -> Result<T, E> {
        let engine = self.engine();
        let sources = Sources::new(engine.cache());
        self.until_found(&engine, &sources, |seen| {
            let tree = self.tree.read();
            operation(&View::new(&tree.root, &sources, engine.committed().next()).seen_then(seen))
        })
    }

    /// As [`Head::read`], with a view of the open transaction group. No block seen by `operation` is freed while that
    /// group is open, even if another tree takes a reference to the block.
    ///
    /// A change that drops a block from now on belongs to that group or a later one. The same holds for destroying or
    /// replacing the tree, because its blocks are freed by steps enqueued afterwards. And a group takes all its
    /// references before giving up any.
    pub fn read_open<T, E: OpError>(&self, mut operation: impl FnMut(&View<'_>) -> Result<T, E>) -> Result<T, E> {
        let engine = self.engine();
        let sources = Sources::new(engine.cache());
        self.until_found(&engine, &sources, |seen| {
            let gate = engine.enter();
            if self.closed.load(Ordering::Acquire) || self.pinned.is_some() {
                return Err(Error::Closed("the tree was closed or destroyed".into()).into());
            }
            let tree = self.tree.read();
            operation(&View::new(&tree.root, &sources, *gate).seen_then(seen))
        })
    }

    /// The address of a block of this tree. A pending block is stored, and closed to edits. `None` if the tree has
    /// dropped the block before it was stored.
    pub fn settle(&self, block: &Block) -> Result<Option<BlockPointer>> {
        match block {
            Block::Stored(pointer) => Ok(Some(*pointer)),
            Block::Pending(record) => {
                self.submit(record);
                self.engine().wait_stored(record)
            }
        }
    }

    /// Runs `operation`, which reads the tree and collects a batch, and applies the batch, as one step. `operation` may
    /// run several times, so it must not change anything outside the batch before its last read of the view.
    pub fn update<T, E: OpError>(
        &self,
        mut operation: impl FnMut(&View<'_>, &mut Batch) -> Result<T, E>,
    ) -> Result<T, E> {
        let engine = self.engine();
        engine.writable()?;
        engine.pace()?;
        let _changing = self.changes.read();
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Closed("the tree was closed or destroyed".into()).into());
        }
        let sources = Sources::new(engine.cache());
        self.until_found(&engine, &sources, |seen| {
            let gate = engine.enter();
            let attempt = self.attempt(&engine, (*gate, seen), &sources, &mut operation);
            if !is_miss(&attempt) {
                engine.touch();
            }
            attempt
        })
    }

    /// As [`Head::update`], in a transaction group named by the caller: for the catalogue, which only sync changes.
    pub(super) fn update_in<T, E: OpError>(
        &self,
        txg: Txg,
        mut operation: impl FnMut(&View<'_>, &mut Batch) -> Result<T, E>,
    ) -> Result<T, E> {
        let engine = self.engine();
        let sources = Sources::new(engine.cache());
        self.until_found(&engine, &sources, |seen| self.attempt(&engine, (txg, seen), &sources, &mut operation))
    }

    fn attempt<T, E: OpError>(
        &self,
        engine: &Engine,
        (txg, seen): (Txg, Seen),
        sources: &Sources<'_>,
        operation: &mut impl FnMut(&View<'_>, &mut Batch) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut tree = self.lock_for_change();
        let Tree { root, kills, newest_snapshot, dropped, shares, dirty, unlogged } = &mut *tree;
        let mut batch = Batch::default();
        let value = operation(&View::new(root, sources, txg).seen_then(seen), &mut batch)?;
        if !batch.is_empty() {
            let touched: SmallVec<[Key; 16]> = match unlogged {
                Some(Unlogged { open: Keys::Few { .. }, .. }) => batch.keys().collect(),
                _ => SmallVec::new(),
            };
            let taken = batch.take_shares();
            let before = kills.len();
            let applying = FailOnPanic(engine);
            let grown = batch.apply(root, txg, sources, kills);
            mem::forget(applying);
            *dropped += not_kept(&kills[before..], *newest_snapshot, engine.sector());
            let grown = grown?;
            shares.extend(taken);
            if let Some(unlogged) = unlogged {
                unlogged.open.add(&touched);
            }
            *dirty = true;
            engine.count_update(txg, grown);
        }
        Ok(value)
    }

    /// A change takes a few microseconds, less than a sleep and a wake-up, so a waiting thread polls for a while first.
    fn lock_for_change(&self) -> RwLockWriteGuard<'_, Tree> {
        for _ in 0..LOOKS {
            if !self.tree.is_locked()
                && let Some(tree) = self.tree.try_write()
            {
                return tree;
            }
            hint::spin_loop();
        }
        self.tree.write()
    }

    /// Admits `bytes` of new data: waits while too much is dirty, and fails with [`Error::OutOfSpace`] if there is no
    /// room. To be called without locks, before the update with the data.
    pub fn admit(&self, bytes: u64) -> Result<()> {
        self.take_turn(bytes)?;
        let engine = self.engine();
        let free = |error: &Error| matches!(error, Error::OutOfSpace).then(|| engine.free_due());
        engine.with_due_room(|| self.admit_in_turn(bytes), free)
    }

    /// The first half of [`Head::admit`], for callers with locks to take in between: waits for the turn of `bytes`
    /// while much is dirty.
    pub fn take_turn(&self, bytes: u64) -> Result<()> {
        self.engine().take_turn(bytes)
    }

    /// The second half of [`Head::admit`]: admits `bytes` of new data, or of old data read back to be changed. Waits
    /// only at the dirty limit.
    pub fn admit_in_turn(&self, bytes: u64) -> Result<()> {
        self.engine().admit(bytes)
    }

    /// A new record of this tree, in the open transaction group `txg`.
    pub fn record(&self, txg: Txg, policy: Policy, bytes: Vec<u8>) -> Arc<Record> {
        self.engine().count_record(txg, policy);
        Record::new(txg, policy, bytes, self.births.clone())
    }

    /// A new record of this tree, in the open transaction group `txg`, from a stream's block in stored form. `pointer`
    /// describes the form; its addresses and births are ignored. The caller has verified the bytes' checksum and their
    /// size when decompressed.
    pub fn record_as_stored(&self, txg: Txg, pointer: BlockPointer, stored: Arc<Vec<u8>>) -> Arc<Record> {
        let record = Record::as_stored(txg, pointer, stored, self.births.clone());
        self.engine().count_record(txg, record.policy());
        record
    }

    /// Stores a record while its group is still open. Only for a full record, because it is closed to edits.
    pub fn submit(&self, record: &Arc<Record>) {
        self.engine().submit(record);
    }

    /// Stores records as [`Head::submit`] does, a batch side by side. All records are of one group and have the same
    /// number of copies.
    pub fn submit_all(&self, records: Vec<Arc<Record>>) {
        self.engine().submit_all(records);
    }

    /// The content of a block of this tree, pending or stored, found in a view with the token `seen`.
    ///
    /// # Errors
    /// [`Error::Stale`] if the block may have been freed since, and its space used again: the caller looks it up again.
    pub fn bytes(&self, block: &Block, seen: Seen) -> Result<Arc<Vec<u8>>> {
        match block {
            Block::Stored(pointer) => self.engine().read_block(pointer, seen),
            Block::Pending(record) => match record.bytes() {
                Some(bytes) => Ok(bytes),
                None => self.engine().read_block(record.pointer().expect("a record without bytes is stored"), seen),
            },
        }
    }

    /// As [`Head::bytes`], for the block of the item under `key`: a bad copy is noted for repair.
    pub fn bytes_at(&self, key: Key, block: &Block, seen: Seen) -> Result<Arc<Vec<u8>>> {
        match block {
            Block::Stored(pointer) => self.engine().read_item(self, key, pointer, seen),
            Block::Pending(_) => self.bytes(block, seen),
        }
    }

    /// As [`Head::bytes_at`], without adding the block to the cache.
    pub fn bytes_past_cache(&self, key: Key, block: &Block, seen: Seen) -> Result<Arc<Vec<u8>>> {
        match block {
            Block::Stored(pointer) => self.engine().read_item_once(self.id, key, pointer, seen),
            Block::Pending(_) => self.bytes(block, seen),
        }
    }

    /// Brings `blocks`, about to be read, into the cache where few large requests are faster than one for each block.
    /// Starts the prefetch of the blocks `ahead`. All were found with the token `seen`, or later.
    pub fn bring<'a>(
        &self,
        blocks: impl Iterator<Item = &'a Block>,
        ahead: impl Iterator<Item = &'a Block>,
        seen: Seen,
    ) {
        self.engine().bring(self, stored(blocks), stored(ahead), seen);
    }

    /// Notes a read of an object with `end` bytes, and returns the ranges that the reader will probably read next. The
    /// blocks of the first are worth [bringing](Head::bring) into the cache ahead, and the [nodes](Head::begin_nodes)
    /// of the second.
    pub fn look_ahead(&self, object: u64, read: Range<u64>, end: u64) -> Outlook {
        self.engine().look_ahead(self, object, read, end)
    }

    /// Starts to prefetch the nodes over a range that are not in memory, as far as their addresses are known.
    pub fn begin_nodes(&self, range: Range<Key>) {
        let looked = self.read(|view| Ok::<_, Plain>((view.away(range.clone()), view.seen())));
        if let Ok((away, seen)) = looked {
            self.engine().begin_nodes(self, &away, seen);
        }
    }

    /// Sets the tree's caching in memory and on cache devices. Blocks already cached stay.
    pub fn set_caching(&self, memory: Caching, devices: Caching) {
        self.cached.set(memory, devices);
    }

    /// Sets which of the nodes written from now on are stored twice.
    pub fn set_redundancy(&self, redundancy: Redundancy) {
        self.cached.set_redundancy(redundancy);
    }

    pub(super) fn cached(&self) -> &Cached {
        &self.cached
    }

    /// Keeps the tree from changing until the guard is dropped; writers wait. Earlier changes belong to the open
    /// transaction group at the latest.
    pub fn exclude_changes(&self) -> Quiet<'_> {
        Quiet { _changes: self.changes.write() }
    }

    /// Takes no more changes, and is not read any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Replaces the tree by another: rollback and receive. Only while changes are excluded, and with no uncommitted
    /// changes but those of the group being written.
    pub fn replace(&self, root: BlockPointer, level: u8) {
        let mut tree = self.tree.write();
        self.epoch.store(TreeEpoch::next().0, Ordering::Release);
        tree.root = Root::stored(root, level);
        tree.kills.clear();
        tree.dropped = 0;
        tree.shares.clear();
        tree.dirty = false;
        tree.unlogged = tree.unlogged.take().map(|unlogged| Unlogged { since: unlogged.since, ..Unlogged::default() });
    }

    /// Sets the txg of the newest snapshot: the tree's dropped blocks up to it are kept.
    pub fn set_newest_snapshot(&self, txg: Txg) {
        // Every commit calls this, mostly without a change.
        if self.tree.read().newest_snapshot == txg {
            return;
        }
        let sector = self.engine().sector();
        let mut tree = self.tree.write();
        tree.newest_snapshot = txg;
        tree.dropped = not_kept(&tree.kills, txg, sector);
    }

    /// Bytes of the stored blocks dropped in the open group and kept by no snapshot. A field read, because every
    /// `statfs` asks.
    pub(super) fn dropped(&self) -> u64 {
        self.tree.read().dropped
    }

    /// The same by a walk of the dropped blocks.
    #[cfg(test)]
    pub(super) fn count_dropped(&self) -> u64 {
        let tree = self.tree.read();
        not_kept(&tree.kills, tree.newest_snapshot, self.engine().sector())
    }

    /// The root, if nothing has changed since the last write.
    pub fn clean_root(&self) -> Option<(BlockPointer, u8)> {
        let tree = self.tree.read();
        if tree.dirty { None } else { tree.root.slot.pointer().map(|pointer| (*pointer, tree.root.level)) }
    }

    /// Freezes the tree at the end of its group, if it has changed. The gate must be closed.
    pub(super) fn freeze(self: &Arc<Self>) -> Option<Frozen> {
        let mut tree = self.tree.write();
        if !tree.dirty {
            return None;
        }
        tree.dirty = false;
        if let Some(unlogged) = &mut tree.unlogged {
            unlogged.freeze();
        }
        let (kills, shares) = (mem::take(&mut tree.kills), mem::take(&mut tree.shares));
        tree.dropped = 0;
        Some(Frozen { head: self.clone(), root: tree.root.clone(), kills, shares })
    }

    /// Logs changes from now on, so that [`Head::make_durable`] needs no commit. It still needs one for earlier
    /// changes.
    pub fn keep_log(&self) {
        let engine = self.engine();
        let gate = engine.enter();
        self.tree.write().unlogged.get_or_insert_with(|| Unlogged { since: *gate, ..Unlogged::default() });
    }

    /// Makes everything done so far durable, by the intent log or by a commit.
    pub fn make_durable(self: &Arc<Self>) -> Result<()> {
        let engine = self.engine();
        let since = self.tree.read().unlogged.as_ref().map(|unlogged| unlogged.since);
        if since.is_some_and(|since| engine.committed().next() >= since) {
            return engine.make_durable(self);
        }
        engine.commit().map(drop)
    }

    /// Collects the items changed since the last call, in their present state, and gives them to `collect` at one
    /// instant.
    pub(super) fn take_touched<T>(
        &self,
        engine: &Engine,
        collect: impl Fn(Txg, Vec<(Key, Option<Entry>)>) -> T,
    ) -> Result<Touched<T>> {
        // A tree about to be replaced must not log its former content in the group after.
        let _no_replacing = self.changes.read();
        let sources = Sources::new(engine.cache());
        let (mut keys, mut too_many) = (Vec::new(), false);
        let result: Result<_, Plain> = self.until_found(engine, &sources, |seen| {
            let gate = engine.enter();
            let mut tree = self.tree.write();
            if let Some(Unlogged { open, frozen, .. }) = &mut tree.unlogged {
                too_many |= !frozen.give(&mut keys);
                too_many |= !open.give(&mut keys);
            }
            sort(&mut keys);
            if too_many || keys.len() > UNLOGGED_MAX {
                return Ok(Touched::TooMuch);
            }
            if keys.is_empty() {
                return Ok(Touched::Nothing);
            }
            let view = View::new(&tree.root, &sources, *gate).seen_then(seen);
            let found = keys.iter().map(|key| Ok((*key, view.get(*key)?))).collect::<Result<Vec<_>, Plain>>()?;
            Ok(Touched::Items(collect(*gate, found)))
        });
        match result {
            // The tree was destroyed, or closed after a commit: none of its changes is to be kept.
            Err(Plain::Error(Error::Stale)) => Ok(Touched::Nothing),
            result => Ok(result?),
        }
    }

    /// Drops the unlogged keys of the frozen group, which is committed.
    pub(super) fn forget_frozen(&self) {
        if let Some(unlogged) = &mut self.tree.write().unlogged {
            unlogged.frozen = Keys::default();
        }
    }

    /// Allocates the space of a block that only an entry of the intent log refers to: see [`Engine::take_log`].
    pub fn claim(&self, pointer: &BlockPointer) -> Result<()> {
        let engine = self.engine();
        let gate = engine.enter();
        let usage = engine.claim(*gate, pointer)?;
        self.births.count(*gate, usage);
        Ok(())
    }

    /// The space of this tree's records born in `txg`.
    pub(super) fn births(&self, txg: Txg) -> Usage {
        self.births.take(txg)
    }

    /// Repeats the attempt until no node is missing, reading one missing node after each. An attempt takes the locks it
    /// needs, and none is held during a read. Each attempt gets a token for the blocks it finds.
    fn until_found<T, E: OpError>(
        &self,
        engine: &Engine,
        sources: &Sources<'_>,
        mut attempt: impl FnMut(Seen) -> Result<T, E>,
    ) -> Result<T, E> {
        loop {
            let seen = self.seen(engine)?;
            match attempt(seen) {
                Err(error) if error.miss().is_some() => self.pin(engine, sources, &error, seen)?,
                done => return done,
            }
        }
    }

    /// Reads the missing node and keeps it for the next attempt. If it was freed, the next attempt does not miss it.
    fn pin<E: OpError>(&self, engine: &Engine, sources: &Sources<'_>, error: &E, seen: Seen) -> Result<(), E> {
        let miss = *error.miss().expect("the caller has looked");
        match engine.load_node_of(self, &miss, seen) {
            Ok(node) => sources.pinned.borrow_mut().push((miss.pointer, node)),
            Err(Error::Stale) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

/// Bytes of the dropped stored blocks that no snapshot keeps.
fn not_kept(kills: &[Kill], newest_snapshot: Txg, sector: u32) -> u64 {
    let stored = kills.iter().filter_map(|kill| match kill {
        Kill::Stored(pointer) if pointer.entered() > newest_snapshot => Some(pointer.allocated(sector)),
        _ => None,
    });
    stored.sum()
}

fn is_miss<T, E: OpError>(attempt: &Result<T, E>) -> bool {
    attempt.as_ref().is_err_and(|error| error.miss().is_some())
}

/// The pointers of the stored blocks.
fn stored<'a>(blocks: impl Iterator<Item = &'a Block>) -> Vec<BlockPointer> {
    let stored = |block: &Block| match block {
        Block::Stored(pointer) => Some(*pointer),
        Block::Pending(_) => None,
    };
    blocks.filter_map(stored).collect()
}
