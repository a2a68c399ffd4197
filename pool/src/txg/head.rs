//! One tree and its life through the transaction groups.

use std::{
    cell::RefCell,
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
    block::cache::BlockCache,
    error::{Error, Result},
    format::{key::Key, pointer::BlockPointer},
    space::Seen,
    tree::{Batch, Block, Entry, Kill, Miss, Node, NodeSource, Policy, Record, Root, View},
    txg::{
        births::{Births, Usage},
        durable::Touched,
        engine::{Cached, Caching, Engine, Pinned},
        streams::Outlook,
    },
    units::Txg,
};

/// The error of an operation on a tree. A [`Miss`] travels in it from the view to the head, which reads the node and
/// runs the operation again.
pub trait OpError: From<Miss> + From<Error> {
    /// The missing node, if that is what it is.
    fn miss(&self) -> Option<&Miss>;
}

/// The error of an operation that can fail for no reason of its own.
#[derive(Debug)]
pub enum Plain {
    /// A node is not in memory.
    Miss(Miss),
    /// The engine failed.
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
    /// Held shared by whoever changes the tree.
    changes: RwLock<()>,
    /// Takes no more changes, for nobody would write them, gives no more references, and is not read any more.
    closed: AtomicBool,
    /// Whether it never changes.
    is_frozen: bool,
    /// What keeps a tree that is open as it was written, and may be dropped at any time.
    pinned: Option<Pinned>,
    /// Changes with the tree, under its lock.
    epoch: AtomicU64,
    tree: RwLock<Tree>,
}

/// Which of the trees that this process has seen a head shows: rollback and every receive put another tree in the place of
/// the one before. No two heads, and no two trees of one head, have the same; the default is that of none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeEpoch(u64);

impl TreeEpoch {
    fn next() -> TreeEpoch {
        static LAST: AtomicU64 = AtomicU64::new(0);
        TreeEpoch(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

/// How often a change looks whether the tree is free before it sleeps: ten to forty microseconds.
const LOOKS: usize = 500;

/// While this lives, nobody changes the tree.
#[must_use]
pub struct Quiet<'a> {
    _changes: RwLockWriteGuard<'a, ()>,
}

struct Tree {
    root: Root,
    kills: Vec<Kill>,
    /// Dropped blocks that entered the tree in this group or before are kept for snapshots.
    newest_snapshot: Txg,
    /// How many bytes the stored blocks among the dropped ones take that no snapshot keeps.
    dropped: u64,
    /// The references to blocks of others that it has taken.
    shares: Vec<BlockPointer>,
    /// Changed since it was last frozen.
    dirty: bool,
    /// What the intent log was not told, if it is told anything.
    untold: Option<Untold>,
}

/// A frame of the log tells of at most so many items; a commit is the better way for more.
const UNTOLD_MAX: usize = 10_000;

/// What has changed and the intent log was not told: in the open group, and in the one being written.
#[derive(Debug, Default)]
struct Untold {
    open: Keys,
    frozen: Keys,
    /// Everything before this group must be committed before the log is of any use.
    since: Txg,
}

impl Untold {
    fn freeze(&mut self) {
        self.frozen = mem::take(&mut self.open);
    }
}

/// Keys of items, or that they are more than a frame tells of.
#[derive(Debug)]
enum Keys {
    Few {
        keys: Vec<Key>,
        /// How many there were when none was there twice.
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
            if keys.len() > UNTOLD_MAX {
                *self = Keys::TooMany;
            }
        }
    }

    /// Moves them to others, in any order; false if they are too many.
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

/// A tree as it was when its transaction group was frozen.
pub(super) struct Frozen {
    pub(super) head: Arc<Head>,
    pub(super) root: Root,
    pub(super) kills: Vec<Kill>,
    pub(super) shares: Vec<BlockPointer>,
}

/// A panic while a batch is applied leaves half of it in the tree. Nothing of that may be committed, so the pool takes no
/// more changes before the tree's lock is free.
struct FailOnPanic<'a>(&'a Engine);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        self.0.fail(&Error::Closed("a change has panicked half way".into()));
    }
}

/// The cache, and the nodes that this operation had to read: they stay until it is done, whatever the cache does.
struct Sources<'a> {
    cache: &'a BlockCache,
    pinned: RefCell<Vec<(BlockPointer, Arc<Node>)>>,
}

