//! `pool remove`: removes a vdev, after moving its data to the remaining vdevs.

use clap::Args;
use dataset::jobs::Kind;
use dataset::property::size::format_bytes;
use protocol::{Exit, Failure, JobTarget, Order, RemovalPlan, Request, Response, unexpected_answer};

use crate::args::common::{pool_name, vdev_name};
use crate::args::rate;
use crate::context::Context;

/// Arguments of `pool remove`.
#[derive(Args, Debug)]
#[command(
    after_help = "The pool stays online; 'pool status' shows the progress. The removal continues after an export or a crash, and repeats only the
part in progress. Several vdevs are removed in turn: the command waits for all but the last. Spares and cache devices are removed
at once.

Cannot be undone: at the end the labels of the devices are erased; until then -s stops the removal. 'pool import -F' can no
longer rewind to a txg that references the vdev. The pool keeps the features enabled by moving data; programs without them
refuse the pool.

If devices are lost: until the removal completes, the pool needs the vdev as before. Afterwards the data has the redundancy of
the remaining vdevs: data of a mirror may then be on a single disk.

Examples:
  pool remove tank /dev/sdd
  pool remove -n tank mirror-1               show what would be moved, and the free space
  pool remove -p tank                        pause; repeat the original command to continue
  pool remove --limit 20M tank /dev/sdd      copy at most 20M per second; also while running
  pool remove -s tank                        stop; moved data stays where it is"
)]
pub struct Arguments {
    /// Dry run: show what would be moved, and whether there is room
    #[arg(short = 'n', conflicts_with_all = ["stop", "wait"])]
    dry_run: bool,
    /// Pause the removal; with -n: print exact numbers
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait"])]
    pause: bool,
    /// Limit copying to RATE bytes per second; 'none' removes the limit
    #[arg(long = "limit", value_name = "RATE", conflicts_with_all = ["stop", "dry_run"])]
    limit: Option<String>,
    /// Stop the removal; moved data stays where it is
    #[arg(short = 's', conflicts_with_all = ["wait", "vdevs"])]
    stop: bool,
    /// Wait until the removal finishes
    #[arg(short = 'w')]
    wait: bool,
    /// The pool
    pool: String,
    /// The vdevs: a device (path or GUID), or a group such as mirror-1
    #[arg(value_name = "VDEV", required_unless_present_any = ["stop", "pause"])]
    vdevs: Vec<String>,
}

/// Removes vdevs in turn, or plans, pauses or stops a removal.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("remove from", &arguments.pool)?;
    if arguments.stop {
        return context.run(&pool, Request::stop(Kind::Remove)).map(|()| Exit::Done);
    }
    if arguments.pause && !arguments.dry_run {
        if !arguments.vdevs.is_empty() {
            return Err(Failure::usage("-p pauses the current removal and takes no vdev"));
        }
        return context.run(&pool, Request::pause(Kind::Remove)).map(|()| Exit::Done);
    }
    if arguments.vdevs.is_empty() {
        return Err(Failure::usage("missing a vdev"));
    }
    let limit = arguments.limit.as_deref().map(rate::limit).transpose()?;
    let vdevs: Vec<String> = arguments.vdevs.iter().map(|vdev| vdev_name(vdev)).collect::<Result<_, _>>()?;
    // A removal cannot be undone, so all names are checked before the first removal.
    let looked_at = if arguments.dry_run || vdevs.len() > 1 { &vdevs[..] } else { &[] };
    let plans = looked_at.iter().map(|vdev| ask(context, &pool, vdev, limit, true)).collect::<Result<Vec<_>, _>>()?;
    if arguments.dry_run {
        plans.iter().try_for_each(|plan| context.print(&render(plan, arguments.pause)))?;
        let fit = plans.iter().all(|plan| plan.needed <= plan.available);
        return Ok(if fit { Exit::Done } else { Exit::Failed });
    }
    for (number, vdev) in (1..).zip(&vdevs) {
        let plan = ask(context, &pool, vdev, limit, false)?;
        if plan.left.is_none() && (arguments.wait || number < vdevs.len()) {
            match context.call(&pool, Request::wait(Kind::Remove))? {
                Response::Layout(_) => {}
                _ => return Err(unexpected_answer()),
            }
        }
    }
    Ok(Exit::Done)
}

/// Requests the removal of a vdev; with `dry_run` only the plan.
fn ask(
    context: &mut Context<'_>,
    pool: &str,
    vdev: &str,
    limit: Option<u64>,
    dry_run: bool,
) -> Result<RemovalPlan, Failure> {
    let target = JobTarget::Device(vdev.to_owned());
    let order = if dry_run { Order::Plan(target) } else { Order::Start { target, limit } };
    match context.call(pool, Request::job(Kind::Remove, order))? {
        Response::Removal(plan) => Ok(plan),
        _ => Err(unexpected_answer()),
    }
}

fn render(plan: &RemovalPlan, exact: bool) -> String {
    let RemovalPlan { vdev, bytes, needed, available, region, .. } = plan;
    let size = |bytes: u64| if exact { bytes.to_string() } else { format_bytes(bytes) };
    match (*region, *bytes) {
        (0, 0) => return format!("{vdev} would be removed at once: it holds no pool data\n"),
        (0, copies) => {
            let copies = size(copies);
            return format!("{vdev} would be removed at once, discarding {copies} of cached data\n");
        }
        _ => {}
    }
    format!("{} would be moved off {vdev}\n{}\n", size(*bytes), regions(*needed, *available, &size(*region)))
}

/// Text for the required and the available number of empty regions.
pub(super) fn regions(needed: u32, available: u32, size: &str) -> String {
    let too_few = if needed > available { ": too few" } else { "" };
    format!("{needed} empty regions of {size} needed elsewhere, {available} available{too_few}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vdevs_are_named_as_status_shows_them() {
        for name in ["mirror-1", "raidz1-0", "raidz3-12"] {
            assert_eq!(vdev_name(name).unwrap(), name);
        }
        for path in ["raidz-1", "disk-1", "mirror-x"] {
            assert!(vdev_name(path).unwrap().ends_with(&format!("/{path}")), "{path}");
        }
    }

    #[test]
    fn a_plan_says_what_it_takes() {
        let plan = RemovalPlan {
            vdev: "mirror-1".into(),
            bytes: 3 << 20,
            needed: 4,
            available: 50,
            region: 1 << 20,
            left: None,
        };
        insta::assert_snapshot!(render(&plan, false), @r"
        3M would be moved off mirror-1
        4 empty regions of 1M needed elsewhere, 50 available
        ");
        assert!(render(&plan, true).starts_with("3145728 would be moved"));
        assert!(
            render(&RemovalPlan { available: 3, ..plan.clone() }, false)
                .ends_with("needed elsewhere, 3 available: too few\n")
        );
        let copies = RemovalPlan { vdev: "/c.img".into(), region: 0, needed: 0, available: 0, ..plan };
        let spare = RemovalPlan { bytes: 0, ..copies.clone() };
        insta::assert_snapshot!(render(&copies, false) + &render(&spare, true), @r"
        /c.img would be removed at once, discarding 3M of cached data
        /c.img would be removed at once: it holds no pool data
        ");
    }
}
