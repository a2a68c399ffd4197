//! `pool sync`: what was written is committed before it returns.

use clap::Args;
use protocol::{Exit, Failure, Request};

use crate::context::Context;

/// Arguments of `pool sync`.
#[derive(Args, Debug)]
#[command(after_help = "Commits all pending changes of the pools, and returns when the commit is on stable storage.

Examples:
  pool sync
  pool sync tank")]
pub struct Arguments {
    /// The pools (default: all)
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Commits.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for pool in context.pools(&arguments.pools)? {
        context.call_each(&arguments.pools, &pool, Request::Sync)?;
    }
    Ok(Exit::Done)
}
