//! Blocks on their way to the devices and back.
//!
//! ```text
//! compression   compress a block, or leave it
//! checksum      verify a block
//! storage       the devices and their space as one: addresses to bytes
//! write         compress, checksum, allocate, and write many blocks in one run
//! read          any copy that verifies
//! gang          blocks stored in several pieces
//! repair        examining every copy, and repairing bad ones
//! runs          many blocks, by few requests
//! ahead         prefetch: runs read before a reader waits for them
//! spares        buffers of a stream, used again
//! key           a block's identity for caches
//! ```
//!
//! Invariant: no layer above this module ever sees a byte of a block whose checksum was not verified.

mod ahead;
pub mod checksum;
pub mod compression;
mod gang;
mod key;
mod read;
mod repair;
mod runs;
mod spares;
pub mod storage;
mod tier;
mod write;

pub(crate) use ahead::{Ahead, Part};
pub(crate) use key::{BlockKey, key};
pub(crate) use read::unpacked;
pub(crate) use repair::Copying;
pub use repair::{Bad, Examined};
pub use spares::{Spares, Stored};
pub use write::{Payload, Policy};
