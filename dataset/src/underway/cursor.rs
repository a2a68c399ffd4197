//! The position of a resilver, recorded in each uberblock committed meanwhile, so that an import continues there.
//!
//! For soundness and all instants of failure see the module of [`pool::txg::Resilvering`]. This module defines the
//! recorded facts: the walk's position, the commit with which it began, the devices being resilvered, and the counters
//! for `pool status`. Each is a number of the uberblock (`dataset/FORMAT.md`, "Resilver"); zeros are omitted.
//!
//! Not recorded are the blocks of the space maps, which are few and copied again, and streams being received: hidden
//! datasets in the opened state count as being received. A walk with blocks that cannot be copied is not recorded
//! either: the next import restarts, and may find a good copy.

use std::collections::BTreeMap;

use pool::{
    env::Nanos,
    format::key::Key,
    txg::{Found, RESILVER_COUNTERS, ResilverNote, Resilvering, Sync},
    units::Txg,
    vdev::Lacking,
};

use super::walk::{Moved, Position, Walk};
use crate::catalogue::Transaction;
use crate::error::Result;

const LIMIT: u8 = *RESILVER_COUNTERS.start();
const DEVICES: u8 = LIMIT + 1;
const START: u8 = LIMIT + 2;
const TOTAL: u8 = LIMIT + 3;
const EXAMINED: u8 = LIMIT + 4;
const COPIED: u8 = LIMIT + 5;
const STAGE: u8 = LIMIT + 6;
const DATASET: u8 = LIMIT + 7;
const DONE: u8 = LIMIT + 8;
const MEMBER: u8 = LIMIT + 9;
const OBJECT: u8 = LIMIT + 10;
const KIND: u8 = LIMIT + 11;
const OFFSET: u8 = LIMIT + 12;

/// The stages of a walk.
const CATALOGUE: u64 = 1;
const DATASETS: u64 = 2;
const THROUGH: u64 = 3;

/// The state of a resilver, for commits to record.
#[derive(Clone)]
pub(crate) struct Cursor {
    /// The devices being resilvered.
    pub(crate) resilvering: Resilvering,
    /// The walk with its position.
    pub(crate) walk: Walk,
    /// The current number of moves of snapshots.
    pub(crate) moved: Moved,
    /// The counters for `pool status`.
    pub(crate) shown: Shown,
    /// The newest commit at the time.
    pub(crate) committed: Txg,
}

/// The counters for `pool status`, as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) start: Nanos,
    pub(crate) total: u64,
    pub(crate) examined: u64,
    pub(crate) copied: u64,
}

/// The facts recorded in an uberblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The commit with which the walk began.
    pub(crate) limit: Txg,
    /// The digest of the devices being resilvered.
    devices: u64,
    /// The position to continue at.
    pub(crate) position: Position,
    pub(crate) shown: Shown,
}

impl Cursor {
    /// The numbers for the uberblock of a txg, from the txg's final catalogue.
    pub(crate) fn note(&self, sync: &Sync<'_>) -> Result<ResilverNote> {
        let catalogue = sync.engine().catalogue();
        let position = catalogue.read(|view| self.walk.position_in(&Transaction::new(*view, 0), &self.moved))?;
        let (limit, shown) = (self.walk.limit(), self.shown);
        let noted = Noted { limit, devices: digest(&self.resilvering), position, shown };
        Ok(ResilverNote { resilvering: self.resilvering.clone(), counters: noted.counters() })
    }
}

impl Noted {
    /// The facts recorded in the opened state, if about exactly the same devices.
    pub(crate) fn found(found: &Found, resilvering: &Resilvering) -> Option<Noted> {
        let noted = Noted::decode(found)?;
        (noted.devices == digest(resilvering) && noted.limit <= found.txg).then_some(noted)
    }

    fn decode(found: &Found) -> Option<Noted> {
        let of = |kind| found.counter(kind);
        let at = || Some(Key::new(of(OBJECT), u8::try_from(of(KIND)).ok()?, of(OFFSET)));
        let position = match of(STAGE) {
            CATALOGUE => Position::Catalogue(at()?),
            DATASETS => Position::Datasets { dataset: of(DATASET), done: Txg(of(DONE)), member: of(MEMBER), at: at()? },
            THROUGH => Position::Through,
            _ => return None,
        };
        let shown =
            Shown { start: of(START).cast_signed(), total: of(TOTAL), examined: of(EXAMINED), copied: of(COPIED) };
        Some(Noted { limit: Txg(of(LIMIT)), devices: of(DEVICES), position, shown })
    }

