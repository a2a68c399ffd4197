//! Applying a range to the receiving tree: replaces the items in the range by the sender's.
//!
//! Independent of the meaning of items, with one exception: a reference to a block is dropped when its last item goes,
//! and the items of a reference are [`near`] each other, so the neighbourhood is searched for further items.
//!
//! Invariant: an item equal to the sender's is not touched, so the receiving tree copies no node for such an item.

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
    units::{Guid, Txg},
};

use super::{
    parser::Data,
    position::Position,
    range::{Item, Origin, Range, near},
};

/// A part of a range: some of its items, and the keys that the items replace.
pub(super) struct Part<'a> {
    pub(super) range: &'a Range,
    pub(super) items: ops::Range<usize>,
    pub(super) low: Key,
    pub(super) high: Key,
    /// The new blocks of the range read so far: at least the blocks of the part's items.
    pub(super) blocks: &'a mut [Option<Arrived>],
    /// The position after the part, and the GUID of the receive, if the receive can be resumed.
    pub(super) position: Option<(Position, Guid)>,
}

/// A new block with verified data.
#[derive(Clone)]
pub(super) struct Arrived {
    template: BlockPointer,
    bytes: Arc<Vec<u8>>,
    /// Set once an item with the block is in the tree.
    record: Option<Arc<Record>>,
}

impl Arrived {
    /// A block with the receiver's number of copies.
    pub(super) fn new(Data { info, checksum, bytes, .. }: Data, copies: u8) -> Arrived {
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

#[derive(Debug)]
pub(super) enum Failure {
    Miss(Miss),
    Engine(EngineError),
    /// The receiving tree has no block under the key.
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

/// Applies a part in one step. Blocks are queued for the workers at once, unless they are small.
pub(super) fn apply(head: &Head, part: Part<'_>) -> Result<(), Failure> {
    /// Smaller blocks are better written by the commit, together with the blocks of more parts, in bytes.
    const SUBMIT_FROM: usize = 8 << 10;
    let made = head.update(|view, batch| {
        let plan = Plan::of(view, &part)?;
        let made = part.make_records(head, view.txg());
        plan.collect(&part, &made, batch, view.txg());
        if let Some((position, guid)) = part.position {
            position.note(batch, guid);
        }
        Ok::<_, Failure>(made)
    })?;
    let mut large = Vec::new();
    for (index, record) in made {
        let arrived = part.blocks[index as usize].as_mut().expect("a record is of a block that came");
        if arrived.bytes.len() >= SUBMIT_FROM {
            large.push(record.clone());
        }
        arrived.record = Some(record);
        arrived.bytes = Arc::default();
    }
    head.submit_all(large);
    Ok(())
}

type Records = BTreeMap<u32, Arc<Record>>;

impl Part<'_> {
    fn items(&self) -> &[Item] {
        &self.range.items[self.items.clone()]
    }

    /// Makes records for the part's new blocks that have none yet.
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

/// The effect of a part on the current tree.
///
/// Every block found is stored: the receiving tree was opened at a committed state, and the ranges of a stream ascend,
/// so no block of the stream is replaced by the same stream. A resumed receive opens the committed state again.
struct Plan {
    old: Vec<Entry>,
    /// For each item of the part, the block that the tree already has.
    own: Vec<Option<BlockPointer>>,
    /// Blocks without any remaining item.
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

/// Whether an item of the tree equals the stream's item under its key.
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

/// The pointer of a stored block under a new key: for streams, the block is born there.
fn at_new_key(pointer: BlockPointer, txg: Txg) -> Block {
    Block::Stored(BlockPointer { logical_birth: txg, ..pointer })
}

/// The tree's block for an item without a new block.
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

/// Whether an item outside the part refers to the block under `key` in the part.
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
