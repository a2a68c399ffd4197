//! How an operation on the tree ends early, and which errno the caller gets.

use pool::{
    error::{Error, ErrorKind},
    format::{codec::Malformed, key::Key},
    space::Seen,
    tree::{Block, Miss},
    txg::OpError,
};
use rustix::io::Errno;

#[derive(Debug)]
pub(super) enum Failure {
    /// A node is not in memory: the head reads the node and retries.
    Miss(Miss),
    /// The content of the listed blocks is needed: the operation reads the blocks and retries.
    Need(Vec<Block>, Seen),
    /// The file is still being truncated: the operation finishes the truncation first.
    Truncating,
    /// The engine failed.
    Engine(Error),
    /// A quota of the given account refuses the operation.
    Exceeded(Key),
    /// The request fails with the given errno.
    Refused(Errno),
}

impl Failure {
    /// Whether a block was freed before the read, so that the caller looks up the block again.
    pub(super) fn is_stale(&self) -> bool {
        matches!(self, Failure::Engine(Error::Stale))
    }
}

impl From<Miss> for Failure {
    fn from(miss: Miss) -> Failure {
        Failure::Miss(miss)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Engine(error)
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Refused(errno)
    }
}

impl OpError for Failure {
    fn miss(&self) -> Option<&Miss> {
        match self {
            Failure::Miss(miss) => Some(miss),
            _ => None,
        }
    }
}

impl From<Failure> for Errno {
    fn from(failure: Failure) -> Errno {
        match failure {
            Failure::Refused(errno) => errno,
            Failure::Exceeded(_) => Errno::DQUOT,
            Failure::Engine(error) => errno(&error),
            Failure::Miss(_) | Failure::Need(..) | Failure::Truncating => {
                unreachable!("the head and the file's operations try again")
            }
        }
    }
}

/// The errno for an engine error. The error itself is logged.
pub(super) fn errno(error: &Error) -> Errno {
    match error {
        Error::OutOfSpace => return Errno::NOSPC,
        Error::Closed(_) => return Errno::ROFS,
        Error::Stale => return Errno::STALE,
        // Logged once, when the pool was suspended.
        Error::Suspended(_) => return Errno::IO,
        _ => {}
    }
    tracing::error!(%error, "file system operation failed");
    match error.kind() {
        ErrorKind::Space => Errno::NOSPC,
        _ => Errno::IO,
    }
}

/// The failure for an item that cannot be decoded.
pub(super) fn damaged(key: Key) -> impl FnOnce(Malformed) -> Failure {
    move |malformed| Failure::Engine(Error::damaged(format!("item {key} of a dataset"), malformed))
}
