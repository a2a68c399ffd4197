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
//! # Invariants with names
//!
//! Assertions in release builds name these. A violation ends the thread before anything wrong is committed: the pool
//! then takes no more changes, and the last committed state is whole.
//!
//! | id | invariant |
//! | --- | --- |
//! | SPACE-1 | Each sector of a chunk is either allocated, deferred or free, and in one free span at most. |
//! | SPACE-2 | A vdev's sums of free and of deferred sectors are those of its chunks. |
//! | SPACE-3 | Space freed by a group is allocated again only [`space::DEFERRED_GROUPS`] commits later. |
//! | SPACE-4 | Chunks and allocations are whole units, and the unit of a region never changes. |
//! | SPACE-5 | A region or a vdev that is given up has no allocated sectors. |
//! | SPACE-6 | One set of regions is emptied at a time, and nothing is allocated in a chunk that moves. |
//! | TXG-1 | Groups are written, synced and committed in ascending order, each once. |
//! | TXG-2 | A node is written in the group that made it. |
//! | TXG-3 | The intent log is replayed before the first commit. |
//! | TXG-4 | Open trees have different numbers. |
//! | TXG-5 | Reads without a look at the tree are of trees that never change. |
//! | TXG-6 | A counter of the uberblock has one owner. |
//! | TXG-7 | Records stored side by side are of one transaction group, with one number of copies. |
//! | VDEV-1 | At any time enough members of a mirror or a RAID-Z are complete. |
//! | VDEV-2 | A vdev has devices, and each has a column of the vdev. |
//! | ADMIN-1 | Each change of labels has a higher group than all labels before. |
//! | ADMIN-2 | Labels list vdevs by ascending id, each once. Other labels would be refused as damaged. |
//! | ADMIN-3 | An import goes on above every group that labels, uberblocks and the intent log name. |
//! | ADMIN-4 | The last device of a vdev leaves only with the vdev. |
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
pub mod size;
pub mod space;
pub mod tree;
pub mod txg;
pub mod units;
pub mod vdev;
