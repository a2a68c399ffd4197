//! The ring against a plain model.

use proptest::prelude::*;

use super::*;
use crate::{
    format::{intent::LogHead, pointer::Address},
    units::{ChunkId, Txg},
};

const AREA: u32 = 40;

fn named() -> Ring {
    named_in(1)
}

fn named_in(unit: u32) -> Ring {
    let mut ring = Ring::new(Address { chunk: ChunkId(3), sector: 100 }, AREA, unit);
    assert!(!ring.is_named());
    let standing = ring.standing();
    ring.head(Txg(1), standing);
    ring.committed(Txg(1));
    assert!(ring.is_named());
    ring
}

#[test]
fn a_ring_is_full_until_a_commit_and_wraps_in_whole_frames() {
    let mut ring = named();
    let places: Vec<u32> = (0..2).map(|_| ring.reserve(15).unwrap().address.sector).collect();
    assert_eq!(places, [100, 115]);
    assert!(ring.is_half_full());
    // Ten sectors are left, and the first frame is still needed.
    assert_eq!(ring.reserve(15), None);
    assert_eq!(ring.reserve(10).map(|place| place.sequence), Some(3));
    let standing = ring.standing();
    assert_eq!(ring.reserve(1), None);
    assert_eq!((ring.head(Txg(2), standing).position, ring.head(Txg(2), standing).sequence), (0, 4));
    ring.committed(Txg(2));
    assert!(!ring.is_half_full());
    assert_eq!(ring.reserve(AREA.into()).map(|place| place.address.sector), Some(100));
    assert_eq!(ring.reserve(u64::from(AREA) + 1), None);
}

proptest! {
    #[test]
    fn what_is_needed_is_never_given_away(
        unit in prop::sample::select(vec![1u32, 2, 4, 5, 8]),
        steps in prop::collection::vec((1u64..20, any::<bool>()), 1..200),
    ) {
        let mut ring = named_in(unit);
        // The frames that are needed: since the last commit, and since the standing of the one under way.
        let (mut needed, mut txg) = (Vec::<(u32, u64)>::new(), Txg(1));
        let mut sequence = 1;
        for (sectors, commit) in steps {
            if let Some(place) = ring.reserve(sectors) {
                prop_assert_eq!(place.sequence, sequence);
                sequence += 1;
                let start = place.address.sector;
                prop_assert!((start - 100).is_multiple_of(unit));
                let sectors = sectors.next_multiple_of(unit.into());
                prop_assert!(start >= 100 && u64::from(start) + sectors <= 100 + u64::from(AREA));
                for &(other, len) in &needed {
                    prop_assert!(u64::from(start) + sectors <= other.into() || u64::from(other) + len <= start.into());
                }
                needed.push((start, sectors));
            }
            if commit {
                txg = txg.next();
                let standing = ring.standing();
                let head = ring.head(txg, standing);
                prop_assert!(head.position.is_multiple_of(unit));
                prop_assert_eq!(head.sequence, sequence);
                ring.committed(txg);
                needed.clear();
            }
        }
    }
}

#[test]
fn a_log_that_lies_across_units_is_none() {
    let head = |sector, sectors, position| LogHead {
        area: Address { chunk: ChunkId(3), sector },
        sectors,
        position,
        sequence: 1,
    };
    assert!(Ring::found(&head(99, 30, 3), 3).is_some());
    for (sector, sectors, position) in [(100, 30, 3), (99, 31, 3), (99, 30, 4), (99, 0, 0)] {
        assert!(Ring::found(&head(sector, sectors, position), 3).is_none());
    }
}
