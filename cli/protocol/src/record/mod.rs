//! The data in requests and responses.
//!
//! Times are seconds since 1970 UTC, sizes bytes, modes those of `stat(2)`.
//!
//! ```text
//! pool      pools and their devices: state, scrubs, history, counters
//! found     findings on devices: pools to import, states for a rewind, damage
//! dataset   datasets, their properties, snapshots and streams
//! file      paths and files
//! parts     records of files and datasets in parts
//! property  properties with their values
//! ```

mod dataset;
mod file;
mod found;
mod parts;
mod pool;
mod property;

pub use self::{dataset::*, file::*, found::*, parts::*, pool::*, property::*};
