//! The intent log (OpenZFS: ZIL): makes an `fsync` durable at the cost of one write and one flush.
//!
//! The log is a ring of frames in one area of the pool, allocated once like any block and named by the uberblock. A
//! frame lists the items of trees changed since the previous frame, in their present state (see
//! [`crate::format::intent`]). A commit makes all frames of its group obsolete; the uberblock says where the next
//! begins.
//!
//! ```text
//! ring     the place of the next frame, and the part of the ring still needed
//! read     after a crash: the frames behind the uberblock
//! ```
//!
//! The area lies on a log vdev, if there is one with room, and otherwise where metadata does. It moves when a log vdev
//! is added or removed: the commit that names the new area frees the old one ([`crate::txg`], `durable`). If the log
//! vdev is lost, its frames are lost, and the caller of an import must allow this; the first commit then names another
//! area.
//!
//! Frames are collected by [`crate::txg`], and replayed after a crash by the owner of the trees: see
//! [`crate::txg::Engine::take_log`].
//!
//! Why the frames found after a crash are exactly the acknowledged ones and a prefix of the frames in flight:
//!
//! * A frame is written after the flush of the previous frame has returned. So at most the last frame may be torn; then
//!   its checksum fails, and it was never acknowledged.
//! * An uberblock of group N names the place and the number of the first frame that may contain entries of group N + 1.
//!   The place is taken while the gate is closed: before, no entry of N + 1 could be collected. Later entries of N are
//!   recognized by their group, and skipped.
//! * A frame lists changes since the previous frame, without the changes made durable by a commit meanwhile. So it
//!   records the group committed at its creation, and is not replayed on an older state, which import uses when the
//!   newest uberblocks are damaged.
//! * The ring before the named place is overwritten only once the uberblock is stable. If power fails earlier, the last
//!   uberblock stands, and from its place on all frames are present, in order.
//! * An import writes its first frame after its first commit, which contains the replayed log. If power fails before,
//!   the log is unchanged, and is replayed again on the same state. Frames of two imports differ by epoch.
//! * A frame is flushed on its own vdev, and on the vdevs of blocks it refers to, and on no others: other writes to
//!   these vdevs were not acknowledged. So with a log vdev, an fsync touches no other vdev.
//! * Blocks of a frame are written before the frame and flushed with it, so the last frame may have survived without
//!   one of its blocks. Such a frame was not acknowledged: import finds it by reading these blocks, and drops it.
//!   Blocks that cannot be verified (without a checksum, or gang blocks) are flushed before the frame is written.
//! * If such a block was dropped meanwhile, it is freed like any other, so it is not overwritten before three more
//!   groups are committed.

mod read;
mod ring;

pub use read::read;
pub(crate) use read::{is_verifiable, stored_since};
pub(crate) use ring::{Place, Ring, Standing};

#[cfg(test)]
mod tests;
