//! What can go wrong with a mount as a whole. What goes wrong with one request is an error number for the program that
//! made it, and never gets here.

use std::io;
use std::path::PathBuf;

/// A mount could not be made, watched or taken down.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This machine, or this user, has no FUSE.
    #[error("FUSE is not available: {reason}")]
    Unavailable {
        /// What is missing, and what would help.
        reason: String,
    },
    /// The kernel or `fusermount3` refused to mount.
    #[error("cannot mount on {}: {cause}", .mountpoint.display())]
    Mount {
        /// Where.
        mountpoint: PathBuf,
        /// The refusal.
        cause: io::Error,
    },
    /// Another user may have put a symbolic link where root is to mount.
    #[error(
        "cannot mount on {}: {} is a symbolic link that another user may have put there (remove it, or mount elsewhere)",
        .mountpoint.display(), .link.display()
    )]
    Link {
        /// Where.
        mountpoint: PathBuf,
        /// The link.
        link: PathBuf,
    },
    /// `fusermount3` does not reach a mountpoint within a mount that only its user may enter.
    #[error(
        "cannot mount on {}: it lies within another mount, which fusermount3 may not enter (either the file system above \
         gets canmount=off and is a plain folder, or root puts user_allow_other into /etc/fuse.conf)",
        .mountpoint.display()
    )]
    Nested {
        /// Where.
        mountpoint: PathBuf,
    },
    /// The mount is there, but the kernel and the server did not come to terms.
    #[error("cannot start serving {}: {cause}", .mountpoint.display())]
    Session {
        /// Where.
        mountpoint: PathBuf,
        /// The refusal.
        cause: io::Error,
    },
    /// The mount is there, but its requests do not come through io_uring.
    #[error("cannot serve {} through io_uring: {cause}", .mountpoint.display())]
    Ring {
        /// Where.
        mountpoint: PathBuf,
        /// What is in the way.
        cause: io::Error,
    },
    /// A program has a file open or its working directory below the mountpoint.
    #[error("cannot unmount {}: it is in use (close what uses it, or unmount with -f)", .mountpoint.display())]
    Busy {
        /// Where.
        mountpoint: PathBuf,
    },
    /// A path reaches what is mounted over it, and would unmount that.
    #[error("cannot reach {}: {by} is mounted over it (unmount that first)", .mountpoint.display())]
    Covered {
        /// Where.
        mountpoint: PathBuf,
        /// What is mounted there.
        by: String,
    },
    /// A second dataset would hide the first.
    #[error("{} is where '{dataset}' is mounted", .mountpoint.display())]
    Taken {
        /// Where.
        mountpoint: PathBuf,
        /// Which dataset is there.
        dataset: String,
    },
    /// The kernel or `fusermount3` refused to unmount.
    #[error("cannot unmount {}: {cause}", .mountpoint.display())]
    Unmount {
        /// Where.
        mountpoint: PathBuf,
        /// The refusal.
        cause: io::Error,
    },
    /// The list of mounts could not be read.
    #[error("cannot list mounts: {0}")]
    List(#[source] io::Error),
}

/// The result of something done to a mount as a whole.
pub type Result<T, E = Error> = std::result::Result<T, E>;
