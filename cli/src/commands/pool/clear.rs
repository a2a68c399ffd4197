//! `pool clear`: the errors of devices are forgotten.

use clap::Args;

use crate::args::common::pool_name;
use crate::context::Context;
use crate::failure::{Exit, Failure};
use crate::protocol::Request;

/// Arguments of `pool clear`.
#[derive(Args, Debug)]
#[command(after_help = "The list of damaged files stays: a scrub that does not find them any more clears it.

Examples:
  pool clear tank
  pool clear tank /srv/tank.img")]
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
    let pool = pool_name("clear", &arguments.pool)?;
    context.run(&pool, Request::Clear { device: arguments.device.clone() })?;
    Ok(Exit::Done)
}
