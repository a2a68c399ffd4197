//! The rows of blocks with several references. For the byte tables see `dataset/FORMAT.md`, "Catalogue".

use pool::{
    format::{
        key::Key,
        pointer::{Address, BlockPointer},
    },
    units::{ChunkId, Txg},
};

use super::{
    coding::row,
    key::{POOL, kind},
    space::Space,
};

row! {
    /// A block with more than one reference. The key is the address of the first copy; a block without a row has one
    /// reference.
    SharedRow, "shared block" {
        /// The txg in which the block was written.
        birth: Txg,
        /// The number of references beyond the first. Never 0.
        more: u64,
        /// The space of the block, counted once.
        space: Space,
    }
}

row! {
    /// The totals of all shared blocks.
    SharingRow, "sharing" {
        /// The number of shared blocks.
        blocks: u64,
        /// The space of the shared blocks, each counted once.
        used: Space,
        /// The additional space if each reference had a block of its own.
        saved: Space,
    }
}

/// The key of [`SharingRow`].
pub const SHARING: Key = Key::new(POOL, kind::SHARING, 0);

/// The key of the row of a shared block.
pub const fn shared_key(address: Address) -> Key {
    Key::new(POOL, kind::SHARED, (address.chunk.0 as u64) << 32 | address.sector as u64)
}

/// The block whose row has the given key.
pub const fn shared_address(key: Key) -> Address {
    Address { chunk: ChunkId((key.offset >> 32) as u32), sector: key.offset as u32 }
}

impl SharedRow {
    /// The row of a block with one further reference.
    pub fn of(pointer: &BlockPointer, sector: u32) -> SharedRow {
        SharedRow { birth: pointer.birth, more: 1, space: Space::of(pointer, sector) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::catalogue::{Row, rows::tests::round_trips};

    proptest! {
        #[test]
        fn rows_round_trip(numbers: [u64; 6]) {
            let space = Space { allocated: numbers[0], logical: numbers[1] };
            round_trips(&SharedRow { birth: Txg(numbers[2]), more: numbers[3], space });
            let saved = Space { allocated: numbers[4], logical: numbers[5] };
            round_trips(&SharingRow { blocks: numbers[3], used: space, saved });
        }

        #[test]
        fn an_address_is_found_in_its_key(chunk: u32, sector: u32) {
            let address = Address { chunk: ChunkId(chunk), sector };
            prop_assert_eq!(shared_address(shared_key(address)), address);
        }

        #[test]
        fn garbage_never_panics(bytes: Vec<u8>) {
            let _ = (SharedRow::decode(&bytes), SharingRow::decode(&bytes));
        }
    }
}
