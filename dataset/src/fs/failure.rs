//! How an operation on the tree ends early, and what its caller is told.

use pool::{
    error::{Error, ErrorKind},
    format::{codec::Malformed, key::Key},
    space::Seen,
    tree::{Block, Miss},
    txg::OpError,
};
use rustix::io::Errno;

/// Why an attempt at an operation ended early.
#[derive(Debug)]
pub(super) enum Failure {
    /// A node is not in memory: the head reads it and tries again.
    Miss(Miss),
    /// The content of these blocks, that were seen then, is needed: the operation reads them and tries again.
    Need(Vec<Block>, Seen),
    /// The file is still being truncated: that is to be finished first.
    Truncating,
    /// The engine failed.
    Engine(Error),
    /// A quota refuses it: that of this account.
    Exceeded(Key),
    /// The request cannot be met; this is its answer.
    Refused(Errno),
}

impl Failure {
    /// Whether what was read was freed meanwhile, and is to be looked up again.
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

/// What the kernel is told about an error of the engine. The error itself goes to the log.
pub(super) fn errno(error: &Error) -> Errno {
    match error {
        Error::OutOfSpace => return Errno::NOSPC,
        Error::Closed(_) => return Errno::ROFS,
        Error::Stale => return Errno::STALE,
        // Said once, when it was suspended.
        Error::Suspended(_) => return Errno::IO,
        _ => {}
    }
    tracing::error!(%error, "file system operation failed");
    match error.kind() {
        ErrorKind::Space => Errno::NOSPC,
        _ => Errno::IO,
    }
}

/// The failure that an item that makes no sense is.
pub(super) fn damaged(key: Key) -> impl FnOnce(Malformed) -> Failure {
    move |malformed| Failure::Engine(Error::damaged(format!("item {key} of a dataset"), malformed))
}
