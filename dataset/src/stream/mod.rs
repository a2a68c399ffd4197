//! Streams: a snapshot, or the changes between two snapshots, as a file to keep, send, verify and receive.
//!
//! A stream is the difference of two trees, independent of the meaning of items: for each changed range of keys the
//! stream contains the items now in the range, and the data of the blocks that are new since the base. A full stream is
//! the difference to an empty tree. A package contains several streams, in the order in which they must be received.
//!
//! ```text
//! send     walks the difference and writes records     receive   applies a stream to a hidden tree, and lands the tree
//!                                                      steps     cuts the input into parts of bounded size
//!                                                      apply     replaces a part of a tree
//! blocks   the blocks of a stream, without a tree to fill
//! verify   reads like a receive, without a pool
//! crew     threads that read, or verify, ahead         parser    the allowed order of records
//! records  descriptions of streams                     range     the items in a range of keys
//! notes    holds and the expected size, among the properties
//! census   the sender's datasets and snapshots
//! watched  the name of the snapshot being transferred
//! index    offsets of streams and keys in the file     frame     records on the wire: bounded and chained
//! append   continues a stream file that was cut off    gather    output of few large writes
//! position how far a receive has come                  token     the same for the sender, as a text
//! ```
//!
//! The byte-exact format is in `dataset/STREAM.md`. Invariants:
//!
//! 1. Nothing of a stream is visible before the whole stream was verified.
//! 2. For any input: no panic, no unbounded allocation, and an error that names the place and the problem.
//! 3. Sending never decompresses, and receiving stores data as received.
//!
//! The module does not choose datasets to send, name or create datasets, or decide whether a stream fits. The layer
//! above does so, through [`Source`] and [`Landing`].

mod append;
mod apply;
pub mod archive;
mod blocks;
mod census;
mod crew;
mod error;
mod frame;
mod gather;
mod index;
mod layers;
mod merge;
mod notes;
mod parser;
mod position;
mod range;
mod receive;
mod records;
mod send;
mod steps;
mod token;
mod verify;
mod watched;

pub use append::{Cut, Examined, examine};
pub use blocks::{Blocks, StreamBlock, read_blocks};
pub use census::{Census, Counted};
pub use error::{Error, Result};
pub use merge::merge;
pub use notes::is_note;
pub use position::{Mark, Position};
pub use receive::{Ground, Landing, Received, receive};
pub use records::{Base, Begin, Start, Totals};
pub use send::{Hold, Package, Sent, Source, estimate, send};
pub use token::{Token, TokenError};
pub use verify::{Contents, identify, verify};
pub use watched::Watched;

#[cfg(test)]
mod tests;
