//! The command lines: which subcommands there are, and the arguments that several of them share.
//!
//! The arguments of one subcommand stand with what it does, under [`crate::commands`]. From these definitions come the
//! parser, `--help`, the manual pages and the completions.

pub mod absent;
pub mod common;
pub mod flow;
pub mod fs;
pub mod pool;
pub mod reference;
pub mod related;
pub mod sort;
pub mod spares;
pub mod usage;
