//! Placeholder.

pub mod stream;
