//! The rows of datasets, snapshots, deadlists and history. For the byte tables see `dataset/FORMAT.md`, "Catalogue".

use pool::units::{Guid, Txg};

use super::{
    coding::{Field, row},
    space::Space,
};
use pool::format::codec::{Malformed, Reader, malformed};

row! {
    /// The master row: counters of the whole pool.
    Master, "catalogue" {
        /// The next id for a dataset, snapshot, list or piece of work. Ids are never reused.
        next_id: u64,
        /// The number of the next line of the history.
        next_history: u64,
        /// The space of all datasets together on the devices, without reservations.
        physical: Space,
        /// The space that background work has still to free.
        freeing: Space,
    }
}

row! {
    /// A dataset: its position, tree and counters. The item's block is the root of the tree.
    DatasetRow, "dataset" {
        /// The parent dataset; 0 for the pool's root dataset.
        parent: u64,
        /// The name below the parent; empty for the pool's root dataset, which has the pool's name.
        name: String,
        /// The GUID; never changes.
        guid: Guid,
        /// The creation time, in nanoseconds since 1970.
        creation: i64,
        /// The txg of the creation.
        createtxg: Txg,
        /// The level of the tree's root.
        level: u8,
        /// Whether the dataset is hidden: a receive is filling the dataset.
        hidden: bool,
        /// The number of children.
        children: u64,
        /// The number of snapshots.
        snapshots: u64,
        /// When a snapshot was last taken or destroyed, in nanoseconds since 1970; 0 for never.
        snapshots_changed: i64,
        /// The newest snapshot, or without a snapshot the origin; 0 for neither.
        newest: u64,
        /// The txg of `newest`.
        newest_txg: Txg,
        /// The space referenced by `newest`.
        newest_referenced: Space,
        /// For a clone the origin snapshot, otherwise 0.
        origin: u64,
        /// The txg of the origin, otherwise 0. Blocks born up to then are charged to the origin's dataset.
        origin_txg: Txg,
        /// The space of the tree's blocks.
        referenced: Space,
        /// The id of the deadlist.
        deadlist: u64,
        /// The space of the deadlist: blocks of `newest` that the dataset no longer has.
        dead: Space,
        /// The space of the tree's blocks born after the origin.
        used_head: Space,
        /// The space of blocks born after the origin on the deadlists of the dataset and its snapshots.
        used_snapshots: Space,
        /// The sum of the children's charges.
        used_children: Space,
        /// The limit of used space in bytes, descendants included; 0 for none.
        quota: u64,
        /// The limit of referenced space in bytes; 0 for none.
        refquota: u64,
        /// The bytes reserved for the dataset and its descendants.
        reservation: u64,
        /// The bytes reserved for the dataset alone.
        refreservation: u64,
    }
}

row! {
    /// A name, stored under its hash: leads from a parent to a child, or from a dataset to a snapshot.
    Named, "name" {
        /// The name below the parent or dataset.
        name: String,
        /// The id of the child or snapshot.
        id: u64,
    }
}

row! {
    /// The value of a property, set or received.
    Value, "property" {
        /// The property's name.
        name: String,
        /// The canonical value. `None` hides a received value, so that the property is inherited.
        value: Option<String>,
    }
}

row! {
    /// A snapshot. The item's block is the root of its tree.
    SnapshotRow, "snapshot" {
        /// The dataset that owns the snapshot.
        dataset: u64,
        /// The name after the `@`.
        name: String,
        /// The GUID; a received snapshot keeps its GUID.
        guid: Guid,
        /// The creation time, in nanoseconds since 1970.
        creation: i64,
        /// The txg whose state the snapshot shows.
        createtxg: Txg,
        /// The level of the tree's root.
        level: u8,
        /// The previous snapshot, or the origin of the dataset; 0 for neither.
        previous: u64,
        /// The txg of `previous`.
        previous_txg: Txg,
        /// The next snapshot; 0 if the dataset itself is next.
        next: u64,
        /// The space of the tree's blocks.
        referenced: Space,
        /// The id of the deadlist.
        deadlist: u64,
        /// The space of the deadlist: blocks of `previous` that the snapshot no longer has.
        dead: Space,
        /// The number of holds.
        holds: u64,
        /// The number of clones.
        clones: u64,
        /// Whether the snapshot is destroyed with its last hold and clone.
        deferred: bool,
    }
}

