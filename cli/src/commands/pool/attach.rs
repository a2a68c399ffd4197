//! `pool attach`: forms or extends a mirror, or expands a RAID-Z.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{DeviceRequest, Exit, Failure, JobTarget, Order, Request, Response, unexpected_answer};

use super::layout;
use crate::args::ashift::DeviceProperties;
use crate::args::common::{pool_name, vdev, vdev_name};
use crate::args::rate;
use crate::context::Context;

/// Arguments of `pool attach`.
#[derive(Args, Debug)]
#[command(
    after_help = "Attached to a single device or a mirror, the new device is resilvered in the background; 'pool status' shows the progress. The
new device adds no redundancy until the resilver completes.

Attached to a RAID-Z, the new device widens the vdev. Blocks are moved into rows with the new device, as far as the vdev has
free space. Redundancy stays the same. A paused expansion continues with 'pool attach POOL RAIDZ'. After an export or a crash the
expansion continues, and copies only the rows in progress again. The expansion waits
for a removal, a rebalance, a defragmentation or a resize.

Cannot be undone: the previous content of the new device is destroyed. 'pool detach' removes a device from a mirror, but not
from a RAID-Z. An expanded RAID-Z enables features; programs without them refuse the pool. 'pool import -F' can no longer rewind
to a txg with blocks in space given up by the expansion.

Examples:
  pool attach tank /dev/sdb /dev/sdc
  pool attach tank raidz1-0 /dev/sdd
  pool attach -n tank raidz1-0 /dev/sdd             show the layout with the new device
  pool attach --limit 20M tank raidz1-0 /dev/sdd    copy at most 20M per second
  pool attach --limit 50M tank raidz1-0             change the limit
  pool attach -p tank                               pause the expansion
  pool attach tank raidz1-0                         continue the expansion
  pool attach -w tank /srv/tank.img 10G:/mnt/usb/tank.img"
)]
pub struct Arguments {
    /// Use a device that contains data; the data is destroyed
    #[arg(short = 'f')]
    force: bool,
    /// Dry run: show the resulting layout
    #[arg(short = 'n', conflicts_with_all = ["pause", "wait", "limit"], requires = "new")]
    dry_run: bool,
    /// Pause the expansion
    #[arg(short = 'p', conflicts_with_all = ["force", "wait", "limit", "new"])]
    pause: bool,
    /// Limit the expansion to RATE bytes per second; 'none' removes the limit
    #[arg(long = "limit", value_name = "RATE")]
    limit: Option<String>,
    /// Wait until the resilver or the expansion finishes
    #[arg(short = 'w')]
    wait: bool,
    #[command(flatten)]
    of_devices: DeviceProperties,
    /// The pool
    pool: String,
    /// A device of the pool (path or GUID), or the name of a RAID-Z
    #[arg(required_unless_present = "pause")]
    device: Option<String>,
    /// The new device; without NEW, a paused expansion continues
    #[arg(value_name = "NEW")]
    new: Option<String>,
}

/// Attaches a device, or controls an expansion.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "attach to";
    let pool = pool_name(action, &arguments.pool)?;
    let limit = arguments.limit.as_deref().map(rate::limit).transpose()?;
    // Without a device, the command pauses the expansion.
    let Some(device) = arguments.device.as_deref().filter(|_| !arguments.pause) else {
        return context.run(&pool, Request::pause(Kind::Expand)).map(|()| Exit::Done);
    };
    let Some(new) = &arguments.new else {
        if !is_raidz(device) {
            return Err(Failure::usage(format!("missing the device to attach to '{device}'")));
        }
        context.run(&pool, Request::start(Kind::Expand, limit))?;
        return if arguments.wait { wait(&pool, context) } else { Ok(Exit::Done) };
    };
    arguments.of_devices.check(action, &pool, context)?;
    let new = vdev(action, &pool, new)?;
    let request = DeviceRequest::Attach {
        device: vdev_name(device)?,
        new: new.clone(),
        replace: false,
        force: arguments.force,
        limit,
        dry_run: arguments.dry_run,
    };
    let Response::Layout(planned) = context.call(&pool, request)? else { return Err(unexpected_answer()) };
    if arguments.dry_run {
        return context.print(&layout::render(&planned, "attach")).map(|()| Exit::Done);
    }
    if arguments.wait && is_raidz(device) {
        return wait(&pool, context);
    }
    if arguments.wait {
        context.run(&pool, Request::job(Kind::Resilver, Order::Wait(JobTarget::Device(new.path.to_text()))))?;
    }
    Ok(Exit::Done)
}

fn wait(pool: &str, context: &mut Context<'_>) -> Result<Exit, Failure> {
    match context.call(pool, Request::wait(Kind::Expand))? {
        Response::Layout(_) => Ok(Exit::Done),
        _ => Err(unexpected_answer()),
    }
}

/// Whether the name is a RAID-Z vdev, such as raidz1-0.
fn is_raidz(name: &str) -> bool {
    name.starts_with("raidz") && !name.contains('/')
}
