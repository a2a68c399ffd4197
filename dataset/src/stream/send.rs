//! Sending: the difference of two trees, as a stream of records.
//!
//! The tree of the snapshot is walked, except nodes not younger than the base: *a node born at or before the base was
//! in the base's tree with exactly the same items and range*. Such a node is skipped as a whole, so the cost of a
//! stream is proportional to the changes. Of each younger leaf all items are sent, and the data of the blocks entered
//! under their keys after the base. A bookmark is a sufficient base, because only its txg is used.
//!
//! Data is sent as stored, without decompression. Several threads read ahead, within a limit of bytes, while the
//! sending thread writes in order. A thread reads a batch of blocks at a time, with one request for neighbours on a
//! device, and no block is copied between the read and the write.
//!
//! Below is the engine. The caller holds the snapshot; if the snapshot is destroyed nevertheless, the send fails.

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    io::Write,
    sync::Arc,
};

use pool::{
    block::{Spares, Stored},
    error::Error as EngineError,
    format::{
        key::Key,
        pointer::{BlockPointer, Checksum, Reference},
    },
    tree::{Event, Item, Leaf, Miss, Node, Walker},
    txg::Head,
    units::Txg,
};

use super::{
    append::finish,
    census::Census,
    crew::{Crew, Ticket},
    error::Result,
    frame::{FrameWriter, Kind, RESUMED_VERSION, SUM, VERSION},
    index::Index,
    range::{BlockInfo, Origin, Range, near},
    records::{Begin, Start, Totals},
    watched::Watched,
};
use crate::fs::key::position;

/// The most bytes read ahead and not written yet.
const AHEAD: u64 = 32 << 20;
/// The most waiting ranges and blocks.
const MOST_WAITING: usize = 16 << 10;
/// The size of a batch of blocks for one thread, in bytes of data.
const BATCH: u64 = 1 << 20;
/// The most blocks of a batch.
const MOST_IN_BATCH: usize = 1024;
/// The size of a write, in bytes.
const WINDOW: usize = 1 << 20;

/// Keeps snapshots from being destroyed until dropped.
pub trait Hold: fmt::Debug + Send + Sync {}

/// A snapshot to send, full or incremental.
#[derive(Debug)]
pub struct Source {
    /// The head of the stream; its base decides where the increment starts.
    pub begin: Begin,
    /// The snapshot's tree.
    pub tree: Arc<Head>,
    /// Where a partial state ends: the tree has the items below. The stream has no END, so its receiver keeps a partial
    /// state too. `None` for a snapshot.
    pub until: Option<Key>,
    /// The holds that keep the snapshot and its base until sent.
    pub held: Option<Box<dyn Hold>>,
}

/// The snapshots that one `fs send` writes. The receiver applies the snapshots in the same order.
#[derive(Debug)]
pub struct Package {
    /// The dataset given to the command.
    pub root: String,
    /// Whether all descendants are sent too.
    pub replicate: bool,
    /// The sender's datasets and snapshots, for the receiver. Omitted if too long.
    pub census: Option<Census>,
    /// The snapshots; at least one.
    pub sources: Vec<Source>,
    /// The name of the snapshot being sent.
    pub watched: Watched,
}

/// The result of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// The length of the whole stream, in bytes.
    pub bytes: u64,
    /// The sums over all streams.
    pub totals: Totals,
}

impl Source {
    /// The first key to send.
    fn from(&self) -> Key {
        self.begin.resumed.unwrap_or(Key::MIN)
    }

    /// Whether all items of a leaf are behind the end of a partial state.
    fn ends_before(&self, place: &Miss) -> bool {
        self.until.is_some_and(|until| place.low >= until)
    }

    /// The record of a leaf, and the blocks that follow.
    fn diff(&self, place: &Miss, leaf: &Leaf) -> (Range, Vec<BlockPointer>) {
        let (from, born_after) = (self.from(), self.begin.born_after());
        let Some(until) = self.until else { return diff(place, leaf, leaf.items(), from, born_after) };
        let is_sent = |item: &&Item| item.key() < until && item.key() != position();
        let items: Vec<Item> = leaf.items().iter().filter(is_sent).cloned().collect();
        diff(&Miss { high: place.high.min(until), ..*place }, leaf, &items, from, born_after)
    }

    fn walker(&self) -> Result<Walker> {
        let (pointer, level) =
            self.tree.clean_root().ok_or_else(|| EngineError::damaged("snapshot", "it has no tree"))?;
        let root = Miss { pointer, level, low: Key::MIN, high: Key::MAX };
        Ok(Walker::new(root, self.from(), self.begin.born_after()))
    }
}