row! {
    /// A hold: prevents a snapshot from being destroyed.
    Hold, "hold" {
        /// The tag, unique for the snapshot.
        name: String,
        /// When the hold was placed, in nanoseconds since 1970.
        time: i64,
    }
}

row! {
    /// A bookmark: the facts about a snapshot needed as the base of an incremental send.
    Bookmark, "bookmark" {
        /// The name after the `#`.
        name: String,
        /// The snapshot's GUID.
        guid: Guid,
        /// The snapshot's creation time, in nanoseconds since 1970.
        creation: i64,
        /// The snapshot's txg.
        createtxg: Txg,
        /// The space referenced by the snapshot.
        referenced: Space,
    }
}

row! {
    /// A bucket of a deadlist: blocks born after the txg in the key, and not after the next snapshot.
    Bucket, "deadlist" {
        /// The first list of the chain.
        first: u64,
        /// The last list of the chain, to which pages are appended.
        last: u64,
        /// The number of blocks.
        count: u64,
        /// The space of the blocks.
        space: Space,
    }
}

row! {
    /// The successor of a list. The last list of a chain has no such row.
    Link, "list" {
        /// The id of the next list.
        next: u64,
    }
}

row! {
    /// A line of the pool's history.
    History, "history" {
        /// The time, in nanoseconds since 1970.
        time: i64,
        /// The txg in which the entry was written.
        txg: Txg,
        /// The command line as given.
        command: String,
        /// The user that gave the command.
        user: String,
        /// The host on which the command was given.
        host: String,
    }
}

row! {
    /// A receive that can be resumed: the hidden dataset that keeps its content is in the key.
    ReceivingRow, "receive" {
        /// The dataset that gets the content; the hidden dataset itself, if the receive creates a dataset.
        target: u64,
        /// The full name of the snapshot at the sender.
        snapshot: String,
        /// The GUID of the snapshot.
        guid: Guid,
        /// The GUID of the increment's base; `None` for a full stream.
        base: Option<Guid>,
        /// Whether the stream has properties.
        properties: bool,
    }
}

row! {
    /// Background work that survives a crash. For a tree, the item's block is the root of the tree to free.
    Work, "work" {
        /// What is to be freed.
        task: Task,
        /// The space still to be freed.
        remaining: Space,
    }
}

/// The task of a [`Work`] row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Free the blocks of a tree.
    Tree {
        /// The level of the root.
        level: u8,
        /// Only blocks born after the txg are freed: older blocks belong to a snapshot.
        after: Txg,
        /// Lower keys are done, and so is each node that ends at or before the cursor.
        cursor: (u64, u8, u64),
    },
    /// Free a chain of lists, and with `blocks` also the blocks on the lists.
    Lists {
        /// The id of the first list.
        first: u64,
        /// Whether the blocks on the lists are freed too. If not, the tree that had dropped the blocks was restored.
        blocks: bool,
    },
}

impl Default for Task {
    fn default() -> Task {
        Task::Lists { first: 0, blocks: false }
    }
}

impl Field for Task {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Task::Tree { level, after, cursor } => {
                0u8.put(out);
                level.put(out);
                after.put(out);
                cursor.put(out);
            }
            Task::Lists { first, blocks } => {
                1u8.put(out);
                first.put(out);
                blocks.put(out);
            }
        }
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<Task, Malformed> {
        match u8::take(reader, what)? {
            0 => Ok(Task::Tree {
                level: u8::take(reader, what)?,
                after: Txg::take(reader, what)?,
                cursor: <(u64, u8, u64)>::take(reader, what)?,
            }),
            1 => Ok(Task::Lists { first: u64::take(reader, what)?, blocks: bool::take(reader, what)? }),
            _ => malformed(what),
        }
    }
}

impl DatasetRow {
    /// Whether users see the dataset: no receive fills it, or the receive can be resumed and creates the dataset.
    pub fn is_listed(&self) -> bool {
        !self.hidden || !self.name.starts_with('%')
    }

    /// The space of the tree's blocks missing from the newest snapshot: the loss of a rollback.
    pub fn unique(&self) -> Space {
        self.referenced - (self.newest_referenced - self.dead)
    }

