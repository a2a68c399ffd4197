//! `pool labelclear`: a device belongs to no pool any more.

use clap::Args;
use protocol::{Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use crate::args::common::absolute;
use crate::context::Context;

/// Arguments of `pool labelclear`.
#[derive(Args, Debug)]
#[command(
    after_help = "Cannot be undone: what the pool holds there is lost with the labels, unless other devices hold it too.
A device of an imported pool is refused, with -f too: take it out first, or destroy the pool.

Examples:
  pool labelclear /dev/sdb                   of a pool that was destroyed
  pool labelclear -f /dev/sdb                although it belongs to an exported pool"
)]
pub struct Arguments {
    /// Although the device belongs to a pool that is exported or may be in use by another host, or its labels are damaged
    #[arg(short = 'f')]
    force: bool,
    /// The device, by its path
    #[arg(value_name = "DEVICE")]
    device: std::ffi::OsString,
}

/// Erases.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let device = absolute(&arguments.device)?;
    match context.host(HostRequest::ClearLabels { device, force: arguments.force })? {
        HostResponse::Done => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}
