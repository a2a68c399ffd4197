//! The intent log: keeps the promise of an `fsync` for the price of one write and one flush.
//!
//! The log is a ring of frames in one area of the pool, allocated once like any block and named by the uberblock. A frame
//! says which items of which trees have changed since the frame before, and how they are now (see
//! [`crate::format::intent`]). A commit makes all frames of its group void; the uberblock says where the next begin.
//!
//! ```text
//! ring     where the next frame goes, and which of the ring is still needed
//! read     after a crash: the frames behind the uberblock
//! ```
//!
//! The area lies on a vdev for it, if there is one with room, and else where metadata does. It moves when a vdev for it comes
//! or leaves: the commit that names the new area frees the old one ([`crate::txg`], `durable`). Where that vdev is lost, so is
//! what it held, and whoever opens the pool must say that this may be; the first commit then names another area.
//!
//! What goes into a frame is collected by [`crate::txg`], and applied after a crash by the owner of the trees: see
//! [`crate::txg::Engine::take_log`].
//!
//! Why the frames found after a crash are exactly the promised ones and a beginning of what was on its way:
//!
//! * A frame is written after the flush of the one before has returned. So at most the last one may be torn, and then it
//!   fails its checksum and nobody was promised it.
//! * An uberblock of group N names the place and the number of the first frame that may speak of group N + 1. The place
//!   is taken while the gate is closed: before, no entry of N + 1 could be collected. Entries of N that come behind it
//!   are known by their group, and skipped.
//! * A frame tells what has changed since the frame before, but not what a commit meanwhile has made durable. So it says
//!   which group was committed when it was made, and is not put back on an older state: on one that is taken because the
//!   newest uberblocks are damaged.
//! * The ring before that place is overwritten only once the uberblock is stable. If power fails earlier, the last
//!   uberblock stands, and from its place on all frames are there, in order.
//! * An import writes its first frame after its first commit, which holds what it found in the log. If power fails
//!   before, the log is as it was found, and is applied again to the same state. Frames of two imports differ by epoch.
//! * A frame is flushed on the vdev where it lies, and on those where the blocks lie that it refers to, and on no others:
//!   what else was written to these nobody was promised. So where there is a vdev for the log, an fsync touches no other.
//! * Blocks that a frame refers to are written before it and flushed with it, so the last frame may have survived where
//!   one of its blocks has not. Nobody was promised that frame: it is found by reading these blocks, and left out. Blocks
//!   that cannot be verified (without a checksum, or in pieces) are flushed before the frame is written.
//! * If such a block was dropped meanwhile, it is freed like any other, that is, not overwritten before three more groups
//!   are committed.

mod read;
mod ring;

pub use read::read;
pub(crate) use read::{is_verifiable, stored_since};
pub(crate) use ring::{Place, Ring, Standing};

#[cfg(test)]
mod tests;
