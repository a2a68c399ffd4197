//! Devices: where bytes are kept.
//!
//! A [`Device`] is a flat array of bytes with positioned reads and writes and a flush. It knows nothing of labels,
//! pools or checksums; [`crate::vdev`] is the only layer above that reads and writes through it during normal work, and
//! [`crate::admin`] does so for labels.
//!
//! - [`FileDevice`]: an image file or a block device, locked against other processes.
//! - [`MemoryDevice`]: sparse memory, for tests and for what-if runs.
//! - [`RecordingDevice`]: remembers every write and flush, and shows what a power failure could have left.
//! - [`FaultDevice`]: fails, corrupts or vanishes on demand.
//!
//! What every device promises:
//! 1. A read or write is whole or an error; one that reaches past the end is an error and changes nothing.
//! 2. A write is durable when a later flush has returned, not before; until then it may be lost or torn at 512 bytes.
//! 3. A discarded range reads as zeros or as before. It is a hint, and not supporting it is not an error.

use std::io;

mod backing;
mod fault;
mod file;
mod holder;
mod memory;
mod recording;

pub use fault::{Effect, Fault, FaultDevice, Operation};
pub use file::{Access, FileDevice};
pub use memory::MemoryDevice;
pub use recording::{Fate, Recorder, RecordingDevice};

/// The unit in which a write can be torn by a power failure, in bytes.
pub const TEAR_UNIT: u64 = 512;

/// A flat array of bytes that survives the process.
pub trait Device: Send + Sync {
    /// The path or the test's name for it, for messages.
    fn name(&self) -> &str;

    /// The size in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when every write that returned before is durable.
    fn flush(&self) -> io::Result<()>;

    /// Says that the content of a range is no longer needed.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;
}

/// The error of an access past a device's end, for the devices that check it themselves.
fn check_range(size: u64, offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "access past the end of the device")),
    }
}
