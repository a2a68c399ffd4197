//! The storage engine under Cenote's file systems.
//!
//! A *pool* is a set of devices that share their space. Everything in it hangs from one block, the *uberblock*. No
//! block of a committed state is ever overwritten: a change copies, and a commit is one write of a new uberblock. Each
//! layer calls only those below it:
//!
//! ```text
//! inspect    show a pool's structures
//! admin      create, import, change and export a pool
//! check      verify a whole pool
//! txg        transaction groups: open, quiesce, sync; the threads of an opened pool
//! log        the intent log: frames of synchronous changes since the last commit
//! tree       the persistent map, (object, kind, offset) -> body and block; its cache of nodes and data
//! secondary  cache devices: copies of blocks that were read
//! block      blocks on their way to and from the vdevs: compress, checksum, allocate, read, write, repair
//! space      free space: chunks, allocation, the space log
//! vdev       single devices, mirrors and RAID-Z; labels and uberblock rings
//! device     files, block devices, memory; recording and faulty devices for tests
//! format     every on-disk structure; no I/O
//! error      errors of all layers
//! env        the clock and the random numbers
//! units      sizes, GUIDs, transaction group numbers
//! ```
//!
//! This crate knows trees and blocks. The `dataset` crate defines datasets, files and snapshots, and joins in through
//! [`txg::SyncClient`].

pub mod admin;
pub mod block;
pub mod check;
pub mod device;
pub mod env;
pub mod error;
pub mod format;
pub mod inspect;
pub mod log;
pub mod secondary;
pub mod space;
pub mod tree;
pub mod txg;
pub mod units;
pub mod vdev;
