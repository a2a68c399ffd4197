//! Errors of a mount as a whole. Errors of single requests are error numbers for the requesting program, and never get
//! here.

use std::io;
use std::path::PathBuf;

/// A mount could not be made, watched or unmounted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine, or this user, has no FUSE.
    #[error("FUSE is not available: {reason}")]
    Unavailable {
        /// The missing part, and a remedy.
        reason: String,
    },
    /// The kernel or `fusermount3` refused to mount.
    #[error("cannot mount on {}: {cause}", .mountpoint.display())]
    Mount {
        /// The directory to mount on.
        mountpoint: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// Another user may have put a symbolic link where root is about to mount.
    #[error(
        "cannot mount on {}: {} is a symbolic link possibly created by another user (remove the link, or mount elsewhere)",
        .mountpoint.display(), .link.display()
    )]
    Link {
        /// The directory to mount on.
        mountpoint: PathBuf,
        /// The path of the link.
        link: PathBuf,
    },
    /// `fusermount3` cannot reach a mountpoint within a mount that only its user may enter.
    #[error(
        "cannot mount on {}: fusermount3 may not enter the mount above it (set canmount=off on the parent file system, or let root add user_allow_other to /etc/fuse.conf)",
        .mountpoint.display()
    )]
    Nested {
        /// The directory to mount on.
        mountpoint: PathBuf,
    },
    /// The mount exists, but the handshake failed.
    #[error("cannot start serving {}: {cause}", .mountpoint.display())]
    Session {
        /// The mounted directory.
        mountpoint: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The mount exists, but its requests do not come through io_uring.
    #[error("cannot serve {} through io_uring: {cause}", .mountpoint.display())]
    Ring {
        /// The mounted directory.
        mountpoint: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A program has a file open or its working directory below the mountpoint.
    #[error("cannot unmount {}: it is in use (end the programs using it, or unmount with -f)", .mountpoint.display())]
    Busy {
        /// The mounted directory.
        mountpoint: PathBuf,
    },
    /// Another mount covers the path; unmounting by path would hit that mount.
    #[error("cannot reach {}: {by} is mounted over it (unmount {by} first)", .mountpoint.display())]
    Covered {
        /// The covered mountpoint.
        mountpoint: PathBuf,
        /// Source and type of the covering mount.
        by: String,
    },
    /// A second dataset would hide the first.
    #[error("{} is where '{dataset}' is mounted", .mountpoint.display())]
    Taken {
        /// The directory to mount on.
        mountpoint: PathBuf,
        /// The dataset mounted there.
        dataset: String,
    },
    /// The kernel or `fusermount3` refused to unmount.
    #[error("cannot unmount {}: {cause}", .mountpoint.display())]
    Unmount {
        /// The mounted directory.
        mountpoint: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The list of mounts could not be read.
    #[error("cannot list mounts: {0}")]
    List(#[source] io::Error),
}

/// The result of an operation on a mount as a whole.
pub type Result<T, E = Error> = std::result::Result<T, E>;
