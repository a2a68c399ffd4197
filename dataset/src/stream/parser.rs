//! The grammar of a stream: the allowed order and content of records.
//!
//! ```text
//! package  = START CENSUS* stream* FINISH INDEX+ TRAILER
//! stream   = BEGIN (RANGE BLOCK*)* END
//! ```
//!
//! The parser returns events only in this order, with bounds and counts verified. The caller verifies the data of
//! blocks ([`Data::verified`]), so that several threads can share the work.

use std::{collections::VecDeque, io::Read, sync::Arc};

use pool::format::key::Key;

use crate::fs::key::position;

use super::{
    census::MOST_RECORDS,
    error::Result,
    frame::{Chain, Frame, FrameReader, Kind, Place, RESUMED_VERSION, SUM},
    index::{Index, Trailer},
    range::{BlockInfo, Range},
    records::{Begin, Start, Totals},
};

/// The next part of a package.
#[derive(Debug)]
pub(super) enum Event {
    /// A stream begins at this place of the input.
    Begin(Place, Begin),
    /// The items of a range.
    Range(Place, Range),
    /// The next block of the last range.
    Block(Data),
    /// The stream is complete, and has the given size.
    End(Totals),
    /// The package is complete, including the index.
    Finish,
}

/// A block as received.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) place: Place,
    pub(super) info: BlockInfo,
    /// The checksum of the bytes as stored; BLAKE3 if the block is to be stored without a checksum.
    pub(super) checksum: [u8; SUM],
    pub(super) bytes: Arc<Vec<u8>>,
}

impl Data {
    /// The block, if its checksum and decompressed size are right.
    pub(super) fn verified(self) -> Result<Data> {
        self.info.verified(&self.bytes, &self.checksum).map_err(|problem| self.place.damaged(problem))?;
        Ok(self)
    }
}

enum State {
    /// Streams or the end of the package follow.
    Between,
    /// Ranges or the end of the stream follow.
    Inside {
        incremental: bool,
        /// The end of the last range.
        reached: Key,
        /// The blocks that must follow.
        expected: VecDeque<BlockInfo>,
        totals: Totals,
    },
    Finished,
}

/// Parses a package into events, without looking at datasets.
pub(super) struct Parser<'a> {
    frames: FrameReader<'a>,
    start: Start,
    begun: u64,
    /// The number of census records so far.
    counted: usize,
    index: Index,
    /// The start of the package in the input: offsets in the index count from there.
    base: u64,
    state: State,
}

