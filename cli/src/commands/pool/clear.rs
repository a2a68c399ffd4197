//! `pool clear`: clears device errors, and resumes a suspended pool.

use clap::Args;
use protocol::{Exit, Failure, PoolRequest};

use crate::args::common::{device_name, pool_name};
use crate::context::Context;

/// Arguments of `pool clear`.
#[derive(Args, Debug)]
#[command(
    after_help = "A suspended pool resumes where writing stopped; no acknowledged write is lost. A returning device with foreign or outdated
content is refused. A missing member of a mirror is faulted if another member is complete. A resilver with errors is retried.
The list of damaged files stays until a scrub finds the files intact.

Cannot be undone: the error counters are reset to zero.

Examples:
  pool clear tank
  pool clear tank /srv/tank.img"
)]
pub struct Arguments {
    /// The pool
    #[arg(value_name = "POOL")]
    pool: String,
    /// Clear the errors of one device only (path or GUID)
    #[arg(value_name = "DEVICE")]
    device: Option<String>,
}

/// Clears errors of a device or of all devices.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("clear errors for", &arguments.pool)?;
    let device = arguments.device.as_deref().map(device_name).transpose()?;
    context.run(&pool, PoolRequest::Clear { device })?;
    Ok(Exit::Done)
}
