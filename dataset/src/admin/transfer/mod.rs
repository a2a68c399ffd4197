//! Sending and receiving: planning streams, and landing streams.

pub(super) mod receive;
pub(super) mod send;
mod zfs;
