//! Blocks on their way to the devices and back.
//!
//! ```text
//! compression   make it smaller, or leave it
//! checksum      know it again
//! storage       the devices and their space as one: addresses to bytes
//! write         compress, checksum, allocate, and write many blocks in one run
//! read          any copy that verifies
//! gang          blocks that find no room in one piece
//! mend          every copy, and good ones over bad ones
//! runs          many blocks, by few requests
//! ahead         runs that are being read before anybody waits for them
//! cache         decoded nodes and decompressed data, bounded
//! ```
//!
//! Invariant: nobody above this module ever sees a byte of a block whose checksum was not verified.

mod ahead;
pub mod cache;
pub mod checksum;
pub mod compression;
mod gang;
mod mend;
mod read;
mod runs;
pub mod storage;
mod write;

pub(crate) use ahead::{Ahead, Part};
pub(crate) use mend::Copying;
pub use mend::{Bad, Examined};
pub(crate) use read::unpacked;
pub use write::Payload;
