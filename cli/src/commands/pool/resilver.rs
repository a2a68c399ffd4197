//! `pool resilver`: the resilver of a pool begins again.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{Exit, Failure, Request};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool resilver`.
#[derive(Args, Debug)]
#[command(
    after_help = "A device that lacks something is filled at once and without this, and after an export or a crash from where that was. What
has no good copy is looked for again.
Where no device lacks anything there is nothing to do.

Examples:
  pool resilver tank
  pool resilver tank && pool wait -t resilver tank"
)]
pub struct Arguments {
    /// The pools
    #[arg(value_name = "POOL", required = true)]
    pools: Vec<String>,
}

/// Begins again.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pools: Vec<String> =
        arguments.pools.iter().map(|text| pool_name("resilver", text)).collect::<Result<_, _>>()?;
    for pool in &pools {
        context.run(pool, Request::start(Kind::Resilver, None))?;
    }
    Ok(Exit::Done)
}
