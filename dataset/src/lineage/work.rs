//! Freeing trees and lists in the background.
//!
//! Freeing may take any number of blocks, so the catalogue keeps a [`Work`] row and the work is done in steps. A step
//! has two halves. [`plan`] reads outside of any transaction. The blocks read are unreachable for users and stay
//! allocated while the row is unchanged, and each read first checks the row. [`apply`] runs in syncing context: in one
//! txg it frees the blocks and records the progress. So a crash between two steps loses nothing, and no commit waits
//! for the reads.
//!
//! A tree is freed in key order. The cursor is the end of a leaf: the leaf and every node whose range ends at or before
//! the cursor are free, and nothing else. Subtrees born in `after` or earlier belong to a snapshot and are skipped
//! unread. Several items of a file may refer to one block, all within an aligned range of [`SHARED_RANGE`] bytes; no
//! step ends inside such a range, so each block is freed once.

use std::collections::HashSet;

use pool::{
    error::{Error as PoolError, ErrorKind, Result as PoolResult},
    format::{
        key::Key,
        pointer::{BlockPointer, Reference},
    },
    space::Seen,
    tree::{Miss, Node},
    txg::Engine,
    units::Txg,
};

use super::{deadlist, nodes};
use crate::{
    catalogue::{Body, Bucket, Effect, POOL, Space, Task, Transaction, Work, keys, keys_from, kind},
    error::{Error, Result},
};

/// The size, in bytes, of the aligned range that contains all items of one block: the largest record.
pub const SHARED_RANGE: u64 = 16 << 20;

/// Queues a tree for freeing, except blocks born in `after` or earlier. `space` is the sum that will be freed.
pub fn free_tree(tx: &mut Transaction<'_>, root: BlockPointer, level: u8, after: Txg, space: Space) -> Result<()> {
    if root.birth <= after {
        return Ok(());
    }
    let cursor = (0, 0, 0);
    enqueue(tx, Work { task: Task::Tree { level, after, cursor }, remaining: space }, Some(root))
}

/// Queues the lists of a bucket, and the blocks on the lists, for freeing.
pub fn free_lists(tx: &mut Transaction<'_>, bucket: &Bucket) -> Result<()> {
    lists(tx, bucket, true, bucket.space)
}

/// Queues the lists of a bucket for freeing, but not the blocks on the lists, which are in use again.
pub fn forget_lists(tx: &mut Transaction<'_>, bucket: &Bucket) -> Result<()> {
    lists(tx, bucket, false, Space::ZERO)
}

fn lists(tx: &mut Transaction<'_>, bucket: &Bucket, blocks: bool, remaining: Space) -> Result<()> {
    if bucket.first == 0 {
        return Ok(());
    }
    enqueue(tx, Work { task: Task::Lists { first: bucket.first, blocks }, remaining }, None)
}

fn enqueue(tx: &mut Transaction<'_>, work: Work, block: Option<BlockPointer>) -> Result<()> {
    let id = tx.new_id()?;
    tx.edit_master(|master| master.freeing += work.remaining)?;
    tx.put(Key::new(POOL, kind::WORK, id), &work, block);
    Ok(())
}

/// A planned step, to be applied in syncing context.
#[derive(Debug)]
pub struct Step {
    key: Key,
    before: Body,
    /// The work left after the step; `None` if the step is the last.
    after: Option<Work>,
    freed: Space,
    free: Vec<BlockPointer>,
    delete: Vec<Key>,
}

/// Plans the next step, which frees about `budget` blocks. `None` if no work is queued.
pub fn plan(engine: &Engine, budget: usize) -> Result<Option<Step>> {
    loop {
        match plan_first(engine, budget) {
            // Another thread has made the step meanwhile.
            Err(Error::Pool(PoolError::Stale)) => {}
            planned => return planned,
        }
    }
}

