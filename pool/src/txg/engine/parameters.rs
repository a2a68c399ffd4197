//! The parameters of an engine, and the uberblock's counters.

use crate::{
    block::storage::Storage,
    format::{
        intent::Entry,
        uberblock::{Epoch, Uberblock, counter},
    },
    units::{Guid, Txg},
};

/// The number of the open catalogue. No dataset has this number.
pub const CATALOGUE: u64 = 0;

/// The bound of the cache by default, in bytes: on a machine with less memory a service takes less.
pub const DEFAULT_CACHE: u64 = 256 << 20;

/// The bound of dirty data by default, in bytes: on a machine with less memory a service takes less.
pub const DEFAULT_DIRTY: u64 = 128 << 20;

/// The tunables of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bound of the cache, in bytes.
    pub cache: u64,
    /// The bound of dirty data, in bytes.
    pub dirty: u64,
    /// Worker threads; 0 has everything run on the caller's thread.
    pub workers: usize,
}

impl Default for Settings {
    fn default() -> Settings {
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        Settings { cache: DEFAULT_CACHE, dirty: DEFAULT_DIRTY, workers }
    }
}

/// The import that commits, and the state that it opened: see [`crate::format::uberblock`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ancestry {
    /// The committing import.
    pub epoch: Epoch,
    /// The import that wrote the opened state.
    pub parent: Epoch,
    /// The transaction group of the opened state.
    pub forked_at: Txg,
}

/// The kind of the uberblock's counter for the level of the catalogue's root.
pub(in crate::txg) const CATALOGUE_LEVEL: u8 = 0;

/// The kind of the uberblock's counter for the transaction group whose state the uberblock repeats. Absent unless the
/// pool was rewound: see [`crate::admin::rewind`].
pub(crate) const REPEATS: u8 = 1;

/// The transaction group that wrote the uberblock's state.
pub(crate) fn state_of(uberblock: &Uberblock) -> Txg {
    match uberblock.counter(REPEATS) {
        0 => uberblock.txg,
        earlier => Txg(earlier),
    }
}

/// What opening the pool found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The transaction group of the uberblock.
    pub txg: Txg,
    /// The uberblock's counters, by kind.
    pub counters: Vec<(u8, u64)>,
    /// Whether the intent log holds something beyond its state.
    pub has_log: bool,
}

impl Found {
    /// The counter of this kind, zero if absent.
    pub fn counter(&self, kind: u8) -> u64 {
        counter(&self.counters, kind)
    }
}

/// The parameters of [`Engine::open`](super::Engine::open).
pub struct Opening {
    /// The GUID of the pool.
    pub guid: Guid,
    /// The devices and their space.
    pub storage: Storage,
    /// The newest uberblock; `None` for a new pool.
    pub uberblock: Option<Uberblock>,
    /// Where the states committed from now on descend from.
    pub ancestry: Ancestry,
    /// The transaction group to begin with, higher than any used before.
    pub first: Txg,
    /// Whether nothing may be written at all.
    pub read_only: bool,
    /// The entries of the intent log beyond the uberblock's state.
    pub log: Vec<Entry>,
}

/// An impossible level, from a corrupt uberblock, is refused when the root is read.
pub(super) fn catalogue_level(uberblock: &Uberblock) -> u8 {
    u8::try_from(uberblock.counter(CATALOGUE_LEVEL)).unwrap_or(u8::MAX)
}
