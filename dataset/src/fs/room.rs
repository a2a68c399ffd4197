//! The room for new data, as the layer above grants it.

use rustix::io::Errno;

/// The limits set by a dataset's properties, provided by the layer above.
pub trait Room: Send + Sync {
    /// Requests room for `bytes` of new data: EDQUOT if a quota refuses, ENOSPC if the rest is reserved for other
    /// datasets.
    fn admit(&self, bytes: u64) -> Result<(), Errno>;

    /// Whether [`Room::admit`] would succeed; takes no room.
    fn look_for(&self, bytes: u64) -> Result<(), Errno>;

    /// The bytes referenced by the dataset, and the bytes still available under its quotas once all pending frees are
    /// done.
    fn space(&self) -> (u64, u64);
}
