//! `pool reopen`: devices that did not answer are opened anew.

use clap::Args;
use protocol::{Exit, Failure, Request};

use crate::context::Context;

/// Arguments of `pool reopen`.
#[derive(Args, Debug)]
#[command(
    after_help = "As 'pool clear', without forgetting errors: a suspended pool goes on, and devices that have failed are
taken back. Those that were put offline stay so, as does a device that is still away. Devices are measured anew: see
'pool online -e'.

Examples:
  pool reopen
  pool reopen tank"
)]
pub struct Arguments {
    /// Leave a scrub as it is; that is always so
    #[arg(short = 'n', hide = true)]
    keep_scrub: bool,
    /// The pools; without one, all
    #[arg(value_name = "POOL")]
    pools: Vec<String>,
}

/// Opens anew.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for pool in context.pools(&arguments.pools)? {
        context.call_each(&arguments.pools, &pool, Request::Reopen)?;
    }
    Ok(Exit::Done)
}
