//! Telling the kernel that what it knows of all names may be wrong, by one message.
//!
//! Each name in its cache carries the epoch in which it was looked up, and one of an earlier epoch is looked up again before
//! it is believed. Linux has this since 6.16 (FUSE 7.44). What such a name led to is given up first, and with it what is
//! mounted there: so this is nothing for file systems with mounts in them.
//!
//! `fuser` does not know the message. It is a header and nothing else.

use std::io;
use std::os::fd::OwnedFd;

use fuser::Version;

/// The first version of the protocol that has it.
const SINCE: Version = Version(7, 44);
/// The number of the message.
const INC_EPOCH: u32 = 8;
/// A header's length: it holds that, the number and a zero.
const HEADER: u32 = 16;

/// Begins new epochs of one connection.
pub(crate) struct Epoch {
    device: OwnedFd,
    is_known: bool,
}

impl Epoch {
    /// Of the connection that `device` leads to, with a kernel that speaks this version, as far as it has said so.
    pub(crate) fn new(device: OwnedFd, kernel: Option<Version>) -> Epoch {
        Epoch { device, is_known: kernel.is_some_and(|kernel| kernel >= SINCE) }
    }

    /// Whether the kernel knows of epochs.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Has the kernel look up every name again.
    pub(crate) fn begin(&self) -> io::Result<()> {
        let mut message = [0; HEADER as usize];
        message[..4].copy_from_slice(&HEADER.to_ne_bytes());
        message[4..8].copy_from_slice(&INC_EPOCH.to_ne_bytes());
        rustix::io::write(&self.device, &message)?;
        Ok(())
    }
}
