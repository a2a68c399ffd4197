//! The command lines: the subcommands, and their shared arguments.
//!
//! The arguments of a single subcommand are defined beside its code, under [`crate::commands`]. The parser, `--help`,
//! the manual pages and the completions come from the same definitions.

pub mod absent;
pub mod common;
pub mod flow;
pub mod fs;
pub mod ignored;
pub mod pool;
pub mod reference;
pub mod related;
pub mod sort;
pub mod spares;
pub mod usage;
