//! `pool rebalance`: all vdevs of a pool become equally full.

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
    after_help = "After 'pool add' the old vdevs are as full as before, and the new one is empty. What lies on the fuller ones moves to the
emptier ones, some regions at a time, while everything stays mounted and in use. Between vdevs whose rows differ in width, such
as a disk and a raidz, only data moves, in pieces: where they are is kept in memory until they are freed, and the pool begins to
use the feature packed_chunks. 'pool status' shows how far it has come. It goes on after the pool was exported and imported, or
after a crash.

Cannot be undone: what was moved stays where it is, however the rebalance ends. The pool keeps the features that \
come with it: older programs that do not know them refuse it.

If devices are lost: what is moved to another vdev is as safe as that one is; as any, it is lost with the pool if one \
vdev is.

Examples:
  pool rebalance -n tank                     only say what would be moved
  pool rebalance -w tank
  pool rebalance --limit 20M tank            copy at most so many bytes a second; also one that is under way
  pool rebalance -p tank                     pause; 'pool rebalance tank' goes on
  pool rebalance -s tank                     stop"
)]
pub struct Arguments {
    #[command(flatten)]
    how: How,
}

/// Rebalances.
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
        Some(reason) => format!("nothing would be moved: {reason}\n"),
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
        insta::assert_snapshot!(render(&none), @"nothing would be moved: all vdevs are about equally full");
    }
}
