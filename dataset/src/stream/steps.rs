//! Cutting what comes in into steps of bounded size, each of which can be applied by itself.
//!
//! A range with its blocks may be gigabytes, and a transaction group should not: so a range is applied in parts, each
//! as soon as the blocks of its items have come. Blocks are numbered in the order of their first items, so a part ends
//! before the first item of the block that comes next.

use std::{cell::RefCell, collections::VecDeque, ops, rc::Rc, sync::Arc};

use pool::format::key::Key;

use super::{
    apply::Arrived,
    crew::{Crew, Ticket},
    error::Result,
    frame::{Place, SUM},
    parser::Data,
    range::{BlockInfo, Origin, Range},
};

/// About how many bytes of blocks make a step.
const STEP: usize = 4 << 20;

/// A block that is being verified.
pub(super) struct Coming {
    /// Its number in the range.
    pub(super) number: usize,
    pub(super) info: BlockInfo,
    pub(super) checksum: [u8; SUM],
    pub(super) ticket: Ticket<Result<Arc<Vec<u8>>>>,
}

/// The new blocks of a range, as far as they came: all its steps share them.
type Blocks = Rc<RefCell<Vec<Option<Arrived>>>>;

/// A part of a range that can be applied once its blocks are verified.
pub(super) struct Step {
    /// Where the range's record stands.
    pub(super) place: Place,
    pub(super) range: Rc<Range>,
    pub(super) blocks: Blocks,
    /// The blocks that came for this step.
    pub(super) came: Vec<Coming>,
    pub(super) items: ops::Range<usize>,
    pub(super) low: Key,
    pub(super) high: Key,
    pub(super) bytes: usize,
}

/// A range whose blocks are still coming.
struct Filling {
    place: Place,
    range: Rc<Range>,
    blocks: Blocks,
    /// How many blocks came.
    count: usize,
    /// Those that no step has taken yet, and their bytes.
    came: Vec<Coming>,
    bytes: usize,
    /// The first item and key that no step covers yet.
    next: usize,
    low: Key,
}

/// The steps of one stream, in order.
#[derive(Default)]
pub(super) struct Steps {
    filling: Option<Filling>,
    queue: VecDeque<Step>,
    /// The bytes in the queue.
    ahead: usize,
}

impl Steps {
    /// A range has come. All blocks of the range before have.
    pub(super) fn range(&mut self, place: Place, range: Range) {
        assert!(self.filling.is_none());
        let blocks = Rc::new(RefCell::new(vec![None; range.blocks.len()]));
        let (low, bytes) = (range.low, range.weight());
        self.filling =
            Some(Filling { place, range: Rc::new(range), blocks, count: 0, came: Vec::new(), bytes, next: 0, low });
        self.cut();
    }

    /// A block has come; the crew verifies it.
    pub(super) fn block(&mut self, data: Data, crew: &Crew) {
        let filling = self.filling.as_mut().expect("the grammar has blocks only after their range");
        let (info, checksum) = (data.info, data.checksum);
        filling.bytes += data.bytes.len();
        let ticket = crew.ask(move || data.verified());
        filling.came.push(Coming { number: filling.count, info, checksum, ticket });
        filling.count += 1;
        self.cut();
    }

    /// The next step, if more than `ahead` bytes wait.
    pub(super) fn next(&mut self, ahead: usize) -> Option<Step> {
        if self.ahead <= ahead && ahead > 0 {
            return None;
        }
        let step = self.queue.pop_front()?;
        self.ahead -= step.bytes;
        Some(step)
    }

    /// Queues a step if enough has come for one.
    fn cut(&mut self) {
        let Some(mut filling) = self.filling.take() else { return };
        let whole = filling.count == filling.range.blocks.len();
        if whole || filling.bytes >= STEP {
            let step = filling.cut();
            self.ahead += step.bytes;
            self.queue.push_back(step);
        }
        if !whole {
            self.filling = Some(filling);
        }
    }
}

impl Filling {
    fn cut(&mut self) -> Step {
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
