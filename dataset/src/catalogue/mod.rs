//! The catalogue (OpenZFS: the MOS): the single tree of a pool that lists all datasets and snapshots.
//!
//! A row is an item of the tree, and every operation on datasets changes some rows. All changes of one command are
//! applied together in the syncing context of one txg ([`Transaction`]), so after a crash all of the changes are there,
//! or none.
//!
//! ```text
//! key (object, kind, offset)                 row                  block
//! (0, MASTER, 0)                             Master
//! (id, DATASET, 0)                           Dataset              root of its tree
//! (parent id, CHILD, hash of name)           Named: its id
//! (id, PROPERTY, hash of name)               Value                              of a dataset, a snapshot, the pool (0)
//! (id, RECEIVED, hash of name)               Value, received
//! (snapshot id, SNAPSHOT, 0)                 Snapshot             root of its tree
//! (dataset id, SNAPSHOT_NAME, hash)         Named: its id
//! (dataset id, SNAPSHOT_TXG, createtxg)     the snapshot's id
//! (snapshot id, CLONE, dataset id)          nothing
//! (snapshot id, HOLD, hash of tag)           Hold
//! (dataset id, BOOKMARK, hash of name)      Bookmark
//! (deadlist id, DEADLIST, txg)               Bucket
//! (list id, LINK, 0)                         Link: the next list
//! (list id, PAGE, number)                    block pointers       more of them
//! (0, WORK, id)                              Work                 root of a tree to free
//! (0, HISTORY, number)                       History
//! (0, SCRUB, 0)                              Scrub
//! (0, DAMAGE, number)                        Damage
//! (0, SHARED, address)                       Shared
//! (0, SHARING, 0)                            Sharing
//! (0, REMOVAL, 0)                            Removal
//! (0, REBALANCE, 0)                          Rebalance
//! (0, PACE, 0)                               Pace
//! (0, DEFRAGMENT, 0)                         Defragmentation
//! (0, RESIZE, 0)                             Resize
//! ```
//!
//! Datasets, snapshots, deadlists, lists and pieces of work draw their ids from one counter; no id is reused. The root
//! dataset is [`ROOT`]. A name is stored under its hash; names with equal hashes are neighbours.
//!
//! The catalogue does not interpret relations between rows: see `lineage`.

mod coding;
#[cfg(test)]
mod document;
mod hashed;
mod moves;
mod page;
mod rows;
mod scrub;
mod shared;
mod space;
mod transaction;

use pool::format::key::Key;

pub use coding::Row;
pub use moves::{DefragmentRow, MoveState, PaceRow, RebalanceRow, RemovalRow, ResizeRow};
pub use page::{PAGE_BLOCKS, decode_page, encode_page};
pub use rows::{Bookmark, Bucket, DatasetRow, History, Hold, Link, Master, Named, SnapshotRow, Task, Value, Work};
pub use scrub::{DamageRow, ScrubPosition, ScrubRow, ScrubState};
pub use shared::{SHARING, SharedRow, SharingRow, shared_address, shared_key};
pub use space::Space;
pub use transaction::{Body, Effect, Transaction};

/// The pool's root dataset.
pub const ROOT: u64 = 1;
/// The first id drawn from the counter.
pub const FIRST_ID: u64 = 2;
/// The object number of the pool's own rows.
pub const POOL: u64 = 0;

/// The kinds of rows.
pub mod kind {
    /// The catalogue's master row.
    pub const MASTER: u8 = 1;
    /// A dataset, by its id.
    pub const DATASET: u8 = 2;
    /// A child's name below its parent.
    pub const CHILD: u8 = 3;
    /// A property set locally.
    pub const PROPERTY: u8 = 4;
    /// A property received with a stream.
    pub const RECEIVED: u8 = 5;
    /// A snapshot, by its id.
    pub const SNAPSHOT: u8 = 6;
    /// A snapshot's name in its dataset.
    pub const SNAPSHOT_NAME: u8 = 7;
    /// A snapshot's position in the line of its dataset.
    pub const SNAPSHOT_TXG: u8 = 8;
    /// A clone of a snapshot.
    pub const CLONE: u8 = 9;
    /// A hold on a snapshot.
    pub const HOLD: u8 = 10;
    /// A bookmark of a dataset.
    pub const BOOKMARK: u8 = 11;
    /// A bucket of a deadlist.
    pub const DEADLIST: u8 = 12;
    /// The successor of a list.
    pub const LINK: u8 = 13;
    /// A page of a list of blocks.
    pub const PAGE: u8 = 14;
    /// Background work that frees trees and lists.
    pub const WORK: u8 = 15;
    /// A line of history.
    pub const HISTORY: u8 = 16;
    /// The current scrub, or the last.
    pub const SCRUB: u8 = 17;
    /// Damage that could not be repaired.
    pub const DAMAGE: u8 = 18;
    /// A block with more than one reference.
    pub const SHARED: u8 = 19;
    /// The totals of all shared blocks.
    pub const SHARING: u8 = 20;
    /// The removal of a vdev.
    pub const REMOVAL: u8 = 21;
    /// The current rebalance, or the last.
    pub const REBALANCE: u8 = 22;
    /// The speed of jobs that move chunks.
    pub const PACE: u8 = 23;
    /// The defragmentation.
    pub const DEFRAGMENT: u8 = 24;
    /// The resize of the devices of a vdev.
    pub const RESIZE: u8 = 25;
}

/// The key of the master row.
pub const MASTER: Key = Key::new(POOL, kind::MASTER, 0);

/// The key of a dataset.
pub const fn dataset_key(id: u64) -> Key {
    Key::new(id, kind::DATASET, 0)
}

/// The key of a snapshot.
pub const fn snapshot_key(id: u64) -> Key {
    Key::new(id, kind::SNAPSHOT, 0)
}

/// The keys of one kind of one object, from `offset` on.
pub fn keys_from(object: u64, kind: u8, offset: u64) -> std::ops::Range<Key> {
    Key::new(object, kind, offset)..Key::new(object, kind + 1, 0)
}

/// The keys of one kind of one object.
pub fn keys(object: u64, kind: u8) -> std::ops::Range<Key> {
    keys_from(object, kind, 0)
}

/// All keys of one object.
pub fn keys_of(object: u64) -> std::ops::Range<Key> {
    Key::new(object, 0, 0)..Key::new(object, u8::MAX, u64::MAX)
}
