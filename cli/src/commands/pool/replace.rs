//! `pool replace`: replaces a device by a new device.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{DeviceRequest, Exit, Failure, JobTarget, Order, Request, Response, VdevSpec, unexpected_answer};

use super::layout;
use crate::args::ashift::DeviceProperties;
use crate::args::common::{device_name, pool_name, vdev};
use crate::context::Context;

/// Arguments of `pool replace`.
#[derive(Args, Debug)]
#[command(
    after_help = "The new device is attached and resilvered in the background. Then the old device is detached; until then a working old device
stays in use. 'pool detach' of the new device cancels the replacement. If blocks have no good copy, the old device stays attached.

Without NEW, the new device is the device now at the path of the old device, even the same disk after a wipe. A spare named as
NEW stays in use until 'pool detach' returns it. If a spare already replaced the device and is complete, the old device
is detached at once; the spare becomes available after the resilver.

Cannot be undone: the previous content of the new device is destroyed. The labels of the old device are erased at the end.

If devices are lost: the new device adds no redundancy until the resilver completes. While the old device is missing, the vdev
tolerates one failure less.

Examples:
  pool replace tank /dev/sdb /dev/sdd
  pool replace tank /dev/sdb                 new disk at the same path
  pool replace -n tank /dev/sdb /dev/sdd     show the layout with the new device
  pool replace -w tank /dev/sdb /dev/sdd     wait until the old device is detached"
)]
pub struct Arguments {
    /// Use a device that contains data; the data is destroyed
    #[arg(short = 'f')]
    force: bool,
    /// Dry run: show the resulting layout
    #[arg(short = 'n', conflicts_with = "wait")]
    dry_run: bool,
    /// Wait until the replacement finishes
    #[arg(short = 'w')]
    wait: bool,
    #[command(flatten)]
    of_devices: DeviceProperties,
    /// The pool
    pool: String,
    /// The device to replace (path or GUID)
    device: String,
    /// The new device, or a spare of the pool (default: the device at the same path)
    #[arg(value_name = "NEW")]
    new: Option<String>,
}

/// Replaces a device, and waits on request.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "replace";
    let pool = pool_name(action, &arguments.pool)?;
    arguments.of_devices.check(action, &pool, context)?;
    let device = device_name(&arguments.device)?;
    let new = match &arguments.new {
        Some(new) => vdev(action, &pool, new)?,
        None if device.parse::<u64>().is_ok() => {
            return Err(Failure::usage(format!("missing the new device to replace GUID {device}")));
        }
        None => VdevSpec { path: device.as_str().into(), create: None },
    };
    let request = DeviceRequest::Attach {
        device,
        new: new.clone(),
        replace: true,
        force: arguments.force,
        limit: None,
        dry_run: arguments.dry_run,
    };
    let Response::Layout(planned) = context.call(&pool, request)? else { return Err(unexpected_answer()) };
    if arguments.dry_run {
        return context.print(&layout::render(&planned, "replace")).map(|()| Exit::Done);
    }
    if arguments.wait {
        context.run(&pool, Request::job(Kind::Resilver, Order::Wait(JobTarget::Device(new.path.to_text()))))?;
    }
    Ok(Exit::Done)
}
