//! `pool clear`: a pool goes on after its devices have failed, and their errors are forgotten.

use clap::Args;
use protocol::{Exit, Failure, Request};

use crate::args::common::{device_name, pool_name};
use crate::context::Context;

/// Arguments of `pool clear`.
#[derive(Args, Debug)]
#[command(
    after_help = "A suspended pool goes on where it stood still: nothing is lost that programs were told is written.
A device that came back as another one, or as an older state of itself, is refused.
One of a mirror that is away is done without, if another one holds all that it holds. A resilver that has ended with errors
is tried again.
The list of damaged files stays: a scrub that does not find them any more clears it.

Cannot be undone: the counts of errors are forgotten.

Examples:
  pool clear tank
  pool clear tank /srv/tank.img"
)]
pub struct Arguments {
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Only this device, by its path or number
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
}

/// Clears.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("clear errors for", &arguments.pool)?;
    let device = arguments.device.as_deref().map(device_name).transpose()?;
    context.run(&pool, Request::Clear { device })?;
    Ok(Exit::Done)
}
