//! The rows of a scrub and of its findings. For the byte tables see `dataset/FORMAT.md`, "Catalogue".

use pool::{
    format::codec::{Malformed, Reader, malformed},
    units::Txg,
};

use super::coding::{Field, row};

/// A key, in parts: object, kind, offset.
type Cursor = (u64, u8, u64);

row! {
    /// The current scrub of the pool, or the last.
    ScrubRow, "scrub" {
        /// Running, paused, or how it ended.
        state: ScrubState,
        /// The start, in nanoseconds since 1970.
        start: i64,
        /// The end or the start of the pause, in nanoseconds since 1970; 0 while running.
        end: i64,
        /// The time spent running, in nanoseconds.
        elapsed: u64,
        /// The last txg covered: blocks born later are skipped.
        limit: Txg,
        /// The bytes allocated at the start.
        total: u64,
        /// The bytes read, over all copies.
        examined: u64,
        /// The bytes written to repair bad copies.
        repaired: u64,
        /// The number of blocks without a good copy.
        errors: u64,
        /// The position to continue at.
        position: ScrubPosition,
    }
}

row! {
    /// Permanent damage: objects of a tree that have lost data.
    DamageRow, "damage" {
        /// The dataset or snapshot; 0 for the pool's own structures.
        tree: u64,
        /// The first damaged object.
        first: u64,
        /// The last damaged object, inclusive.
        last: u64,
        /// When the damage was first found, in nanoseconds since 1970.
        time: i64,
        /// The txg in which the damage was last confirmed.
        seen: Txg,
    }
}

/// The state of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ScrubState {
    /// Running whenever the pool is open.
    #[default]
    Running = 1,
    /// Paused by the administrator.
    Paused = 2,
    /// Everything was examined.
    Finished = 3,
    /// Canceled by the administrator.
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

/// The position of a scrub.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrubPosition {
    /// At the labels and uberblocks.
    #[default]
    Labels,
    /// At the blocks of the space maps.
    Space {
        /// The device with the next block's first copy.
        vdev: u32,
        /// The block's offset on the device.
        offset: u64,
    },
    /// At the catalogue's tree.
    Catalogue {
        /// Lower keys are done.
        cursor: Cursor,
    },
    /// At the datasets, in the order of their ids.
    Datasets {
        /// The current dataset.
        dataset: u64,
        /// Snapshots of the dataset up to the txg are done, and so are blocks born up to the txg.
        done: Txg,
        /// The current snapshot, or the dataset itself; 0 before the first.
        member: u64,
        /// Lower keys of the current member are done.
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
