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
    let wish = Wish {
        kind: Kind::Trim,
        dry_run: arguments.dry_run,
        rate: arguments.rate.as_deref(),
        suspend: arguments.suspend,
        cancel: arguments.cancel,
        forget: false,
        wait: arguments.wait,
        devices: &arguments.devices,
    };
    for_pools(arguments.pool.as_deref(), &wish, context)
}

/// An order to a pass over free space: a TRIM or an initialization.
pub(super) struct Wish<'a> {
    pub(super) kind: Kind,
    pub(super) dry_run: bool,
    pub(super) rate: Option<&'a str>,
    pub(super) suspend: bool,
    pub(super) cancel: bool,
    pub(super) forget: bool,
    pub(super) wait: bool,
    pub(super) devices: &'a [String],
}

/// Gives the order in a pool, or in all known pools.
pub(super) fn for_pools(pool: Option<&str>, wish: &Wish<'_>, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = if wish.kind == Kind::Trim { "trim" } else { "initialize" };
    let Some(pool) = pool else {
        for pool in context.executor.known_pools()? {
            order(&pool, wish, context)?;
        }
        return Ok(Exit::Done);
    };
    order(&pool_name(action, pool)?, wish, context)
}

fn order(pool: &str, wish: &Wish<'_>, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let limit = |text: &str| if text == "none" { Ok(0) } else { rate(text) };
    let limit = wish.rate.map(limit).transpose()?;
    let devices = wish.devices.iter().map(|name| vdev_name(name)).collect::<Result<_, _>>()?;
    let target = JobTarget::Devices(devices);
    let order = match wish {
        Wish { suspend: true, .. } => Order::Pause(target.clone()),
        Wish { cancel: true, .. } => Order::Stop(target.clone()),
        Wish { forget: true, .. } => Order::Forget(target.clone()),
        Wish { dry_run: true, .. } => Order::Plan(target.clone()),
        _ => Order::Start { target: target.clone(), limit },
    };
    let mut response = context.call(pool, Request::job(wish.kind, order))?;
    if response == Response::Done && wish.wait {
        response = context.call(pool, Request::job(wish.kind, Order::Wait(target)))?;
    }
    let (planned, done) = match wish.kind {
        Kind::Trim => ("trimmed", "given back"),
        _ => ("initialized", "initialized"),
    };
    match response {
        Response::Done => {}
        Response::Bytes(bytes) if wish.dry_run => {
            context.print(&format!("{} of free space of {pool} would be {planned}\n", format_bytes(bytes)))?;
        }
        Response::Bytes(bytes) => {
            context.print(&format!("{pool}: {} of free space {done}\n", format_bytes(bytes)))?;
        }
        _ => return Err(unexpected_answer()),
    }
    Ok(Exit::Done)
}
