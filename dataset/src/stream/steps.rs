//! Cuts the input into steps of bounded size, each applied by itself.
//!
//! A range with its blocks may take gigabytes, too much for one txg. So a range is applied in parts, each as soon as
//! the blocks of its items have been read. Blocks are numbered in the order of their first items, so a part ends before
//! the first item of the next block.

use std::{
    cell::RefCell,
    collections::{HashSet, VecDeque},
    ops,
    rc::Rc,
};

use pool::format::key::Key;

use super::{
    apply::Arrived,
    crew::{Crew, Ticket},
    error::Result,
    frame::Place,
    parser::Data,
    range::{Origin, Range},
};

/// The approximate size of a step, in bytes of blocks.
const STEP: usize = 4 << 20;
/// The size of a batch of blocks for one thread to verify, in bytes.
const BATCH: usize = 512 << 10;
/// The most steps that wait: a range may be empty.
const MOST_STEPS: usize = 4096;

/// A batch of blocks being verified.
pub(super) struct Coming {
    /// The number of the first block in the range; the others follow.
    pub(super) first: usize,
    pub(super) ticket: Ticket<Result<Vec<Data>>>,
}

/// The new blocks of a range read so far, shared by all steps of the range.
type Blocks = Rc<RefCell<Vec<Option<Arrived>>>>;

/// A part of a range, ready to be applied once its blocks are verified.
pub(super) struct Step {
    /// The place of the range's record.
    pub(super) place: Place,
    pub(super) range: Rc<Range>,
    pub(super) blocks: Blocks,
    /// The blocks read for this step.
    pub(super) came: Vec<Coming>,
    pub(super) items: ops::Range<usize>,
    pub(super) low: Key,
    pub(super) high: Key,
    pub(super) bytes: usize,
}

impl Step {
    /// Leaves out the items below a key, which the tree has already, and the blocks that no further item needs.
    pub(super) fn begin_at(&mut self, key: Key, blocks: &mut [Option<Arrived>]) {
        let items = &self.range.items;
        let first = items.partition_point(|item| item.key < key);
        let needed: HashSet<u32> = items[first..].iter().filter_map(|item| item.origin.new_block()).collect();
        for (number, block) in (0..).zip(blocks) {
            if !needed.contains(&number) {
                *block = None;
            }
        }
        self.items = first.clamp(self.items.start, self.items.end)..self.items.end;
        self.low = self.low.max(key);
    }
}

/// A range with blocks still to be read.
struct Arriving {
    place: Place,
    range: Rc<Range>,
    blocks: Blocks,
    /// The number of blocks read.
    count: usize,
    /// The last blocks read, which no thread verifies yet, and their bytes.
    batch: Vec<Data>,
    batch_bytes: usize,
    /// The blocks being verified and not in a step yet.
    came: Vec<Coming>,
    /// The bytes of the blocks not in a step yet, those of the batch included.
    bytes: usize,
    /// The first item and key not in a step yet.
    next: usize,
    low: Key,
}

/// The steps of one stream, in order.
#[derive(Default)]
pub(super) struct Steps {
    arriving: Option<Arriving>,
    queue: VecDeque<Step>,
    /// The bytes in the queue.
    ahead: usize,
}

impl Steps {
    /// Begins a range. All blocks of the previous range have been read.
    pub(super) fn range(&mut self, place: Place, range: Range, crew: &Crew) {
        assert!(self.arriving.is_none());
        let blocks = Rc::new(RefCell::new(vec![None; range.blocks.len()]));
        let (low, bytes) = (range.low, range.weight());
        self.arriving = Some(Arriving {
            place,
            range: Rc::new(range),
            blocks,
            count: 0,
            batch: Vec::new(),
            batch_bytes: 0,
            came: Vec::new(),
            bytes,
            next: 0,
            low,
        });
        self.cut(crew);
    }

    /// Takes the next block, and lets the crew verify the data.
    pub(super) fn block(&mut self, data: Data, crew: &Crew) {
        let arriving = self.arriving.as_mut().expect("the grammar has blocks only after their range");
        arriving.bytes += data.bytes.len();
        arriving.batch_bytes += data.bytes.len();
        arriving.count += 1;
        arriving.batch.push(data);
        if arriving.batch_bytes >= BATCH {
            arriving.verify(crew);
        }
        self.cut(crew);
    }

    /// The next step, if more than `ahead` bytes wait.
    pub(super) fn next(&mut self, ahead: usize) -> Option<Step> {
        if self.ahead <= ahead && ahead > 0 && self.queue.len() <= MOST_STEPS {
            return None;
        }
        let step = self.queue.pop_front()?;
        self.ahead -= step.bytes;
        Some(step)
    }

    /// Queues the items of the last range whose blocks have been read: the input has ended.
    pub(super) fn give_up(&mut self, crew: &Crew) {
        let Some(mut arriving) = self.arriving.take() else { return };
        let step = arriving.cut(crew);
        self.ahead += step.bytes;
        self.queue.push_back(step);
    }

    /// Queues a step, if enough blocks have been read.
    fn cut(&mut self, crew: &Crew) {
        let Some(mut arriving) = self.arriving.take() else { return };
        let whole = arriving.count == arriving.range.blocks.len();
        if whole || arriving.bytes >= STEP {
            let step = arriving.cut(crew);
            self.ahead += step.bytes;
            self.queue.push_back(step);
        }
        if !whole {
            self.arriving = Some(arriving);
        }
    }
}

impl Arriving {
    /// Lets a thread verify the last blocks.
    fn verify(&mut self, crew: &Crew) {
        let batch = std::mem::take(&mut self.batch);
        self.batch_bytes = 0;
        if !batch.is_empty() {
            let first = self.count - batch.len();
            let ticket = crew.ask(move || batch.into_iter().map(Data::verified).collect());
            self.came.push(Coming { first, ticket });
        }
    }

    fn cut(&mut self, crew: &Crew) -> Step {
        self.verify(crew);
        let items = &self.range.items;
        let waits = |origin: Origin| matches!(origin, Origin::New(block) if block as usize >= self.count);
        let len = items[self.next..].iter().position(|item| waits(item.origin));
        let end = len.map_or(items.len(), |len| self.next + len);
        let high = items.get(end).map_or(self.range.high, |item| item.key);
        let step = Step {
            place: self.place,
            range: self.range.clone(),
            blocks: self.blocks.clone(),
            came: std::mem::take(&mut self.came),
            items: self.next..end,
            low: self.low,
            high,
            bytes: std::mem::take(&mut self.bytes),
        };
        (self.next, self.low) = (end, high);
        step
    }
}
