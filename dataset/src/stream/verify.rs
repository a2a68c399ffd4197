//! Verifying a stream, and saying what it holds, without a pool.

use std::io::Read;

use super::{
    error::{Error, Result},
    parser::{Event, Parser},
    receive::{Ground, Landing, receive},
    records::{Begin, Start, Totals},
};

/// What a stream holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// What the first package is.
    pub start: Start,
    /// The streams of all packages, in order.
    pub streams: Vec<Begin>,
    /// How much they hold together.
    pub totals: Totals,
    /// The length of the whole, in bytes.
    pub bytes: u64,
}

/// Reads all of a stream and verifies it, data and index included, as receiving would, with `verifiers` threads beside
/// this one. `progress` is told now and then how many bytes were read.
///
/// # Errors
/// If anything is wrong with it.
pub fn verify(input: &mut dyn Read, verifiers: usize, progress: &mut dyn FnMut(u64)) -> Result<Contents> {
    let mut nowhere = Nowhere::default();
    let received = receive(input, &mut nowhere, verifiers, progress)?;
    Ok(Contents { bytes: received.bytes, totals: received.totals, ..nowhere.contents })
}

/// Reads only as far as the head of the first stream: what `input` is.
///
/// # Errors
/// If it is not a stream, or is damaged that early.
pub fn identify(input: &mut dyn Read) -> Result<(Start, Begin)> {
    let mut parser = Parser::new(input, 0)?;
    let Event::Begin(_, begin) = parser.next()? else { unreachable!("the grammar has a stream after the start") };
    Ok((parser.start().clone(), begin))
}

/// Where streams pass over, and are only looked at.
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
