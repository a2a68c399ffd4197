//! `pool replace`: a device takes the place of another one.

use clap::Args;

use crate::args::common::{device_name, pool_name, vdev};
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::protocol::{Request, Response};

/// Arguments of `pool replace`.
#[derive(Args, Debug)]
#[command(
    after_help = "The new device is attached, filled in the background, and then the old one leaves: until then it serves as before, if it
still does. A device that is the only one of its vdev is replaced as well. If the new one cannot be given all that the old one
holds, the old one stays, and 'pool detach' of the new one cancels it until then.

Cannot be undone: what the new device held is lost at once. When the old one has left, its labels are erased, and it \
does not come back.

Examples:
  pool replace tank /dev/sdb /dev/sdd
  pool replace -w tank /dev/sdb /dev/sdd     wait until the old device has left"
)]
pub struct Arguments {
    /// Take the device although it holds something; what it holds is lost
    #[arg(short = 'f')]
    force: bool,
    /// Wait until the old device has left
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    pool: String,
    /// The device to be replaced, by its path or number
    device: String,
    /// The new device
    #[arg(value_name = "NEW")]
    new: String,
}

/// Replaces.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "replace";
    let pool = pool_name(action, &arguments.pool)?;
    let new = vdev(action, &pool, &arguments.new)?;
    let request = Request::Attach {
        device: device_name(&arguments.device)?,
        new: new.clone(),
        replace: true,
        force: arguments.force,
        limit: None,
    };
    let Response::Layout(_) = context.call(&pool, request)? else { return Err(unexpected_answer()) };
    if arguments.wait {
        context.run(&pool, Request::WaitForResilver { device: new.path.to_text() })?;
    }
    Ok(Exit::Done)
}
