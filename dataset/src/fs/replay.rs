//! After a crash: putting back what the intent log was told.
//!
//! An entry of the log says which items of a tree have changed and how they are then, so putting entries back in order
//! brings the tree to where it was. What the log does not say is which blocks nobody refers to any more; that follows
//! from the items, since all extents on one block lie within one record of one file.
//!
//! All of it happens in one transaction group, before anything else is changed. If power fails before that is committed,
//! the same entries are put back again, to the same tree.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use pool::{
    error::{Error, Result},
    format::{
        intent::{Entry, Item, ItemBlock, Part},
        key::Key,
        pointer::{Address, BlockPointer},
    },
    tree::{Block, Policy, Record, View},
    txg::Head,
    units::Txg,
};

use super::{
    change::load_inode,
    failure::Failure,
    key::{EXTENT, span},
};

/// Puts the entries of one tree's log back.
pub(crate) struct Replay<'a> {
    head: &'a Head,
    policy: Policy,
    /// What the entries follow.
    committed: Txg,
    /// The blocks whose bytes were in the log, by their numbers.
    blocks: HashMap<u64, Arc<Record>>,
    claimed: HashSet<Address>,
}

impl<'a> Replay<'a> {
    /// For this tree. Blocks whose bytes are in the log are stored as `policy` says.
    pub(crate) fn new(head: &'a Head, policy: Policy) -> Replay<'a> {
        let committed = head.engine().committed();
        Replay { head, policy, committed, blocks: HashMap::new(), claimed: HashSet::new() }
    }

    /// Puts one entry back.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Result<()> {
        entry.parts.iter().try_for_each(|part| self.take_part(part))?;
        let items = entry.items.iter().filter_map(|(_, item)| item.as_ref());
        items.clone().try_for_each(|item| self.take_space(item))?;
        let after = Items { entry, blocks: &self.blocks };
        let outcome = self.head.update(|view, batch| {
            let mut dropped: Vec<Block> = Vec::new();
            for (key, item) in &entry.items {
                let block = after.block(item.as_ref())?;
                match item {
                    Some(item) => batch.put(*key, item.body.clone(), block.as_ref()),
                    None => batch.delete(*key),
                }
                let Some(before) = view.get(*key)?.and_then(|entry| entry.block()) else { continue };
                let known = dropped.iter().chain(&block).any(|other| other.same(&before));
                if !known && !after.refer_to(view, *key, &before)? {
                    dropped.push(before);
                }
            }
            dropped.into_iter().for_each(|block| batch.kill(block));
            Ok::<_, Failure>(())
        });
        outcome.map_err(|failure| match failure {
            Failure::Engine(error) => error,
            other => Error::damaged("intent log", format!("it does not fit the tree: {other:?}")),
        })
    }

    /// Brings a block to what it was.
    fn take_part(&mut self, part: &Part) -> Result<()> {
        self.head.engine().with_open_txg(|txg| match self.blocks.get(&part.block) {
            Some(record) => {
                let written = record.write(txg, part.at as usize, &part.bytes);
                assert!(written, "nothing stores a record before everything is put back");
                Ok(())
            }
            None if part.bytes.len() == part.len as usize => {
                let record = self.head.record(txg, self.policy, part.bytes.clone());
                self.blocks.insert(part.block, record);
                Ok(())
            }
            None => Err(Error::damaged("intent log", "the beginning of a block is missing")),
        })
    }

    /// Takes the space of a block that was stored after the last commit.
    fn take_space(&mut self, item: &Item) -> Result<()> {
        match &item.block {
            ItemBlock::Stored(pointer) if self.is_new(pointer) => self.head.claim(pointer),
            _ => Ok(()),
        }
    }

    fn is_new(&mut self, pointer: &BlockPointer) -> bool {
        pointer.birth > self.committed && self.claimed.insert(pointer.addresses[0])
    }
}

/// The items of an entry, as they will be.
struct Items<'a> {
    entry: &'a Entry,
    blocks: &'a HashMap<u64, Arc<Record>>,
}

impl Items<'_> {
    fn block(&self, item: Option<&Item>) -> Result<Option<Block>, Failure> {
        match item.map(|item| &item.block) {
            None | Some(ItemBlock::None) => Ok(None),
            Some(ItemBlock::Stored(pointer)) => Ok(Some(Block::Stored(*pointer))),
            Some(ItemBlock::Logged(number)) => match self.blocks.get(number) {
                Some(record) => Ok(Some(Block::Pending(record.clone()))),
                None => Err(Error::damaged("intent log", "it speaks of a block that it does not hold").into()),
            },
        }
    }

    /// Whether an item other than the one under `key` will still refer to the block that stands there now.
    fn refer_to(&self, view: &View<'_>, key: Key, block: &Block) -> Result<bool, Failure> {
        if key.kind != EXTENT {
            return Ok(false);
        }
        let shift = load_inode(view, key.object)?.record_shift;
        let start = key.offset >> shift << shift;
        let record = span(key.object, EXTENT, start, start + (1 << shift));
        for other in view.range(record.clone()) {
            let other = other?;
            let stays = self.entry.items.binary_search_by_key(&other.key(), |(key, _)| *key).is_err();
            if stays && other.block().is_some_and(|other| other.same(block)) {
                return Ok(true);
            }
        }
        let changed = self.entry.items.iter().filter(|(key, _)| record.contains(key));
        for (_, item) in changed {
            if self.block(item.as_ref())?.is_some_and(|other| other.same(block)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