impl NodeSource for Sources<'_> {
    fn node(&self, pointer: &BlockPointer) -> Option<Arc<Node>> {
        self.cache.node(pointer).or_else(|| {
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

    /// A tree that never changes: open until it is closed, or as long as it is pinned.
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
            untold: None,
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

    /// Which tree stands here. Within [`Head::read`] and [`Head::update`] it is that of the tree that is looked at.
    pub fn epoch(&self) -> TreeEpoch {
        TreeEpoch(self.epoch.load(Ordering::Acquire))
    }

    /// The tree's number, as it was opened.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The pool it is in.
    pub fn engine(&self) -> Arc<Engine> {
        self.engine.upgrade().expect("a head does not outlive its engine")
    }

    /// What it takes to read blocks that are found in the tree from now on. A snapshot is closed by the sync that takes its row
    /// out, before that is committed: so what an open one refers to was not freed by a group that is committed now.
    fn seen(&self, engine: &Engine) -> Result<Seen> {
        let seen = match &self.pinned {
            Some(pinned) => Some(pinned.seen()).filter(|seen| engine.storage.space.stands(*seen)),
            // Asked before it is looked whether the tree is open.
            None => Some(engine.seen()).filter(|_| !self.closed.load(Ordering::SeqCst)),
        };
        seen.ok_or(Error::Stale)
    }

    /// Fails if the tree cannot be read any more, because it was destroyed or closed, or what pinned it has given way.
    pub fn check_open(&self) -> Result<()> {
        self.seen(&self.engine()).map(drop)
    }

    /// Reads a node of a tree that never changes.
    ///
    /// # Errors
    /// [`Error::Stale`] if the tree is gone.
    ///
    /// # Panics
    /// If it is one that changes: what was found in it may have gone since.
    pub fn load_node(&self, place: &Miss) -> Result<Arc<Node>> {
        self.for_good(|engine, seen| engine.load_node(place, seen))
    }

    /// The bytes of a block of a tree that never changes, as they are stored, verified.
    ///
    /// # Errors
    /// As [`Head::load_node`].
    ///
    /// # Panics
    /// As [`Head::load_node`].
    pub fn read_stored(&self, pointer: &BlockPointer) -> Result<Vec<u8>> {
        self.for_good(|engine, seen| engine.read_stored(pointer, seen))
    }

    /// Reads what a tree has that never changes: as long as it is open. A reading that took too long is done again.
    fn for_good<T>(&self, read: impl Fn(&Engine, Seen) -> Result<T>) -> Result<T> {
        assert!(self.is_frozen, "what was found in a tree that changes may have gone since");
        let engine = self.engine();
        loop {
            match read(&engine, self.seen(&engine)?) {
                Err(Error::Stale) => {}
                done => return done,
            }
        }
    }

    /// Runs `operation` on the tree as it is now, under a shared lock. It runs again, without effect before, when a node
    /// had to be read.
    ///
    /// # Errors
    /// [`Error::Stale`] if the tree is gone: see [`Head::check_open`].
    pub fn read<T, E: OpError>(&self, mut operation: impl FnMut(&View<'_>) -> Result<T, E>) -> Result<T, E> {
        let engine = self.engine();
        let sources = Sources { cache: engine.cache(), pinned: RefCell::default() };
        self.until_found(&engine, &sources, |seen| {
            let tree = self.tree.read();
            operation(&View::new(&tree.root, &sources, engine.committed().next()).seen_then(seen))
        })
    }

    /// As [`Head::read`], with a view that says which transaction group is open: as long as that one is, no block that
    /// `operation` sees has been freed, also where another tree takes a reference to it.
    ///
    /// Whoever drops a block from now on does so in that group or in a later one; so does whoever destroys or replaces the
    /// tree, for what that frees is freed by steps that are enqueued afterwards. And a group takes all its references
    /// before it gives up any.
    pub fn read_open<T, E: OpError>(&self, mut operation: impl FnMut(&View<'_>) -> Result<T, E>) -> Result<T, E> {
        let engine = self.engine();
        let sources = Sources { cache: engine.cache(), pinned: RefCell::default() };
        self.until_found(&engine, &sources, |seen| {
            let gate = engine.enter();
            if self.closed.load(Ordering::Acquire) || self.pinned.is_some() {
                return Err(Error::Closed("the tree was closed or destroyed".into()).into());
            }
            let tree = self.tree.read();
            operation(&View::new(&tree.root, &sources, *gate).seen_then(seen))
        })
    }

    /// Where a block of this tree lies; one that is not stored yet is stored, and closed to edits. `None` if the tree has
    /// given it up before it was.
    pub fn settle(&self, block: &Block) -> Result<Option<BlockPointer>> {
        match block {
            Block::Stored(pointer) => Ok(Some(*pointer)),
            Block::Pending(record) => {
                self.submit(record);
                self.engine().wait_stored(record)
            }
        }
    }

    /// Runs `operation`, which looks at the tree and collects a batch, and applies the batch, as one step. It may run
    /// several times, so it must not change anything outside the batch before its last look.
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
        let sources = Sources { cache: engine.cache(), pinned: RefCell::default() };
        self.until_found(&engine, &sources, |seen| {
            let gate = engine.enter();
            let attempt = self.attempt(&engine, (*gate, seen), &sources, &mut operation);
            if !is_miss(&attempt) {
                engine.touch();
            }
            attempt
        })
    }

    /// As [`Head::update`], in a transaction group that the caller names: for the catalogue, which only sync changes.
    pub(super) fn update_in<T, E: OpError>(
        &self,
        txg: Txg,
        mut operation: impl FnMut(&View<'_>, &mut Batch) -> Result<T, E>,
    ) -> Result<T, E> {
        let engine = self.engine();
        let sources = Sources { cache: engine.cache(), pinned: RefCell::default() };
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
        let Tree { root, kills, newest_snapshot, dropped, shares, dirty, untold } = &mut *tree;
        let mut batch = Batch::default();
        let value = operation(&View::new(root, sources, txg).seen_then(seen), &mut batch)?;
        if !batch.is_empty() {
            let touched: SmallVec<[Key; 16]> = match untold {
                Some(Untold { open: Keys::Few { .. }, .. }) => batch.keys().collect(),
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
            if let Some(untold) = untold {
                untold.open.add(&touched);
            }
            *dirty = true;
            engine.count_update(txg, grown);
        }
        Ok(value)
    }

    /// A change takes a few microseconds, less than to be put to sleep and woken: who comes meanwhile looks for a while.
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

    /// Admits `bytes` of new data: waits while too much is dirty, and fails with [`Error::OutOfSpace`] if there will be
    /// no room for them. To be called without locks, before the update that brings them.
    pub fn admit(&self, bytes: u64) -> Result<()> {
        self.take_turn(bytes)?;
        let engine = self.engine();
        let free = |error: &Error| matches!(error, Error::OutOfSpace).then(|| engine.free_due());
        engine.with_due_room(|| self.admit_in_turn(bytes), free)
    }

    /// The first half of [`Head::admit`], for who has to take locks in between: waits for the turn of who brings `bytes`
    /// while much is dirty.
    pub fn take_turn(&self, bytes: u64) -> Result<()> {
        self.engine().take_turn(bytes)
    }

    /// The second half of [`Head::admit`]: admits `bytes`, of new data or of old data that comes back into memory to be
    /// changed, and waits only where too much is dirty and not where much is.
    pub fn admit_in_turn(&self, bytes: u64) -> Result<()> {
        self.engine().admit(bytes)
    }

    /// A new record of this tree, in the open transaction group `txg`.
    pub fn record(&self, txg: Txg, policy: Policy, bytes: Vec<u8>) -> Arc<Record> {
        self.engine().count_record(txg, policy);
        Record::new(txg, policy, bytes, self.births.clone())
    }

    /// A new record of this tree, in the open transaction group `txg`, of a block that comes as it was stored elsewhere: in
    /// a stream. `pointer` says how; its addresses and births do not matter. The caller has verified that the bytes have
    /// its checksum and decompress to its size.
    pub fn record_as_stored(&self, txg: Txg, pointer: BlockPointer, stored: Arc<Vec<u8>>) -> Arc<Record> {
        let record = Record::as_stored(txg, pointer, stored, self.births.clone());
        self.engine().count_record(txg, record.policy());
        record
    }

    /// Has a record stored while its group is still open. Only for a record that is full: it is closed to edits.
    pub fn submit(&self, record: &Arc<Record>) {
        self.engine().submit(record);
    }

    /// The content of a block of this tree, pending or stored, that was found in a view which was seen then.
    ///
    /// # Errors
    /// [`Error::Stale`] if it may have been freed since, and its place used again: the caller looks again.
    pub fn bytes(&self, block: &Block, seen: Seen) -> Result<Arc<Vec<u8>>> {
        match block {
            Block::Stored(pointer) => self.engine().read_block(pointer, seen),
            Block::Pending(record) => match record.bytes() {
                Some(bytes) => Ok(bytes),
                None => self.engine().read_block(record.pointer().expect("a record without bytes is stored"), seen),
            },
        }
    }

    /// The same for the block of the item under `key`: if a copy is bad, it will be looked at again.
    pub fn bytes_at(&self, key: Key, block: &Block, seen: Seen) -> Result<Arc<Vec<u8>>> {
        match block {
            Block::Stored(pointer) => self.engine().read_item(self, key, pointer, seen),
            Block::Pending(_) => self.bytes(block, seen),
        }
    }

    /// As [`Head::bytes_at`], without keeping what is read in the cache.
    pub fn bytes_past_cache(&self, key: Key, block: &Block, seen: Seen) -> Result<Arc<Vec<u8>>> {
        match block {
            Block::Stored(pointer) => self.engine().read_item_once(self.id, key, pointer, seen),
            Block::Pending(_) => self.bytes(block, seen),
        }
    }

    /// Brings blocks into the cache that are about to be read, as far as that is faster than to read one after the other;
    /// begins to read those `ahead`, which nobody waits for yet. All were seen then, or later.
    pub fn bring<'a>(
        &self,
        blocks: impl Iterator<Item = &'a Block>,
        ahead: impl Iterator<Item = &'a Block>,
        seen: Seen,
    ) {
        self.engine().bring(self, stored(blocks), stored(ahead), seen);
    }

    /// Notes that bytes of an object of the tree are read, of so many that it has, and returns which of them whoever reads will
    /// probably ask for next: the blocks of the first are worth [bringing](Head::bring) ahead, and of the second the
    /// [nodes](Head::begin_nodes).
    pub fn look_ahead(&self, object: u64, read: Range<u64>, end: u64) -> Outlook {
        self.engine().look_ahead(self, object, read, end)
    }

    /// Begins to read the nodes that say what stands in a range, as far as they are not in memory and it is known where they
    /// are.
    pub fn begin_nodes(&self, range: Range<Key>) {
        let looked = self.read(|view| Ok::<_, Plain>((view.away(range.clone()), view.seen())));
        if let Ok((away, seen)) = looked {
            self.engine().begin_nodes(self, &away, seen);
        }
    }

    /// Says what of the tree is kept in the cache in memory, and what on cache devices. What is there stays.
    pub fn set_caching(&self, memory: Caching, devices: Caching) {
        self.cached.set(memory, devices);
    }

    pub(super) fn cached(&self) -> &Cached {
        &self.cached
    }

    /// Keeps everybody from changing the tree until the guard is dropped; whoever tries waits. What was changed before
    /// belongs to the open transaction group at the latest.
    pub fn exclude_changes(&self) -> Quiet<'_> {
        Quiet { _changes: self.changes.write() }
    }

    /// Takes no more changes, and is not read any more.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Puts another tree in the place of this one: rollback and receive. Only while changes are excluded, and with none
    /// uncommitted but those of the group that sync is writing.
    pub fn replace(&self, root: BlockPointer, level: u8) {
        let mut tree = self.tree.write();
        self.epoch.store(TreeEpoch::next().0, Ordering::Release);
        tree.root = Root::stored(root, level);
        tree.kills.clear();
        tree.dropped = 0;
        tree.shares.clear();
        tree.dirty = false;
        tree.untold = tree.untold.take().map(|untold| Untold { since: untold.since, ..Untold::default() });
    }

    /// Says up to which group snapshots of this tree keep the blocks that the tree drops.
    pub fn set_newest_snapshot(&self, txg: Txg) {
        // Every commit says so, and hardly ever another one.
        if self.tree.read().newest_snapshot == txg {
            return;
        }
        let sector = self.engine().sector();
        let mut tree = self.tree.write();
        tree.newest_snapshot = txg;
        tree.dropped = not_kept(&tree.kills, txg, sector);
    }

    /// How many bytes the stored blocks take that the tree dropped in the open group and no snapshot keeps. Costs nothing, for
    /// every `statfs` asks.
    pub(super) fn dropped(&self) -> u64 {
        self.tree.read().dropped
    }

    /// The same, counted.
    #[cfg(test)]
    pub(super) fn count_dropped(&self) -> u64 {
        let tree = self.tree.read();
        not_kept(&tree.kills, tree.newest_snapshot, self.engine().sector())
    }

    /// The root, if nothing has changed since it was written.
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
        if let Some(untold) = &mut tree.untold {
            untold.freeze();
        }
        let (kills, shares) = (mem::take(&mut tree.kills), mem::take(&mut tree.shares));
        tree.dropped = 0;
        Some(Frozen { head: self.clone(), root: tree.root.clone(), kills, shares })
    }

    /// Has the intent log told of what changes from now on, so that [`Head::make_durable`] needs no commit. Until then,
    /// and for what was changed before, it does.
    pub fn keep_log(&self) {
        let engine = self.engine();
        let gate = engine.enter();
        self.tree.write().untold.get_or_insert_with(|| Untold { since: *gate, ..Untold::default() });
    }

    /// Makes everything done so far durable, by the intent log or by a commit.
    pub fn make_durable(self: &Arc<Self>) -> Result<()> {
        let engine = self.engine();
        let since = self.tree.read().untold.as_ref().map(|untold| untold.since);
        if since.is_some_and(|since| engine.committed().next() >= since) {
            return engine.make_durable(self);
        }
        engine.commit().map(drop)
    }

    /// What has changed since the last call, as it is now, given to `tell` at one instant.
    pub(super) fn take_touched<T>(
        &self,
        engine: &Engine,
        tell: impl Fn(Txg, Vec<(Key, Option<Entry>)>) -> T,
    ) -> Result<Touched<T>> {
        // A tree that is about to be replaced must not tell the log, in the group after, of what it was before.
        let _no_replacing = self.changes.read();
        let sources = Sources { cache: engine.cache(), pinned: RefCell::default() };
        let (mut keys, mut too_many) = (Vec::new(), false);
        let told: Result<_, Plain> = self.until_found(engine, &sources, |seen| {
            let gate = engine.enter();
            let mut tree = self.tree.write();
            if let Some(Untold { open, frozen, .. }) = &mut tree.untold {
                too_many |= !frozen.give(&mut keys);
                too_many |= !open.give(&mut keys);
            }
            sort(&mut keys);
            if too_many || keys.len() > UNTOLD_MAX {
                return Ok(Touched::TooMuch);
            }
            if keys.is_empty() {
                return Ok(Touched::Nothing);
            }
            let view = View::new(&tree.root, &sources, *gate).seen_then(seen);
            let found = keys.iter().map(|key| Ok((*key, view.get(*key)?))).collect::<Result<Vec<_>, Plain>>()?;
            Ok(Touched::Items(tell(*gate, found)))
        });
        match told {
            // It was destroyed, or closed after a commit: nothing of it is to be kept.
            Err(Plain::Error(Error::Stale)) => Ok(Touched::Nothing),
            told => Ok(told?),
        }
    }

    /// The frozen group is committed: the log need not be told of it.
    pub(super) fn forget_frozen(&self) {
        if let Some(untold) = &mut self.tree.write().untold {
            untold.frozen = Keys::default();
        }
    }

    /// Takes the space of a block that an entry of the intent log refers to: see [`Engine::take_log`].
    pub fn claim(&self, pointer: &BlockPointer) -> Result<()> {
        let engine = self.engine();
        let gate = engine.enter();
        let usage = engine.claim(*gate, pointer)?;
        self.births.count(*gate, usage);
        Ok(())
    }

    /// What this tree's records of `txg` take.
    pub(super) fn births(&self, txg: Txg) -> Usage {
        self.births.take(txg)
    }

    /// Attempts again and again, each time with the node that the last attempt has missed. An attempt takes the locks that
    /// it needs, and holds none while the node is read. It is told when it looks, for what it finds to be read later.
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

    /// Reads the node that an operation has missed and keeps it for the next attempt. One that has gone is not missed then.
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

/// How many bytes the stored ones of dropped blocks take that no snapshot keeps.
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

/// Where those of these blocks lie that are stored.
fn stored<'a>(blocks: impl Iterator<Item = &'a Block>) -> Vec<BlockPointer> {
    let stored = |block: &Block| match block {
        Block::Stored(pointer) => Some(*pointer),
        Block::Pending(_) => None,
    };
    blocks.filter_map(stored).collect()
}
