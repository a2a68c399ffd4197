//! `pool initialize`: writes a pattern to unused space of devices.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{Exit, Failure};

use super::trim::{Wish, for_pools};
use crate::context::Context;

/// Arguments of `pool initialize`.
#[derive(Args, Debug)]
#[command(
    after_help = "Writes a pattern to all free space, so that thinly provisioned storage allocates the space now and not at the first write of
data; image files take their full size. Space about to be allocated and blocks of the last three commits are skipped.

The service of the pool writes in steps and yields to other users of the devices; 'pool status -i' shows the progress. The
progress is in memory: an export or a crash ends the initialization, and the next one begins anew. A vdev is initialized as a
whole, even if only a single device is named.

Cannot be undone: the former content of free space is overwritten. 'pool import -F' may be unable to rewind more than three commits.

Examples:
  pool initialize tank
  pool initialize -n tank                    show how much would be written
  pool initialize -w --limit 100M tank       at most 100M per second; wait for the end
  pool initialize -s tank                    suspend; 'pool initialize tank' continues
  pool initialize -c tank /dev/sdb           cancel on the vdev of a device
  pool initialize -u tank                    forget that devices were initialized"
)]
pub struct Arguments {
    /// Dry run: show how much would be written
    #[arg(short = 'n', conflicts_with_all = ["suspend", "cancel", "uninit", "wait", "rate"])]
    dry_run: bool,
    /// Limit the initialization to RATE bytes per second; 'none' removes the limit
    #[arg(short = 'r', long = "limit", value_name = "RATE", conflicts_with_all = ["suspend", "cancel", "uninit"])]
    rate: Option<String>,
    /// Suspend the initialization
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["cancel", "uninit", "wait"])]
    suspend: bool,
    /// Cancel the initialization
    #[arg(short = 'c', long = "cancel", conflicts_with_all = ["uninit", "wait"])]
    cancel: bool,
    /// Forget an initialization that has finished
    #[arg(short = 'u', long = "uninit", conflicts_with = "wait")]
    uninit: bool,
    /// Wait until the initialization finishes
    #[arg(short = 'w', long = "wait")]
    wait: bool,
    /// All pools
    #[arg(short = 'a', long = "all", conflicts_with = "pool")]
    all: bool,
    /// The pool
    #[arg(value_name = "POOL", required_unless_present = "all")]
    pool: Option<String>,
    /// Devices (paths or GUIDs) whose vdevs to initialize (default: all)
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
}

/// Plans, starts, suspends, cancels or forgets an initialization.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let wish = Wish {
        kind: Kind::Initialize,
        dry_run: arguments.dry_run,
        rate: arguments.rate.as_deref(),
        suspend: arguments.suspend,
        cancel: arguments.cancel,
        forget: arguments.uninit,
        wait: arguments.wait,
        devices: &arguments.devices,
    };
    for_pools(arguments.pool.as_deref(), &wish, context)
}
