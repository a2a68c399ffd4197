//! Sending: the difference of two trees, as a stream of records.
//!
//! The tree of the snapshot is walked, without what is no younger than the base: *a node born at or before the base stood
//! there with exactly these items under exactly this range*, so it is skipped whole, and a stream costs what has changed.
//! Of each younger leaf all items are sent, and the data of those blocks that came under their keys after the base.
//! A bookmark is enough of a base, for only its transaction group is asked for.
//!
//! Data travels as stored: nothing is decompressed. Reads run ahead on several threads, bounded in bytes, while this one
//! writes in order.
//!
//! Below stands the engine. The caller holds the snapshot; should it be destroyed all the same, sending fails.

use std::{
    collections::{HashMap, VecDeque},
    io::Write,
    sync::Arc,
};

use pool::{
    error::Error as EngineError,
    format::{
        key::Key,
        pointer::{BlockPointer, Checksum, Reference},
    },
    tree::{Event, Leaf, Miss, Node, Walker},
    txg::Head,
    units::Txg,
};

use super::{
    census::Census,
    crew::{Crew, Ticket},
    error::Result,
    frame::{FrameWriter, Kind, SUM},
    index::{Index, Trailer},
    range::{BlockInfo, Origin, Range, near},
    records::{Begin, Start, Totals},
};
use crate::admin::LongHold;

/// How many bytes may be read ahead of being written.
const AHEAD: u64 = 32 << 20;

/// A snapshot to be sent, whole or as an increment.
#[derive(Debug)]
pub struct Source {
    /// What its stream begins with. Its base says from where on.
    pub begin: Begin,
    /// Its tree.
    pub tree: Arc<Head>,
    /// What keeps it and its base from being destroyed until it was sent.
    pub held: Option<LongHold>,
}

/// What a command sends: one snapshot, or many, in the order in which they must be received.
#[derive(Debug)]
pub struct Package {
    /// The dataset that was asked to be sent.
    pub root: String,
    /// Whether everything below it is sent too.
    pub replicate: bool,
    /// What the sender has altogether, if receivers are to know. It is left out if it is too long.
    pub census: Option<Census>,
    /// The snapshots; at least one.
    pub sources: Vec<Source>,
}

/// What was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The length of the whole stream, in bytes.
    pub bytes: u64,
    /// What its streams hold together.
    pub totals: Totals,
}

impl Source {
    fn walker(&self) -> Result<Walker> {
        let (pointer, level) =
            self.tree.clean_root().ok_or_else(|| EngineError::damaged("snapshot", "it has no tree"))?;
        let root = Miss { pointer, level, low: Key::MIN, high: Key::MAX };
        Ok(Walker::new(root, Key::MIN, self.begin.born_after()))
    }
}

/// Writes `package` to `out`, and lets go of each snapshot when it was sent, with `readers` threads that read ahead (none: everything on this one). `progress` is told
/// now and then how many bytes were written.
///
/// # Errors
/// If a block cannot be read or `out` does not take what is written; then `out` holds a stream that is cut off, which
/// no receiver accepts.
pub fn send(package: Package, out: &mut dyn Write, readers: usize, progress: &mut dyn FnMut(u64)) -> Result<Sent> {
    assert!(!package.sources.is_empty());
    let mut sending = Sending {
        frames: FrameWriter::new(out)?,
        index: Index::default(),
        crew: Crew::new(readers),
        queue: VecDeque::new(),
        ahead: 0,
        progress,
    };
    let streams = package.sources.len() as u64;
    let start = Start { root: package.root.clone(), replicate: package.replicate, streams, census: None };
    sending.frames.put(Kind::Start, &start.encode())?;
    sending.census(package.census.as_ref())?;
    let mut all = Totals::default();
    for source in package.sources {
        all += sending.stream(&source)?;
    }
    sending.finish(all)
}

/// How many bytes sending `source` will take, roughly: from a walk of the nodes that have changed, without their data.
///
/// # Errors
/// If a node cannot be read.
pub fn estimate(source: &Source) -> Result<u64> {
    let mut walker = source.walker()?;
    let mut bytes = 0;
    while let Some(event) = walker.next(|miss| source.tree.load_node(miss))? {
        if let Event::Enter(place, node) = event
            && let Some(leaf) = node.leaf()
        {
            let (range, blocks) = diff(&place, leaf, source.begin.born_after());
            let data: u64 = blocks.iter().map(|pointer| u64::from(pointer.stored)).sum();
            bytes += range.encode().len() as u64 + data;
        }
    }
    Ok(bytes)
}

/// What waits to be written, in order.
enum Waiting {
    Range(Range),
    Block(u64, Ticket<pool::error::Result<([u8; SUM], Vec<u8>)>>),
}

