//! A block's identity for caches.
//!
//! An address is used again after its block was freed, so the key is the address *and* birth: no two blocks ever share
//! both.

use crate::{
    format::pointer::{Address, BlockPointer},
    units::Txg,
};

/// A block's identity in time.
pub(crate) type BlockKey = (Address, Txg);

pub(crate) fn key(pointer: &BlockPointer) -> BlockKey {
    (pointer.addresses[0], pointer.birth)
}