    fn counters(&self) -> Vec<(u8, u64)> {
        let Shown { start, total, examined, copied } = self.shown;
        let head = [(LIMIT, self.limit.0), (DEVICES, self.devices), (START, start.cast_unsigned()), (TOTAL, total)];
        let counts = [(EXAMINED, examined), (COPIED, copied)];
        let key = |at: Key| [(OBJECT, at.object), (KIND, at.kind.into()), (OFFSET, at.offset)];
        let place = match self.position {
            Position::Catalogue(at) => [(STAGE, CATALOGUE)].into_iter().chain(key(at)).collect::<Vec<_>>(),
            Position::Datasets { dataset, done, member, at } => {
                let tree = [(STAGE, DATASETS), (DATASET, dataset), (DONE, done.0), (MEMBER, member)];
                tree.into_iter().chain(key(at)).collect()
            }
            Position::Through => vec![(STAGE, THROUGH)],
        };
        // Sorted by kind; a missing number is zero.
        let all: BTreeMap<u8, u64> = head.into_iter().chain(counts).chain(place).collect();
        all.into_iter().filter(|(_, value)| *value != 0).collect()
    }
}

/// A hash of the devices being resilvered: their identities, places and starting txgs, and the txg that is skipped.
fn digest(resilvering: &Resilvering) -> u64 {
    let mut devices = resilvering.devices.clone();
    devices.sort_unstable();
    let one = |of: Lacking| [of.vdev.0.into(), of.column as u64, of.device.0, of.has.0];
    let numbers = devices.into_iter().flat_map(one).chain([resilvering.since.0]);
    let bytes: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
    xxhash_rust::xxh3::xxh3_64(&bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn decoded(counters: Vec<(u8, u64)>) -> Option<Noted> {
        Noted::decode(&Found { counters, ..Found::default() })
    }

    proptest! {
        #[test]
        fn what_is_noted_is_found(numbers: [u64; 10], kind: u8, stage in 0..3) {
            let at = Key::new(numbers[0], kind, numbers[1]);
            let position = match stage {
                0 => Position::Catalogue(at),
                1 => Position::Datasets { dataset: numbers[2], done: Txg(numbers[3]), member: numbers[4], at },
                _ => Position::Through,
            };
            let shown =
                Shown { start: numbers[5].cast_signed(), total: numbers[6], examined: numbers[7], copied: numbers[8] };
            let noted = Noted { limit: Txg(numbers[9]), devices: !numbers[9], position, shown };
            let counters = noted.counters();
            prop_assert!(counters.is_sorted_by(|a, b| a.0 < b.0));
            prop_assert!(counters.iter().all(|(kind, _)| RESILVER_COUNTERS.contains(kind)));
            prop_assert_eq!(decoded(counters), Some(noted));
        }

        #[test]
        fn garbage_never_panics(counters in prop::collection::btree_map(any::<u8>(), any::<u64>(), 0..40)) {
            let _ = decoded(counters.into_iter().collect());
        }
    }

    #[test]
    fn numbers_stand_where_the_document_says() {
        let position = Position::Datasets { dataset: 7, done: Txg(8), member: 9, at: Key::new(10, 11, 12) };
        let shown = Shown { start: 3, total: 4, examined: 5, copied: 6 };
        let noted = Noted { limit: Txg(1), devices: 2, position, shown };
        let values = [1, 2, 3, 4, 5, 6, 2, 7, 8, 9, 10, 11, 12];
        assert_eq!(noted.counters(), (16u8..).zip(values).collect::<Vec<_>>());
        let noted = Noted { position: Position::Catalogue(Key::MIN), ..noted };
        assert_eq!(noted.counters()[6..], [(22, 1)]);
        let noted = Noted { position: Position::Through, ..noted };
        assert_eq!(noted.counters()[6..], [(22, 3)]);
        assert_eq!(decoded(Vec::new()), None);
    }
}
