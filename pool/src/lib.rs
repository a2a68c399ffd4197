//! The storage engine under Cenote's file systems.
//!
//! A *pool* is a set of devices that share their space. Everything stored in it hangs from one block, the
//! *uberblock*, and nothing that a committed uberblock refers to is ever overwritten: a change copies, and a commit is
//! one write of a new uberblock. The layers, each calling only those below it:
//!
//! ```text
//! admin    create, open, close a pool                     check   verify one      inspect  look into one
//! txg      transaction groups: open, quiesce, sync; the worker threads
//! log      the intent log: frames of what was promised since the last commit
//! tree     the one persistent map: everything is a tree of (object, kind, offset) -> body and block
//! block    records on their way to and from the devices: compress, checksum, allocate, write; the read cache
//! secondary  cache devices: copies of what was read, on devices that nobody would miss
//! space    which parts of the devices are free: chunks, allocation, the space log
//! vdev     a virtual device: one device today, the seam for mirrors and RAID-Z
//! device   a file, a block device, memory; recording and faulty ones for tests
//! format   every on-disk structure; no I/O
//! ```
//!
//! This crate knows trees and blocks. What a dataset, a file or a snapshot is stands in the `dataset` crate, which
//! joins in through [`txg::SyncClient`].

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
