//! The keys of the catalogue's rows, and the objects and kinds in keys.

use pool::format::key::Key;

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
    /// A receive that can be resumed.
    pub const RECEIVING: u8 = 26;
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

/// The key of the receive that fills the hidden dataset `id`.
pub const fn receiving_key(id: u64) -> Key {
    Key::new(POOL, kind::RECEIVING, id)
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
