//! `pool scrub`: everything in a pool that is in use is verified, and mended where there is a good copy.

use clap::Args;

use crate::args::common::pool_name;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::protocol::{Request, ScrubAction};

/// Arguments of `pool scrub`.
#[derive(Args, Debug)]
#[command(
    after_help = "A scrub works in the background, after everybody else. 'pool status' shows how far it has come and what it found.
It goes on after the pool was exported and imported.

Examples:
  pool scrub tank
  pool scrub -w tank && pool status -v tank
  pool scrub -p tank                         pause; 'pool scrub tank' goes on"
)]
pub struct Arguments {
    /// Pause
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait"])]
    pause: bool,
    /// Stop
    #[arg(short = 's', conflicts_with = "wait")]
    stop: bool,
    /// Wait until it is done
    #[arg(short = 'w')]
    wait: bool,
    /// The pools
    #[arg(value_name = "POOL", required = true)]
    pools: Vec<String>,
}

/// Starts, pauses or stops.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = match (arguments.pause, arguments.stop) {
        (true, _) => ScrubAction::Pause,
        (_, true) => ScrubAction::Stop,
        _ => ScrubAction::Start,
    };
    let pools: Vec<String> = arguments.pools.iter().map(|text| pool_name("scrub", text)).collect::<Result<_, _>>()?;
    for pool in &pools {
        context.run(pool, Request::Scrub { action })?;
    }
    for pool in pools.iter().filter(|_| arguments.wait) {
        context.run(pool, Request::WaitForScrub)?;
    }
    Ok(Exit::Done)
}
