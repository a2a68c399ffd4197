//! The root of a pool. The input is an uberblock's payload.

use pool::format::{
    codec::Reader,
    space::SpaceRoot,
    uberblock::{UBERBLOCK_SIZE, Uberblock},
};

use super::seal;

pub(super) fn run(payload: &[u8]) -> bool {
    let Some(block) = seal::block(b"CENOTEUB", 1, payload, UBERBLOCK_SIZE, &[]) else { return false };
    let Ok(uberblock) = Uberblock::decode(&block) else { return false };
    assert_eq!(Uberblock::decode(&uberblock.encode()).as_ref(), Ok(&uberblock));
    for (kind, value) in &uberblock.counters {
        assert_eq!(uberblock.counter(*kind), *value);
    }
    let _ = SpaceRoot::decode(&mut Reader::new(&uberblock.space));
    true
}
