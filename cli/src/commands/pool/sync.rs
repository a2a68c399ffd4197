//! `pool sync`: commits all writes so far before returning.

use clap::Args;
use protocol::{Exit, Failure, PoolRequest};

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

/// Commits each named pool, or all.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for pool in context.pools(&arguments.pools)? {
        context.call_each(&arguments.pools, &pool, PoolRequest::Sync)?;
    }
    Ok(Exit::Done)
}
