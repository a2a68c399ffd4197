//! `pool detach`: detaches a device from its mirror.

use clap::Args;
use protocol::{DeviceRequest, Exit, Failure, Response, unexpected_answer};

use crate::args::common::{device_name, pool_name};
use crate::context::Context;

/// Arguments of `pool detach`.
#[derive(Args, Debug)]
#[command(
    after_help = "Detaching the new device cancels a replacement. A replacement blocked by blocks without a good copy is completed by detaching
the old device with -f; the content of the blocks stays lost. Without -f the command reports the loss and refuses. The only
complete device of a mirror cannot be detached.

Cannot be undone: the labels of the device are erased, and the device cannot return with its content. The mirror tolerates one
failure less.

Examples:
  pool detach tank /dev/sdc
  pool detach -f tank /dev/sdb               give up blocks without a good copy"
)]
pub struct Arguments {
    /// Detach even if the replacement lacks blocks without a good copy
    #[arg(short = 'f')]
    force: bool,
    /// The pool
    pool: String,
    /// The device (path or GUID)
    device: String,
}

/// Detaches a device and prints nothing.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("detach", &arguments.pool)?;
    let request = DeviceRequest::Detach { device: device_name(&arguments.device)?, force: arguments.force };
    match context.call(&pool, request)? {
        Response::Layout(_) => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}