impl<'a> Parser<'a> {
    /// Reads up to the start record of the package at `base` of an input.
    pub(super) fn new(input: &'a mut dyn Read, base: u64) -> Result<Parser<'a>> {
        let mut frames = FrameReader::new(input, base)?;
        let frame = frames.next()?;
        if frame.kind != Kind::Start {
            return Err(frame.place.damaged("it stands where a package starts"));
        }
        let start = Start::decode(&frame.payload).map_err(frame.place.malformed())?;
        Ok(Parser { frames, start, begun: 0, counted: 0, index: Index::default(), base, state: State::Between })
    }

    /// The start record of the package.
    pub(super) fn start(&self) -> &Start {
        &self.start
    }

    /// The number of bytes of the input read so far.
    pub(super) fn offset(&self) -> u64 {
        self.frames.offset()
    }

    /// The chain after the records read so far.
    pub(super) fn chain(&self) -> Chain {
        self.frames.chain()
    }

    /// Within a stream, the end of the last range and the totals so far, if all blocks of the ranges were read.
    pub(super) fn boundary(&self) -> Option<(Key, Totals)> {
        match &self.state {
            State::Inside { reached, expected, totals, .. } if expected.is_empty() => Some((*reached, *totals)),
            _ => None,
        }
    }

    /// The index of the records before `offset`.
    pub(super) fn into_index_before(self, offset: u64) -> Index {
        self.index.before(offset - self.base)
    }

    /// The next event. [`Event::Finish`] is the last.
    pub(super) fn next(&mut self) -> Result<Event> {
        assert!(!matches!(self.state, State::Finished), "a package ends once");
        let frame = self.past_census()?;
        let place = frame.place;
        match (frame.kind, &mut self.state) {
            (Kind::Begin, State::Between) if self.begun < self.start.streams => self.begin(&frame),
            (Kind::Finish, State::Between) if self.begun == self.start.streams => self.finish(&frame),
            (Kind::Block, State::Inside { expected, .. }) => {
                let info = expected.pop_front().ok_or_else(|| place.damaged("it is a block of no range"))?;
                block(frame, info).map(Event::Block)
            }
            (Kind::Range, State::Inside { expected, .. }) if expected.is_empty() => self.range(&frame),
            (Kind::End, State::Inside { expected, totals, .. }) if expected.is_empty() => {
                let totals = *totals;
                if Totals::decode(&frame.payload).map_err(place.malformed())? != totals {
                    return Err(place.damaged("the stream does not hold what its end says"));
                }
                self.state = State::Between;
                Ok(Event::End(totals))
            }
            (kind, _) => Err(place.damaged(format!("a record of kind {kind:?} must not stand here"))),
        }
    }

    /// The next record after the census, which precedes the first stream.
    fn past_census(&mut self) -> Result<Frame> {
        loop {
            let frame = self.frames.next()?;
            if frame.kind != Kind::Census || self.begun > 0 || self.counted == MOST_RECORDS {
                return Ok(frame);
            }
            self.counted += 1;
            let census = self.start.census.get_or_insert_default();
            census.extend(&frame.payload).map_err(frame.place.malformed())?;
        }
    }

    fn begin(&mut self, frame: &Frame) -> Result<Event> {
        let begin = Begin::decode(&frame.payload).map_err(frame.place.malformed())?;
        if begin.resumed.is_some() && self.frames.version() < RESUMED_VERSION {
            return Err(frame.place.damaged("a stream of this version starts at its first key"));
        }
        self.begun += 1;
        self.index.begin(frame.place.offset - self.base, frame.before);
        self.state = State::Inside {
            incremental: begin.base.is_some(),
            reached: begin.resumed.unwrap_or(Key::MIN),
            expected: VecDeque::new(),
            totals: Totals::default(),
        };
        Ok(Event::Begin(frame.place, begin))
    }

    fn range(&mut self, frame: &Frame) -> Result<Event> {
        let State::Inside { incremental, reached, expected, totals } = &mut self.state else {
            unreachable!("the caller has looked")
        };
        let range = Range::decode(&frame.payload, *incremental).map_err(frame.place.malformed())?;
        if range.items.binary_search_by_key(&position(), |item| item.key).is_ok() {
            return Err(frame.place.damaged("it has an item that only an unfinished receive has"));
        }
        if range.low < *reached {
            return Err(frame.place.damaged("its range starts before the end of the range before"));
        }
        *reached = range.high;
        *totals += Totals::of(&range);
        expected.extend(&range.blocks);
        self.index.range(frame.place.offset - self.base, range.low, frame.before);
        Ok(Event::Range(frame.place, range))
    }

    fn finish(&mut self, frame: &Frame) -> Result<Event> {
        if !frame.payload.is_empty() {
            return Err(frame.place.damaged("the end of a package must be empty"));
        }
        let at = self.frames.offset() - self.base;
        let mut index = Index::default();
        let mut first = None;
        loop {
            let frame = self.frames.next()?;
            match frame.kind {
                // No more entries than expected: memory stays bounded.
                Kind::Index if first.is_none() || index.len() < self.index.len() => {
                    index.extend(&frame.payload).map_err(frame.place.malformed())?;
                    first.get_or_insert(frame.before);
                }
                Kind::Trailer => {
                    let trailer = Trailer::decode(&frame.payload).map_err(frame.place.malformed())?;
                    if index != self.index || first != Some(trailer.before) || trailer.index != at {
                        return Err(frame.place.damaged("the index does not fit the stream"));
                    }
                    self.state = State::Finished;
                    return Ok(Event::Finish);
                }
                _ => return Err(frame.place.damaged("it stands where the index ends")),
            }
        }
    }
}

fn block(frame: Frame, info: BlockInfo) -> Result<Data> {
    let Frame { place, payload, data: bytes, .. } = frame;
    if bytes.len() != info.stored as usize {
        return Err(place.damaged("the block has not the size that its range says"));
    }
    let checksum = payload.try_into().expect("a frame splits a block after its checksum");
    Ok(Data { place, info, checksum, bytes })
}
