//! The commands `pool` and `fs`.
//!
//! ```text
//! bin/pool, bin/fs   the programs: standard streams in, exit code out
//! run                from arguments to the code of a subcommand
//! args               syntax and help that commands share
//! commands           one file a subcommand: arguments -> requests, answers -> text
//! output             tables, JSON, dates, sizes, failures, progress
//! ```
//!
//! Two crates are beneath this one:
//!
//! ```text
//! protocol           requests to a pool, their responses, and failures
//! service            executes requests: the pools on this machine, their service processes, access for commands
//! ```
//!
//! A command knows neither an engine nor a socket, and sends its requests to an [`protocol::Executor`]. The same
//! definitions run under the names `zpool` and `zfs`, with messages in the form that programs written for OpenZFS
//! expect.

pub mod args;
pub mod commands;
pub mod context;
pub mod get;
pub mod output;
pub mod program;
mod records;
pub mod run;
pub mod tour;
