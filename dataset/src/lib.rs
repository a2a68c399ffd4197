//! Datasets on top of the storage engine: names, properties, file systems, snapshots, streams.

pub mod admin;
pub mod catalogue;
pub mod fs;
pub mod inspect;
pub mod jobs;
pub mod lineage;
pub mod name;
pub mod property;
pub mod scrub;
pub mod stream;
