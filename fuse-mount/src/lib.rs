//! The kernel's side of a dataset: FUSE requests in, calls on one [`dataset::fs::FileSystem`] out.
//!
//! ```text
//! session     one mount of a data set: made, watched, invalidated, taken down
//! serving     the threads of a connection, how they begin and how they end
//! connection  which connection with the kernel a mount has, and how to cut it
//! adapter     the transport through `fuser` and /dev/fuse; syncer waits for its fsyncs
//! ring        the transport through io_uring, where the kernel has it
//! courtesy    who runs when an answer is there: the program that waited, or the thread that gave it
//! handler     what the kernel may ask for: the seam between transports and file systems
//! dispatcher  a data set's answers, one short method for each request
//! operations  what a request does, where that takes more than one call
//! server      what a request means: which file system a node belongs to, what may be changed
//! control     `.zfs`: the virtual directory through which snapshots are browsed
//! held        what the kernel holds, and what of it has become stale
//! freer       the thread that frees removed files once the kernel has forgotten them
//! known       the names it must forget after a change, and those it must not for the sake of mounts below
//! epoch       has all names looked up again, by one message
//! node        node numbers: which snapshot, which object
//! attr        attributes, times and errors in FUSE's words
//! flags       chattr's and lsattr's words for attributes
//! membership  which groups a program is in
//! device      getting a connected /dev/fuse descriptor: mount(2) as root, fusermount3 for everybody else
//! mounts      the mounts that exist, whoever made them, and getting rid of dead ones
//! options     properties as mount options           counters   requests by kind
//! ```
//!
//! There is no file system logic here: names, permissions of new files, times, sizes and space are `dataset`'s. What
//! this crate decides is what the kernel may cache. The kernel is the only writer of a mounted dataset, so it may
//! keep names, absent names, attributes, directory listings and data for as long as it likes; whoever changes the data
//! set otherwise (a rollback, a received stream) says so through [`Mount::begin_change`].
//!
//! No request is sent to open or to close a file: the first open is answered with "not implemented", which tells the
//! kernel to stop asking. Only where some file had the attribute `direct` when the mount was made each open is answered,
//! because that is where the kernel is told to leave such a file out of its cache. What an open file keeps alive is therefore the *node*: an unlinked file lives until the kernel
//! forgets its node.
//!
//! Not here: locks (the kernel keeps them, as for a local file system), access checks (the kernel makes them, from the
//! modes and, with `acltype=posix`, the access control lists that it is given).

mod adapter;
mod attr;
mod connection;
mod control;
mod counters;
mod courtesy;
mod device;
mod dispatcher;
mod error;
mod flags;
mod epoch;
mod freer;
pub mod handler;
mod held;
mod known;
mod membership;
mod mounts;
mod node;
mod operations;
mod options;
mod ring;
mod server;
mod serving;
mod session;
mod syncer;
#[cfg(test)]
mod testing;

pub use control::{SnapshotEntry, Snapshots};
pub use counters::{Counters, Opcode};
pub use device::available;
pub use error::{Error, Result};
pub use mounts::{FS_TYPE, Mounted, Watch, detach, detach_dead, is_dead, mounted_at, mounts};
pub use options::{MountOptions, SnapDir, Transport};
pub use serving::{Serving, serve};
pub use session::{Change, Mount, Unmount};