/// Writes `package` to `out`, and releases the hold on each snapshot once sent. `readers` threads read ahead (0: the
/// caller reads). `progress` is called with the number of bytes written so far.
///
/// # Errors
/// If a block cannot be read or `out` cannot be written; then `out` has an incomplete stream, refused by every
/// receiver.
pub fn send(package: Package, out: &mut dyn Write, readers: usize, progress: &mut dyn FnMut(u64)) -> Result<Sent> {
    assert!(!package.sources.is_empty());
    let is_whole = package.sources.iter().all(|source| source.until.is_none());
    let is_resumed = package.sources.iter().any(|source| source.begin.resumed.is_some());
    let mut sending = Sending {
        frames: FrameWriter::new(out, if is_resumed { RESUMED_VERSION } else { VERSION })?.gathering(WINDOW),
        index: Index::default(),
        crew: Crew::new(readers),
        spares: Arc::default(),
        queue: VecDeque::new(),
        batch: Batch::default(),
        reading: VecDeque::new(),
        come: Vec::new().into_iter(),
        ahead: 0,
        progress,
    };
    let streams = package.sources.len() as u64;
    let start = Start { root: package.root.clone(), replicate: package.replicate, streams, census: None };
    sending.frames.put(Kind::Start, &start.encode())?;
    sending.census(package.census.as_ref())?;
    let mut all = Totals::default();
    for source in package.sources {
        package.watched.set(format!("{}@{}", source.begin.dataset, source.begin.snapshot));
        // A receiver that can be resumed keeps all records before a failure.
        all += sending.stream(&source).inspect_err(|_| drop(sending.frames.flush()))?;
    }
    if is_whole {
        return sending.finish(all);
    }
    sending.frames.flush()?;
    Ok(Sent { bytes: sending.frames.offset(), totals: all })
}

/// Estimates the stream size of `source` in bytes, by walking the changed nodes without reading data.
///
/// # Errors
/// If a node cannot be read.
pub fn estimate(source: &Source) -> Result<u64> {
    let mut walker = source.walker()?;
    let mut bytes = 0;
    while let Some(event) = walker.next(|miss| source.tree.load_node(miss))? {
        if let Event::Enter(place, node) = event
            && let Some(leaf) = node.leaf()
            && !source.ends_before(&place)
        {
            let (range, blocks) = source.diff(&place, leaf);
            let data: u64 = blocks.iter().map(|pointer| u64::from(pointer.stored)).sum();
            bytes += range.encode().len() as u64 + data;
        }
    }
    Ok(bytes)
}

/// Queued output, in order.
enum Waiting {
    Range(Box<Range>),
    /// The next block of the batches.
    Block,
}

/// Blocks for one thread to read.
#[derive(Default)]
struct Batch {
    blocks: Vec<BlockPointer>,
    /// The stored bytes of the blocks.
    bytes: u64,
}

/// Blocks as stored, each with its checksum in the stream.
type Come = Vec<([u8; SUM], Stored)>;

