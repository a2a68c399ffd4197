//! Arguments that subcommands share, and the form of help.
//!
//! Subcommands and their own arguments are defined beside their code, under [`crate::commands`]. The parser, `--help`,
//! the manual pages and the completions come from the same definitions.

pub mod absent;
pub mod altroot;
pub mod ashift;
pub mod clock;
pub mod common;
pub mod dry;
pub mod flow;
pub mod ignored;
pub mod names;
pub mod rate;
pub mod reference;
pub mod related;
pub mod sort;
pub mod spares;
pub mod transfer;
pub mod usage;
