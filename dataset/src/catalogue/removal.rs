//! The row of a removal. Its byte table stands in `dataset/FORMAT.md`, "Catalogue".

use pool::format::codec::{Malformed, Reader, malformed};

use super::coding::{Field, row};

row! {
    /// The removal of a vdev: the one that is under way, or the last one.
    RemovalRow, "removal" {
        /// How it stands.
        state: RemovalState,
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

/// How a removal stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum RemovalState {
    /// Under way, whenever the pool is open: nothing is allocated on the vdev.
    #[default]
    Running = 1,
    /// The vdev has left the pool.
    Finished = 2,
    /// Given up by the operator.
    Canceled = 3,
    /// Given up because something on the vdev could not be read.
    Unreadable = 4,
    /// Given up because there was too little room elsewhere.
    NoRoom = 5,
}

impl Field for RemovalState {
    fn put(&self, out: &mut Vec<u8>) {
        (*self as u8).put(out);
    }

    fn take(reader: &mut Reader<'_>, what: &'static str) -> Result<RemovalState, Malformed> {
        match u8::take(reader, what)? {
            1 => Ok(RemovalState::Running),
            2 => Ok(RemovalState::Finished),
            3 => Ok(RemovalState::Canceled),
            4 => Ok(RemovalState::Unreadable),
            5 => Ok(RemovalState::NoRoom),
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
        fn removals_round_trip(state in 1u8..6, name in "[a-z/]{0,40}", numbers: [u64; 4], start: i64, end: i64) {
            let state = RemovalState::take(&mut Reader::new(&[state]), "state").unwrap();
            let [vdev, total, copied, errors] = numbers;
            round_trips(&RemovalRow { state, vdev, name, start, end, total, copied, errors });
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = RemovalRow::decode(&bytes);
        }
    }
}
