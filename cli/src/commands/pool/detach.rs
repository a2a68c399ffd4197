//! `pool detach`: a device leaves its mirror.

use clap::Args;
use protocol::{Exit, Failure, Request, Response, unexpected_answer};

use crate::args::common::{device_name, pool_name};
use crate::context::Context;

/// Arguments of `pool detach`.
#[derive(Args, Debug)]
#[command(
    after_help = "Cannot be undone: the device belongs to nobody after that, its labels are erased, and it does not \
come back. From then on its mirror can lose one device less. One that alone holds what its mirror holds is not \
detached.

A replacement is canceled by detaching the new device. One that cannot complete, because some blocks have no good copy, is
brought to its end by detaching the old device with -f: what these blocks held stays lost. Without -f it is said what that is.

Examples:
  pool detach tank /dev/sdc
  pool detach -f tank /dev/sdb               it cannot be replaced without loss: let it go"
)]
pub struct Arguments {
    /// Although the device that takes its place lacks blocks of which there is no good copy
    #[arg(short = 'f')]
    force: bool,
    /// The pool
    pool: String,
    /// The device, by its path or number
    device: String,
}

/// Detaches.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("detach", &arguments.pool)?;
    let request = Request::Detach { device: device_name(&arguments.device)?, force: arguments.force };
    match context.call(&pool, request)? {
        Response::Layout(_) => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}