fn plan_first(engine: &Engine, budget: usize) -> Result<Option<Step>> {
    let found = engine.catalogue().read(|view| {
        let tx = Transaction::new(*view, 0);
        let Some(key) = tx.first_key(keys(POOL, kind::WORK))? else { return Ok(None) };
        let (work, root) = tx.row_and_block::<Work>(key)?;
        Ok::<_, crate::error::Error>(Some((key, work, root)))
    })?;
    let Some((key, work, root)) = found else { return Ok(None) };
    let before = Body { bytes: crate::catalogue::Row::encode(&work), block: root };
    let step = Step { key, before, after: None, freed: Space::ZERO, free: Vec::new(), delete: Vec::new() };
    match (&work.task, root) {
        (Task::Tree { level, after, cursor }, Some(root)) => {
            let cursor = Key::new(cursor.0, cursor.1, cursor.2);
            let mut pass = TreePass::new(Waiting::of(engine, &step), *after, cursor, budget);
            pass.run(&nodes::root(root, *level))?;
            Ok(Some(pass.into_step(step, *level, &work)))
        }
        (Task::Lists { first, blocks }, _) => plan_lists(engine, step, &work, *first, *blocks, budget).map(Some),
        // The tree is empty.
        (Task::Tree { .. }, None) => Ok(Some(step)),
    }
}

/// Makes a step. Does nothing if the row has changed since the plan.
pub fn apply(tx: &mut Transaction<'_>, step: &Step) -> Result<()> {
    if tx.body(step.key)?.as_ref() != Some(&step.before) {
        return Ok(());
    }
    let (before, root) = tx.row_and_block::<Work>(step.key)?;
    let left = step.after.as_ref().map_or(Space::ZERO, |work| work.remaining);
    match &step.after {
        Some(work) => tx.put(step.key, work, root),
        None => tx.delete(step.key),
    }
    step.delete.iter().for_each(|key| tx.delete(*key));
    step.free.iter().for_each(|block| tx.effect(Effect::Free(*block)));
    tx.edit_master(|master| master.freeing = master.freeing + left - before.remaining)
}

fn plan_lists(engine: &Engine, mut step: Step, work: &Work, first: u64, blocks: bool, budget: usize) -> Result<Step> {
    let mut list = first;
    while list != 0 && step.free.len() + step.delete.len() < budget {
        let (pages, next) =
            engine.catalogue().read(|view| some_pages(&Transaction::new(*view, 0), list, &step, budget))?;
        for (key, body) in pages {
            free_page(engine, &mut step, key, &body, blocks)?;
        }
        let Some(next) = next else { break };
        step.delete.push(Key::new(list, kind::LINK, 0));
        list = next;
    }
    let remaining = work.remaining - step.freed;
    step.after = (list != 0).then_some(Work { task: Task::Lists { first: list, blocks }, remaining });
    Ok(step)
}

/// The next pages of a list, within the budget. With the last page also the next list in the chain.
#[expect(clippy::type_complexity, reason = "a pair of two plain things")]
fn some_pages(tx: &Transaction<'_>, list: u64, step: &Step, budget: usize) -> Result<(Vec<(Key, Body)>, Option<u64>)> {
    let mut range = keys_from(list, kind::PAGE, 0);
    let mut pages = Vec::new();
    while let Some(key) = tx.first_key(range.clone())? {
        if step.free.len() + pages.len() * PAGE_COST >= budget && !pages.is_empty() {
            return Ok((pages, None));
        }
        pages.push((key, tx.body(key)?.unwrap_or_default()));
        range.start = key.successor();
    }
    Ok((pages, Some(deadlist::next_list(tx, list)?)))
}

/// The typical number of blocks on a page, for the budget of a step.
const PAGE_COST: usize = 512;

fn free_page(engine: &Engine, step: &mut Step, key: Key, body: &Body, blocks: bool) -> Result<()> {
    step.delete.push(key);
    let mut pointers = deadlist::page(key, &body.bytes)?;
    if let Some(block) = &body.block {
        step.free.push(*block);
        if blocks {
            let read = Waiting::of(engine, step).read(|seen| engine.read_block(block, seen))?;
            pointers.extend(deadlist::page(key, &read)?);
        }
    }
    if blocks {
        step.freed += pointers.iter().map(|pointer| Space::of(pointer, engine.sector())).sum();
        step.free.extend(pointers);
    }
    Ok(())
}

