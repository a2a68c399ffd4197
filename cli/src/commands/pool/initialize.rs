//! `pool initialize`: writes a pattern to unused space of devices.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{Exit, Failure};

use super::trim::{Pass, for_pools};
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
    #[command(flatten)]
    pass: Pass,
    /// Forget an initialization that has finished
    #[arg(short = 'u', long = "uninit", conflicts_with_all = ["dry_run", "rate", "suspend", "cancel", "wait"])]
    uninit: bool,
}

/// Plans, starts, suspends, cancels or forgets an initialization.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for_pools(Kind::Initialize, &arguments.pass, arguments.uninit, context)
}
