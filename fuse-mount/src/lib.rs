//! The kernel's side of a dataset: FUSE requests in, calls on one [`dataset::fs::FileSystem`] out.
//!
//! ```text
//! session     a mount of a dataset: make, watch, invalidate, unmount
//! serving     the threads of a connection, their begin and end
//! connection  the mount's connection with the kernel, and cutting it
//! adapter     the handshake, made by `fuser`
//! channel     the transport through /dev/fuse; syncer waits for its fsyncs
//! crew        the threads of all mounts; errand: threads for deferred parts of requests
//! ring        the transport through io_uring, on kernels with the ring
//! courtesy    whether the waiting program or the answering thread runs when an answer is ready
//! handler     the possible requests of the kernel: the seam between transports and file systems
//! dispatcher  a dataset's answers, a short method for each request
//! operations  requests with several calls
//! server      the meaning of a request: the node's file system, the allowed changes
//! control     `.zfs`: the virtual directory for browsing snapshots
//! held        the nodes held by the kernel, and the stale nodes among them
//! recall      cached pages different from the stored bytes: corrected, or dropped
//! freer       frees removed files after the kernel has forgotten them
//! epoch       invalidates all names by a single message
//! known       names to invalidate after a change, and names to spare because of mounts below
//! node        node numbers: the snapshot and the object
//! attr        file types in FUSE's encoding
//! flags       attribute flags of chattr and lsattr
//! membership  the groups of a program
//! device      getting a connected /dev/fuse descriptor: mount(2) as root, else fusermount3
//! mounts      the mounts on the machine, of all services, and removal of dead mounts
//! options     properties as mount options           counters   requests by kind
//! activity    requests by user, process and file, while someone watches
//! ```
//!
//! There is no file system logic here: names, permissions of new files, times, sizes and space belong to `dataset`.
//! This crate decides what the kernel may cache. The kernel is the only writer of a mounted dataset, so it may keep
//! names, absent names, attributes, directory listings and data without limit. Code that changes the dataset otherwise
//! (a rollback, a received stream) announces the change through [`Mount::begin_change`].
//!
//! Opening a file sends a request, because opening can be refused: no file in a snapshot opens for writing. The answer
//! follows from the file's attributes; the only state kept is how many opens may have the file mapped for writing.
//! Where snapshots cannot be browsed (`snapdir=disabled`), the first open is answered "not implemented", and the kernel
//! stops asking. In either case an open file keeps the *node* alive: an unlinked file lives until the kernel forgets
//! its node.
//!
//! Not here: locks (the kernel keeps them, as for a local file system) and access checks (the kernel checks the modes
//! and, with `acltype=posix`, the access control lists).

mod activity;
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

pub use activity::{Actor, Done};
pub use control::{SnapshotEntry, Snapshots};
pub use counters::{Counters, Opcode};
pub use device::available;
pub use error::{Error, Result};
pub use mountpoint::MountPoint;
pub use mounts::{FS_TYPE, Mounted, Watch, detach, detach_dead, is_dead, mounted_at, mountpoints_below, mounts};
pub use options::{MountOptions, Owner, Transport};
pub use serving::{Serving, serve};
pub use session::{Change, Mount, Unmount};
