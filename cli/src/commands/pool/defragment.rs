//! `pool defragment`: consolidates fragmented free space into empty regions.

use clap::Args;
use dataset::jobs::Kind;
use dataset::property::size::format_bytes;
use protocol::{DefragmentPlan, Exit, Failure, Order, Request, Response, unexpected_answer};

use super::batches::How;
use crate::args::common::pool_name;
use crate::context::Context;

/// Arguments of `pool defragment`.
#[derive(Args, Debug)]
#[command(
    after_help = "Deleted data leaves small gaps of free space; new large files are then stored in pieces. The FRAG column of 'pool list' shows the
share of free space in partly used regions. 'pool defragment' packs regions of which at most five eighths are
in use into fewer regions. The pool stays online; 'pool status' shows the progress. The job continues after an export or a crash.

Data is moved once and files are not reordered. A map in memory records the new addresses, with 16 bytes for each moved piece
until the piece is freed; 'pool status' shows the total. Regions of metadata stay as they are. With copies=2 or 3 on a single
device, copies may end up closer together. Removal, expansion, rebalance, resize and defragmentation exclude each other.

Cannot be undone: moved data stays where it is. The pool keeps the features enabled by moving data; programs without them
refuse the pool.

Examples:
  pool defragment -n tank                    dry run
  pool defragment -w tank
  pool defragment --limit 20M tank           copy at most 20M per second; also while running
  pool defragment -p tank                    pause; 'pool defragment tank' continues
  pool defragment -s tank                    stop"
)]
pub struct Arguments {
    #[command(flatten)]
    how: How,
}

/// Plans, starts, pauses or stops a defragmentation.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("defragment", &arguments.how.pool)?;
    let order = arguments.how.order()?;
    let dry_run = matches!(order, Order::Plan(_));
    match context.call(&pool, Request::job(Kind::Defragment, order))? {
        Response::Done => {}
        Response::Defragment(plan) if dry_run || plan.reason.is_some() => context.print(&render(&plan))?,
        Response::Defragment(_) if arguments.how.wait => context.run(&pool, Request::wait(Kind::Defragment))?,
        Response::Defragment(_) => {}
        _ => return Err(unexpected_answer()),
    }
    Ok(Exit::Done)
}

fn render(plan: &DefragmentPlan) -> String {
    let DefragmentPlan { bytes, chunks, empty, empty_then, region, reason } = plan;
    match reason {
        Some(reason) => format!("Nothing to do: {reason}\n"),
        None => format!(
            "{} in {chunks} regions of {} would be moved into {} others\nempty regions: {empty} before, {empty_then} after\n",
            format_bytes(*bytes),
            format_bytes(*region),
            chunks.saturating_sub(empty_then.saturating_sub(*empty))
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_says_what_would_be_gained_or_why_nothing() {
        let plan =
            DefragmentPlan { bytes: 3 << 20, chunks: 12, empty: 2, empty_then: 10, region: 1 << 20, reason: None };
        insta::assert_snapshot!(render(&plan), @r"
        3M in 12 regions of 1M would be moved into 4 others
        empty regions: 2 before, 10 after
        ");
        let none = DefragmentPlan { reason: Some("too little free space".to_owned()), ..plan };
        insta::assert_snapshot!(render(&none), @"Nothing to do: too little free space");
    }
}
