//! Datasets on top of the storage engine: names, properties, file systems, snapshots, streams.

pub mod admin;
pub mod archive;
pub mod catalogue;
pub mod error;
pub mod fs;
pub mod inspect;
pub mod jobs;
pub mod lineage;
pub mod name;
mod opening;
pub mod property;
pub mod scrub;
pub mod stream;
mod underway;
pub mod zfs;
