//! The commands `pool` and `fs`.
//!
//! ```text
//! bin/pool, bin/fs   the programs: standard streams in, exit code out
//! args               the command lines
//! commands           one file a subcommand: arguments -> requests, answers -> text
//! output             tables, JSON, dates, sizes, progress
//! protocol           what can be asked of a pool, and what is answered
//! execute            carries requests out
//! service            pools on this machine: known ones, their service processes, how commands reach them
//! owners             names and numbers of users and groups
//! failure            error -> message, hint, exit code
//! health             what is known of a pool -> state, what is wrong, what to do
//! ```
//!
//! No command knows an engine or a socket: it asks an [`protocol::Executor`]. The same definitions answer to the names
//! `zpool` and `zfs`, with messages as the programs expect that were written for those.

pub mod args;
pub mod commands;
pub mod context;
pub mod execute;
pub mod failure;
pub mod get;
mod health;
pub mod output;
mod owners;
pub mod protocol;
mod records;
pub mod run;
pub mod service;
pub mod tour;