    /// The part of the refreservation not covered by unique space, in bytes.
    pub fn reserved_for_head(&self) -> u64 {
        self.refreservation.saturating_sub(self.unique().allocated)
    }

    /// The space used by the dataset and its descendants. The allocated bytes include the unused refreservation.
    pub fn used(&self) -> Space {
        let mut used = self.used_head + self.used_snapshots + self.used_children;
        used.allocated = used.allocated.saturating_add(self.reserved_for_head());
        used
    }

    /// The charge to the parent: the used space, or the reservation if larger.
    pub fn charge(&self) -> Space {
        let used = self.used();
        Space { allocated: used.allocated.max(self.reservation), ..used }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::catalogue::Row;
    use proptest::prelude::*;

    fn any_space() -> impl Strategy<Value = Space> {
        any::<[u64; 2]>().prop_map(|[allocated, logical]| Space { allocated, logical })
    }

    pub(in crate::catalogue) fn round_trips<R: Row + PartialEq + std::fmt::Debug>(row: &R) {
        let bytes = row.encode();
        assert_eq!(R::decode(&bytes).as_ref(), Ok(row));
        for len in 0..bytes.len() {
            assert!(R::decode(&bytes[..len]).is_err(), "{} cut at {len}", R::WHAT);
        }
        assert!(R::decode(&[&bytes[..], &[0]].concat()).is_err());
        let newer = [&[9], &bytes[1..]].concat();
        assert!(R::decode(&newer).is_err());
    }

    proptest! {
        #[test]
        fn rows_round_trip(ids: [u64; 8], spaces in prop::collection::vec(any_space(), 6), name in ".{0,40}", flag: bool) {
            round_trips(&DatasetRow {
                parent: ids[0], name: name.clone(), guid: Guid(ids[1]), creation: ids[2].cast_signed(),
                createtxg: Txg(ids[3]), newest: ids[4], newest_referenced: spaces[0], origin: ids[5],
                referenced: spaces[1], dead: spaces[2], used_head: spaces[3], used_snapshots: spaces[4],
                used_children: spaces[5], quota: ids[6], hidden: flag, ..DatasetRow::default()
            });
            round_trips(&SnapshotRow {
                dataset: ids[0], name: name.clone(), guid: Guid(ids[1]), previous: ids[2], next: ids[3],
                referenced: spaces[0], dead: spaces[1], deferred: flag, ..SnapshotRow::default()
            });
            round_trips(&Value { name: name.clone(), value: flag.then(|| name.clone()) });
            round_trips(&ReceivingRow {
                target: ids[0], snapshot: name.clone(), guid: Guid(ids[1]), base: flag.then_some(Guid(ids[2])), properties: flag,
            });
            round_trips(&Bucket { first: ids[0], last: ids[1], count: ids[2], space: spaces[0] });
            let cursor = (ids[0], ids[1] as u8, ids[2]);
            round_trips(&Work { task: Task::Tree { level: 3, after: Txg(ids[3]), cursor }, remaining: spaces[0] });
            round_trips(&Work { task: Task::Lists { first: ids[0], blocks: flag }, remaining: spaces[0] });
            round_trips(&History { command: name.clone(), user: name, time: -1, ..History::default() });
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&[1], &bytes[..]].concat();
            let _ = DatasetRow::decode(&bytes);
            let _ = SnapshotRow::decode(&bytes);
            let _ = Work::decode(&bytes);
            let _ = Bucket::decode(&bytes);
            let _ = Value::decode(&bytes);
        }
    }

    #[test]
    fn reservations_count_as_used_until_they_are_filled() {
        let space = |allocated| Space { allocated, logical: allocated };
        let mut row =
            DatasetRow { referenced: space(30), used_head: space(30), refreservation: 100, ..DatasetRow::default() };
        assert_eq!(row.used().allocated, 100);
        assert_eq!(row.used().logical, 30);
        row.reservation = 150;
        assert_eq!(row.charge().allocated, 150);
        // After a snapshot all blocks are shared: the whole refreservation counts again.
        row.newest_referenced = row.referenced;
        assert_eq!(row.used().allocated, 130);
    }
}
