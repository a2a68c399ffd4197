//! Invalidating all names in the kernel's cache by one message.
//!
//! Each cached name carries the epoch of its lookup. A name of an earlier epoch is looked up again before use. Linux
//! has this since 6.16 (FUSE 7.44). The new lookup first drops the old target, and unmounts mounts there: so this does
//! not suit file systems with mounts below.
//!
//! `fuser` does not know the message, which is only a header.

use std::io;
use std::os::fd::OwnedFd;

use fuser::Version;

/// The first version of the protocol with epochs.
const SINCE: Version = Version(7, 44);
/// The number of the message.
const INC_EPOCH: u32 = 8;
/// The header's length in bytes: length, message number, zero.
const HEADER: u32 = 16;

/// Begins new epochs of one connection.
pub(crate) struct Epoch {
    device: OwnedFd,
    is_known: bool,
}

impl Epoch {
    /// For the connection of `device`, with a kernel of this protocol version, if known.
    pub(crate) fn new(device: OwnedFd, kernel: Option<Version>) -> Epoch {
        Epoch { device, is_known: kernel.is_some_and(|kernel| kernel >= SINCE) }
    }

    /// Whether the kernel has epochs.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Makes the kernel look up every name again.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut message = [0; HEADER as usize];
        message[..4].copy_from_slice(&HEADER.to_ne_bytes());
        message[4..8].copy_from_slice(&INC_EPOCH.to_ne_bytes());
        rustix::io::write(&self.device, &message)?;
        Ok(())
    }
}