struct Sending<'a> {
    frames: FrameWriter<'a>,
    index: Index,
    crew: Crew,
    spares: Arc<Spares>,
    queue: VecDeque<Waiting>,
    /// The next blocks to read.
    batch: Batch,
    /// The batches being read.
    reading: VecDeque<Ticket<pool::error::Result<Come>>>,
    /// The rest of the batch being written.
    come: std::vec::IntoIter<([u8; SUM], Stored)>,
    /// The bytes of the blocks and ranges in the queue.
    ahead: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Sending<'_> {
    /// Writes the census unless too long: a receiver can do without a census.
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
                Some(_) if source.ends_before(&place) => break,
                Some(leaf) => {
                    let (range, blocks) = source.diff(&place, leaf);
                    totals += Totals::of(&range);
                    // An incremental stream may have ranges without any blocks.
                    self.ahead += range.weight() as u64;
                    self.queue.push_back(Waiting::Range(Box::new(range)));
                    self.read_ahead(&source.tree, blocks)?;
                }
                None => self.load_ahead(&source.tree, &place, &node, born_after),
            }
        }
        self.ask_rest(&source.tree);
        self.drain(0)?;
        if source.until.is_none() {
            self.frames.put(Kind::End, &totals.encode())?;
        }
        Ok(totals)
    }

    /// Starts reading blocks, in the order of writing.
    fn read_ahead(&mut self, tree: &Arc<Head>, blocks: Vec<BlockPointer>) -> Result<()> {
        for pointer in blocks {
            self.queue.push_back(Waiting::Block);
            self.ahead += u64::from(pointer.stored);
            self.batch.bytes += u64::from(pointer.stored);
            self.batch.blocks.push(pointer);
            if self.batch.bytes >= BATCH || self.batch.blocks.len() >= MOST_IN_BATCH {
                self.ask(tree);
                self.drain(AHEAD)?;
            }
        }
        // Many ranges may have few blocks together.
        if self.ahead > AHEAD + 2 * BATCH || self.queue.len() > MOST_WAITING + MOST_IN_BATCH {
            self.ask(tree);
            self.drain(AHEAD)?;
        }
        Ok(())
    }

    /// Lets all threads of the crew read the last blocks, perhaps few and far apart.
    fn ask_rest(&mut self, tree: &Arc<Head>) {
        let Batch { blocks, .. } = std::mem::take(&mut self.batch);
        for part in blocks.chunks(blocks.len().div_ceil(self.crew.size().max(1)).max(1)) {
            self.batch.blocks = part.to_vec();
            self.ask(tree);
        }
    }

    /// Lets the crew read the next blocks.
    fn ask(&mut self, tree: &Arc<Head>) {
        let Batch { blocks, .. } = std::mem::take(&mut self.batch);
        if blocks.is_empty() {
            return;
        }
        let (tree, spares) = (tree.clone(), self.spares.clone());
        self.reading.push_back(self.crew.ask(move || read(&tree, &blocks, &spares)));
    }

    /// Loads the leaves under a node into the cache, ahead of the walk.
    fn load_ahead(&self, tree: &Arc<Head>, place: &Miss, node: &Node, born_after: Txg) {
        let Some(interior) = node.interior().filter(|interior| interior.level == 1) else { return };
        // The walk needs the first leaf at once.
        for (index, child) in interior.children.iter().enumerate().skip(1) {
            let Some(pointer) = child.slot.pointer().copied().filter(|pointer| pointer.birth > born_after) else {
                continue;
            };
            let miss = Miss { pointer, level: 0, low: child.low, high: interior.high(index, place.high) };
            let tree = tree.clone();
            // The walk reports any failure.
            drop(self.crew.ask(move || tree.load_node(&miss).is_ok()));
        }
    }

    /// Writes until at most `ahead` bytes wait. To be called after [`Sending::ask`].
    fn drain(&mut self, ahead: u64) -> Result<()> {
        while self.ahead > ahead || ahead == 0 || self.queue.len() > MOST_WAITING {
            match self.queue.pop_front() {
                Some(Waiting::Range(range)) => {
                    self.ahead -= range.weight() as u64;
                    self.index.range(self.frames.offset(), range.low, self.frames.chain());
                    self.frames.put(Kind::Range, &range.encode())?;
                }
                Some(Waiting::Block) => {
                    let (checksum, data) = self.next_block()?;
                    self.ahead -= data.len() as u64;
                    self.frames.put_block(&checksum, data)?;
                }
                None => break,
            }
            (self.progress)(self.frames.offset());
        }
        Ok(())
    }

    fn next_block(&mut self) -> Result<([u8; SUM], Stored)> {
        loop {
            if let Some(block) = self.come.next() {
                return Ok(block);
            }
            let batch = self.reading.pop_front().expect("the blocks in the queue were asked for");
            self.come = batch.redeem()?.into_iter();
        }
    }

    fn finish(mut self, totals: Totals) -> Result<Sent> {
        let bytes = finish(&mut self.frames, &self.index)?;
        (self.progress)(bytes);
        Ok(Sent { bytes, totals })
    }
}

/// Reads blocks as stored. A block's checksum in the stream is its own, verified by the read, or a new BLAKE3.
fn read(tree: &Head, blocks: &[BlockPointer], spares: &Spares) -> pool::error::Result<Come> {
    let with_checksum = |(data, pointer): (Stored, &BlockPointer)| match pointer.checksum_kind {
        Checksum::Off => (blake3::hash(&data).into(), data),
        _ => (pointer.checksum, data),
    };
    Ok(tree.read_all_stored(blocks, spares)?.into_iter().zip(blocks).map(with_checksum).collect())
}

/// The record of a leaf's items from a key on, and the blocks that follow.
///
/// A reference with items on both sides of the key is sent as a block of its own, like one with items in two leaves.
fn diff(place: &Miss, leaf: &Leaf, items: &[Item], from: Key, born_after: Txg) -> (Range, Vec<BlockPointer>) {
    let items = &items[items.partition_point(|item| item.key() < from)..];
    let pointers: Vec<Option<BlockPointer>> = items.iter().map(|item| leaf.pointer(item)).collect();
    let is_unchanged = |pointer: &BlockPointer| pointer.logical_birth <= born_after;
    // Items that share a block belong to one reference; the receiver treats other references as other blocks.
    let mut unchanged: HashMap<Reference, usize> = HashMap::new();
    for (index, (item, pointer)) in items.iter().zip(&pointers).enumerate() {
        if let Some(pointer) = pointer.filter(is_unchanged) {
            unchanged.entry(pointer.reference(item.key())).or_insert(index);
        }
    }
    let mut range = Range::new(place.low.max(from), place.high);
    let mut blocks: Vec<BlockPointer> = Vec::new();
    let mut sent: HashMap<Reference, (u32, Key)> = HashMap::new();
    for (item, pointer) in items.iter().zip(&pointers) {
        let key = item.key();
        let origin = match pointer {
            None => Origin::None,
            Some(pointer) if is_unchanged(pointer) => Origin::Unchanged,
            Some(pointer) => {
                let reference = pointer.reference(key);
                let base = unchanged.get(&reference).filter(|index| near(items[**index].key(), key, pointer.logical));
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
