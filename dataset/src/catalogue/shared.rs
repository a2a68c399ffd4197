//! The rows of blocks that are referred to more than once. Their byte tables stand in `dataset/FORMAT.md`, "Catalogue".

use pool::{
    format::{
        key::Key,
        pointer::{Address, BlockPointer},
    },
    units::{ChunkId, Txg},
};

use super::{POOL, Space, coding::row, kind};

row! {
    /// A block with further references beside one. It stands under the address of its first copy; a block without such a
    /// row has one reference.
    SharedRow, "shared block" {
        /// When the block was written.
        birth: Txg,
        /// How many references it has beside one. Never 0.
        more: u64,
        /// What the block takes, once.
        space: Space,
    }
}

row! {
    /// What all shared blocks come to.
    SharingRow, "sharing" {
        /// How many shared blocks there are.
        blocks: u64,
        /// What they take, each once.
        used: Space,
        /// What they would take in addition if each reference had a block of its own.
        saved: Space,
    }
}

/// The key of [`SharingRow`].
pub const SHARING: Key = Key::new(POOL, kind::SHARING, 0);

/// The key of the row of a shared block.
pub const fn shared_key(address: Address) -> Key {
    Key::new(POOL, kind::SHARED, (address.chunk.0 as u64) << 32 | address.sector as u64)
}

/// The block whose row stands under a key.
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
