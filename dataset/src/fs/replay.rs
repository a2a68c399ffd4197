//! After a crash: applying the records of the intent log to a tree.
//!
//! An entry of the log lists changed items of a tree with their new content, so applying all entries in order restores
//! the latest logged state. The log does not list blocks that lost their last item. Replay derives the blocks from the
//! items, because all extents on one block lie within one record of one file.
//!
//! Everything is applied in one txg before anything else changes. If power fails before the commit, the same entries
//! are applied again to the same tree.
//!
//! # Blocks with several references
//!
//! The log does not list new references either. A reference is taken when its first item is put and given up with its
//! last item, so replay derives references from the items:
//!
//! * A block born before the last commit is allocated in the committed state, and has a reference count there if
//!   shared. A *shared* pointer to the block whose reference is missing from the tree takes one more. The block still
//!   exists: any reference given up after the commit is given up by replay in the same txg, and replay takes references
//!   before giving up any.
//! * A block born after the last commit has no owner yet. The first reference that replay meets, in any tree, *claims*
//!   the block's space and becomes the block's first reference; each further reference is taken. The first one met need
//!   not be marked as shared: references are equal, and the tree that wrote the block may have logged nothing.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use pool::{
    error::{Error, Result},
    format::{
        intent::{Entry, Item, ItemBlock, Part},
        key::Key,
        pointer::{Address, BlockPointer, Reference},
    },
    tree::{Block, Miss, Policy, Record, View},
    txg::Head,
    units::Txg,
};

use super::{
    change::load_inode,
    failure::Failure,
    key::{EXTENT, span},
};

/// The blocks born after the last commit whose space was claimed: each block once, over all trees.
#[derive(Default)]
pub(crate) struct Claims(HashSet<Address>);

/// Applies the log entries of one tree.
pub(crate) struct Replay<'a> {
    head: &'a Head,
    policy: Policy,
    /// The txg of the state that the entries are applied to.
    committed: Txg,
    /// The blocks whose bytes were in the log, by their numbers in the log.
    blocks: HashMap<u64, Arc<Record>>,
    claims: &'a mut Claims,
    /// The references by which the tree has claimed a block, and which therefore need no further reference count.
    claimed: HashSet<Reference>,
    /// The unshared references to blocks born after the last commit: each is new only once.
    known: HashSet<Reference>,
}

impl<'a> Replay<'a> {
    /// Begins the replay of one tree. Blocks whose bytes are in the log are stored with `policy`.
    pub(crate) fn new(head: &'a Head, policy: Policy, claims: &'a mut Claims) -> Replay<'a> {
        let committed = head.engine().committed();
        let (blocks, claimed, known) = (HashMap::new(), HashSet::new(), HashSet::new());
        Replay { head, policy, committed, blocks, claims, claimed, known }
    }

    /// Applies one entry of the log.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Result<()> {
        entry.parts.iter().try_for_each(|part| self.take_part(part))?;
        let mut inherited = Vec::new();
        for (key, pointer) in stored(entry) {
            inherited.extend(self.take_space(*key, pointer)?.then_some(*pointer));
        }
        let after = Items { entry, blocks: &self.blocks };
        let outcome = self.head.update(|view, batch| {
            let mut dropped: Vec<(Key, Block)> = Vec::new();
            for (key, item) in &entry.items {
                let block = after.block(item.as_ref())?;
                match item {
                    Some(item) => batch.put(*key, item.body.clone(), block.as_ref()),
                    None => batch.delete(*key),
                }
                let Some(before) = view.get(*key)?.and_then(|entry| entry.block()) else { continue };
                let stays = block.is_some_and(|block| is_one(&block, *key, &before, *key));
                let known = stays || dropped.iter().any(|(at, other)| is_one(other, *at, &before, *key));
                if !known && !after.refer_to(view, *key, &before)? {
                    dropped.push((*key, before));
                }
            }
            dropped.into_iter().for_each(|(_, block)| batch.kill(block));
            let taken = after.taken(view, &self.claimed)?;
            taken.iter().chain(&inherited).for_each(|pointer| batch.share(*pointer));
            Ok::<_, Failure>(())
        });
        // A reference that is given up and taken again counts anew.
        for (key, pointer) in stored(entry) {
            self.claimed.remove(&pointer.reference(*key));
        }
        outcome.map_err(|failure| match failure {
            Failure::Engine(error) => error,
            other => Error::damaged("intent log", format!("it does not fit the tree: {other:?}")),
        })
    }

    /// Restores the bytes of a block.
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

    /// Claims the space of a block stored after the last commit, if not yet claimed. If claimed already by another
    /// reference, true for an unshared reference that is new to the tree and still has to be taken.
    fn take_space(&mut self, key: Key, pointer: &BlockPointer) -> Result<bool> {
        if pointer.birth <= self.committed {
            return Ok(false);
        }
        let reference = pointer.reference(key);
        if self.claims.0.insert(pointer.addresses[0]) {
            self.head.claim(pointer)?;
            self.claimed.insert(reference);
            self.known.insert(reference);
            return Ok(false);
        }
        Ok(pointer.shared.is_none() && self.known.insert(reference))
    }
}

/// The block pointers of an entry, with their keys.
fn stored(entry: &Entry) -> impl Iterator<Item = (&Key, &BlockPointer)> {
    entry.items.iter().filter_map(|(key, item)| match &item.as_ref()?.block {
        ItemBlock::Stored(pointer) => Some((key, pointer)),
        _ => None,
    })
}

/// Whether two items belong to the same reference to the same block.
fn is_one(block: &Block, at: Key, other: &Block, key: Key) -> bool {
    let same_reference = match (block.pointer(), other.pointer()) {
        (Some(one), Some(two)) => one.reference(at) == two.reference(key),
        _ => true,
    };
    same_reference && block.same(other)
}

/// The items of an entry, with the state of the tree after the entry.
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

    /// The shared references that are new to the tree, except those in `claimed`.
    fn taken(&self, view: &View<'_>, claimed: &HashSet<Reference>) -> Result<Vec<BlockPointer>, Failure> {
        let mut taken = Vec::new();
        let mut met: HashSet<Reference> = HashSet::new();
        for (key, pointer) in stored(self.entry) {
            let (Some(shared), reference) = (pointer.shared, pointer.reference(*key)) else { continue };
            if claimed.contains(&reference) || !met.insert(reference) {
                continue;
            }
            let start = key.offset >> shared.scope << shared.scope;
            let mut before = view.range(span(key.object, key.kind, start, start.saturating_add(1 << shared.scope)));
            let has_it = before.try_fold(false, |found, other| {
                let other = other?;
                let pointer = other.block().and_then(|block| block.pointer());
                Ok::<_, Miss>(found || pointer.is_some_and(|pointer| pointer.reference(other.key()) == reference))
            })?;
            if !has_it {
                taken.push(*pointer);
            }
        }
        Ok(taken)
    }

    /// Whether an item other than `key` still refers, after the entry, to the block that `key` refers to now.
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
            if stays && other.block().is_some_and(|it| is_one(&it, other.key(), block, key)) {
                return Ok(true);
            }
        }
        let changed = self.entry.items.iter().filter(|(key, _)| record.contains(key));
        for (at, item) in changed {
            if self.block(item.as_ref())?.is_some_and(|other| is_one(&other, *at, block, key)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
