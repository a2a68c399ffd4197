//! Devices: where bytes are kept.
//!
//! A [`Device`] is a flat array of bytes with positioned reads and writes and a flush. It knows nothing of labels,
//! pools or checksums; [`crate::vdev`] is the only layer above that reads and writes through it during normal work, and
//! [`crate::admin`] does so for labels.
//!
//! - [`FileDevice`]: an image file or a block device, locked against other processes.
//! - [`MemoryDevice`]: sparse memory, for tests and for what-if runs.
//! - [`RecordingDevice`]: remembers every write and flush, and shows what a power failure could have left.
//! - [`FaultDevice`]: fails, hangs, corrupts, vanishes and comes back on demand.
//! - [`DeadlineDevice`]: gives up waiting for another one that does not answer.
//!
//! What every device promises:
//! 1. A read or write is whole or an error; one that reaches past the end is an error and changes nothing.
//! 2. A write is durable when a later flush has returned, not before; until then it may be lost or torn at 512 bytes.
//! 3. A discarded range reads as zeros or as before. It is a hint, and not supporting it is not an error.

use std::{io, sync::Arc, time::Duration};

mod backing;
mod deadline;
mod fault;
mod file;
mod holder;
mod memory;
mod page_cache;
mod recording;

pub use deadline::DeadlineDevice;
pub use fault::{Effect, Fault, FaultDevice, Operation};
pub use file::{Access, FileDevice};
pub use holder::Holder;
pub use memory::MemoryDevice;
pub use recording::{Fate, Recorder, RecordingDevice};

/// The unit in which a write can be torn by a power failure, in bytes.
pub const TEAR_UNIT: u64 = 512;

/// A request that was begun.
#[must_use]
pub enum Pending<T = ()> {
    /// It was carried out.
    Done(io::Result<T>),
    /// It is under way; this waits for it.
    Begun(Box<dyn FnOnce() -> io::Result<T> + Send>),
}

impl<T> Pending<T> {
    /// Returns when it was carried out, or has failed.
    pub fn wait(self) -> io::Result<T> {
        match self {
            Pending::Done(result) => result,
            Pending::Begun(wait) => wait(),
        }
    }
}

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

    /// As [`Device::write_at`], of bytes that the device may hold on to.
    fn write_shared(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> io::Result<()> {
        self.write_at(offset, bytes)
    }

    /// Fills `buf` from `offset` on if that takes no waiting for a device; `false`, with anything in `buf`, if it does or
    /// nobody knows.
    fn read_at_once(&self, _offset: u64, _buf: &mut [u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// As [`Device::read_at`], for who would rather wait longer than ask another thread: of a device that answers now.
    fn read_trusting(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, buf)
    }

    /// Begins to read `len` bytes from `offset` on: whoever asks several devices waits for all of them together. A device
    /// without threads of its own does it at once.
    fn begin_read(&self, offset: u64, len: usize) -> Pending<Vec<u8>> {
        let mut bytes = vec![0; len];
        Pending::Done(self.read_at(offset, &mut bytes).map(|()| bytes))
    }

    /// Begins a [`Device::write_shared`], likewise.
    fn begin_write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Pending {
        Pending::Done(self.write_shared(offset, bytes))
    }

    /// Begins a [`Device::flush`], likewise. What was written before is covered.
    fn begin_flush(&self) -> Pending {
        Pending::Done(self.flush())
    }

    /// From now on, waits for no request that does not come back.
    fn give_up(&self) {}

    /// From now on, waits no longer for a request than this: there is another way if it does not come back.
    fn hurry(&self, _deadline: Duration) {}

    /// Requests that were given up and have not come back: what they write may still land.
    fn outstanding(&self) -> usize {
        0
    }

    /// Whether this is what is now found under its name, as far as there is a name: not an image that was replaced.
    fn is_in_place(&self) -> bool {
        true
    }

    /// What is found now under its name. Asks the file system that the name is in, and may wait for that.
    fn whereabouts(&self) -> Whereabouts {
        Whereabouts::InPlace
    }

    /// For how long the oldest request that is under way has not been answered; zero if none is.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    /// How many bytes it is found to have now: an image or a volume may have grown since it was opened.
    fn measure(&self) -> io::Result<u64> {
        Ok(self.size())
    }

    /// From now on it has so many bytes for whoever uses it: as many as was [measured](Device::measure), or fewer.
    fn resize(&self, _size: u64) {}

    /// Gives up what lies behind `size` bytes, for good and durably; `false` if it cannot, because somebody else has made it as
    /// large as it is.
    fn truncate(&self, _size: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Makes an image that somebody has cut as long as it was, `size` bytes, durably: what it has lost is zeros. `false` if it
    /// cannot, because somebody else has made it as large as it is.
    fn grow_back(&self, _size: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns when every write that returned before is durable.
    fn flush(&self) -> io::Result<()>;

    /// Says that the content of a range is no longer needed.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Whether it makes anything of that, as far as is known: it is, once it was told.
    fn can_discard(&self) -> bool {
        true
    }
}

/// What is found under the name of a device that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whereabouts {
    /// The device, as large as it was; or nobody can tell.
    #[default]
    InPlace,
    /// Nothing: the image was removed or renamed. Who has it open still has it; who closes it loses it.
    Removed,
    /// Something else.
    Replaced,
    /// The device, which is shorter than its pool uses: so many bytes.
    Cut(u64),
}

/// The error of an access past a device's end, for the devices that check it themselves.
fn check_range(size: u64, offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "access past the end of the device")),
    }
}
