//! What every device offers.

use std::{io, sync::Arc, time::Duration};

use super::flow::Meter;

/// The unit in which a write can be torn by a power failure, in bytes.
pub const TEAR_UNIT: u64 = 512;

/// A request that was begun.
#[must_use]
pub enum Pending<T = ()> {
    /// The request is done.
    Done(io::Result<T>),
    /// The request is under way; calling this waits for its end.
    Begun(Box<dyn FnOnce() -> io::Result<T> + Send>),
}

impl<T> Pending<T> {
    /// Returns when the request is done or has failed.
    pub fn wait(self) -> io::Result<T> {
        match self {
            Pending::Done(result) => result,
            Pending::Begun(wait) => wait(),
        }
    }
}

/// A flat array of bytes that survives the process.
pub trait Device: Send + Sync {
    /// The path, or the name given by a test, for messages.
    fn name(&self) -> &str;

    /// The size in use, in bytes.
    fn size(&self) -> u64;

    /// Fills `buf` from `offset` on.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Like [`Device::write_at`], for bytes that the device may keep.
    fn write_shared(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> io::Result<()> {
        self.write_at(offset, bytes)
    }

    /// Like [`Device::write_shared`], for parts that follow each other on the device: one write.
    fn write_parts(&self, offset: u64, parts: &[Arc<Vec<u8>>]) -> io::Result<()> {
        match parts {
            [only] => self.write_shared(offset, only),
            parts => self.write_at(offset, &joined(parts)),
        }
    }

    /// Fills `buf` from `offset` on if no wait for a device is needed; otherwise, or if that is unknown, returns
    /// `false`, with anything in `buf`.
    fn read_at_once(&self, _offset: u64, _buf: &mut [u8]) -> io::Result<bool> {
        Ok(false)
    }

    /// Like [`Device::read_at`], but may exceed the deadline on a device that has just been prompt, to save handing the
    /// read to a thread.
    fn read_trusting(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, buf)
    }

    /// Begins to read `len` bytes from `offset` on, so that a caller can wait for several devices together. A device
    /// without threads of its own reads at once.
    fn begin_read(&self, offset: u64, len: usize) -> Pending<Vec<u8>> {
        let mut bytes = vec![0; len];
        Pending::Done(self.read_at(offset, &mut bytes).map(|()| bytes))
    }

    /// Begins a [`Device::write_shared`], likewise.
    fn begin_write(&self, offset: u64, bytes: &Arc<Vec<u8>>) -> Pending {
        Pending::Done(self.write_shared(offset, bytes))
    }

    /// Begins a [`Device::flush`], likewise. It covers all writes before.
    fn begin_flush(&self) -> Pending {
        Pending::Done(self.flush())
    }

    /// From now on counts requests in `meter`, if the device measures at all.
    fn count_in(&self, _meter: &Arc<Meter>) {}

    /// From now on stops waiting for requests that do not come back.
    fn give_up(&self) {}

    /// From now on waits at most `deadline` for a request: the caller has another way.
    fn hurry(&self, _deadline: Duration) {}

    /// Abandoned requests that have not come back: their writes may still take effect.
    fn outstanding(&self) -> usize {
        0
    }

    /// Whether the device's name still leads to this device, and not to a replaced image. True for a device without a
    /// path.
    fn is_in_place(&self) -> bool {
        true
    }

    /// What the device's name leads to now. May wait for the file system of the name.
    fn whereabouts(&self) -> Whereabouts {
        Whereabouts::InPlace
    }

    /// Time since the oldest unanswered request began; zero if there is none.
    fn silence(&self) -> Duration {
        Duration::ZERO
    }

    /// The physical size now, in bytes: an image or a volume may have grown since it was opened.
    fn measure(&self) -> io::Result<u64> {
        Ok(self.size())
    }

    /// Sets the size in use, in bytes: at most the [measured](Device::measure) size.
    fn resize(&self, _size: u64) {}

    /// Durably truncates the device to `size` bytes; `false` if its physical size is not Cenote's to change.
    fn truncate(&self, _size: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Durably lengthens a truncated image back to `size` bytes, with zeros. `false` if its physical size is not
    /// Cenote's to change.
    fn grow_back(&self, _size: u64) -> io::Result<bool> {
        Ok(false)
    }

    /// Returns when every write that returned before is durable.
    fn flush(&self) -> io::Result<()>;

    /// Tells the device that the content of a range is no longer needed (TRIM).
    fn discard(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Whether a discard has an effect, as far as known from earlier discards.
    fn can_discard(&self) -> bool {
        true
    }
}

/// What the name of an open device leads to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whereabouts {
    /// The device, at its full size; also if unknown.
    #[default]
    InPlace,
    /// Nothing: the image was removed or renamed. It exists only as long as it is open.
    Removed,
    /// Another file or device.
    Replaced,
    /// The device, truncated to so many bytes, fewer than its pool uses.
    Cut(u64),
}

/// The parts one after another.
pub(crate) fn joined(parts: &[Arc<Vec<u8>>]) -> Vec<u8> {
    let mut all = Vec::with_capacity(parts.iter().map(|part| part.len()).sum());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all
}

/// The error of an access past a device's end, for devices that check it themselves.
pub(super) fn check_range(size: u64, offset: u64, len: u64) -> io::Result<()> {
    match offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "access past the end of the device")),
    }
}
