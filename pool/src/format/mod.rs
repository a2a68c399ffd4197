//! Every on-disk structure, and nothing else: bytes to types and back, no I/O.
//!
//! All integers are little-endian and of explicit size, or variable-length (LEB128, at most ten bytes). Whatever is
//! read is hostile until its checksum and then each of its fields was verified: decoding returns an error, never panics
//! and never allocates more than the bytes at hand justify. `pool/FORMAT.md` is the same in words and byte tables.

pub mod cache_segment;
pub mod codec;
pub mod gang;
pub mod intent;
pub mod key;
pub mod label;
pub mod node;
pub mod pointer;
pub mod space;
pub mod uberblock;
pub mod vdev_config;