/// Blocks queued for freeing; none is freed while the row is unchanged.
struct Waiting<'a> {
    engine: &'a Engine,
    key: Key,
    row: Body,
}

impl<'a> Waiting<'a> {
    fn of(engine: &'a Engine, step: &Step) -> Waiting<'a> {
        Waiting { engine, key: step.key, row: step.before.clone() }
    }

    /// Reads a block after checking the row; repeats if the read took too long to trust its result.
    fn read<T>(&self, read: impl Fn(Seen) -> PoolResult<T>) -> Result<T> {
        loop {
            let waits = self.engine.catalogue().read(|view| {
                let tx = Transaction::new(*view, 0);
                Ok::<_, Error>((tx.body(self.key)?.as_ref() == Some(&self.row)).then(|| tx.seen()))
            });
            match read(waits?.ok_or(PoolError::Stale)?) {
                Err(PoolError::Stale) => {}
                done => return Ok(done?),
            }
        }
    }
}

/// One step through a tree.
struct TreePass<'a> {
    waiting: Waiting<'a>,
    after: Txg,
    cursor: Key,
    budget: usize,
    free: Vec<BlockPointer>,
    seen: HashSet<Reference>,
    /// Items up to the key may belong to the last reference that was given up.
    shared_until: Key,
}

impl<'a> TreePass<'a> {
    fn new(waiting: Waiting<'a>, after: Txg, cursor: Key, budget: usize) -> TreePass<'a> {
        let seen = HashSet::new();
        TreePass { waiting, after, cursor, budget, free: Vec::new(), seen, shared_until: Key::MIN }
    }

    fn is_full(&self) -> bool {
        self.free.len() >= self.budget && self.cursor >= self.shared_until
    }

    /// Frees the blocks under a node from the cursor on, until the step is full. The caller passes nodes that end after
    /// the cursor and are young enough to be freed.
    fn run(&mut self, place: &Miss) -> Result<()> {
        let node = match self.waiting.read(|seen| self.waiting.engine.load_node(place, seen)) {
            Err(error) if error.kind() == ErrorKind::Damage => {
                tracing::warn!("what lies under a damaged node cannot be freed: {error}");
                self.cursor = place.high;
                return Ok(());
            }
            other => other?,
        };
        self.free_items(&node);
        for child in nodes::children(&node).into_iter().filter(|child| child.high > self.cursor).collect::<Vec<_>>() {
            if child.pointer.birth <= self.after {
                self.cursor = child.high;
            } else {
                self.run(&child)?;
            }
            if self.is_full() {
                break;
            }
        }
        if node.leaf().is_some() || self.cursor >= place.high {
            self.free.push(place.pointer);
            self.cursor = place.high;
        }
        Ok(())
    }

    fn free_items(&mut self, node: &Node) {
        for (leaf, item) in nodes::items(node) {
            let Some(pointer) = leaf.pointer(item).filter(|pointer| pointer.entered() > self.after) else { continue };
            let key = item.key();
            let end = (key.offset | (SHARED_RANGE - 1)).checked_add(1);
            self.shared_until =
                end.map_or(Key { offset: u64::MAX, ..key }.successor(), |end| Key { offset: end, ..key });
            if self.seen.insert(pointer.reference(key)) {
                self.free.push(pointer);
            }
        }
    }

    fn into_step(self, step: Step, level: u8, work: &Work) -> Step {
        let freed = self.free.iter().map(|block| Space::of(block, self.waiting.engine.sector())).sum();
        let cursor = (self.cursor.object, self.cursor.kind, self.cursor.offset);
        let task = Task::Tree { level, after: self.after, cursor };
        let after = (self.cursor < Key::MAX).then_some(Work { task, remaining: work.remaining - freed });
        Step { after, freed, free: self.free, ..step }
    }
}
