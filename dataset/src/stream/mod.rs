//! Streams: what changed between two snapshots, or all of one, as a file that can be kept, sent, verified and received.
//!
//! A stream is the difference of two trees and knows nothing of what their items mean: for each range of keys that has
//! changed it holds the items that stand there now, and the data of those blocks that are new since the base. A full
//! stream is the difference to nothing. A package holds several, in the order in which they must be received.
//!
//! ```text
//! send     walks the difference and writes it          receive   applies it to a hidden tree, and lands it
//!                                                      steps     cuts what comes into parts of bounded size
//!                                                      apply     replaces a part of a tree
//! verify   reads it as receiving does, without a pool
//! crew     threads that read, or verify, ahead         parser    which record may follow which
//! records  what a stream is                            range     what stands in a range of keys
//! census   what the sender of a replication has
//! index    where in the file what lies                 frame     records on the wire: bounded and chained
//! ```
//!
//! The byte-exact format is in `dataset/STREAM.md`. Invariants:
//!
//! 1. Nothing of a stream is visible before all of it was verified.
//! 2. Whatever the input: no panic, no unbounded allocation, an error that says where and what.
//! 3. Sending never decompresses, and receiving stores data as they came.
//!
//! It does not choose what is sent, name or create datasets, or decide whether a stream fits: that is for those who know
//! datasets, who join in through [`Source`] and [`Landing`].

mod apply;
mod census;
mod crew;
mod error;
mod frame;
mod index;
mod parser;
mod range;
mod receive;
mod records;
mod send;
mod steps;
mod verify;

pub use census::{Census, Counted};
pub use error::{Error, Result};
pub use receive::{Ground, Landing, Received, receive};
pub use records::{Base, Begin, Start, Totals};
pub use send::{Package, Sent, Source, estimate, send};
pub use verify::{Contents, identify, verify};

#[cfg(test)]
mod tests;
