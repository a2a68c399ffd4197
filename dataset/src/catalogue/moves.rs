//! The rows of the jobs that move data between vdevs and regions. For the byte tables see `dataset/FORMAT.md`,
//! "Catalogue".

use pool::format::codec::{Malformed, Reader, malformed};

use super::coding::{Field, row};

row! {
    /// The removal of a vdev: the current removal, or the last.
    RemovalRow, "removal" {
        /// Running, or how it ended.
        state: MoveState,
        /// The vdev's number.
        vdev: u64,
        /// The vdev's name in `pool status`.
        name: String,
        /// The start, in nanoseconds since 1970.
        start: i64,
        /// The end, in nanoseconds since 1970; 0 while running.
        end: i64,
        /// The bytes allocated on the vdev at the start.
        total: u64,
        /// The bytes copied so far.
        copied: u64,
        /// The number of blocks without a good copy.
        errors: u64,
    }
}

row! {
    /// The current rebalance, or the last.
    RebalanceRow, "rebalance" {
        /// Running, or how it ended.
        state: MoveState,
        /// The start, in nanoseconds since 1970.
        start: i64,
        /// The end, in nanoseconds since 1970; 0 while running.
        end: i64,
        /// The bytes to move, as computed at the start.
        total: u64,
        /// The bytes copied so far.
        copied: u64,
        /// The number of blocks without a good copy.
        errors: u64,
    }
}

row! {
    /// The current defragmentation, or the last.
    DefragmentRow, "defragmentation" {
        /// Running, or how it ended.
        state: MoveState,
        /// The start, in nanoseconds since 1970.
        start: i64,
        /// The end, in nanoseconds since 1970; 0 while running.
        end: i64,
        /// The bytes to move, as computed at the start.
        total: u64,
        /// The bytes copied so far.
        copied: u64,
        /// The number of blocks without a good copy.
        errors: u64,
        /// The number of regions to empty, as computed at the start.
        wanted: u64,
        /// The number of regions emptied so far.
        emptied: u64,
        /// The number of regions that received the moved data.
        taken: u64,
    }
}

row! {
    /// The resize of the devices of a vdev: the current resize, or the last.
    ResizeRow, "resize" {
        /// Running, or how it ended.
        state: MoveState,
        /// The vdev's number.
        vdev: u64,
        /// The vdev's name in `pool status`.
        name: String,
        /// The number of regions that stay.
        regions: u64,
        /// The new size of the devices, in bytes.
        size: u64,
        /// The start, in nanoseconds since 1970.
        start: i64,
        /// The end, in nanoseconds since 1970; 0 while running.
        end: i64,
        /// The bytes allocated behind the remaining regions at the start.
        total: u64,
        /// The bytes copied so far.
        copied: u64,
        /// The number of blocks without a good copy.
        errors: u64,
    }
}

row! {
    /// The speed of all jobs that move chunks.
    PaceRow, "pace" {
        /// Paused by the administrator.
        paused: bool,
        /// The limit in bytes per second; 0 for none.
        limit: u64,
    }
}

/// The state of a removal, rebalance, defragmentation or resize.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum MoveState {
    /// Running whenever the pool is open. Nothing is allocated on a vdev being removed, or beyond the new end of a vdev
    /// being resized.
    #[default]
    Running = 1,
    /// Completed: the vdev is removed or resized, data is spread evenly, or no further region can be emptied.
    Finished = 2,
    /// Canceled by the administrator.
    Canceled = 3,
    /// Ended because data could not be read.
    Unreadable = 4,
    /// Ended because other vdevs had too little free space.
    NoRoom = 5,
}

impl Field for MoveState {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<MoveState, Malformed> {
        match u8::take(reader, what)? {
            1 => Ok(MoveState::Running),
            2 => Ok(MoveState::Finished),
            3 => Ok(MoveState::Canceled),
            4 => Ok(MoveState::Unreadable),
            5 => Ok(MoveState::NoRoom),
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
        fn rebalances_and_their_pace_round_trip(state in 1u8..6, numbers: [u64; 4], start: i64, end: i64, paused: bool) {
            let state = MoveState::take(&mut Reader::new(&[state]), "state").unwrap();
            let [total, copied, errors, limit] = numbers;
            round_trips(&RebalanceRow { state, start, end, total, copied, errors });
            round_trips(&PaceRow { paused, limit });
        }

        #[test]
        fn defragmentations_round_trip(state in 1u8..6, numbers: [u64; 6], start: i64, end: i64) {
            let state = MoveState::take(&mut Reader::new(&[state]), "state").unwrap();
            let [total, copied, errors, wanted, emptied, taken] = numbers;
            round_trips(&DefragmentRow { state, start, end, total, copied, errors, wanted, emptied, taken });
        }

        #[test]
        fn removals_round_trip(state in 1u8..6, name in "[a-z/]{0,40}", numbers: [u64; 4], start: i64, end: i64) {
            let state = MoveState::take(&mut Reader::new(&[state]), "state").unwrap();
            let [vdev, total, copied, errors] = numbers;
            round_trips(&RemovalRow { state, vdev, name, start, end, total, copied, errors });
        }

        #[test]
        fn resizes_round_trip(state in 1u8..6, name in "[a-z/]{0,40}", numbers: [u64; 6], start: i64, end: i64) {
            let state = MoveState::take(&mut Reader::new(&[state]), "state").unwrap();
            let [vdev, regions, size, total, copied, errors] = numbers;
            round_trips(&ResizeRow { state, vdev, name, regions, size, start, end, total, copied, errors });
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = RemovalRow::decode(&bytes);
            let _ = RebalanceRow::decode(&bytes);
            let _ = PaceRow::decode(&bytes);
            let _ = DefragmentRow::decode(&bytes);
            let _ = ResizeRow::decode(&bytes);
        }
    }
}