struct Sending<'a> {
    frames: FrameWriter<'a>,
    index: Index,
    crew: Crew,
    queue: VecDeque<Waiting>,
    /// The bytes of the blocks and ranges in the queue.
    ahead: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Sending<'_> {
    /// Says what there is, if it is not too much: a receiver can do without.
    fn census(&mut self, census: Option<&Census>) -> Result<()> {
        let Some(census) = census else { return Ok(()) };
        let Some(payloads) = census.encode() else {
            tracing::warn!(
                "there are too many datasets and snapshots to say which: no receiver can destroy what is gone"
            );
            return Ok(());
        };
        payloads.iter().try_for_each(|payload| self.frames.put(Kind::Census, payload))
    }

    fn stream(&mut self, source: &Source) -> Result<Totals> {
        self.index.begin(self.frames.offset(), self.frames.chain());
        self.frames.put(Kind::Begin, &source.begin.encode())?;
        let born_after = source.begin.born_after();
        let (mut walker, mut totals) = (source.walker()?, Totals::default());
        while let Some(event) = walker.next(|miss| source.tree.load_node(miss))? {
            let Event::Enter(place, node) = event else { continue };
            match node.leaf() {
                Some(leaf) => {
                    let (range, blocks) = diff(&place, leaf, born_after);
                    totals += Totals::of(&range);
                    // An increment may be all ranges and no blocks.
                    self.ahead += range.weight() as u64;
                    self.queue.push_back(Waiting::Range(range));
                    self.read_ahead(&source.tree, blocks)?;
                }
                None => self.load_ahead(&source.tree, &place, &node, born_after),
            }
        }
        self.drain(0)?;
        self.frames.put(Kind::End, &totals.encode())?;
        Ok(totals)
    }

    /// Has blocks read, in the order in which they will be written.
    fn read_ahead(&mut self, tree: &Arc<Head>, blocks: Vec<BlockPointer>) -> Result<()> {
        for pointer in blocks {
            self.drain(AHEAD)?;
            let tree = tree.clone();
            let ticket = self.crew.ask(move || read(&tree, &pointer));
            self.ahead += u64::from(pointer.stored);
            self.queue.push_back(Waiting::Block(pointer.stored.into(), ticket));
        }
        self.drain(AHEAD)
    }

    /// Has the leaves under a node read, so that the walk finds them in the cache.
    fn load_ahead(&self, tree: &Arc<Head>, place: &Miss, node: &Node, born_after: Txg) {
        let Some(interior) = node.interior().filter(|interior| interior.level == 1) else { return };
        // The first one the walk needs at once.
        for (index, child) in interior.children.iter().enumerate().skip(1) {
            let Some(pointer) = child.slot.pointer().copied().filter(|pointer| pointer.birth > born_after) else {
                continue;
            };
            let miss = Miss { pointer, level: 0, low: child.low, high: interior.high(index, place.high) };
            let tree = tree.clone();
            // If it cannot be read, the walk will say so.
            drop(self.crew.ask(move || tree.load_node(&miss).is_ok()));
        }
    }

    /// Writes until at most `ahead` bytes wait.
    fn drain(&mut self, ahead: u64) -> Result<()> {
        while self.ahead > ahead || ahead == 0 || self.queue.len() > 4096 {
            match self.queue.pop_front() {
                Some(Waiting::Range(range)) => {
                    self.ahead -= range.weight() as u64;
                    self.index.range(self.frames.offset(), range.low, self.frames.chain());
                    self.frames.put(Kind::Range, &range.encode())?;
                }
                Some(Waiting::Block(stored, ticket)) => {
                    let (checksum, data) = ticket.redeem()?;
                    self.frames.put_block(&checksum, &data)?;
                    self.ahead -= stored;
                }
                None => break,
            }
            (self.progress)(self.frames.offset());
        }
        Ok(())
    }

    fn finish(mut self, totals: Totals) -> Result<Sent> {
        self.frames.put(Kind::Finish, &[])?;
        let trailer = Trailer { index: self.frames.offset(), before: self.frames.chain() };
        for payload in self.index.encode() {
            self.frames.put(Kind::Index, &payload)?;
        }
        self.frames.put(Kind::Trailer, &trailer.encode())?;
        self.frames.flush()?;
        let bytes = self.frames.offset();
        (self.progress)(bytes);
        Ok(Sent { bytes, totals })
    }
}

/// A block as stored, and its checksum in the stream: its own, verified by reading, or one for the way.
fn read(tree: &Head, pointer: &BlockPointer) -> pool::error::Result<([u8; SUM], Vec<u8>)> {
    let data = tree.read_stored(pointer)?;
    let checksum = if pointer.checksum_kind == Checksum::Off { blake3::hash(&data).into() } else { pointer.checksum };
    Ok((checksum, data))
}

/// The record of a leaf, and the blocks that follow it.
fn diff(place: &Miss, leaf: &Leaf, born_after: Txg) -> (Range, Vec<BlockPointer>) {
    let pointers: Vec<Option<BlockPointer>> = leaf.items().iter().map(|item| leaf.pointer(item)).collect();
    let is_unchanged = |pointer: &BlockPointer| pointer.logical_birth <= born_after;
    // Items that share a block share one reference to it: other references are other blocks to the receiver.
    let mut unchanged: HashMap<Reference, usize> = HashMap::new();
    for (index, (item, pointer)) in leaf.items().iter().zip(&pointers).enumerate() {
        if let Some(pointer) = pointer.filter(is_unchanged) {
            unchanged.entry(pointer.reference(item.key())).or_insert(index);
        }
    }
    let mut range = Range::new(place.low, place.high);
    let mut blocks: Vec<BlockPointer> = Vec::new();
    let mut sent: HashMap<Reference, (u32, Key)> = HashMap::new();
    for (item, pointer) in leaf.items().iter().zip(&pointers) {
        let key = item.key();
        let origin = match pointer {
            None => Origin::None,
            Some(pointer) if is_unchanged(pointer) => Origin::Unchanged,
            Some(pointer) => {
                let reference = pointer.reference(key);
                let base =
                    unchanged.get(&reference).filter(|index| near(leaf.items()[**index].key(), key, pointer.logical));
                let again = sent.get(&reference).filter(|(_, first)| near(*first, key, pointer.logical));
                match (base, again) {
                    (Some(index), _) => Origin::Shared(*index as u32),
                    (None, Some((block, _))) => Origin::New(*block),
                    (None, None) => {
                        sent.insert(reference, (blocks.len() as u32, key));
                        range.blocks.push(BlockInfo::of(pointer));
                        blocks.push(*pointer);
                        Origin::New(blocks.len() as u32 - 1)
                    }
                }
            }
        };
        range.push(key, leaf.body(item), origin);
    }
    (range, blocks)
}
