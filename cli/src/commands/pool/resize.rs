//! `pool resize`: shrinks a device, after moving the data at its end to the rest of the pool.

use clap::Args;
use dataset::jobs::Kind;
use dataset::property::size::{format_bytes, format_bytes_up, parse_size};
use protocol::{Exit, Failure, JobTarget, NewSize, Order, Request, ResizePlan, Response, unexpected_answer};

use super::remove::regions;
use crate::args::common::{pool_name, vdev_name};
use crate::args::rate;
use crate::context::Context;

/// Arguments of `pool resize`.
#[derive(Args, Debug)]
#[command(
    after_help = "Data at the end of the device is moved elsewhere. The pool stays online; 'pool status' shows the progress. The job continues
after an export or a crash, but copies everything again. At the end an image file is truncated. A partition or a volume keeps its
size and can be shrunk to the new size afterwards.

SIZE is the new size, such as 10G, or a decrease, such as -1G. SIZE is rounded up to whole regions. All devices of a mirror are
resized together; the job waits for missing devices. A RAID-Z cannot be resized: add a smaller vdev, then remove the RAID-Z.
'pool online -e' makes a device larger again; autoexpand does not reclaim space given up here.

Cannot be undone: 'pool import -F' can no longer rewind to a txg with blocks in the space given up. Until the resize completes, -s
stops the job. The pool keeps the features enabled by a resize; programs without them refuse the pool.

If devices are lost: redundancy is unchanged, except for data moved to another vdev, which has the redundancy of that vdev.

Examples:
  pool resize -n tank /dev/sdb1 10G          dry run; show the smallest possible size
  pool resize -w tank disk.img -1G
  pool resize --limit 20M tank disk.img 10G  copy at most 20M per second; also while running
  pool resize -p tank                        pause; repeat the original command to continue
  pool resize -s tank                        stop; all data stays where it is"
)]
pub struct Arguments {
    /// Dry run: show what would be moved, and the smallest possible size
    #[arg(short = 'n', conflicts_with_all = ["stop", "wait", "limit"])]
    dry_run: bool,
    /// Pause the resize; with -n: print exact numbers
    #[arg(short = 'p', conflicts_with_all = ["stop", "wait", "limit"])]
    pause: bool,
    /// Stop the resize
    #[arg(short = 's', conflicts_with_all = ["wait", "limit", "device"])]
    stop: bool,
    /// Wait until the resize finishes
    #[arg(short = 'w')]
    wait: bool,
    /// Limit copying to RATE bytes per second; 'none' removes the limit
    #[arg(long = "limit", value_name = "RATE")]
    limit: Option<String>,
    /// The pool
    pool: String,
    /// The device (path or GUID), or its mirror, such as mirror-1
    #[arg(required_unless_present_any = ["pause", "stop"])]
    device: Option<String>,
    /// The new size, or the decrease, such as -1G
    #[arg(required_unless_present_any = ["pause", "stop"], allow_hyphen_values = true)]
    size: Option<String>,
}

/// Plans, starts, pauses or stops a resize.
pub fn run(arguments: &Arguments, context: &mut Context<'_>) -> Result<Exit, Failure> {
    let pool = pool_name("resize a device of", &arguments.pool)?;
    let (device, size) = match (&arguments.device, &arguments.size) {
        (device, _) if arguments.pause && !arguments.dry_run => {
            if device.is_some() {
                return Err(Failure::usage("-p pauses the current resize and takes no device"));
            }
            return context.run(&pool, Request::pause(Kind::Resize)).map(|()| Exit::Done);
        }
        _ if arguments.stop => return context.run(&pool, Request::stop(Kind::Resize)).map(|()| Exit::Done),
        (Some(device), Some(size)) => (vdev_name(device)?, new_size(size)?),
        _ => return Err(Failure::usage("missing a device and its new size")),
    };
    let limit = arguments.limit.as_deref().map(rate::limit).transpose()?;
    let target = JobTarget::Size(device, size);
    let order = if arguments.dry_run { Order::Plan(target) } else { Order::Start { target, limit } };
    let Response::Resize(plan) = context.call(&pool, Request::job(Kind::Resize, order))? else {
        return Err(unexpected_answer());
    };
    if arguments.dry_run {
        context.print(&render(&plan, arguments.pause))?;
        return Ok(if plan.needed <= plan.available { Exit::Done } else { Exit::Failed });
    }
    if plan.size != plan.asked {
        context.print(&format!("{}\n", rounded(&plan, false)))?;
    }
    if arguments.wait || plan.is_done {
        let Response::Resized(left) = context.call(&pool, Request::wait(Kind::Resize))? else {
            return Err(unexpected_answer());
        };
        for path in left {
            context.print(&format!("{path} is still larger; it can now be shrunk to the new size\n"))?;
        }
    }
    Ok(Exit::Done)
}

fn new_size(text: &str) -> Result<NewSize, Failure> {
    let (less, number) = match text.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, text),
    };
    if number.starts_with('+') {
        return Err(Failure::usage("to enlarge a device: pool online -e"));
    }
    let bytes = parse_size(number).map_err(|error| Failure::usage(format!("bad size: {error}")))?;
    Ok(if less { NewSize::By(bytes) } else { NewSize::To(bytes) })
}

/// The new size, rounded up to whole regions.
fn rounded(plan: &ResizePlan, exact: bool) -> String {
    let [size, region] = [plan.size, plan.region].map(|bytes| shown(bytes, exact));
    format!("new size of {}: {size} (whole regions of {region})", plan.name)
}

fn shown(bytes: u64, exact: bool) -> String {
    if exact { bytes.to_string() } else { format_bytes(bytes) }
}

fn render(plan: &ResizePlan, exact: bool) -> String {
    let [bytes, region] = [plan.bytes, plan.region].map(|bytes| shown(bytes, exact));
    let least = if exact { plan.least.to_string() } else { format_bytes_up(plan.least) };
    let regions = regions(plan.needed, plan.available, &region);
    let rounded = rounded(plan, exact);
    format!("{rounded}\n{bytes} would be moved off its end\n{regions}\nsmallest possible size: {least}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_absolute_or_less() {
        assert_eq!(new_size("10G").unwrap(), NewSize::To(10 << 30));
        assert_eq!(new_size("-512K").unwrap(), NewSize::By(512 << 10));
        for bad in ["", "-", "x", "--1G", "+1G", "-+1"] {
            assert_eq!(new_size(bad).unwrap_err().exit, Exit::Usage, "{bad}");
        }
    }

    #[test]
    fn a_plan_says_what_it_takes() {
        let plan = ResizePlan {
            name: "/srv/a.img".into(),
            asked: 80 << 20,
            size: 83_361_792,
            bytes: 3 << 20,
            needed: 4,
            available: 50,
            region: 1 << 20,
            least: 70 << 20,
            is_done: false,
        };
        insta::assert_snapshot!(render(&plan, false), @r"
        new size of /srv/a.img: 79.5M (whole regions of 1M)
        3M would be moved off its end
        4 empty regions of 1M needed elsewhere, 50 available
        smallest possible size: 70M
        ");
        let exact = render(&plan, true);
        assert!(exact.contains(": 83361792 (whole") && exact.ends_with("size: 73400320\n"), "{exact}");
    }
}
