//! `pool replace`: a device takes the place of another one.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{Exit, Failure, JobTarget, Order, Request, Response, VdevSpec, unexpected_answer};

use crate::args::common::{device_name, pool_name, vdev};
use crate::context::Context;

/// Arguments of `pool replace`.
#[derive(Args, Debug)]
#[command(
    after_help = "The new device is attached, filled in the background, and then the old one leaves: until then it serves as before, if it
still does. A device that is the only one of its vdev is replaced as well. If the new one cannot be given all that the old one
holds, the old one stays, and 'pool detach' of the new one cancels it until then.

With one device, the new one is what stands at its path by now, which may be the same disk, wiped. A spare of the pool steps in as it would by itself, and stays \
until 'pool detach' gives it back. If a spare has stepped in for the device and has everything, the device leaves at once, and the \
spare stands by again when the new one has everything.

If devices are lost: until the new device has everything it counts for nothing, and the old one for what it still \
gives; if that is offline or gone, its vdev can lose one device less until then.

Cannot be undone: what the new device held is lost at once. When the old one has left, its labels are erased, and it \
does not come back.

Examples:
  pool replace tank /dev/sdb /dev/sdd
  pool replace tank /dev/sdb                 by another disk at the same path
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
    /// The new device, or a spare of the pool; without one, what stands at the path of the old one
    #[arg(value_name = "NEW")]
    new: Option<String>,
}

/// Replaces.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "replace";
    let pool = pool_name(action, &arguments.pool)?;
    let device = device_name(&arguments.device)?;
    let new = match &arguments.new {
        Some(new) => vdev(action, &pool, new)?,
        None if device.parse::<u64>().is_ok() => {
            return Err(Failure::usage(format!("which device is to replace number {device}? name its path")));
        }
        None => VdevSpec { path: device.as_str().into(), create: None },
    };
    let request = Request::Attach { device, new: new.clone(), replace: true, force: arguments.force, limit: None };
    let Response::Layout(_) = context.call(&pool, request)? else { return Err(unexpected_answer()) };
    if arguments.wait {
        context.run(&pool, Request::job(Kind::Resilver, Order::Wait(JobTarget::Device(new.path.to_text()))))?;
    }
    Ok(Exit::Done)
}
