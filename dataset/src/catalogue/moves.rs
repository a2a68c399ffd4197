//! The rows of what is moved between vdevs and regions. Their byte tables stand in `dataset/FORMAT.md`, "Catalogue".

use pool::format::codec::{Malformed, Reader, malformed};

use super::coding::{Field, row};

row! {
    /// The removal of a vdev: the one that is under way, or the last one.
    RemovalRow, "removal" {
        /// How it stands.
        state: MoveState,
        /// The vdev's number.
        vdev: u64,
        /// What the vdev was called.
        name: String,
        /// When it began, in nanoseconds since 1970.
        start: i64,
        /// When it ended, in nanoseconds since 1970; 0 while it is under way.
        end: i64,
        /// What was allocated on the vdev when it began, in bytes.
        total: u64,
        /// What was copied, in bytes.
        copied: u64,
        /// How many blocks were found without a good copy.
        errors: u64,
    }
}

row! {
    /// The rebalance that is under way, or the last one.
    RebalanceRow, "rebalance" {
        /// How it stands.
        state: MoveState,
        /// When it began, in nanoseconds since 1970.
        start: i64,
        /// When it ended, in nanoseconds since 1970; 0 while it is under way.
        end: i64,
        /// What was to be moved when it began, in bytes.
        total: u64,
        /// What was copied, in bytes.
        copied: u64,
        /// How many blocks were found without a good copy.
        errors: u64,
    }
}

row! {
    /// The defragmentation that is under way, or the last one.
    DefragmentRow, "defragmentation" {
        /// How it stands.
        state: MoveState,
        /// When it began, in nanoseconds since 1970.
        start: i64,
        /// When it ended, in nanoseconds since 1970; 0 while it is under way.
        end: i64,
        /// What was to be moved when it began, in bytes.
        total: u64,
        /// What was copied, in bytes.
        copied: u64,
        /// How many blocks were found without a good copy.
        errors: u64,
        /// How many regions were to be emptied when it began.
        wanted: u64,
        /// How many were.
        emptied: u64,
        /// How many have taken in what was in those.
        taken: u64,
    }
}

row! {
    /// The resize of the devices of a vdev: the one that is under way, or the last one.
    ResizeRow, "resize" {
        /// How it stands.
        state: MoveState,
        /// The vdev's number.
        vdev: u64,
        /// What the vdev was called.
        name: String,
        /// How many regions it keeps.
        regions: u64,
        /// How large its devices become, in bytes.
        size: u64,
        /// When it began, in nanoseconds since 1970.
        start: i64,
        /// When it ended, in nanoseconds since 1970; 0 while it is under way.
        end: i64,
        /// What was allocated behind these regions when it began, in bytes.
        total: u64,
        /// What was copied, in bytes.
        copied: u64,
        /// How many blocks were found without a good copy.
        errors: u64,
    }
}

row! {
    /// How fast chunks are moved, whatever for.
    PaceRow, "pace" {
        /// Not at all for now: somebody has paused it.
        paused: bool,
        /// At most so many bytes a second; 0 for any number.
        limit: u64,
    }
}

/// How a removal, a rebalance, a defragmentation or a resize stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum MoveState {
    /// Under way, whenever the pool is open: nothing is allocated on a vdev that is removed, or at the end of one that is made
    /// smaller.
    #[default]
    Running = 1,
    /// The vdev has left the pool or is smaller, all are about equally full, or no region more would come of it.
    Finished = 2,
    /// Given up by the operator.
    Canceled = 3,
    /// Given up because something could not be read.
    Unreadable = 4,
    /// Given up because there was too little room elsewhere.
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
