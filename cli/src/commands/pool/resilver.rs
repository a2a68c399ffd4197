//! `pool resilver`: restarts, pauses or limits the resilver of a pool.

use clap::Args;
use dataset::jobs::Kind;
use protocol::{Exit, Failure, JobTarget, Order, Request};

use crate::args::common::pool_name;
use crate::args::rate;
use crate::context::Context;

/// Arguments of `pool resilver`.
#[derive(Args, Debug)]
#[command(
    after_help = "A resilver starts automatically when a device lacks data, and continues after an export or a crash. 'pool resilver' restarts it
from the beginning and retries blocks without a good copy. If all devices are complete, nothing is done.

A paused resilver continues where it was. Until the resilver finishes, a device that lacks data adds no redundancy. Pause and
limit survive export and import, and end with the resilver. The pool enables the feature rebalance for them; if the feature
is disabled, they last until export.

Examples:
  pool resilver tank
  pool resilver tank && pool wait -t resilver tank
  pool resilver -p tank                      pause; 'pool resilver tank' continues
  pool resilver --limit 50M tank             examine at most 50M per second"
)]
pub struct Arguments {
    /// Pause the resilver
    #[arg(short = 'p', conflicts_with = "limit")]
    pause: bool,
    /// Limit the running resilver to RATE bytes per second; 'none' removes the limit
    #[arg(long = "limit", value_name = "RATE")]
    limit: Option<String>,
    /// The pools
    #[arg(value_name = "POOL", required = true)]
    pools: Vec<String>,
}

/// Restarts, resumes, pauses or limits the resilver of each pool.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let limit = arguments.limit.as_deref().map(rate::limit).transpose()?;
    let order = match arguments.pause {
        true => Order::Pause(JobTarget::Pool),
        false => Order::Start { target: JobTarget::Pool, limit },
    };
    let pools: Vec<String> =
        arguments.pools.iter().map(|text| pool_name("resilver", text)).collect::<Result<_, _>>()?;
    for pool in &pools {
        context.run(pool, Request::job(Kind::Resilver, order.clone()))?;
    }
    Ok(Exit::Done)
}
