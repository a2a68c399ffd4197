//! `pool trim`: trims unused space of devices.

use clap::Args;
use dataset::{jobs::Kind, property::size::format_bytes};
use protocol::{Exit, Failure, JobTarget, Order, Request, Response, unexpected_answer};

use crate::args::common::{pool_name, vdev_name};
use crate::args::rate::rate;
use crate::context::Context;

/// Arguments of `pool trim`.
#[derive(Args, Debug)]
#[command(
    after_help = "Tells devices to discard free space; image files become sparse. Free pieces below 1M, space about to be allocated, and blocks of
the last three commits are skipped.

The service of the pool trims in steps; 'pool status -t' shows the progress. An export or a crash ends the trim; trimmed space
stays trimmed. A vdev is trimmed as a whole, even if only a single device is named. With autotrim=on, freed space of 128K or more is
trimmed continuously.

Cannot be undone: trimmed space loses its content. 'pool import -F' may be unable to rewind more than three commits.

Examples:
  pool trim tank
  pool trim -a                               all pools
  pool trim -n tank                          show how much would be trimmed
  pool trim -w -r 100M tank                  at most 100M per second; wait for the end
  pool trim --limit 20M tank                 change the limit of a running trim
  pool trim -s tank                          suspend; 'pool trim tank' continues
  pool trim -c tank /dev/sdb                 cancel on the vdev of a device"
)]
pub struct Arguments {
    /// Dry run: show how much would be trimmed
    #[arg(short = 'n', conflicts_with_all = ["suspend", "cancel", "wait", "rate"])]
    dry_run: bool,
    /// Limit the trim to RATE bytes per second; 'none' removes the limit
    #[arg(short = 'r', long = "limit", value_name = "RATE", conflicts_with_all = ["suspend", "cancel"])]
    rate: Option<String>,
    /// Suspend the trim
    #[arg(short = 's', conflicts_with_all = ["cancel", "wait"])]
    suspend: bool,
    /// Cancel the trim
    #[arg(short = 'c', conflicts_with = "wait")]
    cancel: bool,
    /// Wait until the trim finishes
    #[arg(short = 'w')]
    wait: bool,
    /// All pools
    #[arg(short = 'a', conflicts_with = "pool")]
    all: bool,
    /// The pool
    #[arg(value_name = "POOL", required_unless_present = "all")]
    pool: Option<String>,
    /// Devices (paths or GUIDs) whose vdevs to trim (default: all)
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
}

/// Plans, starts, suspends or cancels a TRIM.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let Some(pool) = &arguments.pool else {
        for pool in context.executor.known_pools()? {
            trim(&pool, arguments, context)?;
        }
        return Ok(Exit::Done);
    };
    trim(&pool_name("trim", pool)?, arguments, context)
}

fn trim(pool: &str, arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let limit = |text: &str| if text == "none" { Ok(0) } else { rate(text) };
    let limit = arguments.rate.as_deref().map(limit).transpose()?;
    let devices = arguments.devices.iter().map(|name| vdev_name(name)).collect::<Result<_, _>>()?;
    let target = JobTarget::Devices(devices);
    let order = match (arguments.suspend, arguments.cancel) {
        (true, _) => Order::Pause(target.clone()),
        (_, true) => Order::Stop(target.clone()),
        _ if arguments.dry_run => Order::Plan(target.clone()),
        _ => Order::Start { target: target.clone(), limit },
    };
    let mut response = context.call(pool, Request::job(Kind::Trim, order))?;
    if response == Response::Done && arguments.wait {
        response = context.call(pool, Request::job(Kind::Trim, Order::Wait(target)))?;
    }
    match response {
        Response::Done => {}
        Response::Bytes(bytes) if arguments.dry_run => {
            context.print(&format!("{} of free space of {pool} would be trimmed\n", format_bytes(bytes)))?;
        }
        Response::Bytes(bytes) => {
            context.print(&format!("{pool}: {} of free space given back\n", format_bytes(bytes)))?;
        }
        _ => return Err(unexpected_answer()),
    }
    Ok(Exit::Done)
}
