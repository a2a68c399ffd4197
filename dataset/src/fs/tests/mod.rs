//! The file system on a real engine over a device in memory.

mod accounts;
mod acl;
mod attributes;
mod checker;
mod content;
mod model;
mod names;
mod paths;
mod quotas;
pub(in crate::fs) mod world;
