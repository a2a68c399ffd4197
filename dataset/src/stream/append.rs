//! Continuing a stream file that was cut off.
//!
//! The complete records are verified, and the file is kept up to the last range with all of its blocks. The rest comes
//! as a resumed stream, and gets the chain, the index and the totals of the file. So the file becomes what it would
//! have become without the cut; from the same pool, to the byte.

use std::io::{Read, Write};

use pool::format::key::Key;

use super::{
    error::{Error, Result},
    frame::{Chain, FrameWriter, Kind},
    index::{Index, Trailer},
    parser::{Event, Parser},
    position::Position,
    records::{Begin, Totals},
    send::Sent,
    token::Token,
};
use crate::name::SnapshotName;

/// The part of a stream file that is kept, and what follows in the file.
#[derive(Debug)]
pub struct Cut {
    /// The head of the stream.
    pub begin: Begin,
    /// The damage after the kept part; `None` if the file merely ends.
    pub damage: Option<Error>,
    /// The length of the part that is kept, in bytes.
    pub len: u64,
    /// The key at which the rest starts.
    from: Key,
    totals: Totals,
    chain: Chain,
    index: Index,
}

/// What a stream file needs.
#[derive(Debug)]
pub enum Examined {
    /// Nothing: the file is complete.
    Complete,
    /// The rest of its stream.
    Cut(Box<Cut>),
    /// To be sent again: no head of a stream was found, or the package has this number of streams.
    Unusable {
        /// The number of streams in the package.
        streams: u64,
    },
}

/// Verifies a stream file up to its end, the cut, or the first damage.
///
/// # Errors
/// If the input is no stream, or cannot be read.
pub fn examine(input: &mut dyn Read) -> Result<Examined> {
    let mut parser = Parser::new(input, 0)?;
    let streams = parser.start().streams;
    let mut kept: Option<Cut> = None;
    let ended = loop {
        let verified = match parser.next() {
            Ok(Event::Begin(_, begin)) => {
                kept = (streams == 1).then(|| Cut::after(begin, &parser));
                Ok(())
            }
            Ok(Event::Finish) => return Ok(Examined::Complete),
            Ok(Event::Block(data)) => data.verified().map(drop),
            Ok(Event::Range(..) | Event::End(_)) => Ok(()),
            Err(error) => Err(error),
        };
        match verified {
            Ok(()) => kept.iter_mut().for_each(|cut| cut.move_on(&parser)),
            Err(error) => break error,
        }
    };
    match (ended, kept) {
        (ended @ (Error::Truncated { .. } | Error::Damaged { .. }), Some(cut)) => {
            let damage = Some(ended).filter(|ended| matches!(ended, Error::Damaged { .. }));
            Ok(Examined::Cut(Box::new(Cut { index: parser.into_index_before(cut.len), damage, ..cut })))
        }
        (Error::Truncated { .. } | Error::Damaged { .. }, None) => Ok(Examined::Unusable { streams }),
        (error, _) => Err(error),
    }
}

impl Cut {
    fn after(begin: Begin, parser: &Parser<'_>) -> Cut {
        let from = begin.resumed.unwrap_or(Key::MIN);
        let (totals, index) = (Totals::default(), Index::default());
        Cut { begin, damage: None, len: parser.offset(), from, totals, chain: parser.chain(), index }
    }

    /// Keeps what has been read, if all blocks of its ranges are there.
    fn move_on(&mut self, parser: &Parser<'_>) {
        if let Some((from, totals)) = parser.boundary() {
            (self.from, self.totals) = (from, totals);
            (self.len, self.chain) = (parser.offset(), parser.chain());
        }
    }

    /// The token of the rest, which the given snapshot has.
    pub fn token(&self, snapshot: SnapshotName) -> Token {
        let Begin { guid, ref base, .. } = self.begin;
        let position = Position { key: self.from, bytes: self.len };
        Token { snapshot, guid, base: base.as_ref().map(|base| base.guid), properties: false, backup: false, position }
    }

    /// Writes the rest of the file to `out`, which appends to the kept part: the ranges of the resumed stream `rest`,
    /// and the end.
    ///
    /// # Errors
    /// If `rest` is damaged or another stream, or `out` cannot be written.
    pub fn complete(mut self, rest: &mut dyn Read, out: &mut dyn Write) -> Result<Sent> {
        let mut frames = FrameWriter::after(out, self.len, self.chain);
        self.copy(rest, &mut frames)?;
        frames.put(Kind::End, &self.totals.encode())?;
        let bytes = finish(&mut frames, &self.index)?;
        Ok(Sent { bytes, totals: self.totals })
    }

    /// Copies the ranges and blocks of a resumed stream.
    fn copy(&mut self, rest: &mut dyn Read, frames: &mut FrameWriter<'_>) -> Result<()> {
        let mut parser = Parser::new(rest, 0)?;
        loop {
            match parser.next()? {
                Event::Begin(place, begin) if begin.guid != self.begin.guid || begin.resumed != Some(self.from) => {
                    return Err(place.damaged("it is not the rest of the file's stream"));
                }
                Event::Range(_, range) => {
                    self.totals += Totals::of(&range);
                    self.index.range(frames.offset(), range.low, frames.chain());
                    frames.put(Kind::Range, &range.encode())?;
                }
                Event::Block(data) => frames.put_block(&data.checksum, data.bytes)?,
                Event::Finish => return Ok(()),
                Event::Begin(..) | Event::End(_) => {}
            }
        }
    }
}

/// Writes the end of a package, with its index; returns the length of the file.
pub(super) fn finish(frames: &mut FrameWriter<'_>, index: &Index) -> Result<u64> {
    frames.put(Kind::Finish, &[])?;
    let trailer = Trailer { index: frames.offset(), before: frames.chain() };
    for payload in index.encode() {
        frames.put(Kind::Index, &payload)?;
    }
    frames.put(Kind::Trailer, &trailer.encode())?;
    frames.flush()?;
    Ok(frames.offset())
}
