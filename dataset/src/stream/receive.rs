//! Receiving: a stream becomes a snapshot, or nothing does.
//!
//! Below stands [`apply`](super::apply), which replaces ranges of a tree, and above whoever knows datasets
//! ([`Landing`]): it opens a hidden tree at the stream's base, and makes it visible at the end. What each instant of
//! failure leaves:
//!
//! * In the middle, whether the stream is cut or damaged, the disk is full or the process dies: a hidden tree, which the
//!   landing destroys, or the next import does.
//! * After the end of a stream: nothing else than in the middle, until the record after it was verified too, which is the
//!   head of the next stream or the last record of all. So a file that is cut or damaged anywhere, its index included,
//!   leaves nothing of its last stream.
//! * In a package, streams that were made visible before stay. So do whole packages, where an input has several: what is
//!   wrong with a later one takes nothing back.
//!
//! Data are verified on several threads while this one reads on and applies in order; how far it reads ahead is bounded.

use std::{
    io::{self, Read},
    ops,
    sync::Arc,
};

use pool::txg::Head;

use super::{
    apply::{Arrived, Failure, Part, apply},
    crew::Crew,
    error::{Error, Result},
    parser::{Event, Parser},
    records::{Begin, Start, Totals},
    steps::{Coming, Step, Steps},
};

/// How many bytes may be read ahead of being applied.
const AHEAD: usize = 16 << 20;

/// Where streams land: what receiving needs of those who know datasets.
pub trait Landing {
    /// Why a stream cannot land; errors of the stream itself are among them.
    type Error: From<Error>;

    /// A package begins: nothing that earlier ones said of themselves holds any more.
    fn package(&mut self);

    /// A stream begins: looks whether it fits, and opens a hidden tree for it: an empty one for a full stream, for an
    /// increment one that starts as the base's. `None` passes over a stream that is not needed; it is verified all the
    /// same.
    ///
    /// # Errors
    /// If it does not fit what is there.
    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<Option<Ground>, Self::Error>;

    /// The stream that began last is whole and verified, and all of its `bytes` are in the tree: makes it visible, in one
    /// transaction group, and returns when that is committed.
    ///
    /// # Errors
    /// If it cannot be committed, or no longer fits.
    fn finish(&mut self, begin: &Begin, bytes: u64) -> Result<(), Self::Error>;

    /// Nothing comes of the stream that began last: drops its tree.
    fn abandon(&mut self);
}

/// The hidden tree that a stream fills.
pub struct Ground {
    /// The tree.
    pub head: Arc<Head>,
    /// How many copies blocks are to have, 1 to 3.
    pub copies: u8,
}

/// What was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The length of everything, in bytes.
    pub bytes: u64,
    /// How many streams became snapshots.
    pub streams: u64,
    /// What all streams hold together, those passed over too.
    pub totals: Totals,
}

/// Receives all packages of `input`, one after the other to its end, into `landing`, with `verifiers` threads that verify
/// ahead (none: everything on this one). `progress` is told now and then how many bytes were read.
///
/// # Errors
/// If anything is wrong with a stream, does not fit what is there, or cannot be stored; then nothing of the stream in
/// question is visible. And if something else than a stream stands behind one.
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

/// The byte at `offset`, unless the input ends there.
fn next_byte(input: &mut dyn Read, offset: u64) -> Result<Option<[u8; 1]>> {
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
    /// The stream that has begun and is not visible yet.
    open: Option<Open>,
    received: Received,
}

/// A stream on its way in.
struct Open {
    begin: Begin,
    /// Where it goes; nowhere if it is passed over.
    ground: Option<Ground>,
    steps: Steps,
    totals: Totals,
    /// Where in the input it starts and ends.
    place: ops::Range<u64>,
}

impl<L: Landing> Receiving<'_, L> {
    /// Receives a package that begins where the ones before it end.
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
                Event::Range(place, range) => self.open().steps.range(place, range),
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
        self.open = Some(Open { begin, ground, steps: Steps::default(), totals: Totals::default(), place: at..at });
        Ok(())
    }

    /// Makes the stream visible that has ended, if there is one.
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
        if self.open.take().is_some_and(|open| open.ground.is_some()) {
            self.landing.abandon();
        }
    }
}

impl Open {
    /// Applies steps until at most `ahead` bytes wait.
    fn drain(&mut self, ahead: usize) -> Result<()> {
        while let Some(step) = self.steps.next(ahead) {
            self.apply(step)?;
        }
        Ok(())
    }

    fn apply(&self, step: Step) -> Result<()> {
        let Step { place, range, blocks, came, items, low, high, bytes } = step;
        let mut blocks = blocks.borrow_mut();
        for Coming { number, info, checksum, ticket } in came {
            let bytes = ticket.redeem()?;
            if let Some(ground) = &self.ground {
                blocks[number] = Some(Arrived::new(info, checksum, ground.copies, bytes));
            }
        }
        let Some(ground) = &self.ground else { return Ok(()) };
        ground.head.admit(bytes as u64)?;
        let part = Part { range: &range, items, low, high, blocks: &mut blocks };
        apply(&ground.head, part).map_err(|failure| match failure {
            Failure::Engine(error) => Error::Engine(error),
            Failure::MissingBlock(key) => Error::MissingBlock { offset: place.offset, record: place.record, key },
            Failure::Miss(_) => unreachable!("a head never returns a miss"),
        })
    }
}
