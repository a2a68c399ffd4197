//! What the subcommands do: arguments to requests, responses to text. One file a subcommand.
//!
//! Each file has the `Arguments`, a `run` that turns them into requests, and pure functions that render the answers,
//! tested on data. Those that both programs have stand here.

pub mod completions;
pub mod fs;
pub mod manual;
pub mod mount_helper;
pub mod pool;
pub mod version;
