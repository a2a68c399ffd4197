//! The errors of the engine.
//!
//! A variant says what failed, where and with which numbers. [`Error::kind`] says what the caller can do about it, and
//! no code matches on the text.

use std::{
    fmt::{self, Display, Formatter},
    io,
};

use crate::{
    size::format_apart,
    units::{Guid, Txg},
};

/// A result with the engine's error by default.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The caller's remedy for an error.
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
    /// Another process holds the device: wait, or ask its owner.
    Busy,
    /// Too new for this version of Cenote: use a newer one.
    Unsupported,
}

/// The operating system's message, without its number.
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
        /// The operating system's error.
        source: io::Error,
    },
    /// A device is held by another process.
    #[error("{device} is in use by {holder}")]
    Busy {
        /// The device's path.
        device: String,
        /// The holder, as far as known.
        holder: Holder,
    },
    /// The request cannot be carried out.
    #[error("{0}")]
    Request(String),
    /// No device of the pool has the requested path or GUID.
    #[error("no such device in pool: {name}")]
    NoDevice {
        /// The pool's name, for the next command.
        pool: String,
        /// The requested path or GUID.
        name: String,
        /// A device of the pool with the same file name, or with a longer path.
        similar: Option<String>,
    },
    /// There is no room left for the request.
    #[error("out of space")]
    OutOfSpace,
    /// A block is damaged, without a good copy.
    #[error("damaged {what}: {problem}")]
    Damaged {
        /// The structure, and its place.
        what: String,
        /// What contradicts the format.
        problem: String,
    },
    /// The structure has a version or a feature unknown to this program.
    #[error("{what} is not supported: {problem}")]
    Unsupported {
        /// The unsupported structure.
        what: String,
        /// The version or the feature.
        problem: String,
    },
    /// A device of the pool is missing.
    #[error("device {path} (guid {device}) of pool {pool} is missing")]
    Missing {
        /// The GUID of the missing device.
        device: Guid,
        /// Its last known path.
        path: String,
        /// The name of the pool.
        pool: String,
    },
    /// The intent log cannot be read, because its devices are missing or were exchanged.
    #[error("the intent log of pool {pool} is on {paths}, which {problem}")]
    LostLog {
        /// The name of the pool.
        pool: String,
        /// Where its devices were last seen.
        paths: String,
        /// The problem, worded to follow `which`.
        problem: String,
    },
    /// Too few complete devices of a mirror or a RAID-Z are present.
    #[error("{vdev} of pool {pool} has {}: {missing} missing", lack(*needed))]
    Incomplete {
        /// The mirror or the RAID-Z.
        vdev: String,
        /// The name of the pool.
        pool: String,
        /// The number of complete devices needed.
        needed: usize,
        /// The missing devices, by last known path, with the verb of the sentence.
        missing: String,
    },
    /// Devices of a mirror or a RAID-Z were changed separately: split brain.
    #[error("pool {pool} is split: {device} and the other devices were modified separately (split brain)")]
    Split {
        /// The name of the pool.
        pool: String,
        /// One of the devices, by its path.
        device: String,
    },
    /// All devices of a vdev are older copies.
    #[error("{device} of pool {pool} is an outdated copy: the pool has been used without it since")]
    OlderCopy {
        /// The name of the pool.
        pool: String,
        /// The device, by its path.
        device: String,
    },
    /// A device of the pool is smaller than before: it was truncated, or is a shorter copy.
    #[error("{device} has {}", shortfall(*size, *needed))]
    Shrunk {
        /// The device's path or name.
        device: String,
        /// The device's size, in bytes.
        size: u64,
        /// The least size needed, in bytes.
        needed: u64,
    },
    /// The newest committed state cannot be read.
    #[error("transaction group {txg} of pool {pool} cannot be read: {problem}")]
    Unreadable {
        /// The name of the pool.
        pool: String,
        /// The transaction group of the newest uberblock.
        txg: Txg,
        /// The error met while reading.
        problem: String,
    },
    /// The pool takes no more changes: it was opened read-only, is closing, or an earlier commit failed.
    #[error("the pool takes no changes: {0}")]
    Closed(String),
    /// The object being read was destroyed or replaced meanwhile.
    #[error("the data was destroyed, rolled back or replaced while being read")]
    Stale,
    /// A device failed, and the pool waits for the operator.
    #[error("pool I/O is currently suspended: {0}")]
    Suspended(String),
}

fn shortfall(size: u64, needed: u64) -> String {
    let (size, needed) = format_apart(size, needed);
    format!("{size}, but its label says {needed}")
}

fn lack(needed: usize) -> String {
    match needed {
        1 => "no complete device".to_owned(),
        _ => format!("fewer than {needed} complete devices"),
    }
}

impl Error {
    /// The caller's remedy for this error.
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
            Error::Request(_) | Error::NoDevice { .. } | Error::Closed(_) | Error::Stale | Error::Split { .. } => {
                ErrorKind::Request
            }
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

/// The holder of a device, or of its lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A process of this machine.
    Process {
        /// The id of the process.
        id: u32,
        /// The command line, without the program's folder; empty if not visible.
        command: String,
        /// The name or number of the process's user, if different from this process's user.
        user: Option<String>,
    },
    /// The kernel, for example for a mount.
    System,
    /// A process not visible from here.
    Unknown,
}

impl Display for Holder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Process { id, command, user } => {
                write!(f, "process {id}")?;
                user.iter().try_for_each(|user| write!(f, " of user {user}"))?;
                if command.is_empty() { Ok(()) } else { write!(f, " ({command})") }
            }
            Holder::System => f.write_str("the system (is it mounted?)"),
            Holder::Unknown => f.write_str("another process"),
        }
    }
}

impl Holder {
    /// The process id, if the process is another user's.
    pub fn other_users_process(&self) -> Option<u32> {
        match self {
            Holder::Process { id, user: Some(_), .. } => Some(*id),
            _ => None,
        }
    }
}
