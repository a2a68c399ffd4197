//! `pool add`: adds vdevs, cache devices and spares to a pool.

use clap::Args;
use protocol::{DeviceRequest, Exit, Failure, Response, unexpected_answer};

use super::layout;
use crate::args::ashift::DeviceProperties;
use crate::args::common::{pool_name, vdevs};
use crate::args::spares::spares;
use crate::context::Context;

/// Arguments of `pool add`.
#[derive(Args, Debug)]
#[command(
    after_help = "Data is spread over all vdevs. A device without a group word is a vdev without redundancy. The words mirror and raidz1 to
raidz3 group the devices after them into a vdev, as in 'pool create'.

Cannot be undone: RAID-Z, special and log vdevs, spares and cache devices each enable a feature, which the pool keeps after
their removal. Programs without the RAID-Z feature refuse the pool; programs without the other features import it only with
readonly=on. 'pool remove' removes a vdev again if the remaining vdevs have room for its data.

If devices are lost: the pool is lost when a data or special vdev loses more devices than its redundancy allows. A single
device has no redundancy. Losing a log vdev costs synchronous writes since the last commit, and only if power fails as well.
Losing a cache device or a spare costs nothing.

Examples:
  pool add tank /dev/sdd
  pool add tank mirror /dev/sdd /dev/sde
  pool add tank raidz1 /dev/sdd /dev/sde /dev/sdf
  pool add tank special mirror /dev/nvme0n1 /dev/nvme1n1
  pool add tank log /dev/pmem0               fsync then writes to no other device
  pool add tank 10G:/var/lib/tank2.img       create the image
  pool add tank spare /dev/sdg
  pool add tank cache /dev/nvme0n1           second-level read cache (L2ARC)
  pool add -n tank /dev/sdd                  show the layout and the cost of a loss"
)]
pub struct Arguments {
    /// Use devices that contain data (it is destroyed); allow vdevs of different redundancy
    #[arg(short = 'f')]
    force: bool,
    /// Dry run: show the resulting layout
    #[arg(short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    of_devices: DeviceProperties,
    /// The pool
    pool: String,
    /// Devices, optionally grouped: mirror A B, raidz2 A B C D, special X, log X, cache X, spare X
    #[arg(value_name = "VDEV", required = true)]
    vdevs: Vec<String>,
}

/// Adds devices, or prints the planned layout.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "add to";
    let pool = pool_name(action, &arguments.pool)?;
    arguments.of_devices.check(action, &pool, context)?;
    let (texts, spares) = spares(action, &pool, &arguments.vdevs)?;
    let vdevs = vdevs(action, &pool, &texts)?;
    let request = DeviceRequest::AddVdevs { vdevs, spares, force: arguments.force, dry_run: arguments.dry_run };
    let Response::Layout(layout) = context.call(&pool, request)? else {
        return Err(unexpected_answer());
    };
    if arguments.dry_run {
        context.print(&layout::render(&layout, "add"))?;
    }
    Ok(Exit::Done)
}
