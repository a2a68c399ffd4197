//! A transaction over the catalogue: reads see what it has written, and nothing is written until it is whole.
//!
//! A task reads and writes rows as if they were its own. The writes stand in an overlay over the tree's view; when the
//! task succeeds they become one batch. If the task fails, or if a node it reads is not in memory and it has to start
//! again, the overlay is dropped and nothing has happened. Without a batch at the end a transaction is a reader, or a dry
//! run.
//!
//! What a task does beside changing rows (freeing a block, giving an open dataset another tree) it leaves behind as
//! [`Effect`]s, which are carried out once, after the batch was applied.

use std::{collections::BTreeMap, ops::Range};

use pool::{
    env::Nanos,
    error::Error as PoolError,
    format::{key::Key, pointer::BlockPointer},
    space::Seen,
    tree::{Batch, Block, View},
    units::Txg,
};

use super::{MASTER, coding::Row, rows::Master};
use crate::admin::{Error, Result};

/// The body and the block of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The coded row.
    pub bytes: Vec<u8>,
    /// The block.
    pub block: Option<BlockPointer>,
}

/// What a transaction does beside changing rows.
#[derive(Clone, Debug)]
pub enum Effect {
    /// A reference to a block is given up: without any other it is free.
    Free(BlockPointer),
    /// A new dataset needs a tree with an empty root directory.
    Format {
        /// The dataset.
        id: u64,
        /// Who owns the root directory: user and group.
        owner: (u32, u32),
    },
    /// An open dataset shows another tree from now on.
    Replace {
        /// The dataset.
        id: u64,
        /// Its new root.
        root: BlockPointer,
        /// The root's level.
        level: u8,
    },
    /// A dataset or snapshot is gone, or no longer filled by a receive: its tree is closed.
    Close(u64),
}

/// A view of the catalogue with changes on top.
pub struct Transaction<'a> {
    view: View<'a>,
    now: Nanos,
    changes: BTreeMap<Key, Option<Body>>,
    effects: Vec<Effect>,
    needs: Option<&'static str>,
}

