//! Applying a range to the receiving tree: what stands in it is replaced by what stood in it at the sender.
//!
//! Independent of what the items mean, with one exception: a reference to a block is dropped when the last item that it
//! consists of goes, and those items are [`near`] each other, so the neighbourhood is searched for others.
//!
//! Invariant: an item that is as it should be is not touched, so the receiving tree copies no node for it.

use std::{
    collections::{BTreeMap, HashSet},
    ops,
    sync::Arc,
};

use pool::{
    error::Error as EngineError,
    format::{
        key::Key,
        pointer::{BlockPointer, Checksum, Reference},
    },
    tree::{Batch, Block, Entry, Miss, Record, View},
    txg::{Head, OpError},
    units::Txg,
};

use super::range::{BlockInfo, Item, Origin, Range, near};

/// A part of a range: some of its items, and the keys that they replace.
pub(super) struct Part<'a> {
    pub(super) range: &'a Range,
    pub(super) items: ops::Range<usize>,
    pub(super) low: Key,
    pub(super) high: Key,
    /// The new blocks of the range that came so far: all that the part's items need.
    pub(super) blocks: &'a mut [Option<Arrived>],
}

/// A new block whose data came and were verified.
#[derive(Clone)]
pub(super) struct Arrived {
    template: BlockPointer,
    bytes: Arc<Vec<u8>>,
    /// Once an item with it stands in the tree.
    record: Option<Arc<Record>>,
}

impl Arrived {
    /// A block with the receiver's number of copies.
    pub(super) fn new(info: BlockInfo, checksum: [u8; 32], copies: u8, bytes: Arc<Vec<u8>>) -> Arrived {
        let checksum = if info.checksum == Checksum::Off { [0; 32] } else { checksum };
        let template = BlockPointer {
            copies,
            logical: info.logical,
            stored: info.stored,
            compression: info.compression,
            checksum_kind: info.checksum,
            checksum,
            ..BlockPointer::default()
        };
        Arrived { template, bytes, record: None }
    }
}

/// Why a part cannot be applied.
#[derive(Debug)]
pub(super) enum Failure {
    Miss(Miss),
    Engine(EngineError),
    /// The receiving tree has no such block under this key.
    MissingBlock(Key),
}

impl From<Miss> for Failure {
    fn from(miss: Miss) -> Failure {
        Failure::Miss(miss)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Failure {
        Failure::Engine(error)
    }
}

impl OpError for Failure {
    fn miss(&self) -> Option<&Miss> {
        match self {
            Failure::Miss(miss) => Some(miss),
            Failure::Engine(_) | Failure::MissingBlock(_) => None,
        }
    }
}

/// Applies a part, as one step. Its blocks of some size are handed to the workers at once.
pub(super) fn apply(head: &Head, part: Part<'_>) -> Result<(), Failure> {
    /// Smaller ones are better written many in one run, by sync.
    const SUBMIT_FROM: usize = 64 << 10;
    let made = head.update(|view, batch| {
        let plan = Plan::of(view, &part)?;
        let made = part.make_records(head, view.txg());
        plan.collect(&part, &made, batch, view.txg());
        Ok::<_, Failure>(made)
    })?;
    for (index, record) in made {
        let arrived = part.blocks[index as usize].as_mut().expect("a record is of a block that came");
        if arrived.bytes.len() >= SUBMIT_FROM {
            head.submit(&record);
        }
        arrived.record = Some(record);
        arrived.bytes = Arc::default();
    }
    Ok(())
}

type Records = BTreeMap<u32, Arc<Record>>;

impl Part<'_> {
    /// Its items.
    fn items(&self) -> &[Item] {
        &self.range.items[self.items.clone()]
    }

    /// Records for those of its blocks that have none yet.
    fn make_records(&self, head: &Head, txg: Txg) -> Records {
        let mut made = Records::new();
        for item in self.items() {
            let Origin::New(index) = item.origin else { continue };
            let arrived = self.arrived(index);
            if arrived.record.is_none() {
                made.entry(index)
                    .or_insert_with(|| head.record_as_stored(txg, arrived.template, arrived.bytes.clone()));
            }
        }
        made
    }

    fn arrived(&self, index: u32) -> &Arrived {
        self.blocks[index as usize].as_ref().expect("a part is applied once its blocks have come")
    }
}

/// What applying a part means for the tree as it is.
///
/// Every block that it meets is stored: the receiving tree was opened at a committed state, and ranges only ever grow, so
/// what this stream has brought is never replaced by it.
struct Plan {
    old: Vec<Entry>,
    /// For each of the part's items the block that the tree has for it already.
    own: Vec<Option<BlockPointer>>,
    /// Blocks that no item will refer to.
    dropped: Vec<BlockPointer>,
}

