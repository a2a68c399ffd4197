//! `pool create`: creates a pool on image files or devices.

use clap::Args;
use dataset::name::check_new_pool;
use dataset::property::dataset::MOUNTPOINT;
use dataset::property::{DISABLED, FEATURE, Property};
use pool::format::label::KNOWN_FEATURES;
use protocol::{CreatePool, Exit, Failure, HostRequest, HostResponse, unexpected_answer};

use super::layout;
use crate::args::altroot::with_altroot;
use crate::args::common::{assignments, split_assignment, vdevs};
use crate::args::spares::spares;
use crate::context::Context;

/// Arguments of `pool create`.
#[derive(Args, Debug)]
#[command(
    after_help = "A vdev is a single device or a group of devices. A device is the path of an image file or a block device; SIZE:PATH creates an
image. Data is spread over all vdevs.

  DEVICE                a vdev without redundancy
  mirror DEVICE...      all devices hold the same data
  raidz1 DEVICE...      any 1 device may fail (raidz2: 2, raidz3: 3)
  spare DEVICE...       hot spares, used when a device fails
  log VDEV...           only the intent log (SLOG); speeds up fsync
  special VDEV...       metadata and small blocks (special_small_blocks)
  cache DEVICE...       second-level read cache (L2ARC); survives an export

A RAID-Z stores a block in whole rows of a sector per device, so small blocks need relatively more parity. Disks of a RAID-Z may
differ in size: extra space is used if the number of disks with extra space exceeds the parity; -n shows the result. If a special
vdev fails, the pool is lost: give special vdevs the same redundancy as the data vdevs. A cache device needs no redundancy; the
property secondarycache selects its content.

A device needs at least 64M. 'pool set --help' and 'fs set --help' describe the properties for -o and -O.

Examples:
  pool create tank 10G:/var/lib/tank.img
  pool create -O compression=zstd -m /srv tank /dev/sdb /dev/sdc
  pool create tank mirror /dev/sdb /dev/sdc
  pool create tank mirror /dev/sdb /dev/sdc mirror /dev/sdd /dev/sde
  pool create tank raidz2 /dev/sdb /dev/sdc /dev/sdd /dev/sde /dev/sdf
  pool create tank mirror /dev/sdb /dev/sdc special mirror /dev/sdd /dev/sde
  pool create tank mirror /dev/sdb /dev/sdc log /dev/pmem0
  pool create tank mirror /dev/sdb /dev/sdc spare /dev/sdd
  pool create tank mirror /dev/sdb /dev/sdc cache /dev/nvme0n1
  pool create -n tank /dev/sdb               show the layout and the cost of a loss"
)]
pub struct Arguments {
    /// Use devices that contain data (it is destroyed); allow vdevs of different redundancy
    #[arg(short = 'f')]
    force: bool,
    /// Dry run: show the resulting layout
    #[arg(short = 'n')]
    dry_run: bool,
    /// Disable all features, except those set by -o feature@NAME=enabled
    #[arg(short = 'd')]
    no_features: bool,
    /// Set a property of the pool
    #[arg(short = 'o', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    pool_properties: Vec<(String, String)>,
    /// Set a property of the root file system, inherited by all file systems
    #[arg(short = 'O', value_name = "PROPERTY=VALUE", value_parser = split_assignment)]
    root_properties: Vec<(String, String)>,
    /// Mount point of the root file system: a directory, none or legacy (default: /NAME; for ordinary users ~/NAME)
    #[arg(short = 'm', value_name = "MOUNTPOINT")]
    mountpoint: Option<String>,
    /// Alternate root directory of all mount points, until export
    #[arg(short = 'R', value_name = "ROOT")]
    altroot: Option<String>,
    /// The pool
    name: String,
    /// Devices, optionally grouped: mirror A B, raidz2 A B C D, special X, log X, cache X, spare X
    #[arg(value_name = "VDEV", required = true)]
    vdevs: Vec<String>,
}

/// Creates a pool, or prints the planned layout.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let request = HostRequest::Create(pool_of(arguments)?);
    context.note_ignored(&arguments.pool_properties)?;
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
    let mut pool_properties = arguments.pool_properties.clone();
    if arguments.no_features {
        let features = KNOWN_FEATURES.iter().map(|feature| format!("{FEATURE}{feature}"));
        let others = features.filter(|feature| arguments.pool_properties.iter().all(|(name, _)| name != feature));
        pool_properties.extend(others.map(|feature| (feature, DISABLED.to_owned())));
    }
    let (texts, spares) = spares(action, what, &arguments.vdevs)?;
    if texts.is_empty() {
        return Err(Failure::cannot(action, what, "a pool needs at least one device besides spares"));
    }
    Ok(CreatePool {
        vdevs: vdevs(action, what, &texts)?,
        spares,
        pool_assignments: with_altroot(&pool_properties, arguments.altroot.as_deref(), action, what)?,
        root_assignments: assignments(&root_properties, Property::of_dataset, true, action, what)?,
        force: arguments.force,
        dry_run: arguments.dry_run,
        name,
    })
}
