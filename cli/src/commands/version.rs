//! `version`: the version of Cenote.

use clap::Args;
use protocol::{Exit, Failure};
use serde_json::json;

use crate::context::Context;

/// Arguments of `version`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs version
  pool version -j")]
pub struct Arguments {
    /// Print JSON
    #[arg(short = 'j', long)]
    json: bool,
}

/// Prints the version of Cenote. JSON has two, as in OpenZFS: the part in user space does the work of the module too.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let version = concat!("cenote-", env!("CARGO_PKG_VERSION"));
    match arguments.json {
        true => context.print_json("version", "zfs_version", json!({ "userland": version, "kernel": version }))?,
        false => context.print(&format!("{version}\n"))?,
    }
    Ok(Exit::Done)
}
