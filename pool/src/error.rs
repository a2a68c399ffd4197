//! What can go wrong in the engine.
//!
//! A variant says what, where and with which numbers. [`Error::kind`] says what the caller can do about it, and nothing
//! ever matches on the text.

use std::io;

use crate::{
    device::Holder,
    units::{Guid, Txg},
};

/// The engine's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The request itself is wrong: change it.
    Request,
    /// No room: free some space or add a device.
    Space,
    /// Something on a device is damaged, with no good copy left.
    Damage,
    /// A device does not answer or refuses: look at the device.
    Device,
    /// Somebody else holds it: wait, or ask them.
    Busy,
    /// This version of Cenote cannot read it: use a newer one.
    Unsupported,
}

/// What the operating system said, without its number.
fn in_words(source: &io::Error) -> String {
    let text = source.to_string();
    text.split(" (os error ").next().unwrap_or_default().to_owned()
}

/// An error of the engine.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device refused an operation.
    #[error("{device}: cannot {action}: {}", in_words(source))]
    Device {
        /// The device's path or name.
        device: String,
        /// The operation, as a verb phrase.
        action: &'static str,
        /// What the operating system said.
        source: io::Error,
    },
    /// A device is held by another process.
    #[error("{device} is in use by {holder}")]
    Busy {
        /// The device's path.
        device: String,
        /// Who holds it, as far as is known.
        holder: Holder,
    },
    /// The request cannot be carried out as it is.
    #[error("{0}")]
    Request(String),
    /// There is no room left for what was asked.
    #[error("out of space")]
    OutOfSpace,
    /// A block is damaged and no copy of it is good.
    #[error("damaged {what}: {problem}")]
    Damaged {
        /// Which structure, and where.
        what: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The structure is of a version or has a feature that this program does not know.
    #[error("{what} is not supported: {problem}")]
    Unsupported {
        /// Which structure.
        what: String,
        /// The version or the feature.
        problem: String,
    },
    /// A device does not belong to the pool as it stands.
    #[error("device {path} (guid {device}) of pool {pool} is missing")]
    Missing {
        /// The missing device.
        device: Guid,
        /// Where it was last seen.
        path: String,
        /// The pool's name.
        pool: String,
    },
    /// What the intent log holds cannot be read, for its devices are not there, or are not what they were.
    #[error("the intent log of pool {pool} lies on {paths}, which {problem}")]
    LostLog {
        /// The pool's name.
        pool: String,
        /// Where its devices were last seen.
        paths: String,
        /// What is the matter with them, as it follows `which`.
        problem: String,
    },
    /// Too few of the devices of a mirror or a RAID-Z that are there hold all that they should.
    #[error("{vdev} of pool {pool} has {}: {missing} missing", lack(*needed))]
    Incomplete {
        /// The mirror or the RAID-Z.
        vdev: String,
        /// The pool's name.
        pool: String,
        /// So many complete ones are needed.
        needed: usize,
        /// The devices that would be needed, by where they were last seen, and the word that makes a sentence of it.
        missing: String,
    },
    /// Devices of a mirror or a RAID-Z were changed without each other.
    #[error(
        "pool {pool} is split: {device} holds changes that the other devices lack, and they hold some that it lacks"
    )]
    Split {
        /// The pool's name.
        pool: String,
        /// One of the devices, by its path.
        device: String,
    },
    /// No device of a vdev is what the pool was last used with.
    #[error("{device} of pool {pool} is an older copy: the pool was used since, and not with it")]
    OlderCopy {
        /// The pool's name.
        pool: String,
        /// The device, by its path.
        device: String,
    },
    /// A device of the pool is smaller than it was: it was cut short, or is a shorter copy.
    #[error("{device} has {size} bytes, but its label says {needed}")]
    Shrunk {
        /// The device's path or name.
        device: String,
        /// How large it is, in bytes.
        size: u64,
        /// How large it must be at least.
        needed: u64,
    },
    /// The newest committed state cannot be read.
    #[error("transaction group {txg} of pool {pool} cannot be read: {problem}")]
    Unreadable {
        /// The pool's name.
        pool: String,
        /// The transaction group of the newest uberblock.
        txg: Txg,
        /// What is wrong with it.
        problem: String,
    },
    /// The pool takes no more changes: it was opened read-only, is closing, or an earlier commit failed.
    #[error("the pool takes no changes: {0}")]
    Closed(String),
    /// What was being read was destroyed or replaced meanwhile.
    #[error("it was destroyed, rolled back or replaced while it was read")]
    Stale,
    /// A device failed, and the pool waits for somebody to see to it.
    #[error("pool I/O is currently suspended: {0}")]
    Suspended(String),
}

fn lack(needed: usize) -> String {
    match needed {
        1 => "no complete device".to_owned(),
        _ => format!("fewer than {needed} complete devices"),
    }
}

impl Error {
    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Device { .. }
            | Error::Missing { .. }
            | Error::LostLog { .. }
            | Error::Incomplete { .. }
            | Error::OlderCopy { .. }
            | Error::Shrunk { .. }
            | Error::Suspended(_) => ErrorKind::Device,
            Error::Busy { .. } => ErrorKind::Busy,
            Error::Request(_) | Error::Closed(_) | Error::Stale | Error::Split { .. } => ErrorKind::Request,
            Error::OutOfSpace => ErrorKind::Space,
            Error::Damaged { .. } | Error::Unreadable { .. } => ErrorKind::Damage,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
        }
    }

    /// A [`Error::Damaged`] from its two parts.
    pub fn damaged(what: impl Into<String>, problem: impl ToString) -> Error {
        Error::Damaged { what: what.into(), problem: problem.to_string() }
    }
}
