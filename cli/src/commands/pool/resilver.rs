//! `pool resilver`: restarts the resilver of a pool.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{Exit, Failure, Request};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool resilver`.
#[derive(Args, Debug)]
#[command(
    after_help = "A resilver starts automatically when a device lacks data, and continues after an export or a crash. 'pool resilver' restarts it
from the beginning and retries blocks without a good copy. If all devices are complete, nothing is done.

Examples:
  pool resilver tank
  pool resilver tank && pool wait -t resilver tank"
)]
pub struct Arguments {
    /// The pools
    #[arg(value_name = "POOL", required = true)]
    pools: Vec<String>,
}

/// Restarts the resilver of each pool.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pools: Vec<String> =
        arguments.pools.iter().map(|text| pool_name("resilver", text)).collect::<Result<_, _>>()?;
    for pool in &pools {
        context.run(pool, Request::start(Kind::Resilver, None))?;
    }
    Ok(Exit::Done)
}
