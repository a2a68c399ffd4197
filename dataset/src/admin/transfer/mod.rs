//! Sending and receiving: planning streams, and landing streams.

pub(super) mod receive;
mod saved;
pub(super) mod send;
mod zfs;
