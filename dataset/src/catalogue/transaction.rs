//! A transaction over the catalogue: reads see the transaction's own writes, and nothing is written before the end.
//!
//! A task reads and writes rows directly. The writes are an overlay over the tree's view, and become one batch when the
//! task succeeds. If the task fails, or restarts because a node is not in memory, the overlay is dropped and nothing
//! has happened. Without a batch at the end, a transaction is a reader or a dry run.
//!
//! Work other than changes of rows (freeing a block, giving an open dataset another tree) is recorded as [`Effect`]s,
//! which are carried out once, after the batch was applied.

use std::{collections::BTreeMap, ops::Range};

use pool::{
    env::Nanos,
    error::Error as PoolError,
    format::{key::Key, pointer::BlockPointer},
    space::Seen,
    tree::{Batch, Block, View},
    units::Txg,
};

use super::{coding::Row, key::MASTER, rows::Master};
use crate::error::{Error, Result};

/// The body and the block of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The row in coded form.
    pub bytes: Vec<u8>,
    /// The pointer of the item's block.
    pub block: Option<BlockPointer>,
}

/// Work to do after the rows are changed.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Give up a reference to a block; the last reference frees the block.
    Free(BlockPointer),
    /// Make a tree with an empty root directory for a new dataset.
    Format {
        /// The new dataset's id.
        id: u64,
        /// The user and group that own the root directory.
        owner: (u32, u32),
    },
    /// Show another tree in an open dataset.
    Replace {
        /// The open dataset's id.
        id: u64,
        /// The root of the tree to show.
        root: BlockPointer,
        /// The root's level, 0 for a leaf.
        level: u8,
    },
    /// Close the tree of a dataset or snapshot that was destroyed, or made visible by a receive.
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
    /// A transaction over `view` at the time `now`, in nanoseconds since 1970.
    pub fn new(view: View<'a>, now: Nanos) -> Transaction<'a> {
        Transaction { view, now, changes: BTreeMap::new(), effects: Vec::new(), needs: None }
    }

    /// The open txg, or in syncing context the syncing txg.
    pub fn txg(&self) -> Txg {
        self.view.txg()
    }

    /// The moment of the view: needed to read trees whose roots are in the catalogue.
    pub fn seen(&self) -> Seen {
        self.view.seen()
    }

    /// The time of day, in nanoseconds since 1970.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// The item under `key`, if any.
    pub fn body(&self, key: Key) -> Result<Option<Body>> {
        if let Some(change) = self.changes.get(&key) {
            return Ok(change.clone());
        }
        Ok(self.view.get(key)?.map(|entry| Body { bytes: entry.body().to_vec(), block: stored(entry.block()) }))
    }

    /// The row under `key` and its block, if any.
    pub fn find<R: Row>(&self, key: Key) -> Result<Option<(R, Option<BlockPointer>)>> {
        self.body(key)?.map(|body| Ok((decode(key, &body)?, body.block))).transpose()
    }

    /// The row under `key`, which must exist because another row refers to the key; damage otherwise.
    pub fn row<R: Row>(&self, key: Key) -> Result<R> {
        self.row_and_block(key).map(|(row, _)| row)
    }

    /// As [`Transaction::row`], with the row's block.
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

    /// Writes a row, and keeps the current block.
    pub fn set<R: Row>(&mut self, key: Key, row: &R) -> Result<()> {
        let block = self.body(key)?.and_then(|body| body.block);
        self.put(key, row, block);
        Ok(())
    }

    /// Writes an item that is already coded.
    pub fn put_body(&mut self, key: Key, body: Body) {
        self.changes.insert(key, Some(body));
    }

    /// Deletes the item under `key`, if any.
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

    /// The catalogue's master row.
    pub fn master(&self) -> Result<Master> {
        self.row(MASTER)
    }

    /// Changes the catalogue's master row.
    pub fn edit_master<T>(&mut self, edit: impl FnOnce(&mut Master) -> T) -> Result<T> {
        let mut master = self.master()?;
        let result = edit(&mut master);
        self.put(MASTER, &master, None);
        Ok(result)
    }

    /// Draws an id for a dataset, snapshot or list. Ids are never used twice.
    pub fn new_id(&mut self) -> Result<u64> {
        let next = self.master()?.next_id;
        let after = next.checked_add(1).ok_or_else(|| PoolError::damaged("catalogue", "no ids are left"))?;
        self.edit_master(|master| master.next_id = after)?;
        Ok(next)
    }

    /// Records work to do after the rows are changed.
    pub fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The datasets and snapshots whose trees the effects will close.
    pub fn closes(&self) -> impl Iterator<Item = u64> {
        self.effects.iter().filter_map(|effect| match effect {
            Effect::Close(id) => Some(*id),
            _ => None,
        })
    }

    /// Records that only programs with a feature can read the written rows.
    pub(super) fn need(&mut self, feature: &'static str) {
        self.needs = Some(feature);
    }

    /// The feature needed to read the written rows, if any.
    pub fn needs(&self) -> Option<&'static str> {
        self.needs
    }

    /// The catalogue without the changes.
    pub fn before(&self) -> Transaction<'a> {
        Transaction::new(self.view, self.now)
    }

    /// Ends the transaction: moves the changes into the batch, and returns the effects.
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

/// The pointer of a block: the catalogue refers only to blocks already written.
fn stored(block: Option<Block>) -> Option<BlockPointer> {
    block.and_then(|block| block.pointer())
}
