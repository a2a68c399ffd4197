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
//! (0, RECEIVING, hidden dataset's id)        Receiving
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
mod key;
mod moves;
mod page;
mod rows;
mod scrub;
mod shared;
mod space;
mod transaction;

pub use coding::Row;
pub use key::{FIRST_ID, MASTER, POOL, ROOT, dataset_key, keys, keys_from, keys_of, kind, receiving_key, snapshot_key};
pub use moves::{DefragmentRow, MoveState, PaceRow, RebalanceRow, RemovalRow, ResizeRow};
pub use page::{PAGE_BLOCKS, decode_page, encode_page};
pub use rows::{
    Bookmark, Bucket, DatasetRow, History, Hold, Link, Master, Named, ReceivingRow, SnapshotRow, Task, Value, Work,
};
pub use scrub::{DamageRow, ScrubPosition, ScrubRow, ScrubState};
pub use shared::{SHARING, SharedRow, SharingRow, shared_address, shared_key};
pub use space::Space;
pub use transaction::{Body, Effect, Transaction};
