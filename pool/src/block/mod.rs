//! Blocks: how bytes become what is stored on the devices, and back.
//!
//! A block's content is compressed if that saves room ([`compression`]) and its stored bytes are checksummed
//! ([`checksum`]). Both are pure functions of bytes; they know neither addresses nor devices.

pub mod checksum;
pub mod compression;
