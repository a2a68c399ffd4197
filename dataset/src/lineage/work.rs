//! Freeing trees and lists in the background.
//!
//! What is to be freed may be of any size, so it stands in the catalogue as a [`Work`] row and is done in steps. A step
//! has two halves. [`plan`] reads, outside of any transaction: what it reads is out of everybody's reach, and stays as long as
//! the row says that it is still to be freed, which is looked at before each read. [`apply`] runs in the syncing context: it frees the blocks and writes how far the work has come, in one
//! transaction group. So a crash between two steps loses nothing, and commits never wait for the reading.
//!
//! A tree is freed in the order of its keys. The cursor stands at the end of a leaf: the leaf and every node whose range
//! ends there or before are free, and nothing else is. Subtrees that are not younger than `after` belong to a snapshot
//! and are passed over unread. Several items of a file may refer to one block, all within an aligned range of
//! [`SHARED_RANGE`] bytes; a step does not end inside such a range, so each block is freed once.

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
    admin::{Error, Result},
    catalogue::{Body, Bucket, Effect, POOL, Space, Task, Transaction, Work, keys, keys_from, kind},
};

/// Items that refer to one block have keys within one aligned range of this size: that of the largest record.
pub const SHARED_RANGE: u64 = 16 << 20;

/// Has a tree freed, but for blocks that are not younger than `after`. `space` is what that will free.
pub fn free_tree(tx: &mut Transaction<'_>, root: BlockPointer, level: u8, after: Txg, space: Space) -> Result<()> {
    if root.birth <= after {
        return Ok(());
    }
    let cursor = (0, 0, 0);
    enqueue(tx, Work { task: Task::Tree { level, after, cursor }, remaining: space }, Some(root))
}

/// Has the lists of a bucket and the blocks on them freed.
pub fn free_lists(tx: &mut Transaction<'_>, bucket: &Bucket) -> Result<()> {
    lists(tx, bucket, true, bucket.space)
}

/// Has the lists of a bucket freed, but not the blocks on them: they are in use again.
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

/// What one step will do.
#[derive(Debug)]
pub struct Step {
    key: Key,
    before: Body,
    /// What is left to do after it; none if nothing is.
    after: Option<Work>,
    freed: Space,
    free: Vec<BlockPointer>,
    delete: Vec<Key>,
}

/// Plans the next step: one that frees about `budget` blocks. `None` if there is no work.
pub fn plan(engine: &Engine, budget: usize) -> Result<Option<Step>> {
    loop {
        match plan_first(engine, budget) {
            // Another has done the step meanwhile.
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
        Ok::<_, crate::admin::Error>(Some((key, work, root)))
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
        // A tree without a root has nothing to free.
        (Task::Tree { .. }, None) => Ok(Some(step)),
    }
}

/// Carries out a step. Does nothing if another has taken its place.
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

/// The next pages of a list that a step has not taken yet, and the list after it if these are the last.
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

/// About how many blocks a page holds, for the budget of a step.
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

/// What waits to be freed: nothing of it is, as long as its row is as it was.
struct Waiting<'a> {
    engine: &'a Engine,
    key: Key,
    row: Body,
}

impl<'a> Waiting<'a> {
    fn of(engine: &'a Engine, step: &Step) -> Waiting<'a> {
        Waiting { engine, key: step.key, row: step.before.clone() }
    }

    /// Reads a part of it; again if that took so long that it might have been freed meanwhile.
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
    /// Up to here items may belong to a reference that was given up last.
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

    /// Frees what lies under a node from the cursor on, until the step is full. The node's range does not end before
    /// the cursor, and it is young enough to be freed.
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
