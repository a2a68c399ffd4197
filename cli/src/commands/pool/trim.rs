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
    #[command(flatten)]
    pass: Pass,
}

/// Arguments of a pass over free space: a TRIM or an initialization.
#[derive(Args, Debug)]
pub(super) struct Pass {
    /// Dry run: show the amount of space
    #[arg(short = 'n', conflicts_with_all = ["suspend", "cancel", "wait", "rate"])]
    dry_run: bool,
    /// Limit to RATE bytes per second; 'none' removes the limit
    #[arg(short = 'r', long = "limit", value_name = "RATE", conflicts_with_all = ["suspend", "cancel"])]
    rate: Option<String>,
    /// Suspend; the next start continues
    #[arg(short = 's', long = "suspend", conflicts_with_all = ["cancel", "wait"])]
    suspend: bool,
    /// Cancel
    #[arg(short = 'c', long = "cancel", conflicts_with = "wait")]
    cancel: bool,
    /// Wait until the end
    #[arg(short = 'w', long = "wait")]
    wait: bool,
    /// All pools
    #[arg(short = 'a', long = "all", conflicts_with = "pool")]
    all: bool,
    /// The pool
    #[arg(value_name = "POOL", required_unless_present = "all")]
    pool: Option<String>,
    /// Devices (paths or GUIDs); their vdevs are taken as a whole (default: all)
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
}

/// Plans, starts, suspends or cancels a TRIM.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    for_pools(Kind::Trim, &arguments.pass, false, context)
}

/// Gives the order in a pool, or in all known pools.
pub(super) fn for_pools(kind: Kind, pass: &Pass, forget: bool, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = if kind == Kind::Trim { "trim" } else { "initialize" };
    let Some(pool) = &pass.pool else {
        for pool in context.executor.known_pools()? {
            order(&pool, (kind, pass, forget), context)?;
        }
        return Ok(Exit::Done);
    };
    order(&pool_name(action, pool)?, (kind, pass, forget), context)
}

fn order(pool: &str, (kind, pass, forget): (Kind, &Pass, bool), context: &mut Context<'_>) -> Result<Exit, Failure> {
    let limit = |text: &str| if text == "none" { Ok(0) } else { rate(text) };
    let limit = pass.rate.as_deref().map(limit).transpose()?;
    let devices = pass.devices.iter().map(|name| vdev_name(name)).collect::<Result<_, _>>()?;
    let target = JobTarget::Devices(devices);
    let order = match pass {
        Pass { suspend: true, .. } => Order::Pause(target.clone()),
        Pass { cancel: true, .. } => Order::Stop(target.clone()),
        _ if forget => Order::Forget(target.clone()),
        Pass { dry_run: true, .. } => Order::Plan(target.clone()),
        _ => Order::Start { target: target.clone(), limit },
    };
    let mut response = context.call(pool, Request::job(kind, order))?;
    if response == Response::Done && pass.wait {
        response = context.call(pool, Request::job(kind, Order::Wait(target)))?;
    }
    let (planned, done) = match kind {
        Kind::Trim => ("trimmed", "given back"),
        _ => ("initialized", "initialized"),
    };
    match response {
        Response::Done => {}
        Response::Bytes(bytes) if pass.dry_run => {
            context.print(&format!("{} of free space of {pool} would be {planned}\n", format_bytes(bytes)))?;
        }
        Response::Bytes(bytes) => {
            context.print(&format!("{pool}: {} of free space {done}\n", format_bytes(bytes)))?;
        }
        _ => return Err(unexpected_answer()),
    }
    Ok(Exit::Done)
}
