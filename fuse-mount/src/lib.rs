//! The kernel's side of a dataset: FUSE requests in, calls on one [`dataset::fs::FileSystem`] out.
//!
//! ```text
//! session     one mount of a dataset: made, watched, invalidated, taken down
//! serving     the threads of a connection, how they begin and how they end
//! connection  which connection with the kernel a mount has, and how to cut it
//! adapter     the handshake, made by `fuser`
//! channel     the transport through /dev/fuse; syncer waits for its fsyncs
//! crew        the threads of all mounts; errand those for what requests leave to be done later
//! ring        the transport through io_uring, where the kernel has it
//! courtesy    who runs when an answer is there: the program that waited, or the thread that gave it
//! handler     what the kernel may ask for: the seam between transports and file systems
//! dispatcher  a dataset's answers, one short method for each request
//! operations  what a request does, where that takes more than one call
//! server      what a request means: which file system a node belongs to, what may be changed
//! control     `.zfs`: the virtual directory through which snapshots are browsed
//! held        what the kernel holds, and what of it has become stale
//! recall      pages that show what is not stored: given the stored bytes, or dropped
//! freer       frees removed files once the kernel has forgotten them
//! epoch       has all names looked up again, by one message
//! known       the names it must forget after a change, and those it must not for the sake of mounts below
//! node        node numbers: which snapshot, which object
//! attr        file types in FUSE's words
//! flags       chattr's and lsattr's words for attributes
//! membership  which groups a program is in
//! device      getting a connected /dev/fuse descriptor: mount(2) as root, fusermount3 for everybody else
//! mounts      the mounts that exist, whoever made them, and getting rid of dead ones
//! options     properties as mount options           counters   requests by kind
//! ```
//!
//! There is no file system logic here: names, permissions of new files, times, sizes and space are `dataset`'s. What
//! this crate decides is what the kernel may cache. The kernel is the only writer of a mounted dataset, so it may
//! keep names, absent names, attributes, directory listings and data for as long as it likes; whoever changes the dataset
//! otherwise (a rollback, a received stream) says so through [`Mount::begin_change`].
//!
//! Opening a file is a request, for it decides: nothing in a snapshot can be opened to be written. It is answered by what a
//! file's attributes say, and nothing has to be remembered but how many may have it mapped to be written. Where snapshots
//! cannot be browsed (`snapdir=disabled`) the first open is answered with "not implemented", which tells the kernel to stop
//! asking. What an open file keeps alive is in either case the *node*: an unlinked file lives until the kernel forgets its
//! node.
//!
//! Not here: locks (the kernel keeps them, as for a local file system), access checks (the kernel makes them, from the
//! modes and, with `acltype=posix`, the access control lists that it is given).

mod adapter;
mod attr;
mod channel;
mod connection;
mod control;
mod counters;
mod courtesy;
mod crew;
mod device;
mod dispatcher;
mod epoch;
mod errand;
mod error;
mod flags;
mod freer;
pub mod handler;
mod held;
mod known;
mod membership;
mod mountpoint;
mod mounts;
mod node;
mod operations;
mod options;
mod recall;
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
pub use mountpoint::MountPoint;
pub use mounts::{FS_TYPE, Mounted, Watch, detach, detach_dead, is_dead, mounted_at, mounts};
pub use options::{MountOptions, SnapDir, Transport};
pub use serving::{Serving, serve};
pub use session::{Change, Mount, Unmount};
