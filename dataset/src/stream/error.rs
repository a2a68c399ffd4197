//! The errors of streams: the problem, its place in the stream, and the remedy.

use std::io;

use pool::format::key::Key;

/// An error of sending, receiving or verifying.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream's source failed.
    #[error("cannot read the stream at byte {offset}: {source}")]
    Read {
        /// The number of bytes read before the failure.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The stream's destination failed.
    #[error("cannot write the stream at byte {offset}: {source}")]
    Write {
        /// The number of bytes written before the failure.
        offset: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// The input is not a stream.
    #[error("this is not a Cenote stream; streams are made by 'fs send'")]
    Foreign,
    /// A package is followed by other data.
    #[error("the input after the stream, at byte {offset}, is not a Cenote stream and was ignored")]
    Trailing {
        /// The end of the package, in bytes from the start of the input.
        offset: u64,
    },
    /// The stream has another version of the format.
    #[error(
        "the stream is of format version {version}, and this program reads versions up to {known}; use a newer version of Cenote"
    )]
    Version {
        /// The version of the stream.
        version: u32,
        /// The newest version that this program reads.
        known: u32,
    },
    /// The input ends before the stream does.
    #[error("{}", truncated(*offset, *record))]
    Truncated {
        /// The length of the input, in bytes.
        offset: u64,
        /// The number of the incomplete record, counted from 0.
        record: u64,
    },
    /// Bytes differ from the bytes sent, or violate the format.
    #[error("the stream is damaged at byte {offset}, in record {record}: {problem}; send it again")]
    Damaged {
        /// The offset of the record.
        offset: u64,
        /// The record's number, counted from 0.
        record: u64,
        /// The problem of the record.
        problem: String,
    },
    /// A stream of another system has a part that cannot be received.
    #[error("cannot receive the stream of {name}: {problem}; {remedy}")]
    Unsupported {
        /// The snapshot's name in the stream.
        name: String,
        /// The part that cannot be received.
        problem: String,
        /// What the sender can do instead.
        remedy: &'static str,
    },
    /// An incremental stream refers to a block that the receiver does not have.
    #[error(
        "record {record} of the stream, at byte {offset}, marks the block under {key} as unchanged, but the receiving dataset has no such block: the base differs; receive a full stream instead"
    )]
    MissingBlock {
        /// The offset of the record.
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

/// The message about an input that ends too early. A pipe from a sender that has failed is empty.
fn truncated(offset: u64, record: u64) -> String {
    match offset {
        0 => "the input is empty: the sender has failed, or sent nothing".to_owned(),
        _ => format!("the stream ends too early, at byte {offset} in record {record}: send it again"),
    }
}
