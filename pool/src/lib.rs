//! The storage engine under Cenote's file systems.
//!
//! A *pool* is a set of devices that share their space. Everything in it hangs from one block, the *uberblock*. No
//! block of a committed state is ever overwritten: a change copies, and a commit is one write of a new uberblock. Each
//! layer calls only those below it:
//!
//! ```text
//! admin    create, open, close a pool                     check   verify a pool      inspect  look into a pool
//! txg      transaction groups: open, quiesce, sync; the worker threads
//! log      the intent log: frames of changes made durable since the last commit
//! tree     the one persistent map: everything is a tree of (object, kind, offset) -> body and block
//! block    records on their way to and from the devices: compress, checksum, allocate, write; the read cache
//! secondary  cache devices: copies of blocks that were read, lost without harm
//! space    which parts of the devices are free: chunks, allocation, the space log
//! vdev     top-level vdevs: a device, a mirror or a RAID-Z; resilver and repair of their members
//! device   a file, a block device, memory; recording and faulty devices for tests
//! format   every on-disk structure; no I/O
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
