//! Blocks.
pub mod compression;
