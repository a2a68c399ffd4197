//! The data in requests and responses.
//!
//! Times are seconds since 1970 UTC, sizes bytes, modes those of `stat(2)`.
//!
//! ```text
//! pool      pools: state, activities, history, events, counters
//! state     states of pools, vdevs and devices
//! vdev      vdevs and their devices
//! plan      layouts, and effects of jobs before their start
//! layouts   layouts for a new pool, from disks and wishes
//! loss      the loss that failures of devices would cause
//! found     findings on devices: pools to import, states for a rewind, damage
//! dataset   datasets, their properties, snapshots and streams
//! foreseen  effects of dry runs on values, names and mounts
//! figures   what the kernel asks of mounted file systems, and caches
//! file      paths and files
//! parts     records of files and datasets in parts
//! property  properties with their values
//! ```

mod dataset;
mod figures;
mod file;
mod foreseen;
mod found;
mod layouts;
mod loss;
mod parts;
mod plan;
mod pool;
mod property;
mod state;
mod vdev;

pub use self::{
    dataset::*, figures::*, file::*, foreseen::*, found::*, layouts::*, loss::*, parts::*, plan::*, pool::*,
    property::*, state::*, vdev::*,
};
