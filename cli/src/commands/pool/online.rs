//! `pool online`: devices of mirrors are taken back, and get what they have missed.

use clap::Args;

use crate::args::common::{device_name, pool_name};
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::protocol::Request;

/// Arguments of `pool online`.
#[derive(Args, Debug)]
#[command(after_help = "A device that was changed without the others is refused: detach it, and attach it again.

Examples:
  pool online tank /dev/sdb")]
pub struct Arguments {
    /// The pool
    pool: String,
    /// The devices, by their paths or numbers
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
}

/// Takes back.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("online", &arguments.pool)?;
    for device in &arguments.devices {
        context.run(&pool, Request::Online { device: device_name(device)? })?;
    }
    Ok(Exit::Done)
}
