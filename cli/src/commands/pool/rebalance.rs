//! `pool rebalance`: spreads existing data evenly over all vdevs.

use clap::Args;
use dataset::jobs::Kind;
use dataset::property::size::format_bytes;
use protocol::{Exit, Failure, Order, RebalancePlan, Request, Response, unexpected_answer};

use super::batches::How;
use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool rebalance`.
#[derive(Args, Debug)]
#[command(
    after_help = "After 'pool add' the old vdevs are as full as before and the new vdev is empty. 'pool rebalance' moves data from fuller vdevs to
emptier vdevs. The pool stays online; 'pool status' shows the progress. The job continues after an export or a crash. Between
vdevs of different row width, such as a disk and a RAID-Z, only data moves, not metadata. A map in memory then records the
moved pieces, and the pool enables the feature packed_chunks.

Cannot be undone: moved data stays where it is, even after a stop. The pool keeps the features enabled by moving data; programs
without them refuse the pool.

If devices are lost: moved data has the redundancy of its new vdev. The pool is lost with any data vdev, as before.

Examples:
  pool rebalance -n tank                     dry run
  pool rebalance -w tank
  pool rebalance --limit 20M tank            copy at most 20M per second; also while running
  pool rebalance -p tank                     pause; 'pool rebalance tank' continues
  pool rebalance -s tank                     stop"
)]
pub struct Arguments {
    #[command(flatten)]
    how: How,
}

/// Plans, starts, pauses or stops a rebalance.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("rebalance", &arguments.how.pool)?;
    let order = arguments.how.order()?;
    let dry_run = matches!(order, Order::Plan(_));
    match context.call(&pool, Request::job(Kind::Rebalance, order))? {
        Response::Done => {}
        Response::Rebalance(plan) if dry_run || plan.reason.is_some() => context.print(&render(&plan))?,
        Response::Rebalance(_) if arguments.how.wait => context.run(&pool, Request::wait(Kind::Rebalance))?,
        Response::Rebalance(_) => {}
        _ => return Err(unexpected_answer()),
    }
    Ok(Exit::Done)
}

fn render(plan: &RebalancePlan) -> String {
    match &plan.reason {
        Some(reason) => format!("Nothing to do: {reason}\n"),
        None => format!(
            "{} in {} regions of {} would be moved\n",
            format_bytes(plan.bytes),
            plan.chunks,
            format_bytes(plan.region)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_would_be_moved_or_why_nothing() {
        let plan = RebalancePlan { bytes: 3 << 20, chunks: 4, region: 1 << 20, reason: None };
        insta::assert_snapshot!(render(&plan), @"3M in 4 regions of 1M would be moved");
        let none = RebalancePlan { reason: Some("all vdevs are about equally full".to_owned()), ..plan };
        insta::assert_snapshot!(render(&none), @"Nothing to do: all vdevs are about equally full");
    }
}
