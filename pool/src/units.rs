//! Number types with a unit.
//!
//! An on-disk structure or a signature with transaction groups, chunks and bytes is easy to get wrong with bare
//! integers; these types turn a mix-up into a compile error, at no cost.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A transaction group's number. Grows by one with each commit and is never used twice in a pool's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Txg(pub u64);

impl Txg {
    /// Before every transaction group; no block is born in it.
    pub const ZERO: Txg = Txg(0);

    /// Beyond every transaction group: a structure that claims this group or a later one is damaged.
    pub const LIMIT: Txg = Txg(1 << 63);

    /// The next transaction group.
    pub fn next(self) -> Txg {
        Txg(self.0 + 1)
    }

    /// The group `count` groups earlier, or [`Txg::ZERO`].
    pub fn back(self, count: u64) -> Txg {
        Txg(self.0.saturating_sub(count))
    }
}

/// A random 64-bit number that a pool, a device or a snapshot keeps for life, across renames and between machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Guid(pub u64);

/// The position of a top-level virtual device in its pool. Never reused after the device was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VdevId(pub u32);

/// A chunk's number. The number of an emptied packed chunk is used again; others never are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ChunkId(pub u32);

macro_rules! decimal {
    ($($unit:ident),*) => {$(
        impl fmt::Display for $unit {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}
decimal!(Txg, Guid, VdevId, ChunkId);

/// A kibibyte, in bytes.
pub const KIB: u64 = 1 << 10;
/// A mebibyte, in bytes.
pub const MIB: u64 = 1 << 20;
/// A gibibyte, in bytes.
pub const GIB: u64 = 1 << 30;
