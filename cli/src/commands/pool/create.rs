//! `pool create`: a new pool on image files or devices.

use clap::Args;
use dataset::name::check_new_pool;
use dataset::property::Property;
use dataset::property::dataset::MOUNTPOINT;
use protocol::{CreatePool, Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use super::layout;
use crate::args::common::{assignments, split_assignment, vdevs};
use crate::args::spares::spares;
use crate::context::Context;

/// Arguments of `pool create`.
#[derive(Args, Debug)]
#[command(
    after_help = "A device is the path of an image file or a block device; SIZE:PATH creates the image. Data is spread over all
devices, and each byte is on one of them. Devices named after the word 'mirror' hold the same: as long as one is left, nothing
is lost. Of those after 'raidz1' (or 'raidz'), 'raidz2' or 'raidz3', any one, two or three may be lost; that much of their
space is parity. A block there takes whole rows, of a sector of each device that is left: small blocks take more. If some of
them are larger, what they have more is used as far as there are more of them than of parity: -n shows what comes of it.
Those after 'spare' hold nothing, and stand by until another one fails.

What is named after 'special' takes metadata first of all, and records of datasets that are small enough for their property
special_small_blocks; it is lost with everything, so let it stand as much as the rest. What is named after 'log' takes
the intent log and nothing else: an fsync then touches no other device. What is named after 'cache' takes copies of what is
read (ZFS: L2ARC), for data that is read again and again and is too much for memory. It takes nothing that is not elsewhere,
so it is a single device, and none of the pool's space; it keeps what it has over export and import. What goes there is
the property secondarycache.

Examples:
  pool create tank 10G:/var/lib/tank.img
  pool create -O compression=zstd -m /srv tank /dev/sdb /dev/sdc
  pool create tank mirror /dev/sdb /dev/sdc
  pool create tank mirror /dev/sdb /dev/sdc mirror /dev/sdd /dev/sde
  pool create tank raidz2 /dev/sdb /dev/sdc /dev/sdd /dev/sde /dev/sdf
  pool create tank mirror /dev/sdb /dev/sdc special mirror /dev/nvme0n1 /dev/nvme1n1 log /dev/pmem0
  pool create tank mirror /dev/sdb /dev/sdc spare /dev/sdd
  pool create tank mirror /dev/sdb /dev/sdc cache /dev/nvme0n1
  pool create -n tank /dev/sdb               say what would be, and what a loss would cost"
)]
pub struct Arguments {
    /// Take a device although it holds something, which is lost; mix vdevs that stand unequally much
    #[arg(short = 'f')]
    force: bool,
    /// Only say what would be
    #[arg(short = 'n')]
    dry_run: bool,
    /// Set a property of the pool
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    pool_properties: Vec<(String, String)>,
    /// Set a property of the pool's root file system, for all to inherit
    #[arg(short = 'O', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    root_properties: Vec<(String, String)>,
    /// Where the root file system is mounted: a directory, none, or legacy
    #[arg(short = 'm', value_name = "MOUNTPOINT")]
    mountpoint: Option<String>,
    /// The pool
    name: String,
    /// The devices; mirror, raidz1, raidz2 or raidz3 before those that are one vdev; special, log, cache or spare before what is for that
    #[arg(value_name = "VDEV", required = true)]
    vdevs: Vec<String>,
}

/// Creates.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let request = HostRequest::Create(pool_of(arguments)?);
    let HostResponse::Layout(layout) = context.host(request)? else {
        return Err(unexpected_answer());
    };
    if arguments.dry_run {
        context.print(&layout::render(&layout, "create"))?;
    }
    Ok(Exit::Done)
}

fn pool_of(arguments: &Arguments) -> Result<CreatePool, Failure> {
    let action = "create";
    let name = check_new_pool(&arguments.name).map_err(|error| Failure::name(action, &error))?;
    let what = arguments.name.as_str();
    let mut root_properties = arguments.root_properties.clone();
    root_properties.extend(arguments.mountpoint.iter().map(|path| (MOUNTPOINT.name.to_owned(), path.clone())));
    let (texts, spares) = spares(action, what, &arguments.vdevs)?;
    if texts.is_empty() {
        return Err(Failure::cannot(action, what, "a pool has at least one device beside those that stand by"));
    }
    Ok(CreatePool {
        vdevs: vdevs(action, what, &texts)?,
        spares,
        pool_assignments: assignments(&arguments.pool_properties, Property::of_pool, true, action, what)?,
        root_assignments: assignments(&root_properties, Property::of_dataset, true, action, what)?,
        force: arguments.force,
        dry_run: arguments.dry_run,
        name,
    })
}
