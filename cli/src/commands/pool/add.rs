//! `pool add`: more devices for a pool.

use clap::Args;

use super::layout;
use crate::args::common::{pool_name, vdev};
use crate::context::{Context, unexpected_answer};
use crate::failure::{Exit, Failure};
use crate::protocol::{Request, Response};

/// Arguments of `pool add`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  pool add tank /dev/sdd
  pool add tank 10G:/var/lib/tank2.img
  pool add -n tank /dev/sdd                  only say what would be")]
pub struct Arguments {
    /// Take a device although it holds something; what it holds is lost
    #[arg(short = 'f')]
    force: bool,
    /// Only say what would be
    #[arg(short = 'n')]
    dry_run: bool,
    /// The pool
    pool: String,
    /// The devices
    #[arg(value_name = "VDEV", required = true)]
    vdevs: Vec<String>,
}

/// Adds.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let action = "add to";
    let pool = pool_name(action, &arguments.pool)?;
    let vdevs = arguments.vdevs.iter().map(|text| vdev(action, &pool, text)).collect::<Result<_, _>>()?;
    let request = Request::AddVdevs { vdevs, force: arguments.force, dry_run: arguments.dry_run };
    let Response::Layout(layout) = context.call(&pool, request)? else {
        return Err(unexpected_answer());
    };
    if arguments.dry_run {
        context.print(&layout::render(&layout, "add"))?;
    }
    Ok(Exit::Done)
}
