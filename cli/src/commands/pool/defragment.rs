//! `pool defragment`: what is mostly holes becomes whole regions again.

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
    after_help = "What was deleted leaves holes, and in the end no region is empty: large files are then stored in pieces. 'pool list' shows
under FRAG how much of the free space lies in regions that are partly used. Here regions that are about half empty or more
are emptied into fewer ones, some at a time, while everything stays mounted and in use. 'pool status' shows how far it has come.
It goes on after the pool was exported and imported, or after a crash.

It moves what lies in these regions, once; it does not put files in order. Where things were and where they are now is kept
in maps: each piece that was moved takes 16 bytes of memory until it is freed, which 'pool status' adds up, and a read of it
one search in memory more. Holes that come after that are defragmented like all others. Regions of metadata are left as they
are: metadata fills its own holes. With copies=2 or 3 on one device, copies may come to lie nearer to each other.

While it is under way, no vdev can be removed, expanded or rebalanced, nor the other way round: one thing is moved at a time.

Cannot be undone: what was moved stays where it is, and the pool keeps the features that come with it: older \
programs that do not know them refuse it.

Examples:
  pool defragment -n tank                    only say what would be moved, and gained
  pool defragment -w tank
  pool defragment --limit 20M tank           copy at most so many bytes a second; also one that is under way
  pool defragment -p tank                    pause; 'pool defragment tank' goes on
  pool defragment -s tank                    stop; what was moved stays where it is"
)]
pub struct Arguments {
    #[command(flatten)]
    how: How,
}

/// Defragments.
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
        Some(reason) => format!("nothing would be moved: {reason}\n"),
        None => format!(
            "{} in {chunks} regions of {} would be moved to {} others\nempty regions: {empty} now, {empty_then} then\n",
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
        3M in 12 regions of 1M would be moved to 4 others
        empty regions: 2 now, 10 then
        ");
        let none = DefragmentPlan { reason: Some("there is too little room".to_owned()), ..plan };
        insta::assert_snapshot!(render(&none), @"nothing would be moved: there is too little room");
    }
}
