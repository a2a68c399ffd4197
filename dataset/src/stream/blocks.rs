//! The blocks of streams, for a reader without a tree: a corrective receive.
//!
//! Every package is read to its end and verified, as by a receive. The reader gets the blocks of the streams that it
//! wants, verified, in the order of their keys, some megabytes at a time.

use std::{io::Read, sync::Arc};

use pool::format::{
    key::Key,
    pointer::{BlockPointer, Checksum},
};

use super::{
    crew::{Crew, Ticket},
    error::Result,
    parser::{Data, Event, Parser},
    range::{BlockInfo, Origin, Range},
    receive::next_byte,
    records::{Begin, Start},
};

/// The approximate number of bytes handed over together.
const TOGETHER: usize = 4 << 20;

/// A block of a stream, as stored by the sender, verified.
#[derive(Debug)]
pub struct StreamBlock {
    /// The block's first key in the sender's tree.
    pub key: Key,
    /// The bytes as stored at the sender.
    pub bytes: Arc<Vec<u8>>,
    info: BlockInfo,
    checksum: [u8; 32],
}

impl StreamBlock {
    /// Whether a block of a pool has the same stored form, so that its bytes are these bytes. Unknown, and so false,
    /// for blocks without a checksum.
    pub fn is_form_of(&self, pointer: &BlockPointer) -> bool {
        self.info.checksum != Checksum::Off && self.info == BlockInfo::of(pointer) && self.checksum == pointer.checksum
    }
}

/// The reader of blocks.
pub trait Blocks {
    /// The reasons why the blocks are not wanted; the stream's own errors are included.
    type Error: From<super::error::Error>;

    /// Begins a stream. Returns whether its blocks are wanted.
    fn begin(&mut self, start: &Start, begin: &Begin) -> Result<bool, Self::Error>;

    /// Takes blocks of the last stream begun.
    fn take(&mut self, blocks: Vec<StreamBlock>) -> Result<(), Self::Error>;
}

/// Passes the blocks of all packages of `input` to `reader`, with `verifiers` threads that verify ahead. `progress` is
/// called with the number of bytes read so far.
///
/// # Errors
/// If a stream is damaged, or the reader fails.
pub fn read_blocks<B: Blocks>(
    input: &mut dyn Read,
    reader: &mut B,
    verifiers: usize,
    progress: &mut dyn FnMut(u64),
) -> Result<(), B::Error> {
    let crew = Crew::new(verifiers);
    let mut at = read_package(input, reader, &crew, 0, progress)?;
    while let Some(byte) = next_byte(input, at)? {
        at = read_package(&mut byte.as_slice().chain(&mut *input), reader, &crew, at, progress)?;
    }
    Ok(())
}

/// Reads the package at `base` of an input; returns its end.
fn read_package<B: Blocks>(
    input: &mut dyn Read,
    reader: &mut B,
    crew: &Crew,
    base: u64,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, B::Error> {
    let mut parser = Parser::new(input, base)?;
    let mut coming = Batch::default();
    let (mut is_wanted, mut keys) = (false, Vec::new().into_iter());
    loop {
        match parser.next()? {
            Event::Begin(_, begin) => is_wanted = reader.begin(parser.start(), &begin)?,
            Event::Range(_, range) => keys = first_keys(&range).into_iter(),
            Event::Block(data) => {
                let key = keys.next().expect("each block of a range has an item");
                coming.bytes += data.bytes.len();
                coming.blocks.push((key, crew.ask(move || data.verified())));
            }
            Event::End(_) => coming.hand_over(reader, is_wanted)?,
            Event::Finish => {
                progress(parser.offset());
                return Ok(parser.offset());
            }
        }
        if coming.bytes >= TOGETHER {
            coming.hand_over(reader, is_wanted)?;
        }
        progress(parser.offset());
    }
}

/// Blocks being verified.
#[derive(Default)]
struct Batch {
    blocks: Vec<(Key, Ticket<Result<Data>>)>,
    bytes: usize,
}

impl Batch {
    fn hand_over<B: Blocks>(&mut self, reader: &mut B, is_wanted: bool) -> Result<(), B::Error> {
        let Batch { blocks, .. } = std::mem::take(self);
        let verified = blocks.into_iter().map(|(key, ticket)| {
            let Data { info, checksum, bytes, .. } = ticket.redeem()?;
            Ok(StreamBlock { key, bytes, info, checksum })
        });
        let verified: Vec<StreamBlock> = verified.collect::<Result<_>>()?;
        if is_wanted && !verified.is_empty() { reader.take(verified) } else { Ok(()) }
    }
}

/// The key of the first item of each new block of a range.
fn first_keys(range: &Range) -> Vec<Key> {
    let mut keys = Vec::with_capacity(range.blocks.len());
    for item in &range.items {
        if let Origin::New(block) = item.origin
            && block as usize == keys.len()
        {
            keys.push(item.key);
        }
    }
    keys
}
