//! Receiving: a stream becomes a snapshot, or leaves nothing.
//!
//! Below is [`apply`](super::apply), which replaces ranges of a tree. Above is the layer that manages datasets, a
//! [`Landing`]: it opens a hidden tree at the stream's base, and makes the tree visible at the end. A failure leaves
//! the following:
//!
//! * In the middle of a stream (cut off, damaged, disk full, or the process dies): a hidden tree, destroyed by the
//!   landing or by the next import.
//! * After the end of a stream: the same as in the middle, until the next record was verified, which is the head of the
//!   next stream or the last record of all. So a file cut off or damaged anywhere, its index included, leaves nothing
//!   of its last stream.
//! * A receive that can be resumed leaves the hidden tree with the position that it has reached. The next stream of the
//!   snapshot, from that position or from the start, fills the rest of the same tree: what the tree has is verified, and
//!   not applied again.
//! * In a package: streams already made visible stay. So do whole packages, if the input has several: a later failure
//!   removes nothing.
//!
//! Data are verified on several threads while the receiving thread reads ahead and applies in order; read-ahead is
//! bounded.

use std::{
    io::{self, Read},
    ops,
    sync::Arc,
};

use pool::txg::Head;

use crate::fs::Options;

use super::{
    apply::{Arrived, Failure, Part, apply},
    crew::Crew,
    error::{Error, Result},
    parser::{Event, Parser},
    position::{Mark, Position},
    records::{Begin, Start, Totals},
    steps::{Coming, Step, Steps},
};

/// The most bytes read ahead and not applied yet.
const AHEAD: usize = 16 << 20;

/// The destination of streams: the operations that a receive needs from the layer that manages datasets.
pub trait Landing {
    /// The reasons why a stream cannot land; the stream's own errors are included.
    type Error: From<Error>;

    /// Begins a package: the start of the previous package no longer applies.
    fn package(&mut self);

    /// Begins a stream: checks that the stream fits, and opens a hidden tree. For a full stream the tree is empty, for
    /// an incremental stream it has the content of the base. `None` skips an unneeded stream, which is verified all the
    /// same.
    ///
    /// # Errors
    /// If the stream does not fit the existing datasets.
    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<Option<Ground>, Self::Error>;

    /// Makes the last stream visible in one txg, and returns after the commit. The stream was verified entirely, and
    /// all of its `bytes` are in the tree.
    ///
    /// # Errors
    /// If the commit fails, or the stream no longer fits.
    fn finish(&mut self, begin: &Begin, bytes: u64) -> Result<(), Self::Error>;

    /// Drops the tree of the last stream, which failed, or keeps the tree to resume the receive.
    fn abandon(&mut self);
}

/// The hidden tree that a stream fills.
pub struct Ground {
    /// The tree that gets the items.
    pub head: Arc<Head>,
    /// The number of copies for blocks, 1 to 3.
    pub copies: u8,
    /// What the properties of the destination say about files.
    pub options: Options,
    /// For a receive that can be resumed, where it stands: the tree has the items below. Each step stores the position.
    pub mark: Option<Mark>,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The length of the input, in bytes.
    pub bytes: u64,
    /// The number of streams that became snapshots.
    pub streams: u64,
    /// The sums over all streams, skipped streams included.
    pub totals: Totals,
}

