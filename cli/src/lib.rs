//! The commands `pool` and `fs`.
//!
//! ```text
//! bin/pool, bin/fs   the programs: standard streams in, exit code out
//! args               the command lines
//! commands           one file a subcommand: arguments -> requests, answers -> text
//! output             tables, JSON, dates, sizes, failures, progress
//! ```
//!
//! Two crates are beneath this one:
//!
//! ```text
//! protocol           what can be asked of a pool, what is answered, and how it fails
//! service            carries requests out: the pools on this machine, their service processes, how commands reach them
//! ```
//!
//! No command knows an engine or a socket: it asks an [`protocol::Executor`]. The same definitions answer to the names
//! `zpool` and `zfs`, with messages as the programs expect that were written for those.

pub mod args;
pub mod commands;
pub mod context;
pub mod get;
pub mod output;
mod records;
pub mod run;
pub mod tour;
