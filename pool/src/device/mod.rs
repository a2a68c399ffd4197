//! Devices: storage for bytes.
//!
//! A [`Device`] is a flat array of bytes with positioned reads and writes and a flush. It knows nothing of labels,
//! pools or checksums; [`crate::vdev`] is the only layer above that reads and writes through it during normal work, and
//! [`crate::admin`] does so for labels.
//!
//! - [`FileDevice`]: an image file or a block device, locked against other processes.
//! - [`MemoryDevice`]: sparse memory, for tests and for what-if runs.
//! - [`RecordingDevice`]: records every write and flush, and shows what a power failure could have left.
//! - [`FaultDevice`]: fails, hangs, corrupts, vanishes and comes back on demand.
//! - [`DeadlineDevice`]: stops waiting for a device that does not answer, and measures requests into a [`Meter`].
//!
//! Promises of every device:
//! 1. A read or write is whole or an error; an access past the end is an error and changes nothing.
//! 2. A write is durable when a later flush has returned, not before; until then it may be lost or torn at 512 bytes.
//! 3. A discarded range reads as zeros or as before. A discard is a hint, and lack of support is no error.

mod backing;
mod deadline;
mod fault;
mod file;
mod flow;
mod holder;
mod interface;
mod memory;
mod page_cache;
mod recording;

pub use self::{
    deadline::DeadlineDevice,
    fault::{Effect, Fault, FaultDevice, Operation},
    file::{Access, FileDevice},
    flow::{CLASSES, Flow, IoClass, IoPurpose, Meter, SIZES, Sizes, SlowLimits, WAITS, Waits},
    interface::{Device, Pending, TEAR_UNIT, Whereabouts},
    memory::MemoryDevice,
    recording::{Fate, Recorder, RecordingDevice, all_cuts, cuts},
};
pub(crate) use self::{flow::merged, interface::joined};
