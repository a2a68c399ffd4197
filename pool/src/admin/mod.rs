//! Administration: what is done to a pool as a whole rather than to what is in it.
//!
//! - [`labels`]: writing and finding labels on a device.
//! - [`uberblocks`]: writing uberblocks, and finding the newest state on all devices of a pool.
//! - [`probe`]: recognising what else a device may hold, before it is overwritten.

pub mod labels;
pub mod probe;
pub mod uberblocks;
