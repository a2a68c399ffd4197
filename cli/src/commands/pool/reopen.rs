//! `pool reopen`: opens devices again after missing responses.

use clap::Args;
use protocol::{Exit, Failure, PoolRequest};

use crate::context::Context;

/// Arguments of `pool reopen`.
#[derive(Args, Debug)]
#[command(
    after_help = "Reopens devices like 'pool clear', but keeps the error counters: a suspended pool resumes, and returning devices are resilvered.
Offline devices stay offline. Device sizes are read again: see 'pool online -e'.

Examples:
  pool reopen
  pool reopen tank"
)]
pub struct Arguments {
    /// The pools (default: all)
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Reopens the devices of pools.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for pool in context.pools(&arguments.pools)? {
        context.call_each(&arguments.pools, &pool, PoolRequest::Reopen)?;
    }
    Ok(Exit::Done)
}
