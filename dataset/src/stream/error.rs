//! What can go wrong with a stream: what, where in the stream, and what to do.

use std::io;

use pool::format::key::Key;

/// An error of sending, receiving or verifying.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream's source failed.
    #[error("cannot read the stream at byte {offset}: {source}")]
    Read {
        /// How far it was read.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The stream's destination failed.
    #[error("cannot write the stream at byte {offset}: {source}")]
    Write {
        /// How far it was written.
        offset: u64,
        /// What the operating system said.
        source: io::Error,
    },
    /// The input is something else.
    #[error("this is not a Cenote stream: give the output of 'fs send'")]
    Foreign,
    /// Something else stands behind a stream.
    #[error("what follows the stream, at byte {offset}, is not a Cenote stream: nothing of it was received")]
    Trailing {
        /// Where the stream ends.
        offset: u64,
    },
    /// The stream is of another version of the format.
    #[error("the stream is of format version {version}, and this program reads version {known}: use a newer program")]
    Version {
        /// The stream's.
        version: u32,
        /// This program's.
        known: u32,
    },
    /// The input ends before the stream does.
    #[error("the stream ends too early, at byte {offset} in record {record}: send it again")]
    Truncated {
        /// Where it ends.
        offset: u64,
        /// The number of the record that is not whole, counted from 0.
        record: u64,
    },
    /// Bytes are not those that were sent, or were never a stream by the rules.
    #[error("the stream is damaged at byte {offset}, in record {record}: {problem}; send it again")]
    Damaged {
        /// Where the record starts.
        offset: u64,
        /// The record's number, counted from 0.
        record: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// An increment goes by a block that the receiver has not.
    #[error(
        "record {record} of the stream, at byte {offset}, takes the block under {key} for unchanged, and the receiving \
         dataset has none there: it is not what the increment was made from; receive a full stream instead"
    )]
    MissingBlock {
        /// Where the record starts.
        offset: u64,
        /// The record's number, counted from 0.
        record: u64,
        /// The key of the item whose block is missing.
        key: Key,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] pool::error::Error),
}

/// The result of sending, receiving or verifying.
pub type Result<T, E = Error> = std::result::Result<T, E>;
