//! Data sets on top of the storage engine: names, properties, file systems, snapshots, streams.

pub mod name;
pub mod property;