impl<'a> Transaction<'a> {
    /// A transaction over `view` at the time `now`.
    pub fn new(view: View<'a>, now: Nanos) -> Transaction<'a> {
        Transaction { view, now, changes: BTreeMap::new(), effects: Vec::new(), needs: None }
    }

    /// The transaction group it belongs to.
    pub fn txg(&self) -> Txg {
        self.view.txg()
    }

    /// When the catalogue was looked at: what it takes to read the trees whose roots stand in it.
    pub fn seen(&self) -> Seen {
        self.view.seen()
    }

    /// The time of day.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The item under `key`.
    pub fn body(&self, key: Key) -> Result<Option<Body>> {
        if let Some(change) = self.changes.get(&key) {
            return Ok(change.clone());
        }
        Ok(self.view.get(key)?.map(|entry| Body { bytes: entry.body().to_vec(), block: stored(entry.block()) }))
    }

    /// The row under `key`, and its block.
    pub fn find<R: Row>(&self, key: Key) -> Result<Option<(R, Option<BlockPointer>)>> {
        self.body(key)?.map(|body| Ok((decode(key, &body)?, body.block))).transpose()
    }

    /// The row under `key`, which another row promises.
    pub fn row<R: Row>(&self, key: Key) -> Result<R> {
        self.row_and_block(key).map(|(row, _)| row)
    }

    /// The row under `key`, which another row promises, and its block.
    pub fn row_and_block<R: Row>(&self, key: Key) -> Result<(R, Option<BlockPointer>)> {
        self.find(key)?
            .ok_or_else(|| PoolError::damaged(format!("catalogue at {key}"), format!("no {}", R::WHAT)).into())
    }

    /// Whether there is an item under `key`.
    pub fn contains(&self, key: Key) -> Result<bool> {
        Ok(self.body(key)?.is_some())
    }

    /// Writes a row and its block.
    pub fn put<R: Row>(&mut self, key: Key, row: &R, block: Option<BlockPointer>) {
        self.put_body(key, Body { bytes: row.encode(), block });
    }

    /// Writes a row and leaves its block.
    pub fn set<R: Row>(&mut self, key: Key, row: &R) -> Result<()> {
        let block = self.body(key)?.and_then(|body| body.block);
        self.put(key, row, block);
        Ok(())
    }

    /// Writes an item.
    pub fn put_body(&mut self, key: Key, body: Body) {
        self.changes.insert(key, Some(body));
    }

    /// Deletes the item under `key`, if there is one.
    pub fn delete(&mut self, key: Key) {
        self.changes.insert(key, None);
    }

    /// Deletes all items in `range`.
    pub fn delete_range(&mut self, range: Range<Key>) -> Result<()> {
        for key in self.bodies(range)?.into_keys() {
            self.delete(key);
        }
        Ok(())
    }

    /// The items in `range`.
    pub fn bodies(&self, range: Range<Key>) -> Result<BTreeMap<Key, Body>> {
        let mut found = BTreeMap::new();
        for entry in self.view.range(range.clone()) {
            let entry = entry?;
            if !self.changes.contains_key(&entry.key()) {
                found.insert(entry.key(), Body { bytes: entry.body().to_vec(), block: stored(entry.block()) });
            }
        }
        let changed = self.changes.range(range).filter_map(|(key, change)| Some((*key, change.clone()?)));
        found.extend(changed);
        Ok(found)
    }

    /// The rows in `range`, in order.
    pub fn rows<R: Row>(&self, range: Range<Key>) -> Result<Vec<(Key, R)>> {
        self.bodies(range)?.into_iter().map(|(key, body)| Ok((key, decode(key, &body)?))).collect()
    }

    /// The key of the first item in `range`.
    pub fn first_key(&self, range: Range<Key>) -> Result<Option<Key>> {
        let changed = self.changes.range(range.clone()).find_map(|(key, change)| change.as_ref().map(|_| *key));
        for entry in self.view.range(range) {
            let key = entry?.key();
            if changed.is_some_and(|changed| changed <= key) {
                break;
            }
            if !self.changes.contains_key(&key) {
                return Ok(Some(key));
            }
        }
        Ok(changed)
    }

    /// The key of the last item in `range`.
    pub fn last_key(&self, range: Range<Key>) -> Result<Option<Key>> {
        let changed = self.changes.range(range.clone()).rev().find_map(|(key, change)| change.as_ref().map(|_| *key));
        let start = changed.map_or(range.start, |key| key.max(range.start));
        let mut end = range.end;
        while let Some(entry) = self.view.last_before(start, end)? {
            if !self.changes.contains_key(&entry.key()) {
                return Ok(Some(entry.key()));
            }
            end = entry.key();
        }
        Ok(changed)
    }

    /// The catalogue's own row.
    pub fn master(&self) -> Result<Master> {
        self.row(MASTER)
    }

    /// Changes the catalogue's own row.
    pub fn edit_master<T>(&mut self, edit: impl FnOnce(&mut Master) -> T) -> Result<T> {
        let mut master = self.master()?;
        let result = edit(&mut master);
        self.put(MASTER, &master, None);
        Ok(result)
    }

    /// A new id.
    pub fn new_id(&mut self) -> Result<u64> {
        let next = self.master()?.next_id;
        let after = next.checked_add(1).ok_or_else(|| PoolError::damaged("catalogue", "no ids are left"))?;
        self.edit_master(|master| master.next_id = after)?;
        Ok(next)
    }

    /// Leaves something to be done once the rows are changed.
    pub fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The datasets and snapshots whose trees are closed when its effects are carried out.
    pub fn closes(&self) -> impl Iterator<Item = u64> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Close(id) => Some(*id),
            _ => None,
        })
    }

    /// Says that only programs with a feature understand what it writes.
    pub(super) fn need(&mut self, feature: &'static str) {
        self.needs = Some(feature);
    }

    /// The feature that it takes to understand what it writes.
    pub fn needs(&self) -> Option<&'static str> {
        self.needs
    }

    /// The catalogue without its changes.
    pub fn before(&self) -> Transaction<'a> {
        Transaction::new(self.view, self.now)
    }

    /// Ends the transaction: its changes go into the batch, its effects are returned.
    pub fn finish(self, batch: &mut Batch) -> Vec<Effect> {
        for (key, change) in self.changes {
            match change {
                Some(body) => batch.put(key, body.bytes, body.block.map(Block::Stored).as_ref()),
                None => batch.delete(key),
            }
        }
        self.effects
    }
}

fn decode<R: Row>(key: Key, body: &Body) -> Result<R> {
    R::decode(&body.bytes).map_err(|error| Error::from(PoolError::damaged(format!("catalogue at {key}"), error)))
}

/// The catalogue's blocks are written before they are put into it.
fn stored(block: Option<Block>) -> Option<BlockPointer> {
    block.and_then(|block| block.pointer())
}
