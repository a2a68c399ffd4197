//! `pool trim`: the devices are told which space nobody needs.

use clap::Args;
use dataset::property::size::{format_bytes, parse_size};

use crate::args::common::pool_name;
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::protocol::{Request, Response};

/// Arguments of `pool trim`.
#[derive(Args, Debug)]
#[command(
    after_help = "Image files get holes where nothing is. Free space in pieces below 1M is left alone, and so is what is used next. Nothing is
touched that the last three commits refer to; going back further with 'pool import -F' may find less afterwards.

The command waits until it is done; what was done when it is interrupted stays done.

Examples:
  pool trim tank
  pool trim -r 100M tank                     at most so many bytes a second"
)]
pub struct Arguments {
    /// At most so many bytes a second
    #[arg(short = 'r', value_name = "RATE")]
    rate: Option<String>,
    /// Wait until it is done; that is always so
    #[arg(short = 'w', hide = true)]
    wait: bool,
    /// The pools
    #[arg(value_name = "POOL", required = true)]
    pools: Vec<String>,
}

/// Trims.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pools: Vec<String> = arguments.pools.iter().map(|text| pool_name("trim", text)).collect::<Result<_, _>>()?;
    let rate = arguments.rate.as_deref().map(rate).transpose()?;
    for pool in &pools {
        let Response::Trimmed(bytes) = context.call(pool, Request::Trim { rate })? else {
            return Err(unexpected_answer());
        };
        context.print(&format!("{pool}: {} of free space given back\n", format_bytes(bytes)))?;
    }
    Ok(Exit::Done)
}

/// So many bytes a second.
pub(super) fn rate(text: &str) -> Result<u64, Failure> {
    let rate = parse_size(text).map_err(|error| Failure::usage(format!("bad rate: {error}")))?;
    if rate == 0 { Err(Failure::usage("a rate of 0 would never end")) } else { Ok(rate) }
}
