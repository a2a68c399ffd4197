//! The subcommands: arguments to requests, responses to text. One file per subcommand.
//!
//! Each file has the `Arguments`, a `run` that turns arguments into requests, and pure functions that render the
//! responses, tested on data. Subcommands of both programs are directly in this directory.

pub mod completions;
pub mod fs;
pub mod manual;
pub mod mount_helper;
pub mod pool;
mod schedule;
pub mod version;
pub mod zstream;
