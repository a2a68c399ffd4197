//! The rows themselves. Their byte tables stand in `dataset/FORMAT.md`, "Catalogue".

use pool::units::{Guid, Txg};

use super::{
    coding::{Field, row},
    space::Space,
};
use pool::format::codec::{Malformed, Reader, malformed};

row! {
    /// The catalogue's own row: what belongs to no dataset.
    Master, "catalogue" {
        /// The id that the next dataset, snapshot, list or piece of work gets. Ids are never used twice.
        next_id: u64,
        /// The number of the next line of the history.
        next_history: u64,
        /// What all datasets together take on the devices, reservations not counted.
        physical: Space,
        /// What background work has still to free.
        freeing: Space,
    }
}

row! {
    /// A dataset: its place, its tree and its counters. The item's block is the root of its tree.
    DatasetRow, "dataset" {
        /// The dataset above; 0 for the pool's root.
        parent: u64,
        /// Its name below the parent; empty for the pool's root, which is named like the pool.
        name: String,
        /// Its name for life.
        guid: Guid,
        /// When it was created, in nanoseconds since 1970.
        creation: i64,
        /// The transaction group that created it.
        createtxg: Txg,
        /// The level of its tree's root.
        level: u8,
        /// Whether it is hidden: a receive is filling it.
        hidden: bool,
        /// How many datasets are right below it.
        children: u64,
        /// How many snapshots it has.
        snapshots: u64,
        /// When a snapshot last came or went, in nanoseconds since 1970; 0 for never.
        snapshots_changed: i64,
        /// Its newest snapshot, or its origin if it has none of its own; 0 for neither.
        newest: u64,
        /// When that one was taken.
        newest_txg: Txg,
        /// What that one references.
        newest_referenced: Space,
        /// The snapshot that it is a clone of, or 0.
        origin: u64,
        /// When that one was taken; 0 without one. Blocks born up to then are charged to the origin's dataset.
        origin_txg: Txg,
        /// The blocks of its tree.
        referenced: Space,
        /// The id of its deadlist.
        deadlist: u64,
        /// The blocks on its deadlist: those that the newest snapshot has and it has not.
        dead: Space,
        /// The blocks of its tree that were born after its origin.
        used_head: Space,
        /// The blocks on its own deadlist and those of its snapshots that were born after its origin.
        used_snapshots: Space,
        /// What the datasets below it are charged.
        used_children: Space,
        /// The most it may use, datasets below counted; 0 for no limit.
        quota: u64,
        /// The most it may reference; 0 for no limit.
        refquota: u64,
        /// The least set aside for it and the datasets below.
        reservation: u64,
        /// The least set aside for it alone.
        refreservation: u64,
    }
}

row! {
    /// A name: what stands under its hash. It leads from a parent to a child, or from a dataset to a snapshot.
    Named, "name" {
        /// The name.
        name: String,
        /// What bears it.
        id: u64,
    }
}

row! {
    /// A property's value that was set or received.
    Value, "property" {
        /// The property.
        name: String,
        /// Its canonical value. `None` hides a received value: the property is inherited all the same.
        value: Option<String>,
    }
}

row! {
    /// A snapshot. The item's block is the root of its tree.
    SnapshotRow, "snapshot" {
        /// The dataset it belongs to.
        dataset: u64,
        /// Its name after the `@`.
        name: String,
        /// Its name for life; a received snapshot keeps it.
        guid: Guid,
        /// When it was taken, in nanoseconds since 1970.
        creation: i64,
        /// The transaction group whose state it is.
        createtxg: Txg,
        /// The level of its tree's root.
        level: u8,
        /// The snapshot before, or the origin of its dataset; 0 for neither.
        previous: u64,
        /// When that one was taken.
        previous_txg: Txg,
        /// The snapshot after; 0 if that is the dataset itself.
        next: u64,
        /// The blocks of its tree.
        referenced: Space,
        /// The id of its deadlist.
        deadlist: u64,
        /// The blocks on its deadlist: those that the one before has and it has not.
        dead: Space,
        /// How many holds it has.
        holds: u64,
        /// How many clones it has.
        clones: u64,
        /// Whether it is to go with its last hold and clone.
        deferred: bool,
    }
}

row! {
    /// A hold: a reason for which a snapshot must not be destroyed.
    Hold, "hold" {
        /// The reason.
        name: String,
        /// When it was made, in nanoseconds since 1970.
        time: i64,
    }
}

row! {
    /// What a snapshot leaves behind to send increments from.
    Bookmark, "bookmark" {
        /// Its name after the `#`.
        name: String,
        /// The snapshot's.
        guid: Guid,
        /// The snapshot's.
        creation: i64,
        /// The snapshot's.
        createtxg: Txg,
        /// The snapshot's.
        referenced: Space,
    }
}

row! {
    /// A bucket of a deadlist: the blocks born after the transaction group in the key, and not after the next snapshot.
    Bucket, "deadlist" {
        /// The first of the lists that hold them.
        first: u64,
        /// The last one, to which is appended.
        last: u64,
        /// How many blocks they are.
        count: u64,
        /// What the blocks take.
        space: Space,
    }
}

row! {
    /// Which list follows one. A list without such a row is the last.
    Link, "list" {
        /// The list that follows.
        next: u64,
    }
}

row! {
    /// A line of the pool's history.
    History, "history" {
        /// When, in nanoseconds since 1970.
        time: i64,
        /// The transaction group.
        txg: Txg,
        /// The command line.
        command: String,
        /// Who gave it.
        user: String,
        /// Where.
        host: String,
    }
}

row! {
    /// Work that goes on in the background and survives a crash. The item's block is the root of the tree to free.
    Work, "work" {
        /// What is to be done.
        task: Task,
        /// What is still to be freed.
        remaining: Space,
    }
}

/// What a [`Work`] row asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Free the blocks of a tree.
    Tree {
        /// The level of its root.
        level: u8,
        /// Only blocks born after this: older ones belong to a snapshot.
        after: Txg,
        /// Keys below this one are done, and so is each node whose range ends there or before.
        cursor: (u64, u8, u64),
    },
    /// Free a chain of lists, and the blocks on them if `blocks` says so.
    Lists {
        /// The first list.
        first: u64,
        /// Whether the blocks on them are free too. If not, the tree that they were dropped from has come back.
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
    /// The blocks of the tree that the newest snapshot has not: what a rollback would throw away.
    pub fn unique(&self) -> Space {
        self.referenced - (self.newest_referenced - self.dead)
    }

    /// What the refreservation sets aside beyond what is unique to the dataset, in bytes.
    pub fn reserved_for_head(&self) -> u64 {
        self.refreservation.saturating_sub(self.unique().allocated)
    }

    /// What it and everything below it uses. The refreservation counts in the allocated bytes.
    pub fn used(&self) -> Space {
        let mut used = self.used_head + self.used_snapshots + self.used_children;
        used.allocated = used.allocated.saturating_add(self.reserved_for_head());
        used
    }

    /// What the dataset above is charged for it: what it uses, or its reservation if that is more.
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
        // A snapshot makes all of it shared: the whole refreservation is set aside again.
        row.newest_referenced = row.referenced;
        assert_eq!(row.used().allocated, 130);
    }
}
