//! Virtual devices: what the pool's space lies on.
//!
//! A [`Vdev`] is a range of bytes that starts at zero: labels and how many devices there are below are hidden. Today the
//! only kind is the [`Leaf`], one device. A mirror or a RAID-Z vdev would be a second implementation of the trait that
//! owns several leaves; nothing above would change, because chunks name a vdev and an offset in it.
//!
//! A device that fails suspends the whole pool: see [`Suspension`].
//!
//! A vdev does not verify what it reads: checksums are in the pointers, which are known above. Whoever finds a mismatch
//! tells the vdev with [`Vdev::note_checksum_error`], so that the count stands beside the device that earned it.

use std::sync::Arc;

use crate::{
    error::Result,
    units::{Guid, VdevId},
};

mod counters;
pub mod labels;
mod leaf;
pub mod mend;
mod suspension;
pub mod uberblocks;
mod unflushed;

pub use counters::{Counters, Counts};
pub use leaf::{Health, Leaf};
pub use suspension::{Era, Suspension};

/// A top-level virtual device.
pub trait Vdev: Send + Sync {
    /// Its position in the pool.
    fn id(&self) -> VdevId;

    /// Its name for life. A leaf's is its device's.
    fn guid(&self) -> Guid;

    /// From now on, errors of the devices below suspend the pool that this is of, if it can be resumed.
    fn join(&self, suspension: &Arc<Suspension>);

    /// What it gives to the pool, in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset` on.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_shared(offset, Arc::new(bytes.to_vec()))
    }

    /// As [`Vdev::write`], without a copy: the bytes are kept until they are durable.
    fn write_shared(&self, offset: u64, bytes: Arc<Vec<u8>>) -> Result<()>;

    /// Returns when every write that returned before is durable.
    fn flush(&self) -> Result<()>;

    /// Says that the content of a range is no longer needed.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;

    /// Counts that what was read at `offset` did not have its checksum.
    fn note_checksum_error(&self, offset: u64);

    /// The devices that it is made of.
    fn leaves(&self) -> Vec<&Leaf>;
}