impl Plan {
    fn of(view: &View<'_>, part: &Part<'_>) -> Result<Plan, Failure> {
        let old: Vec<Entry> = view.range(part.low..part.high).collect::<Result<_, Miss>>()?;
        let own = part.items().iter().map(|item| own_block(view, part.range, item)).collect::<Result<Vec<_>, _>>()?;
        let kept = part.items().iter().zip(&own).filter_map(|(item, own)| Some(own.as_ref()?.reference(item.key)));
        let mut settled: HashSet<Reference> = kept.collect();
        let mut dropped = Vec::new();
        for (key, pointer) in old.iter().filter_map(|entry| Some((entry.key(), stored(entry)?))) {
            if settled.insert(pointer.reference(key)) && !referred_outside(view, part, key, &pointer)? {
                dropped.push(pointer);
            }
        }
        Ok(Plan { old, own, dropped })
    }

    fn collect(self, part: &Part<'_>, made: &Records, batch: &mut Batch, txg: Txg) {
        let mut old = self.old.into_iter().peekable();
        for (item, own) in part.items().iter().zip(self.own) {
            while let Some(gone) = old.next_if(|entry| entry.key() < item.key) {
                batch.delete(gone.key());
            }
            let before = old.next_if(|entry| entry.key() == item.key);
            let body = part.range.body(item);
            if before.is_some_and(|before| is_as_it_is(&before, item, body)) {
                continue;
            }
            let block = match item.origin {
                Origin::None => None,
                Origin::Unchanged => own.map(Block::Stored),
                Origin::Shared(_) => own.map(|pointer| at_new_key(pointer, txg)),
                Origin::New(index) => Some(new_block(part, made, index, txg)),
            };
            batch.put(item.key, body, block.as_ref());
        }
        old.for_each(|gone| batch.delete(gone.key()));
        self.dropped.into_iter().for_each(|pointer| batch.kill(Block::Stored(pointer)));
    }
}

/// Whether an item of the tree is what the stream wants under its key.
fn is_as_it_is(before: &Entry, item: &Item, body: &[u8]) -> bool {
    let block = match item.origin {
        Origin::None => before.block().is_none(),
        Origin::Unchanged => true,
        Origin::New(_) | Origin::Shared(_) => false,
    };
    block && before.body() == body
}

fn new_block(part: &Part<'_>, made: &Records, index: u32, txg: Txg) -> Block {
    let record = made.get(&index).or(part.arrived(index).record.as_ref()).expect("a block that came has a record");
    record.pointer().map_or_else(|| Block::Pending(record.clone()), |pointer| at_new_key(*pointer, txg))
}

/// A stored block under a key where it did not stand before is born there, as far as streams are concerned.
fn at_new_key(pointer: BlockPointer, txg: Txg) -> Block {
    Block::Stored(BlockPointer { logical_birth: txg, ..pointer })
}

/// The block that the tree has for an item that brings none.
fn own_block(view: &View<'_>, range: &Range, item: &Item) -> Result<Option<BlockPointer>, Failure> {
    let at = match item.origin {
        Origin::None | Origin::New(_) => return Ok(None),
        Origin::Unchanged => item.key,
        Origin::Shared(index) => range.items[index as usize].key,
    };
    let pointer = view.get(at)?.as_ref().and_then(stored);
    let is_one = |pointer: &BlockPointer| pointer.reference(at) == pointer.reference(item.key);
    match pointer.filter(|pointer| near(at, item.key, pointer.logical) && is_one(pointer)) {
        Some(pointer) => Ok(Some(pointer)),
        None => Err(Failure::MissingBlock(at)),
    }
}

fn stored(entry: &Entry) -> Option<BlockPointer> {
    entry.block()?.pointer()
}

/// Whether an item outside the part refers to a block that stands under `key` in it.
fn referred_outside(view: &View<'_>, part: &Part<'_>, key: Key, block: &BlockPointer) -> Result<bool, Miss> {
    let reach = u64::from(block.logical) - 1;
    let first = Key { offset: key.offset.saturating_sub(reach), ..key };
    let end = Key { offset: key.offset.saturating_add(reach), ..key }.successor();
    for range in [first..part.low, part.high..end] {
        for entry in view.range(range) {
            let entry = entry?;
            if stored(&entry).is_some_and(|other| other.reference(entry.key()) == block.reference(key)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}