/// Receives all packages of `input`, up to its end, into `landing`, with `verifiers` threads that verify ahead (0: the
/// caller verifies). `progress` is called with the number of bytes read so far.
///
/// # Errors
/// If a stream is damaged, does not fit the existing datasets, or cannot be stored; the failing stream then leaves
/// nothing visible. Also if a package is followed by anything but a package.
pub fn receive<L: Landing>(
    input: &mut dyn Read,
    landing: &mut L,
    verifiers: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<Received, L::Error> {
    let mut receiving = Receiving { landing, crew: Crew::new(verifiers), open: None, received: Received::default() };
    receiving.package(input, progress)?;
    while let Some(byte) = next_byte(input, receiving.received.bytes)? {
        receiving.package(&mut byte.as_slice().chain(&mut *input), progress)?;
    }
    Ok(receiving.received)
}

/// The byte at `offset`; `None` at the end of the input.
pub(super) fn next_byte(input: &mut dyn Read, offset: u64) -> Result<Option<[u8; 1]>> {
    let mut byte = [0];
    match input.read_exact(&mut byte) {
        Ok(()) => Ok(Some(byte)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(source) => Err(Error::Read { offset, source }),
    }
}

struct Receiving<'a, L> {
    landing: &'a mut L,
    crew: Crew,
    /// The stream begun and not yet visible.
    open: Option<Open>,
    received: Received,
}

/// A stream being received.
struct Open {
    begin: Begin,
    /// The tree; `None` for a skipped stream.
    ground: Option<Ground>,
    steps: Steps,
    totals: Totals,
    /// The position after the last step.
    reached: Position,
    /// A step has failed, so no later step may be applied.
    is_broken: bool,
    /// The stream's first and last byte in the input.
    place: ops::Range<u64>,
}

impl<L: Landing> Receiving<'_, L> {
    /// Receives a package that begins at the end of the previous package.
    fn package(&mut self, input: &mut dyn Read, progress: &mut dyn FnMut(u64)) -> Result<(), L::Error> {
        let mut parser = Parser::new(input, self.received.bytes)?;
        self.landing.package();
        let done = self.run(&mut parser, progress);
        if done.is_err() {
            self.abandon();
        }
        done
    }

    fn run(&mut self, parser: &mut Parser<'_>, progress: &mut dyn FnMut(u64)) -> Result<(), L::Error> {
        loop {
            match parser.next()? {
                Event::Begin(place, begin) => {
                    self.finish()?;
                    self.begin(parser.start(), begin, place.offset)?;
                }
                Event::Range(place, range) => {
                    let open = self.open.as_mut().expect("the grammar has ranges only in streams");
                    open.steps.range(place, range, &self.crew);
                }
                Event::Block(data) => {
                    let open = self.open.as_mut().expect("the grammar has blocks only in streams");
                    open.steps.block(data, &self.crew);
                }
                Event::End(totals) => {
                    self.open().totals = totals;
                    self.open().place.end = parser.offset();
                    self.open().drain(0)?;
                }
                Event::Finish => {
                    self.finish()?;
                    self.received.bytes = parser.offset();
                    progress(self.received.bytes);
                    return Ok(());
                }
            }
            if let Some(open) = &mut self.open {
                open.drain(AHEAD)?;
            }
            progress(parser.offset());
        }
    }

    fn open(&mut self) -> &mut Open {
        self.open.as_mut().expect("the grammar has these records only in streams")
    }

    fn begin(&mut self, start: &Start, begin: Begin, at: u64) -> Result<(), L::Error> {
        let ground = self.landing.begin(start, &begin)?;
        let mark = ground.as_ref().and_then(|ground| ground.mark);
        let reached = mark.map_or(Position::START, |mark| mark.from);
        let (steps, totals) = (Steps::default(), Totals::default());
        self.open = Some(Open { begin, ground, steps, totals, reached, is_broken: false, place: at..at });
        Ok(())
    }

    /// Makes the last stream visible, if it has ended.
    fn finish(&mut self) -> Result<(), L::Error> {
        let Some(open) = &self.open else { return Ok(()) };
        if open.ground.is_some() {
            self.landing.finish(&open.begin, open.place.end - open.place.start)?;
            self.received.streams += 1;
        }
        self.received.totals += open.totals;
        self.open = None;
        Ok(())
    }

    fn abandon(&mut self) {
        if let Some(open) = &mut self.open {
            open.keep(&self.crew);
        }
        if self.open.take().is_some_and(|open| open.ground.is_some()) {
            self.landing.abandon();
        }
    }
}

impl Open {
    /// Applies steps until at most `ahead` bytes wait.
    fn drain(&mut self, ahead: usize) -> Result<()> {
        while let Some(step) = self.steps.next(ahead) {
            self.apply(step).inspect_err(|_| self.is_broken = true)?;
        }
        Ok(())
    }

    /// Applies all complete steps of a stream that failed, if its receive can be resumed.
    fn keep(&mut self, crew: &Crew) {
        if !self.is_broken && self.ground.as_ref().is_some_and(|ground| ground.mark.is_some()) {
            self.steps.give_up(crew);
            if let Err(error) = self.drain(0) {
                tracing::debug!("the last part of a broken-off stream is not kept: {error}");
            }
        }
    }

    fn apply(&mut self, mut step: Step) -> Result<()> {
        let blocks = step.blocks.clone();
        let mut blocks = blocks.borrow_mut();
        for Coming { first, ticket } in std::mem::take(&mut step.came) {
            let verified = ticket.redeem()?;
            let Some(ground) = &self.ground else { continue };
            for (number, data) in (first..).zip(verified) {
                blocks[number] = Some(Arrived::new(data, ground.copies));
            }
        }
        let Some(ground) = &self.ground else { return Ok(()) };
        let done = self.reached.key;
        if step.low < done {
            step.begin_at(done, &mut blocks);
        }
        if step.high <= done {
            return Ok(());
        }
        let Step { place, range, items, low, high, bytes, .. } = step;
        ground.head.admit(bytes as u64)?;
        let reached = Position { key: high, bytes: self.reached.bytes.saturating_add(bytes as u64) };
        let position = ground.mark.map(|mark| (reached, mark.guid));
        let part = Part { range: &range, items, low, high, blocks: &mut blocks, position };
        apply(&ground.head, part).map_err(|failure| match failure {
            Failure::Engine(error) => Error::Engine(error),
            Failure::MissingBlock(key) => Error::MissingBlock { offset: place.offset, record: place.record, key },
            Failure::Miss(_) => unreachable!("a head never returns a miss"),
        })?;
        self.reached = reached;
        Ok(())
    }
}
