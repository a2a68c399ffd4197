//! `pool export`: closes pools and removes each from the registry; the devices can then move to another machine.

use clap::Args;
use protocol::{Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool export`.
#[derive(Args, Debug)]
#[command(after_help = "Unmounts the file systems of the pools, commits, and closes the devices.

Cannot be undone: --abandon gives up what a suspended pool could not write. If the devices can be brought back, 'pool clear'
writes the data instead and loses nothing. An export without --abandon gives up nothing.

Examples:
  pool export tank
  pool export --abandon tank                 discard unwritten data of a suspended pool")]
pub struct Arguments {
    /// Export all pools
    #[arg(short = 'a', conflicts_with = "pools")]
    all: bool,
    /// Unmount busy file systems
    #[arg(short = 'f')]
    force: bool,
    /// Discard what a suspended pool cannot write; its last commit remains
    #[arg(long)]
    abandon: bool,
    /// The pools
    #[arg(value_name = "POOL", required_unless_present = "all")]
    pools: Vec<String>,
}

/// Exports the named pools, or all.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pools = match arguments.all {
        true => context.executor.known_pools()?,
        false => arguments.pools.iter().map(|text| pool_name("export", text)).collect::<Result<_, _>>()?,
    };
    match context.host(HostRequest::Export { pools, force: arguments.force, abandon: arguments.abandon })? {
        HostResponse::Done => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}
