//! Verifying and listing a stream without a pool.

use std::io::Read;

use super::{
    error::{Error, Result},
    parser::{Event, Parser},
    receive::{Ground, Landing, receive},
    records::{Begin, Start, Totals},
};

/// The contents of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The start of the first package.
    pub start: Start,
    /// The streams of all packages, in order.
    pub streams: Vec<Begin>,
    /// The sums over all streams.
    pub totals: Totals,
    /// The length of the input, in bytes.
    pub bytes: u64,
}

/// Reads and verifies a whole stream, data and index included, exactly as a receive does, with `verifiers` additional
/// threads. `progress` is called with the number of bytes read so far.
///
/// # Errors
/// If any byte of the input is missing, damaged or unexpected.
pub fn verify(input: &mut dyn Read, verifiers: usize, progress: &mut dyn FnMut(u64)) -> Result<Contents> {
    let mut nowhere = Nowhere::default();
    let received = receive(input, &mut nowhere, verifiers, progress)?;
    Ok(Contents { bytes: received.bytes, totals: received.totals, ..nowhere.contents })
}

/// Identifies `input`, by reading only up to the head of the first stream.
///
/// # Errors
/// If the input is not a stream, or is damaged before the end of the head.
pub fn identify(input: &mut dyn Read) -> Result<(Start, Begin)> {
    let mut parser = Parser::new(input, 0)?;
    let Event::Begin(_, begin) = parser.next()? else { unreachable!("the grammar has a stream after the start") };
    Ok((parser.start().clone(), begin))
}

/// A landing that skips every stream and keeps only the contents.
#[derive(Default)]
struct Nowhere {
    contents: Contents,
}

impl Landing for Nowhere {
    type Error = Error;

    fn package(&mut self) {}

    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<Option<Ground>> {
        if self.contents.streams.is_empty() {
            self.contents.start = start.clone();
        }
        self.contents.streams.push(begin.clone());
        Ok(None)
    }

    fn finish(&mut self, _: &Begin, _: u64) -> Result<()> {
        Ok(())
    }

    fn abandon(&mut self) {}
}
