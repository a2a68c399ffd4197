//! `fs release`: removes a hold from snapshots.

use clap::Args;
use protocol::{DatasetRequest, Exit, Failure};

use super::hold::checked_tag;
use super::snapshot::by_pool;
use crate::args::common::names;
use crate::context::Context;

/// Arguments of `fs release`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  fs release keep tank/home@monday
  fs release -r audit tank@2025")]
pub struct Arguments {
    /// Include same-named snapshots of all descendants
    #[arg(short = 'r')]
    recursive: bool,
    /// The name of the hold
    tag: String,
    /// The snapshots
    #[arg(value_name = "SNAPSHOT", required = true)]
    names: Vec<String>,
}

/// Releases a hold on snapshots.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let tag = checked_tag(&arguments.tag)?;
    for (pool, names) in by_pool(names("release", &arguments.names)?) {
        context.run(&pool, DatasetRequest::Release { tag: tag.clone(), names, recursive: arguments.recursive })?;
    }
    Ok(Exit::Done)
}
