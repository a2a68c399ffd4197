//! `pool add`: more devices for a pool.

use clap::Args;
use protocol::{Exit, Failure, Request, Response, unexpected_answer};

use super::layout;
use crate::args::common::{pool_name, vdevs};
use crate::args::spares::spares;
use crate::context::Context;

/// Arguments of `pool add`.
#[derive(Args, Debug)]
#[command(
    after_help = "Cannot be undone: a raidz, vdevs for special or log, spares and cache devices come with features, \
which the pool keeps when they have left. Older programs that do not know these refuse a pool with a raidz, and only \
read one with any of the others. The vdevs themselves leave with 'pool remove', as far as there is room for what \
lies on them.

If devices are lost: data is spread over all vdevs, so the whole pool is lost with one vdev that lacks more devices \
than it can do without. A device that is a vdev by itself has no redundancy: with it everything is lost. With a log \
vdev it is only what was promised since the last commit, if power fails as well; with cache devices and spares it is \
nothing.

Examples:
  pool add tank /dev/sdd
  pool add tank mirror /dev/sdd /dev/sde
  pool add tank raidz1 /dev/sdd /dev/sde /dev/sdf
  pool add tank special mirror /dev/nvme0n1 /dev/nvme1n1
  pool add tank log /dev/pmem0               an fsync then touches no other device
  pool add tank 10G:/var/lib/tank2.img
  pool add tank spare /dev/sdg               stands by, and steps in for a device that fails
  pool add tank cache /dev/nvme0n1           copies of what is read, for reading again
  pool add -n tank /dev/sdd                  say what would be, and what a loss would cost"
)]
pub struct Arguments {
    /// Take a device although it holds something, which is lost; mix vdevs that stand unequally much
    #[arg(short = 'f')]
    force: bool,
    /// Only say what would be
    #[arg(short = 'n')]
    dry_run: bool,
    /// The pool
    pool: String,
    /// The devices; mirror, raidz1, raidz2 or raidz3 before those that are one vdev; special, log, cache or spare before what is for that
    #[arg(value_name = "VDEV", required = true)]
    vdevs: Vec<String>,
}

/// Adds.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "add to";
    let pool = pool_name(action, &arguments.pool)?;
    let (texts, spares) = spares(action, &pool, &arguments.vdevs)?;
    let vdevs = vdevs(action, &pool, &texts)?;
    let request = Request::AddVdevs { vdevs, spares, force: arguments.force, dry_run: arguments.dry_run };
    let Response::Layout(layout) = context.call(&pool, request)? else {
        return Err(unexpected_answer());
    };
    if arguments.dry_run {
        context.print(&layout::render(&layout, "add"))?;
    }
    Ok(Exit::Done)
}
