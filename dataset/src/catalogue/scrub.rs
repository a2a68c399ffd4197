//! The rows of a scrub and of what it has found. Their byte tables stand in `dataset/FORMAT.md`, "Catalogue".

use pool::{
    format::codec::{Malformed, Reader, malformed},
    units::Txg,
};

use super::coding::{Field, row};

/// A key, in parts: object, kind, offset.
type Cursor = (u64, u8, u64);

row! {
    /// The scrub of the pool: the one that runs, or the last one.
    ScrubRow, "scrub" {
        /// How it stands.
        state: ScrubState,
        /// When it began, in nanoseconds since 1970.
        start: i64,
        /// When it ended or was paused, in nanoseconds since 1970; 0 while it runs.
        end: i64,
        /// How long it has worked, in nanoseconds.
        elapsed: u64,
        /// Blocks born after this transaction group are not its business.
        limit: Txg,
        /// What was allocated when it began, in bytes.
        total: u64,
        /// What it has read, in bytes, all copies counted.
        examined: u64,
        /// What it has written over bad copies, in bytes.
        repaired: u64,
        /// How many blocks it found without a good copy.
        errors: u64,
        /// What comes next.
        position: ScrubPosition,
    }
}

row! {
    /// Damage that could not be repaired: objects of a tree that have lost something.
    DamageRow, "damage" {
        /// The dataset or snapshot; 0 for the pool's own structures.
        tree: u64,
        /// The first object.
        first: u64,
        /// The last object.
        last: u64,
        /// When it was first found, in nanoseconds since 1970.
        time: i64,
        /// The transaction group in which it was last confirmed.
        seen: Txg,
    }
}

/// How a scrub stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ScrubState {
    /// At work, whenever the pool is open.
    #[default]
    Running = 1,
    /// Waiting to be resumed.
    Paused = 2,
    /// All was examined.
    Finished = 3,
    /// Given up.
    Stopped = 4,
}

impl Field for ScrubState {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<ScrubState, Malformed> {
        match u8::take(reader, what)? {
            1 => Ok(ScrubState::Running),
            2 => Ok(ScrubState::Paused),
            3 => Ok(ScrubState::Finished),
            4 => Ok(ScrubState::Stopped),
            _ => malformed(what),
        }
    }
}

/// Where a scrub goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubPosition {
    /// With the labels and uberblocks.
    #[default]
    Labels,
    /// With the space layer's blocks.
    Space {
        /// The device on which the next block's first copy lies.
        vdev: u32,
        /// Its offset there.
        offset: u64,
    },
    /// With the catalogue's tree.
    Catalogue {
        /// Keys below this one are done.
        cursor: Cursor,
    },
    /// With the datasets, in the order of their ids.
    Datasets {
        /// This one.
        dataset: u64,
        /// Its snapshots up to this transaction group are done, and so are blocks born up to then.
        done: Txg,
        /// The snapshot that is being examined, or the dataset itself; 0 for neither yet.
        member: u64,
        /// Keys of it below this one are done.
        cursor: Cursor,
    },
}

impl Field for ScrubPosition {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            ScrubPosition::Labels => 0u8.put(out),
            ScrubPosition::Space { vdev, offset } => {
                1u8.put(out);
                u64::from(*vdev).put(out);
                offset.put(out);
            }
            ScrubPosition::Catalogue { cursor } => {
                2u8.put(out);
                cursor.put(out);
            }
            ScrubPosition::Datasets { dataset, done, member, cursor } => {
                3u8.put(out);
                dataset.put(out);
                done.put(out);
                member.put(out);
                cursor.put(out);
            }
        }
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<ScrubPosition, Malformed> {
        match u8::take(reader, what)? {
            0 => Ok(ScrubPosition::Labels),
            1 => Ok(ScrubPosition::Space { vdev: reader.varint32(what)?, offset: u64::take(reader, what)? }),
            2 => Ok(ScrubPosition::Catalogue { cursor: Cursor::take(reader, what)? }),
            3 => Ok(ScrubPosition::Datasets {
                dataset: u64::take(reader, what)?,
                done: Txg::take(reader, what)?,
                member: u64::take(reader, what)?,
                cursor: Cursor::take(reader, what)?,
            }),
            _ => malformed(what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Row, rows::tests::round_trips};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_round_trip(ids: [u64; 8], flag: bool) {
            let cursor = (ids[0], ids[1] as u8, ids[2]);
            round_trips(&DamageRow { tree: ids[0], first: ids[1], last: ids[2], time: -1, seen: Txg(ids[3]) });
            for position in [
                ScrubPosition::Labels,
                ScrubPosition::Space { vdev: ids[0] as u32, offset: ids[1] },
                ScrubPosition::Catalogue { cursor },
                ScrubPosition::Datasets { dataset: ids[2], done: Txg(ids[3]), member: ids[4], cursor },
            ] {
                round_trips(&ScrubRow {
                    state: if flag { ScrubState::Paused } else { ScrubState::Finished }, start: -1, end: 1,
                    elapsed: ids[5], limit: Txg(ids[6]), total: ids[7], position, ..ScrubRow::default()
                });
            }
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let bytes = [&[1], &bytes[..]].concat();
            let _ = ScrubRow::decode(&bytes);
            let _ = DamageRow::decode(&bytes);
        }
    }
}
